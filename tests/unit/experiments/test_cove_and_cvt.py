"""The experiments on CoVe and on cross-view training: who is in which draw, tables, and that a minute of everything
runs and goes on."""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path

import pytest
from complaints import names
from systems_under_test import parallel_text, write_text

from experiments import cove_transfer, cvt_chunking
from experiments.chunks import few_sentences
from experiments.cvt_chunking import ALL, TENTH, Cell, difference_table, plan, result_table
from foretext.tasks.files.conll import TaggedSentence, read_conll


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    for name in ("conll2000", "imdb", "glove", "multi30k", "trec"):
        (made / name).mkdir(parents=True)
    for name, count in (("train.txt", 60), ("test.txt", 6)):
        lines = [f"word{number} NN B-NP\nruns VBZ B-VP\n. . O\n" for number in range(count)]
        (made / "conll2000" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with gzip.open(made / "imdb" / "unsup.txt.gz", "wt", encoding="utf-8") as file:
        file.write("A film. It runs! It ends?\n" * 20)
    source, target, vectors = parallel_text(write_text(tmp_path))
    given = vectors.read_text() + "runs " + " ".join(["0.5"] * 8) + "\n"
    with gzip.open(made / "glove" / "glove.6B.50d.top50k.txt.gz", "wt", encoding="utf-8") as file:
        file.write(given)
    for name, lines in (("en", source), ("de", target)):
        text = lines.read_text().splitlines()
        (made / "multi30k" / f"train.{name}").write_text("\n".join(text) + "\n")
        (made / "multi30k" / f"test_2016_flickr.{name}").write_text("\n".join(text[:4]) + "\n")
    draw = random.Random(1)
    asked = [f"{draw.choice(('NUM:count', 'LOC:city'))} How many cats does the dog like ?" for _ in range(60)]
    for name in ("train_5500.label", "TREC_10.label"):
        (made / "trec" / name).write_text("\n".join(asked) + "\n")
    return made


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_both_methods_have_the_same_draws() -> None:
    assert [cell.draw for cell in plan() if cell[::2] == (TENTH, "cvt")] == [0, 1, 2]
    assert {cell.labels for cell in plan(validate=True)} == {TENTH}
    assert [(cell.labels, cell.draw) for cell in plan() if cell.method == "alone"] == [
        *((TENTH, 0), (TENTH, 1), (TENTH, 2)),
        (ALL, 0),
    ]


def test_tables_have_spreads_and_paired_differences() -> None:
    def record(f1: float) -> dict[str, object]:
        return {"scores": {"f1": f1, "precision": 0.5, "recall": 0.5, "accuracy": 0.5}, "seconds": 10.0}

    found = {Cell(TENTH, 0, "cvt"): record(0.91), Cell(TENTH, 0, "alone"): record(0.90)}
    found |= {Cell(TENTH, 1, "cvt"): record(0.93), Cell(TENTH, 1, "alone"): record(0.90)}
    found |= {Cell(ALL, 0, "cvt"): record(0.95), Cell(TENTH, 2, "cvt"): record(0.5)}
    text = result_table({cell: found[cell] for cell in found if cell.draw < 2})
    assert "| a tenth of the labels, with unlabelled text | 2 | 92.0 ± 1.4 |" in text
    assert "| a tenth of the labels | +2.0 ± 1.4 |" in difference_table(found), "the draws that both have"
    assert "| all of the labels | – |" in difference_table(found)


def test_a_minute_of_cross_view_training(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--data", str(data), "--out", str(tmp_path / "out"), "--quick"]
    some = [cell for cell in plan() if cell.draw == 0]
    monkeypatch.setattr(cvt_chunking, "plan", lambda validate: some[:3])
    assert cvt_chunking.main(given) == 0
    monkeypatch.setattr(cvt_chunking, "plan", lambda validate: some)
    assert cvt_chunking.main(given) == 0
    measured = [(one["labels"], one["draw"], one["method"]) for one in lines(tmp_path / "out") if "scores" in one]
    assert measured == [tuple(cell) for cell in some], "each once"
    names((tmp_path / "out" / "table.md").read_text(encoding="utf-8"), "--quick")


def test_a_validation_scores_sentences_that_are_neither_labelled_nor_read(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []

    def noted(test: list[TaggedSentence], tags: object) -> dict[str, float]:
        seen.extend(tuple(row.words) for row in test)
        return dict.fromkeys(cvt_chunking.SCORES, 0.5)

    monkeypatch.setattr(cvt_chunking, "plan", lambda validate: [Cell(TENTH, 0, "word")] if validate else [])
    monkeypatch.setattr(cvt_chunking, "scored", noted)
    assert cvt_chunking.main(["--data", str(data), "--out", str(tmp_path / "out"), "--quick", "--validate"]) == 0
    train = read_conll(data / "conll2000" / "train.txt", format="conll2000")[:100]
    _, rest = few_sentences(train, cvt_chunking.PART, 0)
    assert len(seen) == len(rest) // 2 and set(seen) <= {tuple(row.words) for row in rest}


@pytest.mark.thorough
def test_a_minute_of_cove(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sacrebleu")
    given = ["--data", str(data), "--out", str(tmp_path / "out"), "--quick"]
    given = [*given, "--pretrain-set", "objective.least_count=1", "--set", "transfer.reader.cells=8"]
    assert cove_transfer.main(given) == 0
    records = lines(tmp_path / "out")
    assert [one["search"] for one in records if "search" in one] == ["greedy", "5 beams"]
    assert [one["method"] for one in records if "labels" in one] == ["cove", "glove", "tfidf"]
    assert "BLEU" in capsys.readouterr().out


def test_without_sacrebleu_nothing_begins(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    assert cove_transfer.main(["--data", str(data), "--out", str(tmp_path / "out"), "--quick"]) == 2
    said = names(capsys.readouterr().err, "sacrebleu", "pip install 'foretext[translation]'")
    assert said.count("\n") == 1 and not (tmp_path / "out").exists()
