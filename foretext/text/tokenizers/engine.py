"""The pipeline of the `tokenizers` library that WordPiece and unigram share: cleaning, splitting, and the model.

No special token is registered in it, so text that spells one stays text. Long texts are cut where a word follows a
space or a line break. That changes no id, because both models see one word at a time, and it bounds memory: the
library keeps some hundred bytes for each character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import tokenizers

from foretext.text.tokenizers.base import Offsets, encodable, in_original

STRETCH = 100_000  # characters at a time, and whatever follows up to the next word
_BORDER = re.compile(r"(?<=[ \n])(?=\w)")
# What cleaning drops at the beginning of a text. The library's alignment loses count if it has to drop it itself.
_DROPPED = re.compile(r"[\x01-\x1f\x7f\s]*")


class Engine:
    """`normalizer` cleans, `pre_tokenizer` splits into words, `model` makes ids out of each."""

    def __init__(
        self,
        model: tokenizers.models.Model,
        normalizer: tokenizers.normalizers.Normalizer,
        pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer,
    ) -> None:
        self._pipeline = tokenizers.Tokenizer(model)
        self._pipeline.normalizer = normalizer
        self._pipeline.pre_tokenizer = pre_tokenizer

    def encode(self, text: str) -> list[int]:
        if len(text) > STRETCH:
            return self.encode_many([text])[0]
        return self._pipeline.encode(encodable(text), add_special_tokens=False).ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; the library takes all cores, unless TOKENIZERS_PARALLELISM says otherwise."""
        cut = [[part for _, part in stretches(encodable(text))] for text in texts]
        every = [part for parts in cut for part in parts]
        found = iter(self._pipeline.encode_batch_fast(every, add_special_tokens=False))
        return [[id for _ in parts for id in next(found).ids] for parts in cut]

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        clean = encodable(text)
        ids: list[int] = []
        offsets: Offsets = []
        for start, part in stretches(clean):
            dropped = _DROPPED.match(part)
            skip = dropped.end() if dropped else 0
            found = self._pipeline.encode(part[skip:], add_special_tokens=False)
            ids += found.ids
            offsets += [(start + skip + first, start + skip + last) for first, last in found.offsets]
        return ids, in_original(_tidied(offsets, clean), text, clean)


def stretches(text: str) -> Iterator[tuple[int, str]]:
    """A text in parts that can be encoded apart, each with the place where it begins."""
    start = 0
    while len(text) - start > STRETCH:
        border = _BORDER.search(text, start + STRETCH)
        if border is None:
            break
        yield start, text[start : border.start()]
        start = border.start()
    yield start, text[start:]


def _tidied(offsets: Offsets, text: str) -> Offsets:
    """Marks that stand on their own in the text, and that cleaning dropped, belong to the piece before them; and where
    cleaning exchanged characters, starts and ends still never fall."""
    tidy = []
    low = high = 0
    for number, (start, end) in enumerate(offsets):
        low, high = max(low, start), max(high, low, start, end)
        following = offsets[number + 1][0] if number + 1 < len(offsets) else len(text)
        while high < following and unicodedata.category(text[high]).startswith("M"):
            high += 1
        tidy.append((low, high))
    return tidy
