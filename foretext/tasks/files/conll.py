"""Tagged sentences from column files as in the CoNLL tasks: one word per line, a blank line after each sentence.

| format | columns | the tag |
|---|---|---|
| none given | any number, the same on every line; the first is the word | the last column |
| `conll2000` | word, part of speech, chunk | the chunk |
| `conll2003` | word, part of speech, chunk, name (in German a lemma after the word) | the name |
| `conllu` | the ten of CoNLL-U, separated by tabs; also recognised by file ending or by its lines | UPOS, the fourth |

`--columns tag=4` names another column by its number, counted from 1. Columns are separated by tabs if the first line
has one, else by spaces. `-DOCSTART-` lines end a sentence and are not words. In CoNLL-U, comments, multiword tokens
(`3-4`) and empty nodes (`3.1`) are skipped. In other formats `#` is a word like any other.

Line numbers in messages start at 1, as in an editor.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretext.errors import UserError, refuse_if
from foretext.tasks.family import Progress
from foretext.tasks.files.rows import listed
from foretext.text.corpus.prose import LEAST_LINES, is_text_for_tags
from foretext.text.corpus.readers import ReadOptions, all_documents
from foretext.text.corpus.text_files import ERRORS, TextFile, find_files, read_text, text_lines, unpacked_beginning

DOCUMENT = "-DOCSTART-"
MANY_WORDS = 200  # words in a file's only sentence; above this, its blank lines are probably missing
_ID = re.compile(r"[0-9]+([-.][0-9]+)?")
_SKIPPED_ID = re.compile(r"[0-9]+[-.][0-9]+")
_UNIVERSAL_TAGS = (4, 5)  # the columns of CoNLL-U where _ means no tag
_SPACES = re.compile("[ \t]+")
_BREAKS = re.compile("[\t\r\n]")
_BEGINNING, _LINES = 1 << 16, 500  # bytes and lines that are inspected to tell columns from running text


class ColumnsError(UserError):
    """A file is readable but has the wrong columns."""


@dataclass(frozen=True)
class TaggedSentence:
    """Words and their tags (None if there are none); `where` is for messages."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    where: str


@dataclass(frozen=True)
class TagFormat:
    """A column layout. Column numbers start at 1."""

    description: str
    columns: tuple[int, ...] = ()  # allowed numbers of columns; empty: any, but the same on every line
    word: int = 1
    tag: int | None = None  # None: the last column
    universal: bool = False  # whether it is CoNLL-U


TAG_FORMATS = {
    "conll2000": TagFormat("CoNLL-2000: word, part of speech, chunk", (3,)),
    "conll2003": TagFormat("CoNLL-2003: word, part of speech, chunk, name; German files have a lemma too", (4, 5)),
    "conllu": TagFormat("CoNLL-U: ten columns separated by tabs; the tag is UPOS", (10,), 2, 4, universal=True),
}
_ANY = TagFormat("columns: the word first and the tag last")


def are_columns(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file look like columns of words and tags, not running text: blocks of lines
    separated by blank ones, with equally many fields each, and few different values in the last field."""
    given = [line for line in lines if line.strip() and not line.startswith((DOCUMENT, "#"))]
    fields = [line.split() for line in given]
    blank = any(not line.strip() for line in lines)
    if len(given) < LEAST_LINES or not blank or len({len(row) for row in fields}) != 1 or len(fields[0]) < 2:
        return False
    return len({row[-1] for row in fields}) <= len(fields) / 2


def find_tag_format(path: Path, name: str | None, lines: Sequence[str] = ()) -> TagFormat:
    """The format with this name. Without a name: CoNLL-U if the file's ending says so or its first word line has an id
    and nine more columns, otherwise plain columns."""
    if name is None:
        universal = ".conllu" in (end.lower() for end in path.suffixes[-2:])
        first = next((line for line in lines if line.strip() and not line.startswith("#")), "").split("\t")
        universal = universal or (len(first) == 10 and _ID.fullmatch(first[0]) is not None)
        return TAG_FORMATS["conllu"] if universal else _ANY
    refuse_if(
        name not in TAG_FORMATS,
        f"--format {name}: unknown format for tagging; the formats are {', '.join(TAG_FORMATS)}",
    )
    return TAG_FORMATS[name]


def read_conll(
    path: str | Path,
    *,
    format: str | None = None,
    column: int | None = None,
    errors: str = "strict",
    need_tags: bool = True,
    need_column: bool = False,
    notes: list[str] | None = None,
) -> list[TaggedSentence]:
    """The sentences of a file. Without `need_tags` a file may have words only, or fewer columns than its format, unless
    the user named `column` (`need_column`)."""
    path = Path(path)
    text = text_lines(read_text(path, errors, notes))
    layout, chosen = find_tag_format(path, format, text), format is not None or column is not None
    if not layout.universal and is_text_for_tags(text, chosen):
        raise _is_text(path, need_tags, chosen)
    lines = _Columns(str(path), layout, column, need_tags, need_tags or need_column)
    sentences: list[TaggedSentence] = []
    words: list[tuple[str, str | None]] = []
    begin = 0
    for number, line in enumerate([*text, ""], 1):
        if not line.strip() or line.startswith(DOCUMENT):
            if words:
                sentences.append(_sentence(words, f"{path} line {begin}"))
            words, begin = [], 0
        elif (word := lines.word(line, number)) is not None:
            begin = begin or number
            words.append(word)
    refuse_if(not sentences, f"{path}: no sentences found; give a file with one word per line")
    if notes is not None and len(sentences) == 1 and len(sentences[0].words) > MANY_WORDS:
        notes.append(
            f"{path}: no blank line, so its {len(sentences[0].words):,} words are read as one sentence; put a blank "
            "line after each sentence"
        )
    return sentences


def _is_text(path: Path, need_tags: bool, chosen: bool) -> UserError:
    otherwise = "" if chosen else " (if these are columns, name the tag's column: --columns tag=NUMBER)"
    if need_tags:
        return UserError(
            f"{path}: looks like running text without tags; labelled rows have one word and its tag per line and a "
            f"blank line after each sentence{otherwise}; text without tags is for --unlabelled (--system cvt)"
        )
    return UserError(
        f"{path}: looks like running text; a file to tag has one word per line and a blank line after each "
        f"sentence{otherwise}; sentences, one per line, are read from standard input"
    )


def _sentence(words: Sequence[tuple[str, str | None]], where: str) -> TaggedSentence:
    tags = [tag for _, tag in words if tag is not None]
    return TaggedSentence(tuple(word for word, _ in words), tuple(tags) if len(tags) == len(words) else None, where)


@dataclass
class _Columns:
    """Splits the lines of a file. The first line decides the number of columns, the separator and the tag's column; the
    other lines must match."""

    name: str
    format: TagFormat
    column: int | None  # the tag's column, if the user named it
    need_tags: bool
    need_column: bool
    tabs: bool = False
    expected: int = 0  # columns; 0 before the first line
    first: int = 0  # the number of the first line
    tag: int | None = None

    def word(self, line: str, number: int) -> tuple[str, str | None] | None:
        """The word of a line and its tag; None if the line has no word."""
        if self.format.universal and line.startswith("#"):
            return None
        if not self.expected:
            self.tabs = self.format.universal or "\t" in line
        cells = line.split("\t") if self.tabs else _SPACES.split(line.strip(" \t"))
        if not self.expected:
            self._settle(len(cells), number)
        if len(cells) != self.expected:
            raise self._ragged(number, len(cells), f"line {self.first} has {self.expected}")
        if self.format.universal and _SKIPPED_ID.fullmatch(cells[0]):
            return None
        return self._tagged(cells, number)

    def _tagged(self, cells: Sequence[str], number: int) -> tuple[str, str | None]:
        word = cells[self.format.word - 1].strip(" ")
        if not word.strip():
            raise ColumnsError(f"{self.name} line {number}: the word is blank; fill it in or remove the line")
        tag = None if self.tag is None else cells[self.tag - 1].strip()
        unspecified = self.format.universal and tag == "_" and self.tag in _UNIVERSAL_TAGS
        if self.tag is not None and self.need_tags and (not tag or unspecified):
            raise ColumnsError(
                f"{self.name} line {number}: {word!r} has no tag in column {self.tag}; fill it in, or name another "
                "column"
            )
        return word, None if unspecified else tag or None

    def _settle(self, count: int, number: int) -> None:
        wanted = self.format.columns
        fewer = not self.need_tags and not self.format.universal and count < min(wanted, default=0)
        if wanted and count not in wanted and not fewer:
            raise self._ragged(number, count, f"this format has {' or '.join(map(str, wanted))}")
        self.expected, self.first = count, number
        self.tag = self._tag_column(count, number, fewer)

    def _tag_column(self, count: int, number: int, fewer: bool) -> int | None:
        if self.column is None:
            if self.format.tag is not None or not self.need_tags or (count > 1 and not fewer):
                return self.format.tag or (count if count > 1 and not fewer else None)
            raise ColumnsError(
                f"{self.name} line {number}: only 1 column, but a word and its tag are needed; separate them by a tab "
                "or a space"
            )
        if self.column < 1 or self.column == self.format.word:
            raise ColumnsError(
                f"--columns tag={self.column}: columns are counted from 1, and column {self.format.word} is the word; "
                "give another number"
            )
        if self.column > count and self.need_column:
            raise ColumnsError(
                f"{self.name} line {number}: column {self.column} for the tag does not exist, there are {count}; give "
                "another number"
            )
        return self.column if self.column <= count else None

    def _ragged(self, number: int, count: int, like: str) -> ColumnsError:
        columns = "1 column" if count == 1 else f"{count} columns"
        separated = "one tab" if self.tabs else "a space"
        return ColumnsError(
            f"{self.name} line {number}: {columns}, but {like}; give each word one line with equally many columns, "
            f"{separated} between them, and a blank line after each sentence"
        )


def read_sentences(
    files: str | Path | Sequence[str | Path],
    errors: str = "strict",
    progress: Progress | None = None,
    notes: list[str] | None = None,
) -> list[str]:
    """Unlabelled sentences to learn from beside labelled rows, for the command line (`--unlabelled`) and Python. Text
    files (also folders and globs) have one sentence per line, tables one per row; from column files like the labelled
    ones, the words are read. `errors`: bytes that are not UTF-8, "strict" or "replace". `notes` collects notes for the
    user."""
    refuse_if(errors not in ERRORS, f"errors must be {' or '.join(ERRORS)}, not {errors!r}")
    remarks: list[str] = [] if notes is None else notes
    plain: list[TextFile] = []
    words: list[str] = []
    for file in find_files([files] if isinstance(files, str | Path) else list(files)):
        start = unpacked_beginning(file, _BEGINNING).decode("utf-8", "replace").splitlines()[:_LINES]
        if file.kind != "txt" or not are_columns(start):
            plain.append(file)
            continue
        rows = read_conll(file.path, errors=errors, need_tags=False, notes=remarks)
        remarks.append(
            f"{file.path}: a column file; its words are read ({len(rows):,} sentences), its tags are ignored"
        )
        words += [" ".join(row.words) for row in rows]
    lines = all_documents(plain, ReadOptions(documents="line", errors=errors), progress, remarks) if plain else []
    return [*lines, *words]


def conll_text(sentences: Sequence[TaggedSentence], predicted: Sequence[Sequence[str]]) -> str:
    """Words, their tags if any, and predicted tags, as columns that `read_conll` and the scripts of the CoNLL tasks
    read: separated by spaces, or by tabs if a word or a tag contains a space."""
    cells = [cell for sentence in sentences for cell in (*sentence.words, *(sentence.tags or ()))]
    cells += [tag for tags in predicted for tag in tags]
    between = "\t" if any(map(_SPACES.search, cells)) else " "
    tagged = all(sentence.tags is not None for sentence in sentences)
    lines = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        columns = [sentence.words, *([sentence.tags or ()] if tagged else []), tuple(tags)]
        lines += [*(between.join(row) for row in zip(*columns, strict=True)), ""]
    return "".join(f"{line}\n" for line in lines)


# -- Python data -------------------------------------------------------------------------------------------------------


def sentences_from(data: Any, *, need_tags: bool = True, name: str | None = None) -> list[TaggedSentence]:
    """Sentences from Python data: a list of pairs `(words, tags)`, or of dicts with `words` (or `text`) and `tags`, or
    a pair `(X, y)` of lists of words and lists of tags. If tags are not needed, also lists of words, or texts whose
    words are separated by spaces. `TaggedSentence`s pass through. `name`: what messages call the data, if it is not an
    argument."""
    lists = isinstance(data, tuple) and all(isinstance(part, list) for part in data)
    if lists and len(data) == 2 and not any(isinstance(item, str) for part in data for item in part):
        if len(data[0]) != len(data[1]):
            shown = name or "data"
            raise UserError(
                f"{shown}: {len(data[0])} sentences, but tags for {len(data[1])}; the numbers must be equal"
            )
        data = list(zip(*data))
    sentences = [_sentence_from(item, where) for where, item in listed(data, "sentences", name)]
    for sentence in sentences:
        if need_tags and sentence.tags is None:
            raise UserError(f"{sentence.where}: no tags; give a pair of words and tags")
    return sentences


def _sentence_from(item: Any, where: str) -> TaggedSentence:
    if isinstance(item, TaggedSentence):
        return item
    words: Any = item
    tags: Any = None
    if isinstance(item, dict):
        words, tags = item.get("words", item.get("text")), item.get("tags")
        refuse_if(words is None, f"{where}: no 'words'; give a list of them, or a 'text' with spaces between them")
    elif isinstance(item, list | tuple) and len(item) == 2 and not any(isinstance(part, str) for part in item):
        words, tags = item
    if isinstance(words, str):
        words = words.split()
    words = _texts_from(words, "words", where)
    refuse_if(not words, f"{where}: no words; leave the sentence out, or give it some")
    if tags is None:
        return TaggedSentence(words, None, where)
    tags = _texts_from(tags, "tags", where)
    refuse_if(len(tags) != len(words), f"{where}: {len(words)} words but {len(tags)} tags; give each word one tag")
    return TaggedSentence(words, tags, where)


def _texts_from(items: Any, what: str, where: str) -> tuple[str, ...]:
    refuse_if(
        isinstance(items, bytes | dict) or not isinstance(items, Iterable),
        f"{where}: a {type(items).__name__}, but a list of {what} is needed",
    )
    texts = tuple(items)
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip() or _BREAKS.search(text):
            raise UserError(
                f"{where}: {what}[{number}] is {text!r}; give a text that is not blank and has no tab or line break"
            )
    return texts
