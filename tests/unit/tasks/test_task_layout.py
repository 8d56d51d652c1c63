"""Cutting over-long input: the longest text gives way first, from its end, and a question behind an article stays."""

import json
from pathlib import Path

from complaints import names
from hypothesis import given, settings
from hypothesis import strategies as st
from noting import Notes
from systems_under_test import base_model

import foretext as ft
from foretext.runs.model import SavedModel, encode
from foretext.tasks.files.rows import read_rows
from foretext.tasks.layouts.base import Tailed, fit
from foretext.train.finetuning.finetune import FinetuneRequest, finetune

ARTICLE = "Tom ran to the old house by the river and then he sat down. " * 3
QUESTION = "Who ran there?"


def test_the_longest_text_gives_way_first_from_its_end() -> None:
    assert fit([range(10), range(3)], 13) == ([list(range(10)), [0, 1, 2]], 0)
    assert fit([range(10), range(3)], 8) == ([[0, 1, 2, 3, 4], [0, 1, 2]], 5)
    assert fit([range(10), range(9)], 4) == ([[0, 1], [0, 1]], 15)


def test_a_tail_stays_whatever_is_cut() -> None:
    assert fit([Tailed(range(10), 2), range(3)], 8) == ([[0, 1, 2, 8, 9], [0, 1, 2]], 5)
    assert fit([Tailed(range(10), 4), range(30)], 8) == ([[6, 7, 8, 9], [0, 1, 2, 3]], 32)
    assert fit([Tailed(range(10), 5), range(30)], 15) == ([[0, 1, 2, 5, 6, 7, 8, 9], list(range(7))], 25)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(2, 40))
def test_pairs_are_cut_as_in_the_released_code_of_bert(first: int, second: int, room: int) -> None:
    """Its _truncate_seq_pair, literally; but no text is cut to nothing, which it would do in no room at all."""
    a, b = list(range(first)), list(range(second))
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    assert fit([range(first), range(second)], room)[0] == [a, b]


lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=3)


@settings(max_examples=50)
@given(lengths, st.integers(0, 40))
def test_what_is_cut_is_counted_and_no_more_than_needed(sizes: list[tuple[int, int]], more: int) -> None:
    room = len(sizes) + more
    parts = [Tailed(range(size), tail) for size, tail in sizes]
    kept, cut = fit(parts, room)
    total = sum(size for size, _ in sizes)
    assert sum(map(len, kept)) == min(total, room) and cut == max(0, total - room)
    for part, (size, tail), left in zip(parts, sizes, kept):
        whole = min(tail, size, room // len(sizes))
        assert left[len(left) - whole :] == part[size - whole :]
        assert left == sorted(set(left)), "in order"


def race_model(tmp_path: Path) -> tuple[SavedModel, Path]:
    passage = {
        "article": ARTICLE,
        "questions": [QUESTION] * 8,
        "options": [["Ann", "Tom"]] * 8,
        "answers": ["B", "A"] * 4,
    }
    path = tmp_path / "race.txt"
    path.write_text(json.dumps(passage))
    rows = read_rows(path, "choice", format="race")
    run = tmp_path / "run"
    return finetune(FinetuneRequest(base_model(), rows, "choice", run, epochs=1, format="race")).model, path


def test_the_question_of_an_over_long_race_row_survives(tmp_path: Path) -> None:
    model, path = race_model(tmp_path)
    row = read_rows(path, "choice", format="race")[0]
    notes = Notes()
    (example,) = encode([row], model, reporter=notes).examples
    context, room = model.model_config.context, model.model_config.context - 3
    for sequence, choice in zip(example.sequences, ("Ann", "Tom")):
        assert len(sequence.ids) == context
        kept = ARTICLE[: room - len(QUESTION) - 1 - len(choice)] + f"\n{QUESTION}"
        text = sequence.ids[1:-1]
        assert model.tokenizer.decode(text[: len(kept)]) == kept
        assert model.tokenizer.decode(text[len(kept) + 1 :]) == choice
        assert sequence.cut == len(row.texts[0]) + len(choice) - room
    lost = sum(sequence.cut for sequence in example.sequences)
    names(notes.notes[0], "1 of 1 rows", f"{context} tokens", f"({lost} tokens)")


def test_tokens_shows_what_prediction_reads(tmp_path: Path) -> None:
    from foretext.runs.inspection import sequences_of

    model, path = race_model(tmp_path)
    row = read_rows(path, "choice", format="race")[0]
    assert model.run is not None
    shown = [[number for number, _ in pieces] for pieces in sequences_of(model.run, row.texts)]
    (example,) = encode([row], model).examples
    assert shown == [list(sequence.ids) for sequence in example.sequences]
    assert ft.load(model.run.path).predict([(row.texts[0], list(row.texts[1:]))])[0] in (1, 2)
