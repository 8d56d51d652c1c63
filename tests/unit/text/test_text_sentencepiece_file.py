from __future__ import annotations

import struct
from pathlib import Path

import pytest
from complaints import names, refused
from hypothesis import given
from hypothesis import strategies as st
from spm_files import ALBERT_LIKE, charmap, message, model, number, piece, varint

from foretext.errors import UserError
from foretext.text.tokenizers import published
from foretext.text.tokenizers.published import SentencePieceModel, check_charmap, read_sentencepiece


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
        with refused(str(folder / "x.model"), "SentencePiece"):
            read(folder, data[:length])


@given(st.data())
def test_a_flipped_bit_is_read_or_refused(folder: Path, data: st.DataObject) -> None:
    whole = bytearray(model(charmap=charmap()))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read(folder, bytes(whole))
    except UserError as error:
        assert "\n" not in names(error, "x.model")
    else:
        assert len(found.pieces) == len(found.scores) == len(found.types)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(folder: Path, data: bytes) -> None:
    with refused("x.model"):
        read(folder, data)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", ["pieces"]),
        (b"not a model at all", ["SentencePiece", "110", "byte 1 of 18"]),
        (b"\xff" * 30, ["ten", "byte 10"]),
        (varint(1 << 3 | 2) + varint(1 << 60) + b"abc", [f"{1 << 60} bytes", "byte 10", "3 "]),
        (varint(1 << 3 | 3), ["field", "11", "byte 1 of 1"]),
        (b"".join(piece(*one) for one in ALBERT_LIKE), ["settings"]),
        (model([*ALBERT_LIKE, ("the", -1.0, 1), ("the", -2.0, 1)]), ["twice"]),
        (model([*ALBERT_LIKE, ("<other>", 0.0, 2)]), ["2 unknown"]),
        (model([("the", -1.0, 1)]), ["0 unknown"]),
        (model([*ALBERT_LIKE, ("the", float("nan"), 1)]), ["'the'", "nan"]),
        (model([*ALBERT_LIKE, ("", -1.0, 1)]), ["''", "score -1.0"]),
        (model([*ALBERT_LIKE, ("the", -1.0, 9)]), ["'the'", "type 9"]),
        (model([*ALBERT_LIKE, ("<0x00>", -1.0, 6)]), ["bytes", "ALBERT"]),
        (model(trainer=number(3, 2)), ["unigram", "ALBERT"]),
        (model(trainer=number(24, 1)), ["spaces", "ALBERT"]),
        (model(trainer=number(35, 1)), ["bytes", "ALBERT"]),
        (model(normalizer=number(3, 0)), ["spaces", "ALBERT"]),
        (model(normalizer=number(5, 0)), ["spaces", "ALBERT"]),
        (message(1, message(1, b"\xff\xfe")) + model(), ["utf-8", "0xff"]),
        (message(1, number(1, 5)) + model(), ["number", "text"]),
        (message(1, message(3, b"x")) + model(), ["text", "number"]),
        (message(1, message(2, b"x")) + model(), ["score"]),
    ],
)
def test_what_is_wrong_is_said(folder: Path, data: bytes, named: list[str]) -> None:
    with refused(str(folder / "x.model"), *named):
        read(folder, data)


def test_too_large_and_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(str(folder / "missing.model"), "read"):
        read_sentencepiece(folder / "missing.model")
    with refused(f"{folder}:", "read"):
        read_sentencepiece(folder)
    monkeypatch.setattr(published, "MOST_BYTES", 100)
    with refused("x.model", "100 bytes"):
        read(folder, model())
    monkeypatch.setattr(published, "MOST_BYTES", 10_000)
    monkeypatch.setattr(published, "MOST_PIECES", 5)
    with refused("x.model", "5 pieces"):
        read(folder, model())


def test_a_sound_charmap_passes() -> None:
    check_charmap(charmap())
    check_charmap(b"")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (b"\0\0", "size"),
        (struct.pack("<I", 0), "size"),
        (struct.pack("<I", 1 << 31) + bytes(100), "size"),
        (struct.pack("<I", 1000) + bytes(1000), "size"),
        (charmap()[:500], "size"),
        (charmap(place=0x150), "points"),
        (charmap(value=2), "refers"),
        (charmap(value=1, texts="ü\0".encode()), "refers"),
        (charmap(texts=b"\xff\0"), "UTF-8"),
    ],
)
def test_a_damaged_charmap_is_refused(folder: Path, table: bytes, named: str) -> None:
    with refused("replacement", named, kind=ValueError):
        check_charmap(table)
    with refused("x.model", "replacement", named):
        read(folder, model(charmap=table))


def test_a_charmap_that_leads_in_circles_is_walked_once() -> None:
    units = [0] * 256
    units[0] = 1 << 10
    units[0x50] = 0x51 | (0x50 ^ 1) << 10  # Q leads to where the root leads: QQQ…
    check_charmap(struct.pack("<I256I", 1024, *units) + b"\0")
