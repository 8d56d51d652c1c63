"""XLNet's block: relative attention and a feed-forward part, for two streams that share all weights (Yang et al. 2019,
section 2.3).

    content   h_i = block(h_i, keys and values of all that i may see, itself too)
    query     g_i = block(g_i, keys and values of h of all that i may see, without itself)

Keys and values are of the memory and the content alone. So a query state knows where it stands, never what stands
there, and can be asked for it. It is needed only where a token is predicted, and computed only there.
Its scores by distance are those of all distances, of which each query takes its own run (`_Placed`).

Blocks work on packed tokens (see `packing`), group by group: sequences of like length, read in one direction. For text
that is read from the right, distances count the other way, so that a distance means the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foretext.nn.fused import Gelu, add_dropped, dropout, feed_forward
from foretext.nn.packing import Packing, chosen, pick
from foretext.nn.relative.relative_attention import RelativeAttention, behind


@dataclass(frozen=True)
class StreamShape:
    width: int
    heads: int
    inner: int  # width of the feed-forward part
    dropout: float  # on the attention weights and before each residual addition
    epsilon: float
    gelu: Gelu = "erf"

    def parameters(self) -> int:
        return 5 * self.width**2 + 10 * self.width + self.inner * (2 * self.width + 1)  # with u, w, s and both segments


@dataclass(frozen=True)
class Asked:
    """The query stream of a group: `G` places of each row, of which rows with fewer have some that nobody reads."""

    queries: slice  # of all queries, which stand in the order of the groups
    slots_A: Tensor | None  # where these stand in [rows · G]; None: each row has G
    places_BG: Tensor  # in its row, counted without the memory
    hidden: Tensor  # [rows, 1, G, M + T]: −∞ where a query may not look
    blind_BG: Tensor | None  # queries that see nothing; None: none do
    other_BGM: Tensor | None  # true where a key is of another segment


@dataclass(frozen=True)
class Sight:
    """What the sequences of a group see: `rows` of the batch after their memory, of M places."""

    rows: Tensor | slice  # of the batch
    slots: slice  # of the grouped tokens
    length: int  # T
    waves_RD: Tensor  # the sinusoids of distances, from the farthest key's on
    hidden: Tensor | None  # [rows, 1, 1 or T, M + T]: −∞ where nothing is to be seen; None: all is
    other_BTM: Tensor | None = None  # true where a key is of another segment than a query
    asked: Asked | None = None


class _Placed(torch.autograd.Function):
    """Of each row of scores by distance the `keys` columns from its own offset on. Rows are copied as wholes, which an
    index for each number would not do."""

    @staticmethod
    def forward(ctx: Any, scores_HNR: Tensor, offsets_N: Tensor, keys: int) -> Tensor:
        ctx.save_for_backward(offsets_N)
        ctx.columns = scores_HNR.shape[2]
        return scores_HNR.unfold(2, keys, 1)[:, torch.arange(len(offsets_N)), offsets_N]

    @staticmethod
    def backward(ctx: Any, grad_HNM: Tensor) -> tuple[Tensor, None, None]:
        (offsets_N,) = ctx.saved_tensors
        (heads, count, keys), columns = grad_HNM.shape, ctx.columns
        whole = grad_HNM.new_zeros(heads, count, columns)
        windows = whole.as_strided((heads, count, columns - keys + 1, keys), (count * columns, columns, 1, 1))
        windows[:, torch.arange(count), offsets_N] = grad_HNM
        return whole, None, None


def asked_mix(
    attention: RelativeAttention, q_BGHK: Tensor, k_BMHK: Tensor, v_BMHK: Tensor, far_RHK: Tensor, asked: Asked
) -> Tensor:
    """What queries at chosen places see, [B, G, H, K]; zeros for those that see nothing."""
    (rows, count, heads, width), keys = q_BGHK.shape, k_BMHK.shape[1]
    scale = width**-0.5
    content, position = (bias.view(heads, width) for bias in attention.own_biases())
    scores_BHGM = ((q_BGHK + content) * scale).transpose(1, 2) @ k_BMHK.permute(0, 2, 3, 1)
    by_distance_HNR = torch.bmm(((q_BGHK + position) * scale).flatten(0, 1).transpose(0, 1), far_RHK.permute(1, 2, 0))
    # The columns begin with the farthest key of the last place: see `by_key`.
    placed_HNM = _Placed.apply(by_distance_HNR, (len(far_RHK) - keys - asked.places_BG).flatten(), keys)
    scores_BHGM = scores_BHGM + placed_HNM.view(heads, rows, count, keys).transpose(0, 1)
    if asked.other_BGM is not None:
        scores_BHGM = scores_BHGM + attention.by_segment(q_BGHK, asked.other_BGM)
    weights_BHGM = dropout((scores_BHGM + asked.hidden).softmax(-1), attention.p, attention.training)
    mixed_BGHK = (weights_BHGM @ v_BMHK.transpose(1, 2)).transpose(1, 2)
    return mixed_BGHK if asked.blind_BG is None else mixed_BGHK.masked_fill(asked.blind_BG[..., None, None], 0.0)


class StreamBlock(nn.Module):
    def __init__(self, shape: StreamShape) -> None:
        super().__init__()
        self.p, self.gelu = shape.dropout, shape.gelu
        self.attention = RelativeAttention(
            shape.width, shape.heads, shape.width // shape.heads, shape.dropout, segments=True
        )
        self.norm1 = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.up = nn.Linear(shape.width, shape.inner)
        self.down = nn.Linear(shape.inner, shape.width)
        self.norm2 = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def forward(
        self,
        x_ND: Tensor,
        g_AD: Tensor | None,
        packing: Packing,
        sights: Sequence[Sight],
        memory_BMD: Tensor | None,
        picked_R: Tensor | None = None,
        content: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Both streams, all packed tokens of the content or the picked ones alone. Not `content`: nobody will read it,
        and it stays as it was."""
        grouped = packing.grouped(x_ND)
        mixed: list[Tensor] = []
        answers: list[Tensor] = []
        for sight in sights:
            own_BTD = grouped[sight.slots].unflatten(0, (-1, sight.length))
            seen_BMD = own_BTD if memory_BMD is None else behind(memory_BMD[sight.rows], own_BTD)
            keys, values = self.attention.read(seen_BMD)
            far_RHK = self.attention.distances(sight.waves_RD)
            if content:
                queries = self.attention.queries(own_BTD)
                found = self.attention.mix(queries, keys, values, far_RHK, sight.hidden, sight.other_BTM)
                mixed.append(found.flatten(2).flatten(0, 1))
            if sight.asked is not None:
                assert g_AD is not None
                answers.append(self._ask(g_AD, sight.asked, keys, values, far_RHK))
        if content and mixed:
            x_ND = self._finish(pick(x_ND, picked_R), pick(_joined(mixed), chosen(packing.from_groups, picked_R)))
        if g_AD is not None and answers:
            g_AD = self._finish(g_AD, _joined(answers))
        return x_ND, g_AD

    def _ask(self, g_AD: Tensor, asked: Asked, keys: Tensor, values: Tensor, far_RHK: Tensor) -> Tensor:
        """What the queries of one group see, [its queries, D]."""
        rows, count = asked.places_BG.shape
        own_AD = g_AD[asked.queries]
        if asked.slots_A is not None:
            own_AD = own_AD.new_zeros(rows * count, own_AD.shape[1]).index_copy(0, asked.slots_A, own_AD)
        queries = self.attention.queries(own_AD.unflatten(0, (rows, count)))
        mixed = asked_mix(self.attention, queries, keys, values, far_RHK, asked).flatten(2).flatten(0, 1)
        return mixed if asked.slots_A is None else mixed[asked.slots_A]

    def _finish(self, before_ND: Tensor, mixed_ND: Tensor) -> Tensor:
        x = self.norm1(add_dropped(before_ND, self.attention.out(mixed_ND), self.p, self.training))
        inner = feed_forward(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias, self.gelu)
        return self.norm2(add_dropped(x, inner, self.p, self.training))


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
