"""Reading and checking rows: cells as they stand, row numbers a user can find, labels never coerced."""

import gzip
import json
from pathlib import Path

import numpy
import polars
import pytest
from complaints import names, refused
from hypothesis import given
from hypothesis import strategies as st

from foretext.tasks.files.predictions import output_text
from foretext.tasks.files.rows import Row, read_rows, rows_from, rows_of, table_from
from foretext.text.corpus.tables import Table, parse_csv, parse_jsonl, parse_tsv, read_table


def put(folder: Path, name: str, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def labels(rows: list[Row]) -> list[object]:
    return [row.label for row in rows]


def test_csv_is_quoted_as_in_rfc_4180_and_rows_are_numbered_by_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 'text,label\r\n"one, ""two""\r\nthree",pos\r\n\r\nfour,neg\r\n')
    rows = read_rows(path, "classification")
    assert [row.texts for row in rows] == [('one, "two"\r\nthree',), ("four",)]
    assert [row.where for row in rows] == [f"{path} row 2", f"{path} row 5"]
    assert labels(rows) == ["pos", "neg"]


@pytest.mark.parametrize(
    ("header", "cells", "columns"),
    [
        ("text;label", "a, b;x", ("text", "label")),
        ("text\tlabel", "a, b\tx", ("text", "label")),
        ("text;more,label", "a;b,x", ("text;more", "label")),
        ('"text;with, comma";label', "a;x", ("text;with, comma", "label")),
        ("text", '"a;b"', ("text",)),
    ],
)
def test_csv_delimiter_is_the_comma_unless_the_header_has_none(
    header: str, cells: str, columns: tuple[str, ...]
) -> None:
    assert parse_csv(f"{header}\n{cells}\n", "a.csv").columns == columns


def test_a_long_cell_and_line_separators_of_unicode_stay_whole() -> None:
    text = "a\u2028b\x0bc\x85" + "x" * 200_000
    assert parse_csv(f"text,label\n{text},1\n", "a.csv").rows == [(text, "1")]
    assert parse_tsv(f"text\tlabel\n{text}\t1\n", "a.tsv").rows == [(text, "1")]


def test_tsv_quotes_count_only_where_a_line_is_well_formed_with_them() -> None:
    text = 'text\tlabel\n"a ""b""\tc"\t1\n"open\t0\n"he" said\t1\n"x\ty"\n'
    assert parse_tsv(text, "a.tsv").rows == [('a "b"\tc', "1"), ('"open', "0"), ('"he" said', "1"), ('"x', 'y"')]
    assert parse_tsv('text\tlabel\n"a"\t1\n', "a.tsv", quotes=False).rows == [('"a"', "1")]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.jsonl.gz"])
def test_byte_order_mark_crlf_and_gzip(tmp_path: Path, name: str) -> None:
    bodies = {
        "csv": "text,label\r\nä,01\r\n",
        "tsv": "text\tlabel\r\nä\t01\r\n",
        "jsonl": '{"text":"ä","label":"01"}\r\n',
    }
    path = put(tmp_path, name, b"\xef\xbb\xbf" + bodies[name.split(".")[1]].encode())
    (row,) = read_rows(path, "classification")
    assert (row.texts, row.label) == (("ä",), "01")


def test_labels_are_never_coerced(tmp_path: Path) -> None:
    csv_path = put(tmp_path, "a.csv", "text,label\na,01\nb,1.0\nc,1\nd,TRUE\ne,pos \nf,None\n")
    assert labels(read_rows(csv_path, "classification")) == ["01", "1.0", "1", "TRUE", "pos ", "None"]
    values = [1, 1.0, True, False, "01", 10**20, 0.5]
    jsonl = put(tmp_path, "a.jsonl", "".join(json.dumps({"text": "a", "label": v}) + "\n" for v in values))
    assert labels(read_rows(jsonl, "classification")) == ["1", "1.0", "true", "false", "01", str(10**20), "0.5"]
    polars.DataFrame({"text": ["a", "b"], "label": [7, 8]}).write_parquet(tmp_path / "a.parquet")
    rows = read_rows(tmp_path / "a.parquet", "classification")
    assert labels(rows) == ["7", "8"]
    assert rows[1].where.endswith("a.parquet row 2")


def test_columns_by_other_names_and_every_kind(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "id,review,other,stars\n1,good,b,4.5\n")
    assert read_rows(path, "classification", columns={"text": "review", "label": "stars"})[0].label == "4.5"
    pair = {"premise": "other", "hypothesis": "review", "label": "id"}
    assert read_rows(path, "entailment", columns=pair)[0].texts == ("b", "good")
    pair = {"text1": "review", "text2": "other", "label": "id"}
    assert read_rows(path, "similarity", columns=pair)[0].texts == ("good", "b")
    (row,) = read_rows(path, "regression", columns={"text": "review", "score": "stars"})
    assert (row.texts, row.label) == (("good",), 4.5)
    (row,) = read_rows(path, "regression", columns={"text": "review", "text2": "other", "score": "stars"})
    assert row.texts == ("good", "b")


def test_choices_may_differ_in_number_and_labels_are_numbers_or_texts(tmp_path: Path) -> None:
    text = "context,choice1,choice2,choice3,label\nc,red,green,,2\nc,red,green,blue,blue\nc,3,4,,4\n"
    rows = read_rows(put(tmp_path, "a.csv", text), "choice")
    assert [len(row.texts) for row in rows] == [3, 4, 3]
    assert labels(rows) == [1, 2, 1]


def test_choices_in_more_than_nine_columns_are_in_order_of_number() -> None:
    record = {"context": "c", **{f"choice{i}": f"text {i}" for i in reversed(range(1, 13))}, "label": 11}
    (row,) = rows_from([record], "choice")
    assert row.texts[1:] == tuple(f"text {i}" for i in range(1, 13))
    assert row.label == 10


def test_files_without_labels_are_read_for_prediction(tmp_path: Path) -> None:
    path = put(tmp_path, "new.csv", "text\na\nb\n")
    assert labels(read_rows(path, "classification", need_labels=False)) == [None, None]
    path = put(tmp_path, "some.csv", "text,score\na,?\nb,2\n")
    assert labels(read_rows(path, "regression", need_labels=False)) == [None, 2.0]


def test_replaced_bytes_are_counted(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"text,label\nna\xefve\xff \x00 \xef\xbf\xbd,1\n")
    notes: list[str] = []
    (row,) = read_rows(path, "classification", errors="replace", notes=notes)
    assert row.texts == ("na\ufffdve\ufffd \ufffd \ufffd",)
    (note,) = notes
    names(note, str(path), "3 ", "U+FFFD")


def test_escapes_in_json_are_replaced_and_counted_at_any_depth(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", '{"text": "\\u0000a", "label": "1", "more": {"x": ["\\ud800"]}}\n')
    notes: list[str] = []
    table = read_table(path, errors="replace", notes=notes)
    assert table.rows == [("\ufffda", "1", {"x": ["\ufffd"]})]
    (note,) = notes
    names(note, str(path), "2 ", "U+FFFD")
    with refused(f"{path} row 1", "'text'", "NUL", "--errors replace"):
        read_table(path)


def test_python_data_in_all_its_forms_gives_the_same_rows() -> None:
    wanted = [(("a",), "x"), (("b",), "y")]
    records = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    forms = [records, [("a", "x"), ("b", "y")], (["a", "b"], ["x", "y"]), polars.DataFrame(records)]
    for data in forms:
        assert [(row.texts, row.label) for row in rows_from(data, "classification")] == wanted
    rows = rows_from(records, "classification")
    assert rows[1].where == "data[1]"
    assert rows_from(rows, "classification") is rows
    assert rows_from(tuple(rows), "classification") == rows
    assert labels(rows_from(["a", "b"], "classification", need_labels=False)) == [None, None]


class PandasLike:
    """The two things of a pandas frame that are used, for machines without pandas."""

    def __init__(self, records: list[dict[str, object]]) -> None:
        self.records, self.columns = records, list(records[0])

    def to_dict(self, orient: str) -> list[dict[str, object]]:
        assert orient == "records"
        return self.records


def test_pandas_frames_and_numpy_labels() -> None:
    frame = PandasLike([{"review": "a", "label": numpy.int64(1)}, {"review": "b", "label": 2}])
    assert labels(rows_from(frame, "classification", columns={"text": "review"})) == ["1", "2"]
    pair = (numpy.array(["a", "b"]), numpy.array([True, False]))
    assert labels(rows_from(pair, "classification")) == ["true", "false"]
    with refused("data[1]", "column 'label'", "missing", "'x'"):
        rows_from(PandasLike([{"text": "a", "label": "x"}, {"text": "b", "label": float("nan")}]), "classification")


def test_python_pairs_choices_and_scores() -> None:
    assert rows_from([("p", "h", "yes")], "entailment")[0].texts == ("p", "h")
    assert rows_from([("p", "h")], "similarity", need_labels=False)[0].label is None
    assert rows_from([("c", ["x", "y"], 2)], "choice")[0].label == 1
    assert rows_from([{"context": "c", "choices": ["x", "y"], "label": "x"}], "choice")[0].label == 0
    assert rows_from([("a", 2)], "regression")[0] == Row(("a",), 2.0, "data[0]")
    assert rows_from([("a", "b", 2.5)], "regression")[0] == Row(("a", "b"), 2.5, "data[0]")
    assert rows_from(([("a", "b")], [1]), "regression")[0] == Row(("a", "b"), 1.0, "data[0]")


@pytest.mark.parametrize(
    ("data", "kind", "named"),
    [
        ("text", "classification", ("data:", "str")),
        ([], "classification", ("data:", "rows")),
        ((["a"], ["x", "y"]), "classification", ("data:", "X ", "1 text", "y ", "2 labels")),
        ((["a"], "x", "y"), "classification", ("data:", "tuple", "(X, y)")),
        ([("a", "b", "c", "d")], "entailment", ("data[0]", "4 values", "entailment", "premise, hypothesis, label")),
        ([3], "classification", ("data[0]", "int")),
        ([("c", "x", "y", 1)], "choice", ("data[0]", "(context, [choice, …], label)")),
        ([("a\ud800", "x")], "classification", ("data[0]", "column 'text'", "surrogate")),
        ([("a", numpy.array([1, 2]))], "classification", ("data[0]", "column 'label'", "ndarray")),
        ([{"text": ["a"], "label": "x"}], "classification", ("data[0]", "column 'text'", "list")),
    ],
)
def test_python_data_that_is_wrong(data: object, kind: str, named: tuple[str, ...]) -> None:
    with refused(*named):
        rows_from(data, kind)


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=4))
def test_csv_round_trip(rows: list[tuple[str, str]]) -> None:
    table = Table("a.csv", ("text", "label"), list(rows), [""] * len(rows))
    assert parse_csv(output_text(table, "csv"), "a.csv").rows == rows


@given(st.lists(st.tuples(CELL, st.none() | st.integers() | st.booleans() | CELL), min_size=1, max_size=4))
def test_json_lines_round_trip(rows: list[tuple[str, object]]) -> None:
    table = Table("a.jsonl", ("text", "label"), list(rows), [""] * len(rows))
    assert parse_jsonl(output_text(table, "jsonl"), "a.jsonl").rows == rows


def test_a_table_keeps_every_column_and_gives_rows_in_its_order(tmp_path: Path) -> None:
    table = read_table(put(tmp_path, "a.csv", "id,text,note\n7,a,n\n8,b,m\n"))
    assert table.columns == ("id", "text", "note")
    assert table.column("id") == ["7", "8"]
    assert [row.texts for row in rows_of(table, "classification", need_labels=False)] == [("a",), ("b",)]
    assert table_from(["a"], "classification").columns == ("text",)
