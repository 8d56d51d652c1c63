"""Unlabelled text as sentences, to learn from beside labelled rows: a line each, or the words of files of columns.

The command line (`--unlabelled`) and Python (`foretext.read_sentences`) read it by the same function, so that the same
files give the same sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretext.errors import UserError
from foretext.tasks.family import Progress
from foretext.tasks.files.conll import are_columns, read_conll
from foretext.text.corpus.readers import ReadOptions, all_documents
from foretext.text.corpus.text_files import TextFile, find_files, unpacked_beginning
from foretext.text.corpus.whole_files import ERRORS

_BEGINNING, _LINES = 1 << 16, 500  # bytes, and lines of them, that tell columns from running text


def read_sentences(
    files: str | Path | Sequence[str | Path],
    errors: str = "strict",
    progress: Progress | None = None,
    notes: list[str] | None = None,
) -> list[str]:
    """The sentences of text files (also folders and globs): one a line, of tables one a row; of files of columns, as
    labelled ones are, the words of each. `errors`: bytes that are not UTF-8, "strict" or "replace". `notes` collects
    what is to be said."""
    if errors not in ERRORS:
        raise UserError(f"errors must be {' or '.join(ERRORS)}, not {errors!r}")
    said: list[str] = [] if notes is None else notes
    plain: list[TextFile] = []
    words: list[str] = []
    for file in find_files([files] if isinstance(files, str | Path) else list(files)):
        start = unpacked_beginning(file, _BEGINNING).decode("utf-8", "replace").splitlines()[:_LINES]
        if file.kind != "txt" or not are_columns(start):
            plain.append(file)
            continue
        rows = read_conll(file.path, errors=errors, need_tags=False, notes=said)
        said.append(f"{file.path}: columns, of which the words are read ({len(rows):,} sentences) and no tags")
        words += [" ".join(row.words) for row in rows]
    lines = all_documents(plain, ReadOptions(documents="line", errors=errors), progress, said) if plain else []
    return [*lines, *words]
