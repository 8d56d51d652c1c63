from __future__ import annotations

import csv
import gzip
import io
import json
import random
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from complaints import refused

from foretext.errors import EXIT_MACHINE
from foretext.text.corpus import readers, tables
from foretext.text.corpus import text_files as files_module
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents


def read(*inputs: Path | str, **options: str) -> tuple[list[str], ReadReport]:
    report = ReadReport()
    chosen = ReadOptions(**options)  # type: ignore[arg-type]
    return list(read_documents(find_files(inputs), chosen, report)), report


def put(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# --- finding


def packed(data: bytes) -> bytes:
    """`data` as gzip without the time in it: parameters of tests must be the same in every process."""
    return gzip.compress(data, mtime=0)


def test_files_folders_and_globs(tmp_path: Path) -> None:
    for name in ("b.txt", "a.JSONL", "deep/c.csv", "deep/er/d.tsv.gz", "e.parquet", "f.md", "g.parquet.gz", ".h.txt"):
        put(tmp_path / name, "x")
    names = [(file.path.name, file.kind, file.gzipped) for file in find_files([tmp_path])]
    assert names == [
        ("a.JSONL", "jsonl", False),
        ("b.txt", "txt", False),
        ("c.csv", "csv", False),
        ("d.tsv.gz", "tsv", True),
        ("e.parquet", "parquet", False),
        ("g.parquet.gz", "parquet", True),
    ]
    assert [file.path.name for file in find_files([str(tmp_path / "**" / "*.csv"), tmp_path / "b.txt"])] == [
        "b.txt",
        "c.csv",
    ]
    assert len(find_files([tmp_path / "b.txt", tmp_path, str(tmp_path / "*.txt")])) == 6, "a file is read once"


def test_a_name_with_brackets_is_a_file_before_it_is_a_pattern(tmp_path: Path) -> None:
    path = put(tmp_path / "notes [1].txt", "x")
    assert [file.path for file in find_files([path])] == [path]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("missing.txt", "path"),
        ("*.txt", "pattern"),
        ("notes.md", ".txt, .jsonl, .csv, .tsv or .parquet"),
        ("folder", ".txt, .jsonl, .csv, .tsv or .parquet"),
        ("empty.txt", "empty"),
    ],
)
def test_nothing_to_read(tmp_path: Path, name: str, named: str) -> None:
    put(tmp_path / "notes.md", "x")
    put(tmp_path / "folder" / "notes.md", "x")
    if name == "empty.txt":
        put(tmp_path / name, "")
    with refused(str(tmp_path / name), named):
        find_files([tmp_path / name])


# --- plain text


def test_lines_or_blank_lines(tmp_path: Path) -> None:
    lines = put(tmp_path / "lines.txt", "\n\none\n  two\nthree\n\n")
    blank = put(tmp_path / "blank.txt", "one\nmore\n \t\n\ntwo\n\nthree")
    assert read(lines)[0] == ["one", "  two", "three"]
    assert "line" in read(lines)[1].rule and "blank" not in read(lines)[1].rule
    assert read(blank)[0] == ["one\nmore", "two", "three"]
    assert "blank" in read(blank)[1].rule
    assert read(blank, documents="line")[0] == ["one", "more", "two", "three"]
    assert read(lines, documents="file")[0] == ["one\n  two\nthree"]
    documents, report = read(blank, lines)
    assert documents == ["one\nmore", "two", "three", "one", "  two", "three"]
    assert report.rule == f"{read(blank)[1].rule} (1 file); {read(lines)[1].rule} (1 file)"
    assert report.documents == 6 and report.bytes == sum(map(len, documents))


def test_many_small_files_are_a_document_each(tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path / f"{number:02}.txt", f"a{number}\n\nb\n")
    documents, report = read(tmp_path)
    assert len(documents) == 20 and documents[3] == "a3\n\nb" and "file" in report.rule
    (tmp_path / "19.txt").unlink()
    assert "blank" in read(tmp_path)[1].rule


def test_nothing_else_ends_a_line(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "one\u2028still\x0bone\x85yes\ntwo\x1ctwo")
    assert read(path)[0] == ["one\u2028still\x0bone\x85yes", "two\x1ctwo"]


def test_mark_and_carriage_returns(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read(path)[0] == ["one", "two"]


@pytest.mark.parametrize("block", [1, 2, 3, 5, 7])
def test_block_borders_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    text = "é中\U0001f600\r\nsecond\r\r\nthird \ufffd\r"
    path = put(tmp_path / "a.txt", b"\xef\xbb\xbf" + text.encode() + b"\xff\xe4\xb8\nlast \x00\xe4")
    whole = read(path, errors="replace", documents="line")
    monkeypatch.setattr(files_module, "_BLOCK", block)
    assert read(path, errors="replace", documents="line") == whole
    assert whole[0] == ["é中\U0001f600", "second", "third \ufffd", "\ufffd\ufffd", "last \ufffd\ufffd"]
    assert whole[1].replaced == 4


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, block: int) -> None:
    monkeypatch.setattr(files_module, "_BLOCK", block)
    lines = ["one", "two", "", "three"]
    plain = put(tmp_path / "a.txt", end.join(lines) + end)
    assert read(plain, documents="line")[0] == ["one", "two", "three"]
    assert read(plain, documents="blank")[0] == ["one\ntwo", "three"]
    assert read(plain, documents="file")[0] == ["one\ntwo\n\nthree"]
    assert read(put(tmp_path / "a.csv", end.join(["text,n", '"a', 'b",1', "c,2"])))[0] == ["a\nb", "c"]
    assert read(put(tmp_path / "a.jsonl", end.join(['"a\\rb"', '"c"'])))[0] == ["a\nb", "c"]


@pytest.mark.parametrize("block", [4, 1 << 20])
@pytest.mark.parametrize(
    ("data", "byte", "named"),
    [
        (b"good\nba\xe9d\n", 7, ("0xe9", "--errors replace")),
        (b"\xef\xbb\xbfgood\n\xff", 8, ("0xff", "--errors replace")),
        (b"good \x00 bad", 5, ("NUL", "--errors replace")),
        (b"good \xe4\xb8", 5, ("0xe4", "--errors replace")),
        ("hello".encode("utf-16"), 0, ("UTF-16", "iconv -f UTF-16 -t UTF-8 a.txt")),
        ("hello".encode("utf-32"), 0, ("UTF-32", "iconv -f UTF-32 -t UTF-8 a.txt")),
    ],
)
def test_wrong_encoding_names_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, byte: int, named: tuple[str, ...], block: int
) -> None:
    monkeypatch.setattr(files_module, "_BLOCK", block)
    path = put(tmp_path / "a.txt", data)
    with refused(f"{path} byte {byte}:", "UTF-8", *named):
        read(path)


def test_over_long_documents_are_cut_at_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST", 20)
    monkeypatch.setattr(files_module, "_BLOCK", 8)
    text = "word " * 30
    path = put(tmp_path / "a.txt", text + "\n" + "x" * 50)
    for rule in ("line", "file", "blank"):
        documents, report = read(path, documents=rule)
        assert max(map(len, documents)) <= 20 + 8
        assert "".join(documents).replace("\n", "") == text + "x" * 50
        assert report.cut > 5
        assert all(document.endswith(" ") for document in documents[:4])
    table = put(tmp_path / "a.jsonl", json.dumps({"text": text}))
    documents, report = read(table)
    assert "".join(documents) == text and report.cut == len(documents) - 1 > 5


# --- tables


def test_json_lines(tmp_path: Path) -> None:
    rows = [{"id": "1", "text": "one\r\n中"}, {"text": " "}, {"text": None}, {"text": "two"}]
    path = put(tmp_path / "a.jsonl", "\n".join(json.dumps(row) for row in rows) + "\n\n")
    documents, report = read(path)
    assert documents == ["one\n中", "two"]
    assert "(column text)" in report.rule and report.blank == 2
    assert read(put(tmp_path / "b.jsonl", '"a bare text"\n{"text": "x"}'))[0] == ["a bare text", "x"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_text_column(tmp_path: Path, kind: str) -> None:
    frame = pl.DataFrame({"label": [1, 0], "text_a": ["good", "bad"]})
    path = tmp_path / f"a.{kind}"
    write(frame, path)
    assert read(path)[0] == ["good", "bad"]
    assert "(column text_a)" in read(path)[1].rule
    write(frame.with_columns(other=pl.Series(["x", "y"])), path)
    assert read(path, column="other")[0] == ["x", "y"]
    with refused(f"{path}:", "--text-column", "label, text_a, other"):
        read(path)
    with refused(f"{path}:", "column 'body'", "--text-column", "label, text_a, other"):
        read(path, column="body")


def write(frame: pl.DataFrame, path: Path) -> None:
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".jsonl":
        frame.write_ndjson(path)
    else:
        frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")


def test_quotes(tmp_path: Path) -> None:
    table = put(tmp_path / "a.csv", 'text,n\r\n"a ""b"", c\r\nd",1\r\n')
    tsv = put(tmp_path / "a.tsv", 'text\tn\n"a" said b\t1\n"open\t2\n"a ""b"""\t3\n')
    assert read(table)[0] == ['a "b", c\nd']
    assert read(tsv)[0] == ['"a" said b', '"open', 'a "b"']


@pytest.mark.parametrize(
    "data",
    [
        "text;label\na, b;pos\nc;neg\n",
        '\n"text";"label, or none"\n"a, b";pos\nc;neg\n',
        "text\tlabel\na, b\tpos\nc\tneg\n",
        'text,"label;n"\n"a, b",pos\nc,neg\n',
    ],
)
def test_the_header_line_shows_the_delimiter_of_csv(tmp_path: Path, data: str) -> None:
    documents, report = read(put(tmp_path / "a.csv", data))
    assert documents == ["a, b", "c"] and "(column text)" in report.rule


def test_an_open_quote_is_found_without_holding_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LONGEST_LINE", 200_000)
    csv.field_size_limit(131_072)
    drawn = 0
    real = tables.table_lines

    def counted(*arguments: object) -> Iterator[str]:
        nonlocal drawn
        for line in real(*arguments):  # type: ignore[arg-type]
            drawn += 1
            yield line

    monkeypatch.setattr(tables, "table_lines", counted)
    path = put(tmp_path / "a.csv", 'text,n\n"open,1\n' + "some words,2\n" * 100_000)
    with refused(f"{path} row 2:", "quote"):
        read(path)
    assert drawn < 20_000


def test_parquet_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_PARQUET_ROWS", 7)
    texts = [f"row {n}" for n in range(100)]
    pl.DataFrame({"text": texts}).write_parquet(tmp_path / "a.parquet", row_group_size=30)
    documents, report = read(tmp_path / "a.parquet")
    assert documents == texts
    assert report.done_bytes == report.total_bytes > 0


def parquet(*texts: str) -> bytes:
    data = io.BytesIO()
    pl.DataFrame({"text": texts}).write_parquet(data)
    return data.getvalue()


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.parquet"])
def test_gzip(tmp_path: Path, name: str) -> None:
    body = {
        "txt": b"one\ntwo\n",
        "jsonl": b'{"text":"one"}\n{"text":"two"}',
        "csv": b"text\none\ntwo",
        "tsv": b"text\none\ntwo",
        "parquet": parquet("one", "two"),
    }
    path = put(tmp_path / "texts" / (name + ".gz"), packed(body[name[2:]]))
    documents, report = read(path.parent)
    assert documents == ["one", "two"] and report.done_bytes == report.total_bytes == path.stat().st_size


def test_packed_parquet_is_unpacked_aside_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    path = put(tmp_path / "a.parquet.gz", packed(parquet(*(f"row {n}" for n in range(50_000)))))
    documents = read_documents(find_files([path]), ReadOptions(), ReadReport())
    assert next(documents) == "row 0" and any(aside.iterdir())
    documents.close()  # type: ignore[attr-defined]
    assert not any(aside.iterdir())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with refused(f"{path}:", f"{aside} ", "(File") as caught:
            read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.code == EXIT_MACHINE and not any(aside.iterdir())


@pytest.mark.parametrize(
    ("name", "data", "place", "named"),
    [
        ("a.parquet.gz", b"plain", "", ["gzip"]),
        ("a.parquet.gz", packed(parquet("one"))[:-9], "", ["gzip"]),
        ("a.parquet.gz", packed(b"PAR1 no"), "", ["Parquet"]),
        ("a.txt.gz", b"plain", "", ["gzip"]),
        ("a.txt.gz", packed(random.Random(0).randbytes(4000).hex().encode())[:-900], "", ["gzip"]),
        ("a.parquet", b"PAR1 no", "", ["Parquet"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": ', " row 2", ["JSON ("]),
        ("a.jsonl", b'{"text": "x"}\n' + b"[" * 100_000, " row 2", ["JSON ("]),
        ("a.jsonl", b"3\n", " row 1", ["JSON", "object"]),
        ("a.jsonl", b'{"text": "x"}\n{"body": "y"}', " row 2", ["field 'text'", "body"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": 3}', " row 2", ["int", "--text-column"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\\u0000"}', " row 2", ["NUL", "--errors replace"]),
        ("a.jsonl", b'{"text": "\\ud800"}', " row 1", ["surrogate", "--errors replace"]),
        ("a.csv", b'text,n\na,1\n"b\nc",2,3\n', " row 3", ["3 cells", "2"]),
        ("a.csv", b'text,n\na,1\n"open,2\nc,3\n', " row 3", ["quote", '""']),
        ("a.csv", b'text,n\n"a" said b,1\n', " row 2", ["quote", '""']),
        ("a.tsv", b"text\tn\na\n", " row 2", ["1 cell", "2", "TSV"]),
        ("a.txt", b" \n\n \n", "", ["blank"]),
        ("a.csv", b"text\n", "", ["blank"]),
        ("a.jsonl", b"\n\n", "", ["blank"]),
    ],
)
def test_broken_files(tmp_path: Path, name: str, data: bytes, place: str, named: list[str]) -> None:
    path = put(tmp_path / name, data)
    with refused(*named) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{place}:")


def test_replacing_in_tables(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", b'{"text": "a\\u0000b\\ud800"}\n{"text": "c\xff"}')
    documents, report = read(path, errors="replace")
    assert documents == ["a\ufffdb\ufffd", "c\ufffd"] and report.replaced == 3


def test_unknown_options(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "x")
    for key, wrong, right in (("documents", "page", "auto, line, blank, file"), ("errors", "ignore", "strict")):
        with refused(key, f"'{wrong}'", right):
            read(path, **{key: wrong})
