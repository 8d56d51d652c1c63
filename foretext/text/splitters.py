"""What comes before GPT's character BPE: cleaning, standardising, and splitting into words.

`spacy` is the paper's: spaCy's English rules on the cased text. `rules` is our own, for where spaCy is not installed or
the text is not English. A tokenizer file names the splitter (and spaCy's version), as the ids depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ftfy
import regex

from foretext.errors import UserError

NAMES = ("spacy", "rules")
_SPACY_STRINGS = 500_000  # spaCy keeps every string it ever saw; its tokenizer is made anew when there are more

DASHES = {"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"}
PUNCTUATION = r"""([-~!";?+,)(\\/*\[\]}{|_])\1*"""  # a run of one sign

# Scripts written without spaces make one word for each unbroken run, not one for each character: then merges can
# find the words inside, and decoding, which puts a space after each word, does not tear the text apart.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー々\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
WORD = "|".join(
    (
        rf"[{_UNSPACED}][{_UNSPACED}\p{{M}}]*",  # a run of an unspaced script
        r"'(?i:s|t|re|ve|m|ll|d)\b",  # English endings, as in it's
        rf"(?:(?![{_UNSPACED}])[\p{{L}}\p{{M}}])+",  # a word of a spaced script
        r"\p{N}+(?:[.,:]\p{N}+)*",  # a number
        r"\n",  # kept: the vocabulary has a piece for it
        r"([^\s\p{L}\p{M}\p{N}])\1*",  # a run of one sign
        r"\S",
    )
)

_DASHES = str.maketrans(DASHES)
_PUNCTUATION = re.compile(PUNCTUATION)
_BLANK = re.compile(r"[^\S\n]+")
_WORD = regex.compile(WORD)


def standardise(text: str) -> str:
    """The original's clean-up: plain dashes, spaces round punctuation, one space or one line break between words."""
    text = ftfy.fix_text(text).translate(_DASHES)
    text = _PUNCTUATION.sub(r" \g<0> ", text)
    text = _collapse_line_breaks(text)
    return _BLANK.sub(" ", text).strip()


def _collapse_line_breaks(text: str) -> str:
    r"""`\s*\n\s*` → ` \n `, done line by line because that expression takes quadratic time on long blank runs."""
    if "\n" not in text:
        return text
    lines = text.split("\n")
    first, last = lines[0].rstrip(), lines[-1].lstrip()
    inner = [stripped for line in lines[1:-1] if (stripped := line.strip())]
    return " \n ".join([first, *inner, last])


def make_splitter(name: str, version: str | None, where: str) -> tuple[Callable[[str], list[str]], str | None]:
    """The function that splits standardised, cased text into words, and the version to write beside its name."""
    if name == "rules":
        return split_by_rules, None
    if name != "spacy":
        raise UserError(f"{where}: splitter {name!r} is not known; choose one of {', '.join(NAMES)}")
    splitter = SpacySplitter(where)
    if version is not None and version != splitter.version:
        raise UserError(
            f"{where}: made with the rules of spaCy {version}, but spaCy {splitter.version} is installed, "
            f"which may give other ids; pip install 'spacy=={version}.*'"
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
                f"{where}: splits words by spaCy's rules, and spaCy is not installed; pip install 'foretext[spacy]'"
            ) from None
        self._spacy: Any = spacy
        self.version = ".".join(spacy.__version__.split(".")[:2])
        self._tokenizer: Any = spacy.blank("en").tokenizer

    def __call__(self, text: str) -> list[str]:
        if len(self._tokenizer.vocab.strings) > _SPACY_STRINGS:
            self._tokenizer = self._spacy.blank("en").tokenizer
        return [token.text for token in self._tokenizer(text)]
