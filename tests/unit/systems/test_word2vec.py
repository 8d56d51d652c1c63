"""Word vectors from a text to a run and back: repeatable, going on, what is kept and removed, LSA, texts as vectors,
vectors for other systems, and mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complaints import names, refused
from gensim.models import KeyedVectors
from noting import Notes
from systems_under_test import parallel_text, pretrain_request, stopping_after, write_text

import foretext as ft
from foretext.errors import Interrupted
from foretext.interop.exchange import export_model
from foretext.runs.directory import RunDirectory
from foretext.runs.inspection import summary_of
from foretext.runs.model import load_model, read_config
from foretext.runs.reading import given_vectors
from foretext.runs.run_config import Budget, Position
from foretext.text.words.latent_semantics import sif_means
from foretext.text.words.vectors import WordVectors, read_vectors
from foretext.train.pretraining.learner_loop import LINES, BoundedBudget
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest

SETS = ("model.width=8", "tokenizer.least=2", "objective.lsa=3", "training.batch_size=400")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"), documents=200)


def request_of(text: Path, out: Path, *sets: str, **changes: Any) -> PretrainRequest:
    return replace(pretrain_request("word2vec", text, out, 20, *SETS, *sets), **changes)


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(request_of(text, tmp_path_factory.mktemp("run") / "run", budget=Budget(steps=60)))


def weights(path: Path) -> bytes:
    return RunDirectory(path).read("model.safetensors")


def test_a_run_is_whole_and_repeatable(text: Path, tmp_path: Path) -> None:
    notes = Notes()
    pretrain(request_of(text, tmp_path / "a"), notes)
    run = RunDirectory(tmp_path / "a")
    assert run.names() == ["config.toml", "model.safetensors", "tokenizer.json", "training/position.json"]
    assert {path.name for path in run.path.iterdir()} & {LINES, "loss.png"} == set()
    assert notes.plans[0].keys() >= {"model", "text", "budget", "learns", "threads", "time", "memory", "disk"}
    names(notes.plans[0]["threads"], "1:")
    assert any("LSA: 3" in line for line in notes.notes)
    for name, seed in (("b", 0), ("c", 1)):
        pretrain(request_of(text, tmp_path / name, seed=seed))
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")
    with pytest.raises(Interrupted), stopping_after(7) as stop:
        pretrain(request_of(text, tmp_path / "d"), None, stop)
    left = RunDirectory(tmp_path / "d")
    assert left.has("training/state.safetensors") and load_model(left.path)
    (left.path / LINES).mkdir()
    (left.path / LINES / "0.0").write_text("of a process that was killed")
    pretrain(request_of(text, tmp_path / "d", resume=True))
    assert weights(tmp_path / "d") == weights(tmp_path / "a") and not (left.path / LINES).exists()
    assert "state" not in "".join(left.names())


def test_more_threads_are_said_not_to_repeat(text: Path, tmp_path: Path) -> None:
    notes = Notes()
    pretrain(request_of(text, tmp_path / "run", threads=2), notes)
    names(notes.plans[0]["threads"], "2:", "--threads 1")
    for threads in (0, -1, 100_000):
        with refused("--threads", str(threads)):
            pretrain(request_of(text, tmp_path / "other", threads=threads))


@pytest.mark.parametrize("kind", ["cbow", "skipgram"])
def test_vectors_know_which_words_stand_in_one_place(kind: str, text: Path, tmp_path: Path) -> None:
    """The one that is left by an `old` is `man`; animals and people stand before verbs."""
    sets = (f"objective.kind={kind}", "objective.window=2", "objective.sample=0", "objective.epochs=30")
    lm = ft.load(pretrain(request_of(text, tmp_path / "run", *sets, budget=Budget(steps=10_000))))
    assert isinstance(lm, ft.LanguageModel)
    assert lm.nearest("sees", 2)[0][0] in ("likes", "eats") and lm.nearest("cat", 1)[0][0] in ("dog", "child", "man")
    position = summary_of(RunDirectory(lm.path))
    names(position, "word2vec", "8", "LSA", "epochs=30")


def test_the_text_is_read_as_often_as_epochs_say(text: Path, tmp_path: Path) -> None:
    whole = pretrain(request_of(text, tmp_path / "run", "objective.epochs=2", budget=Budget(minutes=9)))
    run = RunDirectory(whole)
    shards = read_config(run).model
    words = sum(len(one.split()) for one in text.read_text().replace(".", " .").splitlines())
    position = json.loads(run.read("training/position.json"))
    assert position["tokens"] == 2 * words and position["finished"] and position["seconds"] < 60
    assert shards.lsa_dimensions == 3 and shards.lsa_pairs > 0


def test_a_budget_is_spent_by_steps_or_by_itself() -> None:
    for budget, at in (
        (BoundedBudget(minutes=1.0, most_steps=10, begun=20.0), Position(step=2, seconds=40.0)),
        (BoundedBudget(steps=4, most_steps=10), Position(step=2)),
        (BoundedBudget(tokens=100, most_steps=10), Position(step=2, tokens=50)),
        (BoundedBudget(minutes=9.0, most_steps=4), Position(step=2, seconds=1.0)),
    ):
        assert budget.progress(at) == 0.5 and not budget.spent(at)
    assert BoundedBudget(steps=40, most_steps=10).spent(Position(step=10))
    assert BoundedBudget(minutes=1.0, most_steps=10, begun=70.0).spent(Position(step=1, seconds=71.0))
    assert not BoundedBudget(minutes=1.0, most_steps=10, begun=70.0).spent(Position(seconds=71.0)), "one step at least"


def test_minutes_hold(text: Path, tmp_path: Path) -> None:
    """Steps that never end would: the budget does."""
    sets = ("objective.epochs=1000", "training.batch_size=50", "objective.lsa=0")
    run = RunDirectory(pretrain(request_of(text, tmp_path / "run", *sets, budget=Budget(minutes=0.03))))
    position = json.loads(run.read("training/position.json"))
    assert position["finished"] and 1.0 < position["seconds"] < 20


# -- what is asked of it ---------------------------------------------------------------------------------------------


def test_texts_are_sif_means_and_words_their_vectors(run: Path) -> None:
    lm = ft.load(run)
    assert isinstance(lm, ft.LanguageModel)
    texts = ["The cat likes fish.", "nothingknown", ""]
    trunk, tokenizer = lm.model.trunk, lm.model.tokenizer
    found = lm.features(texts)
    expected = sif_means(trunk.matrix(), trunk.counts(), [tokenizer.encode_array(text) for text in texts])
    np.testing.assert_array_equal(found, expected)
    assert found.shape == (3, 8) and found[0].any() and not found[1:].any()
    words = lm.word_features(texts)[0]
    assert words.words == ["The", "cat", "likes", "fish", "."]
    np.testing.assert_array_equal(words.vectors, trunk.matrix()[tokenizer.encode(texts[0])])


@pytest.mark.parametrize(
    "ask",
    [
        lambda lm: lm.perplexity(["a text"]),
        lambda lm: lm.generate("a"),
        lambda lm: lm.fill("a [MASK]"),
        lambda lm: lm.logits([3]),
        lambda lm: lm.translate(["a"]),
    ],
)
def test_what_vectors_cannot_do_is_refused(ask: Any, run: Path) -> None:
    with refused("word2vec"):
        ask(ft.load(run))


def test_nearest_words_and_a_word_that_is_not_there(run: Path) -> None:
    lm = ft.load(run)
    assert isinstance(lm, ft.LanguageModel)
    assert len(lm.nearest("CAT", 3)) == 3 and all(word != "cat" for word, _ in lm.nearest("cat", 999))
    with refused(str(run), "'catt'", "'cat'"):
        lm.nearest("catt")
    with refused("--n", "0"):
        lm.nearest("cat", 0)


def test_scores_of_pairs_and_analogies(run: Path, tmp_path: Path) -> None:
    lm = ft.load(run)
    assert isinstance(lm, ft.LanguageModel)
    file = tmp_path / "pairs.txt"
    file.write_text("word1 word2 score\ncat dog 9\nsees likes 8\ncat sun 1\ndog zebra 2\n")
    scores: Any = lm.word_scores(file)
    assert (scores.pairs, scores.known) == (4, 3) and -1 <= scores.spearman <= 1
    file.write_text(": animals\ncat dog dog cat\ncat dog zebra fish\n")
    scores = lm.word_scores(file)
    assert (scores.whole.questions, scores.whole.known) == (2, 1)
    for written, parts in (
        ("a text as people write it\n", ["pairs.txt line 1", "score"]),
        (": one\ncat dog dog\n", ["pairs.txt line 2", "3 "]),
        ("zebra lion 4\nlion zebra 3\n", [str(run), "0 ", "2 "]),
        (": one\nlion zebra zebra lion\n", [str(run)]),
    ):
        file.write_text(written)
        with refused(*parts):
            lm.word_scores(file)


@pytest.mark.parametrize(
    ("to", "options"), [("word2vec", {}), ("glove", {"no_header": True}), ("gensim", {"binary": True})]
)
def test_exported_vectors_are_the_runs(to: str, options: dict[str, bool], run: Path, tmp_path: Path) -> None:
    (said,) = export_model(run, tmp_path / "new" / "file", to)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "new" / "file"), **options)
    own = given_vectors(run)
    assert isinstance(own, WordVectors) and list(own.words) == theirs.index_to_key
    np.testing.assert_array_equal(theirs.vectors, own.matrix)
    names(said, str(len(own.words)), "8", "KeyedVectors.load_word2vec_format")
    if to != "gensim":
        back = read_vectors(tmp_path / "new" / "file")
        assert back.words == own.words
        np.testing.assert_array_equal(back.matrix, own.matrix)
    with refused(str(tmp_path), "--out"):
        export_model(run, tmp_path, to)


# -- for other systems -----------------------------------------------------------------------------------------------


def test_a_run_serves_where_a_file_of_vectors_does(run: Path, text: Path, tmp_path: Path) -> None:
    own = given_vectors(run)
    assert isinstance(own, WordVectors) and given_vectors("vectors.txt") == "vectors.txt"
    part = read_vectors(own, only=["Cat", "zebra"], first=2)
    assert set(part.words) == {*own.words[:2], "cat"} and part.width == 8
    np.testing.assert_array_equal(part.rows(["cat"])[0], own.rows(["cat"])[0])
    source, target, _ = parallel_text(text)
    made = pretrain(pretrain_request("cove", text, tmp_path / "cove", 1, source=source, target=target, vectors=run))
    model = load_model(made)
    id = model.tokenizer.encode("cat")[0]
    np.testing.assert_array_equal(model.trunk.vectors.table_VE[id].numpy(), own.rows(["cat"])[0])
    assert read_config(RunDirectory(made)).model.vectors == 8
    fresh = ft.new_model([("cat dog", "a"), ("dog fish", "b")], "cvt", vectors=run, sets=["model.cells=4"])
    assert fresh.model.vectors is not None and fresh.model.vectors.shape[1] == 8
    with refused(str(made), "cove", "--system word2vec"):
        given_vectors(made)


# -- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes(run: Path, text: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.txt"
    few.write_text("each word once here\n")
    out = tmp_path / "new"
    for request, parts in (
        (request_of(few, out, "tokenizer.least=5"), ["0 ", "4 ", "tokenizer.least=1"]),
        (request_of(text, out, "objective.window=0"), ["objective.window", "0"]),
        (request_of(text, out, "objective.sample=1"), ["objective.sample", "1"]),
        (request_of(text, out, "objective.lsa=-1"), ["objective.lsa", "-1"]),
        (request_of(text, out, "model.lsa_dimensions=4"), ["model.lsa_dimensions=4", "objective.lsa"]),
        (request_of(text, out, "tokenizer.least=0"), ["tokenizer.least", "0"]),
        (request_of(text, out, "objective.kind=glove"), ["objective.kind", "glove"]),
        (request_of(text, out, direction="backward"), ["--direction", "word2vec"]),
        (request_of(text, out, start=run, system=None, size=None), ["--from", str(run), "word2vec"]),
    ):
        with refused(*parts):
            pretrain(request)
        assert not out.exists(), "a mistake leaves nothing behind"


def test_where_lsa_is_impossible_there_is_none(tmp_path: Path) -> None:
    little, notes = tmp_path / "little.txt", Notes()
    little.write_text("a b a b c\nb a c a\n")
    made = pretrain(request_of(little, tmp_path / "run", "tokenizer.least=1", budget=Budget(steps=2)), notes)
    assert any("LSA" in line and "objective.lsa=0" in line for line in notes.notes)
    assert read_config(RunDirectory(made)).model.lsa_dimensions == 0 and load_model(made)


def test_a_single_long_document_is_cut_for_lsa(text: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text(" ".join(text.read_text().split("\n")) * 3)
    made = pretrain(request_of(long, tmp_path / "run", documents="file"))
    assert read_config(RunDirectory(made)).model.lsa_dimensions == 3


def test_pieces_of_words_have_vectors_too(text: Path, tmp_path: Path) -> None:
    made = pretrain(request_of(text, tmp_path / "run", "tokenizer.kind=unigram", "tokenizer.size=80"))
    lm = ft.load(made)
    assert isinstance(lm, ft.LanguageModel) and lm.features(["a cat"]).any()


def test_from_python_and_in_chinese() -> None:
    """A Chinese character is a word."""
    texts = ["我爱北京的电影。", "他爱上海的电影！", "我不爱上海的雨。"] * 20
    made = [
        ft.pretrain(documents=texts, system="word2vec", steps=20, threads=1, sets=["model.width=6", "objective.lsa=2"])
        for _ in range(2)
    ]
    found, again = (one.features(["北京的电影", "雨"]) for one in made)
    assert found.shape == (2, 6) and found.any(axis=1).all()
    np.testing.assert_array_equal(found, again)
    assert {word for word, _ in made[0].nearest("爱", 99)} >= {"我", "影", "的", "。"}
