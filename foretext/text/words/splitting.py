"""Splits text into words for learning word vectors: lower case, punctuation apart, `don't` as `do n't`.

English contractions are split as in the Penn Treebank, so that the negation `n't` is one word in `don't`, `isn't` and
`can't`. In scripts without spaces (Chinese, Japanese, Thai, …) each character with its marks is a word. A run of one
sign (`...`, `!!!`) is one word. A curly apostrophe is treated as a straight one. An HTML tag (`<br />`, `</p>`) is
white space: reviews taken from the web are full of them.

BPE pieces would not do: as features, vectors of 8,000 pieces are some points worse than those of words. For Chinese,
jieba's words and learned pieces are no better than characters (docs/log.md, What a word of Chinese is).
"""

import re

import regex

from foretext.text.tokenizers.base import UNSPACED

_KEPT = 100_000  # entries, and letters per entry, so that the cache takes at most some 20 MB
_KEPT_LENGTH = 24
_WRITTEN = re.compile(r"\S+")  # the same as `str.split`
_TAG = re.compile(r"</?[a-z][^<>]{0,200}>")
_LETTERS = rf"[[\p{{L}}\p{{M}}]--[n{UNSPACED}]]"  # of scripts with spaces; n has its own rule
_WORD = regex.compile(
    "|".join(
        (
            rf"(?:[a-mo-z]++|n(?!'t(?!\p{{L}}))|{_LETTERS})++",  # the first alternative is redundant, but fast
            r"n't",
            r"'(?:s|re|ve|m|ll|d)(?!\p{L})",
            rf"[{UNSPACED}]\p{{M}}*",
            r"\p{N}+(?:[.,:]\p{N}+)*",
            r"([^\s\p{L}\p{M}\p{N}])\1*",
            r"\S",
        )
    ),
    regex.VERSION1,
)


class _Parts(dict[str, list[str]]):
    """A cache: token between white space → its words. Most tokens of a text have occurred before, and a lookup takes a
    tenth of the time of splitting."""

    def __missing__(self, written: str) -> list[str]:
        words = [match.group() for match in _WORD.finditer(written)]
        if len(written) <= _KEPT_LENGTH:
            if len(self) >= _KEPT:
                self.clear()
            self[written] = words
        return words


_PARTS = _Parts()


def split_words(text: str) -> list[str]:
    return [word for written in _plain(text).split() for word in _PARTS[written]]


def split_with_places(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words, and the offsets of each in `text`."""
    plain = _plain(text)
    words: list[str] = []
    places: list[tuple[int, int]] = []
    for written in _WRITTEN.finditer(plain):
        for match in _WORD.finditer(written.group()):
            words.append(match.group())
            places.append((written.start() + match.start(), written.start() + match.end()))
    return words, places if len(plain) == len(text) else _before_lowering(text, places)


def _plain(text: str) -> str:
    """In lower case, with tags replaced by equally many blanks, so that offsets stay valid."""
    plain = text.lower().replace("’", "'")
    return _TAG.sub(_blank, plain) if "<" in plain else plain


def _blank(tag: re.Match[str]) -> str:
    return " " * len(tag.group())


def _before_lowering(text: str, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets in the lower-cased text as offsets in the text: a few letters (İ) become two in lower case."""
    origin = [number for number, letter in enumerate(text) for _ in letter.lower()]
    return [(origin[start], origin[end - 1] + 1) for start, end in places]
