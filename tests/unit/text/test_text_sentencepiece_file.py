from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spm_files import ALBERT_LIKE, charmap, message, model, number, piece, varint

from foretext.errors import UserError
from foretext.text import sentencepiece_file
from foretext.text.sentencepiece_file import SentencePieceModel, check_charmap, read_sentencepiece


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def read(folder: Path, data: bytes) -> SentencePieceModel:
    path = folder / "x.model"
    path.write_bytes(data)
    return read_sentencepiece(path)


def test_what_is_read(folder: Path) -> None:
    found = read(folder, model(charmap=charmap()))
    assert list(zip(found.pieces, found.scores, found.types)) == ALBERT_LIKE
    assert found.charmap == charmap()


def test_fields_that_do_not_matter_are_passed_over(folder: Path) -> None:
    further = message(4, b"self test") + varint(9 << 3 | 1) + bytes(8) + varint(10 << 3 | 5) + bytes(4) + number(11, 7)
    assert read(folder, further + model()) == read(folder, model())


def test_every_cut_is_refused(folder: Path) -> None:
    data = model(charmap=charmap())
    for length in range(len(data)):
        with pytest.raises(UserError, match=r"x\.model: .*get the published file again"):
            read(folder, data[:length])


@given(st.data())
def test_a_flipped_bit_is_read_or_refused(folder: Path, data: st.DataObject) -> None:
    whole = bytearray(model(charmap=charmap()))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read(folder, bytes(whole))
    except UserError as error:
        assert "\n" not in str(error) and "x.model" in str(error)
    else:
        assert len(found.pieces) == len(found.scores) == len(found.types)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(folder: Path, data: bytes) -> None:
    with pytest.raises(UserError, match=r"x\.model"):
        read(folder, data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no pieces"),
        (b"not a model at all", "no whole SentencePiece model"),
        (b"\xff" * 30, "ten bytes"),
        (varint(1 << 3 | 2) + varint(1 << 60) + b"abc", "cut short"),
        (varint(1 << 3 | 3), "no field"),
        (b"".join(piece(*one) for one in ALBERT_LIKE), "no settings"),
        (model([*ALBERT_LIKE, ("the", -1.0, 1), ("the", -2.0, 1)]), "twice"),
        (model([*ALBERT_LIKE, ("<other>", 0.0, 2)]), "2 unknown pieces"),
        (model([("the", -1.0, 1)]), "0 unknown pieces"),
        (model([*ALBERT_LIKE, ("the", float("nan"), 1)]), "score nan"),
        (model([*ALBERT_LIKE, ("", -1.0, 1)]), "a piece ''"),
        (model([*ALBERT_LIKE, ("the", -1.0, 9)]), "type 9"),
        (model([*ALBERT_LIKE, ("<0x00>", -1.0, 6)]), "in bytes"),
        (model(trainer=number(3, 2)), "no unigram model"),
        (model(trainer=number(24, 1)), "behind words"),
        (model(trainer=number(35, 1)), "in bytes"),
        (model(normalizer=number(3, 0)), "treats spaces"),
        (model(normalizer=number(5, 0)), "treats spaces"),
        (message(1, message(1, b"\xff\xfe")) + model(), "utf-8"),
        (message(1, number(1, 5)) + model(), "a number where a text"),
        (message(1, message(3, b"x")) + model(), "a text where a number"),
        (message(1, message(2, b"x")) + model(), "a score"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, data: bytes, says: str) -> None:
    with pytest.raises(UserError) as caught:
        read(folder, data)
    assert says in str(caught.value)


def test_too_large_and_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_sentencepiece(folder / "missing.model")
    with pytest.raises(UserError, match="cannot be read"):
        read_sentencepiece(folder)
    monkeypatch.setattr(sentencepiece_file, "MOST_BYTES", 100)
    with pytest.raises(UserError, match="over 100 bytes"):
        read(folder, model())
    monkeypatch.setattr(sentencepiece_file, "MOST_BYTES", 10_000)
    monkeypatch.setattr(sentencepiece_file, "MOST_PIECES", 5)
    with pytest.raises(UserError, match="over 5 pieces"):
        read(folder, model())


def test_a_sound_charmap_passes() -> None:
    check_charmap(charmap())
    check_charmap(b"")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (b"\0\0", "sound size"),
        (struct.pack("<I", 0), "sound size"),
        (struct.pack("<I", 1 << 31) + bytes(100), "sound size"),
        (struct.pack("<I", 1000) + bytes(1000), "sound size"),
        (charmap()[:500], "sound size"),
        (charmap(place=0x150), "leads out"),
        (charmap(value=2), "not there"),
        (charmap(value=1, texts="ü\0".encode()), "not there"),
        (charmap(texts=b"\xff\0"), "no UTF-8"),
    ],
)
def test_a_damaged_charmap_is_refused(folder: Path, table: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_charmap(table)
    with pytest.raises(UserError, match=says):
        read(folder, model(charmap=table))


def test_a_charmap_that_leads_in_circles_is_walked_once() -> None:
    units = [0] * 256
    units[0] = 1 << 10
    units[0x50] = 0x51 | (0x50 ^ 1) << 10  # Q leads to where the root leads: QQQ…
    check_charmap(struct.pack("<I256I", 1024, *units) + b"\0")
