"""Tables of names for decoders in Hugging Face folders: OpenAI's GPT and GPT-2, Llama and Qwen3."""

from collections.abc import Mapping
from dataclasses import replace

from foretext.interop.hub_names import HubHead, HubNames, Theirs, both

# -- OpenAI's ----------------------------------------------------------------------------------------------------------

OPENAI_IDS = {"bos_token_id": "end", "eos_token_id": "end"}


def _openai_heads(classifier: str, chooser: str) -> dict[str, HubHead]:
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


GPT = HubNames(
    model_type="openai-gpt",
    language_model="OpenAIGPTLMHeadModel",
    heads=_openai_heads("OpenAIGPTForSequenceClassification", "OpenAIGPTDoubleHeadsModel"),
    prefix="transformer.",
    outside={"tokens.weight": "tokens_embed.weight", "positions.weight": "positions_embed.weight"},
    block="h.{}.",
    inside=both(
        {
            "attention.qkv": "attn.c_attn",
            "attention.out": "attn.c_proj",
            "norm1": "ln_1",
            "norm2": "ln_2",
            "up": "mlp.c_fc",
            "down": "mlp.c_proj",
        }
    ),
    transposed=frozenset(f"{name}.weight" for name in ("attention.qkv", "attention.out", "up", "down")),
    copies={"lm_head.weight": "tokens.weight"},
    empty=(".attn.bias", "position_ids"),
    shape={
        "vocabulary": "vocab_size",
        "layers": "n_layer",
        "width": "n_embd",
        "heads": "n_head",
        "context": "n_positions",
        "epsilon": "layer_norm_epsilon",
        "init_std": "initializer_range",
    },
    dropouts=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    defaults={"layer_norm_epsilon": 1e-5, "initializer_range": 0.02},
    ids=OPENAI_IDS,
    fixed=(  # theirs is GPT's block
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
    ),
    only={"afn": ("gelu",)},  # which is the tanh form there
    last_bias="blocks.{last}.norm2.bias",
)

# The same authors': its names within a block agree.
GPT2 = replace(
    GPT,
    model_type="gpt2",
    language_model="GPT2LMHeadModel",
    heads=_openai_heads("GPT2ForSequenceClassification", "GPT2DoubleHeadsModel"),
    outside={"tokens.weight": "wte.weight", "positions.weight": "wpe.weight", **both({"final_norm": "ln_f"})},
    empty=(".attn.bias", ".attn.masked_bias", "position_ids"),
    only={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    last_bias="final_norm.bias",
)


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
    block["attention.qkv.weight"] = tuple(f"self_attn.{letter}_proj.weight" for letter in "qkv")
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
