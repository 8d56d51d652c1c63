"""The language model's whole loss against fastai's: its weights, masks and numbers of a training step with all five
dropouts and both penalties (`make_awd_reference.py` says how they came)."""

from __future__ import annotations

from typing import Any

import pytest
import test_awd_fastai as awd
import torch
from torch import Tensor

from foretext.batch import Batch
from foretext.nn.recurrent.awd_lstm import AwdLstm
from foretext.objectives.stream import StreamConfig, StreamObjective

pytestmark = pytest.mark.usefixtures("in_float64")
reference, trunk, masks = awd.reference, awd.trunk, awd.masks  # fixtures


def test_loss_and_gradients_of_a_step(reference: dict[str, Any], trunk: AwdLstm, masks: list[Tensor]) -> None:
    expected = reference["training"]
    alpha, beta = reference["penalties"]
    assert (alpha, beta) == (StreamConfig().activation, StreamConfig().temporal)
    objective = StreamObjective(trunk.config, StreamConfig()).train()
    batch = Batch(torch.tensor(expected["ids"]), targets_BT=torch.tensor(expected["targets"]))
    losses, counts = objective(trunk.train(), batch).losses, objective.counts(batch)
    assert not masks, "each of fastai's masks was used"
    means = {name: loss.total / counts[name] for name, loss in losses.items()}
    awd.stored(means["lm"], expected["cross_entropy"], awd.GRADIENTS)
    total = sum(objective.weights[name] * mean for name, mean in means.items())
    awd.stored(total, expected["loss"], awd.GRADIENTS)
    total.backward()
    awd.stored_gradients(trunk, expected["gradients"])
