"""The adaptive vocabulary: probabilities, losses and gradients, against torch's own and against each other."""

from __future__ import annotations

import pytest
import torch
from tolerance import close, terms_of

from foretext.nn import adaptive_softmax as module
from foretext.nn.adaptive_softmax import AdaptiveVocabulary, adaptive_parameters

SIZE, WIDTH, CUTOFFS = 23, 8, (5, 11)
THERE = terms_of(WIDTH, WIDTH, SIZE)  # projected, scored, the softmax's sum
BACK = terms_of(SIZE, WIDTH, WIDTH)


def vocabulary_of(divisor: int = 1) -> AdaptiveVocabulary:
    torch.manual_seed(1)
    made = AdaptiveVocabulary(SIZE, WIDTH, CUTOFFS, divisor, 0.5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.6)
    return made


@pytest.mark.parametrize("divisor", [1, 2])
def test_torch_has_the_same_probabilities(divisor: int) -> None:
    """torch's has no biases in its tails, projects by two matrices, and the head not at all."""
    ours = vocabulary_of(divisor)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(WIDTH, SIZE, list(CUTOFFS), div_value=float(divisor), head_bias=True)
    with torch.no_grad():
        if ours.head_projection is not None:
            ours.head_projection.copy_(torch.eye(WIDTH))
        theirs.head.weight.copy_(torch.cat([ours.tables[0], ours.tails]))
        theirs.head.bias.copy_(torch.cat([ours.biases[0], ours.tails_bias]))
        for part, tail in enumerate(theirs.tail, 1):
            ours.biases[part].zero_()
            inner = torch.eye(WIDTH) if ours.projections is None else ours.projections[part].t()
            if tail[0].weight.shape != inner.shape:  # theirs is narrower from the first tail on
                tail[0] = torch.nn.Linear(WIDTH, len(inner), bias=False)
                tail[1] = torch.nn.Linear(len(inner), len(ours.tables[part]), bias=False)
            tail[0].weight.copy_(inner)
            tail[1].weight.copy_(ours.tables[part])
    h, targets = torch.randn(40, WIDTH), torch.randint(0, SIZE, (40,))
    close(ours.logits(h), theirs.log_prob(h), terms=THERE)
    close(ours.loss(h, targets) / 40, theirs(h, targets).loss, terms=terms_of(THERE, 40))


@pytest.mark.parametrize("divisor", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_that_of_all_probabilities(divisor: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and gradients; of targets in every part, and in one alone."""
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 3 * SIZE)
    ours = vocabulary_of(divisor)
    for ids in ([*range(SIZE), *range(SIZE)], [1, 4, 0], [22], []):
        targets = torch.tensor(ids, dtype=torch.long)
        h = torch.randn(len(targets), WIDTH, requires_grad=True)
        weights = torch.rand(len(targets)) if weighted else None
        logs = ours.logits(h)
        close(logs.exp().sum(1), torch.ones(len(targets)), terms=terms_of(THERE, SIZE), size=10.0)  # as logits are
        each = -logs.gather(1, targets[:, None]).squeeze(1)
        expected = each.sum() if weights is None else (each * weights).sum()
        found = ours.loss(h, targets, weights)
        close(found, expected, terms=terms_of(THERE, len(ids)))
        parameters = [h, *ours.parameters()]
        wanted = torch.autograd.grad(expected, parameters, allow_unused=True)
        given = torch.autograd.grad(found, parameters, allow_unused=True)
        pairs = []
        for mine, theirs in zip(given, wanted):
            if theirs is None:  # what projects the head's words where they are read
                assert mine is None and divisor > 1
            else:
                pairs.append((torch.zeros_like(theirs) if mine is None else mine, theirs))
        close([mine for mine, _ in pairs], [theirs for _, theirs in pairs], terms=terms_of(THERE, BACK, len(ids)))
        losses, best = ours.token_losses(h.detach(), targets)
        close(losses, each, terms=THERE)
        assert torch.equal(best, logs.argmax(1))


@pytest.mark.parametrize("divisor", [1, 2])
def test_words_are_read_by_the_rows_that_predict_them(divisor: int) -> None:
    ours = vocabulary_of(divisor)
    ids = torch.tensor([0, 4, 5, 10, 11, 22, 5])
    found = ours(ids)
    for row, id in zip(found, ids.tolist()):
        part = sum(id >= cut for cut in CUTOFFS)
        own = ours.tables[part][id - (0, *CUTOFFS)[part]]
        expected = own if ours.projections is None else ours.projections[part] @ own
        close(row, expected, terms=WIDTH)
    assert adaptive_parameters(SIZE, WIDTH, CUTOFFS, divisor) == sum(p.numel() for p in ours.parameters())


def test_new_words_join_the_last_tail() -> None:
    ours = vocabulary_of(2)
    h, old = torch.randn(4, WIDTH), vocabulary_of(2)
    ours.grow(SIZE + 3)
    assert ours.logits(h).shape == (4, SIZE + 3)
    close(ours.logits(h)[:, :11], old.logits(h)[:, :11], terms=THERE)
    assert torch.equal(ours(torch.arange(SIZE)), old(torch.arange(SIZE)))
    fresh = ours.tables[-1][-3:].detach()
    assert bool(fresh.any()) and not bool(ours.biases[-1][-3:].any())
