"""A vocabulary of whole words, for models that read words through given vectors (CoVe).

Text is split by the rules of `splitters.py`; in a script without spaces, into characters. A word is looked up as
written and, if it is missing, in lower case, so that one rule serves vectors with and without capitals. A word that is
missing in both forms is `<unk>`. Nothing else is cleaned or lower-cased. Ids 0 and 1 are `<unk>` and the end of a
document; the words follow.

Translations are written in words of another language. These are stored here too, as `targets`: both vocabularies are
one file of a run with one fingerprint, so neither is ever used without the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import END, Fields, Offsets, Tokenizer, WordListForm, checked_pieces, special_pieces
from foretext.text.tokenizers.splitters import WORD_OR_CHARACTER
from foretext.text.words.word_list import WordList

UNKNOWN = "<unk>"
SPECIALS = (UNKNOWN, END)


class WordTokenizer(Tokenizer):
    """`pieces` in the order of their ids, special tokens included."""

    kind = "word-list"

    def __init__(self, pieces: Sequence[str], specials: dict[str, int], targets: WordList | None = None) -> None:
        super().__init__(pieces, specials, specials[UNKNOWN])
        self.targets = targets
        self._ids = {piece: id for id, piece in enumerate(pieces) if id not in self._names}

    @property
    def target_words(self) -> WordList:
        """The words that translations are made of; UserError if there are none."""
        if self.targets is None:
            raise UserError(
                "this vocabulary has no words to translate into, since it was not made from parallel text (pretrain "
                "--source FILE --target FILE)"
            )
        return self.targets

    def lookup(self, words: Iterable[str]) -> list[int]:
        """The ids of words that are already split."""
        ids, unknown = self._ids, self.specials[UNKNOWN]
        return [ids[word] if word in ids else ids.get(word.lower(), unknown) for word in words]

    def encode(self, text: str) -> list[int]:
        return self.lookup(words_of(text))

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        words = _words(text)
        return self.lookup(word for word, _, _ in words), [(start, end) for _, start, end in words]

    def with_specials(self, names: Sequence[str]) -> WordTokenizer:
        pieces, specials = special_pieces(self.pieces, self.specials, names)
        return WordTokenizer(pieces, specials, self.targets)

    def to_json(self) -> str:
        return self._json

    @cached_property
    def _json(self) -> str:  # a large string, needed repeatedly
        return super().to_json()

    def _data(self) -> WordListForm:
        return {"pieces": list(self.pieces), "targets": None if self.targets is None else list(self.targets.words)}

    @classmethod
    def from_data(cls, data: Fields, where: str) -> WordTokenizer:
        pieces, specials = checked_pieces(data, where, SPECIALS)
        targets = data.get("targets")
        return cls(pieces, specials, None if targets is None else _checked_targets(targets, where))


def _checked_targets(words: object, where: str) -> WordList:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{where}: field 'targets' must be a list of words")
    refuse_if(len(set(words)) != len(words), f"{where}: field 'targets' contains a word twice")
    return WordList(tuple(words))


def word_tokenizer(words: Iterable[str], targets: WordList | None = None) -> WordTokenizer:
    """A new vocabulary; words that are empty or equal a special token are left out."""
    whole = [*SPECIALS, *(word for word in words if word and word not in SPECIALS)]
    return WordTokenizer(whole, {name: id for id, name in enumerate(SPECIALS)}, targets)


def words_of(text: str) -> list[str]:
    """The words that are looked up one by one."""
    return [word for word, _, _ in _words(text)]


def _words(text: str) -> list[tuple[str, int, int]]:
    """The words of a text and their offsets; a line break is not a word."""
    matches = WORD_OR_CHARACTER.finditer(text)
    return [(match.group(), match.start(), match.end()) for match in matches if not match.group().isspace()]
