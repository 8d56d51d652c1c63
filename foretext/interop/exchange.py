"""`foretext import` and `foretext export`: a run directory from what others wrote, and the other way round.

Word vectors as files that others read: the text of word2vec, that of GloVe, and word2vec's binary form for gensim.

    word2vec   a first line `words width`, then a word and its numbers in each line
    glove      the same without the first line
    gensim     word2vec's binary form: `KeyedVectors.load_word2vec_format(file, binary=True)`

gensim's own `save` is a pickle, which runs what it is told to when it is loaded, so it is not written. Words come in
the order of their frequency, as these libraries expect. Numbers have nine digits, with which a float32 comes back as it
was.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretext.errors import UserError, refuse_if
from foretext.interop.bilm_weights import is_published_elmo, read_published_elmo
from foretext.interop.hub import Foreign, export_hub, read_hub
from foretext.interop.openai_gpt import is_openai_gpt, read_openai_gpt
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import check_space, write_error
from foretext.runs.model import SavedModel, load_model
from foretext.runs.run_config import POSITION, Budget, DataConfig, Position, PretrainConfig, RunConfig
from foretext.runs.run_vectors import words_of
from foretext.systems.base import System, TokenizerConfig
from foretext.systems.hub_names import HEAD
from foretext.text.corpus.text_files import written_aside
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.unigram import Unigram
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.tokenizers.wordpiece import WordPiece

FORMATS = ("hf",)
VECTOR_FORMATS = ("word2vec", "glove", "gensim")
_DIGITS = 14  # bytes of a number as text, at most


def import_model(
    source: str | Path, out: str | Path, allow_pickle: bool = False, notes: list[str] | None = None
) -> Path:
    """Makes a run directory of a folder in one of the layouts that are known; nothing in it is run. What a user must
    know about it is put into `notes`."""
    folder, run = Path(source), RunDirectory(out)
    refuse_if(
        not folder.is_dir(),
        f"{folder}: no such folder; give the folder that holds config.json, GPT's params_shapes.json, or ELMo's "
        "options.json and hdf5 weights",
    )
    refuse_if(
        run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())),
        f"{run.path} is not an empty folder; choose another --out",
    )
    if is_openai_gpt(folder):
        foreign = read_openai_gpt(folder)
    elif is_published_elmo(folder):
        foreign = read_published_elmo(folder)
    else:
        foreign = read_hub(folder, allow_pickle)
    _write(foreign, run, folder)
    if notes is not None:
        notes += foreign.notes
    return run.path


def _write(foreign: Foreign, run: RunDirectory, source: Path) -> None:
    size = _size_of(foreign.system, foreign)
    tokenizer = foreign.tokenizer
    config = PretrainConfig(
        RunConfig("pretrain", foreign.system.name, size, tokenizer=tokenizer.fingerprint()),
        foreign.model,
        tokenizer=_described(tokenizer),
        objective=foreign.system.sizes[size].objective,
        training=foreign.system.sizes[size].pretraining,
        budget=Budget(steps=1),
        data=DataConfig(imported_from=str(source), head_drawn=foreign.head_drawn),
    )
    weights = {name if name.startswith(HEAD) else f"trunk.{name}": weight for name, weight in foreign.weights.items()}
    with run.writer() as writer:
        writer.commit(
            {
                "config.toml": config.text().encode(),
                "tokenizer.json": tokenizer.to_json().encode(),
                "model.safetensors": weights,
                POSITION: (json.dumps(asdict(Position(finished=True)), indent=1) + "\n").encode(),
            }
        )


def _described(tokenizer: Tokenizer) -> TokenizerConfig:
    kind: Any = tokenizer.kind
    lower = TokenizerConfig.lower
    if isinstance(tokenizer, WordPiece | Words):
        lower = tokenizer.lower
    if isinstance(tokenizer, Unigram):
        lower = tokenizer.cleaning.lower
    return TokenizerConfig(kind, tokenizer.size, lower=lower)


def _size_of(system: System, foreign: Foreign) -> str:
    """The named size with this shape, else `paper`, whose settings suit models that others trained."""
    for name, size in system.sizes.items():
        known = dataclasses.replace(size.model, vocabulary=foreign.model.vocabulary, dropout=foreign.model.dropout)
        if known == foreign.model and size.tokenizer.kind == foreign.tokenizer.kind:
            return name
    return "paper"


def export_model(run: str | Path, out: str | Path, to: str = "hf") -> list[str]:
    """Writes the model of a run for others; returns what a user must know about it."""
    if to in VECTOR_FORMATS:
        return export_vectors(load_model(run), Path(out), to)
    refuse_if(to not in FORMATS, f"cannot export to {to!r}; there is {', '.join(FORMATS + VECTOR_FORMATS)}")
    return export_hub(load_model(run), Path(out))


# -- word vectors ------------------------------------------------------------------------------------------------------


def export_vectors(model: SavedModel, out: Path, to: str) -> list[str]:
    """Writes the vectors of a run into a file; returns what a user must know about it."""
    where = str(model.run.path) if model.run else "this model"
    words, matrix = words_of(model, where)
    if out.is_dir():
        raise UserError(f"{out} is a folder; vectors are one file: give --out a name such as {out / 'vectors.txt'}")
    check_space(out, len(words) * (_DIGITS * matrix.shape[1] if to != "gensim" else 4 * matrix.shape[1]))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(out) as file:
            if to != "glove":
                file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
            for word, row in zip(words, matrix):
                if to == "gensim":
                    file.write(word.encode() + b" " + row.astype("<f4").tobytes() + b"\n")
                else:
                    file.write(f"{word} {' '.join(f'{number:.9g}' for number in row.tolist())}\n".encode())
    except OSError as error:
        raise write_error(out, error, 0) from None
    read = {
        "word2vec": "gensim's KeyedVectors.load_word2vec_format reads it, and --vectors here",
        "glove": "gensim's KeyedVectors.load_word2vec_format(…, no_header=True) reads it, and --vectors here",
        "gensim": "KeyedVectors.load_word2vec_format(…, binary=True) reads it; gensim's own save is a pickle",
    }
    return [f"{len(words):,} vectors of {matrix.shape[1]} numbers; {read[to]}"]
