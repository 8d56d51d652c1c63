"""The sampled softmax: against its formula one target at a time, and against the full one."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tolerance import close, terms_of
from torch import Tensor

from foretext.nn.fused import TiedSoftmax
from foretext.nn.recurrent.bilm import Candidates, draw_candidates, log_uniform, sampled_softmax_loss

CLASSES, WIDTH = 24, 5


@pytest.fixture
def parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, table, targets, bias."""
    drawn = torch.Generator().manual_seed(0)
    h, table = (torch.randn(size, WIDTH, generator=drawn).double().requires_grad_() for size in (6, CLASSES))
    bias = torch.randn(CLASSES, generator=drawn).double().requires_grad_()
    return h, table, torch.tensor([0, 3, 23, 3, 7, 11]), bias


def test_it_is_its_formula(parts: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    h, table, targets, bias = parts
    candidates = Candidates(torch.tensor([0, 2, 3, 9]), CLASSES, 7)  # 0 and 3 are accidental hits
    expected = 0.0
    for state, y in zip(h.tolist(), targets.tolist()):

        def term(c: int, state: list[float] = state) -> float:
            p = (math.log(c + 2) - math.log(c + 1)) / math.log(CLASSES + 1)
            logit = sum(a * b for a, b in zip(state, table[c].tolist())) + float(bias[c].detach())
            return math.exp(logit) / (1.0 - (1.0 - p) ** 7)

        expected -= math.log(term(y) / (term(y) + sum(term(c) for c in (0, 2, 3, 9) if c != y)))
    found = sampled_softmax_loss(h, table, targets, bias, candidates)
    close(found, expected, terms=terms_of(WIDTH, 10, 5, len(h)))  # a logit, Q, the candidates, the states


def test_with_every_class_it_is_the_full_softmax(parts: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    h, table, targets, bias = parts
    learned = (h, table, bias)
    every = Candidates(torch.arange(CLASSES), CLASSES, None)
    sampled = sampled_softmax_loss(h, table, targets, bias, every)
    full = TiedSoftmax(table, bias).loss(h, targets)
    plain = F.cross_entropy(h @ table.t() + bias, targets, reduction="sum")
    there = terms_of(WIDTH, CLASSES, len(h))
    close(sampled, full, terms=there)
    close(sampled, plain, terms=there)
    wanted = torch.autograd.grad(full, learned)
    close(torch.autograd.grad(sampled, learned), wanted, terms=terms_of(there, CLASSES, len(h)))


def test_candidates_are_different_and_follow_the_seed() -> None:
    torch.manual_seed(3)
    first = draw_candidates(300, 1000)
    torch.manual_seed(3)
    again, other = draw_candidates(300, 1000), draw_candidates(300, 1000)
    assert torch.equal(first.drawn_M, again.drawn_M) and first.draws == again.draws
    assert not torch.equal(first.drawn_M, other.drawn_M)
    assert len(set(first.drawn_M.tolist())) == 300 < (first.draws or 0)
    assert int(first.drawn_M.min()) >= 0 and int(first.drawn_M.max()) < 1000
    close(log_uniform(torch.arange(1000), 1000).sum(), 1.0, terms=1000)


def test_the_first_draws_are_log_uniform() -> None:
    """One candidate is one draw, without rejection."""
    torch.manual_seed(0)
    drawn = torch.cat([draw_candidates(1, 8).drawn_M for _ in range(1200)])
    shares = torch.bincount(drawn, minlength=8).double() / len(drawn)
    assert float((shares - log_uniform(torch.arange(8), 8)).abs().max()) < 0.05


def test_in_expectation_the_sum_is_the_full_sum() -> None:
    """Over many draws a class is there as often as Q says, and Σ e^o / Q over the drawn is Σ e^o over all. Q follows
    from how many draws it took, so both hold the better the more candidates there are."""
    torch.manual_seed(0)
    classes, draws = 600, 200
    terms = torch.exp(torch.randn(classes).double())
    present, expected, sums = torch.zeros(classes).double(), torch.zeros(classes).double(), 0.0
    for _ in range(draws):
        candidates = draw_candidates(150, classes)
        counts = candidates.log_counts(torch.arange(classes)).exp()
        present[candidates.drawn_M] += 1 / draws
        expected += counts / draws
        sums += float((terms / counts)[candidates.drawn_M].sum()) / draws
    groups = [(present[part].mean() - expected[part].mean()).abs() for part in torch.arange(classes).split(100)]
    assert float(torch.stack(groups).max()) < 0.01
    assert sums == pytest.approx(float(terms.sum()), rel=0.02)


def test_what_is_right_for_the_full_softmax_is_right_for_this_one() -> None:
    """At logits log p the full loss of targets that come by p has no gradient. Nor has this one, on average; without
    the division by Q it has."""
    torch.manual_seed(0)
    times = torch.arange(CLASSES, 0, -1)
    targets = torch.repeat_interleave(torch.arange(CLASSES), times)
    share = times.double() / len(targets)
    bias = share.log().requires_grad_()
    h, table = torch.zeros(len(targets), 1).double(), torch.zeros(CLASSES, 1).double()
    full = TiedSoftmax(table, bias).loss(h, targets)
    (gradient,) = torch.autograd.grad(full, bias)
    close(
        gradient, torch.zeros(CLASSES), terms=terms_of(CLASSES, len(targets)), size=CLASSES
    )  # as often as the first comes
    gradients = {"with": torch.zeros(CLASSES).double(), "without": torch.zeros(CLASSES).double()}
    for _ in range(200):
        drawn = draw_candidates(8, CLASSES)
        for name, candidates in (("with", drawn), ("without", Candidates(drawn.drawn_M, CLASSES, None))):
            loss = sampled_softmax_loss(h, table, targets, bias, candidates) / len(targets)
            gradients[name] += torch.autograd.grad(loss, bias)[0] / 200
    sizes = {name: float(gradient.norm()) for name, gradient in gradients.items()}
    assert sizes["with"] < 0.25 * sizes["without"], sizes
