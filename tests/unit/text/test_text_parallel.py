"""Parallel text: pairs stay pairs, whatever is blank, and files that do not belong together are found out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from complaints import refused

from foretext.text.corpus import text_files as files_module
from foretext.text.corpus.readers import ParallelReport, read_parallel


def put(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def read(
    folder: Path, source: bytes | str, target: bytes | str, errors: str = "strict"
) -> tuple[list[tuple[str, str]], ParallelReport]:
    report = ParallelReport()
    one, other = put(folder / "train.en", source), put(folder / "train.de", target)
    return list(read_parallel(one, other, report, errors)), report


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_pairs_in_order(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_BLOCK", block)
    source = "A man.\r\nTwo dogs \u2028 run.\r\nThree\r\n"
    target = "Ein Mann.\nZwei Hunde laufen.\n Drei"
    pairs, report = read(tmp_path, gzip.compress(source.encode()), b"\xef\xbb\xbf" + target.encode())
    assert pairs == [("A man.", "Ein Mann."), ("Two dogs \u2028 run.", "Zwei Hunde laufen."), ("Three", "Drei")]
    assert (report.pairs, report.blank) == (3, 0)
    assert report.source.done_bytes == report.source.total_bytes > 0


def test_a_blank_side_leaves_the_pair_out_and_the_others_together(tmp_path: Path) -> None:
    pairs, report = read(tmp_path, "a\n\nc\n \t\ne\n", "A\nB\n\n\nE\n")
    assert pairs == [("a", "A"), ("e", "E")] and (report.pairs, report.blank) == (2, 3)


@pytest.mark.parametrize(("source", "target"), [("a\nb\n\n \n", "A\nB"), ("a\nb", "A\nB\n\n\n")])
def test_blank_lines_at_one_end_are_no_difference(tmp_path: Path, source: str, target: str) -> None:
    assert read(tmp_path, source, target)[0] == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize(
    ("source", "target", "longer", "lines", "shorter", "fewer"),
    [
        ("a\nb\nc\n", "A\n", "train.en", "3", "train.de", "1"),
        ("a\n", "A\n\nC\n\n", "train.de", "3", "train.en", "1"),
        ("a\n" * 1200, "A\n" * 1199, "train.en", "1,200", "train.de", "1,199"),
        ("a\n", "", "train.en", "1", "train.de", "0"),
    ],
)
def test_unequal_numbers_of_lines(
    tmp_path: Path, source: str, target: str, longer: str, lines: str, shorter: str, fewer: str
) -> None:
    with refused(str(tmp_path / longer), f" {lines} line", str(tmp_path / shorter), f" {fewer}:") as caught:
        read(tmp_path, source, target)
    assert str(caught.value).index(longer) < str(caught.value).index(f" {lines} ") < str(caught.value).index(shorter)


@pytest.mark.parametrize(
    ("source", "target", "named"),
    [
        (b"a\nb\xff\n", b"A\nB\n", ("train.en byte 3", "0xff", "UTF-8", "--errors replace")),
        (b"a\nb\n", b"A\nB\0\n", ("train.de byte 3", "NUL", "--errors replace")),
        ("a\n".encode("utf-16"), b"A\n", ("train.en byte 0", "UTF-16", "iconv -f UTF-16 -t UTF-8 train.en")),
        (b"a\n", gzip.compress(b"A\n" * 99, mtime=0)[:-9], ("train.de", "gzip")),
        (b"a\n\n", b"\nB\n", ("train.en", "train.de", "both")),
        (b"", b"", ("train.en", "train.de", "both")),
    ],
)
def test_faults_are_one_line(tmp_path: Path, source: bytes, target: bytes, named: tuple[str, ...]) -> None:
    with refused(f"{tmp_path}", *named):
        read(tmp_path, source, target)


def test_replacement_is_counted_by_file(tmp_path: Path) -> None:
    pairs, report = read(tmp_path, b"a\xff\xfeb\n", b"A\0\n", errors="replace")
    assert pairs == [("a\ufffd\ufffdb", "A\ufffd")]
    assert (report.source.replaced, report.target.replaced) == (2, 1)


def test_wrong_arguments(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "a\n")
    with refused(f"{tmp_path / 'b.txt'}:", "path"):
        list(read_parallel(path, tmp_path / "b.txt", ParallelReport()))
    with refused(f"{tmp_path} ", "folder"):
        list(read_parallel(tmp_path, path, ParallelReport()))
    with refused(f"{path}:", "source", "target"):
        list(read_parallel(path, tmp_path / "." / "a.txt", ParallelReport()))
    with refused("errors", "strict", "replace", "'ignore'"):
        list(read_parallel(path, path, ParallelReport(), errors="ignore"))
