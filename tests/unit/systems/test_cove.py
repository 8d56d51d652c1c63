"""CoVe from two files and vectors to a run that translates: its settings, what is kept, going on, mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import names, refused
from systems_under_test import parallel_text, pretrain_request, stopping_after, write_text
from tolerance import close, doubles, terms_of

from foretext.api import TaskModel
from foretext.batch import Batch, padded, padded_segments
from foretext.config import build_sections, from_toml, to_toml
from foretext.errors import Interrupted
from foretext.nn.recurrent.cove import CoveConfig, CoveTrunk
from foretext.objectives.translation import TranslationObjective
from foretext.runs.directory import RunDirectory
from foretext.runs.model import load_model
from foretext.runs.report import Reporter
from foretext.systems.cove import COVE
from foretext.tasks.files.rows import Row
from foretext.tasks.heads.recurrent_models import TrunkWords
from foretext.tasks.layouts.base import PlainLayout
from foretext.text.tokenizers.base import END
from foretext.text.words.vectors import read_vectors
from foretext.train.finetuning.finetune import FinetuneRequest, finetune
from foretext.train.pretraining.pretrain import pretrain

SETS = (
    *("model.width=16", "objective.embedding=8", "objective.least_count=1", "training.batch_size=4"),
    *("training.evaluations=1", "training.save_seconds=1e9"),
)

TERMS = terms_of(4 * 2 * (4 + 2))  # at most four words one after the other, through two layers of 4 inputs and 2 cells


def request_of(folder: Path, out: str = "run", steps: int = 6, sets: tuple[str, ...] = SETS, **changes: Any) -> Any:
    return pretrain_request("cove", write_text(folder), folder / out, steps, **{"sets": sets, **changes})


def test_the_sizes_are_the_papers_and_can_be_written() -> None:
    for size in COVE.sizes.values():
        size.model.check()
        size.objective.check()
        sections = {"model": size.model, "objective": size.objective}
        classes = {"model": COVE.config, "objective": COVE.objective_config}
        assert build_sections(classes, from_toml(to_toml(sections)), "config.toml") == sections
    paper = COVE.sizes["paper"]
    assert isinstance(paper.model, CoveConfig)
    training = paper.pretraining
    assert (training.optimizer, training.rate, training.schedule, training.dropout) == ("sgd", 1.0, "halving", 0.2)
    assert training.beta1 == 0 and training.clip == 5 and training.batch_size == 64


def test_a_run_keeps_both_vocabularies_and_the_vectors(tmp_path: Path) -> None:
    notes: list[str] = []

    class Notes(Reporter):
        def note(self, text: str) -> None:
            notes.append(text)

    request = request_of(tmp_path)
    model = load_model(pretrain(request, Notes()))
    assert isinstance(model.objective, TranslationObjective) and isinstance(model.trunk, CoveTrunk)
    assert request.vectors is not None
    given = read_vectors(request.vectors)
    words = model.tokenizer.encode("The child eats.")
    assert words[1] == model.tokenizer.unknown
    table = model.trunk.vectors.table_VE.numpy()
    np.testing.assert_array_equal(table[words], given.rows(["the", "child", "eats", "."]))
    assert not table[words[1]].any() and model.model_config.vectors == 8
    assert set(model.objective.words.words) >= {"ehT", "tac", "￭."}
    vocabulary, text = notes
    names(vocabulary, f"{model.tokenizer.size} words", "vectors", f"{model.objective.words.size} ")
    names(text, "167 pairs", "13 ", "95.4%", "vector")


@pytest.mark.parametrize("after", ["before the first checkpoint", "later"])
def test_going_on_equals_never_stopping(tmp_path: Path, after: str) -> None:
    straight = pretrain(request_of(tmp_path))
    request = request_of(tmp_path, "stopped")
    if after == "later":
        with stopping_after(3) as stop, pytest.raises(Interrupted):
            pretrain(request, stopping=stop)
        for path in (request.source, request.target, request.vectors):
            path.rename(path.with_suffix(".gone"))  # the run has all that it needs
        pretrain(replace(request, resume=True, source=None, target=None, vectors=None))
    else:

        def cut(run: Any, job: Any) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("foretext.train.pretraining.pretrain.check_disk", cut)
            pretrain(request)
        assert (tmp_path / "stopped" / "tokenizer.json").exists()
        pretrain(replace(request, resume=True))
    a, b = (RunDirectory(path).read("model.safetensors") for path in (straight, tmp_path / "stopped"))
    assert a == b


def test_the_papers_schedule_halves_and_goes_on(tmp_path: Path) -> None:
    sets = (*SETS, "training.optimizer=sgd", "training.schedule=halving", "training.rate=2", "training.beta1=0")
    sets = (*sets, "training.batch_size=64", "training.warmup=0")
    straight = RunDirectory(pretrain(request_of(tmp_path, "a", 14, sets)))
    validated = [row["step"] for row in straight.metrics() if "validation" in row]
    epoch = validated[0]
    assert validated[:-1] == list(range(epoch, 14, epoch)) and epoch < 5, "once an epoch, and at the end"
    request = request_of(tmp_path, "b", 14, sets)
    with stopping_after(epoch + 1) as stop, pytest.raises(Interrupted):
        pretrain(request, stopping=stop)
    pretrain(replace(request, resume=True))
    again = RunDirectory(tmp_path / "b")
    assert again.read("model.safetensors") == straight.read("model.safetensors")
    halvings = [json.loads(run.read("training/position.json"))["halvings"] for run in (straight, again)]
    assert halvings[0] == halvings[1] > 0


def test_going_on_from_a_run_with_other_text(tmp_path: Path) -> None:
    first = pretrain(request_of(tmp_path, "first"))
    request = replace(request_of(tmp_path, "more", 1, ("training.rate=1e-9",), start=first), system=None, size=None)
    second = pretrain(replace(request, vectors=None))
    a, b = (RunDirectory(path).load_tensors("model.safetensors") for path in (first, second))
    close(b, a, terms=1)  # a step of 1e-9 is less than a rounding
    with refused(f"--from {first}", "--vectors"):
        pretrain(replace(request, out=tmp_path / "third"))


def test_few_vectors_are_said(tmp_path: Path) -> None:
    request = request_of(tmp_path, steps=1)
    lines = request.vectors.read_text().splitlines()
    request.vectors.write_text("\n".join(line for line in lines if line.split()[0] in (".", "cat")) + "\n")

    notes: list[str] = []

    class Told(Reporter):
        def note(self, text: str) -> None:
            notes.append(text)

    pretrain(request, Told())
    (said,) = (note for note in notes if "--vectors" in note)
    names(said, "4.6%")


@doubles()
def test_each_text_of_a_pair_is_read_by_itself() -> None:
    """CoVe(x), CoVe(y): what one says changes nothing in the other."""
    trunk = CoveTrunk(CoveConfig(vocabulary=20, vectors=3, width=4, dropout=0.0)).eval()
    layout = PlainLayout({END: 1}, 20)
    pairs = [([2, 3, 4], [5, 6, 7, 8]), ([9, 10, 11], [5, 6, 7, 8]), ([12], [5, 6])]
    framed = [layout.frame(*pair) for pair in pairs]
    assert framed[0].ids == (2, 3, 4, 1, 5, 6, 7, 8) and layout.frame([2, 3]).segments == ()
    ids, real = padded([frame.ids for frame in framed])
    batch = Batch(ids, real, segments_BT=padded_segments([frame.segments for frame in framed], ids.shape[1]))
    found = trunk(batch, keep_layers=True)
    assert len(found.layers) == 3 and torch.equal(found.layers[-1], found.top)
    close(found.top[0, 4:], found.top[1, 4:], terms=TERMS)
    for row, (pair, frame) in enumerate(zip(pairs, framed)):
        for text, (start, length) in zip(pair, frame.parts):
            alone = trunk(Batch(torch.tensor([text])), keep_layers=True)
            for layer, other in zip(found.layers, alone.layers):
                close(layer[row, start : start + length], other[0], terms=TERMS)
    assert not found.top[2, 4:].any(), "zeros at padding"


@pytest.mark.parametrize(("beside", "width"), [("ends", 3 + 4), ("lowest", 3), ("none", 0)])
@doubles()
def test_a_task_model_reads_glove_and_cove_side_by_side(beside: Any, width: int) -> None:
    trunk = CoveTrunk(CoveConfig(vocabulary=9, vectors=3, width=4, dropout=0.5)).train()
    plan = replace(COVE.sizes["tiny"].transfer.reader, beside=beside, vectors=2)
    words = TrunkWords(plan, trunk.config, 0.0)
    words.meet([range(6)])
    assert words.inputs.vectors == width + 2 and words.inputs.layers == 0
    for parameter in trunk.parameters():
        parameter.requires_grad_(False)  # as where nothing of the trunk learns
    batch = Batch(torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[True] * 3, [True, True, False]]))
    found = words(trunk, batch)
    layers = trunk.eval()(batch, keep_layers=True).layers
    assert words.vectors is not None and found.vectors_BTD is not None and found.layers == ()
    wanted = {"ends": [layers[0], layers[-1]], "lowest": [layers[0]], "none": []}[beside]
    close(found.vectors_BTD, torch.cat([*wanted, words.vectors(batch.ids_BT)], dim=-1), terms=TERMS)


@doubles()
def test_fine_tuning_leaves_the_encoder_as_it_is_and_comes_back(tmp_path: Path) -> None:
    base = load_model(pretrain(request_of(tmp_path)))
    rows = [Row((f"The {who} eats fish.",), who, "a row") for who in ("cat", "dog")] * 6
    plan = COVE.sizes["tiny"].transfer
    assert plan.thaw == "never" and plan.model == "recurrent" and plan.reader.beside == "ends" and not plan.reader.mix
    sets = ("transfer.reader.cells=8", "training.rate=0.02")
    request = FinetuneRequest(base, rows, "classification", tmp_path / "task", valid=rows, epochs=8, sets=sets)
    model = TaskModel(finetune(request).model, tmp_path / "task")
    for name, tensor in base.trunk.state_dict().items():
        assert torch.equal(tensor, model.model.trunk.state_dict()[name]), f"{name} did not learn, vectors neither"
    texts = ["The cat eats fish.", "The dog eats fish."]
    assert model.predict(texts) == ["cat", "dog"] == TaskModel(load_model(tmp_path / "task"), None).predict(texts)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"target": None}, ["cove", "--target"]),
        ({"source": None, "vectors": None}, ["cove", "--source", "--vectors"]),
        ({"inputs": ("a.txt",)}, ["cove", "--source FILE", "--target FILE", "a.txt"]),
        ({"column": "text"}, ["--text-column", "cove"]),
        ({"vocabulary": Path("x")}, ["--vocabulary", "cove"]),
        ({"system": "gpt"}, ["--source", "(cove)", "gpt"]),
        ({"sets": (*SETS, "model.vectors=7")}, ["--set model.vectors=7", "vectors.txt", "8 dimensions"]),
        ({"sets": (*SETS, "data.vectors=x")}, ["--set data.vectors=x", "--vectors FILE"]),
        ({"direction": "backward"}, ["--direction backward", "cove"]),
    ],
)
def test_what_is_asked_wrongly(tmp_path: Path, changes: dict[str, Any], named: list[str]) -> None:
    with refused(*named):
        pretrain(replace(request_of(tmp_path), **changes))
    assert not (tmp_path / "run").exists()


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    source, target, vectors = parallel_text(write_text(tmp_path))
    request = request_of(tmp_path)
    lines = target.read_text().splitlines(keepends=True)
    target.write_text("".join(lines[:-2]))
    with refused(str(source), "180 lines", str(target), "178"):
        pretrain(request)
    target.write_text("".join(lines))
    whole = vectors.read_text()
    vectors.write_text(whole.replace("cat ", "cat 1.5 ", 1))
    with refused(f"{vectors} line 4", "9 numbers", "8"):
        pretrain(request)
    vectors.write_text(whole)
    for path in (source, target):
        path.write_text(path.read_text().splitlines()[0] + "\n")
    with refused(str(source), str(target), "pair"):
        pretrain(request)
    assert not (tmp_path / "run").exists(), "nothing half-written"
