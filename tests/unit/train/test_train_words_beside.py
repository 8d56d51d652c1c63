"""Word vectors beside a language model: learned before it from the same text, and read by fine-tuning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from complaints import refused
from systems_under_test import pretrain_request, stopping_after, write_text

from foretext.errors import Interrupted
from foretext.runs.directory import RunDirectory
from foretext.runs.inspection import summary_of
from foretext.runs.model import WORDS, load_model, own_words
from foretext.runs.run_config import Budget, PretrainConfig, is_finished, read_config, read_position
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.files.rows import Row
from foretext.train.finetuning.finetune import finetune
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest
from foretext.train.pretraining import pretrain as pretraining
from foretext.train.pretraining.pretrain import budget_beside, pretrain

PAIRS = [("cat", "sun"), ("dog", "ball")] * 8
ROWS = [Row((f"the {who} sees the {what}",), who, f"row {number}") for number, (who, what) in enumerate(PAIRS)]
SINGLE = ("ngrams", "lsa", "vectors")
ALL = (*SINGLE, "tuned")  # where something is said of the trunk; else cross-validation chooses


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short text, which is enough here."""
    monkeypatch.setattr(pretraining, "LEAST_TEXT", 1000)
    return write_text(tmp_path, 200)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT with word vectors beside it."""
    folder = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "LEAST_TEXT", 1000)
        return pretrain(pretrain_request("gpt", write_text(folder, 200), folder / "run", 3, threads=1))


def taught(base: Path, **asked: Any) -> tuple[str, ...] | None:
    """The views that a fine-tuning of the run reads; None: the trunk alone."""
    request = FinetuneRequest(Base(base), **{"rows": ROWS, "kind": "classification", "epochs": 1} | asked)
    views = finetune(request).model.finetuned.views
    return None if views is None else views.kinds


def test_they_are_a_run_of_their_own_and_the_trunk_is_as_without_them(text: Path, base: Path, tmp_path: Path) -> None:
    words = own_words(base)
    assert words == base / WORDS
    assert load_model(words).system.name == "word2vec"
    assert not (words / "tokens").exists(), "nothing reads them again"
    plain = pretrain(pretrain_request("gpt", text, tmp_path / "plain", 3, threads=1, vectors=Path("none")))
    assert own_words(plain) is None and not (plain / WORDS).exists()
    assert RunDirectory(base).read("model.safetensors") == RunDirectory(plain).read("model.safetensors")


def test_short_text_has_none(tmp_path: Path) -> None:
    run = pretrain(pretrain_request("gpt", write_text(tmp_path), tmp_path / "run", 2))
    assert own_words(run) is None


@pytest.mark.parametrize("steps", [1, 2, 4])  # while the vectors are learned, and after that
def test_stopped_and_gone_on_with(steps: int, text: Path, base: Path, tmp_path: Path) -> None:
    request = pretrain_request("gpt", text, tmp_path / "run", 3, threads=1, resume=True)
    with stopping_after(steps) as stop, pytest.raises(Interrupted, match="run; continue with --resume"):
        pretrain(request, stopping=stop)
    pretrain(request)
    assert is_finished(RunDirectory(request.out / WORDS)) and is_finished(RunDirectory(request.out))
    for part in ("", WORDS):
        own, whole = (RunDirectory(run / part).read("model.safetensors") for run in (request.out, base))
        assert own == whole, part or "the trunk"


def test_their_time_is_of_the_budget_unless_they_were_given(text: Path, base: Path, tmp_path: Path) -> None:
    run = RunDirectory(base)
    took = read_position(RunDirectory(base / WORDS)).seconds
    config = read_config(run)
    assert isinstance(config, PretrainConfig)
    assert budget_beside(config, run) == Budget(steps=3)
    config = replace(config, budget=Budget(minutes=20))
    assert budget_beside(config, run).minutes == pytest.approx(20 - took / 60)
    given = pretrain(pretrain_request("gpt", text, tmp_path / "run", 2, vectors=base / WORDS))
    config = replace(config, data=read_config(RunDirectory(given)).data)  # type: ignore[union-attr]
    assert budget_beside(config, RunDirectory(given)) == Budget(minutes=20)


def test_none_is_remembered_by_a_run_that_was_stopped_before_its_first_checkpoint(text: Path, tmp_path: Path) -> None:
    request = pretrain_request("gpt", text, tmp_path / "run", 2, vectors=Path("none"))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(pretraining, "_make_loop", interrupted)
        pretrain(request)
    pretrain(replace(request, vectors=None, resume=True))
    assert not (request.out / WORDS).exists()


def interrupted(*_: object) -> NoReturn:
    raise Interrupted(130, None)


def test_without_resume_they_are_learned_again_from_the_text_that_is_named(text: Path, tmp_path: Path) -> None:
    request = pretrain_request("gpt", text, tmp_path / "run", 3, threads=1)
    with stopping_after(1) as stop, pytest.raises(Interrupted):
        pretrain(request, stopping=stop)
    text.write_text("Another text with other words.\n" * 200)
    pretrain(request)
    assert "another" in load_model(request.out / WORDS).tokenizer.pieces
    assert "cat" not in load_model(request.out / WORDS).tokenizer.pieces


def test_a_word2vec_run_can_be_put_there(text: Path, base: Path, tmp_path: Path) -> None:
    words = pretrain(pretrain_request("word2vec", text, tmp_path / "words"))
    run = pretrain(pretrain_request("gpt", text, tmp_path / "run", 2, vectors=words))
    assert RunDirectory(run / WORDS).read("model.safetensors") == RunDirectory(words).read("model.safetensors")
    with refused("--vectors", "word2vec"):
        pretrain(pretrain_request("gpt", text, tmp_path / "other", 2, vectors=base))
    assert not (tmp_path / "other").exists()
    with refused("--vectors"):
        pretrain(pretrain_request("word2vec", text, tmp_path / "other", vectors=words))


def test_finetune_reads_them_without_being_asked(base: Path) -> None:
    assert taught(base) == ALL
    assert taught(base, epochs=None) in (ALL, (*SINGLE, "states"))
    assert taught(base, views=("vectors",), epochs=None) == ("vectors",)


@pytest.mark.parametrize("asked", [{"views": ()}, {"plan": "paper"}, {"from_scratch": True}], ids=str)
def test_the_trunk_alone_where_that_is_asked_for(base: Path, asked: dict[str, Any]) -> None:
    assert taught(base, **asked) is None


def test_python_and_the_command_line_learn_the_same(base: Path) -> None:
    named = finetune(FinetuneRequest(Base(base), ROWS, "classification", epochs=1)).model
    loaded = finetune(FinetuneRequest(load_model(base), ROWS, "classification", epochs=1)).model
    assert named.views is not None and loaded.views is not None
    assert np.array_equal(named.views.bias, loaded.views.bias)


def test_tags_are_learned_by_views_of_words_unless_the_trunk_is_asked_for(base: Path) -> None:
    sentences = [TaggedSentence(("the", who), ("O", "B-X"), "row") for who, _ in PAIRS]
    assert taught(base, rows=sentences, kind="tagging", epochs=None) == ("ngrams", "vectors")
    assert taught(base, rows=sentences, kind="tagging", plan="gpt") is None
    assert taught(base, rows=sentences, kind="tagging", views=()) is None


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        ({"epochs": 2}, "--epochs"),
        ({"plan": "gpt"}, "--plan"),
        ({"lm_weight": 0.7}, "--lm-weight"),
        ({"sets": ("transfer.thaw=gradual",)}, "--set transfer.thaw=gradual"),
    ],
    ids=str,
)
def test_what_is_asked_of_a_trunk_is_refused_where_no_view_trains_one(
    base: Path, asked: dict[str, Any], option: str
) -> None:
    with refused(option, "ngrams,vectors", "tuned", "--views none"):
        taught(base, **{"epochs": None, "views": ("ngrams", "vectors")} | asked)
    assert taught(base, **asked) == ALL, "beside these views a trunk is trained"


def test_info_says_that_no_paper_has_views(base: Path, tmp_path: Path) -> None:
    def paper(**asked: Any) -> str:
        out = tmp_path / str(len([*tmp_path.iterdir()]))
        taught(base, out=out, **asked)
        return next(line for line in summary_of(RunDirectory(out)).splitlines() if line.startswith("  paper"))

    assert "views ngrams, lsa, vectors, tuned (none)" in paper()
    assert "views ngrams, states (none), the trunk as pre-trained" in paper(views=("ngrams", "states"), epochs=None)
    assert "views ngrams (none), the trunk left out" in paper(views=("ngrams",), epochs=None)
    assert "views" not in paper(plan="paper", epochs=3)
