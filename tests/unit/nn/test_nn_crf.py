"""The CRF against every path there is, one by one."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import IGNORE
from foretext.nn.task_models.crf import Allowed, LinearChainCrf, iob2_allowed

TAGS = ("O", "B-A", "I-A", "B-B", "I-B")
LENGTHS = [4, 1, 3, 2]
PATHS = len(TAGS) ** max(LENGTHS)
ALONG = terms_of(3 * 4)  # a path's scores
THERE = terms_of(ALONG, 4 * len(TAGS), PATHS)  # and the sums over what comes before, or over all paths


def field(allowed: Allowed | None = None, classes: int = len(TAGS)) -> LinearChainCrf:
    crf = LinearChainCrf(classes, allowed).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def laid_out(rows: list[Tensor], layout: str) -> tuple[Tensor, Tensor]:
    """Emissions and mask with loud padding at the right, at the left, or anywhere."""
    length = {"tight": max(map(len, rows)), "left": 6, "right": 7, "holes": 9}[layout]
    x = torch.full((len(rows), length, rows[0].shape[1]), 50.0, dtype=torch.double)
    mask = torch.zeros(len(rows), length, dtype=torch.bool)
    for number, row in enumerate(rows):
        places = torch.arange(len(row))
        if layout == "left":
            places += length - len(row)
        if layout == "holes":
            places = places * 2 + number % 2
        x[number, places] = row
        mask[number, places] = True
    return x, mask


def path_scores(crf: LinearChainCrf, x_TC: Tensor, every: list[tuple[int, ...]]) -> Tensor:
    """In plain numbers, path by path."""
    transitions, starts, ends, x = (part.tolist() for part in (crf.transitions, crf.starts, crf.ends, x_TC))
    found = []
    for path in every:
        total = starts[path[0]] + ends[path[-1]] + sum(x[step][tag] for step, tag in enumerate(path))
        found.append(total + sum(transitions[before][tag] for before, tag in pairwise(path)))
    return torch.tensor(found, dtype=torch.double)


def paths(crf: LinearChainCrf, length: int, allowed: Allowed | None) -> list[tuple[int, ...]]:
    found = list(product(range(len(crf.starts)), repeat=length))
    if allowed is None:
        return found
    return [
        path
        for path in found
        if allowed.first_C[path[0]]
        and allowed.last_C[path[-1]]
        and all(allowed.next_CC[a, b] for a, b in pairwise(path))
    ]


@pytest.fixture
def rows() -> list[Tensor]:
    return [torch.randn(length, len(TAGS), dtype=torch.double) for length in LENGTHS]


@pytest.mark.parametrize("layout", ["tight", "left", "right", "holes"])
@pytest.mark.parametrize("constrained", [False, True])
def test_against_all_paths(rows: list[Tensor], layout: str, constrained: bool) -> None:
    allowed = iob2_allowed(TAGS) if constrained else None
    crf = field(allowed)
    x, mask = laid_out(rows, layout)
    log_partition = crf.log_partition(x, mask)
    best, best_score = crf.viterbi(x, mask)
    marginals = crf.marginals(x, mask)
    for number, row in enumerate(rows):
        every = paths(crf, len(row), allowed)
        scores = path_scores(crf, row, every)
        close(log_partition[number], torch.logsumexp(scores, 0), terms=THERE)
        assert tuple(best[number][mask[number]].tolist()) == every[int(scores.argmax())]
        close(best_score[number], scores.max(), terms=ALONG)
        expected = [[0.0] * len(TAGS) for _ in row]
        for path, probability in zip(every, torch.softmax(scores, 0).tolist()):
            for step, tag in enumerate(path):
                expected[step][tag] += probability
        largest = float(scores.abs().max())  # what is exponentiated
        close(marginals[number][mask[number]], expected, terms=terms_of(2 * THERE), size=largest)
    assert bool((best[~mask] == IGNORE).all()) and not marginals[~mask].any()


@pytest.mark.parametrize("layout", ["tight", "left", "right", "holes"])
def test_score_and_loss_of_a_path(rows: list[Tensor], layout: str) -> None:
    crf = field()
    x, mask = laid_out(rows, layout)
    tags = torch.full(mask.shape, IGNORE)
    tags[mask] = torch.randint(len(TAGS), (int(mask.sum()),))
    expected = torch.cat([path_scores(crf, row, [tuple(tags[n][mask[n]].tolist())]) for n, row in enumerate(rows)])
    close(crf.score(x, tags, mask), expected, terms=ALONG)
    loss = crf.loss(x, tags, mask)
    assert loss.count == sum(LENGTHS)
    close(loss.total, (crf.log_partition(x, mask) - expected).sum(), terms=terms_of(THERE, len(rows)))
    parts = [crf.loss(x[n : n + 1], tags[n : n + 1], mask[n : n + 1]) for n in range(len(rows))]
    close(loss.total, torch.stack([part.total for part in parts]).sum(), terms=terms_of(THERE, len(rows)))


@pytest.mark.parametrize("longest", [4, 1])  # of one place nothing follows
def test_gradients_of_a_path_are_its_counts(rows: list[Tensor], longest: int) -> None:
    crf = field()
    x, mask = laid_out([row[:longest] for row in rows], "right")
    tags = torch.full(mask.shape, IGNORE)
    tags[mask] = torch.randint(len(TAGS), (int(mask.sum()),))
    transitions, starts, ends = (torch.zeros_like(part) for part in (crf.transitions, crf.starts, crf.ends))
    for row, real in zip(tags, mask):
        path = row[real].tolist()
        starts[path[0]] += 1
        ends[path[-1]] += 1
        for before, tag in pairwise(path):
            transitions[before, tag] += 1
    found = torch.autograd.grad(crf.score(x, tags, mask).sum(), [crf.transitions, crf.starts, crf.ends])
    for ours, expected in zip(found, (transitions, starts, ends)):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("constrained", [False, True])
def test_gradients_are_expected_counts(rows: list[Tensor], constrained: bool) -> None:
    allowed = iob2_allowed(TAGS) if constrained else None
    crf = field(allowed)
    x, mask = laid_out(rows, "left")
    transitions, starts, ends = ((part.detach() * 0).tolist() for part in (crf.transitions, crf.starts, crf.ends))
    for row in rows:
        every = paths(crf, len(row), allowed)
        scores = path_scores(crf, row, every)
        for path, probability in zip(every, torch.softmax(scores, 0).tolist()):
            starts[path[0]] += probability
            ends[path[-1]] += probability
            for before, tag in pairwise(path):
                transitions[before][tag] += probability
    found = torch.autograd.grad(crf.log_partition(x, mask).sum(), [crf.transitions, crf.starts, crf.ends])
    largest = max(float(path_scores(crf, row, paths(crf, len(row), allowed)).abs().max()) for row in rows)
    expected = [torch.tensor(part) for part in (transitions, starts, ends)]
    close(found, expected, terms=terms_of(2 * THERE, len(rows)), size=largest)
    if constrained:
        assert not found[0][~iob2_allowed(TAGS).next_CC].any()


def test_iob2_table() -> None:
    allowed = iob2_allowed(TAGS)
    assert allowed.first_C.tolist() == [True, True, False, True, False]
    into_inside = {(TAGS[a], TAGS[b]) for a, b in allowed.next_CC.nonzero().tolist() if TAGS[b].startswith("I")}
    assert into_inside == {("B-A", "I-A"), ("I-A", "I-A"), ("B-B", "I-B"), ("I-B", "I-B")}
    assert bool(allowed.next_CC[:, [0, 1, 3]].all()) and bool(allowed.last_C.all())


def test_no_forbidden_path_however_loud_the_emissions() -> None:
    crf = LinearChainCrf(len(TAGS), iob2_allowed(TAGS))
    x = torch.zeros(1, 3, len(TAGS))
    x[0, :, TAGS.index("I-A")] = 1e6
    path, _ = crf.viterbi(x, torch.ones(1, 3, dtype=torch.bool))
    assert [TAGS[tag] for tag in path[0]] == ["B-A", "I-A", "I-A"]


def test_a_tag_that_nothing_can_reach_keeps_gradients_finite() -> None:
    crf = LinearChainCrf(2, iob2_allowed(["O", "I-A"]))
    x = torch.randn(2, 3, 2, requires_grad=True)
    loss = crf.loss(x, torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool))
    loss.total.backward()
    close(loss.total, 0.0, terms=terms_of(3 * 3), size=2 * 3 * float(x.detach().abs().max()))  # what cancels
    assert all(bool(part.grad.isfinite().all()) for part in (x, crf.transitions, crf.starts, crf.ends))


def test_long_sequences_stay_exact_in_float32() -> None:
    crf = field(iob2_allowed(TAGS))
    x = 5 * torch.randn(2, 200, len(TAGS), dtype=torch.double)
    mask = torch.ones(2, 200, dtype=torch.bool)
    expected = crf.log_partition(x, mask)
    found = crf.float().log_partition(x.float(), mask)
    close(found, expected, terms=3 * 200)  # a place adds its transition, its emission and what was taken out of exp


def test_empty_sequences_count_nothing(rows: list[Tensor]) -> None:
    crf = field()
    x, mask = laid_out(rows, "right")
    mask[1] = False
    tags = torch.zeros(mask.shape, dtype=torch.long)
    assert crf.log_partition(x, mask)[1].item() == 0 == crf.score(x, tags, mask)[1].item()
    loss = crf.loss(x, tags, mask)
    assert loss.count == sum(LENGTHS) - 1
    loss.total.backward()
    assert bool(crf.transitions.grad.isfinite().all())
    none = torch.zeros_like(mask)
    assert float(crf.loss(x, tags, none).total) == 0
    path, score = crf.viterbi(x, none)
    assert bool((path == IGNORE).all()) and not score.any() and not crf.marginals(x, none).any()


def test_new_field_chooses_each_tag_by_itself_and_saves_only_what_it_learns(rows: list[Tensor]) -> None:
    crf = LinearChainCrf(len(TAGS), iob2_allowed(TAGS))
    assert set(crf.state_dict()) == {"transitions", "starts", "ends"}
    free = LinearChainCrf(len(TAGS)).double()
    x, mask = laid_out(rows, "right")
    path, _ = free.viterbi(x, mask)
    assert torch.equal(path[mask], x.argmax(2)[mask])
