"""Zero-shot tasks as the papers ask them: GPT's heuristics, and GPT-2's written answers.

GPT's heuristics (section 5 of the paper, "Zero-shot behaviors"): Acceptability (CoLA): the mean log-probability of a
sentence's tokens, against a threshold. The threshold comes from labelled rows other than those scored; without any,
only measures that need no threshold are reported. Sentiment (SST-2): "very" is appended, and the words "positive" and
"negative" are compared: a template of `in_context`. Answers (RACE, COPA): the choice with the highest mean
log-probability: the normalisation "per token" of `in_context`. Referents (Winograd): each candidate is put into the
blank, and what follows it is scored.

A right-to-left model predicts a sentence's tokens from its end, and what precedes a blank, given the candidate and what
follows.

In GPT-2's tasks the answers are written, not chosen: summaries after "TL;DR:", translations after pairs "a = b",
answers after "A:". As in the paper, a summary is the first three sentences of 100 tokens with top-k 2; translations and
answers are greedy and end with the line. Examples, if a task has them, are rows of another file, the same for every
row. A prompt that is too long loses its beginning, so that the answer still fits after it, and such rows are counted.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from foretext.errors import UserError, refuse_if
from foretext.evaluate.in_context import Answered, Prompt, drawn_examples
from foretext.evaluate.likelihood import Progress, Query, channel_query, score_queries, split_border
from foretext.generate.many import write_in_turn
from foretext.generate.sampling import Sampling
from foretext.runs.model import SavedModel
from foretext.tasks.files.rows import Row, cell_text
from foretext.tasks.scores.text_metrics import best_word_f1, bleu, exact_match, has_rouge_words, rouge
from foretext.text.corpus.tables import Table

VERY = "{text} very {label}"  # the paper's template; its labels are called positive and negative
BLANK = re.compile(r"_+")


def sentence_scores(model: SavedModel, rows: Sequence[Row], progress: Progress | None = None) -> list[float]:
    """The mean log-probability of each text's tokens in reading order. The first token is scored after end-of-text; if
    the vocabulary has none (GPT as published), scoring starts at the second token."""
    given = 1 if model.tokenizer.end is None else 0
    queries = []
    for row in rows:
        ids = tuple(model.tokenizer.encode(row.texts[0]))
        ids = ids[::-1] if model.info.direction == "backward" else ids
        refuse_if(len(ids) <= given, f"{row.where}: too short to score; leave the row out")
        queries.append(Query(ids[:given], (ids[given:],), row.where))
    return [completions[0].total / completions[0].tokens for completions in score_queries(model, queries, progress)]


@dataclass(frozen=True)
class Acceptability:
    """`matthews` uses a threshold from other rows (None: there were none). `area` is the probability that an acceptable
    sentence scores above an unacceptable one, which needs no threshold."""

    area: float
    matthews: float | None
    threshold: float | None


def acceptability(
    scores: Sequence[float], labels: Sequence[str], good: str, known: tuple[Sequence[float], Sequence[str]] | None
) -> Acceptability:
    from sklearn.metrics import matthews_corrcoef, roc_auc_score

    truth = [label == good for label in labels]
    refuse_if(len(set(truth)) < 2, f"all rows have one label; acceptability needs rows with {good!r} and rows without")
    area = float(roc_auc_score(truth, scores))
    if known is None:
        return Acceptability(area, None, None)
    known_truth = [label == good for label in known[1]]
    refuse_if(
        len(set(known_truth)) < 2,
        f"the rows for finding a threshold must include some with the label {good!r} and some without; give more",
    )
    threshold = best_threshold(known[0], known_truth)
    guesses = [score > threshold for score in scores]
    return Acceptability(area, float(matthews_corrcoef(truth, guesses)), threshold)


def best_threshold(scores: Sequence[float], truth: Sequence[bool]) -> float:
    """The threshold between two scores with the highest Matthews correlation; of equals, the middle one."""
    order = np.argsort(np.asarray(scores))
    ordered, right = np.asarray(scores)[order], np.asarray(truth)[order]
    # counts at or below each gap; acceptable ones among them
    below, missed = np.arange(1.0, len(right)), np.cumsum(right, dtype=float)[:-1]
    above, hits = len(right) - below, float(right.sum()) - missed
    product = above * below * (hits + missed) * (len(right) - hits - missed)
    agreement = hits * (below - missed) - (above - hits) * missed
    matthews = np.where(product > 0, agreement / np.sqrt(np.maximum(product, 1.0)), 0.0)
    matthews[ordered[:-1] == ordered[1:]] = -2.0  # no threshold can separate equal scores
    best = np.flatnonzero(matthews >= matthews.max() - 1e-12)
    gap = int(best[len(best) // 2])
    return float((ordered[gap] + ordered[gap + 1]) / 2)


def referents(model: SavedModel, rows: Sequence[Row], progress: Progress | None = None) -> list[Answered]:
    """Rows of the kind choice whose context has a blank (`_`). The text after the blank is scored after each choice; a
    right-to-left model scores the text before it."""
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
    """The text before and after a row's blank; the side that is scored must not be empty."""
    blank = BLANK.search(row.texts[0])
    before, after = ("", "") if blank is None else (row.texts[0][: blank.start()], row.texts[0][blank.end() :])
    if not (before if backward else after).strip():
        side = "before" if backward else "after"
        raise UserError(f"{row.where}: the text needs a blank, written _, and something {side} it")
    return before, after


_SENTENCE = re.compile(r".+?(?:[.!?]+(?=\s|$)|[。！？]+|$)\s*", re.DOTALL)


@dataclass(frozen=True)
class WrittenTask:
    fields: tuple[str, str]  # columns: the given text, and the text to write
    prompt: str  # {0} is the given text
    example: str  # a solved example; {1} is the answer
    sampling: Sampling


TASKS = {
    "summary": WrittenTask(("text", "summary"), "{0}\nTL;DR:", "", Sampling(100, 1.0, top_k=2, seed=0)),
    "translation": WrittenTask(("source", "target"), "{0} =", "{0} = {1}\n", Sampling(100, 0.0, stop=("\n",))),
    "answer": WrittenTask(("question", "answer"), "Q: {0}\nA:", "Q: {0}\nA: {1}\n", Sampling(50, 0.0, stop=("\n",))),
}


@dataclass(frozen=True)
class Pair:
    """A given text, and one or more right answers."""

    given: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class WrittenRound:
    """One draw of examples: the written texts, their scores, and the number of rows whose prompt lost its beginning."""

    texts: tuple[str, ...]
    scores: dict[str, float]
    cut: int
    note: str = ""


def pairs_of(table: Table, task: str, columns: dict[str, str] | None) -> list[Pair]:
    """The given text and right answers of each row; several right answers may be in a list."""
    columns, fields = columns or {}, TASKS[task].fields
    for field in columns:
        refuse_if(field not in fields, f"--columns: {task} has no field {field!r}; it has {' and '.join(fields)}")
    names = [columns.get(field, field) for field in fields]
    for name in names:
        refuse_if(
            name not in table.columns,
            f"{table.name}: no column {name!r} for {task} (it has {', '.join(table.columns)}); name the columns with "
            f"--columns {fields[0]}=…,{fields[1]}=…",
        )
    cells = [table.column(name) for name in names]
    pairs = [_pair(task, *row) for row in zip(table.where, *cells)]
    refuse_if(not pairs, f"{table.name}: it has no rows")
    return pairs


def _pair(task: str, where: str, left: Any, right: Any) -> Pair:
    given = cell_text(left, where)
    wanted = [cell_text(answer, where) for answer in (right if isinstance(right, list | tuple) else [right])]
    answers = tuple(answer for answer in wanted if answer is not None)
    if not (given and given.strip()) or not answers or len(answers) < len(wanted):
        raise UserError(f"{where}: {task} needs text in both columns; correct or leave out the row")
    return Pair(given, answers)


def answer_pairs(
    model: SavedModel,
    task: str,
    rows: Sequence[Pair],
    known: Sequence[Pair],
    shots: int,
    seeds: Sequence[int],
    language: str = "",
    progress: Progress | None = None,
) -> list[WrittenRound]:
    """One round per draw of examples; without examples a single round."""
    refuse_if(shots and not TASKS[task].example, f"{task} is prompted without examples; leave --shots out")
    rounds = []
    for seed in seeds if shots else [0]:
        chosen = drawn_examples(known, [row.given for row in rows], shots, seed, lambda pair: pair.given)
        texts, cut = _write(model, task, rows, chosen, progress)
        scores, note = score_written(task, texts, [row.wanted for row in rows], language)
        rounds.append(WrittenRound(tuple(texts), scores, cut, note))
    return rounds


def _write(
    model: SavedModel,
    task: str,
    rows: Sequence[Pair],
    examples: Sequence[Sequence[Pair]],
    progress: Progress | None,
) -> tuple[list[str], int]:
    """What the model writes for each row, and how many prompts were cut."""
    chosen = TASKS[task]
    prompts = [
        "".join([*(chosen.example.format(one.given, one.wanted[0]) for one in solved), chosen.prompt.format(row.given)])
        for row, solved in zip(rows, examples)
    ]
    texts, cut = [], 0
    for one in write_in_turn(model, prompts, chosen.sampling, reserve=True):
        texts.append(first_sentences(one.text.strip(), 3) if task == "summary" else one.text.strip())
        cut += one.cut > 0
        if progress is not None:
            progress(len(texts), len(prompts))
    return texts, cut


def first_sentences(text: str, count: int) -> str:
    """The first `count` sentences; an unfinished one counts."""
    return "".join(_SENTENCE.findall(text)[:count]).strip()


def _best_rouge(text: str, references: Sequence[str]) -> dict[str, float]:
    """Each score against the reference that gives the highest."""
    scores = [rouge(text, reference) for reference in references]
    return {name: max(one[name] for one in scores) for name in scores[0]}


def score_written(
    task: str, texts: Sequence[str], references: Sequence[Sequence[str]], language: str = ""
) -> tuple[dict[str, float], str]:
    """The task's scores, and notes that a reader needs."""
    if task == "translation":
        value, signature = bleu(texts, references, language)
        return {"bleu": value}, signature
    if task == "summary":
        scores = [_best_rouge(text, wanted) for text, wanted in zip(texts, references)]
        blind = not any(has_rouge_words(reference) for wanted in references for reference in wanted)
        note = "ROUGE sees Latin letters and digits only, and the references have none" if blind else ""
        return {name: statistics.fmean(of_text[name] for of_text in scores) for name in scores[0]}, note
    pairs = list(zip(texts, references))
    return {
        "exact_match": statistics.fmean(exact_match(text, wanted) for text, wanted in pairs),
        "f1": statistics.fmean(best_word_f1(text, wanted) for text, wanted in pairs),
    }, ""
