"""Tables of names for bidirectional models in Hugging Face folders: BERT, RoBERTa, ALBERT and XLNet."""

from typing import Any

from foretext.interop.hub_names import HEAD, HubHead, HubNames, Theirs, both
from foretext.objectives.permutation import MASK, SEPARATOR, SPEAKER
from foretext.systems import albert, bert, roberta

# -- what BERT, RoBERTa and ALBERT share -------------------------------------------------------------------------------

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
ENCODER_DEFAULTS: dict[str, str | int | float] = {
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
    state = "the first one through the pooler"
    layer = both({"head": "classifier"})
    labels = HubHead(f"{name}ForSequenceClassification", layer, "pooler", state)
    choice = HubHead(f"{name}ForMultipleChoice", layer, "pooler", state)
    return dict.fromkeys(OF_LABELS, labels) | {"choice": choice} | token_heads(name, ("pooler.",))


# -- BERT --------------------------------------------------------------------------------------------------------------

BERT = HubNames(
    model_type="bert",
    language_model="BertForPreTraining",
    heads=pooler_heads("Bert"),
    prefix="bert.",
    outside=EMBEDDINGS | both({"pooler": "pooler.dense"}),
    block="encoder.layer.{}.",
    inside=ENCODER_BLOCK,
    copies={
        "cls.predictions.decoder.weight": "tokens.weight",
        "cls.predictions.decoder.bias": "task.head.bias",
    },
    empty=ENCODER_EMPTY,
    shape=ENCODER_SHAPE,
    dropouts=ENCODER_DROPOUTS,
    defaults=ENCODER_DEFAULTS,
    ids={"pad_token_id": "pad"},
    only=ENCODER_ONLY,
    worded={"gelu": ("hidden_act", GELUS)},
    least={"intermediate_size": 1, "type_vocab_size": 2},
    fixed=("embedding", "first_position", "shared", "pooler"),
    pretraining={
        **both(
            {
                "head.dense": "cls.predictions.transform.dense",
                "head.norm": "cls.predictions.transform.LayerNorm",
                "relation": "cls.seq_relationship",
            }
        ),
        "head.bias": "cls.predictions.bias",
    },
    bare="BertModel",
    absent=MAY_LACK,
    endings=OLD_NORMS,
    vocabularies=("WordPiece", "Unigram"),
    needs=bert.SPECIALS,
)


# -- RoBERTa -----------------------------------------------------------------------------------------------------------

_FIRST_STATE = "the first one through a tanh layer"
ROBERTA = HubNames(
    model_type="roberta",
    language_model="RobertaForMaskedLM",
    heads={
        **dict.fromkeys(
            OF_LABELS,
            HubHead(
                "RobertaForSequenceClassification",
                both({"dense": "classifier.dense", "head": "classifier.out_proj"}),
                "extract",
                _FIRST_STATE,
                hidden=True,
            ),
        ),
        # Their pooler is the tanh layer here.
        "choice": HubHead(
            "RobertaForMultipleChoice",
            both({"dense": "roberta.pooler.dense", "head": "classifier"}),
            "extract",
            _FIRST_STATE,
            hidden=True,
        ),
        **token_heads("Roberta"),
    },
    prefix="roberta.",
    outside=EMBEDDINGS,
    block="encoder.layer.{}.",
    inside=ENCODER_BLOCK,
    copies={"lm_head.decoder.weight": "tokens.weight", "lm_head.decoder.bias": "task.head.bias"},
    empty=ENCODER_EMPTY,
    shape=ENCODER_SHAPE,
    dropouts=ENCODER_DROPOUTS,
    defaults=ENCODER_DEFAULTS | {"vocab_size": 50265, "pad_token_id": 1},
    ids={"pad_token_id": "pad", "bos_token_id": "cls", "eos_token_id": "sep"},
    only=ENCODER_ONLY,
    worded={"gelu": ("hidden_act", {"gelu": "erf"})},  # their head supports no other, whatever the blocks have
    least={"intermediate_size": 1, "type_vocab_size": 1},
    fixed=("embedding", "shared", "pooler"),
    after_padding=True,
    pretraining={
        **both({"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm"}),
        "head.bias": "lm_head.bias",
    },
    bare="RobertaModel",
    absent=MAY_LACK,
    ignored=("pooler.",),  # never trained
    endings=OLD_NORMS,
    needs=roberta.SPECIALS,
)


# -- ALBERT ------------------------------------------------------------------------------------------------------------

ALBERT = HubNames(
    model_type="albert",
    language_model="AlbertForPreTraining",
    heads=pooler_heads("Albert"),
    prefix="albert.",
    outside=EMBEDDINGS | both({"project": "encoder.embedding_hidden_mapping_in", "pooler": "pooler"}),
    block="encoder.albert_layer_groups.{}.albert_layers.0.",
    inside={
        **stacked("attention."),
        **both(
            {
                "attention.out": "attention.dense",
                "norm1": "attention.LayerNorm",
                "up": "ffn",
                "down": "ffn_output",
                "norm2": "full_layer_layer_norm",
            }
        ),
    },
    copies={"predictions.decoder.weight": "tokens.weight", "predictions.decoder.bias": "task.head.bias"},
    empty=ENCODER_EMPTY,
    shape=ENCODER_SHAPE | {"embedding": "embedding_size"},
    dropouts=ENCODER_DROPOUTS,
    defaults=ENCODER_DEFAULTS
    | {
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    ids={"pad_token_id": "pad", "bos_token_id": "cls", "eos_token_id": "sep"},
    only={"num_hidden_groups": (1,), "inner_group_num": (1,), "position_embedding_type": ("absolute",)},
    worded={"gelu": ("hidden_act", GELUS)},
    least={"intermediate_size": 1, "embedding_size": 1, "type_vocab_size": 2},
    fixed=("first_position", "shared", "pooler"),
    shared=True,
    pretraining={
        **both(
            {
                "head.dense": "predictions.dense",
                "head.norm": "predictions.LayerNorm",
                "relation": "sop_classifier.classifier",
            }
        ),
        "head.bias": "predictions.bias",
    },
    bare="AlbertModel",
    absent=MAY_LACK,
    vocabularies=("Unigram", "WordPiece"),
    needs=albert.SPECIALS,
)


# -- XLNet -------------------------------------------------------------------------------------------------------------

_LAST_STATE = "the last one through a tanh layer"
_LAYERS = both({"dense": "sequence_summary.summary", "head": "logits_proj"})
_SUMMARY = {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"}
_LABELS = HubHead("XLNetForSequenceClassification", _LAYERS, "extract", _LAST_STATE, hidden=True, settings=_SUMMARY)
_OF_HEADS = ("width", "heads", "head")
XLNET = HubNames(
    model_type="xlnet",
    language_model="XLNetLMHeadModel",
    heads={
        **dict.fromkeys(OF_LABELS, _LABELS),
        "choice": HubHead("XLNetForMultipleChoice", _LAYERS, "extract", _LAST_STATE, hidden=True, settings=_SUMMARY),
        "tagging": HubHead("XLNetForTokenClassification", both({"head": "classifier"})),
        "span": HubHead("XLNetForQuestionAnsweringSimple", both({"head": "qa_outputs"})),
    },
    prefix="transformer.",
    outside={"tokens.weight": "word_embedding.weight", "query": "mask_emb"},
    block="layer.{}.",
    inside={
        **{
            f"attention.{ours}.weight": f"rel_attn.{theirs}"
            for ours, theirs in {"query": "q", "key": "k", "value": "v", "distance": "r", "out": "o"}.items()
        },
        "attention.content": "rel_attn.r_w_bias",
        "attention.position": "rel_attn.r_r_bias",
        "attention.segment": "rel_attn.r_s_bias",
        "attention.segments": "rel_attn.seg_embed",
        **both({"norm1": "rel_attn.layer_norm", "up": "ff.layer_1", "down": "ff.layer_2", "norm2": "ff.layer_norm"}),
    },
    axes={
        "query": ("one", "one", "width"),
        **{f"attention.{name}.weight": _OF_HEADS for name in ("query", "key", "value", "distance", "out")},
        **{f"attention.{name}": ("heads", "head") for name in ("content", "position", "segment")},
    },
    transposed=frozenset(f"attention.{name}.weight" for name in ("query", "key", "value", "distance")),
    copies={"lm_loss.weight": "tokens.weight"},
    empty=(),
    shape={
        "vocabulary": "vocab_size",
        "layers": "n_layer",
        "width": "d_model",
        "heads": "n_head",
        "inner": "d_inner",
        "context": "foretext_context",  # theirs has none
        "memory": "mem_len",
        "epsilon": "layer_norm_eps",
        "init_std": "initializer_range",
    },
    dropouts=("dropout",),
    defaults={  # As in `XLNetConfig`, except its memory, which published folders set to null
        "vocab_size": 32000,
        "n_layer": 24,
        "d_model": 1024,
        "n_head": 16,
        "d_inner": 4096,
        "ff_activation": "gelu",
        "dropout": 0.1,
        "foretext_context": 512,
        "mem_len": 384,
        "layer_norm_eps": 1e-12,
        "initializer_range": 0.02,
        "pad_token_id": 5,
    },
    unsaid=("mem_len",),
    ids={"pad_token_id": "pad"},
    only={
        "attn_type": ("bi",),
        "bi_data": (False,),
        "clamp_len": (-1,),
        "same_length": (False,),
        "untie_r": (True,),
    },
    worded={"gelu": ("ff_activation", GELUS)},
    least={"d_inner": 1},
    pretraining={"head.bias": "lm_loss.bias"},
    bare="XLNetModel",
    absent={f"{HEAD}head.": "output bias"},
    vocabularies=("Unigram",),
    needs=(SPEAKER, SEPARATOR, MASK),
)
