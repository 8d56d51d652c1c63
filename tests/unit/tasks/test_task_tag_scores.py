"""Tags: entities as the script `conlleval` counts them, by hand and against a second reading of it; the schemes."""

import random

import complaints
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretext.tasks.scores.tag_metrics import (
    EntityCounts,
    are_chunk_tags,
    count_entities,
    metrics_of_tags,
    scheme_of,
    score_tags,
    to_iob1,
    to_iob2,
)

Sentences = list[list[str]]


def totals(gold: str, predicted: str) -> tuple[int, int, int]:
    """Entities in the gold tags, predicted, right; sentences are parted by a bar."""
    counts = count_entities([part.split() for part in gold.split("|")], [part.split() for part in predicted.split("|")])
    return counts.gold.total(), counts.predicted.total(), counts.right.total()


# gold, predicted, (gold entities, predicted, right), words that are right
BY_HAND = {
    "the same": ("B-PER I-PER O B-LOC", "B-PER I-PER O B-LOC", (2, 2, 2), 4),
    "another end, another type": ("B-PER I-PER O B-LOC", "B-PER O O B-ORG", (2, 2, 0), 2),
    "one word too many": ("O B-X I-X O", "O B-X I-X I-X", (1, 1, 0), 3),
    "begins too early": ("O I-X I-X O", "I-X I-X I-X O", (1, 1, 0), 3),
    "IOB1 against IOB2": ("I-NP I-NP B-NP O", "B-NP I-NP B-NP O", (2, 2, 2), 3),
    "I after O begins": ("O B-X O", "O I-X O", (1, 1, 1), 2),
    "I of another type begins": ("I-A I-B", "I-A I-A", (2, 1, 0), 1),
    "B of the same type parts": ("B-A I-A", "B-A B-A", (1, 2, 0), 1),
    "right at the end of the file": ("O O B-A", "O O I-A", (1, 1, 1), 2),
    "sentences part entities": ("B-A | I-A", "I-A | B-A", (2, 2, 2), 0),
    "hyphens in a type": ("B-A-b I-A-b", "B-A-b I-A-c", (1, 2, 0), 1),
    "no types": ("B I O B", "B I O O", (2, 1, 1), 3),
    "ends of IOE": ("I-X E-X I-X E-X", "B-X I-X B-X I-X", (2, 2, 2), 0),
    "E after O begins, E after E too": ("E-X E-X O", "B-X B-X O", (2, 2, 2), 1),
    "B after E is no border": ("B-X E-X B-X", "B-X I-X I-X", (1, 1, 1), 1),
    "S is a letter like any other": ("S-X S-X O", "B-X I-X O", (1, 1, 1), 1),
    "B after S is no border": ("S-X B-X O", "B-X I-X O", (1, 1, 1), 1),
    "brackets are entities of one word": ("[-X [-X O ]-X", "B-X B-X O B-X", (3, 3, 3), 1),
    "a dot is outside": ("[-X .-X O", "B-X O O", (1, 1, 1), 1),
    "nothing": ("O O", "O O", (0, 0, 0), 2),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_entities_by_hand(case: str) -> None:
    gold, predicted, expected, right = BY_HAND[case]
    assert totals(gold, predicted) == expected
    assert totals(predicted, gold) == (expected[1], expected[0], expected[2])
    parts = [[part.split() for part in text.split("|")] for text in (gold, predicted)]
    assert count_entities(*parts).right_words == right


# -- the script, read a second time ----------------------------------------------------------------------------------


class Script:
    """`conlleval` line by line: the rules as they are written there, one comparison each, and its running variables."""

    def __init__(self) -> None:
        self.in_correct = False
        self.correct = self.found_correct = self.found_guessed = self.tokens = self.tags = 0
        self.last_correct = self.last_guessed = "O"
        self.last_correct_type = self.last_guessed_type = ""

    @staticmethod
    def end(prev: str, tag: str, prev_type: str, type_: str) -> bool:
        ended = False
        if prev == "B":
            ended = tag in ("B", "O")
        if prev == "I":
            ended = tag in ("B", "O")
        if prev == "E":
            ended = tag in ("E", "I", "O")
        if prev not in ("O", ".") and prev_type != type_:
            ended = True
        return True if prev in ("]", "[") else ended

    @staticmethod
    def start(prev: str, tag: str, prev_type: str, type_: str) -> bool:
        started = False
        if tag == "B":
            started = prev in ("B", "I", "O")
        if tag == "I":
            started = prev in ("O", "E")
        if tag == "E":
            started = prev in ("E", "O")
        if tag not in ("O", ".") and prev_type != type_:
            started = True
        return True if tag in ("]", "[") else started

    def line(self, correct: str, guessed: str, is_word: bool) -> None:
        correct, _, correct_type = correct.partition("-")
        guessed, _, guessed_type = guessed.partition("-")
        was, is_ = (self.last_correct, self.last_guessed), (correct, guessed)
        was_type, type_ = (self.last_correct_type, self.last_guessed_type), (correct_type, guessed_type)
        ends = [self.end(was[i], is_[i], was_type[i], type_[i]) for i in (0, 1)]
        starts = [self.start(was[i], is_[i], was_type[i], type_[i]) for i in (0, 1)]
        if self.in_correct:
            if ends == [True, True] and was_type[0] == was_type[1]:
                self.in_correct = False
                self.correct += 1
            elif ends[0] != ends[1] or guessed_type != correct_type:
                self.in_correct = False
        if starts == [True, True] and guessed_type == correct_type:
            self.in_correct = True
        self.found_correct += starts[0]
        self.found_guessed += starts[1]
        if is_word:
            self.tokens += 1
            self.tags += correct == guessed and correct_type == guessed_type
        self.last_correct, self.last_guessed = is_
        self.last_correct_type, self.last_guessed_type = type_

    def run(self, gold: Sentences, predicted: Sentences) -> tuple[int, int, int, int, int]:
        for tags, guesses in zip(gold, predicted):
            for correct, guessed in zip(tags, guesses):
                self.line(correct, guessed, True)
            self.line("O", "O", False)
        correct = self.correct + self.in_correct
        return self.found_correct, self.found_guessed, correct, self.tokens, self.tags


def figures(counts: EntityCounts) -> tuple[int, int, int, int, int]:
    totals = counts.gold.total(), counts.predicted.total(), counts.right.total()
    return (*totals, counts.words, counts.right_words)


IOB = ["O", "B-X", "I-X", "B-Y", "I-Y", "B", "I"]
REGULAR = [*IOB, "E-X", "E-Y", "S-X", "S-Y"]  # an entity that is open ends before another begins
ANY = [*REGULAR, "S", "E", "[-X", "]-X", "]", ".", ".-X", "O-X", "B-X-Y", "I-", "Q-X"]


def sides(tags: list[str]) -> st.SearchStrategy[tuple[Sentences, Sentences]]:
    """Gold and predicted sentences; often the same tag, so that much is right."""
    tag = st.sampled_from(tags)
    pair = st.one_of(tag.map(lambda one: (one, one)), st.tuples(tag, tag))
    sentences = st.lists(st.lists(pair, max_size=8), min_size=1, max_size=5)
    return sentences.map(lambda data: tuple([[pair[i] for pair in rows] for rows in data] for i in (0, 1)))


@given(sides(ANY))
def test_counts_are_those_of_the_script(data: tuple[Sentences, Sentences]) -> None:
    assert figures(count_entities(*data)) == Script().run(*data)


def entities(tags: list[str]) -> set[tuple[str, int, int]]:
    """(type, first word, last word) of IOB tags of either kind."""
    spans: list[list] = []
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if mark == "O":
            continue
        goes_on = mark == "I" and spans and spans[-1][0] == kind and spans[-1][2] == place - 1
        if goes_on:
            spans[-1][2] = place
        else:
            spans.append([kind, place, place])
    return {tuple(entity) for entity in spans}


@given(sides(IOB))
def test_iob_entities_are_right_if_they_are_in_both(data: tuple[Sentences, Sentences]) -> None:
    gold, predicted = ([entities(tags) for tags in side] for side in data)
    expected = sum(map(len, gold)), sum(map(len, predicted)), sum(len(a & b) for a, b in zip(gold, predicted))
    counts = count_entities(*data)
    assert (counts.gold.total(), counts.predicted.total(), counts.right.total()) == expected


@given(sides(REGULAR))
def test_gold_against_itself_is_perfect(data: tuple[Sentences, Sentences]) -> None:
    gold = data[0]
    counts = count_entities(gold, gold)
    assert counts.gold == counts.predicted and counts.gold.total() == counts.right.total()
    if any(gold):
        scores = score_tags(gold, gold, chunks=True)
        assert scores.values["f1"] == (1.0 if counts.gold.total() else 0.0)
        assert scores.values["accuracy"] == 1.0


@given(sides(REGULAR), st.randoms(use_true_random=False))
def test_the_order_of_sentences_does_not_matter(data: tuple[Sentences, Sentences], draw: random.Random) -> None:
    together = list(zip(*data))
    draw.shuffle(together)
    gold, predicted = ([row[i] for row in together] for i in (0, 1))
    assert count_entities(gold, predicted) == count_entities(*data)


# -- schemes ---------------------------------------------------------------------------------------------------------

segments = st.lists(st.tuples(st.sampled_from(["", "X", "Y"]), st.integers(1, 4)), max_size=6)  # "": outside


def marked(data: list[tuple[str, int]], first: str, inner: str, last: str, single: str) -> list[str]:
    tags = []
    for kind, length in data:
        marks = [single] if length == 1 else [first, *[inner] * (length - 2), last]
        tags += [f"{mark}-{kind}" for mark in marks] if kind else ["O"] * length
    return tags


def iob1(data: list[tuple[str, int]]) -> list[str]:
    tags, before = [], ""
    for kind, length in data:
        tags += [f"{'B' if kind == before else 'I'}-{kind}", *[f"I-{kind}"] * (length - 1)] if kind else ["O"] * length
        before = kind
    return tags


@given(segments)
def test_every_scheme_becomes_iob2(data: list[tuple[str, int]]) -> None:
    iob2 = tuple(marked(data, "B", "I", "I", "B"))
    schemes = {
        "IOB1": iob1(data),
        "IOB2": list(iob2),
        "IOBES": marked(data, "B", "I", "E", "S"),
        "BMES": marked(data, "B", "M", "E", "S"),
        "BILOU": marked(data, "B", "I", "L", "U"),
        "IOE2": marked(data, "I", "I", "E", "E"),
    }
    for name, tags in schemes.items():
        assert to_iob2(tags) == iob2, name
        assert to_iob1(tags) == tuple(schemes["IOB1"]), name
    has_entity = any(kind for kind, _ in data)
    assert scheme_of([schemes["IOB1"]]) == ("iob1" if has_entity else "iob2")
    assert scheme_of([iob2]) == "iob2"
    if any(kind and length == 1 for kind, length in data):
        assert scheme_of([schemes["IOBES"]]) == "other"


@given(sides(IOB))
def test_other_schemes_do_not_change_entities(data: tuple[Sentences, Sentences]) -> None:
    for tags in data[0]:
        for turned in (to_iob2(tags), to_iob1(tags)):
            assert entities(list(turned)) == entities(tags)
        assert to_iob2(to_iob1(tags)) == to_iob2(tags) == to_iob2(to_iob2(tags))


def test_iobes_is_scored_by_what_it_means_once_it_is_iob2() -> None:
    gold, predicted = "B-X E-X S-X S-X", "B-X I-X B-X B-X"
    assert totals(gold, predicted) == (1, 3, 0)  # what the script makes of it
    assert totals(" ".join(to_iob2(gold.split())), predicted) == (3, 3, 3)


def test_one_slip_does_not_make_a_file_iob1() -> None:
    good = ["B-X", "I-X", "O", "B-Y"]
    assert scheme_of([good, ["O", "I-X"], good]) == "iob2"
    assert scheme_of([["I-X", "O"], ["I-X", "B-X"], ["B-X"]]) == "iob1"


def test_what_chunk_tags_are() -> None:
    for names in (["B-NP", "I-NP", "O"], ["O"], ["B", "I", "O"], ["S-PER", "M-PER"], ["U-X", "L-X", "O"], ["[-X", "."]):
        assert are_chunk_tags(names), names
        assert metrics_of_tags(names)[0] == "f1"
    for names in (["NN", "IN", "."], ["X", "O"], ["."], ["-LRB-", "NN"], ["NP", "O"], []):
        assert not are_chunk_tags(names), names
        assert metrics_of_tags(names) == ("accuracy", "f1_macro")


# -- scores ----------------------------------------------------------------------------------------------------------


def test_scores_by_type() -> None:
    gold, predicted = [["B-PER", "O", "B-LOC"], ["O"]], [["B-PER", "B-PER", "O"], ["O"]]
    scores = score_tags(gold, predicted)
    assert scores.main == "f1" and scores.rows == 2
    assert scores.values == {"f1": 0.5, "precision": 0.5, "recall": 0.5, "accuracy": 0.5}
    loc, per = scores.per_class
    assert (loc.label, loc.precision, loc.recall, loc.f1, loc.support) == ("LOC", 0.0, 0.0, 0.0, 1)
    assert (per.label, per.precision, per.recall, per.support) == ("PER", 0.5, 1.0, 1)
    assert per.f1 == pytest.approx(2 / 3)
    assert score_tags(gold, predicted, main="accuracy").main == "accuracy"
    with complaints.refused("--metric matthews", "f1, precision, recall, accuracy"):
        score_tags(gold, predicted, main="matthews")


def test_scores_without_entities_are_figures_with_a_warning() -> None:
    scores = score_tags([["O", "B-X"]], [["O", "O"]])
    assert scores.values["f1"] == scores.values["precision"] == 0.0
    (warning,) = scores.warnings
    complaints.names(warning, "predicted", "precision")
    scores = score_tags([["O", "O"]], [["O", "B-X"]])
    (warning,) = scores.warnings
    complaints.names(warning, "gold", "recall")
    with complaints.refused("words", "tagged"):
        score_tags([[]], [[]])


def test_parts_of_speech_are_classes_of_words() -> None:
    scores = score_tags([["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]])
    assert scores.main == "accuracy" and scores.rows == 2
    assert scores.values == pytest.approx({"accuracy": 2 / 3, "f1_macro": 0.4})
    assert [(item.label, item.support) for item in scores.per_class] == [("NN", 2), ("VB", 1)]
    assert scores.confusion == [[2, 0], [1, 0]]
    unseen = score_tags([["NN"]], [["XX"]])
    assert unseen.values == {"accuracy": 0.0, "f1_macro": 0.0}
