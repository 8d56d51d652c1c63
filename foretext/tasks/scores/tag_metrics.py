"""Scores of tags: entities counted as the CoNLL tasks' script `conlleval` (2004-01-26) counts them, or words.

A tag is a mark and a type, separated by the first hyphen (`B-NP`, `O`). The script walks over gold and predicted tags
side by side. Whether an entity begins or ends between two words follows from both marks and types, so IOB1, IOB2 and
mixtures count alike (`I-X` after `O`, or after another type, begins an entity). Its rules:

- An entity ends before a word if the marks (earlier first) are BB, BO, IB, IO, EE, EI, EO; or the earlier is neither
  `O` nor `.` and the types differ; or the earlier is `[` or `]`.
- An entity begins at a word if the marks are BB, IB, OB, OI, EE, EI, OE; or the word's is neither `O` nor `.` and the
  types differ; or it is `[` or `]`.
- It is right if both begin and end at the same words with the same type.

We keep the resulting oddities: `B-X` after `E-X` neither ends nor begins an entity, and two `S-X` are one entity, since
the script does not know `S`. So `to_iob2` converts IOBES, BMES and BILOU to IOB2 before training and scoring. (The
script treats a type called `0` as no type; here it is a type.) Tags that are not chunk tags, such as parts of speech,
are scored as classes of words.

| tags | values | main |
|---|---|---|
| entities, chunks | f1, precision, recall of entities; accuracy of words | f1 |
| other | accuracy, f1_macro of words | accuracy |
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from foretext.errors import refuse_if
from foretext.tasks.labelled import LabelSet, order_names
from foretext.tasks.scores.metrics import ClassScore, Scores, score, with_main

Tag = tuple[str, str]  # mark and type
Scheme = Literal["iob1", "iob2", "other"]

OUTSIDE: Tag = ("O", "")
_NOTHING = ("O", ".")  # marks of words outside any entity
_SINGLE = ("[", "]")  # marks of entities of one word
_ENDS = {tuple(marks) for marks in ("BB", "BO", "IB", "IO", "EE", "EI", "EO")}
_BEGINS = {tuple(marks) for marks in ("BB", "IB", "OB", "OI", "EE", "EI", "OE")}
_MARKS = {*"BIESOMLU[]."}  # of chunk tags in all schemes that `to_iob2` reads
_STARTERS = {*"BSU[]"}  # marks that begin an entity whatever precedes them
_CLOSERS = {*"ESLU[]"}  # marks after which a new entity begins


def split_tag(tag: str) -> Tag:
    mark, _, kind = tag.partition("-")
    return mark, kind


def join_tag(mark: str, kind: str) -> str:
    return f"{mark}-{kind}" if kind else mark


def are_chunk_tags(names: Iterable[str]) -> bool:
    """Whether tags mark entities or chunks, in any scheme; parts of speech do not."""
    marks = {split_tag(name)[0] for name in names}
    return bool(marks - {"."}) and marks <= _MARKS


def metrics_of_tags(names: Iterable[str]) -> tuple[str, ...]:
    """The metrics that can be the main one, the tags' own first."""
    return ("f1", "precision", "recall", "accuracy") if are_chunk_tags(names) else ("accuracy", "f1_macro")


# -- schemes -----------------------------------------------------------------------------------------------------------


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """A sentence's chunk tags with `B` at the first word of each entity and `I` at the others."""
    split = [OUTSIDE, *map(split_tag, tags)]
    return tuple(
        "O" if mark in _NOTHING else join_tag("B" if _starts(before, mark, kind) else "I", kind)
        for before, (mark, kind) in pairwise(split)
    )


def _starts(before: Tag, mark: str, kind: str) -> bool:
    return mark in _STARTERS or before[0] in _CLOSERS or before[0] in _NOTHING or before[1] != kind


def to_iob1(tags: Sequence[str]) -> tuple[str, ...]:
    """The same with `B` only directly after an entity of the same type, where it is needed to separate the two."""
    split = [OUTSIDE, *map(split_tag, to_iob2(tags))]
    return tuple(
        mark if mark == "O" else join_tag("B" if mark == "B" and before[0] != "O" and before[1] == kind else "I", kind)
        for before, (mark, kind) in pairwise(split)
    )


def scheme_of(sentences: Iterable[Sequence[str]]) -> Scheme:
    """IOB1 if more entities begin with `I` than with a `B` that IOB1 would not use, so that a single slip does not
    decide."""
    old = new = 0
    for tags in sentences:
        if any(split_tag(tag)[0] not in ("B", "I", "O") for tag in tags):
            return "other"
        for tag, first, second in zip(tags, to_iob1(tags), to_iob2(tags)):
            if first != second:  # an entity begins here, and the schemes differ
                old, new = old + (tag == first), new + (tag == second)
    return "iob1" if old > new else "iob2"


# -- entities ----------------------------------------------------------------------------------------------------------


@dataclass
class EntityCounts:
    """Entities by type (gold, predicted, and right), and words."""

    gold: Counter[str] = field(default_factory=Counter)
    predicted: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    words: int = 0
    right_words: int = 0


def count_entities(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityCounts:
    """The script's counts over sentences of tags."""
    counts = EntityCounts()
    open_ = False  # whether an entity has begun in both with the same type and has matched so far
    for (gold_before, gold_now), (before, now) in zip(pairwise(_stream(gold)), pairwise(_stream(predicted))):
        ends = _ends(gold_before, gold_now), _ends(before, now)
        if open_ and all(ends) and before[1] == gold_before[1]:
            counts.right[gold_before[1]] += 1
            open_ = False
        elif ends[0] != ends[1] or gold_now[1] != now[1]:
            open_ = False
        begins = _begins(gold_before, gold_now), _begins(before, now)
        open_ = open_ or (all(begins) and gold_now[1] == now[1])
        counts.gold[gold_now[1]] += begins[0]
        counts.predicted[now[1]] += begins[1]
    if open_:
        counts.right[gold_now[1]] += 1
    for tags, guesses in zip(gold, predicted):
        counts.words += len(tags)
        counts.right_words += sum(split_tag(tag) == split_tag(guess) for tag, guess in zip(tags, guesses))
    return counts


def _stream(sentences: Sequence[Sequence[str]]) -> Iterator[Tag]:
    """All tags in a row, with a tag outside any entity before the first sentence and after each."""
    yield OUTSIDE
    for tags in sentences:
        yield from map(split_tag, tags)
        yield OUTSIDE


def _ends(before: Tag, now: Tag) -> bool:
    changed = before[0] not in _NOTHING and before[1] != now[1]
    return (before[0], now[0]) in _ENDS or changed or before[0] in _SINGLE


def _begins(before: Tag, now: Tag) -> bool:
    changed = now[0] not in _NOTHING and before[1] != now[1]
    return (before[0], now[0]) in _BEGINS or changed or now[0] in _SINGLE


# -- scores ------------------------------------------------------------------------------------------------------------


def score_tags(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    chunks: bool | None = None,
    main: str | None = None,
) -> Scores:
    """Scores of tagged sentences. `chunks`: whether they are chunk tags; None: decided by the gold tags."""
    assert all(len(a) == len(b) for a, b in zip(gold, predicted, strict=True)), "a predicted tag for each word"
    refuse_if(not any(gold), "no words to score; give a file with tagged sentences")
    if chunks is None:
        chunks = are_chunk_tags({tag for tags in gold for tag in tags})
    scores = _entity_scores(gold, predicted) if chunks else _word_scores(gold, predicted)
    return with_main(scores, main) if main is not None else scores


def _entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Scores:
    counts = count_entities(gold, predicted)
    precision, recall, f1 = _rates(counts.right.total(), counts.predicted.total(), counts.gold.total())
    values = {"f1": f1, "precision": precision, "recall": recall, "accuracy": counts.right_words / counts.words}
    kinds = sorted(kind for kind in {*counts.gold, *counts.predicted} if counts.gold[kind] or counts.predicted[kind])
    per_class = [
        ClassScore(kind, *_rates(counts.right[kind], counts.predicted[kind], counts.gold[kind]), counts.gold[kind])
        for kind in kinds
    ]
    counted = {
        "no gold tag marks an entity: recall is meaningless": counts.gold.total(),
        "no entity was predicted: precision is meaningless": counts.predicted.total(),
    }
    return Scores("f1", values, len(gold), per_class, warnings=[text for text, count in counted.items() if not count])


def _rates(right: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Precision, recall and F1; 0 if the denominator is 0."""
    precision, recall = right / max(1, predicted), right / max(1, gold)
    return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


def _word_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Scores:
    tags, guesses = ([tag for sentence in side for tag in sentence] for side in (gold, predicted))
    words = score("classification", tags, guesses, LabelSet(order_names([*tags, *guesses])))
    values = {name: words.values[name] for name in ("accuracy", "f1_macro")}
    return Scores("accuracy", values, len(gold), words.per_class, words.confusion)
