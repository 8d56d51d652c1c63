"""What a table of names says about a system's folders in Hugging Face's format. `hub.py` reads and writes every system
with its table (`TABLES`); a new system adds a table, not a converter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Theirs = str | tuple[str, ...]  # several of theirs, concatenated, are one of ours
HEAD = "task."  # prefix of our names for the objective's parameters, as in a run's model.safetensors


@dataclass(frozen=True)
class HubHead:
    """The head of a fine-tuned model: its class, and the names of its layers there."""

    model: str  # class in `transformers`
    names: Mapping[str, str]  # the task's parameters, ours → theirs, prefix and all; a bias without a name: `last_bias`
    pooling: str = ""  # the `transfer.pooling` that it needs; empty: it reads every token
    state: str = ""  # the state that their head reads, in words
    hidden: bool = False  # whether a tanh layer stands before W_y (`transfer.head=hidden`)
    without: tuple[str, ...] = ()  # prefixes of our trunk names that this class does not have
    automatic: bool = True  # whether an automatic class loads it
    settings: Mapping[str, Any] = field(default_factory=dict)  # further keys of config.json


@dataclass(frozen=True)
class HubNames:
    """Names are given as ours → theirs. A `transposed` matrix is stored transposed there."""

    model_type: str  # in config.json
    language_model: str  # class in `transformers` with all pre-training heads
    heads: Mapping[str, HubHead]  # kinds of task → their head for it

    # Tensors.
    prefix: str  # prefix of all their names except those of heads
    outside: Mapping[str, str]  # parameters outside the blocks
    block: str  # prefix of their names in a block; {} is its number
    inside: Mapping[str, Theirs]  # parameters of a block
    copies: Mapping[str, str]  # theirs that copy another → our name for the original
    empty: tuple[str, ...]  # endings of theirs that are not weights: masks, position numbers

    # config.json.
    shape: Mapping[str, str]  # fields of our configuration → keys
    dropouts: tuple[str, ...]  # keys that all equal our one dropout
    defaults: Mapping[str, Any]  # keys that may be missing → their default
    ids: Mapping[str, str]  # keys → what the special token is for whose id they have (`interop/hub_tokenizer.py`)
    # keys → values that ours supports; the first is written
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    worded: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)  # fields → key, theirs → ours
    unsaid: tuple[str, ...] = ()  # keys that may be null, which means nothing
    least: Mapping[str, int] = field(default_factory=dict)  # keys → the smallest number that ours supports
    fixed: tuple[str, ...] = ()  # fields of our configuration that must be the system's own: theirs has no other
    must: Mapping[str, Any] = field(default_factory=dict)  # fields of our configuration → the value they must have
    derived: Mapping[str, str] = field(default_factory=dict)  # keys → words of `sizes`
    after_padding: bool = False  # positions are counted from the padding's id on (RoBERTa)

    # Only for some systems.
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ours → the axes of theirs: `sizes`
    transposed: frozenset[str] = frozenset()  # ours, within a block
    shared: bool = False  # all layers share one block
    pretraining: Mapping[str, str] = field(default_factory=dict)  # the objective's parameters; theirs have no prefix
    bare: str = ""  # class without heads, for a model whose objective has no trained head
    absent: Mapping[str, str] = field(default_factory=dict)  # prefixes of ours that a folder may lack → what they are
    ignored: tuple[str, ...] = ()  # prefixes of theirs that ours does not use
    endings: Mapping[str, str] = field(default_factory=dict)  # old endings of theirs → their new ones
    last_bias: str = ""  # ours: the vector that is added last before the head reads the state

    # The tokenizer.
    vocabularies: tuple[str, ...] = ("BPE",)  # kinds of the `tokenizers` library that are supported
    needs: tuple[str, ...] = ()  # required special tokens

    def names(self, layers: int) -> dict[str, Theirs]:
        """Every parameter of a trunk: our name → theirs, without the prefix."""
        by_ours: dict[str, Theirs] = dict(self.outside)
        for layer in range(1 if self.shared else layers):
            start = self.block.format(layer)
            for ours, theirs in self.inside.items():
                parts = tuple(start + part for part in ([theirs] if isinstance(theirs, str) else theirs))
                by_ours[f"blocks.{layer}.{ours}"] = parts if len(parts) > 1 else parts[0]
        return by_ours

    def head_names(self) -> dict[str, Theirs]:
        """Every parameter of the objective: our name → theirs."""
        return {HEAD + ours: theirs for ours, theirs in self.pretraining.items()}

    def is_transposed(self, ours: str) -> bool:
        return ours.startswith("blocks.") and ours.split(".", 2)[2] in self.transposed

    def shape_of(self, ours: str, model: Any) -> list[int] | None:
        """The shape of theirs, where it is not ours: of each part, if ours has several."""
        name = ours.split(".", 2)[2] if ours.startswith("blocks.") else ours
        if name not in self.axes:
            return None
        return [sizes(model)[axis] for axis in self.axes[name]]

    def plain(self, theirs: str) -> str:
        """A name of theirs without the prefix, if it has it, and with the newer of its endings."""
        name = theirs.removeprefix(self.prefix)
        for old, new in self.endings.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        return name

    def whole(self, ours: str, theirs: str) -> str:
        """A name as their class with the heads has it."""
        return theirs if ours.startswith(HEAD) else self.prefix + theirs


def sizes(model: Any) -> dict[str, int]:
    """Numbers of our configuration, by their words in the tables."""
    return {"one": 1, "two": 2, "width": model.width, "heads": model.heads, "head": model.width // model.heads}


def both(names: Mapping[str, str]) -> dict[str, str]:
    """Layers, ours → theirs, as their weights and biases."""
    return {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in names.items() for part in ("weight", "bias")}
