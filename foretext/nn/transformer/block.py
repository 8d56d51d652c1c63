"""The block of a transformer, and what trunks of such blocks share.

A block is attention and a feed-forward part, each with its residual addition and norm. GPT, GPT-2 and the BERT family
differ in where the norm stands, in what a token may see and in the form of GELU; GPT-2 also has a norm at the end.
Later decoders differ in more, and a `TransformerConfig` has that too:

    norm              layer norm, or x / √(mean x² + ε) · g (RMSNorm, Zhang and Sennrich 2019)
    feed-forward      W₂ f(W₁ x), or gated, W₂ (f(W₃ x) ∘ W₁ x) (Shazeer 2020; with SiLU: SwiGLU); f may be relu²
                      (So et al. 2021)
    rotary positions  queries and keys are rotated by angles that grow with the position (Su et al. 2021), so that q·k
                      depends only on the distance
    query-key norm    each head's queries and keys are normed before the rotation (Henry et al. 2020)
    mixed values      λ₁ v + λ₂ v', where v' are the first block's values (Zhou et al. 2024) or the token's own row of a
                      table; both λ are learned and start at ½
    embedding skips   a block reads λ₁ x + λ₂ x₀, where x₀ are the embeddings; both λ are learned and start at 1 and 0
    normed embeddings x₀ / √(mean x₀² + ε), so that an embedding is as large as what the blocks add to it
    zero residuals    a block's two output layers start at zero, so that a new trunk returns its embeddings (Zhang et
                      al. 2019)
    soft cap          limits the logits (`fused`)
    untied            the output layer has a table of its own

Llama's is norm=pre, norm_kind=rms, activation=silu, gated, without bias, positions=rotary. Blocks work on packed tokens
(see `packing`). The feed-forward part of GPT and BERT is fused on a CPU (`fused`), and so is attention, whatever the
choices.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import UserError, check_range, refuse_if
from foretext.nn.fused import Gelu, add_dropped, feed_forward, linear
from foretext.nn.packing import Hiding, Packing, attend, chosen, pick
from foretext.nn.transformer.queries import RMSNorm, Rotation, prepared
from foretext.nn.trunk import MOST_LAYERS, MOST_WIDE, ModelConfig, TokenTrunk


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

MOST_BASE = 1_000_000_000  # of rotary positions: far beyond any real model


@dataclass(frozen=True)
class TransformerConfig(TransformerShape):
    context: int
    dropout: float = 0.1  # after the embeddings, on the attention weights, before each residual addition
    norm: Literal["post", "pre"] = "post"
    epsilon: float = 1e-5
    init_std: float = 0.02
    scale_residuals: bool = False  # whether projections onto the residual stream start smaller by 1/√(2 × layers)
    norm_kind: Literal["layer", "rms"] = "layer"
    activation: Activation = "gelu-tanh"
    gated: bool = False  # whether the feed-forward part has a gate
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    bias: bool = True  # of linear layers and layer norms
    positions: Literal["learned", "rotary", "none"] = "learned"
    rotary_base: float = 10000.0
    query_key_norm: bool = False
    values: Literal["own", "first", "embeddings"] = "own"  # what a block's values are mixed with, if not own alone
    embedding_norm: bool = False  # whether embeddings are divided by their root mean square
    embedding_skips: bool = False  # whether each block reads the embeddings beside the states
    zero_residuals: bool = False  # whether projections onto the residual stream start at zero
    soft_cap: float = 0.0  # limit of the logits, by a tanh; 0: none
    untied: bool = False  # whether the output layer has a table of its own

    def check(self) -> None:
        super().check()
        check_range("model", self, "at least 0", "inner", "soft_cap")
        check_range("model", self, f"at least 1 and at most {MOST_BASE:,}", "rotary_base")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise UserError(
                f"model.positions=rotary rotates pairs of numbers, but a head has {self.width // self.heads}; choose "
                "model.width or model.heads so that it is even"
            )

    @property
    def feed_forward(self) -> int:
        return self.inner or 4 * self.width

    def build_norm(self, width: int) -> nn.Module:
        if self.norm_kind == "rms":
            return RMSNorm(width, eps=self.epsilon)
        return nn.LayerNorm(width, eps=self.epsilon, bias=self.bias)

    def norm_parameters(self, width: int) -> int:
        return 2 * width if self.norm_kind == "layer" and self.bias else width

    def values_of(self, layer: int) -> Literal["own", "kept", "mixed"]:
        """A block's values: its own, kept for the blocks above if needed, or mixed with given ones."""
        if self.values == "first":
            return "mixed" if layer else "kept"
        return "mixed" if self.has_value_table(layer) else "own"

    def has_value_table(self, layer: int) -> bool:
        """True for every second block, including the last."""
        return self.values == "embeddings" and (self.layers - layer) % 2 == 1

    def parameters(self) -> int:
        rows = self.vocabulary * (1 + self.untied + sum(map(self.has_value_table, range(self.layers))))
        rows += self.context if self.positions == "learned" else 0
        final = self.norm_parameters(self.width) if self.norm == "pre" else 0
        return rows * self.width + sum(map(self.block_parameters, range(self.layers))) + final

    def block_parameters(self, layer: int = 0) -> int:
        ups, inner = 2 if self.gated else 1, self.feed_forward
        matrices = 4 * self.width**2 + (ups + 1) * self.width * inner
        biases = 5 * self.width + ups * inner if self.bias else 0
        head = self.norm_parameters(self.width // self.heads) if self.query_key_norm else 0
        shares = 2 * (self.values_of(layer) == "mixed") + 2 * self.embedding_skips
        return matrices + biases + 2 * self.norm_parameters(self.width) + 2 * head + shares

    def activations(self, tokens: int) -> int:
        # attention is fused without dropout, and keeps no weights
        weights = 4 * self.heads * self.context if self.dropout else 0
        plain = self.positions != "rotary" and not self.query_key_norm and self.values == "own"
        states = (18 if plain else 26) + 2 * self.embedding_skips
        states = states * self.width + (7 if self.gated else 4) * self.feed_forward
        return tokens * self.layers * (states + weights)


@dataclass
class SideInputs:
    """What the blocks of one pass read besides states."""

    hidden: Hiding = ()  # `packing.hidden()`, if blocks are bidirectional
    rotation: Rotation | None = None
    embeddings: Tensor | None = None  # [..., D], the input of the first block
    values: Tensor | None = None  # [..., H, K]: put here by the block that keeps its own, or by the trunk


class Attention(nn.Module):
    def __init__(self, shape: TransformerConfig, layer: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.p, self.causal, self.values = shape.heads, shape.dropout, causal, shape.values_of(layer)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=shape.bias)
        self.out = nn.Linear(shape.width, shape.width, bias=shape.bias)
        head = shape.width // shape.heads
        self.query_norm = shape.build_norm(head) if shape.query_key_norm else None
        self.key_norm = shape.build_norm(head) if shape.query_key_norm else None
        self.shares = nn.Parameter(torch.full((2,), 0.5)) if self.values == "mixed" else None  # λ₁, λ₂

    def _project(self, x: Tensor, side: SideInputs) -> Tensor:
        """Queries, keys and values of states [..., D]: [..., 3, H, K]."""
        qkv = linear(x, self.qkv).unflatten(-1, (3, self.heads, -1))
        if self.query_norm is None and side.rotation is None and self.values == "own":
            return qkv
        if self.values == "kept":
            side.values = qkv.select(-3, 2)
        assert self.shares is None or side.values is not None, "a block that mixes values is given some"
        norms = None if self.query_norm is None or self.key_norm is None else (self.query_norm, self.key_norm)
        return prepared(qkv, norms, side.rotation, side.values, self.shares)

    def forward(self, x_ND: Tensor, packing: Packing, side: SideInputs, picked_R: Tensor | None) -> Tensor:
        """`picked_R`: the tokens whose states are needed."""
        p, qkv_S3HK = self.p if self.training else 0.0, packing.grouped(self._project(x_ND, side))
        mixed = attend(qkv_S3HK, packing.groups, p, None if self.causal else side.hidden)
        return linear(pick(mixed.flatten(1), chosen(packing.from_groups, picked_R)), self.out)

    def step(
        self, x_BTD: Tensor, past: tuple[Tensor, Tensor] | None, attend_BTS: Tensor | None, side: SideInputs
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """New positions after cached ones; a cache of one row serves all rows. Keys and values are cached as attention
        uses them: normalised, rotated, mixed. `attend_BTS`: which of all S positions each new one sees, if not all up
        to itself."""
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
        """The attention weights of one sequence: [H, T, T], rows sum to 1."""
        q, k, _ = self._project(x_TD, side).permute(1, 2, 0, 3)
        scores_HTT = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if self.causal:
            ahead = torch.ones(len(x_TD), len(x_TD), dtype=torch.bool, device=x_TD.device).triu(1)
            scores_HTT = scores_HTT.masked_fill(ahead, -torch.inf)
        return scores_HTT.softmax(-1)


class Block(nn.Module):
    def __init__(self, shape: TransformerConfig, layer: int = 0, causal: bool = True) -> None:
        super().__init__()
        self.pre, self.p, self.activation = shape.norm == "pre", shape.dropout, shape.activation
        self.attention = Attention(shape, layer, causal)
        self.norm1 = shape.build_norm(shape.width)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=shape.bias)
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=shape.bias) if shape.gated else None
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=shape.bias)
        self.norm2 = shape.build_norm(shape.width)
        self.fused = FUSED.get(shape.activation) if shape.bias and not shape.gated else None
        self.skip = nn.Parameter(torch.tensor([1.0, 0.0])) if shape.embedding_skips else None  # λ₁, λ₂

    def _input(self, x: Tensor, side: SideInputs) -> Tensor:
        """The block's input: the states below it, mixed with the embeddings if there are skips."""
        if self.skip is None:
            return x
        assert side.embeddings is not None, "a block with a skip needs the embeddings"
        return self.skip[0] * x + self.skip[1] * side.embeddings

    def _feed_forward(self, x: Tensor) -> Tensor:
        if self.fused is not None:
            return feed_forward(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias, self.fused)
        activate = ACTIVATIONS[self.activation]
        inner = linear(x, self.up)
        return linear(activate(inner) if self.gate is None else activate(linear(x, self.gate)) * inner, self.down)

    def forward(self, x: Tensor, packing: Packing, side: SideInputs, picked_R: Tensor | None = None) -> Tensor:
        """The states of all packed tokens, or of these alone, which all the same look at all others."""
        x = self._input(x, side)
        picked = pick(x, picked_R)
        if self.pre:
            x = add_dropped(picked, self.attention(self.norm1(x), packing, side, picked_R), self.p, self.training)
            return add_dropped(x, self._feed_forward(self.norm2(x)), self.p, self.training)
        x = self.norm1(add_dropped(picked, self.attention(x, packing, side, picked_R), self.p, self.training))
        return self.norm2(add_dropped(x, self._feed_forward(x), self.p, self.training))

    def step(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None, attend_BTS: Tensor | None, side: SideInputs
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = self._input(x, side)
        mixed, pair = self.attention.step(self.norm1(x) if self.pre else x, past, attend_BTS, side)
        if self.pre:
            x = x + mixed
            return x + self._feed_forward(self.norm2(x)), pair
        x = self.norm1(x + mixed)
        return self.norm2(x + self._feed_forward(x)), pair

    @torch.no_grad()
    def attention_weights(self, x_TD: Tensor, side: SideInputs) -> Tensor:
        """Of one sequence's states below this block: [H, T, T]."""
        x_TD = self._input(x_TD, side)
        return self.attention.weights(self.norm1(x_TD) if self.pre else x_TD, side)


class StackedTrunk(TokenTrunk):
    """A stack of blocks over embeddings, causal or bidirectional."""

    attends = True
    final_norm: nn.Module

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            self.draw(module.weight)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def _stack(self) -> list[Block]:
        """The block of each layer."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def _side_inputs(self, positions: Tensor) -> SideInputs:
        return SideInputs()

    def _give_values(self, side: SideInputs, layer: int, ids: Tensor) -> None:
        """The values from the tokens' own rows, for a block with a table."""

    def _read(self, x_ND: Tensor, packing: Packing, side: SideInputs, keep_layers: bool) -> Hidden:
        """The blocks' output for embeddings; the last block computes only states that will be read."""
        layers = [packing.unpack(x_ND)] if keep_layers else []
        side.embeddings = x_ND
        for layer, block in enumerate(self._stack(), 1):
            picked = packing.read_R if layer == self.config.layers and not keep_layers else None
            self._give_values(side, layer - 1, packing.ids_N)
            x_ND = block(x_ND, packing, side, picked)
            if keep_layers:
                layers.append(packing.unpack(x_ND))
        return Hidden(packing.unpack(self.final_norm(x_ND), picked), tuple(layers))

    @torch.no_grad()
    def attention_weights(self, ids_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """The attention of every layer and head over one sequence: [layers, H, T, T]."""
        layers = self(Batch(ids_T[None]), keep_layers=True).layers
        weights, side = [], self._side_inputs(torch.arange(len(ids_T), device=ids_T.device))
        side.embeddings = layers[0][0]
        for layer, block in enumerate(self._stack()):
            self._give_values(side, layer, ids_T)
            weights.append(block.attention_weights(layers[layer][0], side))
        return torch.stack(weights)
