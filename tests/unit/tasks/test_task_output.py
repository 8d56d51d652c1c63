"""Predictions and pictures."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import polars
import pytest
from complaints import names, refused

from foretext.tasks.files.predictions import Predictions, output_text, prediction_table, write_output
from foretext.tasks.labelled import LabelSet
from foretext.tasks.scores.confusion_picture import _largest, confusion_matrix_png
from foretext.tasks.scores.metrics import score
from foretext.text.corpus.tables import Table, read_table, table_kind

ROWS = Table("new.csv", ("id", "text"), [(7, 'a, "b"\r\nc'), (8, '"d'), (9, "e\tf")], ["", "", ""])
CLASSES = Predictions(
    "classification", ["neg", "pos", "neg"], [[0.9, 0.1], [0.25, 0.75], [1 / 3 + 0.5, 1 / 6]], ("neg", "pos")
)


def test_original_columns_then_the_prediction_then_probabilities() -> None:
    table = prediction_table(ROWS, CLASSES)
    assert table.columns == ("id", "text", "prediction", "probability", "p_neg", "p_pos")
    assert table.rows[1] == (8, '"d', "pos", 0.75, 0.25, 0.75)
    assert table.rows[2][3:] == (0.833333, 0.833333, 0.166667)


def test_choices_count_from_1_and_rows_may_have_fewer() -> None:
    rows = Table("a", ("context",), [("x",), ("y",)], ["", ""])
    table = prediction_table(rows, Predictions("choice", [1, 2], [[0.3, 0.7], [0.2, 0.2, 0.6]]))
    assert table.columns == ("context", "prediction", "probability", "p_1", "p_2", "p_3")
    assert table.rows == [("x", 2, 0.7, 0.3, 0.7, None), ("y", 3, 0.6, 0.2, 0.2, 0.6)]


def test_scores_have_no_probabilities() -> None:
    rows = Table("a", ("text",), [("x",)], [""])
    assert prediction_table(rows, Predictions("regression", [2.5])).rows == [("x", 2.5)]


def test_columns_of_the_same_name_are_kept_under_another() -> None:
    rows = Table("a", ("input_prediction", "prediction", "p_neg"), [("x", "y", "z")], [""])
    notes: list[str] = []
    table = prediction_table(rows, Predictions("classification", ["neg"], [[1.0, 0.0]], ("neg", "pos")), notes)
    assert table.columns[:3] == ("input_prediction", "input_input_prediction", "input_p_neg")
    assert table.columns[3:] == ("prediction", "probability", "p_neg", "p_pos")
    assert len(set(table.columns)) == len(table.columns)
    names(notes[0], "'prediction'", "'input_input_prediction'")


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.tsv", "p.jsonl", "p.parquet", "p.parquet.gz"])
def test_files_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    table = prediction_table(ROWS, CLASSES)
    write_output(table, path, table_kind(path))
    back = read_table(path)
    assert back.columns == table.columns
    texts = [row[1] for row in table.rows]
    assert back.column("text") == (['a, "b" c', '"d', "e f"] if name == "p.tsv" else texts)
    assert [str(value) for value in back.column("id")] == ["7", "8", "9"]
    assert [float(value) for value in back.column("p_pos")] == [0.1, 0.75, 0.166667]
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_parquet_of_values_of_several_types(tmp_path: Path) -> None:
    table = Table("a", ("x", "n", "empty"), [(1, 1, None), ("two", None, None), ([3], 3, None)], ["", "", ""])
    write_output(table, tmp_path / "a.parquet", "parquet")
    frame = polars.read_parquet(tmp_path / "a.parquet")
    assert frame["x"].to_list() == ["1", "two", "[3]"]
    assert frame["n"].to_list() == [1, None, 3]


def test_text_for_standard_output() -> None:
    table = Table("a", ("t", "v"), [("é", None), ("x", float("nan"))], ["", ""])
    assert output_text(table, "csv") == "t,v\né,\nx,\n"
    assert [json.loads(line) for line in output_text(table, "jsonl").splitlines()] == [
        {"t": "é", "v": None},
        {"t": "x", "v": None},
    ]
    with refused("'xml'", "csv", "tsv", "jsonl"):
        output_text(table, "xml")


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with refused(str(tmp_path / "no" / "p.csv"), f"{tmp_path / 'no'} ", "create"):
        write_output(ROWS, tmp_path / "no" / "p.csv", "csv")
    (tmp_path / "p.csv").mkdir()
    with refused(str(tmp_path / "p.csv"), "folder"):
        write_output(ROWS, tmp_path / "p.csv", "csv")
    assert [file.name for file in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize("names", [("a", "b"), ("正面", "负面"), ("$x$", "$y_{$"), ("x" * 200, "\n")])
def test_confusion_picture_of_any_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = tmp_path / "c.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        confusion_matrix_png(score("classification", [0, 1, 1], [0, 1, 0], LabelSet(names)), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_more_than_50_classes_are_folded_without_losing_a_row() -> None:
    names = [f"c{i}" for i in range(60)]
    counts = [[(i * j) % 5 + (i == 3) * 100 for j in range(60)] for i in range(60)]
    shown, folded = _largest(names, counts)
    assert len(shown) == len(folded) == 50
    assert "c3" in shown
    assert shown[-1] == "other (11)"
    assert sum(map(sum, folded)) == sum(map(sum, counts))
    at = shown.index("c3")
    assert folded[at][at] == counts[3][3]


def test_the_light_part_of_the_room_imports_nothing_heavy() -> None:
    modules = ("files.rows", "files.formats", "labelled", "scores.metrics")
    modules += ("scores.confusion_picture", "files.predictions")  # text_files and tables are in text/corpus
    heavy = "torch", "sklearn", "scipy", "matplotlib", "polars", "pandas"
    script = f"import sys, {', '.join(f'foretext.tasks.{m}' for m in modules)}\n"
    script += f"print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
