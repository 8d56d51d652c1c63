"""Telling running text from labelled files, for whoever gives the one in place of the other.

Text that is read as columns would be learned in silence where all its lines have equally many words: the last words
become tags. What is found here is a guess from the beginning of a file. Where it could be wrong it counts only if the
user has not said what the columns are, so that a file which merely looks like text can be read all the same.

Columns of words and tags are told by one of these:

- lines mostly have one number of fields; a line with one more or less is a slip, and reported as that;
- sentences of several lines have blank lines between them;
- the last field is no word: it is in capitals or has a sign in it (`B-per`, `Case=Nom`), or is one of few (`noun`).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

LEAST_LINES = 4  # that tell columns from text
MOST_LINES = 500  # of a file's beginning that are looked at
_LONG = 20  # characters, on average, of lines that have no spaces and are no single words
_MANY_FIELDS = 5  # of a line, on average, where lines have two numbers of them
_ENDS = tuple(".!?…。！？")
_AFTER_ENDS = " \"'”’»）)"
_WORD = re.compile(r"[^\W\d_]+(['’-][^\W\d_]+)*")
_CHUNK = re.compile(r"[BIOESMLU]-.+")
_HEADING = re.compile(r"[\w#.-]+( [\w#.-]+){0,2}")  # the name of a column


def is_text_for_tags(lines: Sequence[str], told: bool = False) -> bool:
    """Whether a file that begins so has sentences in place of columns of words and tags. `told`: the user has said what
    its columns are, so that only what cannot be columns is text."""
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
    return not told and _in_one_piece(lines) and (sentences or _end_differently(fields))


def _many_fields(fields: Sequence[Sequence[str]]) -> bool:
    """Whether lines have three or more numbers of fields, or many of them on average."""
    return len(set(map(len, fields))) > 2 or sum(map(len, fields)) >= _MANY_FIELDS * len(fields)


def _ends_a_sentence(line: str) -> bool:
    return line.rstrip(_AFTER_ENDS).endswith(_ENDS)


def _end_in_words(fields: Sequence[Sequence[str]]) -> bool:
    """Whether most last fields are words, or end a sentence; of tags a full stop is one of many."""
    return 2 * sum(_ends_a_sentence(own[-1]) or _is_word(own[-1]) for own in fields) > len(fields)


def _is_word(field: str) -> bool:
    plain = field.strip(",;:—" + _AFTER_ENDS)
    return _WORD.fullmatch(plain) is not None and not plain.isupper() and not _CHUNK.fullmatch(plain)


def _end_differently(fields: Sequence[Sequence[str]]) -> bool:
    """Whether there are too many different last fields for tags: nearly as many as lines, or as many as there are first
    fields, which would be the words."""
    different = len({own[-1] for own in fields})
    return 4 * different > 3 * len(fields) or different >= len({own[0].lower() for own in fields})


def _in_one_piece(lines: Sequence[str]) -> bool:
    """Whether there is no blank line between lines, or one after each."""
    lengths = [len(block.split("\n")) for block in re.split(r"\n\n+", "\n".join(lines).strip("\n"))]
    return len(lengths) == 1 or max(lengths) == 1


def is_text_for_rows(lines: Sequence[str]) -> bool:
    """Whether a file that begins so has no table in it, whatever it is called: no JSON, and no names of columns with
    tabs, commas or semicolons between them."""
    given = [line for line in lines[:MOST_LINES] if line.strip()]
    if not given or "\t" in given[0] or given[0].lstrip().startswith(("{", "[")):
        return False
    if not {"\0", "\ufffd"}.isdisjoint("".join(given)):
        return False  # no text at all
    if not _end_in_words([line.split() for line in given]):
        return False  # such as columns of words and tags, or numbers
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
