"""ELMo from text to features: what is its own beside the properties that hold for every system."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from systems_under_test import TINY, pretrain_request, stopping_after, trunk_of, write_text
from word_tables import word_table

from foretext.batch import Batch
from foretext.config import build_sections, from_toml, to_toml
from foretext.errors import Interrupted
from foretext.nn.recurrent.bilm import BilmTrunkConfig
from foretext.nn.task_models.sentence_models import FILTER_WIDTH, WordInput, WordReader
from foretext.objectives.bidirectional import BilmObjective, BilmObjectiveConfig
from foretext.plan import ReaderPlan
from foretext.runs.directory import RunDirectory
from foretext.runs.model import load_model
from foretext.runs.run_config import Budget
from foretext.systems.elmo import ELMO
from foretext.tasks.heads.recurrent_models import TrunkWords
from foretext.text.tokenizers.base import END
from foretext.text.words.characters import word_characters
from foretext.train.pretraining.pretrain import pretrain

SETS = (
    *("model.cells=8", "model.context=6", "tokenizer.size=200", "training.batch_size=4", "training.micro_batch=3"),
    *("model.words.width=5", "model.words.filter_widths=1,2", "model.words.filter_counts=4,4", "objective.samples=8"),
    *("training.save_seconds=1e9", "training.evaluations=1", "training.dropout=0.1"),
)


def run(tmp_path: Path, out: str, **changes: Any) -> Path:
    request = pretrain_request("elmo", write_text(tmp_path), tmp_path / out, 8, **{"sets": SETS, **changes})
    return pretrain(request)


def test_it_trains_is_saved_and_reads_any_word(tmp_path: Path) -> None:
    path = run(tmp_path, "base")
    values = [line["validation"] for line in RunDirectory(path).metrics() if "validation" in line]
    assert set(values[-1]) == {"loss", "forward", "backward", "perplexity"}
    assert values[-1]["loss"] == pytest.approx((values[-1]["forward"] + values[-1]["backward"]) / 2)
    assert values[-1]["perplexity"] == pytest.approx(math.exp(values[-1]["loss"])), "of both, as `evaluate` says it"
    model = load_model(path)
    assert isinstance(model.objective, BilmObjective) and model.objective.samples == 8
    assert any(p.any() for p in model.objective.parameters())
    model.trunk.eval()
    with torch.no_grad():
        batch = word_table([["Zyzzyva", "naïve"], ["x"]]).batch()
        layers = model.trunk(batch, keep_layers=True).layers
    assert len(layers) == 3 and layers[0].shape == (2, 4, 10) and not torch.equal(layers[2][0, 1], layers[2][0, 2])


def test_stopped_and_resumed_it_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    straight = run(tmp_path, "straight")
    request = pretrain_request("elmo", tmp_path / "text.txt", tmp_path / "stopped", 8, sets=SETS)
    with stopping_after(3) as stop, pytest.raises(Interrupted):
        pretrain(request, stopping=stop)
    pretrain(replace(request, resume=True))
    a, b = (RunDirectory(path).load_tensors("model.safetensors") for path in (straight, tmp_path / "stopped"))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_that_starts_from_another_keeps_its_softmax(tmp_path: Path) -> None:
    base = run(tmp_path, "base")
    onward = {"size": None, "start": base, "sets": ("training.batch_size=4",)}
    run(tmp_path, "onward", **onward, budget=Budget(steps=1))
    with refused(f"--from {base}", "objective.targets", "16000", "40"):
        run(tmp_path, "other", **onward | {"sets": ("objective.targets=40",)})
    assert not (tmp_path / "other").exists()
    run(tmp_path, "fewer", **onward | {"sets": ("training.batch_size=4", "objective.samples=4")})


def test_every_size_can_be_built_and_written() -> None:
    for size in ELMO.sizes.values():
        size.model.check()
        size.objective.check()
        sections = {"model": size.model, "objective": size.objective}
        classes = {"model": BilmTrunkConfig, "objective": BilmObjectiveConfig}
        assert build_sections(classes, from_toml(to_toml(sections)), "config.toml") == sections
    paper = ELMO.sizes["paper"].model
    assert isinstance(paper, BilmTrunkConfig)
    assert (paper.layers, paper.cells, paper.width, paper.context) == (2, 4096, 1024, 20)
    assert paper.parameters() == 93_600_864  # those of the published model
    reader = ELMO.sizes["paper"].transfer.reader
    assert (reader.layers, reader.cells, reader.characters, reader.crf) == (2, 200, 128, True)
    assert FILTER_WIDTH == 3


def test_a_task_model_reads_vector_mixture_and_characters() -> None:
    trunk = trunk_of("elmo")
    plan = ReaderPlan(twice=True, vectors=3, characters=4)
    words = TrunkWords(plan, TINY["elmo"], 0.0)
    words.meet([(4, 60)])
    words.check(trunk)
    found = words(trunk, Batch(torch.tensor([[4, 60, 4]])))
    assert words.inputs.width == 3 + 32 + 4 and words.inputs.output_width == 32 and len(found.layers) == 3
    assert words.vectors is not None and found.vectors_BTD is not None
    assert torch.equal(found.vectors_BTD[0], words.vectors.weight[[4, 60, 4]])
    assert found.characters_UC is not None and found.places_BT is not None
    spelled = found.characters_UC[found.places_BT][0]
    assert torch.equal(spelled[0], spelled[2]) and not torch.equal(spelled[0], spelled[1])


def test_a_task_model_reads_as_many_characters_of_a_word_as_the_trunk() -> None:
    """They did not, and a trunk with words of another length than 50 ended in an assertion."""
    shape = TINY["elmo"]
    assert isinstance(shape, BilmTrunkConfig)
    short = replace(shape, words=replace(shape.words, length=12))
    words = TrunkWords(ReaderPlan(mix=False, characters=4), short, 0.0)
    characters = torch.from_numpy(word_characters(["a", "longer-than-twelve"], length=12))
    read = WordReader(words.inputs).eval()
    given = WordInput(torch.ones(1, 2, dtype=torch.bool), None, (), characters, torch.tensor([[0, 1]]))
    assert read(given).shape == (1, 2, 4)


def test_a_text_is_read_between_borders() -> None:
    layout = ELMO.build_layout({"[UNK]": 1, "[SEP]": 3, END: 9}, 40, "forward")
    assert layout.frame([5] * 30).ids == (3, *[5] * 30, 3)
    (pair,) = layout.sequences("entailment", [[5], [6, 7]])
    assert pair.ids == (3, 5, 3, 6, 7, 3) and pair.parts == ((1, 1), (3, 2))
    published = ELMO.build_layout({"</S>": 0, "<S>": 1, "<UNK>": 2}, 40, "forward")
    assert published.frame([5, 6]).ids == (1, 5, 6, 0)
