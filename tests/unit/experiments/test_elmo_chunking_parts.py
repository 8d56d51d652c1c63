"""The pure parts of the experiment on ELMo's features: who is in the fewer sentences, settings, order and table; and
that a minute of everything runs and goes on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from complaints import names
from systems_under_test import write_text

from experiments import elmo_chunking
from experiments.chunks import few_sentences
from experiments.elmo_chunking import (
    EPOCHS,
    TAGGER,
    Cell,
    main,
    parse,
    plan,
    result_table,
    sentences,
    settings_of,
    tagger_table,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "conll2000").mkdir(parents=True)
    (made / "imdb").mkdir()
    for name, count in (("train.txt", 60), ("test.txt", 6)):
        lines = [f"word{number} NN B-NP\nruns VBZ B-VP\n. . O\n" for number in range(count)]
        (made / "conll2000" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with gzip.open(made / "imdb" / "unsup.txt.gz", "wt", encoding="utf-8") as file:
        file.write(write_text(tmp_path, 200).read_text(encoding="utf-8"))
    return made


def test_both_taggers_have_the_same_sentences_and_settings(data: Path) -> None:
    given = parse(["--data", str(data), "--set", "few:task.epochs=3", "--set", "training.rate=1e-3"])
    rows = sentences(given)
    few = [[rows.of(Cell("few", draw, method)) for method in ("elmo", "without")] for draw in range(3)]
    assert all(one == other for one, other in few) and few[0][0] != few[1][0] != few[2][0]
    assert (len(few[0][0]), rows.of(Cell("all", 0, "elmo")), len(rows.test)) == (6, rows.train, 6)
    assert few[1][0] == sentences(given).of(Cell("few", 1, "elmo"))
    with_, without = (settings_of(Cell("few", 0, method), given) for method in ("elmo", "without"))
    assert with_ == (3, [*TAGGER, "training.rate=1e-3"])
    assert without == (3, [*TAGGER, "transfer.reader.mix=false", "training.rate=1e-3"])
    assert settings_of(Cell("all", 0, "elmo"), given)[0] == EPOCHS["all"]
    held = sentences(parse(["--data", str(data), "--validate"]))
    assert (len(held.train), len(held.test)) == (51, 9)
    assert not {row.words for row in held.test} & {row.words for row in held.train}


def test_few_sentences_and_the_rest_are_all_in_their_order() -> None:
    rows = [f"sentence {number}" for number in range(40)]
    few, rest = few_sentences(rows, 0.1, 2)
    assert len(few) == 4 and sorted(few + rest) == sorted(rows)
    assert all(part == sorted(part, key=rows.index) for part in (few, rest))
    assert few_sentences(rows, 0.1, 2) == (few, rest) != few_sentences(rows, 0.1, 1)


def test_few_labels_come_first() -> None:
    draws = [(labels, draw) for labels, draw, method in plan() if method == "elmo"]
    assert draws == [("few", 0), ("few", 1), ("few", 2), ("all", 0)]
    assert [cell.method for cell in plan()] == ["elmo", "without"] * 4


def test_the_table_says_what_each_layer_is() -> None:
    scores = {"f1": 0.9, "precision": 0.91, "recall": 0.89, "accuracy": 0.95}
    record = {"sentences": 893, "scores": scores, "mixture": [0.5, 0.3, 0.2], "seconds": 61.4}
    text = tagger_table({Cell("few", 1, "elmo"): record, Cell("all", 0, "without"): record | {"mixture": []}})
    assert "| 893, ELMo, draw 1 | 90.00 | 91.00 | 89.00 | 95.00 | 0.50 0.30 0.20 | 61 |" in text
    assert "| 893, without | 90.00 | 91.00 | 89.00 | 95.00 | – | 61 |" in text


def test_draws_are_compared_in_pairs() -> None:
    found = {
        Cell("few", draw, method): {"sentences": 893, "scores": {"f1": f1}}
        for method, f1s in (("elmo", (0.9, 0.88, 0.86)), ("without", (0.85, 0.83)))
        for draw, f1 in enumerate(f1s)
    }
    assert "| 893 | 3 | 88.0 ± 2.0 | 84.0 ± 1.4 | +5.0 ± 0.0 |" in result_table(found)


@pytest.mark.thorough
def test_a_minute_of_everything_runs_and_goes_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data", str(data), "--out", str(tmp_path / "out"), "--quick"]
    monkeypatch.setattr(elmo_chunking, "plan", lambda: plan()[:1])
    assert main(given) == 0
    monkeypatch.undo()
    assert main(given) == 0
    records = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    measured = [(record["labels"], record["draw"], record["method"]) for record in records if "scores" in record]
    assert measured == [tuple(cell) for cell in plan()], "each once"
    names((tmp_path / "out" / "table.md").read_text(encoding="utf-8"), "--quick")
    names(capsys.readouterr().out, "pre-training, ELMo:")
    assert main([*given, "--size", "small"]) == 2, "other settings want another folder"
    names(capsys.readouterr().err, str(tmp_path / "out"), "size 'tiny'", "'small'", "--out")
