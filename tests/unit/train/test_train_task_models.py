"""Fine-tuning a task's own model: what it counts in the rows before it learns, and what it reads of new weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from noting import Notes
from systems_under_test import CONTEXTUAL, OWN_MODEL, base_model, stopping_after

from foretext.errors import Interrupted
from foretext.runs.directory import RunDirectory
from foretext.runs.model import load_model
from foretext.tasks.files.rows import rows_from
from foretext.tasks.heads.recurrent_models import RecurrentRows
from foretext.train.finetuning.finetune import FinetuneRequest, finetune

SETS = (
    *("transfer.model=recurrent", "transfer.reader.cells=4", "transfer.reader.vectors=3"),
    *("training.dropout=0.2", "training.batch_size=2"),
)
ROWS: list[Any] = rows_from([("good", "a"), ("bad", "b")] * 3, "classification")


def request_of(system: str, **changes: Any) -> FinetuneRequest:
    request = FinetuneRequest(base_model(system), ROWS, "classification", valid=[], epochs=2, sets=SETS)
    return replace(request, **changes)


def test_words_are_counted_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of("gpt", out=tmp_path / "a")
    finetune(replace(request, out=tmp_path / "b"))
    with stopping_after(3) as stop, pytest.raises(Interrupted):
        finetune(request, stopping=stop)

    def never(*_: object) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr(RecurrentRows, "meet", never)
    finetune(replace(request, resume=True))
    a, b = (RunDirectory(tmp_path / name) for name in "ab")
    assert a.read("model.safetensors") == b.read("model.safetensors")
    model = load_model(tmp_path / "a")
    assert isinstance(model.task, RecurrentRows)
    counts = model.task.words.counts_V
    of = {text: int(counts[model.tokenizer.encode(text)[0]]) for text in "goabz"}
    assert of == {"g": 3, "o": 6, "a": 3, "b": 3, "z": 0}


def learned(request: FinetuneRequest, monkeypatch: pytest.MonkeyPatch, notes: Notes) -> tuple[bool, bool]:
    """Whether the trunk has moved, and whether what never learns is the base's."""
    model = finetune(request, notes).model
    with monkeypatch.context() as patched:
        patched.setattr("foretext.train.loop.Loop.run", lambda self: None)
        before = finetune(replace(request, out=None, resume=False)).model.trunk.state_dict()
    after, base = model.trunk.state_dict(), request.base.trunk.state_dict()
    fixed = {name for name, _ in model.trunk.named_buffers()} & after.keys()
    moved = any(not torch.equal(after[name], before[name]) for name in after)
    return moved, all(torch.equal(after[name][: len(base[name])], base[name]) for name in fixed)


@pytest.mark.parametrize("system", OWN_MODEL)
def test_new_weights_learn_where_pretrained_ones_would_stay(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    assert learned(request_of(system), monkeypatch, notes) == (False, True) and not notes.notes
    new = request_of(system, from_scratch=True, out=tmp_path / "run")
    assert learned(new, monkeypatch, notes) == (True, True)
    assert any(system in text and "transfer.thaw=never" in text for text in notes.notes)
    assert finetune(replace(new, resume=True)).model.config.transfer.thaw == "all"
    set_so = replace(new, out=None, sets=(*SETS, "transfer.thaw=never"))
    assert learned(set_so, monkeypatch, notes)[0]


@pytest.mark.parametrize("system", OWN_MODEL)
@pytest.mark.parametrize(
    "setting", ["transfer.head=probe", "transfer.head=hidden", "transfer.pooling=concat", "transfer.pooling=pooler"]
)
def test_what_the_tasks_own_model_has_no_use_for_is_refused(system: str, setting: str) -> None:
    with refused(f"{setting}:", "transfer.model=recurrent"):
        finetune(request_of(system, sets=(setting,)))


def test_what_a_size_asks_for_is_left_out_silently_but_not_what_a_plan_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foretext.train.loop.Loop.run", lambda self: None)
    for system, plan in (("gpt", None), ("ulmfit", None), ("gpt", "ulmfit")):  # a fitted head, concatenated pooling
        notes = Notes()
        transfer = finetune(request_of(system, plan=plan), notes).model.config.transfer
        assert (transfer.model, transfer.head) == ("recurrent", "random") and transfer.pooling != "concat"
        assert [f"--plan {plan}" in said for said in notes.notes] == ([True] if plan else [])
    assert finetune(request_of("elmo", sets=("transfer.head=random",))).model.config.transfer.head == "random"


def test_a_language_model_loss_that_can_change_nothing_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretext.train.loop.Loop.run", lambda self: None)
    for sets, told in (((), False), (("transfer.thaw=never",), True)):
        notes = Notes()
        asked = request_of("ulmfit", sets=("transfer.model=linear", *sets), lm_weight=0.5)
        finetune(asked, notes)
        assert any("λ = 0.5 has no effect" in said for said in notes.notes) == told


@pytest.mark.parametrize("system", [*(name for name in OWN_MODEL if name in CONTEXTUAL), "gpt"])
def test_blocks_that_would_be_read_for_ever_as_drawn_are_refused(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretext.train.loop.Loop.run", lambda self: None)
    sets = (*SETS, "transfer.thaw=never") if system == "gpt" else SETS
    for changes in ({"layers": 1, "sets": sets}, {"sets": (*sets, "transfer.layers=1")}):
        with refused("layers 1 of 2:", "transfer.thaw=never", "--set transfer.thaw=all"):
            finetune(request_of(system, **changes))
    for changes in ({"layers": 2, "sets": sets}, {"layers": 1, "sets": (*sets, "transfer.thaw=all")}):
        finetune(request_of(system, **changes))
