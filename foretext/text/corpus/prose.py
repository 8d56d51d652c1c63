"""Tells running text from labelled files, for users who give one in place of the other.

Without this check, text whose lines have equally many words would be read as columns, and the last words would become
tags. The decision is a guess from the beginning of a file. Where the guess could be wrong, it counts only if the user
has not said what the columns are, so that a column file that merely looks like text can still be read.

One of these identifies columns of words and tags:

- most lines have the same number of fields (a line with one more or less is reported as a mistake);
- blank lines separate sentences of several lines;
- the last field is not a word: it has capitals or symbols (`B-per`, `Case=Nom`), or has few different values (`noun`).
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence

LEAST_LINES = 4  # needed to tell columns from text
MOST_LINES = 500  # inspected at the beginning of a file
_LONG = 20  # average length, in characters, of lines without spaces that are not single words
_MANY_FIELDS = 5  # average per line, if lines have two different numbers of fields
_ENDS = tuple(".!?…。！？")
_AFTER_ENDS = " \"'”’»）)"
_WORD = re.compile(r"[^\W\d_]+(['’-][^\W\d_]+)*")
_CHUNK = re.compile(r"[BIOESMLU]-.+")
_HEADING = re.compile(r"[\w#.-]+( [\w#.-]+){0,2}")  # a column name


def is_text_for_tags(lines: Sequence[str], columns_known: bool = False) -> bool:
    """Whether a file beginning like this has sentences instead of columns of words and tags. `columns_known`: the user
    has said what its columns are, so only what cannot be columns counts as text."""
    lines = [line.strip() for line in lines[:MOST_LINES] if not line.startswith("-DOCSTART-")]
    given = list(filter(None, lines))
    if len(given) < LEAST_LINES or "\t" in given[0]:
        return False
    fields = list(map(str.split, given))
    counts = Counter(map(len, fields))
    most, often = counts.most_common(1)[0]
    sentences = 2 * sum(map(_ends_a_sentence, given)) > len(given)
    if most == 1 and 2 * often > len(given):
        return sentences or sum(map(len, given)) > _LONG * len(given)
    if not _end_in_words(fields):
        return False
    if len(counts) > 1:
        return sentences or (2 * often <= len(given) and _many_fields(fields))
    return not columns_known and _in_one_piece(lines) and (sentences or _end_differently(fields))


def _many_fields(fields: Sequence[Sequence[str]]) -> bool:
    """Whether lines have three or more different numbers of fields, or many fields on average."""
    return len(set(map(len, fields))) > 2 or sum(map(len, fields)) >= _MANY_FIELDS * len(fields)


def _ends_a_sentence(line: str) -> bool:
    return line.rstrip(_AFTER_ENDS).endswith(_ENDS)


def _end_in_words(fields: Sequence[Sequence[str]]) -> bool:
    """Whether most last fields are words or end a sentence; a full stop is one of many tags."""
    return 2 * sum(_ends_a_sentence(row[-1]) or _is_word(row[-1]) for row in fields) > len(fields)


def _is_word(field: str) -> bool:
    plain = field.strip(",;:—" + _AFTER_ENDS)
    return _WORD.fullmatch(plain) is not None and not plain.isupper() and not _CHUNK.fullmatch(plain)


def _end_differently(fields: Sequence[Sequence[str]]) -> bool:
    """Whether there are too many different last fields for tags: nearly as many as lines, or as many as different first
    fields, which would be the words."""
    different = len({row[-1] for row in fields})
    return 4 * different > 3 * len(fields) or different >= len({row[0].lower() for row in fields})


def _in_one_piece(lines: Sequence[str]) -> bool:
    """Whether there are no blank lines between lines, or one after each."""
    lengths = [len(block.split("\n")) for block in re.split(r"\n\n+", "\n".join(lines).strip("\n"))]
    return len(lengths) == 1 or max(lengths) == 1


def is_text_for_rows(lines: Sequence[str]) -> bool:
    """Whether a file beginning like this holds no table, whatever its name: no JSON, and no column names separated by
    tabs, commas or semicolons."""
    given = [line for line in lines[:MOST_LINES] if line.strip()]
    if not given or "\t" in given[0] or given[0].lstrip().startswith(("{", "[")):
        return False
    if not {"\0", "\ufffd"}.isdisjoint("".join(given)):
        return False  # no text at all
    if not _end_in_words([line.split() for line in given]):
        return False  # for example columns of words and tags, or numbers
    for delimiter in ",;":
        names = next(csv.reader([given[0]], delimiter=delimiter))
        if len(names) > 1 and all(_HEADING.fullmatch(name.strip()) for name in names):
            return any(delimiter not in line for line in given)
    return True


def is_number(text: str | int) -> bool:
    """Whether a field reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
