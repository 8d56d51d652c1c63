from __future__ import annotations

import json

import pytest
import regex
import tokenizers
from complaints import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from foretext.text.tokenizers.base import END, TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.byte_bpe import PATTERNS, ByteBPE
from foretext.text.tokenizers.training import train_tokenizer

SENTENCE = "the cat sat on the mat and then the other cat's hat was there; it isn't 1234 or 12,345"
WORDS = [*SENTENCE.split(), "酒店很好", "酒店的服务很好"]
TEXTS = [" ".join(WORDS[i:] + WORDS[:i]) + "\n" for i in range(len(WORDS))]
PUBLISHED = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
any_text = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\t'abcst12中酒店\u3000é")))


@pytest.fixture(scope="module")
def trained() -> ByteBPE:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig("byte-bpe", 320))
    assert isinstance(tokenizer, ByteBPE)
    return tokenizer


@pytest.fixture(scope="module")
def reference(trained: ByteBPE) -> tokenizers.Tokenizer:
    """The same merges, applied in their order by another library."""
    from foretext.text.tokenizers.byte_bpe import BYTE_TO_CHAR

    vocabulary = {BYTE_TO_CHAR[byte]: id for id, byte in enumerate(trained.alphabet)}
    vocabulary |= {left + right: 256 + i for i, (left, right) in enumerate(trained.merges)}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=list(trained.merges)))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return model


def test_layout(trained: ByteBPE) -> None:
    assert 256 < trained.size <= 320
    assert trained.specials == {END: trained.size - 1}
    assert [trained.piece_bytes(i) for i in (0, 65, 255)] == [b"\0", b"A", b"\xff"]
    assert "the" in [trained.piece(i).strip() for i in range(256, trained.size)]


@given(any_text)
def test_round_trip(trained: ByteBPE, text: str) -> None:
    ids = trained.encode(text)
    assert trained.decode(ids) == text
    assert b"".join(trained.piece_bytes(id) for id in ids) == text.encode()
    assert trained.encode_array(text).tolist() == ids and trained.encode_array(text).dtype == "uint32"


@settings(max_examples=300)
@given(st.one_of(any_text, st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)))
def test_ranks_give_what_the_merges_give(trained: ByteBPE, reference: tokenizers.Tokenizer, text: str) -> None:
    assert trained.encode(text) == reference.encode(text).ids


# Endings that are cut from their word, and what only looks like one.
endings = st.sampled_from(
    ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'x", "'", "we", "12", "中", " ", "\n", "-"]
)


@given(st.one_of(any_text, st.lists(endings, max_size=9).map("".join)))
def test_pattern_cuts_as_the_published_one(text: str) -> None:
    assert regex.findall(PATTERNS["gpt2"], text) == regex.findall(PUBLISHED, text)


def test_text_that_spells_a_special_stays_text(trained: ByteBPE) -> None:
    ids = trained.encode(f"a{END}b")
    assert trained.specials[END] not in ids
    assert trained.decode(ids) == f"a{END}b"


def test_specials_are_left_out_when_decoding(trained: ByteBPE) -> None:
    end = trained.specials[END]
    assert trained.decode([*trained.encode("hat"), end, *trained.encode("cat")]) == "hatcat"
    assert trained.piece(end) == END and trained.piece_bytes(end) == b""


def test_with_specials(trained: ByteBPE) -> None:
    more = trained.with_specials([END, "<start>", "<delim>"])
    assert more.specials == {END: trained.size - 1, "<start>": trained.size, "<delim>": trained.size + 1}
    assert more.size == trained.size + 2
    assert more.encode("the <start> cat") == trained.encode("the <start> cat")
    assert more.fingerprint() != trained.fingerprint()


def test_half_a_surrogate_pair_becomes_the_replacement_character(trained: ByteBPE) -> None:
    assert trained.decode(trained.encode("a\ud800b")) == "a\ufffdb"


@pytest.mark.parametrize("space", [" ", "\n "])
@pytest.mark.parametrize("after", ["x", ""])
def test_a_million_blanks(trained: ByteBPE, space: str, after: str) -> None:
    text = "a" + space * (1_000_000 // len(space)) + after
    assert trained.decode(trained.encode(text)) == text


def test_cutting_long_blank_runs_changes_no_id(
    trained: ByteBPE, reference: tokenizers.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import re

    from foretext.text.tokenizers import byte_bpe

    monkeypatch.setattr(byte_bpe, "_LONG_RUN", 3)
    monkeypatch.setattr(byte_bpe, "_LONG_SPACE", re.compile(f"[{byte_bpe._SPACE}]{{3,}}"))
    for text in ("the   cat", "   the \n\n\n cat   ", "the\n\n\ncat\t\t\t\x1cx", "    ", "the   \n"):
        assert trained.encode(text) == reference.encode(text).ids, text


def test_json_round_trip(trained: ByteBPE) -> None:
    again = tokenizer_from_json(trained.to_json(), "tokenizer.json")
    assert again.to_json() == trained.to_json() and again.fingerprint() == trained.fingerprint()
    assert again.encode("the cat 酒店") == trained.encode("the cat 酒店")
    assert json.loads(trained.to_json())["splitter"] == {"name": "gpt2"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "other"}, "'kind'"),
        ({"format": 99}, "format 99"),
        ({"splitter": {"name": "mine"}}, "splitter 'mine'"),
        ({"splitter": {"name": []}}, "splitter []"),
        ({"alphabet": "abc"}, "'alphabet'"),
        ({"merges": ["a b c"]}, "'merges'"),
        ({"merges": ["a b", "a b"]}, "merge 2"),
        ({"merges": ["ab c"]}, "merge 1"),
        ({"specials": ["x", "x"]}, "'specials'"),
        ({"specials": {"x": 5}}, "'specials'"),
    ],
)
def test_a_damaged_file_is_named(trained: ByteBPE, change: dict, named: str) -> None:
    data = json.loads(trained.to_json()) | change
    with refused("tokenizer.json", named):
        tokenizer_from_json(json.dumps(data), "tokenizer.json")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "null"])
def test_not_a_tokenizer(text: str) -> None:
    with refused("t.json", "tokenizer"):
        tokenizer_from_json(text, "t.json")


# -- ids in another order, as RoBERTa has them -----------------------------------------------------------------------


def reordered(trained: ByteBPE) -> dict[str, int]:
    """RoBERTa's way: four specials, the pieces in an order of their own, END, three ids left out, `<mask>`."""
    pieces = list(trained.written())
    order = sorted(pieces, key=lambda piece: (len(piece) % 3, piece))
    names = ["<s>", "<pad>", "</s>", "<unk>", *order, END]
    return {name: id for id, name in enumerate(names)} | {"<mask>": len(names) + 3}


def test_published_ids_in_another_order(trained: ByteBPE) -> None:
    ids = reordered(trained)
    tokenizer = ByteBPE.from_published(ids, trained.merges, "folder")
    assert tokenizer.size == len(ids) + 3 and tokenizer.unknown is None
    assert tokenizer.specials["<mask>"] == tokenizer.size - 1 and tokenizer.specials["madeupword0002"] == len(ids) + 1
    assert tokenizer.end == tokenizer.specials["</s>"] == 2
    assert tokenizer.written() == {name: id for name, id in ids.items() if name not in tokenizer.specials}
    text = "the cat's <s> hat 酒店 \U0001f600</s>"
    written = {id: name for name, id in trained.written().items()}
    assert tokenizer.encode(text) == [ids[written[id]] for id in trained.encode(text)]
    assert tokenizer.decode([0, *tokenizer.encode(text), 2]) == text
    assert tokenizer.encode_with_offsets(text)[1] == trained.encode_with_offsets(text)[1]
    assert tokenizer.word_starts(tokenizer.encode_array(text)).tolist() == (
        trained.word_starts(trained.encode_array(text)).tolist()
    )


def test_ids_in_another_order_are_kept_in_the_file(trained: ByteBPE) -> None:
    tokenizer = ByteBPE.from_published(reordered(trained), trained.merges, "folder").with_specials(["<more>"])
    again = tokenizer_from_json(tokenizer.to_json(), "t.json")
    assert again.fingerprint() == tokenizer.fingerprint() and again.specials == tokenizer.specials
    assert again.encode("the cat 酒店") == tokenizer.encode("the cat 酒店")
    assert "places" not in json.loads(trained.to_json())


@pytest.mark.parametrize(
    "change", [lambda p: p[:-1], lambda p: [*p[:-1], p[0]], lambda p: [*p[:-1], 10**9], lambda p: 5]
)
def test_damaged_places_are_named(trained: ByteBPE, change: object) -> None:
    data = json.loads(ByteBPE.from_published(reordered(trained), trained.merges, "folder").to_json())
    data["places"] = change(data["places"])  # type: ignore[operator]
    with refused("t.json", "'places'"):
        tokenizer_from_json(json.dumps(data), "t.json")


def test_a_vocabulary_of_other_merges_is_refused(trained: ByteBPE) -> None:
    ids = reordered(trained)
    gone = "".join(trained.merges[-1])
    with refused("folder", "pieces", "merges"):
        ByteBPE.from_published({name: id for name, id in ids.items() if name != gone}, trained.merges, "folder")


def test_gpt2s_own_order_needs_no_table(trained: ByteBPE) -> None:
    ids = trained.written() | {END: trained.size - 1}
    tokenizer = ByteBPE.from_published(ids, trained.merges, "folder")
    assert tokenizer.places is None and tokenizer.fingerprint() == trained.fingerprint()
