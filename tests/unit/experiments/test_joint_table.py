"""The table that is made of several experiments' results."""

from __future__ import annotations

from pathlib import Path

import pytest
from complaints import names

from experiments.joint_table import main
from experiments.results import TEXT, Cell, Results


def _folder(path: Path, found: dict[tuple[str, int, int, str], float], commit: str = "c1") -> Path:
    path.mkdir()
    results = Results(path / "results.jsonl")
    for (task, labels, draw, method), accuracy in found.items():
        results.add_cell(Cell(task, labels, draw, method), accuracy, 30.0, commit)
    return path


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """GPT with three draws and a task more, BERT with two; what is from scratch has no column."""
    gpt = {("sst2", 100, draw, "pretrained"): 0.6 + draw / 10 for draw in range(3)}
    gpt |= {("sst2", 100, draw, "tfidf"): 0.5 for draw in range(3)}
    gpt |= {("trec", 500, 0, "pretrained"): 0.75, ("trec", 500, 0, "tfidf"): 0.5, ("sst2", 100, 0, "scratch"): 0.1}
    bert = {("sst2", 100, draw, "pretrained"): 0.8 for draw in range(2)}
    bert |= {("sst2", 100, draw, "tfidf"): 0.5 for draw in range(2)}
    one, other = _folder(tmp_path / "gpt", gpt), _folder(tmp_path / "bert", bert, "c2")
    return [f"GPT={one}", f"BERT={other}"]


def test_a_row_has_the_draws_that_all_have(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*folders, "--out", str(tmp_path / "table.md")]) == 0
    text = capsys.readouterr().out
    assert (tmp_path / "table.md").read_text(encoding="utf-8").strip() == text.strip()
    lines = text.splitlines()
    assert lines[:2] == ["- GPT: commit c1; 4.5 minutes", "- BERT: commit c2; 2.0 minutes"]
    assert "| accuracy, %; labels | draws | TF-IDF | GPT | BERT |" in lines
    assert "| SST-2, 100 | 2 | 50.0 ± 0.0 | 65.0 ± 7.1 | 80.0 ± 0.0 |" in lines
    assert "| TREC-6, 500 | 1 | 50.0 | 75.0 | – |" in lines, "a row that one column lacks"
    assert "| SST-2, 100 | 2 | +15.0 ± 7.1 | +30.0 ± 0.0 |" in lines
    assert "| TREC-6, 500 | 1 | +25.0 | – |" in lines


def test_bits_per_byte_stand_below_where_an_experiment_has_them(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folders) == 0 and TEXT not in capsys.readouterr().out
    figures = {"updates": 1200, "tokens": 3400000, "per_token": 56.78, "bits_per_byte": 1.8765, "comparable": False}
    Results(tmp_path / "bert" / "results.jsonl").add_part(TEXT, 3.0, "c2", figures)
    assert main(folders) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-3] == "| pre-training | updates | tokens | perplexity per token | bits per byte | comparable |"
    assert lines[-1] == "| BERT | 1,200 | 3,400,000 | 56.8 | 1.877 | no: its vocabulary loses something of the text |"


def test_other_draws_or_test_rows_are_refused(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = _folder(tmp_path / "x", {("sst2", 100, 1, "pretrained"): 0.9, ("sst2", 100, 1, "tfidf"): 0.51})
    assert main([*folders, f"X={other}"]) == 2
    names(capsys.readouterr().err, "sst2, 100 ", "draw 1:", "TF-IDF", "50.00", "51.00", " X:")


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("runs/bert", ["runs/bert:", "TITLE=FOLDER"]),
        ("BERT=runs/none", ["runs/none:", "results.jsonl", "--out"]),
    ],
)
def test_mistakes_are_one_line(given: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([given]) == 2
    assert names(capsys.readouterr().err, *parts).count("\n") == 1


def test_a_folder_without_a_pre_trained_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"A={_folder(tmp_path / 'a', {('sst2', 100, 0, 'causal'): 0.5})}"]) == 2
    names(capsys.readouterr().err, f"{tmp_path / 'a' / 'results.jsonl'}:", "--out")
