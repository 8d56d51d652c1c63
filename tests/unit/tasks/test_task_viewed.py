"""What the three families say of views (`ViewTask`), whatever the kind of task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretext.systems import SYSTEMS, word_system
from foretext.tasks.family import KINDS, TaskConfig, family_of
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.files.rows import KINDS as ROW_KINDS
from foretext.tasks.files.rows import Row
from foretext.tasks.files.squad import Question

TWICE: dict[str, list[Any]] = {  # two rows that must not be parted, and another
    "classification": [Row(("a b",), "x", "1"), Row((" a b ",), "y", "2"), Row(("a",), "x", "3")],
    "tagging": [TaggedSentence(tuple(words), ("O",) * len(words), "") for words in ("ab", "ab", "a")],
    "span": [Question("", asked, passage, (), True, "") for asked, passage in [("a", "x"), ("b", "x"), ("a", "y")]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_view_of_a_family_can_be_loaded_and_is_called_as_it_is_asked_for(kind: str) -> None:
    family = family_of(kind)
    views = family.view_task().views
    assert set(family.views) <= set(views)
    assert all(view.name == name for name, view in views.items())


@pytest.mark.parametrize("kind", TWICE)
def test_what_belongs_together_has_one_number(kind: str) -> None:
    first, second, third = family_of(kind).view_task().groups(TWICE[kind])
    assert first == second != third


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_a_trunk_are_asked_only_where_a_view_reads_them(kind: str) -> None:
    family = family_of(kind)
    task, config = family.view_task(), TaskConfig(kind)
    if "tuned" in family.views:
        rows = [Row(("a", "b", "c"), 0, str(number)) for number in range(2)]
        assert task.folds(rows, config, 2, 0) == [], "copies of one row cannot be parted"
    else:
        with pytest.raises(AssertionError):
            task.folds([], config, 2, 0)
        with pytest.raises(AssertionError):
            task.outputs([np.zeros(2)], [], kind)


def test_kinds_that_a_family_singles_out_are_its_own() -> None:
    for kind in KINDS:
        family = family_of(kind)
        rows = set(ROW_KINDS) if kind in ROW_KINDS else set()
        assert {*family.learn_from_text, *family.single_texts, *family.prompts} <= rows


def test_one_system_learns_the_vectors_that_views_read() -> None:
    assert [name for name, system in SYSTEMS.items() if system.learns_words] == [word_system().name]
