"""Relative attention against the paper's formula, one query and one key at a time; and the memory that it sees."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
from tolerance import close, doubles, terms_of
from torch import Tensor

from foretext.nn.relative import relative_attention as module
from foretext.nn.relative.relative_attention import RelativeAttention, distances, hidden_memory, remember, sinusoids

WIDTH, HEADS, HEAD_WIDTH = 10, 2, 3
SHAPES = [(3, 4, 6), (2, 1, 5), (1, 5, 0), (2, 1, 0), (2, 7, 2)]  # rows, queries, memory


@pytest.fixture(autouse=True)
def _doubles() -> None:
    """Float32 is tested here as well: each test says where it is float64."""


def attention_of(segments: bool = False, p: float = 0.0) -> RelativeAttention:
    torch.manual_seed(3)
    made = RelativeAttention(WIDTH, HEADS, HEAD_WIDTH, p, segments).double()
    made.draw(0.8)
    return made


def slowly(
    attention: RelativeAttention, x: Tensor, context: Tensor, seen: Tensor, other: Tensor | None = None
) -> Tensor:
    """Σ_j softmax_j(((q_i + u) · k_j + (q_i + w) · r_{i−j} + (q_i + s) · e_ij) / √K) v_j, as the papers write it."""
    rows, queries, places = len(x), x.shape[1], context.shape[1]
    mixed = x.new_zeros(rows, queries, HEADS * HEAD_WIDTH)
    for b in range(rows):
        for i in range(queries):
            for h in range(HEADS):
                head = slice(h * HEAD_WIDTH, (h + 1) * HEAD_WIDTH)
                q = (attention.query.weight @ x[b, i])[head]
                scores, values = [], []
                for j in range(places):
                    if not seen[b, i, j]:
                        continue
                    k = (attention.key.weight @ context[b, j])[head]
                    far = sinusoids(torch.tensor([places - queries + i - j]), WIDTH)[0].to(x.dtype)
                    r = (attention.distance.weight @ far)[head]
                    score = (q + attention.content[head]) @ k + (q + attention.position[head]) @ r
                    if other is not None:
                        e = attention.segments[int(other[b, i, j]), h]
                        score = score + (q + attention.segment[head]) @ e
                    scores.append(score / math.sqrt(HEAD_WIDTH))
                    values.append((attention.value.weight @ context[b, j])[head])
                weights = torch.stack(scores).softmax(0)
                mixed[b, i, head] = weights @ torch.stack(values)
    return mixed @ attention.out.weight.t()


def attend(
    attention: RelativeAttention,
    x: Tensor,
    context: Tensor,
    far_RHK: Tensor,
    hidden: Tensor | None = None,
    other: Tensor | None = None,
) -> Tensor:
    """As a block does: what is mixed, through `out`."""
    mixed = attention.mix(attention.queries(x), *attention.read(context), far_RHK, hidden, other)
    return attention.out(mixed.flatten(2))


def hiding(unseen: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(unseen.shape, dtype=dtype).masked_fill_(unseen, -torch.inf)


def quickly(
    attention: RelativeAttention, x: Tensor, context: Tensor, seen: Tensor, ahead: bool, other: Tensor | None = None
) -> Tensor:
    far = distances(x.shape[1], context.shape[1], x.device, ahead=ahead)
    waves = attention.distances(sinusoids(far, WIDTH).to(x.dtype))
    return attend(attention, x, context, waves, hiding(~seen[:, None], x.dtype), other)


def what_is_seen(rows: int, queries: int, memory: int, ahead: bool) -> Tensor:
    """At random, of what may be seen; always oneself."""
    seen = torch.rand(rows, queries, memory + queries) < 0.7
    own = torch.eye(queries, dtype=torch.bool)
    seen[:, :, memory:] |= own
    return seen if ahead else seen.tril(memory)


@pytest.mark.parametrize("kind", ["float32", "float64", "no gradient"])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_papers_formula(
    shape: tuple[int, int, int], ahead: bool, segments: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gradients the blocks are ours; without, they are PyTorch's fused attention."""
    monkeypatch.setattr(module, "BLOCK", 2 * HEADS * shape[1] * (shape[1] + shape[2]))  # two rows at a time
    rows, queries, memory = shape
    with doubles():
        attention = attention_of(segments)
        x = torch.randn(rows, queries, WIDTH)
        context = torch.cat([torch.randn(rows, memory, WIDTH), x], dim=1)
        seen = what_is_seen(rows, queries, memory, ahead)
        other = torch.rand(seen.shape) < 0.5 if segments else None
        inputs = [x.requires_grad_(), context.detach().requires_grad_()]
        expected = slowly(attention, *inputs, seen, other)
        weighing = torch.randn_like(expected)
        wanted = torch.autograd.grad((expected * weighing).sum(), [*inputs, *attention.parameters()])
        if kind == "no gradient":
            with torch.no_grad():
                found = quickly(attention, *inputs, seen, ahead, other)
    keys = queries + memory
    there = terms_of(WIDTH, 3 * HEAD_WIDTH, keys, keys, HEADS * HEAD_WIDTH)  # projected, scored, weighed, mixed, out
    if kind == "no gradient":
        close(found, expected, terms=there)
        return
    dtype = torch.float32 if kind == "float32" else torch.float64
    attention.to(dtype)
    given = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
    with doubles() if dtype == torch.float64 else nullcontext():
        found = quickly(attention, *given, seen, ahead, other)
    close(found, expected.to(dtype), terms=there)
    gradients = torch.autograd.grad((found * weighing.to(dtype)).sum(), [*given, *attention.parameters()])
    back = terms_of(HEADS * HEAD_WIDTH, HEAD_WIDTH, keys, rows * queries, WIDTH)  # out, values, weights, places, inputs
    close(gradients, [gradient.to(dtype) for gradient in wanted], terms=terms_of(there, back))


def test_two_streams_look_at_the_same_keys() -> None:
    """XLNet's content and query streams: keys and values get the gradients of both."""
    attention = attention_of()
    content, queries = torch.randn(2, 4, WIDTH).double(), torch.randn(2, 4, WIDTH).double()
    far = attention.distances(sinusoids(distances(4, 4, content.device, ahead=True), WIDTH).double())
    keys, values = attention.read(content)
    seen = [attention.mix(attention.queries(stream), keys, values, far).flatten(2) for stream in (content, queries)]
    together = attention.out(seen[0]) * 2 + attention.out(seen[1]) * 3
    learned = [attention.key.weight, attention.distance.weight]
    joint = torch.autograd.grad(together.sum(), learned, retain_graph=True)
    alone = [
        torch.autograd.grad(
            factor * attend(attention, stream, content, far).sum(),
            learned,
            retain_graph=True,
        )
        for stream, factor in ((content, 2), (queries, 3))
    ]
    for sum_of_both, one, two in zip(joint, *alone):
        close(sum_of_both, one + two, terms=terms_of(2 * 4 * 4, WIDTH, HEAD_WIDTH, HEADS * HEAD_WIDTH))


def test_dropped_weights_are_scaled_and_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient is that of the same masks, by differences."""
    monkeypatch.setattr(module, "BLOCK", 1)
    attention = attention_of(p=0.4).train()
    x = torch.randn(2, 3, WIDTH).double()
    far = sinusoids(distances(3, 3, x.device), WIDTH).double()
    hidden = hiding(torch.ones(1, 1, 3, 3, dtype=torch.bool).triu(1), torch.float64)

    def run() -> Tensor:
        torch.manual_seed(9)
        return attend(attention, x, x, attention.distances(far), hidden).square().sum()

    dropped = run()
    attention.eval()
    assert float((run() - dropped).detach().abs()) > 1e-3, "something is dropped"
    attention.train()
    for parameter in (attention.value.weight, attention.key.weight, attention.position):
        (slope,) = torch.autograd.grad(run(), [parameter])
        step = torch.randn_like(parameter)
        found = []
        for factor in (5e-5, -1e-4, 5e-5):
            parameter.data += factor * step
            found.append(run().detach())
        # A difference's error is that of the third derivative, and falls with the square of the step.
        assert float((found[0] - found[1]) / 1e-4) == pytest.approx(float((slope * step).sum()), rel=1e-6)
    many = attention_of(p=0.4).train()
    with torch.no_grad():
        many.value.weight.zero_()
        many.value.weight[:, 0] = 1.0
        many.out.weight.copy_(torch.ones_like(many.out.weight) / (HEADS * HEAD_WIDTH))
        ones = torch.cat([torch.ones(400, 3, 1), torch.zeros(400, 3, WIDTH - 1)], dim=2).double()
    kept = attend(many, ones, ones, many.distances(far), hidden)
    assert float(kept.detach().mean()) == pytest.approx(1.0, abs=0.05), "on the average as much as without"


# -- memory ----------------------------------------------------------------------------------------------------------


def rows_of(memory: Tensor, real: Tensor) -> list[list[int]]:
    return [row[kept].tolist() for row, kept in zip(memory[..., 0], real)]


@pytest.mark.parametrize("side", ["left", "right", "between"])
def test_memory_keeps_the_last_real_places_of_each_row(side: str) -> None:
    """Whatever was padded, and how much: against lists."""
    draw = torch.Generator().manual_seed(4)
    for length in (0, 1, 3, 7):
        kept: tuple[Tensor, ...] = (torch.zeros(3, 0, 2), torch.zeros(3, 0, 2, 2))
        real = torch.zeros(3, 0, dtype=torch.bool)
        lists: list[list[int]] = [[], [], []]
        for step in range(5):
            width = 4
            counts = torch.randint(0, width + 1, (3,), generator=draw).tolist()
            mask = torch.zeros(3, width, dtype=torch.bool)
            for row, count in enumerate(counts):
                places = {
                    "left": range(width - count, width),
                    "right": range(count),
                    "between": torch.randperm(width, generator=draw)[:count].tolist(),
                }[side]
                mask[row, list(places)] = True
            new = 100.0 * step + torch.arange(12.0).view(3, 4, 1).expand(3, 4, 2)
            new = new.clone().requires_grad_()
            kept, real = remember(kept, real, (new, new[..., None].expand(3, 4, 2, 2)), mask, length)
            for row in range(3):
                lists[row] = (lists[row] + new[row, mask[row], 0].tolist())[-length:] if length else []
            assert rows_of(kept[0], real) == lists == rows_of(kept[1][..., 0], real)
            assert not any(states.requires_grad for states in kept)
            assert kept[0].shape[1] == max(len(row) for row in lists), "no place that no row needs"
            assert torch.equal(real, real.sort(dim=1).values), "at the right end"
            empty = hidden_memory(real)
            assert (empty is None) == bool(real.all())
            if empty is not None:
                assert empty.shape == (3, 1, 1, real.shape[1]) and torch.equal(empty[:, 0, 0] == 0, real)


def test_memory_of_rows_that_are_full() -> None:
    first, second = torch.arange(8.0).view(2, 4, 1), torch.arange(8.0, 14.0).view(2, 3, 1)
    nothing = torch.zeros(2, 0, dtype=torch.bool)
    (kept,), real = remember((torch.zeros(2, 0, 1),), nothing, (first,), None, 5)
    assert rows_of(kept, real) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    (kept,), real = remember((kept,), real, (second,), None, 5)
    assert rows_of(kept, real) == [[2, 3, 8, 9, 10], [6, 7, 11, 12, 13]]
    (kept,), real = remember((kept,), real, (second,), None, 0)
    assert kept.shape == (2, 0, 1) and real.shape == (2, 0)
