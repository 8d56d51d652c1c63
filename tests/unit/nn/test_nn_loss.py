"""The chunked softmax loss against `F.cross_entropy`, in value and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tolerance import close, terms_of
from torch import Tensor

from foretext.nn import fused as module
from foretext.nn.fused import TiedSoftmax

WIDTH, VOCABULARY = 16, 37
THERE = terms_of(WIDTH, VOCABULARY)  # a logit, and the softmax's sum
BACK = terms_of(VOCABULARY, WIDTH)


def inputs(rows: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    h = (scale * torch.randn(rows, WIDTH, dtype=dtype)).requires_grad_()
    table = torch.randn(VOCABULARY, WIDTH, dtype=dtype, requires_grad=True)
    return h, table, torch.randint(VOCABULARY, (rows,))


def expected_loss(h: Tensor, table: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    losses = F.cross_entropy(h @ table.t(), targets, reduction="none")
    return losses.sum() if weights is None else (losses * weights).sum()


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 23])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_and_gradients_at_chunk_borders(rows: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_ROWS", 8)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 1)
    h, table, targets = inputs(rows)
    weights = torch.rand(rows) if weighted else None
    ours, expected = TiedSoftmax(table).loss(h, targets, weights), expected_loss(h, table, targets, weights)
    close(ours, expected, terms=terms_of(THERE, rows))
    # An incoming gradient other than 1, as the loop's division makes it.
    mine, theirs = (torch.autograd.grad(value * 0.3, [h, table]) for value in (ours, expected))
    close(mine, theirs, terms=terms_of(THERE, BACK, rows))


@pytest.mark.parametrize("rows", [1, 8, 23])
@pytest.mark.parametrize("biased", [False, True])
def test_capped_logits(rows: int, biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss, gradients, token losses and logits equal the formula with autograd."""
    monkeypatch.setattr(module, "LEAST_ROWS", 8)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 1)
    h, table, targets = inputs(rows)
    bias = torch.randn(VOCABULARY, dtype=torch.float64, requires_grad=True) if biased else None
    learned = [h, table, *([bias] if bias is not None else [])]
    layer = TiedSoftmax(table, bias, cap=2.5)
    plain = h @ table.t() + (0.0 if bias is None else bias)
    logits = 2.5 * torch.tanh(plain / 2.5)
    assert float((logits - plain).detach().abs().max()) > 1, "the cap is felt"
    losses = F.cross_entropy(logits, targets, reduction="none")
    close(layer.loss(h, targets), losses.sum(), terms=terms_of(THERE, rows))
    close(layer.logits(h), logits, terms=THERE)
    close(layer.token_losses(h, targets)[0], losses, terms=THERE)
    assert torch.equal(layer.token_losses(h, targets)[1], logits.argmax(1))
    mine, theirs = (torch.autograd.grad(0.3 * value, learned) for value in (layer.loss(h, targets), losses.sum()))
    close(mine, theirs, terms=terms_of(THERE, BACK, rows))


def test_chunks_cover_all_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (0, 1, 127, 128, 129, 1000):
        slices = module._chunks(rows, 1 << 16)
        assert [i for part in slices for i in range(rows)[part]] == list(range(rows))


@pytest.mark.parametrize(
    ("scale", "dtype"), [(30.0, torch.float32), (300.0, torch.float32), (300.0, torch.float64)], ids=str
)
def test_a_target_whose_probability_underflows_has_a_finite_exact_loss(scale: float, dtype: torch.dtype) -> None:
    """Against float64. A probability is off by as much of itself as its logit is off."""
    h, table, _ = inputs(40, scale, dtype)
    logits = (h @ table.t()).detach()
    targets = logits.argmin(1)
    probability = torch.softmax(logits, 1).gather(1, targets[:, None])
    assert bool((probability == 0).any()), "the case under test"
    exact = [part.detach().double().requires_grad_() for part in (h, table)]
    ours, expected = TiedSoftmax(table).loss(h, targets), expected_loss(*exact, targets)
    close(ours, expected, terms=terms_of(THERE, 40))
    mine, theirs = torch.autograd.grad(ours, [h, table]), torch.autograd.grad(expected, exact)
    size = float(logits.abs().max() * h.detach().abs().max())
    close(mine, theirs, terms=terms_of(THERE, BACK, 40), size=size)
    close(TiedSoftmax(table).token_losses(h, targets)[0].sum(), expected, terms=terms_of(THERE, 40))


def test_no_rows_are_a_loss_of_zero_with_zero_gradients() -> None:
    h, table, targets = inputs(0)
    value = TiedSoftmax(table).loss(h, targets)
    value.backward()
    assert float(value.detach()) == 0 and float(table.grad.abs().sum()) == 0 and h.grad.shape == (0, 16)
    assert TiedSoftmax(table).token_losses(h, targets)[0].shape == (0,)


@pytest.mark.parametrize("frozen", ["h", "table"])
def test_what_is_frozen_gets_no_gradient_and_the_other_the_same(frozen: str) -> None:
    h, table, targets = inputs(9)
    both = torch.autograd.grad(TiedSoftmax(table).loss(h, targets), [h, table])
    (h if frozen == "h" else table).requires_grad_(False)
    TiedSoftmax(table).loss(h, targets).backward()
    still, learned, expected = (h, table, both[1]) if frozen == "h" else (table, h, both[0])
    assert still.grad is None
    close(learned.grad, expected, terms=terms_of(THERE, BACK, 9))


def test_scoring_takes_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    h, table, targets = inputs(9)
    expected = float(TiedSoftmax(table).loss(h, targets).detach())
    monkeypatch.setattr(torch.Tensor, "addmm_", None)  # only the gradient of the table uses it
    with torch.no_grad():
        value = TiedSoftmax(table).loss(h, targets)
    assert not value.requires_grad
    close(value, expected, terms=terms_of(THERE, 9))


def test_losses_of_single_tokens() -> None:
    h, table, targets = inputs(300)
    expected = F.cross_entropy(h @ table.t(), targets, reduction="none")
    close(TiedSoftmax(table).token_losses(h, targets)[0], expected, terms=THERE)
