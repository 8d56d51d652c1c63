"""The pure parts of the experiments: order of cells, resumption from results.jsonl, settings, tables, draws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from complaints import refused

from experiments.results import (
    Cell,
    Results,
    first_words,
    own_options,
    paired,
    plan_cells,
    result_table,
    sets_for,
    spread,
)
from foretext.tasks.files.rows import Row

TASKS = {"sst2": (100, 500), "trec": (100,)}


def test_cells_come_with_what_matters_first_and_draw_by_draw() -> None:
    cells = plan_cells(TASKS, {"sst2": 3, "trec": 2})
    assert len(cells) == len(set(cells)) == 3 * (2 * 3 + 2)
    methods = [cell.method for cell in cells]
    assert "scratch" not in methods[: methods.index("scratch")]
    assert set(methods[methods.index("scratch") :]) == {"scratch"}
    first = [cell.draw for cell in cells if cell.method == "pretrained"]
    assert first == sorted(first)
    assert Cell("trec", 100, 2, "tfidf") not in cells and Cell("sst2", 500, 2, "tfidf") in cells


def test_methods_that_are_given_are_the_only_ones() -> None:
    cells = plan_cells(TASKS, {"sst2": 2, "trec": 1}, ["scratch", "a", "b"])
    assert [cell.method for cell in cells[:4]] == ["a", "b", "a", "b"]
    assert {cell.method for cell in cells[:10]} == {"a", "b"} and {cell.method for cell in cells[10:]} == {"scratch"}
    assert len(cells) == 15


def test_results_survive_a_line_cut_off_by_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    done, lost = Cell("sst2", 100, 0, "pretrained"), Cell("sst2", 100, 1, "pretrained")
    results = Results(file)
    results.add_part("pre-training", 60.0, "c1")
    results.add_cell(done, 0.75, 4.0, "c1")
    results.add_cell(lost, 0.5, 5.0, "c1")
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])

    again = Results(file)
    assert again.accuracies() == {done: 0.75}
    assert again.seconds() == 64.0
    again.add_cell(lost, 0.625, 6.0, "c2")
    last = Results(file)
    assert last.accuracies() == {done: 0.75, lost: 0.625}
    assert last.commits() == ["c1", "c2"]
    assert json.loads(file.read_bytes().splitlines()[-1])["accuracy"] == 0.625


def test_what_a_part_found_is_kept(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add_part("pre-training", 60.0, "c1")
    assert results.figures("pre-training") is None and results.figures("texts") is None
    results.add_part("texts", 2.0, "c1", {"bits": 1.5})
    again = Results(tmp_path / "results.jsonl")
    assert again.figures("texts") == {"bits": 1.5} and again.seconds() == 62.0 and again.accuracies() == {}


@pytest.mark.parametrize("broken", [b"[1]\n", b"\xff\xfe\n", b'{"accuracy": 1}\n', b"\n"])
def test_lines_that_are_no_results_are_passed_over(tmp_path: Path, broken: bytes) -> None:
    file = tmp_path / "results.jsonl"
    file.write_bytes(broken)
    assert Results(file).records == []


def test_expected_time_is_that_of_cells_of_the_same_kind(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add_part("pre-training", 900.0, "c")
    results.add_cell(Cell("sst2", 100, 0, "pretrained"), 0.5, 30.0, "c")
    results.add_cell(Cell("sst2", 100, 0, "tfidf"), 0.5, 1.0, "c")
    assert results.expected_seconds(Cell("sst2", 100, 0, "scratch")) == 30.0
    assert results.expected_seconds(Cell("sst2", 100, 1, "tfidf")) == 1.0
    assert results.expected_seconds(Cell("sst2", 500, 0, "scratch")) == 0.0
    assert results.seconds_by_part() == {"pre-training": 900.0, "sst2, pre-trained": 30.0, "sst2, TF-IDF": 1.0}
    named = results.seconds_by_part({"pretrained": "BERT"})
    assert named == {"pre-training": 900.0, "sst2, BERT": 30.0, "sst2, tfidf": 1.0}


def test_differences_are_paired_over_common_draws() -> None:
    assert paired({0: 0.5, 1: 0.75, 2: 1.0}, {0: 0.25, 2: 0.5, 3: 0.9}) == [0.25, 0.5]
    assert spread([0.5, 0.7]) == "60.0 ± 14.1"
    assert spread([0.02], sign=True) == "+2.0" and spread([-0.02], sign=True) == "−2.0"
    assert spread([]) == "–"


def test_table_has_a_row_for_each_number_of_labels() -> None:
    found = {
        Cell("sst2", 500, 0, "pretrained"): 0.8,
        Cell("sst2", 100, 0, "pretrained"): 0.7,
        Cell("sst2", 100, 1, "pretrained"): 0.72,
        Cell("sst2", 100, 0, "tfidf"): 0.6,
        Cell("sst2", 100, 1, "tfidf"): 0.58,
    }
    lines = result_table(found, {"trec": "TREC", "sst2": "SST-2"}).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == "| SST-2, 100 | 2 | 71.0 ± 1.4 | – | 59.0 ± 1.4 | – | +12.0 ± 2.8 |"
    assert lines[3] == "| SST-2, 500 | 1 | 80.0 | – | – | – | – |"


def test_table_of_other_methods_compares_the_first_with_each() -> None:
    found = {Cell("sst2", 500, 0, method): value for method, value in (("a", 0.75), ("b", 0.5), ("tfidf", 0.625))}
    lines = result_table(found, {"sst2": "SST-2"}, {"a": "A", "b": "B", "tfidf": "TF-IDF"}).splitlines()
    assert lines[0] == "| accuracy, %; labels | draws | A | B | TF-IDF | A − B | A − TF-IDF |"
    assert lines[2] == "| SST-2, 500 | 1 | 75.0 | 50.0 | 62.5 | +25.0 | +12.5 |"


def test_more_particular_settings_come_last() -> None:
    given = ["sst2@100:task.epochs=9", "training.rate=1", "trec:training.rate=2", "sst2:task.epochs=3", "a.b=c:d"]
    assert sets_for(given, "sst2", 100) == ("training.rate=1", "a.b=c:d", "task.epochs=3", "task.epochs=9")
    assert sets_for(given, "trec", 100) == ("training.rate=1", "a.b=c:d", "training.rate=2")


def test_options_of_a_cell_are_told_from_settings() -> None:
    sets = ["task.epochs=3", "training.rate=1", "task.words=20", "task.epochs=9", "transfer.head=probe"]
    assert own_options(sets) == (
        {"task.epochs": "9", "task.words": "20"},
        ["training.rate=1", "transfer.head=probe"],
    )


def test_only_longer_texts_are_cut() -> None:
    text = "  one two\n\nthree  four "
    assert first_words(text, 2) == "one two"
    assert first_words(text, 3) == "one two three"
    assert first_words(text, 4) == first_words(text, 5) == text
    assert first_words("", 2) == ""


def test_draws_are_repeatable_random_and_alike_for_all_methods() -> None:
    from experiments.common import drawn_rows

    rows = [Row((f"text {i}",), "ab"[i % 2], f"row {i}") for i in range(400)]
    first = drawn_rows(rows, 50, 0)
    assert first == drawn_rows(list(rows), 50, 0)
    assert len({row.where for row in first}) == 50
    assert first != drawn_rows(rows, 50, 1)
    shares = {sum(row.label == "a" for row in drawn_rows(rows, 50, number)) for number in range(8)}
    assert len(shares) > 1, "random draws, not evened out by class"


def test_settings_of_an_output_folder_cannot_change(tmp_path: Path) -> None:
    from experiments.common import check_settings, parse
    from experiments.imdb_transfer import EXPERIMENT

    words = ["--data", str(tmp_path), "--out", str(tmp_path)]
    check_settings(parse(EXPERIMENT, words), tmp_path)
    check_settings(parse(EXPERIMENT, [*words, "--only", "trec", "--draws", "1", "--limit", "60"]), tmp_path)
    with refused(str(tmp_path), "minutes 20.0", "3.0", "--out"):
        check_settings(parse(EXPERIMENT, [*words, "--minutes", "3"]), tmp_path)


def test_a_folder_from_before_a_setting_was_known_goes_on(tmp_path: Path) -> None:
    from experiments.common import check_settings, parse
    from experiments.imdb_transfer import EXPERIMENT

    given = parse(EXPERIMENT, ["--data", str(tmp_path)])
    (tmp_path / "settings.json").write_text(json.dumps({"minutes": 20.0, "size": "tiny"}))
    check_settings(given, tmp_path)
    (tmp_path / "settings.json").write_text(json.dumps({"minutes": 20.0, "starts_from": {"pretrained": ["x"]}}))
    with refused(str(tmp_path), "starts_from {'pretrained': ['x']}", "--out"):
        check_settings(given, tmp_path)


def test_options_narrow_the_tasks(tmp_path: Path) -> None:
    from experiments.common import parse
    from experiments.imdb_transfer import EXPERIMENT

    words = ["--data", str(tmp_path), "--only", "trec,imdb", "--draws", "1"]
    full, quick = parse(EXPERIMENT, words), parse(EXPERIMENT, [*words, "--quick"])
    assert list(full.tasks) == list(quick.tasks) == ["trec", "imdb"]
    assert {task.draws for given in (full, quick) for task in given.tasks.values()} == {1}
    assert full.tasks["imdb"].labels == (100, 500) and full.tasks["imdb"].test_rows == 2000
    with pytest.raises(SystemExit):
        parse(EXPERIMENT, [*words, "--only", "sst3"])
