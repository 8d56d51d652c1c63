"""`pretrain` and `finetune` read a table by one reader: the same cells, and the same words for the same fault."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import polars
import pytest
from complaints import names

from foretext.errors import UserError
from foretext.text.corpus import tables, text_files
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.text.corpus.tables import read_table


def put(path: Path, data: bytes | str) -> Path:
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def documents(path: Path, errors: str = "strict") -> list[str]:
    """What `pretrain` reads."""
    return list(read_documents(find_files([path]), ReadOptions(errors=errors), ReadReport()))


def cells(path: Path, errors: str = "strict") -> list[str]:
    """What `finetune` reads, with the line ends that documents have."""
    found = read_table(path, errors=errors).column("text")
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in found]


def parquet(**columns: Sequence[object] | polars.Series) -> bytes:
    data = io.BytesIO()
    polars.DataFrame(columns).write_parquet(data)
    return data.getvalue()


READ = {
    "csv": ("a.csv", "text,n\none,1\ntwo,2\n", ["one", "two"]),
    "csv, quotes": ("a.csv", 'text,n\n"He said ""no""",1\n"a, b",2\n', ['He said "no"', "a, b"]),
    "csv, line breaks": ("a.csv", 'text,n\r\n"a\r\nb\rc",1\r\nd,2\r\n', ["a\nb\nc", "d"]),
    "csv, carriage returns": ("a.csv", 'text,n\r"a\rb",1\rd,2\r', ["a\nb", "d"]),
    "csv, semicolons": ("a.csv", "text;n\na, b;1\n", ["a, b"]),
    "csv, blank lines": ("a.csv", "\n \ntext,n\n\none,1\n  \n\ntwo,2\n\n", ["one", "two"]),
    "csv, spaces round names": ("a.csv", "n, text \n1,one\n", ["one"]),
    "csv, mark": ("a.csv", b"\xef\xbb\xbftext,n\none,1\n", ["one"]),
    "csv, long cell": ("a.csv", f"text,n\n{'x' * 200_000},1\n", ["x" * 200_000]),
    "csv, packed": ("a.csv.gz", 'text,n\n"a ""b""",1\n', ['a "b"']),
    "tsv, doubled quotes": ("a.tsv", 'text\tn\n"He said ""no"""\t1\n', ['He said "no"']),
    "tsv, quoted tab": ("a.tsv", 'text\tn\n"a\tb"\t1\n', ["a\tb"]),
    "tsv, quotes that are none": (
        "a.tsv",
        'text\tn\n"open\t1\n"he" said\t2\n5" x\t3\n',
        ['"open', '"he" said', '5" x'],
    ),
    "tsv, blank lines": ("a.tsv", "\ntext\tn\n\none\t1\n \ntwo\t2\n", ["one", "two"]),
    "tsv, carriage returns": ("a.tsv", "text\tn\r\none\t1\rtwo\t2\n", ["one", "two"]),
    "tsv, packed": ("a.tsv.gz", "text\tn\none\t1\n", ["one"]),
    "tsv, other ending": ("a.tab", "text\tn\none\t1\n", ["one"]),
    "json lines": ("a.jsonl", '{"text": "a \\"b\\"\\nc", "n": 1}\n\n{"n": 2, "text": "d"}', ['a "b"\nc', "d"]),
    "json lines, bare": ("a.jsonl", '"one"\n{"text": "two"}\n', ["one", "two"]),
    "json lines, other ending": ("a.ndjson", '{"text": "one"}\n', ["one"]),
    "json lines, mark, packed": ("a.jsonl.gz", b'\xef\xbb\xbf{"text": "one"}\r\n{"text": "two"}\r\n', ["one", "two"]),
    "parquet": ("a.parquet", parquet(text=['"a" ""b""', "c\nd"], n=[1, 2]), ['"a" ""b""', "c\nd"]),
    "parquet, packed": ("a.parquet.gz", parquet(text=["one"], n=[1]), ["one"]),
    "parquet, other ending": ("a.pq", parquet(text=["one"], n=[1]), ["one"]),
    "parquet, categories": (
        "a.parquet",
        parquet(text=polars.Series(["a", "b", "a"], dtype=polars.Categorical)),
        [*"aba"],
    ),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", READ)
def test_both_read_the_same_cells(tmp_path: Path, case: str) -> None:
    name, data, wanted = READ[case]
    path = put(tmp_path / name, data)
    assert documents(path) == wanted
    assert cells(path) == wanted


# name of the file, its content, where the message begins
FAULTS = {
    "csv, few cells": ("a.csv", 'text,n\n"a\nb",1\nc\n', "row 4"),
    "csv, many cells": ("a.csv", "text,n\n\na,1\nb,2,3\n", "row 4"),
    "csv, open quote": ("a.csv", 'text,n\n"a\nb",1\n"open,2\nc,3\n', "row 4"),
    "csv, bare quote": ("a.csv", '\ntext,n\n"a" said b,1\n', "row 3"),
    "csv, column twice": ("a.csv", "\ntext,n,text\na,1,b\n", "row 2"),
    "tsv, few cells": ("a.tsv", "text\tn\na\t1\n\nb\n", "row 4"),
    "tsv, line break": ("a.tsv", 'text\tn\na\t1\n"b\nc"\t2\n', "row 3"),
    "json, cut short": ("a.jsonl", '{"text": "a"}\n\n{"text": ', "row 3"),
    "json, too deep": ("a.jsonl", '{"text": "a"}\n' + "[" * 100_000, "row 2"),
    "json, no object": ("a.jsonl", '{"text": "a"}\n3\n', "row 2"),
    "json, key twice": ("a.jsonl", '{"text": "a"}\n{"text": "a", "text": "b"}\n', "row 2"),
    "json, NUL": ("a.jsonl", '{"text": "a"}\n{"text": "\\u0000"}\n', "row 2"),
    "json, half a pair": ("a.jsonl", '{"text": "\\ud800"}\n', "row 1"),
    "latin-1": ("a.csv", b"text,n\ncaf\xe9,1\n", "byte 10"),
    "latin-1 after a mark": ("a.tsv", b"\xef\xbb\xbftext\tn\ncaf\xe9\t1\n", "byte 13"),
    "latin-1, packed": ("a.jsonl.gz", b'{"text": "caf\xe9"}\n', "byte 13"),
    "a NUL byte": ("a.csv", b"text,n\na\0b,1\n", "byte 8"),
    "UTF-16": ("a.csv", "text,n\na,1\n".encode("utf-16"), "byte 0"),
    "UTF-32": ("a.csv", "text,n\na,1\n".encode("utf-32"), "byte 0"),
    "damaged parquet": ("a.parquet", b"PAR1 no PAR1", ""),
}


@pytest.mark.parametrize("case", FAULTS)
def test_both_say_the_same_of_a_fault(tmp_path: Path, case: str) -> None:
    name, data, place = FAULTS[case]
    path = put(tmp_path / name, data)
    said = []
    for read in (documents, cells):
        with pytest.raises(UserError) as caught:
            read(path)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert said[0].startswith(f"{path} {place}".rstrip() + ":")


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b\x08 cut", gzip.compress(b"text,n\na,1\n" * 99, mtime=0)[:-9]])
def test_both_say_the_same_of_a_broken_package(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(data)
    for read in (documents, cells):
        with pytest.raises(UserError) as caught:
            read(path)
        names(caught.value, f"{path}: ", "gzip" if data else "empty")


@pytest.mark.parametrize(
    ("name", "data"), [("a.csv", "text,n\n"), ("a.tsv", "text\tn\n"), ("a.parquet", parquet(text=[]))]
)
def test_a_header_alone_and_nothing_at_all_are_refused(tmp_path: Path, name: str, data: bytes | str) -> None:
    for content, word in ((data, "header"), (b"", "empty")):
        path = put(tmp_path / name, content)
        with pytest.raises(UserError, match=f"^{path}: "):
            documents(path)
        with pytest.raises(UserError) as caught:
            cells(path)
        names(caught.value, f"{path}: ", word)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_both_replace_the_same(tmp_path: Path, name: str) -> None:
    rows = {
        "csv": b"text,n\nna\xefve \0,1\n",
        "tsv": b"text\tn\nna\xefve \0\t1\n",
        "jsonl": b'{"text": "na\xefve \\u0000"}',
    }
    path = put(tmp_path / name, rows[name[2:]])
    assert documents(path, "replace") == cells(path, "replace") == ["na\ufffdve \ufffd"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "csv.gz", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(text_files, "_BLOCK", 1 << 14)
    monkeypatch.setattr(tables, "_PARQUET_ROWS", 200)
    row = {
        "csv": '"some ""words""\nhere, and more",1\n',
        "tsv": '"some ""words"""\t1\n',
        "jsonl": '{"text": "words"}\n',
    }
    head = {"csv": "text,n\n", "tsv": "text\tn\n", "jsonl": ""}
    peaks = []
    for size in (100_000, 400_000):
        if kind == "parquet":
            path = put(tmp_path / "a.parquet", parquet(text=["some words here " * 4] * (size // 64)))
        else:
            plain = kind.removesuffix(".gz")
            path = put(tmp_path / f"a.{kind}", head[plain] + row[plain] * (size // len(row[plain])))
        tracemalloc.start()
        for _ in read_documents(find_files([path]), ReadOptions(), ReadReport()):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
