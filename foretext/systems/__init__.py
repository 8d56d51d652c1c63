"""One file per paper; this dictionary lists them all."""

from foretext.errors import UserError, closest, refuse_if
from foretext.plan import VIEWS_ALONE
from foretext.systems.albert import ALBERT
from foretext.systems.base import Size, System
from foretext.systems.bert import BERT
from foretext.systems.cove import COVE
from foretext.systems.cvt import CVT
from foretext.systems.electra import ELECTRA
from foretext.systems.elmo import ELMO
from foretext.systems.gpt import GPT
from foretext.systems.gpt2 import GPT2
from foretext.systems.modern import MODERN
from foretext.systems.roberta import ROBERTA
from foretext.systems.transformer_xl import TRANSFORMER_XL
from foretext.systems.ulmfit import ULMFIT
from foretext.systems.word2vec import WORD2VEC
from foretext.systems.xlnet import XLNET

SYSTEMS: dict[str, System] = {
    "word2vec": WORD2VEC,
    "gpt": GPT,
    "gpt2": GPT2,
    "modern": MODERN,
    "bert": BERT,
    "roberta": ROBERTA,
    "albert": ALBERT,
    "electra": ELECTRA,
    "ulmfit": ULMFIT,
    "elmo": ELMO,
    "cove": COVE,
    "cvt": CVT,
    "transformer_xl": TRANSFORMER_XL,
    "xlnet": XLNET,
}

DEFAULT = GPT.name  # without --system


def system_named(name: str) -> System:
    refuse_if(
        name == VIEWS_ALONE,
        "views are learned from text and labelled rows in one command: foretext finetune ROWS --system views "
        "--text TEXT --task …; use that, or name another system",
    )
    if name not in SYSTEMS:
        near = closest(name, (*SYSTEMS, VIEWS_ALONE))
        hint = f", and under finetune {VIEWS_ALONE}" + (f"; did you mean {near}?" if near else "")
        raise UserError(f"there is no system {name!r} (there are: {', '.join(SYSTEMS)}){hint}")
    return SYSTEMS[name]


def word_system() -> System:
    """The system that learns vectors of whole words, for views and beside a language model."""
    return next(system for system in SYSTEMS.values() if system.learns_words)


def size_named(system: System, name: str) -> Size:
    refuse_if(name not in system.sizes, f"{system.name} has no size {name!r}; it has: {', '.join(system.sizes)}")
    return system.sizes[name]
