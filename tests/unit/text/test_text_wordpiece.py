from __future__ import annotations

import json
import unicodedata

import pytest
from complaints import refused
from hypothesis import given
from hypothesis import strategies as st

from foretext.text.tokenizers import wordpiece as engine
from foretext.text.tokenizers.base import TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.training import train_tokenizer
from foretext.text.tokenizers.wordpiece import SPECIALS, WordPiece

PIECES = [
    *("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(
        "the",
        "##the",
        "cat",
        "##s",
        "##at",
        "un",
        "##aff",
        "##able",
        "a",
        "##a",
        "e",
        "##e",
        "[",
        "]",
        "mask",
        "'",
        ".",
    ),
    *(",", "t", "##t", "h", "##h", "中", "酒", "ß", "##ß", "#", "s"),
]
CASED = [piece for piece in PIECES if piece != "cat"] + ["Cat", "é"]
TEXTS = ["The cat sat on the mat; the other cat's hat was there.", "那家酒店很好。", "Unaffable cats, 1234 hats!"] * 10


@pytest.fixture(scope="module")
def lower() -> WordPiece:
    return WordPiece.from_published(PIECES, None, "vocab.txt")


@pytest.fixture(scope="module")
def cased() -> WordPiece:
    return WordPiece.from_published(CASED, None, "vocab.txt")


@pytest.fixture(scope="module")
def trained() -> WordPiece:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig("wordpiece", 200))
    assert isinstance(tokenizer, WordPiece)
    return tokenizer


def is_sign(letter: str) -> bool:
    ascii_sign = letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " "
    return ascii_sign or unicodedata.category(letter).startswith("P")


def words_of(text: str, lower: bool) -> list[str]:
    """BERT's basic tokenisation, read from the paper's code, slowly."""
    kept = []
    for letter in text:
        kind = unicodedata.category(letter)
        if letter in " \t\n\r" or kind == "Zs":
            kept.append(" ")
        elif letter not in "\0\ufffd" and kind not in ("Cc", "Cf"):
            kept.append(f" {letter} " if "\u4e00" <= letter <= "\u9fff" else letter)
    words: list[str] = []
    for word in "".join(kept).split():
        if lower:
            word = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn")
        words += "".join(f" {c} " if is_sign(c) else c for c in word).split()
    return words


def ids_of(tokenizer: WordPiece, text: str) -> list[int]:
    """The longest piece first, word by word."""
    ids = {piece: id for id, piece in enumerate(tokenizer.pieces)}
    result = []
    for word in words_of(text, tokenizer.lower):
        found: list[int] | None = []
        start = 0
        while found is not None and start < len(word):
            tried = [("##" if start else "") + word[start:end] for end in range(len(word), start, -1)]
            known = next((piece for piece in tried if piece in ids), None)
            if known is None or len(word) > 100:
                found = None
            else:
                found.append(ids[known])
                start += len(known.removeprefix("##") if start else known)
        result += [ids["[UNK]"]] if found is None else found
    return result


odd_text = st.text(st.sampled_from("thecasTHECunflb .,'#[]-$\n\t\xa0\x01\u200dé中酒ßÉ\u0301\u3000！"), max_size=30)


@given(odd_text)
def test_the_longest_piece_first(lower: WordPiece, text: str) -> None:
    assert lower.encode(text) == ids_of(lower, text)


@given(odd_text)
def test_the_longest_piece_first_with_capitals(cased: WordPiece, text: str) -> None:
    assert cased.encode(text) == ids_of(cased, text)


def test_specials_lie_where_the_vocabulary_has_them(lower: WordPiece) -> None:
    assert lower.specials == {"[PAD]": 0, "[UNK]": 2, "[CLS]": 3, "[SEP]": 4, "[MASK]": 5}
    assert (lower.size, lower.unknown, lower.end, lower.lossless) == (len(PIECES), 2, 4, False)


def test_known_pieces(lower: WordPiece, cased: WordPiece) -> None:
    assert [lower.piece(id) for id in lower.encode("UNAFFABLE Càts")] == ["un", "##aff", "##able", "cat", "##s"]
    assert [cased.piece(id) for id in cased.encode("Cat cat é")] == ["Cat", "[UNK]", "é"]
    assert lower.lower and not cased.lower
    assert not WordPiece.from_published(PIECES, False, "v").lower and WordPiece.from_published(CASED, True, "v").lower


def test_symbols_in_brackets_and_letters_without_a_small_form_do_not_make_it_cased() -> None:
    assert WordPiece.from_published([*PIECES, "<S>", "<T>", "ℝ", "##ℝ"], None, "v").lower


def test_long_words_are_unknown(lower: WordPiece) -> None:
    assert lower.encode("a" * 101 + " a") == [2, lower.pieces.index("a")]
    assert lower.encode("a" * 100).count(2) == 0


@pytest.mark.parametrize("name", SPECIALS)
def test_text_that_spells_a_special_stays_text(lower: WordPiece, name: str) -> None:
    unwanted = {lower.specials[name] for name in SPECIALS if name != "[UNK]"}
    for text in (name, f"the{name}cat", f"the {name} cat"):
        assert unwanted.isdisjoint(lower.encode(text))
    assert [lower.piece(id) for id in lower.encode("[MASK]")] == ["[", "mask", "]"]


def test_a_special_without_brackets_is_not_found_in_text(lower: WordPiece) -> None:
    more = lower.with_specials(["hut", "cat"])
    assert more.specials["hut"] == lower.size and more.specials["cat"] == lower.pieces.index("cat")
    assert more.size == lower.size + 1
    assert more.encode("hut cat the") == [2, 2, lower.pieces.index("the")]
    assert lower.encode("cat") == [lower.pieces.index("cat")]


def test_with_specials_keeps_ids(lower: WordPiece) -> None:
    more = lower.with_specials(["[SEP]", "<start>"])
    assert more.specials["<start>"] == lower.size and more.encode("the cat") == lower.encode("the cat")
    again = tokenizer_from_json(more.to_json(), "t")
    assert again.specials == more.specials and again.fingerprint() == more.fingerprint()


def test_decoding_is_readable(lower: WordPiece) -> None:
    ids = [3, *lower.encode("The cat's unaffable, the 中酒 cats."), 4]
    assert lower.decode(ids) == "the cat's unaffable, the 中酒 cats."
    assert lower.decode(lower.encode("the zzz")) == "the [UNK]"
    assert lower.piece_bytes(3) == b"" and lower.piece_bytes(lower.pieces.index("##able")) == b"able"
    assert lower.piece_bytes(lower.pieces.index("the")) == b" the"


def test_many_at_once_and_arrays(lower: WordPiece) -> None:
    texts = ["the cat", "", "中酒 unaffable", "a\ud800a"]
    assert [ids.tolist() for ids in lower.encode_many(texts)] == [lower.encode(text) for text in texts]
    assert lower.encode_array("the cat").dtype == "uint32" and lower.encode_many([]) == []


@given(st.lists(st.sampled_from(["the", "cats", "Ünaffable", "中酒", "[MASK]", ".", "\u0301a", "\x01"]), max_size=20))
def test_cutting_long_texts_changes_nothing(lower: WordPiece, words: list[str]) -> None:
    text = " ".join(words)
    ids, offsets = lower.encode_with_offsets(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "STRETCH", 7)
        assert lower.encode(text) == ids
        assert lower.encode_many([text, text])[1].tolist() == ids
        assert lower.encode_with_offsets(text) == (ids, offsets)


def test_a_million_unbroken_characters(lower: WordPiece) -> None:
    assert lower.encode("a" * 1_000_000) == [2]


def test_trained_layout(trained: WordPiece) -> None:
    assert list(trained.pieces[:5]) == list(SPECIALS) == list(trained.specials) and trained.size <= 200
    assert {"the", "##a", "酒", "店"} <= set(trained.pieces)
    assert trained.unknown == 1 and trained.end == 3
    assert trained.decode(trained.encode("The cats, 酒店很好。")) == "the cats, 酒店很好。"


def test_trained_pieces_are_those_of_merging(trained: WordPiece) -> None:
    """Frequent words are whole pieces, and every letter has its two forms where it occurs in both places."""
    assert len(trained.encode("the cat")) == 2
    inside = {piece.removeprefix("##") for piece in trained.pieces if piece.startswith("##")}
    assert {"h", "e", "t", "s"} <= inside and "酒" not in inside and "," not in inside


def test_characters_that_are_words_fill_the_vocabulary() -> None:
    letters = [chr(0x4E00 + i) for i in range(90)]
    tokenizer = train_tokenizer(["".join(letters), "".join(letters)], TokenizerConfig("wordpiece", 80))
    assert tokenizer.size == 80
    assert tokenizer.encode("".join(letters[:75])).count(1) == 0


def test_trained_with_capitals() -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig("wordpiece", 200, lower=False))
    assert isinstance(tokenizer, WordPiece) and not tokenizer.lower
    assert tokenizer.decode(tokenizer.encode("The cat")) == "The cat"


def test_json_round_trip(trained: WordPiece) -> None:
    again = tokenizer_from_json(trained.to_json(), "t")
    assert again.fingerprint() == trained.fingerprint() and again.encode("the 酒 hats") == trained.encode("the 酒 hats")
    assert json.loads(trained.to_json())["lower"] is True


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"pieces": ["a", 5]}, "'pieces'"),
        ({"pieces": [*PIECES, ""]}, "empty"),
        ({"pieces": [*PIECES, "the"]}, "twice"),
        ({"specials": ["[PAD]", "[UNK]", "[CLS]"]}, r"[SEP], [MASK]"),
        ({"specials": [*SPECIALS, "<other>"]}, "'<other>'"),
        ({"specials": "[PAD]"}, "'specials'"),
        ({"lower": "yes"}, "'lower'"),
        ({"lower": None}, "'lower'"),
    ],
)
def test_a_damaged_file_is_named(lower: WordPiece, change: dict, named: str) -> None:
    data = json.loads(lower.to_json()) | change
    with refused("t.json", named):
        tokenizer_from_json(json.dumps(data), "t.json")


@pytest.mark.parametrize(
    ("pieces", "named"),
    [
        ([*PIECES, "the"], (f"v.txt line {len(PIECES) + 1}", "'the'")),
        (["[PAD]", "", "a"], ("v.txt line 2", "piece")),
        (["the", "cat"], ("v.txt:", "[PAD], [UNK]")),
    ],
)
def test_a_damaged_published_file_is_named(pieces: list[str], named: tuple[str, ...]) -> None:
    with refused(*named):
        WordPiece.from_published(pieces, None, "v.txt")
