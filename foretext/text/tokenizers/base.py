"""The tokenizer interface: what the kinds share, where words begin, and loading from `tokenizer.json`.

The kinds: `byte-bpe` (GPT-2, RoBERTa: any text, exactly reversible), `char-bpe` (GPT: cleaned, split into words,
lower-cased), `wordpiece` (BERT), `unigram` (ALBERT, XLNet), and whole words: `words` (ELMo), `word-list` (CoVe). All
but the first lose information, so they are not `lossless`. `tokenizer.json` is plain data and records every step of
preparing a text, because the same pieces after other steps give other ids.

The last part is the fields of `tokenizer.json` that each kind writes, and the checks when a file is read. Every file
also has `format`, `kind` and `specials`, the special tokens in the order of their ids. What is written has
the types below. What is read may be anything (`Fields`), so each field is checked, and a message names the file and the
field.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NotRequired, Self, TypedDict

import numpy as np
import regex

from foretext.errors import UserError, check_range, refuse_if

MOST_PIECES = 10_000_000
# the token after each document unless a kind names another; the last id of a trained BPE vocabulary
END = "<|endoftext|>"
FORMAT = 1
BATCH_CHARS, BATCH_DOCUMENTS = 400_000, 2_000  # limits for one call of `encode_many`
KINDS = {  # kind → its file here, and its class
    "byte-bpe": ("byte_bpe", "ByteBPE"),
    "char-bpe": ("char_bpe", "CharBPE"),
    "wordpiece": ("wordpiece", "WordPiece"),
    "unigram": ("unigram", "Unigram"),
    "words": ("word_vocabulary", "Words"),
    "word-list": ("word_tokenizer", "WordTokenizer"),
}
# Scripts written without spaces, for a character class in regular expressions.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_UNSPACED = regex.compile(rf"[{UNSPACED}]")
_IN_WORD = regex.compile(rf"(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}]")

_CHARACTER = regex.compile(r"[\ud800-\udbff][\udc00-\udfff]|(?s:.)")

Offsets = list[tuple[int, int]]  # per id, [start, end) in characters of the text


class Tokenizer(ABC):
    """Text to ids and back. Encoding never produces special tokens, whatever the text says, except `unknown`, which
    some kinds count among them. A word vocabulary can be told to number unknown words from `size` on; such ids are
    valid for that object only, and are never stored.

    `pieces`: in the order of their ids; special tokens are among them or come before these.
    """

    kind: ClassVar[str]
    lossless: ClassVar[bool] = False
    ends: ClassVar[tuple[str, ...]] = (END,)  # the first of these in a vocabulary ends each document
    pieces: Sequence[str]
    specials: dict[str, int]
    unknown: int | None  # the id for unknown text; None: the vocabulary covers everything

    def __init__(self, pieces: Sequence[str], specials: dict[str, int], unknown: int | None) -> None:
        self.pieces, self.specials, self.unknown = pieces, specials, unknown
        self._names = {id: name for name, id in specials.items()}

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def end(self) -> int | None:
        """The id that ends each document; None: the vocabulary has none yet."""
        return next((self.specials[name] for name in self.ends if name in self.specials), None)

    @abstractmethod
    def encode(self, text: str) -> list[int]: ...

    def encode_array(self, text: str) -> np.ndarray:
        return np.array(self.encode(text), dtype=np.uint32)

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [self.encode_array(text) for text in texts]

    @abstractmethod
    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        """The result of `encode`, and for each id its characters in the given `text`.

        Starts and ends never decrease. All pieces of one character have that character; if cleaning turned few
        characters into more pieces, the pieces share them. A byte-level piece includes its space; otherwise spaces
        belong to no piece.
        """

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """Which of a sequence's ids [..., length] begin a word, as booleans; the first id and special tokens always
        do."""
        return self._borders.starts(ids)

    @cached_property
    def _borders(self) -> WordBorders:
        """For a vocabulary of whole words: every piece is a word."""
        return WordBorders(*np.zeros((4, self.size), dtype=bool))

    def decode(self, ids: Iterable[int]) -> str:
        return "".join([self._text(id) for id in ids]).strip()

    def piece(self, id: int) -> str:
        return self.pieces[id]

    def piece_bytes(self, id: int) -> bytes:
        return self._text(id).encode("utf-8")

    def _text(self, id: int) -> str:
        """The text of a piece, with its space; empty for a special token."""
        return "" if id in self._names and id != self.unknown else self._spelled(self.piece(id))

    def _spelled(self, piece: str) -> str:
        return " " + piece

    def ends_word(self, id: int) -> bool:
        """Whether the piece marks a word's end without a space, so that its text has a space that the original may not
        have."""
        return False

    @abstractmethod
    def with_specials(self, names: Sequence[str]) -> Self:
        """The same vocabulary with these special tokens added."""

    def to_json(self) -> str:
        """The content of `tokenizer.json`. Equal tokenizers give equal text, so its fingerprint identifies what the
        tokenizer does."""
        specials = sorted(self.specials, key=self.specials.__getitem__)
        data = {"format": FORMAT, "kind": self.kind, "specials": specials, **self._data()}
        return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"

    @abstractmethod
    def _data(self) -> Mapping[str, object]:
        """The kind's own fields in `tokenizer.json`: the last part of this file lists them."""

    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    @classmethod
    @abstractmethod
    def from_data(cls, data: Fields, where: str) -> Self:
        """The tokenizer from a file's fields; UserError if they are invalid."""


@dataclass(frozen=True)
class TokenizerConfig:
    """Settings for training a run's own vocabulary."""

    kind: Literal["byte-bpe", "char-bpe", "wordpiece", "unigram", "words", "word-list"] = "byte-bpe"
    size: int = 8000  # pieces, special tokens included
    splitter: Literal["auto", "spacy", "rules"] = "auto"  # char-bpe only; auto: spaCy's rules if installed
    lower: bool = True  # wordpiece, unigram and words only: lower-case, strip accents
    # words only: signs splits like BERT; contractions lower-cases, splits `don't` into `do n't`, and counts all the
    # text
    split: Literal["signs", "contractions"] = "signs"
    least: int = 1  # words only: least occurrences of a word in the vocabulary
    sample_megabytes: int = 20  # how much text the vocabulary is trained on

    def check(self) -> None:
        """UserError for impossible settings. The minimum size depends on the kind and is checked later."""
        check_range("tokenizer", self, f"at most {MOST_PIECES:,}", "size")
        check_range("tokenizer", self, "at least 1", "least", "sample_megabytes")


@dataclass(frozen=True)
class WordBorders:
    """Where words begin in a sequence of ids, for masking whole words and spans of words.

    A piece continues the previous word if a word can continue into it and out of the piece before it. Two tables with
    one entry per id say so for every kind of tokenizer: WordPiece's `##` decides the first, GPT's `</w>` the second,
    and for other kinds the characters at the ends of the two pieces decide. A space that is its own piece belongs to
    what follows it.
    """

    into: np.ndarray  # whether a word can continue into this piece
    out: np.ndarray  # whether a word can continue out of it
    space: np.ndarray  # whether it is only a space
    behind: np.ndarray  # whether a space piece can belong to it

    def starts(self, ids: np.ndarray) -> np.ndarray:
        """Which ids of sequences [..., length] begin a word."""
        ids = np.asarray(ids, dtype=np.int64)
        here, before = ids[..., 1:], ids[..., :-1]
        starts = np.ones(ids.shape, dtype=bool)
        starts[..., 1:] = ~((self.into[here] & self.out[before]) | (self.behind[here] & self.space[before]))
        return starts


def in_word(character: str) -> bool:
    """Whether neighbours like this one form a word: letters, marks and digits do, except in scripts without spaces,
    where every piece counts as a word."""
    return _IN_WORD.match(character) is not None


def is_unspaced(text: str) -> bool:
    """Whether a text begins in a script without spaces."""
    return _UNSPACED.match(text) is not None


def tokenizer_from_json(text: str, where: str) -> Tokenizer:
    """The tokenizer that `Tokenizer.to_json` wrote; `where` names the file in messages."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a tokenizer file ({error}); restore it from the run that made it") from None
    refuse_if(
        not isinstance(data, dict) or data.get("kind") not in KINDS,
        f"{where}: not a tokenizer file of Foretext (field 'kind' must be one of {', '.join(KINDS)})",
    )
    if data.get("format") != FORMAT:
        raise UserError(f"{where}: unknown tokenizer format {data.get('format')!r}; update foretext")
    file, name = KINDS[data["kind"]]
    return getattr(importlib.import_module(f"foretext.text.tokenizers.{file}"), name).from_data(data, where)


def encode_texts(
    texts: Sequence[str], tokenizer: Tokenizer, progress: Callable[[int, int], None] | None = None
) -> list[np.ndarray]:
    """The ids of texts that are all in memory, encoded in this process; `progress` gets the number done."""
    encoded: list[np.ndarray] = []
    for batch in itertools.chain([[]], document_batches(texts)):
        encoded += tokenizer.encode_many(batch)
        if progress is not None:
            progress(len(encoded), len(texts))
    return encoded


def document_batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Small groups of documents, each worth one call of `encode_many`."""
    batch: list[str] = []
    length = 0
    for text in documents:
        batch.append(text)
        length += len(text)
        if length >= BATCH_CHARS or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def encodable(text: str) -> str:
    """Replaces unpaired surrogates, which a Python text can contain, with U+FFFD, as encoding does."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def in_original(offsets: Offsets, text: str, clean: str) -> Offsets:
    """Offsets in `clean`, which is `encodable(text)`, as offsets in `text`: a surrogate pair became one character
    there."""
    if len(clean) == len(text):
        return offsets
    places = [match.start() for match in _CHARACTER.finditer(text)] + [len(text)]
    return [(places[start], places[end]) for start, end in offsets]


def append_specials(specials: dict[str, int], names: Sequence[str], size: int) -> dict[str, int]:
    """Appends the missing special tokens from id `size` on."""
    return specials | dict(zip((name for name in dict.fromkeys(names) if name not in specials), itertools.count(size)))


def special_pieces(
    pieces: Sequence[str], specials: dict[str, int], names: Sequence[str]
) -> tuple[list[str], dict[str, int]]:
    """`pieces` and `specials` with `names` included: a piece with such a name becomes the special token, others are
    appended."""
    ids = {piece: id for id, piece in enumerate(pieces)}
    more = [name for name in dict.fromkeys(names) if name not in specials]
    appended = [name for name in more if name not in ids]
    ids |= dict(zip(appended, itertools.count(len(pieces))))
    return [*pieces, *appended], specials | {name: ids[name] for name in more}


def written_lower(pieces: Iterable[str]) -> bool:
    """Whether a vocabulary was learned from lower-cased text. Symbols in brackets (`[CLS]`, `<S>`) do not count."""
    return not any(piece.lower() != piece and not in_brackets(piece) for piece in pieces)


def in_brackets(piece: str) -> bool:
    return len(piece) > 2 and (piece[0], piece[-1]) in (("[", "]"), ("<", ">"))


# -- the fields of tokenizer.json --------------------------------------------------------------------------------------
Fields = Mapping[str, object]  # of a file, before its checks


class SplitterForm(TypedDict):
    """How a text is split into words before merging."""

    name: str
    spacy: NotRequired[str]  # the version, if spaCy's rules split


class ByteBPEForm(TypedDict):
    splitter: SplitterForm
    alphabet: str  # the 256 bytes as visible characters, in the order of their ranks
    merges: list[str]  # each two pieces with a space between them
    places: NotRequired[list[int]]  # the ids of the bytes and products, if they are not their ranks


class CharBPEForm(TypedDict):
    splitter: SplitterForm
    pieces: list[str]
    merges: list[str]


class WordPieceForm(TypedDict):
    lower: bool
    pieces: list[str]


class UnigramForm(TypedDict):
    lower: bool
    strip_accents: bool
    charmap: str  # SentencePiece's replacements, in base64
    pieces: list[str]
    scores: list[float]
    unknown: str  # the special token for unknown text


class WordsForm(TypedDict):
    lower: bool
    pieces: list[str]
    split: str


class WordListForm(TypedDict):
    pieces: list[str]
    targets: list[str] | None  # the words of the other language; None: there is none


def checked_names(data: Fields, where: str) -> list[str]:
    """The list of special tokens in a tokenizer file."""
    names = data.get("specials")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise UserError(f"{where}: field 'specials' must be a list of different names")
    return names


def checked_pieces(data: Fields, where: str, needed: Sequence[str] = ()) -> tuple[list[str], dict[str, int]]:
    """The pieces of a tokenizer file, which must include the special tokens and those `needed`; and the special tokens
    as name → id."""
    pieces = data.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
        raise UserError(f"{where}: field 'pieces' must be a list of texts, none of them empty")
    ids: dict[str, int] = {piece: id for id, piece in enumerate(pieces)}
    refuse_if(len(ids) != len(pieces), f"{where}: field 'pieces' contains a piece twice")
    names = checked_names(data, where)
    other = next((name for name in names if name not in ids), None)
    refuse_if(other is not None, f"{where}: field 'specials' contains {other!r}, which is not among the pieces")
    missing = [name for name in needed if name not in names]
    refuse_if(missing, f"{where}: field 'specials' does not name {', '.join(missing)}")
    return pieces, {name: ids[name] for name in names}


def checked_flag(data: Fields, name: str, where: str) -> bool:
    value = data.get(name)
    if not isinstance(value, bool):
        raise UserError(f"{where}: field '{name}' must be true or false")
    return value


def checked_pairs(data: Fields, where: str) -> list[tuple[str, str]]:
    """The merges of a tokenizer file."""
    merges = data.get("merges")
    if not isinstance(merges, list) or not all(isinstance(m, str) and m.count(" ") == 1 for m in merges):
        raise UserError(f"{where}: field 'merges' must be a list of texts with two pieces each")
    return [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
