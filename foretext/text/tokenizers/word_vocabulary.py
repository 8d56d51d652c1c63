"""A vocabulary of whole words, for systems older than subword pieces (ELMo).

A word has an id or is unknown; punctuation signs are words. There are three ways to split: `signs` splits like BERT,
for ordinary text; `spaces` splits at white space, for models whose text another program has split (published ELMo);
`contractions` splits in lower case, with `do n't` for `don't`, as for learning word vectors
(`text/words/splitting.py`). After the special tokens come the words, most frequent first, as a sampled softmax needs it
(`nn/recurrent/bilm.py`).

A trunk that reads words by their characters can read any word. When it is built it calls `number_unknown`: from then
on, words outside the vocabulary get numbers from `size` on, in the order of their appearance, and `piece` returns them,
so fine-tuning, prediction and features need no special case. Such a number is valid for this object only: token shards
store `unknown` instead.

ELMo predicts frequent words and reads all words: give it more words than it should predict, and set `objective.targets`
to the number that it should.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import tokenizers

from foretext.errors import UserError, refuse_if
from foretext.text.tokenizers.base import (
    Fields,
    Offsets,
    Tokenizer,
    TokenizerConfig,
    WordsForm,
    checked_flag,
    checked_pieces,
    encodable,
    special_pieces,
)
from foretext.text.tokenizers.wordpiece import LONGEST_WORD, Engine, basic_splitter, bert_normalizer, readable
from foretext.text.words.characters import BEGIN, END
from foretext.text.words.splitting import split_with_places, split_words
from foretext.text.words.word_list import WordList, counted_words

UNKNOWN = "<UNK>"
SPECIALS = (END, UNKNOWN)  # of a trained vocabulary: the end of a document, and unknown words
PUBLISHED_SPECIALS = (END, BEGIN, UNKNOWN)  # of published ELMo, whose sentences also have a begin token
Split = Literal["signs", "spaces", "contractions"]
SPLITS: tuple[Split, ...] = get_args(Split)
LEAST_WORDS = 2  # for learning vectors
MOST_COUNTED = 4_000_000  # distinct words counted at a time; above this, the rarest are forgotten


class Words(Tokenizer):
    """`pieces` in the order of their ids, special tokens included."""

    kind = "words"
    ends = (END,)

    def __init__(self, pieces: Sequence[str], specials: dict[str, int], lower: bool, split: Split = "signs") -> None:
        super().__init__(pieces, specials, specials[UNKNOWN])
        self.lower, self.split = lower, split
        self._numbers = False
        self._met: dict[str, int] = {}  # words outside the vocabulary, and their numbers
        self._words: list[str] = []  # the same, in the order of these numbers
        self._numbering = threading.Lock()
        # To the engine, no special token is a word, except the unknown one, which it produces itself.
        ids = {piece: id for id, piece in enumerate(pieces) if id == self.unknown or id not in self._names}
        model = tokenizers.models.WordLevel(vocab=ids, unk_token=UNKNOWN)
        self._ids = ids if split == "contractions" else {}
        splitter = tokenizers.pre_tokenizers
        self._normalizer = bert_normalizer(lower) if split == "signs" else tokenizers.normalizers.Sequence([])
        self._engine = Engine(
            model, self._normalizer, splitter.BertPreTokenizer() if split == "signs" else splitter.WhitespaceSplit()
        )

    def number_unknown(self) -> None:
        """From now on, words outside the vocabulary get numbers of their own."""
        self._numbers = True

    def encode(self, text: str) -> list[int]:
        if self.split == "contractions":
            return self._looked_up(split_words(text))
        return self._numbered(text, self._engine.encode(text))

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        if self.split == "contractions":
            return [self.encode_array(text) for text in texts]
        numbered = map(self._numbered, texts, self._engine.encode_many(texts))
        return [np.array(ids, dtype=np.uint32) for ids in numbered]

    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        if self.split == "contractions":
            words, places = split_with_places(text)
            return self._looked_up(words), places
        ids, offsets = self._engine.encode_with_offsets(text)
        if not self._numbers:
            return ids, offsets
        return [
            self._number(text[start:stop]) if id == self.unknown else id for id, (start, stop) in zip(ids, offsets)
        ], offsets

    def _looked_up(self, words: Iterable[str]) -> list[int]:
        ids, unknown = self._ids, self.specials[UNKNOWN]
        if self._numbers:
            return [ids[word] if word in ids else self._number(word) for word in words]
        return [ids.get(word, unknown) for word in words]

    def _numbered(self, text: str, ids: list[int]) -> list[int]:
        return self.encode_with_offsets(text)[0] if self._numbers and self.unknown in ids else ids

    def _number(self, written: str) -> int:
        """The number of a word outside the vocabulary."""
        word = self._normalizer.normalize_str(written).strip()
        if not word:
            assert self.unknown is not None
            return self.unknown
        with self._numbering:  # two threads that see a word must give it the same number
            if word not in self._met:
                self._words.append(word)
                self._met[word] = self.size + len(self._words) - 1
            return self._met[word]

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        return np.ones(np.shape(ids), dtype=bool)

    def decode(self, ids: Iterable[int]) -> str:
        return readable(super().decode(ids))

    def piece(self, id: int) -> str:
        return self.pieces[id] if id < self.size else self._words[id - self.size]

    def with_specials(self, names: Sequence[str]) -> Words:
        if all(name in self.specials for name in names):
            return self
        return Words(*special_pieces(self.pieces, self.specials, names), self.lower, self.split)

    def _data(self) -> WordsForm:
        return {"lower": self.lower, "pieces": list(self.pieces), "split": self.split}

    @classmethod
    def from_data(cls, data: Fields, where: str) -> Words:
        pieces, specials = checked_pieces(data, where, SPECIALS)
        split: Any = data.get("split")
        refuse_if(split not in SPLITS, f"{where}: field 'split' must be one of {', '.join(SPLITS)}")
        return cls(pieces, specials, checked_flag(data, "lower", where), split)


def words_of(words: Sequence[str], lower: bool, split: Split = "signs", names: Sequence[str] = SPECIALS) -> Words:
    """A vocabulary of these words, after the special tokens."""
    whole = [*names, *(word for word in words if word not in names)]
    return Words(whole, {name: id for id, name in enumerate(names)}, lower, split)


def learn_words(sample: Sequence[str], config: TokenizerConfig, progress: Callable[[str, int, int], None]) -> Words:
    """At most `config.size` ids, special tokens included: the most frequent words of a sample that occur at least
    `config.least` times; ties in alphabetical order."""
    counts = counted_words(sample, basic_splitter(config.lower), progress)
    words = WordList.of_counts(counts, config.size - len(SPECIALS), config.least).words
    if not words:  # for example Thai, which has no spaces
        raise UserError(
            f"the text to learn a vocabulary from has no word of at most {LONGEST_WORD} characters; give other text, "
            "or use --set tokenizer.kind=unigram"
        )
    return words_of(words, config.lower)


def count_words(
    texts: Iterable[str],
    size: int,
    least: int,
    progress: Callable[[str, int, int], None] = lambda title, done, total: None,
) -> Words:
    """At most `size` ids, special tokens included: the most frequent words that occur at least `least` times in all the
    texts, most frequent first. The texts are read once and not kept. Words are those of `split_words`."""
    counts: Counter[str] = Counter()
    forgotten = 0
    for text in texts:
        counts.update(split_words(encodable(text)))
        while len(counts) > MOST_COUNTED:
            forgotten += 1
            counts = Counter({word: count for word, count in counts.items() if count > forgotten})
    words = WordList.of_counts(counts, size - len(SPECIALS), least).words
    if len(words) < LEAST_WORDS:
        raise UserError(
            f"the text has {len(words)} words that occur at least {least} times, of {sum(counts.values()):,} in all; "
            "give more text, or --set tokenizer.least=1"
        )
    progress("counting words", 1, 1)
    return words_of(words, lower=True, split="contractions")
