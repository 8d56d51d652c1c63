"""The steps before GPT's character BPE: cleaning, standardising, splitting into words; also the character offsets of
words.

`spacy` is the paper's: spaCy's English rules on the cased text. `rules` is our own, if spaCy is not installed or the
text is not English. A tokenizer file records the splitter (and spaCy's version), since the ids depend on it.
"""

import re
from collections.abc import Callable
from typing import Any

import ftfy
import regex

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import UNSPACED

NAMES = ("spacy", "rules")
_SPACY_STRINGS = 500_000  # spaCy keeps every string that it has seen; its tokenizer is recreated above this number

DASHES = {"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"}
PUNCTUATION = r"""([-~!";?+,)(\\/*\[\]}{|_])\1*"""  # a run of one punctuation sign

_SPACED = "|".join(
    (
        r"'(?i:s|t|re|ve|m|ll|d)\b",  # English endings, as in it's
        rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{M}}])+",  # a word of a script with spaces
        r"\p{N}+(?:[.,:]\p{N}+)*",  # a number
        r"\n",  # kept: the vocabulary has a piece for it
        r"([^\s\p{L}\p{M}\p{N}])\1*",  # a run of one sign
        r"\S",
    )
)
# In scripts without spaces each unbroken run is one word, not each character. Merges can then find the words inside,
# and decoding, which puts a space after each word, does not tear the text apart.
WORD = rf"[{UNSPACED}][{UNSPACED}\p{{M}}]*|{_SPACED}"
# If whole words are looked up, such a run would never be found, so each character with its marks is a word.
WORD_OR_CHARACTER = regex.compile(rf"[{UNSPACED}]\p{{M}}*|{_SPACED}")

_DASHES = str.maketrans(DASHES)
_PUNCTUATION = re.compile(PUNCTUATION)
_BLANK = re.compile(r"[^\S\n]+")
_WORD = regex.compile(WORD)


def standardise(text: str) -> str:
    """The original's clean-up: plain dashes, spaces around punctuation, one space or one line break between words."""
    text = ftfy.fix_text(text).translate(_DASHES)
    text = _PUNCTUATION.sub(r" \g<0> ", text)
    text = _collapse_line_breaks(text)
    return _BLANK.sub(" ", text).strip()


def _collapse_line_breaks(text: str) -> str:
    r"""`\s*\n\s*` → ` \n `, done line by line, since the expression takes quadratic time on long blank runs."""
    if "\n" not in text:
        return text
    lines = text.split("\n")
    first, last = lines[0].rstrip(), lines[-1].lstrip()
    inner = [stripped for line in lines[1:-1] if (stripped := line.strip())]
    return " \n ".join([first, *inner, last])


def make_splitter(name: str, version: str | None, where: str) -> tuple[Callable[[str], list[str]], str | None]:
    """The function that splits standardised, cased text into words, and the version to record with its name."""
    if name == "rules":
        return split_by_rules, None
    refuse_if(name != "spacy", f"{where}: unknown splitter {name!r}; choose one of {', '.join(NAMES)}")
    splitter = SpacySplitter(where)
    refuse_if(
        version is not None and version != splitter.version,
        f"{where}: made with the rules of spaCy {version}, but spaCy {splitter.version} is installed and may give "
        f"other ids; pip install 'spacy=={version}.*'",
    )
    return splitter, splitter.version


def split_by_rules(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(text)]


def spacy_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("spacy") is not None


class SpacySplitter:
    """spaCy's English tokenizer alone: rules, no model."""

    def __init__(self, where: str) -> None:
        try:
            import spacy
        except ImportError:
            raise UserError(
                f"{where}: needs spaCy's rules to split words, but spaCy is not installed; pip install "
                "'foretext[spacy]'"
            ) from None
        self._spacy: Any = spacy
        self.version = ".".join(spacy.__version__.split(".")[:2])
        self._tokenizer: Any = spacy.blank("en").tokenizer

    def __call__(self, text: str) -> list[str]:
        if len(self._tokenizer.vocab.strings) > _SPACY_STRINGS:
            self._tokenizer = self._spacy.blank("en").tokenizer
        return [token.text for token in self._tokenizer(text)]


# -- where words come from ---------------------------------------------------------------------------------------------

Spans = list[tuple[int, int]]  # per character, [start, end) in the original text
_REACH = 40  # characters to look ahead, in both texts together, for the next agreement
_AGREE = 4  # characters that must agree there
_UNBROKEN = re.compile(r"\S+")


def words_with_spans(text: str, split: Callable[[str], list[str]]) -> list[tuple[str, Spans]]:
    """The words that `split` finds in the standardised text, each with the spans in `text` of its non-space characters
    (for a line break, its own). Standardising moves only white space, so only what ftfy repaired can be inexact: see
    `aligned`."""
    fixed = ftfy.fix_text(text)
    spans = aligned(text, fixed)
    visible = [place for place, old in enumerate(fixed) for _ in DASHES.get(old, old) if not old.isspace()]
    words: list[tuple[str, Spans]] = []
    taken, last = 0, -1
    for word in split(standardise(text)):
        count = sum(not letter.isspace() for letter in word)
        places = visible[taken : taken + count] or [max(fixed.find("\n", last + 1), last, 0)]
        taken, last = taken + count, places[-1]
        words.append((word, [spans[place] for place in places]))
    return words


def aligned(old: str, new: str) -> Spans:
    """For each character of `new`, a repaired `old`, its span in `old`.

    Exact wherever nothing was repaired. A repair gets the characters between the places where both texts agree: one for
    one if there are equally many, otherwise word by word if there are equally many words, otherwise all together.
    """
    if old == new:
        return [(place, place + 1) for place in range(len(old))]
    spans: Spans = []
    i = j = 0
    while j < len(new):
        if i < len(old) and old[i] == new[j]:
            spans.append((i, i + 1))
            i, j = i + 1, j + 1
        else:
            next_i, next_j = _agreement(old, new, i, j)
            spans += _spread(old, new, (i, next_i), (j, next_j))
            i, j = next_i, next_j
    return spans


def _agreement(old: str, new: str, i: int, j: int) -> tuple[int, int]:
    """The nearest places from `i` and `j` on where both texts agree again, at the latest the end of the line."""
    for steps in range(1, _REACH):
        for ahead in range(steps + 1):
            a, b = i + steps - ahead, j + ahead
            if a <= len(old) and b <= len(new) and old[a : a + _AGREE] == new[b : b + _AGREE]:
                return a, b
    a, b = old.find("\n", i), new.find("\n", j)
    a, b = len(old) if a < 0 else a, len(new) if b < 0 else b
    return (a, b + 1) if (a, b) == (i, j) else (a, b)


def _spread(old: str, new: str, before: tuple[int, int], after: tuple[int, int]) -> Spans:
    """The spans of new[after], which replaces old[before]."""
    (start, end), (first, last) = before, after
    if end - start == last - first:
        return [(place, place + 1) for place in range(start, end)]
    words = [match.span() for match in _UNBROKEN.finditer(old, start, end)]
    repaired = [match.span() for match in _UNBROKEN.finditer(new, first, last)]
    if len(words) != len(repaired) or len(words) < 2:
        return [(start, end)] * (last - first)
    spans: Spans = []
    for word, (begin, stop) in zip(words, repaired):
        spans += [(start, word[0])] * (begin - first - len(spans))
        spans += [word] * (stop - begin)
        start = word[1]
    return spans + [(start, end)] * (last - first - len(spans))
