"""How a system is written in a Hugging Face folder: tables of names, no code. `interop/hub.py` reads and writes every
system by its table; a new system adds a table, not a converter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class HubNames:
    """Names are given as ours → theirs. A matrix that is `transposed` stands the other way round over there."""

    model_type: str  # in config.json
    language_model: str  # class in `transformers` with the language-model head
    classifier: str  # class with a head for labels, which reads the last token's state
    chooser: str  # class with a head that gives each choice a score; no automatic class loads it
    prefix: str  # before all of their names but those of heads
    outside: Mapping[str, str]  # parameters outside the blocks
    block: str  # what their names in a block begin with; {} is its number
    inside: Mapping[str, str]  # parameters of a block
    transposed: frozenset[str]  # ours, inside a block
    copies: tuple[str, ...]  # theirs, which repeat the token table
    empty: tuple[str, ...]  # endings of theirs that are no weights: masks, position numbers
    shape: Mapping[str, str]  # fields of our configuration → keys of config.json
    dropouts: tuple[str, ...]  # keys of config.json, all of which are our one dropout
    only: Mapping[str, tuple[Any, ...]] = field(
        default_factory=dict
    )  # keys → values that our trunk has; first: written
    last_bias: str = ""  # ours: the vector that is added last, before the head reads the state

    def names(self, layers: int) -> dict[str, str]:
        """Every parameter of a trunk: our name → theirs, without the prefix."""
        found = dict(self.outside)
        for layer in range(layers):
            for ours, theirs in self.inside.items():
                found[f"blocks.{layer}.{ours}"] = self.block.format(layer) + theirs
        return found

    def is_transposed(self, ours: str) -> bool:
        return ours.startswith("blocks.") and ours.split(".", 2)[2] in self.transposed


_BLOCK = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm1": "ln_1",
    "norm2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}

# GPT and GPT-2 were written by the same hands: inside a block their names agree.
OPENAI_BLOCK = {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in _BLOCK.items() for part in ("weight", "bias")}
OPENAI_TRANSPOSED = frozenset(f"{name}.weight" for name in ("attention.qkv", "attention.out", "up", "down"))
OPENAI_SHAPE = {
    "vocabulary": "vocab_size",
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
    "context": "n_positions",
    "epsilon": "layer_norm_epsilon",
    "init_std": "initializer_range",
}
OPENAI_DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
