"""Word vectors: every layout that is published, and every fault by file and line."""

from __future__ import annotations

import gzip
import os
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from complaints import refused

from foretext.text.corpus import text_files as files_module
from foretext.text.words.vectors import UNKNOWN, read_vectors

PLAIN = "the 0.5 -1 2e-3\n, 1 2 3\nTown 4 5.25 6\n"
EXPECTED = np.array([[0.5, -1, 0.002], [1, 2, 3], [4, 5.25, 6]], dtype=np.float32)


def put(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        PLAIN.rstrip("\n").encode(),
        packed(PLAIN.encode()),
        b"3 3\n" + PLAIN.encode(),
        packed(b"3 3\r\n" + PLAIN.replace("\n", "\r\n").encode()),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", " \n").encode(),  # as word2vec and fastText write it
        PLAIN.replace(" ", "\t").encode(),
        PLAIN.replace(" ", "\t", 1).encode(),
        b"3 3\n" + PLAIN.replace(" ", "\t").encode(),
        b"\n" + PLAIN.replace("\n", "\n\n").encode(),
    ],
    ids=[
        "plain",
        "no last end",
        "gzip",
        "header",
        "crlf",
        "mark",
        "space at ends",
        "tabs",
        "a tab",
        "header, tabs",
        "lines",
    ],
)
def test_layouts(tmp_path: Path, data: bytes) -> None:
    vectors = read_vectors(put(tmp_path / "v", data))
    assert vectors.words == ("the", ",", "Town") and vectors.width == 3
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, EXPECTED)
    assert (vectors.duplicates, vectors.read) == (0, 3)


def test_numbers_are_those_that_python_reads(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(50, 20)) * 10.0 ** generator.integers(-8, 8, size=(50, 20))
    text = "".join(f"w{i} {' '.join(f'{value:.6g}' for value in row)}\n" for i, row in enumerate(numbers))
    expected = [[np.float32(field) for field in line.split()[1:]] for line in text.splitlines()]
    np.testing.assert_array_equal(read_vectors(put(tmp_path / "v", text)).matrix, np.array(expected))


def test_words_with_spaces_and_strange_words(tmp_path: Path) -> None:
    text = 'a 1 2\n. . . 3 4\nat name@domain.com 5 6\n\u00a0 7 8\n\u2028x 9 10\n12 11 12\n" 13 14\n# 15 16\n 17 18\n'
    vectors = read_vectors(put(tmp_path / "v", text))
    assert vectors.words == ("a", ". . .", "at name@domain.com", "\u00a0", "\u2028x", "12", '"', "#", "")
    np.testing.assert_array_equal(vectors.matrix.ravel(), np.arange(1, 19))


@pytest.mark.parametrize("header", ["", "2 1\n"])
def test_vectors_of_one_number(tmp_path: Path, header: str) -> None:
    vectors = read_vectors(put(tmp_path / "v", header + "a 5\nb 6\n"))
    assert vectors.words == ("a", "b") and vectors.matrix.tolist() == [[5], [6]]


def test_first_of_two_wins_and_the_other_is_counted(tmp_path: Path) -> None:
    vectors = read_vectors(put(tmp_path / "v", "a 1 2\nb 3 4\na 5 6\na 7 8\n"))
    assert vectors.words == ("a", "b") and vectors.duplicates == 2 and vectors.read == 4
    assert vectors.matrix.tolist() == [[1, 2], [3, 4]]


def test_lookup_as_written_then_in_lower_case(tmp_path: Path) -> None:
    vectors = read_vectors(put(tmp_path / "v", "us 1 1\nUS 2 2\nthe 3 3\nParis 4 4\n"))
    assert vectors.lookup(["us", "US", "Us", "The", "THE", "Paris", "paris", "x"]).tolist() == [
        *(0, 1, 0, 2, 2, 3, UNKNOWN, UNKNOWN)
    ]
    assert vectors.rows(["The", "paris", "US"]).tolist() == [[3, 3], [0, 0], [2, 2]]
    assert vectors.rows([]).shape == (0, 2)


def test_only_keeps_what_a_lookup_can_find(tmp_path: Path) -> None:
    path = put(tmp_path / "v", "us 1 1\nUS 2 2\nthe 3 3\nParis 4 4\nthe 5 5\n")
    asked = ["US", "The", "paris", "nowhere"]
    some, every = read_vectors(path, only=asked), read_vectors(path)
    assert some.words == ("us", "US", "the") and some.read == 5
    np.testing.assert_array_equal(some.rows(asked), every.rows(asked))
    assert read_vectors(path, only=["Paris"], first=2).words == ("us", "US", "Paris"), "and the first two"
    assert read_vectors(path, only=[], first=9).words == every.words
    none = read_vectors(path, only={"nowhere"})
    assert none.matrix.shape == (0, 2) and none.rows(["nowhere"]).tolist() == [[0, 0]]


@pytest.mark.parametrize("block", [1, 2, 7, 64])
def test_block_borders_change_nothing(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "v", "é ü 1 2 3\n" + PLAIN)
    monkeypatch.setattr(files_module, "_BLOCK", block)
    if block < 64:  # the width is settled by the first block, and a word with a space stood first in it
        path = put(tmp_path / "v", PLAIN + "é ü 1 2 3\n")
    assert {*read_vectors(path).words} == {"é ü", "the", ",", "Town"}


@pytest.mark.parametrize(
    ("data", "place", "named"),
    [
        (b"a 1 2 3\nb 1 2 3\nc 1 2\n", " line 3", ["2 numbers", "3;", "cut"]),
        (b"a 1 2 3\n\nb 1 2 3 4\n", " line 3", ["4 numbers", "3;"]),
        (b"a 1 2\nb c 1 2 3\nd 1 2\n", " line 2", ["3 numbers", "2;"]),
        (b"a 1 2 3\nb\n", " line 2", ["0 numbers", "3;"]),
        (b"2 3\na 1 2 3\nb 1 2\n", " line 3", ["2 numbers", "header", "3;"]),
        (b"3 2\na 1 2\nb 1 2\n", " line 1", ["header", "3 vectors", "2 "]),
        (b"1 2\na 1 2\nb 1 2\n", " line 1", ["header", "1 vector", "2 "]),
        (b"4 0\na\n", " line 1", ["header", "width"]),
        (b"a 1 2\nb 1 x\n", " line 2", ["'x'"]),
        (b"a 1 2\nb 1  2\n", " line 2", ["''"]),
        (b"a 1 2\nb 1 nan\n", " line 2", ["'nan'"]),
        (b"a 1 2\nb 1e39 2\n", " line 2", ["'1e39'"]),
        (b"a 1 2\nb 1,5 2\n", " line 2", ["'1,5'"]),
        (b"a 1 2\nb 1-2 2\n", " line 2", ["'1-2'"]),
        (b"word\nother\n", " line 1", ["numbers", "word"]),
        (b"\nIt was a dark and stormy night.\nThe rain fell.\n", " line 2", ["numbers", "word"]),
        (b"", "", ["empty", "vectors"]),
        (b" \n\n", "", ["empty", "vectors"]),
        (packed(b""), "", ["empty", "vectors"]),
        (b"2 3\n", "", ["empty", "vectors"]),
        (packed(PLAIN.encode() * 50)[:-12], "", ["gzip"]),
        (packed(PLAIN.encode())[:3], "", ["gzip"]),
        (b"2 2\na " + struct.pack("2f", 0, 1) + b"\nb ", " line 2", ["NUL", "binary=False"]),
        (packed(b"2 2\na \0"), " line 2", ["NUL", "binary=False"]),
        (b"PK\x03\x04\x00", "", ["zip"]),
        (PLAIN.encode("utf-16"), " byte 0", ["UTF-16", "iconv -f UTF-16"]),
        (b"a 1 2\n\xff 1 2\n", " byte 6", ["0xff", "UTF-8"]),
    ],
)
def test_faults_are_one_line_with_file_and_place(tmp_path: Path, data: bytes, place: str, named: list[str]) -> None:
    path = put(tmp_path / "vectors.txt", data)
    with refused(*named) as caught:
        read_vectors(path)
    assert str(caught.value).startswith(f"{path}{place}:")


def test_faults_after_the_first_block_have_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_BLOCK", 64)
    path = put(tmp_path / "v", "".join(f"w{i} 1 2\n" for i in range(500)) + "bad 1 ?\n")
    with refused(f"{path} line 501:", "'?'"):
        read_vectors(path)


def test_no_file_a_folder_and_an_endless_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(f"{tmp_path / 'none.txt'}:", "path"):
        read_vectors(tmp_path / "none.txt")
    with refused(f"{tmp_path} ", "folder"):
        read_vectors(tmp_path)
    monkeypatch.setattr(files_module, "_BLOCK", 64)
    monkeypatch.setattr(files_module, "LONGEST_LINE", 1000)
    with refused(f"{tmp_path / 'v'} line 2:", "1,000 characters"):
        read_vectors(put(tmp_path / "v", "a 1 2\n" + "x" * 5000))


def test_bytes_that_are_not_text_can_be_replaced(tmp_path: Path) -> None:
    vectors = read_vectors(put(tmp_path / "v", b"a 1 2\n\xff 3 4\n"), errors="replace")
    assert vectors.words == ("a", "\ufffd") and vectors.replaced == 1 and vectors.matrix.tolist() == [[1, 2], [3, 4]]


def test_only_needs_no_memory_for_the_rest(tmp_path: Path) -> None:
    line = " ".join(["0.123456"] * 100)
    path = tmp_path / "v"
    with path.open("w") as out:
        out.writelines(f"w{i} {line}\n" for i in range(30_000))  # 27 MB, whose matrix has 12
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_vectors(path, only={"w7", "w29999"}).words == ("w7", "w29999")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000


@pytest.mark.skipif("FORETEXT_DATA" not in os.environ, reason="FORETEXT_DATA is not set")
def test_published_glove() -> None:
    path = next((Path(os.environ["FORETEXT_DATA"]) / "glove").glob("*.gz"))
    vectors = read_vectors(path)
    assert vectors.matrix.shape == (50_000, 50) and vectors.duplicates == 0
    a, b, c, d = vectors.rows(["King", "man", "woman", "queen"])
    near = vectors.matrix @ (a - b + c) / np.linalg.norm(vectors.matrix, axis=1)
    assert np.array(vectors.words)[np.argsort(-near)[:3]].tolist()[:2] == ["king", "queen"]
    assert d.shape == (50,)
