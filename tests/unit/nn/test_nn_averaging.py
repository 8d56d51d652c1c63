"""Averaged weights against the recurrence written out."""

from __future__ import annotations

import pytest
import torch
from complaints import refused
from tolerance import close
from torch import nn

from foretext.nn.trunk import AveragedWeights, decay_at


def moved(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))


def test_the_recurrence() -> None:
    model = nn.Linear(3, 2)
    average = AveragedWeights(dict(model.named_parameters()), decay=0.5)
    expected = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    assert [decay_at(0.5, n) for n in (1, 2, 8, 9, 10, 100)] == [0.1, 2 / 11, 8 / 17, 0.5, 0.5, 0.5]
    for n in range(1, 15):
        moved(model)
        average.update()
        d = min(0.5, n / (9 + n))
        for name, parameter in model.named_parameters():
            expected[name] = d * expected[name] + (1 - d) * parameter.detach()
    close(average.averages, expected, terms=2 * 14)
    for name, tensor in expected.items():
        assert not torch.allclose(dict(model.named_parameters())[name], tensor)


def test_the_mean_of_all_updates() -> None:
    model = nn.Linear(3, 2)
    average = AveragedWeights(dict(model.named_parameters()), decay=None)
    moved(model)
    own = model.weight.detach().clone()
    with average.swapped():
        assert torch.equal(model.weight, own), "there is no average before the first update"
    seen = []
    for _ in range(7):
        moved(model)
        average.update()
        seen.append({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
    expected = {name: torch.stack([one[name] for one in seen]).mean(0) for name in seen[0]}
    close(average.averages, expected, terms=2 * 7)


def test_swapping_gives_the_averages_and_back_again() -> None:
    model = nn.Linear(3, 2)
    average = AveragedWeights(dict(model.named_parameters()))
    moved(model)
    average.update()
    own, held = model.weight.detach().clone(), model.weight
    averaged = average.averages["weight"].clone()
    with average.swapped():
        assert torch.equal(model.weight, averaged) and model.weight is held
    assert torch.equal(model.weight, own) and torch.equal(average.averages["weight"], averaged)
    with pytest.raises(ZeroDivisionError), average.swapped():
        raise ZeroDivisionError
    assert torch.equal(model.weight, own)


def test_it_goes_on_where_it_was() -> None:
    model, again = nn.Linear(3, 2), nn.Linear(3, 2)
    average = AveragedWeights(dict(model.named_parameters()), 0.9)
    for _ in range(3):
        moved(model)
        average.update()
    other = AveragedWeights(dict(again.named_parameters()), 0.9)
    other.load_state(average.state_tensors())
    again.load_state_dict(model.state_dict())
    for one in (average, other):
        one.update()
    assert other.updates == 4
    for name, tensor in average.averages.items():
        assert torch.equal(tensor, other.averages[name])
    for wrong in (1.0, -0.1):
        with refused("decay", str(wrong)):
            AveragedWeights({}, wrong)
