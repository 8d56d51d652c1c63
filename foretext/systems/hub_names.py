"""A system's representation in a Hugging Face folder: tables of names, no code. `interop/hub.py` reads and writes every
system with its table; a new system adds a table, not a converter."""

from __future__ import annotations

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
    reads: str = ""  # what their head reads, in words
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
        found: dict[str, Theirs] = dict(self.outside)
        for layer in range(1 if self.shared else layers):
            start = self.block.format(layer)
            for ours, theirs in self.inside.items():
                parts = tuple(start + part for part in ([theirs] if isinstance(theirs, str) else theirs))
                found[f"blocks.{layer}.{ours}"] = parts if len(parts) > 1 else parts[0]
        return found

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


# -- OpenAI's ----------------------------------------------------------------------------------------------------------

# GPT and GPT-2 come from the same authors: their names within a block agree.
OPENAI_BLOCK = both(
    {
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "norm1": "ln_1",
        "norm2": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    }
)
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
OPENAI_DEFAULTS = {"layer_norm_epsilon": 1e-5, "initializer_range": 0.02}
OPENAI_DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
OPENAI_FIXED = (  # theirs is GPT's block
    "norm",
    "norm_kind",
    "activation",
    "gated",
    "inner",
    "bias",
    "positions",
    "query_key_norm",
    "values",
    "embedding_norm",
    "embedding_skips",
    "soft_cap",
    "untied",
)
OPENAI_IDS = {"bos_token_id": "end", "eos_token_id": "end"}


def openai_heads(classifier: str, chooser: str) -> dict[str, HubHead]:
    """Their head for labels is a matrix without a bias."""
    labels = HubHead(classifier, {"head.weight": "score.weight"}, "extract", "the last one alone")
    choice = HubHead(
        chooser,
        both({"head": "multiple_choice_head.summary"}),
        "extract",
        "the last one alone",
        automatic=False,
        settings={
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "summary_proj_to_labels": True,
            "summary_activation": None,
        },
    )
    return {"classification": labels, "entailment": labels, "regression": labels, "choice": choice}


# -- later decoders ----------------------------------------------------------------------------------------------------

_LLAMA_PARTS = {
    "attention.out": "self_attn.o_proj",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "up": "mlp.up_proj",
    "gate": "mlp.gate_proj",
    "down": "mlp.down_proj",
}
_LLAMA_CHOICES = {
    "norm": "pre",
    "norm_kind": "rms",
    "activation": "silu",
    "gated": True,
    "bias": False,
    "positions": "rotary",
    "values": "own",
    "embedding_norm": False,
    "embedding_skips": False,
    "soft_cap": 0.0,
    "untied": False,
}


def _decoder(model_type: str, name: str, parts: Mapping[str, str], query_key_norm: bool) -> HubNames:
    """A decoder of Llama's blocks, with the parts `parts`. `name` is the prefix of its class in `transformers`."""
    block: dict[str, Theirs] = {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in parts.items()}
    block["attention.qkv.weight"] = tuple(f"self_attn.{one}_proj.weight" for one in "qkv")
    return HubNames(
        model_type=model_type,
        language_model=f"{name}ForCausalLM",
        heads={},
        prefix="model.",
        outside={"tokens.weight": "embed_tokens.weight", "final_norm.weight": "norm.weight"},
        block="layers.{}.",
        inside=block,
        copies={"lm_head.weight": "tokens.weight"},
        empty=(),
        shape={
            "vocabulary": "vocab_size",
            "layers": "num_hidden_layers",
            "width": "hidden_size",
            "heads": "num_attention_heads",
            "inner": "intermediate_size",
            "context": "max_position_embeddings",
            "epsilon": "rms_norm_eps",
            "init_std": "initializer_range",
            "rotary_base": "rope_theta",
        },
        dropouts=("attention_dropout",),
        defaults={},
        ids=OPENAI_IDS,
        only={"hidden_act": ("silu",), "attention_bias": (False,)},
        must=_LLAMA_CHOICES | {"query_key_norm": query_key_norm},
        derived={"num_key_value_heads": "heads", "head_dim": "head"},
    )


LLAMA = _decoder("llama", "Llama", _LLAMA_PARTS, False)
_NORMED_PARTS = {"attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm"}
QWEN3 = _decoder("qwen3", "Qwen3", _LLAMA_PARTS | _NORMED_PARTS, True)


# -- the masked family -------------------------------------------------------------------------------------------------

_QUERY_KEY_VALUE = ("query", "key", "value")


def stacked(start: str) -> dict[str, tuple[str, ...]]:
    """Their three projections, which are one of ours."""
    return {
        f"attention.qkv.{part}": tuple(f"{start}{name}.{part}" for name in _QUERY_KEY_VALUE)
        for part in ("weight", "bias")
    }


EMBEDDINGS = {
    "tokens.weight": "embeddings.word_embeddings.weight",
    "positions.weight": "embeddings.position_embeddings.weight",
    "segments.weight": "embeddings.token_type_embeddings.weight",
    **both({"norm": "embeddings.LayerNorm"}),
}
# BERT and RoBERTa.
ENCODER_BLOCK: dict[str, Theirs] = {
    **stacked("attention.self."),
    **both(
        {
            "attention.out": "attention.output.dense",
            "norm1": "attention.output.LayerNorm",
            "up": "intermediate.dense",
            "down": "output.dense",
            "norm2": "output.LayerNorm",
        }
    ),
}
ENCODER_SHAPE = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "context": "max_position_embeddings",
    "segments": "type_vocab_size",
    "epsilon": "layer_norm_eps",
    "init_std": "initializer_range",
}
# As in `BertConfig`.
ENCODER_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
ENCODER_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
ENCODER_ONLY: dict[str, tuple[Any, ...]] = {
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "position_embedding_type": ("absolute",),
}
ENCODER_EMPTY = ("position_ids", "token_type_ids")
GELUS = {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
# Names of a norm's parameters in files converted from the released ones.
OLD_NORMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
MAY_LACK = {
    "pooler.": "pooler",
    f"{HEAD}head.": "head for masked tokens",
    f"{HEAD}relation.": "head for pairs of spans",
}
OF_LABELS = ("classification", "entailment", "similarity", "regression")


def token_heads(name: str, without: tuple[str, ...] = ()) -> dict[str, HubHead]:
    """Heads that read every token's state; `name` is the prefix of their classes."""
    return {
        "tagging": HubHead(f"{name}ForTokenClassification", both({"head": "classifier"}), without=without),
        "span": HubHead(f"{name}ForQuestionAnswering", both({"head": "qa_outputs"}), without=without),
    }


def pooler_heads(name: str) -> dict[str, HubHead]:
    """BERT's and ALBERT's: one layer on the pooled state, and the heads over tokens."""
    reads = "the first one through the pooler"
    layer = both({"head": "classifier"})
    labels = HubHead(f"{name}ForSequenceClassification", layer, "pooler", reads)
    choice = HubHead(f"{name}ForMultipleChoice", layer, "pooler", reads)
    return dict.fromkeys(OF_LABELS, labels) | {"choice": choice} | token_heads(name, ("pooler.",))
