"""GPT's heuristics for tasks that it was never taught (section 5 of the paper, "Zero-shot behaviors").

Acceptability (CoLA): the mean log-probability of a sentence's tokens, against a threshold. The threshold comes from
labelled rows that are not those scored; without any, only what needs no threshold is reported.
Sentiment (SST-2): "very" is appended, and the words "positive" and "negative" are compared: a template of `in_context`.
Answers (RACE, COPA): the choice with the highest mean log-probability: `in_context`'s normalisation "per token".
Referents (Winograd): each candidate is put in the place of the blank, and what follows it is scored.

A model that reads from right to left tells a sentence's tokens from its end, and what stands before a blank, given the
candidate and what follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from foretext.errors import UserError
from foretext.evaluate.in_context import Answered, Prompt
from foretext.evaluate.likelihood import Progress, Query, channel_query, score_queries, split_border
from foretext.runs.model import SavedModel
from foretext.tasks.files.rows import Row

VERY = "{text} very {label}"  # the paper's template; its labels are called positive and negative
BLANK = re.compile(r"_+")


def sentence_scores(model: SavedModel, rows: Sequence[Row], progress: Progress | None = None) -> list[float]:
    """The mean log-probability of each text's tokens in the order of reading, the first one after end-of-text; where a
    vocabulary has no end-of-text (GPT as it was published), from the second one on."""
    given = 1 if model.tokenizer.end is None else 0
    queries = []
    for row in rows:
        ids = tuple(model.tokenizer.encode(row.texts[0]))
        ids = ids[::-1] if model.info.direction == "backward" else ids
        if len(ids) <= given:
            raise UserError(f"{row.where}: too short to be scored; leave the row out")
        queries.append(Query(ids[:given], (ids[given:],), row.where))
    return [found[0].total / found[0].tokens for found in score_queries(model, queries, progress)]


@dataclass(frozen=True)
class Acceptability:
    """`matthews` is of the threshold that the other rows gave (None: there were none); `area`: the probability that an
    acceptable sentence scores above one that is not, for which no threshold is needed."""

    area: float
    matthews: float | None
    threshold: float | None


def acceptability(
    scores: Sequence[float], labels: Sequence[str], good: str, known: tuple[Sequence[float], Sequence[str]] | None
) -> Acceptability:
    from sklearn.metrics import matthews_corrcoef, roc_auc_score

    truth = [label == good for label in labels]
    if len(set(truth)) < 2:
        raise UserError(f"all rows have one label; acceptability needs rows with {good!r} and rows without")
    area = float(roc_auc_score(truth, scores))
    if known is None:
        return Acceptability(area, None, None)
    known_truth = [label == good for label in known[1]]
    if len(set(known_truth)) < 2:
        raise UserError(
            f"the rows to find a threshold on need rows with the label {good!r} and rows without; give more"
        )
    threshold = best_threshold(known[0], known_truth)
    guesses = [score > threshold for score in scores]
    return Acceptability(area, float(matthews_corrcoef(truth, guesses)), threshold)


def best_threshold(scores: Sequence[float], truth: Sequence[bool]) -> float:
    """The threshold between two scores with the highest Matthews correlation; the middle one of equals."""
    order = np.argsort(np.asarray(scores))
    ordered, right = np.asarray(scores)[order], np.asarray(truth)[order]
    below, missed = np.arange(1.0, len(right)), np.cumsum(right, dtype=float)[:-1]  # at or below each gap; acceptable
    above, hits = len(right) - below, float(right.sum()) - missed
    product = above * below * (hits + missed) * (len(right) - hits - missed)
    agreement = hits * (below - missed) - (above - hits) * missed
    matthews = np.where(product > 0, agreement / np.sqrt(np.maximum(product, 1.0)), 0.0)
    matthews[ordered[:-1] == ordered[1:]] = -2.0  # equal scores cannot be parted
    best = np.flatnonzero(matthews >= matthews.max() - 1e-12)
    gap = int(best[len(best) // 2])
    return float((ordered[gap] + ordered[gap + 1]) / 2)


def referents(model: SavedModel, rows: Sequence[Row], progress: Progress | None = None) -> list[Answered]:
    """Rows of the kind choice whose context has a blank (`_`): what follows the blank is scored behind each choice; by
    a model that reads from right to left, what precedes it in front of each."""
    backward = model.info.direction == "backward"
    queries: list[Query] = []
    for row in rows:
        before, after = _round_blank(row, backward)
        if backward:
            queries.append(channel_query(model.tokenizer, before, row.texts[1:], after, row.where))
            continue
        for choice in row.texts[1:]:
            context, rest = split_border(model.tokenizer, before + choice, after)
            queries.append(Query(tuple(context), (tuple(rest),), row.where))
    scored = iter([one for likelihoods in score_queries(model, queries, progress) for one in likelihoods])
    answered = []
    for row in rows:
        likelihoods = tuple(islice(scored, len(row.texts) - 1))
        prompt = Prompt(row.texts[0], row.texts[1:], None if row.label is None else int(row.label))
        answered.append(Answered(prompt, likelihoods, (0.0,) * len(likelihoods)))
    return answered


def _round_blank(row: Row, backward: bool) -> tuple[str, str]:
    """What stands before a row's blank, and what follows it; what will be scored of these must be there."""
    blank = BLANK.search(row.texts[0])
    before, after = ("", "") if blank is None else (row.texts[0][: blank.start()], row.texts[0][blank.end() :])
    if not (before if backward else after).strip():
        side = "before" if backward else "after"
        raise UserError(f"{row.where}: the text needs a blank, written _, and something {side} it")
    return before, after
