"""The causal transformer trunk: h_0 = U W_e + W_p, h_l = block(h_{l-1}).

One trunk for the post-norm GPT and the pre-norm GPT-2: the papers differ in where the norm stands and in a final
norm, nothing else. It works on packed tokens (see `packing`), never sees a loss, and carries a decoding cache as its
state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.errors import UserError
from foretext.nn.attention import causal_attention
from foretext.nn.dropout import add_dropped, dropout
from foretext.nn.feed_forward import feed_forward
from foretext.nn.linear import linear
from foretext.nn.packing import MoveRows, MoveRowsBack, Packing, pack

# Of the shape: far beyond what can be trained, and below where its size overflows or takes long to work out.
MOST = {"layers": 1_000, "width": 100_000_000, "heads": 100_000_000, "context": 100_000_000}


@dataclass(frozen=True)
class TransformerConfig:
    vocabulary: int
    layers: int
    width: int
    heads: int
    context: int
    dropout: float = 0.1  # after the embeddings, on the attention weights, before each residual addition
    norm: Literal["post", "pre"] = "post"
    epsilon: float = 1e-5
    init_std: float = 0.02
    scale_residuals: bool = False  # whether projections onto the residual stream start 1/√(2 × layers) as large

    def check(self) -> None:
        for name, most in MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise UserError(f"model.{name} must be at least 1 and at most {most:,}, not {getattr(self, name)}")
        if self.width % self.heads:
            raise UserError(f"model.width={self.width} must be a multiple of model.heads={self.heads}")
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"training.dropout must be at least 0 and below 1, not {self.dropout}")
        for name, largest in (("init_std", 10), ("epsilon", 1)):
            if not 0.0 < getattr(self, name) <= largest:
                raise UserError(f"model.{name} must be above 0 and at most {largest}, not {getattr(self, name)}")

    def describe(self) -> str:
        return f"{self.layers} blocks, width {self.width}, {self.heads} heads, context {self.context}"

    def parameters(self) -> int:
        width = self.width
        final = 2 * width if self.norm == "pre" else 0
        return (self.vocabulary + self.context) * width + self.layers * width * (12 * width + 13) + final

    def activations(self, tokens: int) -> int:
        weights = 4 * self.heads * self.context if self.dropout else 0  # of attention: fused, none is kept
        return tokens * self.layers * (34 * self.width + weights)


@dataclass(frozen=True)
class DecodingCache:
    """Keys and values of everything read so far, one pair a layer, each [B, H, T, K]."""

    pairs: tuple[tuple[Tensor, Tensor], ...]
    length: int
    padding_B: Tensor | None = None  # places at the left of each row that hold nothing; None: none do


class Attention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.p = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x_ND: Tensor, packing: Packing) -> Tensor:
        p = self.p if self.training else 0.0
        qkv_N3HK = linear(x_ND, self.qkv).unflatten(1, (3, self.heads, -1))
        if packing.to_groups is None or packing.from_groups is None:
            return linear(causal_attention(qkv_N3HK, packing.groups, p).flatten(1), self.out)
        grouped = MoveRows.apply(qkv_N3HK, packing.to_groups, packing.from_groups)
        mixed = causal_attention(grouped, packing.groups, p).flatten(1)
        return linear(MoveRowsBack.apply(mixed, packing.from_groups), self.out)

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
        """What each position of one sequence sees of those before it: [H, T, T], rows add up to 1."""
        q, k, _ = self.qkv(x_TD).view(len(x_TD), 3, self.heads, -1).permute(1, 2, 0, 3)
        scores_HTT = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        hidden = torch.ones(len(x_TD), len(x_TD), dtype=torch.bool, device=x_TD.device).triu(1)
        return scores_HTT.masked_fill(hidden, -torch.inf).softmax(-1)


class Block(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.p = config.dropout
        self.attention = Attention(config)
        self.norm1 = nn.LayerNorm(config.width, eps=config.epsilon)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)
        self.norm2 = nn.LayerNorm(config.width, eps=config.epsilon)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return feed_forward(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        if self.pre:
            x = add_dropped(x, self.attention(self.norm1(x), packing), self.p, self.training)
            return add_dropped(x, self._feed_forward(self.norm2(x)), self.p, self.training)
        x = self.norm1(add_dropped(x, self.attention(x, packing), self.p, self.training))
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


class Transformer(nn.Module):
    """Token and position embeddings and a stack of causal blocks."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, eps=config.epsilon) if config.norm == "pre" else nn.Identity()
        self.apply(self._initialise)
        if config.scale_residuals:
            self._scale_residuals()

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.init_std)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    @torch.no_grad()
    def _scale_residuals(self) -> None:
        """Each block adds two terms to the residual stream; scaled so, the sum has one term's variance at the start."""
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.out.weight", "down.weight")):
                parameter.mul_((2 * self.config.layers) ** -0.5)

    def new_state(self, rows: int) -> DecodingCache:
        """An empty decoding cache; pass it as `state` to have it filled."""
        return DecodingCache((), 0)

    def room(self, state: DecodingCache) -> int:
        """Tokens that can still be read after `state`."""
        return self.config.context - state.length

    def pick(self, state: DecodingCache, rows: Tensor) -> DecodingCache:
        """The cache of these rows, in this order."""
        padding = None if state.padding_B is None else state.padding_B[rows]
        return DecodingCache(tuple((k[rows], v[rows]) for k, v in state.pairs), state.length, padding)

    def forward(self, batch: Batch, state: DecodingCache | None = None, keep_layers: bool = False) -> Hidden:
        if state is not None:
            return self._continue(batch, state, keep_layers)
        packing = pack(batch)
        x = self.tokens(packing.ids_N) + self.positions(packing.positions_N)
        x = dropout(x, self.config.dropout, self.training)
        layers = [packing.unpack(x)] if keep_layers else []
        for block in self.blocks:
            x = block(x, packing)
            if keep_layers:
                layers.append(packing.unpack(x))
        return Hidden(packing.unpack(self.final_norm(x)), tuple(layers))

    def _continue(self, batch: Batch, state: DecodingCache, keep_layers: bool) -> Hidden:
        """Reads new tokens after those in the cache. What is read first may be padded, on the left; later tokens not.
        After tokens that do not all see each other nothing can follow: they leave no state. Nothing is dropped out."""
        padding = state.padding_B
        if batch.mask_BT is not None:
            assert not state.length, "padding stands before everything else"
            padding = (~batch.mask_BT).sum(1)
        length = batch.ids_BT.shape[1]
        places = torch.arange(state.length, state.length + length, device=batch.ids_BT.device)
        positions, attend = batch.positions_BT, batch.attend_BTT
        if positions is None:
            positions = places if padding is None else (places - padding[:, None]).clamp(min=0)
        if padding is not None:
            assert attend is None
            attend = _attend_real(places, state.length + length, padding)
        elif attend is not None:
            attend = F.pad(attend, (state.length, 0), value=True)
        x = self.tokens(batch.ids_BT) + self.positions(positions)
        layers = [x] if keep_layers else []
        pairs = []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x, pair = block.step(x, state.pairs[index] if state.pairs else None, attend)
            if batch.attend_BTT is None:
                pairs.append(pair)
            if keep_layers:
                layers.append(x)
        after = DecodingCache(tuple(pairs), state.length + length, padding) if pairs else None
        return Hidden(self.final_norm(x), tuple(layers), after)

    @torch.no_grad()
    def attention_weights(self, ids_T: Tensor) -> Tensor:
        """The attention of every block and head over one sequence: [blocks, H, T, T]."""
        layers = self(Batch(ids_T[None]), keep_layers=True).layers
        found = []
        for block, x_1TD in zip(self.blocks, layers):
            assert isinstance(block, Block)
            found.append(block.attention.weights(block.norm1(x_1TD[0]) if block.pre else x_1TD[0]))
        return torch.stack(found)

    def output_table(self) -> Tensor:
        """W_e, which is also the output layer."""
        return self.tokens.weight

    def layer_groups(self) -> list[list[str]]:
        """Parameter names from the bottom (embeddings) to the top (last block and final norm)."""
        names = [name for name, _ in self.named_parameters()]
        groups = [[name for name in names if name.startswith(("tokens.", "positions."))]]
        for layer in range(self.config.layers):
            groups.append([name for name in names if name.startswith(f"blocks.{layer}.")])
        groups[-1] += [name for name in names if name.startswith("final_norm.")]
        return groups

    def grow_vocabulary(self, size: int) -> None:
        """Adds embedding rows, drawn like new ones, up to `size` (fine-tuning's start, delimiter and extract)."""
        old = self.tokens.weight
        fresh = torch.empty(size - old.shape[0], old.shape[1], dtype=old.dtype, device=old.device)
        nn.init.normal_(fresh, std=self.config.init_std)
        self.tokens = nn.Embedding.from_pretrained(torch.cat([old.detach(), fresh]), freeze=False)


def _attend_real(places_T: Tensor, seen: int, padding_B: Tensor) -> Tensor:
    """[B, T, S]: a new place sees those up to itself that hold something; one that holds nothing sees itself."""
    all_S = torch.arange(seen, device=places_T.device)
    before = all_S[None, :] <= places_T[:, None]
    real = all_S[None, :] >= padding_B[:, None]
    itself = all_S[None, :] == places_T[:, None]
    return (before[None] & real[:, None]) | itself[None]
