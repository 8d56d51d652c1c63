"""Faults 17 to 19 in labelled files: one line that says what, where and what to do. And a write that fails."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from complaints import names, refused

from foretext.tasks.files.rows import read_rows
from foretext.tasks.labelled import LabelSet, class_name

CHOICE = "context,choice1,choice2,label\n"

# name of the file, its bytes, kind, what the message must name
BAD_FILES = {
    "latin-1": (
        "a.csv",
        b"text,label\ncaf\xe9,1\n",
        "classification",
        ["a.csv byte 14: ", "0xe9", "line 2", "UTF-8", "--errors replace"],
    ),
    "after a mark": (
        "a.csv",
        b"\xef\xbb\xbftext,label\ncaf\xe9,1\n",
        "classification",
        ["a.csv byte 17: ", "0xe9", "line 2"],
    ),
    "utf-16": ("a.csv", "text,label\na,1\n".encode("utf-16"), "classification", ["a.csv byte 0: ", "UTF-16", "UTF-8"]),
    "nul": (
        "a.tsv",
        b"text\tlabel\na\x00b\t1\n",
        "classification",
        ["a.tsv byte 12: ", "NUL", "line 2", "--errors replace"],
    ),
    "nul after a mark": (
        "a.csv",
        b"\xef\xbb\xbftext,label\n\x00,1\n",
        "classification",
        ["a.csv byte 14: ", "NUL"],
    ),
    "nul in JSON": (
        "a.jsonl",
        b'{"text": "a\\u0000", "label": 1}\n',
        "classification",
        ["a.jsonl row 1: 'text'", "NUL"],
    ),
    "half a pair": (
        "a.jsonl",
        b'{"text": "a\\ud800", "label": 1}\n',
        "classification",
        ["a.jsonl row 1: 'text'", "surrogate"],
    ),
    "empty": ("a.csv", b"", "classification", ["a.csv: ", "empty"]),
    "blank": ("a.csv", b"\n \n", "classification", ["a.csv: ", "blank"]),
    "empty parquet": ("a.parquet", b"", "classification", ["a.parquet: ", "empty"]),
    "broken parquet": ("a.parquet", b"PAR1 no PAR1", "classification", ["a.parquet: ", "Parquet"]),
    "broken gzip": ("a.csv.gz", b"\x1f\x8b\x08 cut", "classification", ["a.csv.gz: ", "gzip"]),
    "header only": ("a.csv", b"text,label\n", "classification", ["a.csv: ", "header", "(text, label)"]),
    "unknown ending": ("a.xlsx", b"x", "classification", ["a.xlsx: ", "'.xlsx'", ".csv, .tsv, .jsonl, .parquet"]),
    "missing column": (
        "a.csv",
        b"Texts,label\na,1\n",
        "classification",
        ["a.csv: ", "column 'text'", "'Texts'", "Texts, label", '--columns "text=Texts"'],
    ),
    "missing label column": (
        "a.csv",
        b"text,y\na,1\n",
        "classification",
        ["a.csv: ", "column 'label'", "text, y", '--columns "label=y"'],
    ),
    "same column twice": (
        "a.csv",
        b"text,label,text\na,1,b\n",
        "classification",
        ["a.csv row 1: ", "column 'text'", "twice"],
    ),
    "same key twice": (
        "a.jsonl",
        b'{"text":"a","text":"b","label":1}',
        "classification",
        ["a.jsonl row 1: ", "key 'text'", "twice"],
    ),
    "missing label": (
        "a.csv",
        b"text,label\na,1\nb,\n",
        "classification",
        ["a.csv row 3, column 'label': ", "missing", "'1'"],
    ),
    "blank label": ("a.tsv", b"text\tlabel\na\t \n", "classification", ["a.tsv row 2, column 'label': ", "missing"]),
    "null label": (
        "a.jsonl",
        b'{"text":"a","label":1}\n{"text":"b"}\n',
        "classification",
        ["a.jsonl row 2, column 'label': ", "missing", "'1'"],
    ),
    "blank text": ("a.csv", b"text,label\na,1\n  ,0\n", "classification", ["a.csv row 3: ", "column 'text'", "blank"]),
    "blank hypothesis": (
        "a.csv",
        b"premise,hypothesis,label\na,,1\n",
        "entailment",
        ["a.csv row 2: ", "column 'hypothesis'", "blank"],
    ),
    "too many cells": (
        "a.csv",
        b"text,label\na,b,1\n",
        "classification",
        ["a.csv row 2: ", "3 cells", "2 (text, label)", "quotes"],
    ),
    "too few cells": ("a.csv", b"text,label\na\n", "classification", ["a.csv row 2: ", "1 cell", "2 (text, label)"]),
    "tsv cells": (
        "a.tsv",
        b"text\tlabel\na\tb\t1\n",
        "classification",
        ["a.tsv row 2: ", "3 cells", "2 (text, label)", "tab"],
    ),
    "open quote": ("a.csv", b'text,label\na,1\n"b,0\nc,1\n', "classification", ["a.csv row 3: ", "quote"]),
    "bad quote": ("a.csv", b'text,label\n"a"b,1\n', "classification", ["a.csv row 2: ", "quote"]),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n{text}\n', "classification", ["a.jsonl row 2: ", "JSON"]),
    "deep JSON": ("a.jsonl", b"[" * 100_000, "classification", ["a.jsonl row 1: ", "JSON"]),
    "deep value": (
        "a.jsonl",
        b'{"a":' + b"[" * 700 + b"]" * 700 + b"}",
        "classification",
        ["a.jsonl row 1: ", "nested"],
    ),
    "JSON list": ("a.jsonl", b"[1]\n", "classification", ["a.jsonl row 1: ", "list", '{"text": …}']),
    "score": (
        "a.csv",
        b'text,score\na,1\nb,"3,5"\n',
        "regression",
        ["a.csv row 3, column 'score': ", "'3,5'", "finite"],
    ),
    "infinite score": (
        "a.csv",
        b"text,score\na,1e999\n",
        "regression",
        ["a.csv row 2, column 'score': ", "'1e999'", "finite"],
    ),
    "nan score": ("a.csv", b"text,score\na,nan\n", "regression", ["a.csv row 2, column 'score': ", "'nan'", "finite"]),
    "choice 3 of 2": (
        "a.csv",
        f"{CHOICE}c,a,b,3\n".encode(),
        "choice",
        ["a.csv row 2, column 'label': ", "'3'", "1 to 2"],
    ),
    "choice 0": ("a.csv", f"{CHOICE}c,a,b,0\n".encode(), "choice", ["a.csv row 2, column 'label': ", "'0'", "1 to 2"]),
    "choice 1.0": (
        "a.csv",
        f"{CHOICE}c,a,b,1.0\n".encode(),
        "choice",
        ["a.csv row 2, column 'label': ", "'1.0'", "1 to 2"],
    ),
    "choice both ways": (
        "a.csv",
        f"{CHOICE}c,2,1,1\n".encode(),
        "choice",
        ["a.csv row 2, column 'label': ", "'1'", "choice1 or choice2"],
    ),
    "one choice": (
        "a.csv",
        f"{CHOICE}c,a,,1\n".encode(),
        "choice",
        ["a.csv row 2: ", "1 choice", "choice1", "choice2"],
    ),
    "gap": (
        "a.csv",
        b"context,choice1,choice2,choice3,label\nc,a,,b,1\n",
        "choice",
        ["a.csv row 2: ", "column 'choice2'", "blank"],
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_gives_one_clear_line(tmp_path: Path, case: str) -> None:
    name, data, kind, wanted = BAD_FILES[case]
    (tmp_path / name).write_bytes(data)
    with refused(*wanted) as caught:
        read_rows(tmp_path / name, kind)
    assert caught.value.code == 2


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with refused(f"{tmp_path / 'a.csv'}: ", "path"):
        read_rows(tmp_path / "a.csv", "classification")
    (tmp_path / "b.csv").mkdir()
    with refused(str(tmp_path / "b.csv"), "folder"):
        read_rows(tmp_path / "b.csv", "classification")


@pytest.mark.parametrize(
    ("header", "kind", "columns", "remedy"),
    [
        ("labels,y", "classification", {"text": "labels"}, '--columns "label=y"'),
        ("text1,label,second", "similarity", None, '--columns "text2=second"'),
        ("text", "classification", None, ""),
        ("premise,label", "entailment", None, ""),
    ],
)
def test_a_column_in_use_is_no_remedy(
    tmp_path: Path, header: str, kind: str, columns: dict[str, str] | None, remedy: str
) -> None:
    (tmp_path / "a.csv").write_text(header + "\n" + ",".join("a" for _ in header.split(",")) + "\n")
    with refused("a.csv: ", "column '", header.replace(",", ", ")) as caught:
        read_rows(tmp_path / "a.csv", kind, columns=columns)
    assert remedy in str(caught.value) if remedy else "--columns" not in str(caught.value)


def test_columns_for_a_field_that_the_kind_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,score\na,1\n")
    with refused("--columns label=…: ", "regression", "field 'label'", "text, text2, score"):
        read_rows(tmp_path / "a.csv", "regression", columns={"label": "score"})
    with refused(
        "a.csv: ", "column 'stars'", "text, score", "--columns"
    ):  # misspelt, although prediction needs no labels
        read_rows(tmp_path / "a.csv", "regression", columns={"score": "stars"}, need_labels=False)


def test_a_label_that_is_only_in_the_test_file(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,neg\nb,pos\n")
    (tmp_path / "test.csv").write_text("text,label\na,neg\nb,Pos\n")
    labels = LabelSet.from_rows(read_rows(tmp_path / "train.csv", "classification"))
    with refused("test.csv row 3: ", "label 'Pos'", "'pos'?", "'neg', 'pos'"):
        for row in read_rows(tmp_path / "test.csv", "classification"):
            labels.index(class_name(row), row.where)


def test_a_write_that_runs_out_of_room_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    out.write_text("old")
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from foretext.errors import UserError\n"
        "from foretext.text.corpus.text_files import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    write_whole(Path(sys.argv[1]), b'x' * 100_000)\n"
        "except UserError as error:\n"
        "    print(error)\n"
        "    sys.exit(error.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert os.strerror(errno.EFBIG) in names(done.stdout, f"{out}: ")
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.csv"]
