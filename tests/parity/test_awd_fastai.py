"""The AWD-LSTM against fastai's, with its weights, masks and numbers (`make_awd_reference.py` says how they came).
Theirs are float32, ours are computed in float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import Batch
from foretext.nn.fused import TiedSoftmax
from foretext.nn.recurrent import awd_lstm
from foretext.nn.recurrent.awd_lstm import AwdLstm, AwdLstmConfig, activation_penalty, temporal_penalty

pytestmark = pytest.mark.usefixtures("in_float64")

# From an input to a state: seven steps and five in the first layer, and up through the others, each time over twelve
# inputs and twelve states. From a loss back to a weight of a batch of 3 × 7 tokens: seven steps, three layers, there
# and twice back, and a softmax of twenty.
STATES = terms_of((7 + 5 + 2) * (12 + 12))
GRADIENTS = terms_of(3 * (7 + 2) * (12 + 12), 8 + 20, 3 * 7)


def stored(found: Any, expected: Any, terms: int) -> None:
    """As the file has it, whose numbers came out of float32."""
    close(found, expected, terms=terms, precision=torch.float32)


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("awd_reference.json").read_text())


@pytest.fixture
def trunk(reference: dict[str, Any]) -> AwdLstm:
    """fastai's weights in ours, every one of them."""
    shape, dropouts = reference["shape"], reference["dropouts"]
    config = AwdLstmConfig(
        reference["vocabulary"],
        layers=shape["n_layers"],
        width=shape["emb_sz"],
        hidden=shape["n_hid"],
        dropout=1.0,
        embedding_dropout=dropouts["embed_p"],
        input_dropout=dropouts["input_p"],
        weight_dropout=dropouts["weight_p"],
        hidden_dropout=dropouts["hidden_p"],
        output_dropout=dropouts["output_p"],
    )
    trunk = AwdLstm(config)
    trunk.load_state_dict({name: torch.tensor(values) for name, values in reference["weights"].items()})
    return trunk


def test_layers_and_states_over_two_batches(reference: dict[str, Any], trunk: AwdLstm) -> None:
    trunk.eval()
    state = trunk.new_state(len(reference["batches"][0]))
    assert len(reference["evaluation"]) == 2
    for ids, expected in zip(reference["batches"], reference["evaluation"]):
        hidden = trunk(Batch(torch.tensor(ids)), state, keep_layers=True)
        state = hidden.state
        assert len(hidden.layers) == len(expected["layers"]) == 4
        stored(hidden.layers, [torch.tensor(layer) for layer in expected["layers"]], STATES)
        assert len(state) == len(expected["state"]) == 3
        for pair, (h, c) in zip(state, expected["state"]):
            stored(pair, (torch.tensor(h), torch.tensor(c)), STATES)
    fresh = trunk(Batch(torch.tensor(reference["batches"][1]))).top
    assert not torch.allclose(fresh, hidden.top, atol=1e-2), "without the state it is another"


@pytest.fixture
def masks(reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """fastai's masks in the order in which it drew them, instead of ours: each is used up."""
    left = []
    for mask in reference["training"]["masks"]:
        kept = torch.tensor([float(bit) for bit in mask["kept"]]) * mask["scale"]
        left.append(kept.view([size for size in mask["shape"] if size > 1]))

    def next_mask(shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
        mask = left.pop(0)
        assert mask.shape == shape and float(mask.max()) == pytest.approx(1 / (1 - p))
        return mask

    monkeypatch.setattr(awd_lstm, "kept", next_mask)
    monkeypatch.setattr(awd_lstm, "dropout", lambda weight, p, _: weight * next_mask(weight.shape, p, weight))
    return left


def test_a_training_step_with_all_dropouts_and_both_penalties(
    reference: dict[str, Any], trunk: AwdLstm, masks: list[Tensor]
) -> None:
    expected = reference["training"]
    assert len(masks) == 8, "embedding, input, three of weights, two between the layers, output"
    batch = Batch(torch.tensor(expected["ids"]))
    top = trunk.train()(batch).top
    dropped = trunk.output_dropout(top)
    assert not masks
    stored(top, torch.tensor(expected["top"]), STATES)
    stored(dropped, torch.tensor(expected["dropped"]), STATES)

    targets = torch.tensor(expected["targets"]).flatten()
    lm = TiedSoftmax(trunk.output_table()).loss(dropped.flatten(0, 1), targets) / len(targets)
    stored(lm, expected["cross_entropy"], GRADIENTS)
    ar, tar = activation_penalty(dropped), temporal_penalty(top)
    alpha, beta = reference["penalties"]
    loss = lm + alpha * ar.total / ar.count + beta * tar.total / tar.count
    stored(loss, expected["loss"], GRADIENTS)
    loss.backward()
    stored_gradients(trunk, expected["gradients"])


def stored_gradients(trunk: AwdLstm, expected: dict[str, Any]) -> None:
    found = {name: parameter.grad for name, parameter in trunk.named_parameters()}
    stored(found, {name: torch.tensor(values) for name, values in expected.items()}, GRADIENTS)
