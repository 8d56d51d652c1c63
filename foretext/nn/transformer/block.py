"""The block of every transformer here: attention and a feed-forward part, each with its residual addition and norm.

GPT, GPT-2 and the BERT family differ in where the norm stands, in what a token may see and in the form of GELU, nothing
else. Later decoders differ in more, and a `BlockShape` has that too:

    norm              layer norm, or x / √(mean x² + ε) · g (RMSNorm, Zhang and Sennrich 2019)
    feed-forward      W₂ f(W₁ x), or gated, W₂ (f(W₃ x) ∘ W₁ x) (Shazeer 2020; with SiLU: SwiGLU); f may be relu²
                      (So et al. 2021)
    rotary positions  queries and keys turned by angles that grow with their place (Su et al. 2021), so that q·k depends
                      on the distance alone
    query-key norm    of each head's queries and keys, before they are turned (Henry et al. 2020)
    mixed values      λ₁ v + λ₂ v', where v' are the first block's values (Zhou et al. 2024) or the token's own row of a
                      table; both λ are learned and start at ½

A block works on packed tokens (see `packing`). The feed-forward part of GPT and BERT is fused on a CPU (`fused`), and
so is attention, whatever the choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.errors import check_range, refuse_if
from foretext.nn.fused import Gelu, add_dropped, feed_forward, linear
from foretext.nn.packing import Hiding, Packing, attend, chosen, pick
from foretext.nn.trunk import MOST_LAYERS, MOST_WIDE, ModelConfig


@dataclass(frozen=True)
class TransformerShape(ModelConfig):
    """The part of a trunk's configuration that every transformer has."""

    vocabulary: int
    layers: int
    width: int
    heads: int

    def check(self) -> None:
        check_range("model", self, f"at least 1 and at most {MOST_LAYERS:,}", "layers")
        check_range("model", self, f"at least 1 and at most {MOST_WIDE:,}", "width", "heads", "context")
        refuse_if(self.width % self.heads, f"model.width={self.width} must be a multiple of model.heads={self.heads}")
        check_range("training", self, "at least 0 and below 1", "dropout")
        check_range("model", self, "above 0 and at most 10", "init_std")
        check_range("model", self, "above 0 and at most 1", "epsilon")

    def describe(self) -> str:
        return f"{self.layers} blocks, width {self.width}, {self.heads} heads, context {self.context}"


Activation = Literal["gelu-tanh", "gelu-erf", "relu", "squared-relu", "silu"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu-erf": F.gelu,
    "relu": F.relu,
    "squared-relu": lambda x: F.relu(x).square(),
    "silu": F.silu,
}
GELUS: dict[Gelu, Activation] = {"tanh": "gelu-tanh", "erf": "gelu-erf"}
FUSED = {activation: gelu for gelu, activation in GELUS.items()}


@dataclass(frozen=True)
class BlockShape:
    width: int
    heads: int
    inner: int  # width of the feed-forward part
    dropout: float  # on the attention weights and before each residual addition
    norm: Literal["post", "pre"] = "post"
    epsilon: float = 1e-5
    causal: bool = True
    activation: Activation = "gelu-tanh"
    norm_kind: Literal["layer", "rms"] = "layer"
    gated: bool = False  # whether the feed-forward part has a gate
    bias: bool = True  # of linear layers and layer norms
    query_key_norm: bool = False
    values: Literal["own", "kept", "mixed"] = "own"  # kept: for the blocks above; mixed: with those that are given

    def build_norm(self, width: int) -> nn.Module:
        if self.norm_kind == "rms":
            return nn.RMSNorm(width, eps=self.epsilon)
        return nn.LayerNorm(width, eps=self.epsilon, bias=self.bias)

    def norm_parameters(self, width: int) -> int:
        return 2 * width if self.norm_kind == "layer" and self.bias else width

    def parameters(self) -> int:
        ups = 2 if self.gated else 1
        matrices = 4 * self.width**2 + (ups + 1) * self.width * self.inner
        biases = 5 * self.width + ups * self.inner if self.bias else 0
        head = self.norm_parameters(self.width // self.heads) if self.query_key_norm else 0
        return matrices + biases + 2 * self.norm_parameters(self.width) + 2 * head + 2 * (self.values == "mixed")


Rotation = tuple[Tensor, Tensor]  # cosines and sines of each token's angles, [..., 1, K / 2], for all heads alike


def rotation(positions: Tensor, width: int, base: float, dtype: torch.dtype) -> Rotation:
    """Of heads so wide, by angles position · base^(−2i / width)."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=dtype) / width
    angles = positions[..., None, None].to(dtype) * base**-exponents
    return angles.cos(), angles.sin()


def rotated(x: Tensor, by: Rotation) -> Tensor:
    """[..., H, K] with number i and number i + K / 2 as the two sides of a plane, as in transformers."""
    cos, sin = (part.to(x.dtype) for part in by)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


@dataclass
class SideInputs:
    """What the blocks of one pass read beside states."""

    hidden: Hiding = ()  # `packing.hidden()`, where blocks look both ways
    rotation: Rotation | None = None
    values: Tensor | None = None  # [..., H, K]: put here by the block that keeps its own, or by the trunk


class Attention(nn.Module):
    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.heads, self.p, self.causal, self.values = shape.heads, shape.dropout, shape.causal, shape.values
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=shape.bias)
        self.out = nn.Linear(shape.width, shape.width, bias=shape.bias)
        head = shape.width // shape.heads
        self.query_norm = shape.build_norm(head) if shape.query_key_norm else None
        self.key_norm = shape.build_norm(head) if shape.query_key_norm else None
        self.shares = nn.Parameter(torch.full((2,), 0.5)) if shape.values == "mixed" else None  # λ₁, λ₂

    def _project(self, x: Tensor, side: SideInputs) -> Tensor:
        """Queries, keys and values of states [..., D]: [..., 3, H, K]."""
        qkv = linear(x, self.qkv).unflatten(-1, (3, self.heads, -1))
        if self.query_norm is None and side.rotation is None and self.values == "own":
            return qkv
        q, k, v = qkv.unbind(-3)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if side.rotation is not None:
            q, k = rotated(q, side.rotation), rotated(k, side.rotation)
        if self.values == "kept":
            side.values = v
        if self.shares is not None:
            assert side.values is not None, "a block that mixes values is given some"
            v = self.shares[0] * v + self.shares[1] * side.values
        return torch.stack([q, k, v], dim=-3)

    def forward(self, x_ND: Tensor, packing: Packing, side: SideInputs, picked_R: Tensor | None) -> Tensor:
        """`picked_R`: the tokens that are wanted."""
        p, qkv_S3HK = self.p if self.training else 0.0, packing.grouped(self._project(x_ND, side))
        mixed = attend(qkv_S3HK, packing.groups, p, None if self.causal else side.hidden)
        return linear(pick(mixed.flatten(1), chosen(packing.from_groups, picked_R)), self.out)

    def step(
        self, x_BTD: Tensor, past: tuple[Tensor, Tensor] | None, attend_BTS: Tensor | None, side: SideInputs
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """New positions after cached ones; a cache of one row serves all rows. Keys and values are cached as they are
        attended to: normed, turned, mixed. `attend_BTS`: which of all S places each new one sees, where that is not all
        up to itself."""
        rows, length, _ = x_BTD.shape
        q, k, v = self._project(x_BTD, side).permute(2, 0, 3, 1, 4)
        if past is not None:
            before_k, before_v = (old.expand(rows, -1, -1, -1) for old in past)
            k, v = torch.cat([before_k, k], dim=2), torch.cat([before_v, v], dim=2)
        seen = k.shape[2] - length
        mask = None if attend_BTS is None else attend_BTS[:, None]
        if mask is None and seen and length > 1:
            mask = torch.ones(length, k.shape[2], dtype=torch.bool, device=k.device).tril(seen)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and length > 1)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, -1)), (k, v)

    def weights(self, x_TD: Tensor, side: SideInputs) -> Tensor:
        """What each position of one sequence sees of those it may see: [H, T, T], rows add up to 1."""
        q, k, _ = self._project(x_TD, side).permute(1, 2, 0, 3)
        scores_HTT = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if self.causal:
            ahead = torch.ones(len(x_TD), len(x_TD), dtype=torch.bool, device=x_TD.device).triu(1)
            scores_HTT = scores_HTT.masked_fill(ahead, -torch.inf)
        return scores_HTT.softmax(-1)


class Block(nn.Module):
    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.pre, self.p, self.activation = shape.norm == "pre", shape.dropout, shape.activation
        self.attention = Attention(shape)
        self.norm1 = shape.build_norm(shape.width)
        self.up = nn.Linear(shape.width, shape.inner, bias=shape.bias)
        self.gate = nn.Linear(shape.width, shape.inner, bias=shape.bias) if shape.gated else None
        self.down = nn.Linear(shape.inner, shape.width, bias=shape.bias)
        self.norm2 = shape.build_norm(shape.width)
        self.fused = FUSED.get(shape.activation) if shape.bias and not shape.gated else None

    def _feed_forward(self, x: Tensor) -> Tensor:
        if self.fused is not None:
            return feed_forward(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias, self.fused)
        activate = ACTIVATIONS[self.activation]
        inner = linear(x, self.up)
        return linear(activate(inner) if self.gate is None else activate(linear(x, self.gate)) * inner, self.down)

    def forward(self, x: Tensor, packing: Packing, side: SideInputs, picked_R: Tensor | None = None) -> Tensor:
        """The states of all packed tokens, or of these alone, which all the same look at all others."""
        own = pick(x, picked_R)
        if self.pre:
            x = add_dropped(own, self.attention(self.norm1(x), packing, side, picked_R), self.p, self.training)
            return add_dropped(x, self._feed_forward(self.norm2(x)), self.p, self.training)
        x = self.norm1(add_dropped(own, self.attention(x, packing, side, picked_R), self.p, self.training))
        return self.norm2(add_dropped(x, self._feed_forward(x), self.p, self.training))

    def step(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None, attend_BTS: Tensor | None, side: SideInputs
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        mixed, pair = self.attention.step(self.norm1(x) if self.pre else x, past, attend_BTS, side)
        if self.pre:
            x = x + mixed
            return x + self._feed_forward(self.norm2(x)), pair
        x = self.norm1(x + mixed)
        return self.norm2(x + self._feed_forward(x)), pair

    @torch.no_grad()
    def attention_weights(self, x_TD: Tensor, side: SideInputs) -> Tensor:
        """Of one sequence's states below this block: [H, T, T]."""
        return self.attention.weights(self.norm1(x_TD) if self.pre else x_TD, side)
