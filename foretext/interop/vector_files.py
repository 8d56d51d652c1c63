"""Word vectors as files that others read: the text of word2vec, that of GloVe, and word2vec's binary form for gensim.

    word2vec   a first line `words width`, then a word and its numbers in each line
    glove      the same without the first line
    gensim     word2vec's binary form: `KeyedVectors.load_word2vec_format(file, binary=True)`

gensim's own `save` is a pickle, which runs what it is told to when it is loaded, so it is not written. Words come in
the order of their frequency, as these libraries expect. Numbers have nine digits, with which a float32 comes back as it
was.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from foretext.errors import UserError
from foretext.runs.machine import check_space, write_error
from foretext.runs.model import SavedModel
from foretext.runs.run_vectors import words_of

FORMATS = ("word2vec", "glove", "gensim")
_DIGITS = 14  # bytes of a number as text, at most


def export_vectors(model: SavedModel, out: Path, to: str) -> list[str]:
    """Writes the vectors of a run into a file; returns what a user must know about it."""
    where = str(model.run.path) if model.run else "this model"
    words, matrix = words_of(model, where)
    if out.is_dir():
        raise UserError(f"{out} is a folder; vectors are one file: give --out a name such as {out / 'vectors.txt'}")
    check_space(out, len(words) * (_DIGITS * matrix.shape[1] if to != "gensim" else 4 * matrix.shape[1]))
    with _whole(out) as file:
        if to != "glove":
            file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, matrix):
            if to == "gensim":
                file.write(word.encode() + b" " + row.astype("<f4").tobytes() + b"\n")
            else:
                file.write(f"{word} {' '.join(f'{number:.9g}' for number in row.tolist())}\n".encode())
    read = {
        "word2vec": "gensim's KeyedVectors.load_word2vec_format reads it, and --vectors here",
        "glove": "gensim's KeyedVectors.load_word2vec_format(…, no_header=True) reads it, and --vectors here",
        "gensim": "KeyedVectors.load_word2vec_format(…, binary=True) reads it; gensim's own save is a pickle",
    }
    return [f"{len(words):,} vectors of {matrix.shape[1]} numbers; {read[to]}"]


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A file that is there whole or not at all."""
    staging = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, staging = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(staging).chmod(path.parent.stat().st_mode & 0o666)
        Path(staging).replace(path)
    except BaseException as error:
        if staging is not None:
            Path(staging).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise write_error(path, error) from None
        raise
