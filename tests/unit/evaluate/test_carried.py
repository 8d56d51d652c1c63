"""A model whose state goes on reads documents of any length: scored in pieces as at once, written on without
forgetting, and two directions of it averaged."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import refused
from systems_under_test import base_model, shaken_model
from tolerance import close, terms_of

from foretext.api import LanguageModel, TaskModel
from foretext.batch import Batch
from foretext.evaluate import perplexity as module
from foretext.evaluate.features import LayerMix, text_vectors
from foretext.evaluate.perplexity import perplexity
from foretext.generate.sampling import Decoder
from foretext.interop.lm_eval import rolling
from foretext.runs.model import SavedModel, reach_of
from foretext.systems.base import TrunkParts

TEXTS = ["a long text, much longer than a piece of it: 中文也有 " * 5, "x", "", "the film was good"]
LONGEST = len(TEXTS[0].encode())
# So many bytes one after the other, each through two layers of at most 32 inputs and as many cells; then the softmax.
READ_ON = terms_of(LONGEST * 2 * (32 + 32), 32 + 257)


@pytest.fixture(params=["forward", "backward"])
def model(request: pytest.FixtureRequest) -> SavedModel:
    torch.manual_seed(1)
    made = shaken_model("ulmfit", 0.3)
    return replace(made, config=replace(made.config, run=replace(made.info, direction=request.param)))


def nats_at_once(model: SavedModel, text: str) -> float:
    """One reading of the whole document after end-of-text."""
    ids = model.tokenizer.encode(text)
    stream = torch.tensor([[model.tokenizer.end, *(ids if model.info.direction == "forward" else ids[::-1])]])
    with torch.no_grad():
        top = model.trunk.eval()(Batch(stream[:, :-1])).top[0]
        logs = torch.log_softmax((top @ model.trunk.output_table().t()).double(), -1)  # type: ignore[operator]
    return -float(logs.gather(1, stream[0, 1:, None]).sum())


@pytest.mark.parametrize(("rows", "piece"), [(16, 512), (16, 7), (1, 1), (2, 64)])
def test_a_long_document_scored_in_pieces_is_scored_at_once(
    model: SavedModel, rows: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "PIECE", piece)
    measured = perplexity(model, TEXTS)
    nats = sum(nats_at_once(model, text) for text in TEXTS if text)
    close(math.log(measured.per_token) * measured.tokens, nats, terms=terms_of(READ_ON, measured.tokens))
    assert (measured.context, measured.stride) == (None, None) and measured.documents == 4
    assert measured.to_dict()["context"] is None
    with refused("stride", "ulmfit"):
        perplexity(model, TEXTS, stride=4)


def test_all_of_a_document_counts_in_logits_vectors_and_what_is_written() -> None:
    model = shaken_model("ulmfit", 0.3)
    with torch.no_grad():
        for layer in model.trunk.layers:  # type: ignore[union-attr]
            layer.bias_ih[layer.cells : 2 * layer.cells] += 9.0  # type: ignore[index, operator]  # it forgets little
    assert reach_of(model) is None and reach_of(base_model("gpt")) == 48 == model.model_config.context
    ids = model.tokenizer.encode(TEXTS[0])
    assert len(ids) > 3 * model.model_config.context
    found = LanguageModel(model, Path()).logits(ids)
    with torch.no_grad():
        whole = model.trunk.eval()(Batch(torch.tensor([ids]))).top[0]
    close(found, whole @ model.trunk.output_table().detach().t(), terms=1)  # type: ignore[operator]  # to float32 once
    other = [(ids[0] + 1) % 256, *ids[1:]]
    apart = Decoder(model, [ids]).logits() - Decoder(model, [other]).logits()
    assert float(apart.abs().max()) > 1e-3, "the first token too"
    with torch.no_grad():
        states = model.trunk(Batch(torch.tensor([[model.tokenizer.end, *ids]]))).top[0]
    close(text_vectors(model, TEXTS[:1])[0], states.mean(0), terms=terms_of(1, len(states)))  # added up in float32
    nats = nats_at_once(model, TEXTS[0])
    close(-rolling(model, [TEXTS[0]])[0], nats, terms=terms_of(READ_ON, LONGEST))
    with refused("logits", "1 id", "0"):
        LanguageModel(model, Path()).logits([])


def of_other_shape(system: str, **changes: int) -> SavedModel:
    base = base_model(system)
    shape = replace(base.model_config, **changes)
    trunk = base.system.build_trunk(TrunkParts(shape, base.tokenizer))
    return replace(base, config=replace(base.config, model=shape), trunk=trunk)


@pytest.mark.parametrize(
    ("system", "changes", "widths"),
    [
        ("ulmfit", {"hidden": 20}, (32, 20, 32)),
        ("cove", {"vectors": 12}, (12, 32, 32)),
        ("cvt", {"vectors": 9}, (21, 32, 32)),  # and three kinds of filters of 4
    ],
)
def test_each_layer_has_a_width_of_its_own(system: str, changes: dict[str, int], widths: tuple[int, ...]) -> None:
    """At [row, layer] stands what that layer alone gives; together they are refused only where they would be added."""
    model = of_other_shape(system, **changes)
    lm, texts = LanguageModel(model, Path()), ["one text", "and another, longer one", ""]
    found = lm.features(texts, each=True)
    words = lm.word_features(texts, each=True)
    assert found.shape == (3, 3) and [one.vectors.shape for one in words] == [(len(one.words), 3) for one in words]
    assert words[0].words == ["one", "text"] and not words[2].words
    for layer, width in enumerate(widths):
        alone = lm.features(texts, layers=[layer])
        assert alone.shape == (3, width) and alone[:2].any(1).all()
        np.testing.assert_array_equal(np.stack(found[:, layer]), alone)
        for every, own in zip(words[:2], lm.word_features(texts, layers=[layer])):
            np.testing.assert_array_equal(np.stack(every.vectors[:, layer]), own.vectors)
    turned = lm.features(texts, layers=[2, 0, 1], each=True)
    assert all(np.array_equal(turned[row, 1], found[row, 0]) for row in range(3))
    said = ("layer 0", f"{widths[0]}", "layer 1", f"{widths[1]}", "--each", "each=True")
    for ask in (lm.features, lm.word_features):
        for weights in ((), (0.5, 0.5)):
            with refused(*said):
                ask(texts, layers=[0, 1], weights=weights)


def test_layers_of_unequal_width_are_given_but_not_added() -> None:
    model = of_other_shape("ulmfit", hidden=20)
    assert text_vectors(model, TEXTS[-1:], mix=LayerMix((1,))).shape == (1, 20)
    assert text_vectors(model, TEXTS[-1:], mix=LayerMix((0, 2))).shape == (1, 32)
    with refused("layer 1", "20", "layer 2", "32", "--each"):
        text_vectors(model, TEXTS[-1:], mix=LayerMix((1, 2)))
    lm = LanguageModel(model, Path())
    assert lm.features(TEXTS[-2:], layers=[1]).shape == (2, 20)
    np.testing.assert_array_equal(
        lm.features(TEXTS[-2:], layers=[1], each=True)[:, 0], lm.features(TEXTS[-2:], layers=[1])
    )
    assert lm.features(TEXTS[-2:], layers=[0, 2], each=True).shape == (2, 2, 32)
    (words,) = lm.word_features(TEXTS[-1:], layers=[1])
    (each,) = lm.word_features(TEXTS[-1:], layers=[1], each=True)
    assert words.vectors.shape == (len(words.words), 20)
    np.testing.assert_array_equal(each.vectors[:, 0], words.vectors)


# -- two models ------------------------------------------------------------------------------------------------------

ROWS = {
    "classification": [("it is good", "yes"), ("it is bad", "no")] * 3,
    "choice": [("what", ["this one", "that"], 1), ("who", ["he", "she", "it"], 2)] * 3,
    "regression": [("it is good", 3.0), ("it is bad", 1.0)] * 3,
    "tagging": [(["he", "sees"], ["A", "B"])] * 6,
}


def taught(task: str, seed: int, rows: object = None) -> TaskModel:
    base = LanguageModel(base_model("ulmfit", seed), Path())
    return base.finetune(
        rows or ROWS[task], task=task, hold_out=0.0, epochs=1, seed=seed, sets=["training.batch_size=3"]
    )


@pytest.mark.parametrize("task", ["classification", "choice", "regression"])
def test_two_models_predict_the_mean_of_both(task: str) -> None:
    first, second = taught(task, 0), taught(task, 1)
    both = first.averaged_with(second)
    data = [row[:-1] if task == "choice" else row[0] for row in ROWS[task][:2]]
    rows = both.rows(data)
    found, one, two = (model.predictions(rows) for model in (both, first, second))
    if task == "regression":
        close(found.values, [(a + b) / 2 for a, b in zip(one.values, two.values)], terms=2)
        close(both.predict(data), found.values, terms=2)
        return
    for mine, a, b, value in zip(found.probabilities, one.probabilities, two.probabilities, found.values):
        close(mine, [(p + q) / 2 for p, q in zip(a, b)], terms=2)
        close(sum(mine), 1.0, terms=2 * len(mine))
        best = int(np.argmax(mine))
        assert value == (best if task == "choice" else both.labels[best])
    if task == "classification":
        tables = [model.predict_proba(data) for model in (both, first, second)]
        close(tables[0], (tables[1] + tables[2]) / 2, terms=2)
        assert both.evaluate(ROWS[task]).rows == 6


def test_models_that_have_no_mean_are_refused() -> None:
    first = taught("classification", 0)
    other = taught("classification", 0, [("it is good", "maybe"), ("it is bad", "no")] * 3)
    with refused("classification", "maybe, no", "no, yes"):
        first.averaged_with(other)
    with refused("regression", "classification", "no, yes", "model 3", "model 1"):
        first.averaged_with(first, taught("regression", 0))
    with refused("run-b", "run-a"):
        TaskModel(first.model, Path("run-a")).averaged_with(TaskModel(other.model, Path("run-b")))
    tagger = taught("tagging", 0)
    with refused("--with", "tagging"):
        tagger.averaged_with(tagger)
