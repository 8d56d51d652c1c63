"""Attention by content and by distance, as in Transformer-XL (Dai et al. 2019, section 3.3) and XLNet.

A query q and a key k, at a distance whose projected sinusoid is r, have the score

    ((q + u) · k + (q + w) · r) / √K                      u, w: learned, for content and for position ("v" in the paper)

With segments, as in XLNet, ((q + s) · e) / √K is added. There are two learned vectors e: one for keys in the query's
own segment, and one for keys in another.

Keys and values are computed once, for the memory and the tokens after it, and any number of query streams may use them:

    keys, values = attention.read(torch.cat([memory, x], dim=1))              # M positions
    far = attention.distances(sinusoids(distances(Q, M, device), width))      # for all rows
    mixed = attention.mix(attention.queries(x), keys, values, far, hidden)    # per head, before `out`

The queries are the last Q of the M positions. For queries that see nothing ahead, `distances` ends at 0 and has M
columns; for others (`ahead=True`) it ends at −(Q − 1) and has M + Q − 1. The caller masks: `hidden` is added to the
scores, with −∞ where a query may not attend. Each query must see something. The block applies the projection `out`,
norms and residual additions.

On a CPU a few rows are computed at a time, so that scores stay in the cache. The scores for all distances are written
with one extra column; then the scores by key are the same numbers, read from position Q on in rows that are one shorter
(`by_key`). So the shift is free in the forward pass, and one copy in the backward pass. Without gradients, PyTorch's
fused attention adds the scores by distance to those by content.

The memory of Transformer-XL and XLNet:

The memory holds the states of the last tokens, layer by layer, and which of its positions are in use. These are at the
right end of each row, so that the newest one is next to the first token to be read, and a key's column gives its
distance from a query, whatever the length of the rows. A memory is a tuple of [B, M, …] tensors, one or several per
layer, and `real_BM`, true where a token was. It has no gradients.

Relative positions are the sinusoids of distances, and a shift that turns a score for each distance into one for each
key. A query at position i among Q, after M positions of memory, has distance M + i − j from key j among K = M + Q. The
scores for distances are one product for all queries, with columns from the farthest to the nearest distance; each row
is then shifted into place. The shift is a view of the same numbers, while a gather would read and write indices as
numerous as the scores.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.errors import refuse_if
from foretext.nn.fused import dropout, full_precision_on_cpu, keep_mask
from foretext.nn.packing import unseen

LONGEST_MEMORY = 1_000_000  # far more than fits


# -- memory ------------------------------------------------------------------------------------------------------------


def remember(
    kept: tuple[Tensor, ...], real_BM: Tensor, new: tuple[Tensor, ...], mask_BT: Tensor | None, length: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The last `length` real positions of each row, from the old memory [B, M, …] and the new states [B, T, …]. The new
    states may have padding anywhere; it is left out. `mask_BT` None: no padding."""
    return last_of(tuple(behind(old, added) for old, added in zip(kept, new, strict=True)), real_BM, mask_BT, length)


def behind(old_BM: Tensor, new_BT: Tensor) -> Tensor:
    """The new states after the old ones, [B, M + T, …]."""
    return torch.cat([old_BM, new_BT], dim=1) if old_BM.shape[1] else new_BT


def last_of(
    joined: tuple[Tensor, ...], real_BM: Tensor, mask_BT: Tensor | None, length: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The same for states that are already concatenated, [B, M + T, …]."""
    joined = tuple(states.detach() for states in joined)
    rows, width = real_BM.shape[0], joined[0].shape[1] - real_BM.shape[1]
    real = F.pad(real_BM, (0, width), value=True) if mask_BT is None else torch.cat([real_BM, mask_BT], dim=1)
    if mask_BT is not None and not bool(mask_BT.all()):
        # Real positions go to the right end, in their order.
        order = torch.argsort(real.int(), dim=1, stable=True)
        real = real.gather(1, order)
        joined = tuple(states[torch.arange(rows, device=order.device)[:, None], order] for states in joined)
    first = max(0, real.shape[1] - length)
    if not bool(real[:, first:].all()):
        first = max(first, int((~real).all(0).sum()))  # drop leading positions that no row uses
    return tuple(states[:, first:] for states in joined), real[:, first:]


def hidden_memory(real_BM: Tensor) -> Tensor | None:
    """What is added to the scores of the memory, [B, 1, 1, M]: −∞ where a position is unused; None: all are used."""
    return None if bool(real_BM.all()) else unseen(real_BM)[:, None, None, :]


# -- distances ---------------------------------------------------------------------------------------------------------


def check_width(width: int) -> None:
    """UserError for a width that `sinusoids` cannot have."""
    refuse_if(width % 2, f"model.width must be even, half of it for sines of distances, half for cosines, not {width}")


def distances(queries: int, keys: int, device: torch.device, *, ahead: bool = False) -> Tensor:
    """The distance of each score column: keys − 1, …, 0, and for queries that see ahead, on to −(queries − 1)."""
    return torch.arange(keys - 1, -queries if ahead else -1, -1, device=device)


def sinusoids(distances_R: Tensor, width: int) -> Tensor:
    """[R, width], with even width: sin(distance · f) for half as many frequencies f, then cos, as in both papers' code
    (the Transformer's paper interleaves them)."""
    dtype = torch.get_default_dtype()
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, device=distances_R.device, dtype=dtype) / width)
    angles_RF = distances_R.to(dtype)[:, None] * frequencies
    return torch.cat((angles_RF.sin(), angles_RF.cos()), dim=-1)


def by_key(scores_BHQR: Tensor, keys: int) -> Tensor:
    """[B, H, Q, keys] from [B, H, Q, R], if the columns are those of `distances`: row i, column j is taken from row i,
    column Q − 1 − i + j, the distance of key j from query i. If the distances end at 0, positions ahead of a query hold
    meaningless numbers, which the caller masks."""
    batch, heads, queries, columns = scores_BHQR.shape
    # With one extra column in front, read from the second row on with rows one shorter, each row is shifted by one more
    # position than the row above.
    wide = F.pad(scores_BHQR, (1, 0))
    return wide.view(batch, heads, columns + 1, queries)[:, :, 1:].reshape(scores_BHQR.shape)[..., :keys]


# -- attention ---------------------------------------------------------------------------------------------------------


BLOCK = 1 << 17  # scores at a time: half a megabyte


class RelativeAttention(nn.Module):
    """Projections without biases, and the learned vectors for content, position and segments. These are stored flat:
    they are not matrices, and optimisers should treat them as biases. `biased` false: u and w are passed in."""

    def __init__(
        self, width: int, heads: int, head_width: int, dropout: float, segments: bool = False, biased: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.head_width, self.p = heads, head_width, dropout
        inner = heads * head_width
        self.query, self.key, self.value, self.distance = (nn.Linear(width, inner, bias=False) for _ in range(4))
        self.out = nn.Linear(inner, width, bias=False)
        self.content, self.position = (nn.Parameter(torch.empty(inner)) if biased else None for _ in range(2))
        self.segment = nn.Parameter(torch.empty(inner)) if segments else None
        # for the same segment, and for another
        self.segments = nn.Parameter(torch.empty(2, heads, head_width)) if segments else None
        self.draw(0.02)

    def draw(self, deviation: float) -> None:
        """Draws new weights from N(0, deviation²)."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=deviation)

    def read(self, context_BMD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, [B, M, H, K] each."""
        return self._heads(self.key(context_BMD)), self._heads(self.value(context_BMD))

    def queries(self, x_BQD: Tensor) -> Tensor:
        """[B, Q, H, K]."""
        return self._heads(self.query(x_BQD))

    def distances(self, waves_RD: Tensor) -> Tensor:
        """The projected sinusoids of distances: [R, H, K]."""
        return self._heads(self.distance(waves_RD))

    def mix(
        self,
        q_BQHK: Tensor,
        k_BMHK: Tensor,
        v_BMHK: Tensor,
        far_RHK: Tensor,
        hidden: Tensor | None = None,
        other_BQM: Tensor | None = None,
        biases: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The attention output, [B, Q, H, K], for projected queries and before `out`. `hidden` broadcasts to [B, H, Q,
        M]; `other_BQM`: true where a key is in another segment than the query; `biases`: u and w, if they are not the
        module's own."""
        added = None if other_BQM is None else self.by_segment(q_BQHK, other_BQM)
        p = self.p if self.training else 0.0
        return relative_mix(q_BQHK, k_BMHK, v_BMHK, far_RHK, biases or self.own_biases(), added, hidden, p)

    @torch.no_grad()
    def weights(
        self,
        x_1TD: Tensor,
        waves_RD: Tensor,
        hidden: Tensor | None = None,
        other_1TT: Tensor | None = None,
        biases: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The attention weights within one sequence, [H, T, T], computed by mixing unit vectors."""
        keys, _ = self.read(x_1TD)
        units = torch.eye(x_1TD.shape[1], dtype=x_1TD.dtype, device=x_1TD.device)[None, :, None]
        units = units.expand(1, -1, self.heads, -1)
        far_RHK = self.distances(waves_RD)
        return self.mix(self.queries(x_1TD), keys, units, far_RHK, hidden, other_1TT, biases)[0].transpose(0, 1)

    def own_biases(self) -> tuple[Tensor, Tensor]:
        """u and w, flat."""
        assert self.content is not None and self.position is not None, "built without biases"
        return self.content, self.position

    def by_segment(self, q_BQHK: Tensor, other_BQM: Tensor) -> Tensor:
        """[B, H, Q, M]: (q + s) · e / √K."""
        assert self.segments is not None and self.segment is not None, "built without segments"
        queries = (q_BQHK + self._heads(self.segment)) * self.head_width**-0.5
        same, another = torch.einsum("bqhk,ehk->ebhq", queries, self.segments)
        return torch.where(other_BQM[:, None], another[..., None], same[..., None])

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_width))


def relative_mix(
    q_BQHK: Tensor,
    k_BMHK: Tensor,
    v_BMHK: Tensor,
    far_RHK: Tensor,
    biases: tuple[Tensor, Tensor],
    added: Tensor | None = None,
    hidden: Tensor | None = None,
    p: float = 0.0,
) -> Tensor:
    """softmax of the scores, with dropout `p`, times the values: [B, Q, H, K]. `biases`: u and w; `added`: a part of
    the scores with gradients, [B, H, Q, M]; `hidden`: one without."""
    content, position = biases
    if torch.is_grad_enabled() and full_precision_on_cpu(q_BQHK):
        return _RelativeMix.apply(p, hidden, added, q_BQHK, k_BMHK, v_BMHK, far_RHK, content, position)
    rows, queries = q_BQHK.shape[:2]
    by_content, by_distance = _queries(q_BQHK, content), _queries(q_BQHK, position)
    # One product per head for all rows, since they share the distances.
    products_HNR = torch.bmm(by_distance.permute(2, 0, 1, 3).flatten(1, 2), far_RHK.permute(1, 2, 0))
    scores = products_HNR.unflatten(1, (rows, queries)).transpose(0, 1)
    if queries > 1:
        scores = by_key(scores, k_BMHK.shape[1])
    scores = sum((term for term in (added, hidden) if term is not None), scores)
    q, k, v = (x.transpose(1, 2) for x in (by_content, k_BMHK, v_BMHK))
    if not p and not torch.is_grad_enabled():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=scores, scale=1.0).transpose(1, 2)
    weights = dropout((scores + q @ k.transpose(2, 3)).softmax(-1), p, p > 0)
    return (weights @ v).transpose(1, 2)


def _queries(q_BQHK: Tensor, bias: Tensor) -> Tensor:
    """(q + bias) / √K."""
    scale = q_BQHK.shape[-1] ** -0.5
    return torch.add(bias.view(q_BQHK.shape[-2:]) * scale, q_BQHK, alpha=scale)


def _matrices(x_BTHK: Tensor) -> Tensor:
    """[B · H, T, K]: a view for one row, a copy for several."""
    return x_BTHK.transpose(1, 2).flatten(0, 1)


def _moved(wide: Tensor, queries: int, keys: int) -> Tensor:
    """[n, Q, M] by key from [n, Q, R + 1] by distance, whose first column is the extra one: a view."""
    columns = wide.shape[2] - 1
    return wide.as_strided((len(wide), queries, keys), (queries * (columns + 1), columns, 1), queries)


class _RelativeMix(torch.autograd.Function):
    """S = (q + u) Kᵀ + shift((q + w) Rᵀ) + added + hidden,   P = softmax(S),   O = (P ∘ drop) V."""

    @staticmethod
    def forward(ctx: Any, p: float, hidden: Tensor | None, added: Tensor | None, *learned: Tensor) -> Tensor:
        q, k, v, far, content, position = learned
        (rows, queries, heads, _), keys, columns = q.shape, k.shape[1], len(far)
        by_content, by_distance = _queries(q, content), _queries(q, position)
        far_HKR = far.permute(1, 2, 0)
        out, for_backward = q.new_empty(q.shape), []
        for block in _blocks(rows, heads * queries * keys):
            wide = q.new_empty(heads * (block.stop - block.start), queries, columns + 1)
            # The extra column is read ahead of each query except the last, and masked there; uninitialised it could be
            # NaN.
            wide[:, :, 0] = 0.0
            for number, row in enumerate(range(block.start, block.stop)):
                target = wide[number * heads : (number + 1) * heads, :, 1:]
                torch.bmm(by_distance[row].transpose(0, 1), far_HKR, out=target)
            scores = _moved(wide, queries, keys)
            scores.baddbmm_(_matrices(by_content[block]), _matrices(k[block]).transpose(1, 2))
            by_row = scores.unflatten(0, (-1, heads))
            if added is not None:
                by_row += added[block]
            if hidden is not None:
                by_row += hidden if len(hidden) == 1 else hidden[block]
            weights = torch.softmax(scores, dim=-1)
            for_backward.append(weights)
            if p:
                for_backward.append(keep_mask(weights.shape, p, weights.dtype))
                weights = weights * for_backward[-1]
            out[block].transpose(1, 2).copy_(torch.bmm(weights, _matrices(v[block])).unflatten(0, (-1, heads)))
        ctx.save_for_backward(by_content, by_distance, k, v, far, *for_backward)
        ctx.p = p
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_content, by_distance, k, v, far, *for_backward = ctx.saved_tensors
        (rows, queries, heads, width), keys, columns = by_content.shape, k.shape[1], len(far)
        of_content, of_distance = torch.empty_like(by_content), torch.empty_like(by_distance)
        of_k, of_v, far_HRK = torch.empty_like(k), torch.empty_like(v), far.transpose(0, 1)
        of_far = far.new_zeros(heads, columns, width)
        of_added = far.new_empty(rows, heads, queries, keys) if ctx.needs_input_grad[2] else None
        for number, block in enumerate(_blocks(rows, heads * queries * keys)):
            weights, *drop = for_backward[2 * number : 2 * number + 2] if ctx.p else [for_backward[number]]
            given = _matrices(grad[block])
            of_weights = torch.bmm(given, _matrices(v[block]).transpose(1, 2))
            used = weights
            if drop:
                of_weights.mul_(drop[0])
                used = drop[0].mul_(weights)
            _put(of_v[block], torch.bmm(used.transpose(1, 2), given))
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            if of_added is not None:
                of_added[block] = of_scores.unflatten(0, (-1, heads))
            _put(of_content[block], torch.bmm(of_scores, _matrices(k[block])))
            _put(of_k[block], torch.bmm(of_scores.transpose(1, 2), _matrices(by_content[block])))
            wide = of_scores.new_empty(len(of_scores), queries, columns + 1)
            (wide if columns > keys else wide.view(len(wide), -1)[:, :queries]).zero_()
            _moved(wide, queries, keys).copy_(of_scores)
            for place, row in enumerate(range(block.start, block.stop)):
                of_products = wide[place * heads : (place + 1) * heads, :, 1:]
                of_distance[row].transpose(0, 1).copy_(torch.bmm(of_products, far_HRK))
                of_far.baddbmm_(of_products.transpose(1, 2), by_distance[row].transpose(0, 1))
        scale = width**-0.5
        content, position = (part.flatten(0, 1).sum(0).flatten().mul_(scale) for part in (of_content, of_distance))
        of_q = of_content.add_(of_distance).mul_(scale)
        return None, None, of_added, of_q, of_k, of_v, of_far.transpose(0, 1), content, position


def _blocks(rows: int, of_a_row: int) -> Iterator[slice]:
    together = max(1, BLOCK // max(1, of_a_row))
    return (slice(start, min(start + together, rows)) for start in range(0, rows, together))


def _put(target_BTHK: Tensor, matrices: Tensor) -> None:
    target_BTHK.transpose(1, 2).copy_(matrices.unflatten(0, (len(target_BTHK), -1)))


def last_columns(far_RHK: Tensor, keys: int) -> Tensor:
    """The distances of so many positions; those of masked positions do not matter."""
    missing = keys - len(far_RHK)
    return F.pad(far_RHK, (0, 0, 0, 0, missing, 0)) if missing > 0 else far_RHK[-missing:]


def to_the_left(mask_BT: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The positions to take so that each row begins at the left end (as many as the longest row has), and which of them
    are real; None: all are."""
    if mask_BT is None or bool(mask_BT.all()):
        return None, None
    order = torch.argsort((~mask_BT).int(), dim=1, stable=True)[:, : int(mask_BT.sum(1).max())]
    return order, mask_BT.gather(1, order)


def put_back(x_BTD: Tensor, order: Tensor | None, mask_BT: Tensor | None, length: int) -> Tensor:
    """Puts states back where their tokens were, with zeros at padding."""
    if order is None or mask_BT is None:
        return x_BTD
    places = order[..., None].expand(x_BTD.shape)
    return x_BTD.new_zeros(len(x_BTD), length, x_BTD.shape[2]).scatter(1, places, x_BTD * mask_BT[..., None])
