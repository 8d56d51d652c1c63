"""The trunk that reads from left to right, h_0 = U W_e + W_p, h_l = block(h_{l-1}).

Its blocks are those of `block.py`. Its state is a decoding cache, which has the keys and values of everything read so
far.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import Batch, Hidden
from foretext.nn.fused import TiedSoftmax, dropout
from foretext.nn.packing import pack
from foretext.nn.transformer.block import Block, SideInputs, StackedTrunk, TransformerConfig
from foretext.nn.transformer.queries import rms_norm, rotation
from foretext.nn.trunk import grown


@dataclass(frozen=True)
class DecodingCache:
    """Keys and values of everything read so far, one pair a layer, each [B, H, T, K]."""

    pairs: tuple[tuple[Tensor, Tensor], ...]
    length: int
    padding_B: Tensor | None = None  # unused positions at the left of each row; None: none


class Transformer(StackedTrunk):
    """Token and position embeddings and a stack of causal blocks."""

    branches = True
    above = ("final_norm.", "output.")

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width) if config.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.final_norm = config.build_norm(config.width) if config.norm == "pre" else nn.Identity()
        with_table = filter(config.has_value_table, range(config.layers))
        self.value_tables = nn.ModuleDict({str(n): nn.Embedding(config.vocabulary, config.width) for n in with_table})
        self.output = nn.Embedding(config.vocabulary, config.width) if config.untied else None
        self.apply(self._initialise)
        if config.zero_residuals:
            self._scale_residuals(0.0)
        elif config.scale_residuals:  # each block adds two terms; scaled, their sum starts with the variance of one
            self._scale_residuals((2 * config.layers) ** -0.5)

    @torch.no_grad()
    def _scale_residuals(self, factor: float) -> None:
        """Multiplies the projections onto the residual stream."""
        for name, parameter in self.named_parameters():
            if name.endswith(("attention.out.weight", "down.weight")):
                parameter.mul_(factor)

    def output_table(self) -> Tensor:
        return self.tokens.weight if self.output is None else self.output.weight

    def output_layer(self) -> TiedSoftmax:
        return TiedSoftmax(self.output_table(), cap=self.config.soft_cap)

    def new_state(self, rows: int) -> DecodingCache:
        """An empty decoding cache; pass it as `state` to have it filled."""
        return DecodingCache((), 0)

    def room(self, state: DecodingCache) -> int:
        """How many more tokens can be read after `state`."""
        return self.config.context - state.length

    def pick(self, state: DecodingCache, rows: Tensor) -> DecodingCache:
        """The cache of these rows, in this order."""
        padding = None if state.padding_B is None else state.padding_B[rows]
        return DecodingCache(tuple((k[rows], v[rows]) for k, v in state.pairs), state.length, padding)

    def forward(self, batch: Batch, state: DecodingCache | None = None, keep_layers: bool = False) -> Hidden:
        if state is not None:
            return self._continue(batch, state, keep_layers)
        packing = pack(batch)
        x = dropout(self._embed(packing.ids_N, packing.positions_N), self.config.dropout, self.training)
        return self._read(x, packing, self._side_inputs(packing.positions_N), keep_layers)

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        x = self.tokens(ids) if self.positions is None else self.tokens(ids) + self.positions(positions)
        return rms_norm(x, None, self.config.epsilon) if self.config.embedding_norm else x

    def _side_inputs(self, positions: Tensor) -> SideInputs:
        if self.config.positions != "rotary":
            return SideInputs()
        head = self.config.width // self.config.heads
        return SideInputs(rotation=rotation(positions, head, self.config.rotary_base, self.tokens.weight.dtype))

    def _give_values(self, side: SideInputs, layer: int, ids: Tensor) -> None:
        if str(layer) in self.value_tables:
            side.values = self.value_tables[str(layer)](ids).unflatten(-1, (self.config.heads, -1))

    def _continue(self, batch: Batch, state: DecodingCache, keep_layers: bool) -> Hidden:
        """Reads new tokens after those in the cache. The first tokens may be padded on the left, later ones not.
        Nothing can follow tokens that do not all see each other: they leave no state. There is no dropout."""
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
        x, side = self._embed(batch.ids_BT, positions), self._side_inputs(positions)
        side.embeddings = x
        layers = [x] if keep_layers else []
        pairs = []
        for index, block in enumerate(self._stack()):
            self._give_values(side, index, batch.ids_BT)
            x, pair = block.step(x, state.pairs[index] if state.pairs else None, attend, side)
            if batch.attend_BTT is None:
                pairs.append(pair)
            if keep_layers:
                layers.append(x)
        after = DecodingCache(tuple(pairs), state.length + length, padding) if pairs else None
        return Hidden(self.final_norm(x), tuple(layers), after)

    def grow_vocabulary(self, size: int) -> None:
        super().grow_vocabulary(size)
        for layer, table in self.value_tables.items():
            assert isinstance(table, nn.Embedding)
            self.value_tables[layer] = grown(table, size, self.draw)
        if self.output is not None:
            self.output = grown(self.output, size, self.draw)


def _attend_real(places_T: Tensor, seen: int, padding_B: Tensor) -> Tensor:
    """[B, T, S]: a new position sees the used positions up to itself; an unused one sees itself."""
    all_S = torch.arange(seen, device=places_T.device)
    before, itself = all_S <= places_T[:, None], all_S == places_T[:, None]
    return (before & (all_S >= padding_B[:, None])[:, None]) | itself
