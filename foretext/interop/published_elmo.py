"""ELMo as it was published (AllenNLP, bilm-tf): a folder with `…options….json`, `…weights….hdf5` and perhaps a
vocabulary, `…vocab….txt`, a word a line.

The weights read words by their characters, so any word can be read and no vocabulary is needed. The softmax was never
published: one over the words of the vocabulary, if there is one, is drawn, and knows nothing until it is trained. Words
are what stands between white space, for the texts that the model has learned from were split by another program.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from foretext.errors import UserError
from foretext.interop.bilm_weights import load_bilm
from foretext.interop.hub import Foreign
from foretext.nn.recurrent.bilm_trunk import BilmTrunkConfig
from foretext.systems.base import ObjectiveParts
from foretext.systems.elmo import ELMO
from foretext.systems.hub_names import HEAD
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.published import read_pieces
from foretext.text.tokenizers.word_vocabulary import PUBLISHED_SPECIALS, words_of

_OPTIONS, _WEIGHTS, _VOCABULARY = "*options*.json", "*weights*.hdf5", "*vocab*.txt"


def is_published_elmo(folder: Path) -> bool:
    return any(folder.glob("*.hdf5")) and not (folder / "config.json").exists()


def read_published_elmo(folder: Path) -> Foreign:
    options, weights = _one(folder, _OPTIONS, "ELMo's options"), _one(folder, _WEIGHTS, "ELMo's weights")
    words = _words(folder)
    tokenizer = words_of(words, lower=False, split="spaces", names=PUBLISHED_SPECIALS)
    bilm = load_bilm(options, weights)
    shape = bilm.config
    model = BilmTrunkConfig(
        vocabulary=tokenizer.size,
        layers=shape.layers,
        cells=shape.cells,
        cell_clip=shape.cell_clip,
        state_clip=shape.state_clip,
        residual=shape.residual,
        words=shape.words,
    )
    found = {f"bilm.{name}": tensor for name, tensor in bilm.state_dict().items()}
    split = (
        "words are what stands between spaces: set signs apart from words first, as in the texts that it was made of"
    )
    return Foreign(
        ELMO,
        model,
        tokenizer,
        found | _drawn_softmax(model, tokenizer),
        str(weights),
        lacking=("softmax",),
        head_drawn=True,
        notes=(split,),
    )


def _one(folder: Path, pattern: str, what: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found)
        several = f"several files could be {what} ({names}); leave one" if found else f"no {pattern} here, {what}"
        raise UserError(f"{folder}: {several}")
    return found[0]


def _words(folder: Path) -> list[str]:
    """The words of the vocabulary, each once; none where there is no file."""
    if not any(folder.glob(_VOCABULARY)):
        return []
    lines = read_pieces(_one(folder, _VOCABULARY, "the vocabulary"))
    return list(dict.fromkeys(word for line in lines if (word := line.strip())))


def _drawn_softmax(model: BilmTrunkConfig, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        objective = ELMO.build_objective(ObjectiveParts(model, ELMO.sizes["paper"].objective, tokenizer))
    return {HEAD + name: tensor for name, tensor in objective.state_dict().items()}
