"""Our own runs of BERT, RoBERTa and ALBERT, exported: the same logits, words for blanks, classes, scores, choices, tags
and answers there; what `transformers` has no place for is refused in a line that says what would be exported."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from masked_references import CORPUS, MASKED, loaded, logits_here, ordinary_ids, tokenizer_of

import foretext as ft
from foretext.errors import UserError
from foretext.evaluate.fill import fill
from foretext.interop.exchange import export_model, import_model
from foretext.interop.hub import export_hub
from foretext.plan import TransferPlan
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts
from foretext.tasks.span import SpanExample, SpanTask
from foretext.tasks.tagging import TaggedExample, TaggingTask
from foretext.train.saved import RunConfig, SavedModel, TaskConfig

transformers = pytest.importorskip("transformers")

SMALL = ("model.layers=2", "model.width=32", "model.heads=2", "model.context=32", "training.batch_size=4")
EXPORTABLE = {
    "bert": ("transfer.pooling=pooler", "transfer.head=random"),
    "roberta": ("transfer.pooling=extract", "transfer.head=hidden"),
    "albert": ("transfer.pooling=pooler", "transfer.head=random"),
}


@pytest.fixture(params=MASKED)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pretrained(system: str, out: Path | None = None) -> ft.LanguageModel:
    size = "tokenizer.size=300" if system == "roberta" else "tokenizer.size=120"
    sets = (*SMALL, size, *(("model.embedding=16",) if system == "albert" else ()))
    return ft.pretrain(documents=CORPUS, system=system, steps=6, out=out, sets=sets)


def test_a_trained_run_there(system: str, tmp_path: Path) -> None:
    """The same logits for texts of several lengths, and the same word for a blank. RoBERTa's padding may stand on
    either side there, since it counts positions as we do: from an id that our vocabularies have elsewhere."""
    lm = pretrained(system, tmp_path / "run")
    with torch.no_grad():
        for parameter in [*lm.model.trunk.parameters(), *lm.model.objective.parameters()]:
            parameter.add_(0.1 * torch.randn_like(parameter))
    export_hub(lm.model, tmp_path / "out")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out", local_files_only=True).eval()
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    layout = lm.model.system.build_layout(dict(lm.model.tokenizer.specials), 32, "forward")
    texts = ["the cat sat", "so good", "a bad film, the mat and the hat"]
    for side in ("right", "left") if system == "roberta" else ("right",):
        there.padding_side = side
        given = there(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            found = theirs(**given).logits
        for number, text in enumerate(texts):
            ids = torch.tensor([layout.frame(lm.model.tokenizer.encode(text)).ids])
            real = given["attention_mask"][number].bool()
            assert given["input_ids"][number][real].tolist() == ids[0].tolist()
            torch.testing.assert_close(found[number, real], logits_here(lm.model, ids)[0][0], atol=1e-4, rtol=0)
    text = f"the {there.mask_token} sat on the mat"
    given = there(text, return_tensors="pt")
    with torch.no_grad():
        scores = theirs(**given).logits[0, given["input_ids"][0].tolist().index(there.mask_token_id)]
    scores[list(lm.model.tokenizer.specials.values())] = -torch.inf
    best = fill(lm.model, text, top=1).blanks[0][0]
    assert best.id == int(scores.argmax())
    assert best.probability == pytest.approx(float(scores.softmax(-1).max()), abs=1e-4)


@pytest.mark.parametrize("task", ["classification", "entailment", "similarity", "regression"])
def test_a_classifier_there_and_its_trunk_back(system: str, task: str, tmp_path: Path) -> None:
    lm = pretrained(system)
    rows: list[tuple[object, ...]] = [("a good film", "pos"), ("so bad", "neg"), ("good good", "pos")] * 4
    if task in ("entailment", "similarity"):
        rows = [("a good film", "good", "yes"), ("so bad", "good", "no"), ("bad film", "bad", "yes")] * 4
    if task == "regression":
        rows = [("a good film", 4.5), ("so bad", 1.0), ("good good", 5.0)] * 4
    clf = lm.finetune(rows, task=task, epochs=2, out=tmp_path / "clf", sets=EXPORTABLE[system])
    assert export_model(tmp_path / "clf", tmp_path / "out") == []
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    paired = task in ("entailment", "similarity")
    texts: Any = [("so good film", "good"), ("bad", "a bad one indeed")] if paired else ["so good film", "bad"]
    given = [list(column) for column in zip(*texts)] if paired else [texts]
    with torch.no_grad():
        logits = model(**there(*given, padding=True, return_tensors="pt")).logits
    if task == "regression":
        np.testing.assert_allclose(logits[:, 0].numpy(), clf.predict(texts), atol=1e-4)
    else:
        np.testing.assert_allclose(logits.softmax(-1).numpy(), clf.predict_proba(texts), atol=1e-4)
        assert [model.config.id2label[int(best)] for best in logits.argmax(-1)] == clf.predict(texts)

    model.base_model.save_pretrained(tmp_path / "body", safe_serialization=True)
    shutil.copy(tmp_path / "out" / "foretext_tokenizer.json", tmp_path / "body")
    back = loaded(import_model(tmp_path / "body", tmp_path / "back"))
    assert back.model_config == clf.model.model_config
    for name, tensor in clf.model.trunk.state_dict().items():
        assert torch.equal(back.trunk.state_dict()[name], tensor), name


def test_a_chooser_there(system: str, tmp_path: Path) -> None:
    lm = pretrained(system)
    rows = [("the film", ["good", "bad"], 1), ("the end", ["so bad", "good film"], 2), ("it", ["bad", "so"], 1)] * 4
    clf = lm.finetune(rows, task="choice", epochs=2, out=tmp_path / "clf", sets=EXPORTABLE[system])
    assert export_model(tmp_path / "clf", tmp_path / "out") == []
    model = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "out", local_files_only=True).eval()
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    choices = ["good film", "a bad one", "so"]
    given = there(["the film"] * 3, choices, padding=True, return_tensors="pt")
    with torch.no_grad():
        scores = model(**{name: value[None] for name, value in given.items()}).logits[0]
    np.testing.assert_allclose(scores.softmax(0).numpy(), clf.predict_proba([("the film", choices)])[0], atol=1e-4)


def test_heads_that_they_do_not_have(system: str, tmp_path: Path) -> None:
    """The line names the settings that would make the head theirs."""
    lm = pretrained(system)
    rows = [("a good film", "pos"), ("so bad", "neg"), ("good good", "pos")] * 4
    wanted = {
        "bert": ("transfer.pooling=mean", "fine-tune with --set transfer.pooling=pooler to export"),
        "roberta": (
            "transfer.pooling=mean",
            "fine-tune with --set transfer.pooling=extract --set transfer.head=hidden to export",
        ),
        "albert": ("transfer.pooling=extract", "fine-tune with --set transfer.pooling=pooler to export"),
    }
    setting, words = wanted[system]
    lm.finetune(rows, task="classification", epochs=1, out=tmp_path / "clf", sets=(setting, "transfer.head=random"))
    with pytest.raises(UserError, match=words):
        export_model(tmp_path / "clf", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    hidden = ("transfer.pooling=pooler", "transfer.head=hidden")
    lm.finetune(rows, task="classification", epochs=1, out=tmp_path / "deep", sets=hidden)
    words = "transfer.pooling=extract" if system == "roberta" else "transfer.head=random"
    with pytest.raises(UserError, match=words):
        export_model(tmp_path / "deep", tmp_path / "out")


def test_a_shape_that_they_do_not_have(tmp_path: Path) -> None:
    for system, setting, words in (
        ("bert", "model.pooler=false", r"model\.pooler"),
        ("bert", "model.embedding=16", r"model\.embedding"),
        ("roberta", "model.gelu=tanh", r"model\.gelu is tanh"),
        ("albert", "model.shared=false", r"model\.shared"),
        ("albert", "model.embedding=0", r"model\.embedding"),
    ):
        size = "tokenizer.size=300" if system == "roberta" else "tokenizer.size=120"
        lm = ft.pretrain(documents=CORPUS, system=system, steps=1, sets=(*SMALL, size, setting))
        with pytest.raises(UserError, match=words):
            export_hub(lm.model, tmp_path / "out")
        assert not (tmp_path / "out").exists()


# -- heads over every token ------------------------------------------------------------------------------------------


def with_task(system: str, task: Any, config: TaskConfig) -> SavedModel:
    tokenizer = tokenizer_of(system)
    built = SYSTEMS[system]
    shape = {"layers": 2, "width": 32, "heads": 4, "context": 24, "vocabulary": tokenizer.size, "dropout": 0.0}
    if system == "albert":
        shape["embedding"] = 16
    paper: Any = built.sizes["paper"].model
    model = replace(paper, **shape)
    trunk = built.build_trunk(TrunkParts(model))
    with torch.no_grad():
        for parameter in [*trunk.parameters(), *task.parameters()]:
            parameter.add_(0.1 * torch.randn_like(parameter))
    info = RunConfig("finetune", system, "paper", tokenizer=tokenizer.fingerprint())
    sections = {"run": info, "model": model, "task": config, "transfer": TransferPlan()}
    return SavedModel(None, sections, built, tokenizer, trunk.eval(), task=task.eval())


def test_a_tagger_there(system: str, tmp_path: Path) -> None:
    task = TaggingTask(3, 32, 0.0, 0.0)
    model = with_task(system, task, TaskConfig("tagging", ("O", "B-x", "I-x")))
    assert export_hub(model, tmp_path / "out") == []
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out").eval()
    assert theirs.config.id2label == {0: "O", 1: "B-x", 2: "I-x"}
    ids = ordinary_ids(model.tokenizer, 1, 12)
    example = TaggedExample(tuple(ids[0].tolist()), (1, 4), None)
    with torch.no_grad():
        scores = task(model.trunk, task.make([example])).scores
        torch.testing.assert_close(scores, theirs(input_ids=ids).logits, atol=1e-4, rtol=0)


def test_spans_there(system: str, tmp_path: Path) -> None:
    task = SpanTask(32, 0.0, 0.0)
    model = with_task(system, task, TaskConfig("span"))
    assert export_hub(model, tmp_path / "out") == []
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out").eval()
    ids = ordinary_ids(model.tokenizer, 1, 12)
    example = SpanExample(tuple(ids[0].tolist()), (4, 10), None, None)
    with torch.no_grad():
        scores = task(model.trunk, task.make([example])).scores
        output = theirs(input_ids=ids)
    torch.testing.assert_close(scores[..., 0], output.start_logits, atol=1e-4, rtol=0)
    torch.testing.assert_close(scores[..., 1], output.end_logits, atol=1e-4, rtol=0)
