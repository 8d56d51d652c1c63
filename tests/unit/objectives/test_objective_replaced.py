"""Replaced-token detection: what is drawn, what counts, and what learns from which loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from complaints import refused
from systems_under_test import gradients, objective_of, trunk_of, unlabelled

from foretext.batch import IGNORE
from foretext.objectives.base import Draw
from foretext.objectives.replaced import ReplacedConfig, ReplacedObjective, drawn


class Given:
    """An output layer whose logits are the states."""

    def loss(self, h_ND: torch.Tensor, targets_N: torch.Tensor, weights_N: torch.Tensor | None = None) -> torch.Tensor:
        raise NotImplementedError

    def token_losses(self, h_ND: torch.Tensor, targets_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def logits(self, h_ND: torch.Tensor) -> torch.Tensor:
        return h_ND


def objective() -> ReplacedObjective:
    found = objective_of("electra")
    assert isinstance(found, ReplacedObjective)
    return found


def test_tokens_are_drawn_by_their_probabilities() -> None:
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    chances = (torch.arange(1000) + 0.5) / 1000
    found = drawn(Given(), probabilities.log().expand(1000, -1), chances, 4)
    assert torch.bincount(found, minlength=4).tolist() == [100, 0, 600, 300]
    assert drawn(Given(), torch.zeros(1, 4), torch.ones(1), 4).tolist() == [3], "rounding does not lead past the end"
    assert drawn(Given(), torch.zeros(0, 4), torch.zeros(0), 4).tolist() == []


def test_every_real_token_is_judged_and_a_restored_one_is_original(monkeypatch: pytest.MonkeyPatch) -> None:
    found, trunk = objective(), trunk_of("electra")
    batch = found.make(unlabelled("electra", (9, 14)), Draw(1, 0, (0, 1)))
    assert batch.targets_BT is not None and batch.mask_BT is not None
    chosen_BT = batch.targets_BT != IGNORE
    assert found.counts(batch) == {"masked": float(chosen_BT.sum()), "replaced": float(batch.mask_BT.sum())}
    targets = batch.targets_BT[chosen_BT]
    read: list[torch.Tensor] = []
    trunk.register_forward_hook(lambda module, given, out: read.append(given[0].ids_BT))
    told: list[torch.Tensor] = []
    real = torch.nn.functional.binary_cross_entropy_with_logits
    monkeypatch.setattr(
        "foretext.objectives.replaced.F.binary_cross_entropy_with_logits",
        lambda scores, labels, reduction: told.append(labels) or real(scores, labels, reduction=reduction),
    )
    for written, wrong in ((targets, 0), ((targets + 1) % 60, len(targets))):
        monkeypatch.setattr("foretext.objectives.replaced.drawn", lambda *_, written=written: written)
        outcome = found(trunk, batch)
        assert {name: loss.count for name, loss in outcome.losses.items()} == found.counts(batch)
        assert int(told[-1].sum()) == wrong and torch.equal(read[-1][chosen_BT], written)
        assert torch.equal(read[-1][~chosen_BT], batch.ids_BT[~chosen_BT])


def test_each_part_learns_from_its_own_loss() -> None:
    found, trunk = objective(), trunk_of("electra")
    batch = found.make(unlabelled("electra", (9, 14)), Draw(1, 0, (0, 1)))
    for name, learns, not_learned in (("masked", "generator", "detector"), ("replaced", "detector", "generator")):
        trunk.zero_grad()
        found.zero_grad()
        found(trunk, batch).losses[name].total.backward()
        learned = [key for key, grad in gradients(nn_of(trunk, found)).items() if bool(grad.any())]
        assert any(learns in key for key in learned) and not any(not_learned in key for key in learned)
        assert any("tokens" in key for key in learned), "the embeddings are of both"
        assert any("0.blocks" in key for key in learned) == (name == "replaced"), "the trunk is the discriminator"


def nn_of(*modules: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.ModuleList(modules)


def test_what_cannot_be_is_refused() -> None:
    for changes, key in (({"generator": 0.0}, "objective.generator"), ({"detection": -1.0}, "objective.detection")):
        with refused(key):
            replace(ReplacedConfig(), **changes).check()
