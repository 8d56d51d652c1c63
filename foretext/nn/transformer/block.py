"""The block of every transformer here: attention and a feed-forward part, each with its residual addition and norm.

GPT, GPT-2 and the BERT family differ in where the norm stands, in what a token may see and in the form of GELU, nothing
else. A block works on packed tokens (see `packing`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.errors import UserError
from foretext.nn.fused import Gelu, add_dropped, feed_forward, linear
from foretext.nn.packing import MoveRows, Packing, pick
from foretext.nn.transformer.attention import Hiding, causal_attention, full_attention

# Of the shape: far beyond what can be trained, and below where its size overflows or takes long to work out.
MOST = {"layers": 1_000, "width": 100_000_000, "heads": 100_000_000, "context": 100_000_000}


class Shaped(Protocol):
    """The part of a trunk's configuration that every transformer has."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def dropout(self) -> float: ...


def check_shape(config: Shaped) -> None:
    """UserError if no transformer can have this shape."""
    for name, most in MOST.items():
        if not 1 <= getattr(config, name) <= most:
            raise UserError(f"model.{name} must be at least 1 and at most {most:,}, not {getattr(config, name)}")
    if config.width % config.heads:
        raise UserError(f"model.width={config.width} must be a multiple of model.heads={config.heads}")
    if not 0.0 <= config.dropout < 1.0:
        raise UserError(f"training.dropout must be at least 0 and below 1, not {config.dropout}")
    for name, largest in (("init_std", 10), ("epsilon", 1)):
        if not 0.0 < getattr(config, name) <= largest:
            raise UserError(f"model.{name} must be above 0 and at most {largest}, not {getattr(config, name)}")


@dataclass(frozen=True)
class BlockShape:
    width: int
    heads: int
    inner: int  # width of the feed-forward part
    dropout: float  # on the attention weights and before each residual addition
    norm: Literal["post", "pre"] = "post"
    epsilon: float = 1e-5
    causal: bool = True
    gelu: Gelu = "tanh"

    def parameters(self) -> int:
        attention = 4 * self.width * (self.width + 1)
        return attention + self.inner * (2 * self.width + 1) + 5 * self.width


class Attention(nn.Module):
    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.p = shape.dropout
        self.causal = shape.causal
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x_ND: Tensor, packing: Packing, hidden: Hiding, picked_R: Tensor | None) -> Tensor:
        """`hidden`: `packing.hidden()`, for a block that looks both ways. `picked_R`: the tokens that are wanted."""
        qkv_N3HK = linear(x_ND, self.qkv).unflatten(1, (3, self.heads, -1))
        if packing.to_groups is None or packing.from_groups is None:
            return linear(pick(self._mix(qkv_N3HK, packing, hidden).flatten(1), picked_R), self.out)
        grouped = MoveRows.apply(qkv_N3HK, packing.to_groups, packing.from_groups)
        mixed = self._mix(grouped, packing, hidden).flatten(1)
        slots = packing.from_groups if picked_R is None else packing.from_groups[picked_R]
        return linear(pick(mixed, slots), self.out)

    def _mix(self, qkv_S3HK: Tensor, packing: Packing, hidden: Hiding) -> Tensor:
        p = self.p if self.training else 0.0
        if self.causal:
            return causal_attention(qkv_S3HK, packing.groups, p)
        return full_attention(qkv_S3HK, packing.groups, p, hidden)

    def step(
        self, x_BTD: Tensor, past: tuple[Tensor, Tensor] | None, attend_BTS: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """New positions after cached ones; a cache of one row serves all rows. `attend_BTS`: which of all S places each
        new one sees, where that is not all up to itself."""
        rows, length, _ = x_BTD.shape
        q, k, v = self.qkv(x_BTD).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            before_k, before_v = (old.expand(rows, -1, -1, -1) for old in past)
            k, v = torch.cat([before_k, k], dim=2), torch.cat([before_v, v], dim=2)
        seen = k.shape[2] - length
        mask = None
        if attend_BTS is not None:
            mask = attend_BTS[:, None]
        elif seen and length > 1:
            mask = torch.ones(length, k.shape[2], dtype=torch.bool, device=k.device).tril(seen)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and length > 1)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, -1)), (k, v)

    def weights(self, x_TD: Tensor) -> Tensor:
        """What each position of one sequence sees of those it may see: [H, T, T], rows add up to 1."""
        q, k, _ = self.qkv(x_TD).view(len(x_TD), 3, self.heads, -1).permute(1, 2, 0, 3)
        scores_HTT = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if self.causal:
            ahead = torch.ones(len(x_TD), len(x_TD), dtype=torch.bool, device=x_TD.device).triu(1)
            scores_HTT = scores_HTT.masked_fill(ahead, -torch.inf)
        return scores_HTT.softmax(-1)


class Block(nn.Module):
    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.pre = shape.norm == "pre"
        self.p = shape.dropout
        self.gelu = shape.gelu
        self.attention = Attention(shape)
        self.norm1 = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.up = nn.Linear(shape.width, shape.inner)
        self.down = nn.Linear(shape.inner, shape.width)
        self.norm2 = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return feed_forward(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias, self.gelu)

    def forward(self, x: Tensor, packing: Packing, hidden: Hiding, picked_R: Tensor | None = None) -> Tensor:
        """The states of all packed tokens, or of these alone, which all the same look at all others."""
        own = pick(x, picked_R)
        if self.pre:
            x = add_dropped(own, self.attention(self.norm1(x), packing, hidden, picked_R), self.p, self.training)
            return add_dropped(x, self._feed_forward(self.norm2(x)), self.p, self.training)
        x = self.norm1(add_dropped(own, self.attention(x, packing, hidden, picked_R), self.p, self.training))
        return self.norm2(add_dropped(x, self._feed_forward(x), self.p, self.training))

    def step(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None, attend_BTS: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        mixed, pair = self.attention.step(self.norm1(x) if self.pre else x, past, attend_BTS)
        if self.pre:
            x = x + mixed
            return x + self._feed_forward(self.norm2(x)), pair
        x = self.norm1(x + mixed)
        return self.norm2(x + self._feed_forward(x)), pair

    @torch.no_grad()
    def attention_weights(self, x_TD: Tensor) -> Tensor:
        """Of one sequence's states below this block: [H, T, T]."""
        return self.attention.weights(self.norm1(x_TD) if self.pre else x_TD)
