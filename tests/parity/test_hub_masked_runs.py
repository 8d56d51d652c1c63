"""Our own runs of BERT, RoBERTa and ALBERT, exported: the same logits, words for blanks, classes, scores, choices, tags
and answers there; what `transformers` has no place for is refused in a line that says what would be exported."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from masked_references import (
    CORPUS,
    MASKED,
    loaded,
    logits_here,
    ordinary_ids,
    same_answers,
    same_logits,
    shaken,
    there,
    tokenizer_of,
)
from systems_under_test import pairwise
from tolerance import doubles

import foretext as ft
from foretext.evaluate.fill import fill
from foretext.interop.exchange import import_model
from foretext.interop.hub import export_hub
from foretext.plan import TransferPlan
from foretext.runs.model import SavedModel
from foretext.runs.run_config import FinetuneConfig, ModelSections, RunConfig
from foretext.systems import SYSTEMS
from foretext.systems.base import TrainingConfig, TrunkParts
from foretext.tasks.family import TaskConfig
from foretext.tasks.heads.supervised import SupervisedTask
from foretext.tasks.heads.token_tasks import SpanExample, SpanTask, TaggedExample, TaggingTask

transformers = pytest.importorskip("transformers")

SMALL = ("model.layers=2", "model.width=32", "model.heads=2", "model.context=32", "training.batch_size=4")
EXPORTABLE = {
    "bert": ("transfer.pooling=pooler", "transfer.head=random"),
    "roberta": ("transfer.pooling=extract", "transfer.head=hidden"),
    "albert": ("transfer.pooling=pooler", "transfer.head=random"),
}


KINDS = ("classification", "entailment", "similarity", "regression")


@pytest.fixture(params=MASKED)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", autouse=True)
def _runs_are_removed() -> Iterator[None]:
    yield
    _folder.cache_clear()
    pretrained.cache_clear()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def pretrained(system: str) -> Path:
    """A run of a few steps, made once and only read; it is float32, as all runs are."""
    size = "tokenizer.size=300" if system == "roberta" else "tokenizer.size=120"
    sets = (*SMALL, size, *(("model.embedding=16",) if system == "albert" else ()))
    ft.pretrain(documents=CORPUS, system=system, steps=3, out=Path(_folder().name, system), sets=sets)
    return Path(_folder().name, system)


def test_a_trained_run_there(system: str, tmp_path: Path) -> None:
    """The same logits for texts of several lengths, and the same word for a blank. RoBERTa's padding may stand on
    either side there, since it counts positions as we do: from an id that our vocabularies have elsewhere."""
    run = pretrained(system)
    with doubles():
        model = loaded(run)
        shaken(model.trunk)
        shaken(model.objective)
        export_hub(model, tmp_path / "out")
        theirs = there(transformers.AutoModelForMaskedLM, tmp_path / "out")
        own = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
        layout = model.system.build_layout(dict(model.tokenizer.specials), 32, "forward")
        texts = ["the cat sat", "so good", "a bad film, the mat and the hat"]
        for side in ("right", "left") if system == "roberta" else ("right",):
            own.padding_side = side
            given = own(texts, padding=True, return_tensors="pt")
            with torch.no_grad():
                found = theirs(**given).logits
            for number, text in enumerate(texts):
                ids = torch.tensor([layout.frame(model.tokenizer.encode(text)).ids])
                real = given["attention_mask"][number].bool()
                assert given["input_ids"][number][real].tolist() == ids[0].tolist()
                same_logits(found[number, real], logits_here(model, ids)[0][0])
        text = f"the {own.mask_token} sat on the mat"
        given = own(text, return_tensors="pt")
        with torch.no_grad():
            scores = theirs(**given).logits[0, given["input_ids"][0].tolist().index(own.mask_token_id)]
        scores[list(model.tokenizer.specials.values())] = -torch.inf
        best = fill(model, text, top=1).blanks[0][0]
        assert best.id == int(scores.argmax())
        same_logits(torch.tensor(best.probability), scores.softmax(-1).max())


def finetuned(system: str, task: str, rows: list[Any], out: Path) -> None:
    lm = ft.load(pretrained(system))
    lm.finetune(rows, task=task, epochs=1, hold_out=0.0, out=out, sets=EXPORTABLE[system])


def exported(run: Path, out: Path) -> Any:
    """A fine-tuned run, in float64 and with weights that matter to its answers, which are exported."""
    clf: Any = ft.load(run)
    shaken(clf.model.trunk)
    shaken(clf.model.task)
    assert export_hub(clf.model, out) == []
    return clf


@pytest.mark.parametrize(("system", "task"), pairwise([(one, kind) for one in MASKED for kind in KINDS]))
def test_a_classifier_there_and_its_trunk_back(system: str, task: str, tmp_path: Path) -> None:
    paired = task in ("entailment", "similarity")
    rows: list[tuple[object, ...]] = [("a good film", "pos"), ("so bad", "neg"), ("good good", "pos")]
    if paired:
        rows = [("a good film", "good", "yes"), ("so bad", "good", "no"), ("bad film", "bad", "yes")]
    if task == "regression":
        rows = [("a good film", 4.5), ("so bad", 1.0), ("good good", 5.0)]
    finetuned(system, task, rows, tmp_path / "clf")
    texts: Any = [("so good film", "good"), ("bad", "a bad one indeed")] if paired else ["so good film", "bad"]
    given = [list(column) for column in zip(*texts)] if paired else [texts]
    with doubles(), torch.no_grad():
        clf = exported(tmp_path / "clf", tmp_path / "out")
        own = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
        model = there(transformers.AutoModelForSequenceClassification, tmp_path / "out")
        logits = model(**own(*given, padding=True, return_tensors="pt")).logits
        if task == "regression":  # whose deviation is multiplied into the head's 32 weights
            same_answers(logits[:, 0], clf.predict(texts), rounded=32)
        else:
            same_answers(logits.softmax(-1), clf.predict_proba(texts))
            assert [model.config.id2label[int(best)] for best in logits.argmax(-1)] == clf.predict(texts)

    model.float().base_model.save_pretrained(tmp_path / "body", safe_serialization=True)
    shutil.copy(tmp_path / "out" / "foretext_tokenizer.json", tmp_path / "body")
    back = loaded(import_model(tmp_path / "body", tmp_path / "back"))
    assert back.model_config == clf.model.model_config
    for name, tensor in clf.model.trunk.state_dict().items():
        assert torch.equal(back.trunk.state_dict()[name], tensor.float()), name


def test_a_chooser_there(system: str, tmp_path: Path) -> None:
    rows = [("the film", ["good", "bad"], 1), ("the end", ["so bad", "good film"], 2), ("it", ["bad", "so"], 1)]
    finetuned(system, "choice", rows, tmp_path / "clf")
    choices = ["good film", "a bad one", "so"]
    with doubles(), torch.no_grad():
        clf = exported(tmp_path / "clf", tmp_path / "out")
        own = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
        given = own(["the film"] * 3, choices, padding=True, return_tensors="pt")
        model = there(transformers.AutoModelForMultipleChoice, tmp_path / "out")
        scores = model(**{name: value[None] for name, value in given.items()}).logits[0]
        same_answers(scores.softmax(0), clf.predict_proba([("the film", choices)])[0])


POOLER, EXTRACT = "--set transfer.pooling=pooler", "--set transfer.pooling=extract"
RANDOM, HIDDEN = "--set transfer.head=random", "--set transfer.head=hidden"


@pytest.mark.parametrize(
    ("system", "pooling", "hidden", "remedy"),
    [
        ("bert", "mean", False, (POOLER,)),
        ("bert", "pooler", True, (RANDOM,)),
        ("roberta", "mean", False, (EXTRACT, HIDDEN)),
        ("roberta", "pooler", True, (EXTRACT,)),
        ("albert", "extract", False, (POOLER,)),
        ("albert", "pooler", True, (RANDOM,)),
    ],
)
def test_heads_that_they_do_not_have(
    system: str, pooling: Any, hidden: bool, remedy: tuple[str, ...], tmp_path: Path
) -> None:
    """The line names the settings that would make the head theirs, and no others."""
    task = SupervisedTask("classification", 2, 32, 0.0, 0.0, pooling=pooling, hidden=hidden)
    model = with_task(system, task, TaskConfig("classification", ("neg", "pos")))
    with refused(" ".join(remedy)) as caught:
        export_hub(model, tmp_path / "out")
    assert str(caught.value).count("--set") == len(remedy)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("system", "setting", "parts"),
    [
        ("bert", {"pooler": False}, ("model.pooler",)),
        ("bert", {"embedding": 16}, ("model.embedding",)),
        ("roberta", {"gelu": "tanh"}, ("model.gelu", "tanh", "hidden_act")),
        ("albert", {"shared": False}, ("model.shared",)),
        ("albert", {"embedding": 0}, ("model.embedding",)),
    ],
    ids=str,
)
def test_a_shape_that_they_do_not_have(
    system: str, setting: dict[str, Any], parts: tuple[str, ...], tmp_path: Path
) -> None:
    with refused(*parts):
        export_hub(pretrained_shape(system, **setting), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- heads over every token ------------------------------------------------------------------------------------------


def pretrained_shape(system: str, **changes: Any) -> SavedModel:
    """Random weights of a small model."""
    tokenizer = tokenizer_of(system)
    built = SYSTEMS[system]
    shape = {"layers": 2, "width": 32, "heads": 4, "context": 24, "vocabulary": tokenizer.size, "dropout": 0.0}
    if system == "albert":
        shape["embedding"] = 16
    paper: Any = built.sizes["paper"].model
    model = replace(paper, **(shape | changes))
    trunk = shaken(built.build_trunk(TrunkParts(model)))
    info = RunConfig("pretrain", system, "paper", tokenizer=tokenizer.fingerprint())
    return SavedModel(None, ModelSections(info, model), built, tokenizer, trunk)


def with_task(system: str, task: Any, config: TaskConfig) -> SavedModel:
    base = pretrained_shape(system)
    info = replace(base.info, kind="finetune")
    own = FinetuneConfig(info, base.model_config, training=TrainingConfig(), transfer=TransferPlan(), task=config)
    return replace(base, config=own, task=shaken(task))


@pytest.mark.usefixtures("in_float64")
def test_a_tagger_there(system: str, tmp_path: Path) -> None:
    task = TaggingTask(3, 32, 0.0, 0.0)
    model = with_task(system, task, TaskConfig("tagging", ("O", "B-x", "I-x")))
    assert export_hub(model, tmp_path / "out") == []
    theirs = there(transformers.AutoModelForTokenClassification, tmp_path / "out")
    assert theirs.config.id2label == {0: "O", 1: "B-x", 2: "I-x"}
    ids = ordinary_ids(model.tokenizer, 1, 12)
    example = TaggedExample(tuple(ids[0].tolist()), (1, 4), None)
    with torch.no_grad():
        scores = task(model.trunk, task.make([example])).scores
        same_logits(scores, theirs(input_ids=ids).logits)


@pytest.mark.usefixtures("in_float64")
def test_spans_there(system: str, tmp_path: Path) -> None:
    task = SpanTask(32, 0.0, 0.0)
    model = with_task(system, task, TaskConfig("span"))
    assert export_hub(model, tmp_path / "out") == []
    theirs = there(transformers.AutoModelForQuestionAnswering, tmp_path / "out")
    ids = ordinary_ids(model.tokenizer, 1, 12)
    example = SpanExample(tuple(ids[0].tolist()), (4, 10), None, None)
    with torch.no_grad():
        scores = task(model.trunk, task.make([example])).scores
        output = theirs(input_ids=ids)
    same_logits(scores[..., 0], output.start_logits)
    same_logits(scores[..., 1], output.end_logits)
