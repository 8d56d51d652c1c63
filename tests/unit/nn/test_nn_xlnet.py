"""XLNet's two streams: what each sees, the memory, the direction of reading, padding; `tests/parity` holds them against
another implementation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from complaints import refused
from systems_under_test import TINY, assert_same, gradients, masks_drawn, trunk_of
from tolerance import close, terms_of
from torch import Tensor

from foretext.batch import IGNORE, Batch
from foretext.nn.relative.relative_attention import RelativeAttention, distances, sinusoids
from foretext.nn.relative.sights import OrderedBatch, QueryStream
from foretext.nn.relative.xlnet import XLNet, XLNetConfig, query_mix
from foretext.objectives.permutation import left_to_right

LENGTH = 9
THERE = terms_of(2 * (6 * 32 + 2 * 20 + 128))  # of each of two layers: norms and projections, keys, inner states


def drawn(rows: int, length: int, asked: int, seed: int = 0) -> OrderedBatch:
    """Different tokens in all places, any order, the last of it asked."""
    generator = torch.Generator().manual_seed(seed)
    ids_BT = torch.randperm(rows * length, generator=generator).view(rows, length)
    ranks_BT = torch.rand(rows, length, generator=generator).argsort(1)
    return OrderedBatch(ids_BT, targets_BT=ids_BT.masked_fill(ranks_BT < length - asked, IGNORE), ranks_BT=ranks_BT)


def asked_of(batch: OrderedBatch) -> Tensor:
    assert batch.targets_BT is not None
    return batch.targets_BT != IGNORE


# -- what is seen ----------------------------------------------------------------------------------------------------


def test_a_query_never_sees_its_own_token() -> None:
    """The gradient of each query state with respect to each token's embedding: that of its own token is exactly 0, and
    so are those of all that come later in the order; those before it have some."""
    trunk = trunk_of("xlnet").eval()
    batch = drawn(1, LENGTH, LENGTH)
    assert batch.ranks_BT is not None
    ranks = batch.ranks_BT[0].tolist()
    for place in range(LENGTH):
        trunk.zero_grad()
        trunk(batch).top[0, place].square().sum().backward()
        moved = trunk.tokens.weight.grad.abs().sum(1)[batch.ids_BT[0]]  # type: ignore[union-attr]
        for other in range(LENGTH):
            assert (float(moved[other]) > 0) == (ranks[other] < ranks[place]), (place, other)


def test_nor_after_a_memory_with_segments_and_from_the_right() -> None:
    """The same as pre-training reads: rows of both directions after a memory, two kinds of segment, most of the tokens
    given and seen by each other."""
    trunk = trunk_of("xlnet").eval()
    batch = drawn(2, LENGTH, 3)
    assert batch.ranks_BT is not None
    ranks_BT = (batch.ranks_BT - (LENGTH - 4)).clamp(min=0)
    segments_BT = (torch.arange(LENGTH) > 4).long().expand(2, LENGTH)
    batch = replace(batch, ranks_BT=ranks_BT, segments_BT=segments_BT, backward_B=torch.tensor([False, True]))
    with torch.no_grad():
        state = trunk(Batch(torch.arange(100, 110).view(2, 5)), trunk.new_state(2)).state
    places = asked_of(batch).nonzero().tolist()
    assert len(places) == 6
    for row, place in places:
        trunk.zero_grad()
        trunk(batch, state).top[row, place].square().sum().backward()
        moved = trunk.tokens.weight.grad.abs().sum(1)[batch.ids_BT]  # type: ignore[union-attr]
        for other_row in range(2):
            for other in range(LENGTH):
                seen = other_row == row and bool(ranks_BT[row, other] < ranks_BT[row, place])
                assert (float(moved[other_row, other]) > 0) == seen, (row, place, other_row, other)


def test_content_sees_itself_and_what_comes_before() -> None:
    """What is remembered of the second block is what the first gave."""
    trunk = trunk_of("xlnet").eval()
    batch = drawn(1, LENGTH, 2)
    assert batch.ranks_BT is not None
    batch = replace(batch, ranks_BT=(batch.ranks_BT - 3).clamp(min=0))  # four that see each other all
    config = replace(TINY["xlnet"], memory=LENGTH)
    whole = XLNet(config).eval()
    whole.load_state_dict(trunk.state_dict())
    assert batch.ranks_BT is not None
    ranks = batch.ranks_BT[0].tolist()
    for place in range(LENGTH):
        with torch.no_grad():
            before = whole(batch, whole.new_state(1)).state[0][1][0]
            changed = batch.ids_BT.clone()
            changed[0, place] = 60
            after = whole(replace(batch, ids_BT=changed), whole.new_state(1)).state[0][1][0]
        for other in range(LENGTH):
            assert torch.equal(before[other], after[other]) == (ranks[place] > ranks[other]), (place, other)


def test_a_query_that_sees_nothing_knows_only_its_place_in_the_order() -> None:
    trunk = trunk_of("xlnet").eval()
    with torch.no_grad():
        found = [trunk(left_to_right([ids], [3])).top[0, 0] for ids in ([1, 2, 3], [4, 5, 6])]
        alone = trunk(left_to_right([[9]], [1])).top[0, 0]
    assert bool(torch.isfinite(found[0]).all())
    assert torch.equal(found[0], found[1])
    close(found[0], alone, terms=THERE)
    trunk.train()
    trunk(left_to_right([[1, 2, 3]], [3])).top.sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in trunk.parameters() if p.grad is not None)


def test_who_else_is_asked_changes_nothing() -> None:
    trunk = trunk_of("xlnet").eval()
    batch = drawn(3, LENGTH, LENGTH)
    fewer = asked_of(batch) & (torch.rand(3, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.4)
    assert batch.targets_BT is not None
    with torch.no_grad():
        everything = trunk(batch).top
        some = trunk(replace(batch, targets_BT=batch.targets_BT.masked_fill(~fewer, IGNORE))).top
    assert len(set(fewer.sum(1).tolist())) > 1, "rows with unlike numbers"
    close(some[fewer], everything[fewer], terms=THERE)
    assert not bool(some[~fewer].any())
    with torch.no_grad():
        nobody = trunk(replace(batch, targets_BT=torch.full_like(batch.ids_BT, IGNORE))).top
    assert not bool(nobody.any())


@pytest.mark.parametrize("with_segments", [False, True])
def test_queries_at_chosen_places_are_those_of_all_places(with_segments: bool) -> None:
    """Against the attention that all queries have, with its gradients."""
    torch.manual_seed(1)
    rows, length, memory, heads, width = 2, 6, 3, 2, 4
    attention = RelativeAttention(8, heads, width, 0.0, segments=True)
    attention.draw(0.5)
    keys = memory + length
    far = attention.distances(sinusoids(distances(length, keys, torch.device("cpu"), ahead=True), 8))
    q, k, v = (torch.randn(rows, n, heads, width, requires_grad=True) for n in (length, keys, keys))
    hidden = torch.zeros(rows, 1, length, keys)
    hidden[torch.rand(hidden.shape) < 0.3] = -torch.inf
    hidden[..., 0] = 0.0
    other = torch.rand(rows, length, keys) < 0.5 if with_segments else None
    places = torch.tensor([[4, 0, 5], [1, 2, 0]])
    at = torch.arange(rows)[:, None], places
    given = QueryStream(
        slice(0, 6),
        None,
        places,
        hidden.transpose(1, 2)[at].transpose(1, 2),
        None,
        None if other is None else other[at],
    )
    expected = attention.mix(q, k, v, far, hidden, other)[at]
    found = query_mix(attention, q[at], k, v, far, given)
    there = terms_of(3 * width, keys, keys)  # scores of content, place and segment, the softmax's sum, the mixture
    close(found, expected, terms=there)
    inputs = [
        q,
        k,
        v,
        *(p for name, p in attention.named_parameters() if name.split(".")[0] in ("content", "position", "distance")),
    ]
    chosen = torch.randn_like(expected)
    wanted, learned = (
        torch.autograd.grad((out * chosen).sum(), inputs, retain_graph=True) for out in (expected, found)
    )
    close(learned, wanted, terms=terms_of(3 * there, rows * length, 8))  # all queries add up, then a width of 8


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("pieces", [(LENGTH,), (4, 5), (1, 3, 5), (5, 3, 1)])
def test_reading_after_a_memory_is_reading_at_once(pieces: tuple[int, ...], backward: bool) -> None:
    """In the order of the text nothing sees what follows, so a memory that is long enough loses nothing."""
    trunk = trunk_of("xlnet", memory=LENGTH).eval()
    ids = torch.arange(2 * LENGTH).view(2, LENGTH)
    ways = torch.tensor([backward, backward])
    with torch.no_grad():
        whole = trunk(replace(left_to_right(ids.tolist(), [LENGTH] * 2), backward_B=ways)).top
        state, start = trunk.new_state(2), 0
        for length in pieces:
            part = left_to_right(ids[:, start : start + length].tolist(), [length] * 2)
            hidden = trunk(replace(part, backward_B=ways), state)
            close(hidden.top, whole[:, start : start + length], terms=THERE)
            state, start = hidden.state, start + length
            assert state[1].shape == (2, start) and [len(kept[0]) for kept in state[0]] == [start] * 2


def test_given_text_after_a_memory_is_as_if_it_did_not_see_ahead() -> None:
    """In any order: the first part is read as a whole that sees nothing of the second."""
    trunk = trunk_of("xlnet", memory=20).eval()
    first, second = drawn(2, 5, 0, seed=1), drawn(2, LENGTH, 3, seed=2)
    first = replace(
        first, ids_BT=first.ids_BT + 20, targets_BT=torch.full((2, 5), IGNORE), ranks_BT=torch.zeros(2, 5).long()
    )
    assert second.ranks_BT is not None and second.targets_BT is not None
    both = OrderedBatch(
        torch.cat([first.ids_BT, second.ids_BT], 1),
        targets_BT=torch.cat([torch.full((2, 5), IGNORE), second.targets_BT], 1),
        ranks_BT=torch.cat([torch.zeros(2, 5).long(), 1 + second.ranks_BT], 1),
    )
    with torch.no_grad():
        state = trunk(first, trunk.new_state(2)).state
        after = trunk(second, state).top
        close(after, trunk(both).top[:, 5:], terms=THERE)
        assert not torch.allclose(after, trunk(second).top, atol=1e-3), "and it does see the memory"


def test_only_the_last_tokens_are_remembered() -> None:
    trunk = trunk_of("xlnet", memory=3).eval()
    with torch.no_grad():
        state = trunk(Batch(torch.tensor([[1, 2, 3, 4, 5]])), trunk.new_state(1)).state
        assert [kept.shape for kept in state[0]] == [(1, 3, 32)] * 2
        assert torch.equal(state[0][0], trunk.tokens.weight[torch.tensor([[3, 4, 5]])])
        state = trunk(Batch(torch.tensor([[6]])), state).state
        assert torch.equal(state[0][0], trunk.tokens.weight[torch.tensor([[4, 5, 6]])])
        kept = trunk(OrderedBatch(torch.tensor([[7, 8, 9]]), kept=1), state).state
        assert torch.equal(kept[0][0], trunk.tokens.weight[torch.tensor([[5, 6, 7]])])


def test_no_gradient_flows_into_the_memory() -> None:
    trunk = trunk_of("xlnet")
    state = trunk(Batch(torch.tensor([[1, 2]])), trunk.new_state(1)).state
    assert not any(part.requires_grad for part in state[0])


# -- direction -------------------------------------------------------------------------------------------------------


def test_text_read_from_the_right_is_the_same_text() -> None:
    """Turned round, with distances that count the other way, it has the same states; and not without."""
    trunk = trunk_of("xlnet").eval()
    ids, way = torch.arange(2 * LENGTH).view(2, LENGTH), torch.tensor([False, True])
    with torch.no_grad():
        usual = trunk(Batch(ids)).top
        turned = torch.stack([ids[0], ids[1].flip(0)])
        found = trunk(OrderedBatch(turned, backward_B=way)).top
        close(found[0], usual[0], terms=THERE)
        close(found[1].flip(0), usual[1], terms=THERE)
        assert not torch.allclose(trunk(Batch(turned)).top[1].flip(0), usual[1], atol=1e-3)


# -- padding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("remembered", [False, True])
def test_rows_of_unlike_length_direction_and_number_of_targets(side: str, remembered: bool) -> None:
    """Each as if it were alone, its memory too, and the gradients with them."""
    trunk = trunk_of("xlnet").eval()
    lengths, asked, ways = (9, 4, 9, 1, 6), (3, 1, 2, 1, 0), (False, True, True, False, False)
    rows = [drawn(1, length, count, seed=length) for length, count in zip(lengths, asked)]
    wide = 11

    def padded(name: str, fill: int) -> Tensor:
        table = torch.full((len(rows), wide), fill)
        for number, row in enumerate(rows):
            place = slice(0, lengths[number]) if side == "right" else slice(wide - lengths[number], wide)
            table[number, place] = getattr(row, name)[0]
        return table

    mask = padded("ids_BT", -1) != -1
    batch = OrderedBatch(
        padded("ids_BT", 0),
        mask,
        targets_BT=padded("targets_BT", IGNORE),
        ranks_BT=padded("ranks_BT", 0),
        backward_B=torch.tensor(ways),
    )
    past = [torch.arange(n + 1)[None] for n in range(len(rows))]  # memories of 1 to 5 tokens
    ids = torch.zeros(len(rows), 5, dtype=torch.long)
    for number, own in enumerate(past):
        ids[number, : number + 1] = own[0]
    before = None
    if remembered:
        before = trunk(Batch(ids, torch.arange(5) <= torch.arange(5)[:, None]), trunk.new_state(5)).state
    hidden = trunk(batch, before)
    torch.manual_seed(0)
    weights = torch.randn(len(rows), wide, 32)
    (hidden.top * weights).sum().backward()
    found = gradients(trunk)
    trunk.zero_grad()
    for number, row in enumerate(rows):
        state = trunk(Batch(past[number]), trunk.new_state(1)).state if remembered else None
        alone = trunk(replace(row, backward_B=torch.tensor([ways[number]])), state)
        close(hidden.top[number, mask[number]], alone.top[0], terms=THERE)
        (alone.top[0] * weights[number, mask[number]]).sum().backward()
        if state is not None:
            own = hidden.state[1][number]
            for together, single in zip(hidden.state[0], alone.state[0]):
                close(together[number, own], single[0], terms=THERE)
    assert_same(found, gradients(trunk))


def test_a_memory_of_other_rows_is_refused() -> None:
    trunk = trunk_of("xlnet")
    with pytest.raises(AssertionError, match="a memory of other rows"):
        trunk(Batch(torch.zeros(2, 3, dtype=torch.long)), trunk.new_state(3))


# -- the rest --------------------------------------------------------------------------------------------------------


def test_segments_are_the_same_or_another() -> None:
    """Which number a segment has is nothing, and with one alone nothing is changed."""
    trunk = trunk_of("xlnet").eval()
    ids = torch.arange(LENGTH)[None]
    parts = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2]])
    with torch.no_grad():
        plain = trunk(Batch(ids)).top
        close(trunk(Batch(ids, segments_BT=torch.full_like(ids, 7))).top, plain, terms=THERE)
        found = trunk(Batch(ids, segments_BT=parts)).top
        close(trunk(Batch(ids, segments_BT=(parts + 1) % 3)).top, found, terms=THERE)
    assert not torch.allclose(found, plain, atol=1e-3)


@torch.no_grad()
def test_attention_weights_are_what_is_mixed() -> None:
    """With the segments that a text has; all of one kind are as none."""
    trunk = trunk_of("xlnet").eval()
    ids, parts = torch.arange(LENGTH), torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
    weights = trunk.attention_weights(ids, parts)
    assert weights.shape == (2, 4, LENGTH, LENGTH)
    close(weights.sum(-1), torch.ones(2, 4, LENGTH), terms=2 * LENGTH)
    assert float(weights.std()) > 0.01
    layers = trunk(Batch(ids[None], segments_BT=parts[None]), keep_layers=True).layers
    for number, block in enumerate(trunk.blocks):
        x = layers[number][0]
        values = (x @ block.attention.value.weight.t()).view(LENGTH, 4, 8)
        mixed = torch.einsum("hij,jhk->ihk", weights[number], values).flatten(1)
        close(block._finish(x, mixed), layers[number + 1][0], terms=THERE)
    plain = trunk.attention_weights(ids)
    assert not torch.allclose(weights[0], plain[0], atol=1e-4), "what the first block reads is the same"
    close(trunk.attention_weights(ids, torch.zeros_like(ids)), plain, terms=THERE)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"memory": -1}, ("model.memory", "1,000,000", "-1")),
        ({"memory": 1_000_001}, ("model.memory", "1,000,000", "1000001")),
        ({"inner": -4}, ("model.inner", "-4")),
        ({"heads": 5}, ("model.width=32", "model.heads=5")),
        ({"width": 33, "heads": 3}, ("model.width", "even", "33")),
    ],
)
def test_shapes_that_cannot_be(changes: dict[str, int], named: tuple[str, ...]) -> None:
    with refused(*named):
        replace(TINY["xlnet"], **changes).check()


def test_dropout_falls_on_everything_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two blocks and four heads over two rows of nine tokens, by the content alone, and with four queries a row; the
    last block's content is then not computed. In evaluation nothing is dropped."""
    found = masks_drawn(monkeypatch)
    trunk, batch = trunk_of("xlnet", dropout=0.3).train(), drawn(2, LENGTH, 4)
    trunk(Batch(batch.ids_BT))
    assert found == {
        (17, 32): 1,  # sinusoids
        (18, 32): 1 + 2 * 2,  # embeddings, and what each block adds to the states twice
        (2 * 4, 9, 9): 2,  # attention weights
    }
    found.clear()
    trunk(batch)
    assert found == {
        (17, 32): 1,
        (18, 32): 1 + 2,
        (2 * 4, 9, 9): 1,
        (8, 32): 1 + 2 * 2,  # the vector that queries begin as, and what each block adds to it
        (2, 4, 4, 9): 2,
    }
    found.clear()
    trunk.eval()(batch)
    assert not found


def test_the_configuration_says_what_it_remembers() -> None:
    config = XLNetConfig(10, 1, 8, 2, 16, memory=4)
    assert config.describe().endswith("context 16, memory 4") and "memory" not in replace(config, memory=0).describe()
