"""The AWD-LSTM against fastai's, with its weights, masks and numbers (`make_awd_reference.py` says how they came)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foretext.batch import Batch
from foretext.nn import awd_lstm, recurrent_dropout
from foretext.nn.awd_lstm import AwdLstm, AwdLstmConfig
from foretext.nn.loss import tied_softmax_loss
from foretext.nn.recurrent_dropout import activation_penalty, temporal_penalty

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


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
        for ours, theirs in zip(hidden.layers, expected["layers"]):
            torch.testing.assert_close(ours, torch.tensor(theirs), **CLOSE)
        for pair, (h, c) in zip(state, expected["state"], strict=True):
            torch.testing.assert_close(pair, (torch.tensor(h), torch.tensor(c)), **CLOSE)
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

    monkeypatch.setattr(recurrent_dropout, "kept", next_mask)
    monkeypatch.setattr(awd_lstm, "drop_weights", lambda weight, p, _: weight * next_mask(weight.shape, p, weight))
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
    torch.testing.assert_close(top, torch.tensor(expected["top"]), **CLOSE)
    torch.testing.assert_close(dropped, torch.tensor(expected["dropped"]), **CLOSE)

    targets = torch.tensor(expected["targets"]).flatten()
    lm = tied_softmax_loss(dropped.flatten(0, 1), trunk.output_table(), targets) / len(targets)
    assert float(lm.detach()) == pytest.approx(expected["cross_entropy"], abs=1e-5)
    ar, tar = activation_penalty(dropped), temporal_penalty(top)
    alpha, beta = reference["penalties"]
    loss = lm + alpha * ar.total / ar.count + beta * tar.total / tar.count
    assert float(loss.detach()) == pytest.approx(expected["loss"], abs=1e-5)
    loss.backward()
    assert len(expected["gradients"]) == len(list(trunk.parameters()))
    for name, parameter in trunk.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, torch.tensor(expected["gradients"][name]), **CLOSE)
