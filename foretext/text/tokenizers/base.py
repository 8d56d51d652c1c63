"""What a tokenizer is, and how one is loaded: from a run's `tokenizer.json` or from a published vocabulary.

Six kinds exist: `byte-bpe` (GPT-2, RoBERTa: any text, exactly reversible), `char-bpe` (GPT: cleaned, split into words,
lower-cased), `wordpiece` (BERT), `unigram` (ALBERT, XLNet), and whole words: `words` (ELMo), `word-list` (CoVe); all
but the first lose something, so they are not `lossless`. `tokenizer.json` is plain data and names all that is done to a
text before the pieces are sought, because the same pieces behind another preparation give other ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from foretext.errors import UserError

END = "<|endoftext|>"  # the special after each document where none is named below; the last id of a trained BPE
FORMAT = 1
KINDS = ("byte-bpe", "char-bpe", "wordpiece", "unigram", "words", "word-list")

Offsets = list[tuple[int, int]]  # [start, end) in characters of a text, one for each id


class Tokenizer(Protocol):
    """Text to ids and back. Specials are never the result of encoding, whatever the text spells, except `unknown`,
    which some kinds count among them. A vocabulary of words may be asked to number words that it does not have
    from `size` on; that holds for one object only, and nothing keeps such an id."""

    kind: str
    specials: dict[str, int]
    lossless: bool
    unknown: int | None  # the id of what the vocabulary does not have; None: it has everything

    @property
    def size(self) -> int: ...
    @property
    def end(self) -> int | None:
        """The id that stands after each document; None: the vocabulary has none yet."""

    def encode(self, text: str) -> list[int]: ...
    def encode_array(self, text: str) -> np.ndarray: ...
    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]: ...
    def encode_with_offsets(self, text: str) -> tuple[list[int], Offsets]:
        """What `encode` gives, and for each id the characters of `text`, as given, that it stands for.

        Starts and ends never fall. Pieces of one character all have that character; where cleaning made several
        pieces out of fewer characters, they share them. A byte-level piece has its space; elsewhere spaces belong to
        no piece."""

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """Which of a sequence's ids [..., length] begin a word, as booleans; the first one and specials always do."""

    def decode(self, ids: Iterable[int]) -> str: ...
    def piece(self, id: int) -> str: ...
    def piece_bytes(self, id: int) -> bytes: ...
    def ends_word(self, id: int) -> bool:
        """Whether the piece stands for a word's end and no space, so that its text has one that is not in the text."""

    def with_specials(self, names: Sequence[str]) -> Tokenizer: ...
    def to_json(self) -> str: ...
    def fingerprint(self) -> str: ...


def tokenizer_from_json(text: str, where: str) -> Tokenizer:
    """The tokenizer that `Tokenizer.to_json` wrote; `where` names the file in messages."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a tokenizer file ({error}); restore it from the run that made it") from None
    if not isinstance(data, dict) or data.get("kind") not in KINDS:
        raise UserError(f"{where}: not a tokenizer file of Foretext (field 'kind' must be one of {', '.join(KINDS)})")
    if data.get("format") != FORMAT:
        raise UserError(f"{where}: tokenizer format {data.get('format')!r} is not known here; update foretext")
    if data["kind"] == "byte-bpe":
        from foretext.text.tokenizers.byte_bpe import ByteBPE

        return ByteBPE.from_data(data, where)
    if data["kind"] == "char-bpe":
        from foretext.text.tokenizers.char_bpe import CharBPE

        return CharBPE.from_data(data, where)
    if data["kind"] == "wordpiece":
        from foretext.text.tokenizers.wordpiece import WordPiece

        return WordPiece.from_data(data, where)
    if data["kind"] == "word-list":
        from foretext.text.tokenizers.word_tokenizer import WordTokenizer

        return WordTokenizer.from_data(data, where)
    if data["kind"] == "words":
        from foretext.text.tokenizers.word_vocabulary import Words

        return Words.from_data(data, where)
    from foretext.text.tokenizers.unigram import Unigram

    return Unigram.from_data(data, where)


def canonical_json(data: dict[str, Any]) -> str:
    """One text for one content, so that the fingerprint of a tokenizer is a fingerprint of what it does."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"


def fingerprint_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def encodable(text: str) -> str:
    """Half a surrogate pair, which a Python text can hold, becomes U+FFFD as it does when encoding."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def in_original(offsets: Offsets, text: str, clean: str) -> Offsets:
    """Offsets in `clean`, which is `encodable(text)`, as offsets in `text`: two halves of a pair became one there."""
    if len(clean) == len(text):
        return offsets
    places, place = [], 0
    while place < len(text):
        places.append(place)
        pair = "\ud800" <= text[place] <= "\udbff" and "\udc00" <= text[place + 1 : place + 2] <= "\udfff"
        place += 2 if pair else 1
    places.append(len(text))
    return [(places[start], places[end]) for start, end in offsets]


def append_specials(specials: dict[str, int], names: Sequence[str], size: int) -> dict[str, int]:
    """The specials with the missing names appended from id `size` on."""
    result = dict(specials)
    for name in names:
        if name not in result:
            result[name] = size
            size += 1
    return result


def checked_names(data: dict[str, Any], where: str) -> list[str]:
    """The list of specials of a tokenizer file."""
    names = data.get("specials")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise UserError(f"{where}: field 'specials' must be a list of different names")
    return names


def checked_pieces(data: dict[str, Any], where: str) -> tuple[list[str], dict[str, int]]:
    """The pieces of a tokenizer file whose specials are among them, and these as name → id."""
    pieces = data.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
        raise UserError(f"{where}: field 'pieces' must be a list of texts, none of them empty")
    ids = {piece: id for id, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise UserError(f"{where}: field 'pieces' has a piece twice")
    names = checked_names(data, where)
    for name in names:
        if name not in ids:
            raise UserError(f"{where}: field 'specials' has {name!r}, which is not among the pieces")
    return pieces, {name: ids[name] for name in names}


def checked_flag(data: dict[str, Any], name: str, where: str) -> bool:
    value = data.get(name)
    if not isinstance(value, bool):
        raise UserError(f"{where}: field '{name}' must be true or false")
    return value


def special_pieces(
    pieces: Sequence[str], specials: dict[str, int], names: Sequence[str]
) -> tuple[list[str], dict[str, int]]:
    """`pieces` and `specials` with `names` among them: a piece that has such a name becomes the special, others are
    appended."""
    ids = {piece: id for id, piece in enumerate(pieces)}
    made, result = list(pieces), dict(specials)
    for name in names:
        if name not in result:
            result[name] = ids.get(name, len(made))
            if name not in ids:
                ids[name] = len(made)
                made.append(name)
    return made, result


def written_lower(pieces: Iterable[str]) -> bool:
    """Whether a vocabulary was learned from lower-cased text. Symbols in brackets (`[CLS]`, `<S>`) do not count."""
    return not any(piece.lower() != piece and not in_brackets(piece) for piece in pieces)


def in_brackets(piece: str) -> bool:
    return len(piece) > 2 and (piece[0], piece[-1]) in (("[", "]"), ("<", ">"))


def checked_pairs(data: dict[str, Any], where: str) -> list[tuple[str, str]]:
    """The merges of a tokenizer file, each a text of two pieces with a space between."""
    merges = data.get("merges")
    if not isinstance(merges, list) or not all(isinstance(m, str) and m.count(" ") == 1 for m in merges):
        raise UserError(f"{where}: field 'merges' must be a list of texts of two pieces each")
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        pairs.append((left, right))
    return pairs


def tokenizer_from_published(source: str | Path, *, splitter: str = "spacy", lower: bool | None = None) -> Tokenizer:
    """The vocabulary that others published: a folder that holds one, or the file itself.

    GPT: `encoder_bpe_40000.json` beside `vocab_40000.bpe`; GPT-2: `encoder.json` beside `vocab.bpe`; RoBERTa:
    `…vocab.json` beside `vocab.bpe` or `merges.txt`; BERT: `…vocab.txt`; ALBERT and XLNet: `….model`.

    GPT's ids are only the published ones behind spaCy's rules; `splitter="rules"` is a stated approximation. GPT's
    vocabulary has no special at all: add them by `with_specials`. `lower` says whether BERT's, ALBERT's and XLNet's
    texts are lower-cased; None: they are if the vocabulary has no piece that lower-casing changes.
    """
    path = _published_file(Path(source))
    if path.suffix == ".json":
        return _of_merges(path, splitter)
    if path.suffix == ".txt":
        from foretext.text.tokenizers.wordpiece import WordPiece

        return WordPiece.from_published(read_pieces(path), lower, str(path))
    from foretext.text.tokenizers.sentencepiece_file import read_sentencepiece
    from foretext.text.tokenizers.unigram import Unigram

    return Unigram.from_published(read_sentencepiece(path), lower, str(path))


def _published_file(source: Path) -> Path:
    """The one file that a published vocabulary is read from; what stands beside it is found from there."""
    if source.suffix == ".bpe" and source.is_file():
        source = source.parent
    if source.suffix in (".json", ".txt", ".model") and source.is_file():
        return source
    for name, merges in _MERGES_BESIDE.items():
        if (source / name).is_file() and (source / merges).is_file():
            return source / name
    found = [path for path in sorted(source.glob("*vocab.json")) if _merges_beside(path) is not None]
    found += [*sorted(source.glob("*vocab.txt")), *sorted(source.glob("*.model"))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UserError(f"{source}: several published vocabularies here; name one of the files: {names}")
    if not found:
        raise UserError(
            f"{source}: no published vocabulary here; it needs encoder_bpe_40000.json and vocab_40000.bpe (GPT), "
            "encoder.json and vocab.bpe (GPT-2), vocab.json and vocab.bpe or merges.txt (RoBERTa), vocab.txt (BERT) "
            "or spiece.model (ALBERT, XLNet)"
        )
    return found[0]


_MERGES_BESIDE = {"encoder_bpe_40000.json": "vocab_40000.bpe", "encoder.json": "vocab.bpe"}


def _merges_beside(path: Path) -> Path | None:
    """The merges that belong to a JSON file of pieces."""
    names = [_MERGES_BESIDE[path.name]] if path.name in _MERGES_BESIDE else ["vocab.bpe", "merges.txt"]
    return next((path.with_name(name) for name in names if path.with_name(name).is_file()), None)


def _of_merges(path: Path, splitter: str) -> Tokenizer:
    merges = _merges_beside(path)
    if merges is None:
        raise UserError(f"{path}: its merges are missing; put vocab.bpe or merges.txt beside it")
    from foretext.text.tokenizers.byte_bpe import ByteBPE
    from foretext.text.tokenizers.char_bpe import WORD_END, CharBPE

    pairs = read_merges(merges)
    ids = read_vocabulary(path, gaps=MOST_GAPS)
    if any(piece.endswith(WORD_END) for piece in ids):
        return CharBPE.from_published(read_vocabulary(path), pairs, splitter, str(path.parent))
    return ByteBPE.from_published(ids, pairs, str(path.parent))


MOST_GAPS = 64  # ids that a published file may leave out; RoBERTa's leaves out three fillers before its `<mask>`


def read_vocabulary(path: Path, gaps: int = 0) -> dict[str, int]:
    """A JSON file of pieces and their ids, as GPT and GPT-2 were published with; at most `gaps` ids are left out."""
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary ({error}); get the published file again") from None
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise UserError(f"{path}: must hold pieces and their ids; get the published file again")
    if not numbered(list(ids.values()), gaps):
        raise UserError(f"{path}: ids are not 0 … {len(ids) - 1}, each once; get the published file again")
    return ids


def numbered(ids: list[Any], gaps: int) -> bool:
    """Whether they are whole numbers from 0 on, none of them twice, of which at most `gaps` are left out."""
    whole = all(isinstance(id, int) and not isinstance(id, bool) and id >= 0 for id in ids)
    return whole and len(set(ids)) == len(ids) and max(ids, default=-1) < len(ids) + gaps


def read_merges(path: Path) -> list[tuple[str, str]]:
    """A file with a merge a line, perhaps after a line that names its version."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read as merges ({error}); get the published file again") from None
    pairs = []
    for number, line in enumerate(lines):
        if not line or (number == 0 and line.startswith("#version")):
            continue
        parts = line.split()
        if len(parts) != 2:
            raise UserError(f"{path} line {number + 1}: a merge has two pieces; get the published file again")
        pairs.append((parts[0], parts[1]))
    return pairs


def read_pieces(path: Path) -> list[str]:
    """A file with a piece a line, its number being its id, as BERT's vocabularies were published."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary ({error}); get the published file again") from None
    pieces = [line.removesuffix("\r") for line in lines]
    return pieces[:-1] if pieces[-1] == "" else pieces
