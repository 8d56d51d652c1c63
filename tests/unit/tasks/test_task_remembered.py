"""How a fine-tuned run reads further files: what the user says, what the header says, what was remembered."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars
import pytest
from complaints import refused

from foretext.tasks.family import Reading, TaskConfig, read_as_trained
from foretext.tasks.files.rows import check_texts, rows_from, rows_of
from foretext.text.corpus.tables import table_header

KIND = "classification"
SST2 = TaskConfig(KIND, format="sst2")
REVIEW = TaskConfig(KIND, columns={"text": "review", "label": "stars"})


def texts(
    path: Path, trained: TaskConfig, columns: dict[str, str] | None = None, format: str | None = None
) -> list[str]:
    table, names = read_as_trained(path, Reading(KIND, columns, format, trained, need_labels=False))
    return [row.texts[0] for row in rows_of(table, KIND, columns=names, need_labels=False)]


def file(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_the_remembered_layout_and_columns_hold(tmp_path: Path) -> None:
    assert texts(file(tmp_path, "a.tsv", 'sentence\tlabel\n"good\t1\n'), SST2) == ['"good']
    assert texts(file(tmp_path, "a.csv", "text,review\nno,yes\n"), REVIEW) == ["yes"]


@pytest.mark.parametrize("trained", [SST2, TaskConfig(KIND, format="cola"), TaskConfig(KIND, format="trec"), REVIEW])
def test_a_file_with_the_tasks_own_columns_is_read_by_its_header(tmp_path: Path, trained: TaskConfig) -> None:
    assert texts(file(tmp_path, "a.csv", 'label,text\n1,"good, film"\n'), trained) == ["good, film"]
    assert texts(file(tmp_path, "a.tsv", "a\tlabel\tb\ttext\nx\t1\ty\tgood\n"), trained) == ["good"]
    assert texts(file(tmp_path, "a.jsonl", '{"text": "good"}\n'), trained) == ["good"]


def test_what_is_given_puts_aside_what_was_remembered(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "review,text\ngood,7\n")
    assert texts(path, SST2, {"text": "review"}) == ["good"]
    assert texts(path, REVIEW, format="none") == ["7"]
    assert texts(path, SST2, {"text": "review"}, "none") == ["good"]
    assert texts(file(tmp_path, "b.tsv", "sentence\tlabel\ngood\t1\n"), REVIEW, format="sst2") == ["good"]
    with refused(str(tmp_path / "b.tsv"), "column 'text'", "sentence, label", '--columns "text=sentence"'):
        texts(tmp_path / "b.tsv", SST2, format="none")
    with refused(str(path), "--format sst2", "--columns"):
        texts(path, SST2, {"text": "review"}, "sst2")


def test_a_layout_that_does_not_fit_says_where_it_comes_from(tmp_path: Path) -> None:
    with refused("a.csv", "column 'sentence'", "sst2", "fine-tuning", "--columns"):
        texts(file(tmp_path, "a.csv", "words\ngood\n"), SST2)
    with refused(str(tmp_path / "nowhere.csv"), "path") as caught:
        texts(tmp_path / "nowhere.csv", SST2)
    assert "sst2" not in str(caught.value), "which is not why"


def test_a_header_is_read_without_the_file(tmp_path: Path) -> None:
    assert table_header(file(tmp_path, "a.csv", '\ufeff\n"a, b"; text \n1;2\n')) == ("a, b", "text")
    assert table_header(file(tmp_path, "a.tsv", "a\ttext\n")) == ("a", "text")
    assert table_header(file(tmp_path, "a.jsonl", '{"a": 1, "text": "x"}\n{broken')) == ("a", "text")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,text\n"))
    assert table_header(tmp_path / "a.csv.gz") == ("a", "text")
    polars.DataFrame({"a": [1], "text": ["x"]}).write_parquet(tmp_path / "a.parquet")
    assert table_header(tmp_path / "a.parquet") == ("a", "text")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    assert table_header(tmp_path / "a.parquet.gz") == ("a", "text")
    for name, content in (("b.parquet", "no"), ("b.jsonl", "[1]"), ("b.txt", "text"), ("b.csv", ""), ("b.csv.gz", "x")):
        assert table_header(file(tmp_path, name, content)) == ()
    assert table_header(tmp_path / "nowhere.csv") == () == table_header(tmp_path)


def test_pairs_and_single_texts_are_not_mixed() -> None:
    single, pairs = rows_from(["a"], "regression", need_labels=False), rows_from([("a", "b", 1)], "regression")
    check_texts(single, 1)
    check_texts(pairs, 2)
    check_texts([*single, *pairs], 0)
    with refused("data[0]", "pairs", "text2"):
        check_texts(single, 2)
    with refused("data[0]", "two", "second"):
        check_texts(pairs, 1)
