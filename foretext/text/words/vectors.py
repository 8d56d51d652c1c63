"""Word vectors from the text files of GloVe, word2vec and fastText: each line has a word and its numbers.

The file may be gzipped. A first line of two integers is word2vec's header (number and width of the vectors), which the
file must match. Otherwise the width is the most common one in the first lines. Some words of the published GloVe files
contain spaces (". . ."). A word is everything before the last `width` numbers, but it must not end in a number, which
would be one number too many. If a word occurs twice, its first vector is used.

A word is looked up as written and, if it is missing, in lower case, so that one rule serves vectors with and without
capitals. If that is missing too, it is unknown, −1, and its row for CoVe is zeros (`rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

import numpy as np

from foretext.errors import UserError, refuse_if
from foretext.text.corpus.prose import is_number
from foretext.text.corpus.text_files import ReadReport, TextFile, line_blocks, plain_file, unpacked_beginning

UNKNOWN = -1
_WIDTH_LINES = 100  # first lines that decide the width of a file without a header
_BINARY_BYTES = 1 << 16  # inspected at the beginning, to detect a binary file
_WIDE_MARKS = (
    b"\xff\xfe",
    b"\xfe\xff",
    b"\0\0\xfe\xff",
)  # of text that is not UTF-8, which `text/corpus/text_files.py` reports


@dataclass(frozen=True)
class WordVectors:
    """`matrix[i]` is the vector of `words[i]`."""

    words: tuple[str, ...]
    matrix: np.ndarray  # float32 [words, width]
    duplicates: int = 0  # vectors left out because their word already had one
    read: int = 0  # vectors in the file, including those not asked for
    replaced: int = 0  # undecodable bytes replaced by U+FFFD
    where: str = "the vectors"  # for messages

    def __str__(self) -> str:
        return self.where

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def lookup(self, words: Iterable[str]) -> np.ndarray:
        """The number of each word, as written or in lower case; UNKNOWN (−1) if both are missing."""
        ids = self.ids
        numbers = (ids[word] if word in ids else ids.get(word.lower(), UNKNOWN) for word in words)
        return np.fromiter(numbers, dtype=np.int64)

    def rows(self, words: Iterable[str]) -> np.ndarray:
        """The vector of each word, [words, width]; zeros for unknown words."""
        numbers = self.lookup(words)
        vectors = np.zeros((len(numbers), self.width), dtype=np.float32)
        vectors[numbers != UNKNOWN] = self.matrix[numbers[numbers != UNKNOWN]]
        return vectors

    def chosen(self, wanted: frozenset[str] | None, first: int) -> WordVectors:
        """A selection, with the rules of `read_vectors`."""
        if wanted is None:
            return self
        rows = [row for row, word in enumerate(self.words) if row < first or word in wanted]
        words = tuple(self.words[row] for row in rows)
        return replace(self, words=words, matrix=self.matrix[rows])


def read_vectors(
    path: str | Path | WordVectors, only: Collection[str] | None = None, errors: str = "strict", first: int = 0
) -> WordVectors:
    """The vectors of a file. With `only`: just those that a lookup of these words can find, and the `first` so many (in
    published files, the most frequent words), which also limits memory. Numbers on other lines are then counted but not
    parsed. The same selection works on vectors already in memory."""
    wanted = None if only is None else frozenset(only) | {word.lower() for word in only}
    if isinstance(path, WordVectors):
        return path.chosen(wanted, first)
    file = plain_file(path)
    _refuse_binary(file)
    reader = _Reader(file, wanted, first)
    report = ReadReport()
    for lines in line_blocks(file, errors, report):
        reader.read(lines)
    return reader.finish(report.replaced)


def _refuse_binary(file: TextFile) -> None:
    start = unpacked_beginning(file, _BINARY_BYTES)
    refuse_if(start.startswith(b"PK\x03\x04"), f"{file.path}: a zip archive; unpack it and give the text file inside")
    if b"\0" in start and not start.startswith(_WIDE_MARKS):
        line = start[: start.index(b"\0")].count(b"\n") + 1
        raise UserError(
            f"{file.path} line {line}: a NUL byte, so this is a binary file; save the vectors as text (word2vec: "
            "-binary 0; gensim: save_word2vec_format(path, binary=False))"
        )


class _Reader:
    """The state of reading after some blocks of lines."""

    def __init__(self, file: TextFile, wanted: frozenset[str] | None, first: int) -> None:
        self.file = file
        self.wanted, self.first = wanted, first
        self.width = 0  # 0: not known yet
        self.announced: int | None = None  # number of vectors, according to the header
        self.line = 0  # lines before this block
        self.vectors = 0
        self.duplicates = 0
        self.words: dict[str, None] = {}
        self.blocks: list[np.ndarray] = []

    def read(self, lines: Sequence[str]) -> None:
        lines = self._without_header(lines)
        kept: list[tuple[int, str]] = []  # the line number, and the numbers on the line
        for number, line in enumerate(lines, self.line + 1):
            word, _, numbers = line.partition(" ")
            if numbers.count(" ") != self.width - 1 or not word or numbers.endswith(" "):
                word, numbers = self._odd(line, number)
                if not numbers:
                    continue
            self.vectors += 1
            if word in self.words:
                self.duplicates += 1
            elif self.wanted is None or word in self.wanted or self.vectors <= self.first:
                self.words[word] = None
                kept.append((number, numbers))
        self.line += len(lines)
        if kept:
            self.blocks.append(self._parsed(kept))

    def _without_header(self, lines: Sequence[str]) -> Sequence[str]:
        """The lines, with tabs replaced by spaces; the first ones decide the width."""
        if any("\t" in line for line in lines[:2]):  # the second line: the first may be a header
            lines = [line.replace("\t", " ") for line in lines]
        if not self.width:
            self._settle(lines)
            if self.announced is not None:
                lines = ["", *lines[1:]]  # the header counts as a line
        return lines

    def _settle(self, lines: Sequence[str]) -> None:
        """Decides the width, from a header or the most common one in the first lines."""
        first = lines[0].split()
        if self.line == 0 and len(first) == 2 and all(field.isascii() and field.isdigit() for field in first):
            self.announced, self.width = int(first[0]), int(first[1])
            refuse_if(not self.width, f"{self.file.path} line 1: the header says that vectors have width 0; correct it")
            return
        first_lines = enumerate(lines[:_WIDTH_LINES], self.line + 1)
        some = {number: line.strip(" ").split(" ") for number, line in first_lines if line.strip()}
        if not some:
            return  # only blank lines so far
        self.width = Counter(map(len, some.values())).most_common(1)[0][0] - 1
        number, fields = next(iter(some.items()))
        refuse_if(
            not self.width or not is_number(fields[-1]),
            f"{self.file.path} line {number}: it does not end in numbers; each line must be a word and its vector",
        )

    def _odd(self, line: str, number: int) -> tuple[str, str]:
        """Word and numbers of a line with spaces at an end or in the word; None for a blank line."""
        if not line.strip():
            return "", ""
        fields = line.strip(" ").rsplit(" ", self.width)
        if line.startswith(" ") and len(fields) == self.width:
            fields = ["", *fields]  # a word that consists only of stripped characters
        if len(fields) <= self.width:
            raise self._unequal(number, max(0, len(fields) - 1), "; the file may be cut short")
        word = fields[0].strip(" ")
        before = word.split(" ")
        extra = sum(1 for _ in takewhile(is_number, before[:0:-1]))
        if extra and all(map(is_number, fields[1:])):
            raise self._unequal(number, self.width + extra, "")
        return word, " ".join(fields[1:])

    def _unequal(self, number: int, width: int, more: str) -> UserError:
        source = "the header says" if self.announced is not None else "the others have"
        return UserError(
            f"{self.file.path} line {number}: {width} numbers, but {source} {self.width}{more}; all vectors must have "
            "the same width"
        )

    def _parsed(self, kept: Sequence[tuple[int, str]]) -> np.ndarray:
        values = _numbers([numbers for _, numbers in kept])
        if values is not None:
            return values
        number, numbers = next((number, numbers) for number, numbers in kept if _numbers([numbers]) is None)
        field = next(field for field in numbers.split(" ") if _numbers([field]) is None)
        raise UserError(
            f"{self.file.path} line {number}: {field[:40]!r} is not a valid number in a vector; correct the line or "
            "get the file again"
        )

    def finish(self, replaced: int) -> WordVectors:
        refuse_if(
            not self.vectors, f"{self.file.path}: empty, it contains no vectors; give a file with one word per line"
        )
        if self.announced is not None and self.vectors != self.announced:
            raise UserError(
                f"{self.file.path} line 1: the header says {self.announced:,} vectors, but {self.vectors:,} follow; "
                "the file may be cut short: get it again, or correct the header"
            )
        matrix = np.empty((len(self.words), self.width), dtype=np.float32)
        end = len(matrix)
        # from the last block on, each freed once it is copied, so that there are never two whole matrices
        while self.blocks:
            block = self.blocks.pop()
            matrix[end - len(block) : end] = block
            end -= len(block)
        return WordVectors(tuple(self.words), matrix, self.duplicates, self.vectors, replaced)


def _numbers(rows: Sequence[str]) -> np.ndarray | None:
    """The numbers of rows with equally many spaces; None if anything else is among them, or an infinite number."""
    if not all(rows):
        return None
    try:
        values = np.loadtxt(rows, dtype=np.float32, comments=None, delimiter=" ", ndmin=2)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None
