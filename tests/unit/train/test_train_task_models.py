"""Fine-tuning a task's own model: what it counts in the rows before it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from systems_under_test import base_model, stopping_after

from foretext.errors import Interrupted
from foretext.tasks.recurrent_models import RecurrentRows
from foretext.tasks.rows import rows_from
from foretext.train.finetune import FinetuneRequest, finetune
from foretext.train.rundir import RunDirectory
from foretext.train.saved import load_model

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
