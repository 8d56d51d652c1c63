"""The vectors of words that a run has learned, for what reads vectors out of a file: `--vectors RUN_OR_FILE`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foretext.errors import UserError
from foretext.runs.model import SavedModel, load_model
from foretext.text.words.vectors import WordVectors


def given_vectors(path: str | Path) -> str | Path | WordVectors:
    """What `read_vectors` takes: the vectors of a run, or the file as it was named."""
    if not Path(path).is_dir():
        return path
    words, matrix = words_of(load_model(path), str(path))
    return WordVectors(tuple(words), matrix, read=len(words), where=str(path))


def words_of(model: SavedModel, where: str) -> tuple[list[str], np.ndarray]:
    """The words that have a vector of their own, the most frequent first, and their vectors [words, width]; UserError
    where a word's vector depends on its text."""
    found = None if model.objective is None else model.objective.word_rows(model.trunk)
    if found is None:
        raise UserError(
            f"{where} is of {model.system.name}, whose words have vectors only in a text (foretext features): this "
            "needs a run of pretrain --system word2vec"
        )
    ids, matrix = found
    return [model.tokenizer.piece(id) for id in ids.tolist()], matrix
