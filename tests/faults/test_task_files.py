"""Faults 17 to 19 in labelled files: one line that says what, where and what to do. And a write that fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from foretext.errors import UserError
from foretext.tasks.labels import LabelSet
from foretext.tasks.rows import read_rows

CHOICE = "context,choice1,choice2,label\n"

# name of the file, its bytes, kind, all of what the message must hold
BAD_FILES = {
    "latin-1": ("a.csv", b"text,label\ncaf\xe9,1\n", "classification", ["a.csv", "byte offset 14", "line 2", "UTF-8"]),
    "after a mark": ("a.csv", b"\xef\xbb\xbftext,label\ncaf\xe9,1\n", "classification", ["byte offset 17"]),
    "utf-16": ("a.csv", "text,label\na,1\n".encode("utf-16"), "classification", ["UTF-16", "save the file as UTF-8"]),
    "nul": ("a.tsv", b"text\tlabel\na\x00b\t1\n", "classification", ["NUL", "byte offset 12", "--errors replace"]),
    "nul after a mark": ("a.csv", b"\xef\xbb\xbftext,label\n\x00,1\n", "classification", ["NUL", "byte offset 14"]),
    "nul in JSON": ("a.jsonl", b'{"text": "a\\u0000", "label": 1}\n', "classification", ["row 1", "NUL"]),
    "half a pair": ("a.jsonl", b'{"text": "a\\ud800", "label": 1}\n', "classification", ["row 1", "surrogate"]),
    "empty": ("a.csv", b"", "classification", ["a.csv", "empty"]),
    "blank": ("a.csv", b"\n \n", "classification", ["a.csv", "blank"]),
    "empty parquet": ("a.parquet", b"", "classification", ["empty"]),
    "broken parquet": ("a.parquet", b"PAR1 no PAR1", "classification", ["not a readable Parquet file"]),
    "broken gzip": ("a.csv.gz", b"\x1f\x8b\x08 cut", "classification", ["gzip"]),
    "header only": ("a.csv", b"text,label\n", "classification", ["no rows below the header (text, label)"]),
    "unknown ending": ("a.xlsx", b"x", "classification", ["'.xlsx'", ".csv, .tsv, .jsonl"]),
    "missing column": (
        "a.csv",
        b"Texts,label\na,1\n",
        "classification",
        ["no column 'text'", "did you mean 'Texts'", "the columns are Texts, label", '--columns "text=Texts"'],
    ),
    "missing label column": ("a.csv", b"text,y\na,1\n", "classification", ["no column 'label'", "text, y"]),
    "same column twice": ("a.csv", b"text,label,text\na,1,b\n", "classification", ["row 1", "'text' stands twice"]),
    "same key twice": ("a.jsonl", b'{"text":"a","text":"b","label":1}', "classification", ["row 1", "'text'"]),
    "missing label": (
        "a.csv",
        b"text,label\na,1\nb,\n",
        "classification",
        ["row 3", "'label'", "label is missing (the labels are '1')"],
    ),
    "blank label": ("a.tsv", b"text\tlabel\na\t \n", "classification", ["row 2", "label is missing"]),
    "null label": ("a.jsonl", b'{"text":"a","label":1}\n{"text":"b"}\n', "classification", ["row 2", "missing"]),
    "blank text": ("a.csv", b"text,label\na,1\n  ,0\n", "classification", ["row 3", "'text' is blank"]),
    "blank hypothesis": ("a.csv", b"premise,hypothesis,label\na,,1\n", "entailment", ["row 2", "'hypothesis'"]),
    "too many cells": ("a.csv", b"text,label\na,b,1\n", "classification", ["row 2", "3 cells", "double quotes"]),
    "too few cells": ("a.csv", b"text,label\na\n", "classification", ["row 2", "1 cell where the header has 2"]),
    "tsv cells": ("a.tsv", b"text\tlabel\na\tb\t1\n", "classification", ["row 2", "no tab"]),
    "open quote": ("a.csv", b'text,label\na,1\n"b,0\nc,1\n', "classification", ["row 3", "double quote"]),
    "bad quote": ("a.csv", b'text,label\n"a"b,1\n', "classification", ["row 2", "double quote"]),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n{text}\n', "classification", ["row 2", "not JSON"]),
    "deep JSON": ("a.jsonl", b"[" * 100_000, "classification", ["row 1", "not JSON"]),
    "deep value": ("a.jsonl", b'{"a":' + b"[" * 700 + b"]" * 700 + b"}", "classification", ["row 1", "deeply"]),
    "JSON list": ("a.jsonl", b"[1]\n", "classification", ["row 1", "object"]),
    "score": ("a.csv", b'text,score\na,1\nb,"3,5"\n', "regression", ["row 3", "'3,5'", "finite number"]),
    "infinite score": ("a.csv", b"text,score\na,1e999\n", "regression", ["row 2", "'1e999'"]),
    "nan score": ("a.csv", b"text,score\na,nan\n", "regression", ["row 2", "'nan'"]),
    "choice 3 of 2": ("a.csv", f"{CHOICE}c,a,b,3\n".encode(), "choice", ["row 2", "'3'", "from 1 to 2"]),
    "choice 0": ("a.csv", f"{CHOICE}c,a,b,0\n".encode(), "choice", ["row 2", "'0'", "from 1 to 2"]),
    "choice 1.0": ("a.csv", f"{CHOICE}c,a,b,1.0\n".encode(), "choice", ["row 2", "'1.0'"]),
    "choice both ways": ("a.csv", f"{CHOICE}c,2,1,1\n".encode(), "choice", ["row 2", "choice1 or choice2"]),
    "one choice": ("a.csv", f"{CHOICE}c,a,,1\n".encode(), "choice", ["row 2", "1 choice"]),
    "gap": ("a.csv", b"context,choice1,choice2,choice3,label\nc,a,,b,1\n", "choice", ["row 2", "'choice2' is blank"]),
    "no such kind": ("a.csv", b"text,label\na,1\n", "clasification", ["did you mean 'classification'"]),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_gives_one_clear_line(tmp_path: Path, case: str) -> None:
    name, data, kind, wanted = BAD_FILES[case]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_rows(tmp_path / name, kind)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.code == 2
    for part in wanted:
        assert part in message, message


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_rows(tmp_path / "a.csv", "classification")
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        read_rows(tmp_path / "b.csv", "classification")


def test_columns_for_a_field_that_the_kind_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,score\na,1\n")
    with pytest.raises(UserError, match=r"--columns label=.*regression has no field 'label'.*text, text2, score"):
        read_rows(tmp_path / "a.csv", "regression", columns={"label": "score"})
    with pytest.raises(UserError, match="no column 'stars'"):  # misspelt, although prediction needs no labels
        read_rows(tmp_path / "a.csv", "regression", columns={"score": "stars"}, need_labels=False)


def test_a_label_that_is_only_in_the_test_file(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,neg\nb,pos\n")
    (tmp_path / "test.csv").write_text("text,label\na,neg\nb,Pos\n")
    names = LabelSet.from_rows(read_rows(tmp_path / "train.csv", "classification"))
    with pytest.raises(UserError) as caught:
        names.indices(read_rows(tmp_path / "test.csv", "classification"))
    for part in ("test.csv row 3", "'Pos'", "did you mean 'pos'", "the labels are 'neg', 'pos'"):
        assert part in str(caught.value)


def test_a_write_that_runs_out_of_room_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    out.write_text("old")
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from foretext.errors import UserError\n"
        "from foretext.tasks.files import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    write_whole(Path(sys.argv[1]), b'x' * 100_000)\n"
        "except UserError as error:\n"
        "    print(error)\n"
        "    sys.exit(error.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "cannot be written" in done.stdout
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.csv"]
