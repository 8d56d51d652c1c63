"""The experiment on ULMFiT asks for what its way of transfer needs, on the spine's cells."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from experiments import imdb_transfer
from experiments.common import PRETRAINED, Start, parse
from experiments.results import TITLES, sets_for
from experiments.ulmfit_transfer import EXPERIMENT
from foretext.config import apply_sets
from foretext.systems import SYSTEMS


def test_every_group_thaws_in_every_cell(tmp_path: Path) -> None:
    given = parse(EXPERIMENT, ["--data", str(tmp_path)])
    start: Start = given.starts[PRETRAINED]
    size = SYSTEMS[start.system].sizes[given.size]
    groups = size.model.layers + 2
    for name, task in given.tasks.items():
        assert task == imdb_transfer.TASKS[name], "rows, numbers of labels and draws are the spine's"
        for labels in task.labels:
            sets = sets_for(start.finetune_sets, name, labels)
            epochs = [int(one.partition("=")[2]) for one in sets if one.startswith("task.epochs")]
            assert (epochs or [size.epochs])[-1] >= groups, (name, labels)
    assert given.methods == {PRETRAINED: "ULMFiT", "tfidf": TITLES["tfidf"]}


# Of those whose width and layers are settings: others have shapes of their own, and experiments of their own.
WIDE = [
    name for name, system in SYSTEMS.items() if {"width", "layers"} <= {field.name for field in fields(system.config)}
]


@pytest.mark.parametrize("system", WIDE)
def test_a_quick_model_can_be_made_of_every_system(system: str) -> None:
    sets = Start("a title", system).quick()
    model = apply_sets({"model": SYSTEMS[system].sizes["tiny"].model}, sets)["model"]
    model.check()
    layers = 1 if "layers" in SYSTEMS[system].config.__dataclass_fields__ else 0  # vectors of words have none
    assert (model.layers, model.width) == (layers, 32) and ("model.heads=2" in sets) == hasattr(model, "heads")
