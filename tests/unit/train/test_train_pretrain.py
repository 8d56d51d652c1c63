"""Pre-training from text to a run directory: repeatable, going on, what may change, direction, starting from a run."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import names, refused
from noting import Notes
from systems_under_test import (
    BY_GRADIENTS,
    CAUSAL,
    FRAMED,
    GROWING,
    PRETRAINED,
    TERMS,
    objective_of,
    pairwise,
    pretrain_request,
    small_of,
    stopping_after,
    write_text,
)
from tolerance import close, doubles, terms_of

from foretext.batch import Batch
from foretext.errors import Interrupted, UserError
from foretext.runs import machine
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import size_text
from foretext.runs.model import load_model
from foretext.runs.report import Reporter
from foretext.runs.run_config import MOST, Budget, read_config
from foretext.systems import SYSTEMS
from foretext.text.tokenizers.byte_bpe import byte_bpe_from_merges
from foretext.train import planning
from foretext.train.loop import Loop
from foretext.train.pretraining import pretrain as module
from foretext.train.pretraining import pretrain_request as pretrain_request_module
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest

BRIEF = ("training.batch_size=4", "training.warmup_steps=0")
# Steps as large as their gradients: Adam's and Muon's are as large for a gradient that is rounding and nothing else.
EVEN = ("training.optimizer=sgd", "training.rate=0.1")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path)


def weights(path: Path) -> bytes:
    return RunDirectory(path).read("model.safetensors")


def stopped(request: PretrainRequest, steps: int = 5) -> PretrainRequest:
    with stopping_after(steps) as stop, pytest.raises(Interrupted):
        pretrain(request, stopping=stop)
    return replace(request, resume=True)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> PretrainRequest:
    """To go on with a run that was stopped; for tests in which nothing comes of it."""
    folder = tmp_path_factory.mktemp("begun")
    return stopped(pretrain_request("gpt", write_text(folder), folder / "run"))


@pytest.mark.parametrize(
    ("system", "direction"),
    pairwise([*((name, "forward") for name in BY_GRADIENTS), *((name, "backward") for name in CAUSAL)]),
)
def test_a_run_learns_and_is_repeatable(system: str, direction: str, tmp_path: Path) -> None:
    notes, text = Notes(), write_text(tmp_path, documents=400)  # so many that validation has tokens enough to ask about
    request = pretrain_request(system, text, tmp_path / "a", 40, "training.evaluations=4", direction=direction)
    pretrain(request, notes)
    run = RunDirectory(tmp_path / "a")
    losses = [row["validation"]["loss"] for row in run.metrics() if "validation" in row]
    guessing = math.log(300) + (
        50 * math.log(2) if system == "electra" else 0
    )  # which also tells, times 50, yes from no
    assert len(losses) == 4 and losses[-1] < losses[0] and losses[-1] < guessing - 1.5, "far below guessing"
    assert notes.plans[0].keys() >= {"text", "budget", "time", "memory", "disk"}
    assert (tmp_path / "a" / "loss.png").stat().st_size > 1000
    model = load_model(tmp_path / "a")
    assert model.info.direction == direction and model.info.system == system
    assert run.names() == ["config.toml", "model.safetensors", "tokenizer.json", "training/position.json"]
    write_text(tmp_path)  # less, which is enough to tell runs apart
    for name, seed in (("b", 0), ("c", 0), ("d", 1)):
        pretrain(replace(request, budget=Budget(steps=2), seed=seed, out=tmp_path / name))
    assert weights(tmp_path / "b") == weights(tmp_path / "c") != weights(tmp_path / "d")


def test_backward_reads_windows_from_their_end(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: dict[str, torch.Tensor] = {}
    real = Loop.run

    def first_batch(loop: Loop) -> Any:
        direction = loop.job.objective.direction
        batches[direction] = torch.cat([loop.batches(0)[1][0].ids_BT, loop.batches(0)[1][0].targets_BT[:, -1:]], 1)
        return real(loop)

    monkeypatch.setattr(Loop, "run", first_batch)
    for direction in ("forward", "backward"):
        pretrain(pretrain_request("gpt", text, tmp_path / direction, 1, direction=direction))
    assert torch.equal(batches["backward"], batches["forward"].flip(1))


def test_micro_batches_of_the_run_change_the_weights_by_rounding_only(text: Path, tmp_path: Path) -> None:
    with doubles():
        for micro in (1, 4):
            pretrain(pretrain_request("gpt", text, tmp_path / str(micro), 3, f"training.micro_batch={micro}", *EVEN))
    one, four = (RunDirectory(tmp_path / name).load_tensors("model.safetensors") for name in ("1", "4"))
    close(one, four, terms=terms_of(3 * TERMS), size=0.1)  # a step adds the rate times a clipped gradient


# -- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "sets"),
    pairwise(
        [
            (system, sets)
            for system in PRETRAINED
            for sets in (("training.dropout=0.2", "training.micro_batch=3", "training.optimizer=adamw"), ())
        ],
        once=("elmo", "cove", "xlnet", "word2vec"),  # the others are killed and go on in the tests of faults
    ),
)
def test_going_on_equals_never_stopping(system: str, sets: tuple[str, ...], text: Path, tmp_path: Path) -> None:
    request = pretrain_request(system, text, tmp_path / "a", 5, "training.log_samples=true", *sets)
    pretrain(stopped(request, 3))
    pretrain(replace(request, out=tmp_path / "b"))
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    logs = [
        [
            (row["step"], row["epoch"], row["samples"])
            for row in RunDirectory(tmp_path / name).metrics()
            if "samples" in row
        ]
        for name in "ab"
    ]
    assert logs[0] == logs[1] and len(logs[0]) == 5


CARRYING = [name for name in PRETRAINED if objective_of(name).carries_state]


@pytest.mark.parametrize(
    ("system", "micro"),
    pairwise([(system, micro) for system in CARRYING for micro in ((4, 1), (1, 3))], wholly=("ulmfit",)),
)
def test_rows_keep_what_is_carried_when_a_run_goes_on_in_other_micro_batches(
    system: str, micro: tuple[int, int], text: Path, tmp_path: Path
) -> None:
    """As one does who ran out of memory. It was a failure, or one row's memory for all rows."""
    before, after = micro
    steady = ("training.dropout=0", *EVEN, "training.batch_size=4")
    request = pretrain_request(system, text, tmp_path / "a", 4, *steady, f"training.micro_batch={before}")
    sets = (*request.sets, f"training.micro_batch={after}")
    with doubles():
        begun = stopped(request, 2)
        assert RunDirectory(tmp_path / "a").has("training/state.safetensors")
        pretrain(replace(begun, sets=sets))
        pretrain(replace(request, out=tmp_path / "b", sets=sets))
    one, other = (RunDirectory(tmp_path / name).load_tensors("model.safetensors") for name in "ab")
    close(one, other, terms=terms_of(4 * TERMS), size=0.1)  # a step adds the rate times a clipped gradient


def test_a_finished_run_says_so(text: Path, tmp_path: Path) -> None:
    request = pretrain_request("gpt", text, tmp_path / "run", 2)
    pretrain(request)
    before, notes = weights(tmp_path / "run"), Notes()
    assert pretrain(replace(request, resume=True), notes) == tmp_path / "run"
    names(notes.notes[0], str(tmp_path / "run"), "finished", f"--from {tmp_path / 'run'}")
    assert weights(tmp_path / "run") == before
    with refused(str(tmp_path / "run"), "--resume", "--out"):
        pretrain(request)


def test_resume_with_nothing_there_starts(text: Path, tmp_path: Path) -> None:
    pretrain(pretrain_request("gpt", text, tmp_path / "run", 1, resume=True))
    assert load_model(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"seed": 3}, "run.seed"),
        ({"direction": "backward"}, "run.direction"),
        ({"size": "small"}, "run.size"),
        ({"sets": ("training.batch_size=8",)}, "training.batch_size"),
        ({"sets": ("model.width=64",)}, "model.width"),
        ({"sets": ("training.dropout=0.3",)}, "dropout"),
        ({"inputs": ("elsewhere.txt",)}, "data.inputs"),
        ({"column": "body"}, "data.column"),
        ({"documents": "file"}, "data.documents"),
        ({"errors": "replace"}, "data.errors"),
    ],
    ids=str,
)
def test_what_cannot_change_is_refused_by_name(changes: dict, key: str, begun: PretrainRequest) -> None:
    run = RunDirectory(begun.out)
    before = {name: run.read(name) for name in run.names()}
    with refused(str(begun.out), key):
        pretrain(replace(begun, **changes))
    assert before == {name: run.read(name) for name in run.names()}


def test_going_on_needs_nothing_said_again_and_some_things_may_change(text: Path, tmp_path: Path) -> None:
    stopped(pretrain_request("gpt", text, tmp_path / "run", seed=4, direction="backward"))
    text.unlink()  # the shards are kept
    bare = PretrainRequest((), tmp_path / "run", resume=True)
    request = replace(bare, budget=Budget(steps=14), sets=("training.rate=0.001", "training.save_seconds=7.0"))
    pretrain(stopped(request, 2))
    config = read_config(RunDirectory(tmp_path / "run"))
    assert config.budget.steps == 14 and config.training.rate == 0.001 and config.training.batch_size == 4
    assert config.run.seed == 4 and config.run.direction == "backward" and config.model.width == 32
    assert json.loads(RunDirectory(tmp_path / "run").read("training/position.json"))["step"] == 14


def test_going_on_says_what_is_changed(text: Path, tmp_path: Path) -> None:
    request = stopped(pretrain_request("gpt", text, tmp_path / "run"))
    notes = Notes()
    changed = replace(request, budget=Budget(steps=13), sets=(*request.sets, "training.rate=0.002"))
    pretrain(replace(changed, documents="auto", errors="strict"), notes)
    rate, steps = (line for line in notes.notes if re.search(r"\b(training|budget|data|run|model)\.[a-z]", line))
    names(rate, "training.rate", "0.003", "0.002")
    names(steps, "budget.steps", "12", "13")
    again = Notes()
    pretrain(replace(changed, budget=Budget(steps=99)), again)
    (said,) = again.notes
    names(said, str(tmp_path / "run"), "finished", "budget.steps", "99")


def test_going_on_with_another_vocabulary_is_refused(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = {"own": byte_bpe_from_merges([]), "other": byte_bpe_from_merges([("t", "h")])}
    monkeypatch.setattr(pretrain_request_module, "tokenizer_from_published", lambda folder: published[folder.name])
    request = stopped(pretrain_request("gpt", text, tmp_path / "run", vocabulary=Path("own")))
    with refused(str(tmp_path / "run"), "--vocabulary other"):
        pretrain(replace(request, vocabulary=Path("other")))
    pretrain(request)
    start = replace(request, resume=False, sets=(), out=tmp_path / "next", start=tmp_path / "run")
    with refused(str(tmp_path / "run"), "--vocabulary other"):
        pretrain(replace(start, vocabulary=Path("other")))
    assert not (tmp_path / "next").exists()
    pretrain(replace(start, budget=Budget(steps=1)))


def test_shards_that_no_configuration_speaks_for_are_made_again(text: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = write_text(tmp_path / "elsewhere", seed=5)
    pretrain(pretrain_request("gpt", other, tmp_path / "other", 1))
    (tmp_path / "run").mkdir()
    (tmp_path / "other" / "tokens").rename(tmp_path / "run" / "tokens")  # as after a kill between shards and commit
    pretrain(pretrain_request("gpt", text, tmp_path / "run", 3))
    pretrain(pretrain_request("gpt", text, tmp_path / "expected", 3))
    assert weights(tmp_path / "run") == weights(tmp_path / "expected")


@pytest.mark.parametrize("kind", ["byte-bpe", "char-bpe"])
def test_a_signal_while_the_vocabulary_is_learned_ends_it(kind: str, text: Path, tmp_path: Path) -> None:
    class Impatient(Reporter):
        requested: int | None = None

        def work(self, title: str, done: int, total: int) -> None:
            if "learning" in title or "counting" in title:
                self.requested = 130

    user = Impatient()
    with refused("again", kind=Interrupted):
        pretrain(pretrain_request("gpt", text, tmp_path / "run", 1, f"tokenizer.kind={kind}"), user, user)
    assert not (tmp_path / "run").exists()


# -- starting from a run ---------------------------------------------------------------------------------------------


def test_going_on_with_new_text_starts_from_the_runs_weights(text: Path, tmp_path: Path) -> None:
    pretrain(pretrain_request("gpt", text, tmp_path / "first", 3))
    request = PretrainRequest(
        (str(text),),
        tmp_path / "second",
        budget=Budget(steps=2),
        sets=("training.batch_size=4",),
        start=tmp_path / "first",
    )
    starts: list[dict[str, torch.Tensor]] = []
    real = Loop.run
    patch = pytest.MonkeyPatch()

    def watched(loop: Loop) -> Any:
        starts.append({name: t.clone() for name, t in loop.model.state_dict().items()})
        if len(starts) == 1:
            raise KeyboardInterrupt  # dies before its first checkpoint
        return real(loop)

    patch.setattr(Loop, "run", watched)
    try:
        with pytest.raises(KeyboardInterrupt):
            pretrain(request)
        pretrain(replace(request, resume=True))
    finally:
        patch.undo()
    expected = RunDirectory(tmp_path / "first").load_tensors("model.safetensors")
    for start in starts:
        assert all(torch.equal(start[name], expected[name]) for name in expected)
    assert RunDirectory(tmp_path / "second").read("tokenizer.json") == RunDirectory(tmp_path / "first").read(
        "tokenizer.json"
    )


def test_going_on_with_new_text_trains_by_the_runs_own_size(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = tuple(setting for setting in small_of("gpt") if not setting.startswith("training"))
    pretrain(pretrain_request("gpt", text, tmp_path / "first", 1, size="paper", sets=(*shape, *BRIEF)))
    request = pretrain_request("gpt", text, tmp_path / "second", 1, size=None, start=tmp_path / "first", sets=BRIEF)
    pretrain(replace(request, sets=(*BRIEF, "training.rate=0.01")))
    training = read_config(RunDirectory(tmp_path / "second")).training
    own = SYSTEMS["gpt"].sizes["paper"].pretraining
    assert training == replace(own, rate=0.01, batch_size=4, warmup_steps=0) and own.optimizer == "adamw"
    assert read_config(RunDirectory(tmp_path / "second")).run.size == "paper"
    pretrain(replace(request, out=tmp_path / "third", size="paper", direction="forward"))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"size": "small"}, ("tiny", "--size small")),
        ({"direction": "backward"}, ("forward", "--direction backward")),
        ({"sets": ("model.width=64",)}, ("model.width", "32", "64")),
        ({"sets": ("tokenizer.size=400",)}, ("tokenizer.size", "300", "400")),
    ],
    ids=str,
)
def test_what_contradicts_the_run_to_go_on_from_is_refused(
    changes: dict, parts: tuple[str, ...], text: Path, begun: PretrainRequest, tmp_path: Path
) -> None:
    request = pretrain_request("gpt", text, tmp_path / "second", 1, size=None, start=begun.out, sets=())
    with refused(f"--from {begun.out}", *parts):
        pretrain(replace(request, **changes))
    assert not (tmp_path / "second").exists()


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"budget": None}, ("--minutes", "--steps", "--tokens")),
        ({"inputs": ()}, ("globs",)),
        ({"seed": -1}, ("seed", "-1")),
        ({"sets": ("model.heads=0",)}, ("model.heads", "0")),
        ({"sets": ("model.width=30", "model.heads=4")}, ("model.width", "model.heads")),
        ({"sets": ("training.dropout=1.0",)}, ("training.dropout", "1.0")),
        ({"system": "gtp"}, ("'gtp'", "gpt")),
        ({"size": "huge"}, ("'huge'", "tiny")),
        ({"device": "cuda:99"}, ("'cuda:99'", "--device cpu")),
        ({"sets": ("model.context=5000", "tokenizer.size=300")}, ("text.txt", "5000")),
    ],
    ids=str,
)
def test_mistakes_are_one_line_before_training(
    changes: dict, parts: tuple[str, ...], text: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Loop, "run", None)
    with refused(*parts):
        pretrain(replace(pretrain_request("gpt", text, tmp_path / "run"), **changes))


@pytest.mark.parametrize("system", PRETRAINED)
def test_a_shape_is_checked_again_when_its_vocabulary_is_known(
    system: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all that a shape needs of a vocabulary can be asked before: a mistake leaves nothing behind."""
    asked: list[int] = []

    def check(self: Any) -> None:
        asked.append(self.vocabulary)
        if self.vocabulary:
            raise UserError(f"not with {self.vocabulary} pieces")

    monkeypatch.setattr(SYSTEMS[system].config, "check", check)
    monkeypatch.setattr(module, "_make_loop", lambda *given: pytest.fail("too late"))
    with refused("pieces"):
        pretrain(pretrain_request(system, text, tmp_path / "run", 1))
    assert asked[0] == 0 and asked[-1] > 0 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_disk_that_is_planned_for_is_what_two_checkpoints_take(
    optimizer: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, asked = Notes(), []
    monkeypatch.setattr(planning, "check_space", lambda path, needed: asked.append(needed))
    request = pretrain_request("gpt", text, tmp_path / "run", 12, f"training.optimizer={optimizer}", "model.width=64")
    with stopping_after(1) as stop, pytest.raises(Interrupted):
        pretrain(request, notes, stop)
    sizes = RunDirectory(tmp_path / "run").sizes()
    checkpoint = sizes["model.safetensors"] + sizes["training/optimizer.safetensors"]
    assert 2 * checkpoint <= asked[0] < 2.2 * checkpoint
    names(notes.plans[0]["disk"], size_text(asked[0]))
    pretrain(replace(request, resume=True))
    assert checkpoint <= asked[1] < 1.2 * checkpoint, "the old one is there already"


@pytest.mark.parametrize("dropout, said", [(0.0, True), (0.1, False)])
def test_text_that_is_seen_too_often_is_pointed_out(text: Path, tmp_path: Path, dropout: float, said: bool) -> None:
    for name, steps, often in (("short", 1, False), ("long", 100_000, True)):
        notes = Notes()
        request = pretrain_request("gpt", text, tmp_path / name, steps, f"training.dropout={dropout}")
        with stopping_after(1) as stop, contextlib.suppress(Interrupted):
            pretrain(request, notes, stop)
        assert ("--set training.dropout=" in notes.plans[0]["text"]) == (said and often)


@pytest.mark.parametrize("system", GROWING)
def test_short_sequences_come_first_and_as_many_tokens_are_in_an_update(
    system: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, int]] = []

    def watched(self: Loop, step: int, parts: Sequence[Batch]) -> dict[str, float]:
        shapes.append((sum(len(part.ids_BT) for part in parts), max(part.ids_BT.shape[1] for part in parts)))
        return gradients(self, step, parts)

    gradients = Loop.gradients
    monkeypatch.setattr(module, "probe_speed", lambda loop, stage: 1000.0)
    monkeypatch.setattr(Loop, "gradients", watched)
    notes = Notes()
    sets = ("objective.early=0.5", "objective.early_length=0.5", "objective.grown=0", "training.batch_size=4")
    request = pretrain_request(system, text, tmp_path / "run", 6, *sets)
    pretrain(request, notes)
    context = read_config(RunDirectory(tmp_path / "run")).model.context
    lengths = load_model(tmp_path / "run").objective.lengths(context)  # type: ignore[union-attr]
    whole = lengths[-1][1]
    assert lengths == [(0.5, whole // 2), (1.0, whole)] and (whole == context) == (system in {*FRAMED, *CAUSAL})
    assert re.findall(r"\d+%?", notes.plans[0]["sequences"]) == [str(whole // 2), str(whole), "50%"]
    rows = 4 * context // whole
    assert [count for count, _ in shapes] == [2 * rows] * 3 + [rows] * 3
    assert all(length <= whole // 2 for _, length in shapes[:3])
    assert max(length for _, length in shapes[3:]) > whole // 2


@pytest.mark.parametrize("warmup, said", [(0, False), (11, False), (12, True)])
def test_a_run_shorter_than_its_warm_up_is_pointed_out(text: Path, tmp_path: Path, warmup: int, said: bool) -> None:
    notes = Notes()
    request = pretrain_request("gpt", text, tmp_path / "run", 12, f"training.warmup_steps={warmup}")
    with stopping_after(1) as stop, contextlib.suppress(Interrupted):
        pretrain(request, notes, stop)
    assert ("--set training.warmup_steps=" in notes.plans[0]["budget"]) == said


def test_too_little_disk_is_said_before_training(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_disk", lambda path: 200_000)
    monkeypatch.setattr(module.Loop, "run", None)
    with refused(str(tmp_path / "run"), "200.0 KB", "--out") as caught:
        pretrain(pretrain_request("gpt", text, tmp_path / "run"))
    assert caught.value.code == 4


@pytest.mark.parametrize("name", ["minutes", "steps", "tokens"])
@pytest.mark.parametrize(
    "value",
    [0, -1, math.inf, math.nan, 1e300, 10**400],
    ids=lambda value: f"{value:.3}" if isinstance(value, float) else "whole",
)
def test_a_budget_is_more_than_nothing_and_finite(name: str, value: Any) -> None:
    with refused("budget", f"{MOST:.0e}", str(value)):
        Budget(**{name: value})


def test_too_little_memory_is_said_before_training(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "available_memory", lambda: 1000)
    monkeypatch.setattr(module.Loop, "run", None)
    with refused("memory", "1.0 KB", "--size") as caught:
        pretrain(pretrain_request("gpt", text, tmp_path / "run"))
    assert caught.value.code == 4 and not (tmp_path / "run").exists()
