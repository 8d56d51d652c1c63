"""GPT-2's tasks without training, whose answers are written, not chosen: summaries after "TL;DR:", translations after
pairs "a = b", answers after "A:".

As in the paper a summary is 100 tokens with top-k 2, of which the first three sentences count; translations and answers
are greedy and end with the line. Examples, where a task has them, are rows of another file, the same for every row. A
prompt that is too long loses its beginning, so that what is written still fits behind it, and the rows are counted.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foretext.errors import UserError
from foretext.evaluate.in_context import drawn_examples
from foretext.evaluate.likelihood import Progress
from foretext.generate.many import write_in_turn
from foretext.generate.sampling import Sampling
from foretext.runs.model import SavedModel
from foretext.tasks.files.rows import cell_text
from foretext.tasks.scores.text_metrics import best_word_f1, bleu, exact_match, has_rouge_words, rouge
from foretext.text.corpus.tables import Table

_SENTENCE = re.compile(r".+?(?:[.!?]+(?=\s|$)|[。！？]+|$)\s*", re.DOTALL)


@dataclass(frozen=True)
class WrittenTask:
    fields: tuple[str, str]  # columns: what is given, what is to be written
    prompt: str  # {0} is what is given
    example: str  # a solved one; {1} is the answer
    sampling: Sampling


TASKS = {
    "summary": WrittenTask(("text", "summary"), "{0}\nTL;DR:", "", Sampling(100, 1.0, top_k=2, seed=0)),
    "translation": WrittenTask(("source", "target"), "{0} =", "{0} = {1}\n", Sampling(100, 0.0, stop=("\n",))),
    "answer": WrittenTask(("question", "answer"), "Q: {0}\nA:", "Q: {0}\nA: {1}\n", Sampling(50, 0.0, stop=("\n",))),
}


@dataclass(frozen=True)
class Pair:
    """What is given, and one or more texts that would be right."""

    given: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class WrittenRound:
    """One draw of examples: what was written, its scores, and the rows whose prompt lost its beginning."""

    shots: int
    seed: int
    texts: tuple[str, ...]
    scores: dict[str, float]
    cut: int
    note: str = ""


def pairs_of(table: Table, task: str, columns: dict[str, str] | None) -> list[Pair]:
    """What is given and what is wanted, of each row; several right answers may stand in a list."""
    cells = [table.column(name) for name in _names(table, task, columns or {})]
    pairs = [_pair(task, *row) for row in zip(table.where, *cells)]
    if not pairs:
        raise UserError(f"{table.name}: there is no row in it")
    return pairs


def _names(table: Table, task: str, columns: dict[str, str]) -> list[str]:
    """The columns of what is given and what is wanted."""
    fields = TASKS[task].fields
    for field in columns:
        if field not in fields:
            raise UserError(f"--columns: {task} has no field {field!r}; it has {' and '.join(fields)}")
    names = [columns.get(field, field) for field in fields]
    for name in names:
        if name not in table.columns:
            raise UserError(
                f"{table.name}: no column {name!r} for {task} (it has {', '.join(table.columns)}); "
                f"name them by --columns {fields[0]}=…,{fields[1]}=…"
            )
    return names


def _pair(task: str, where: str, left: Any, right: Any) -> Pair:
    given = cell_text(left, where)
    wanted = [cell_text(one, where) for one in (right if isinstance(right, list | tuple) else [right])]
    told = tuple(one for one in wanted if one is not None)
    if not (given and given.strip()) or not told or len(told) < len(wanted):
        raise UserError(f"{where}: {task} needs text in both columns; correct or leave out the row")
    return Pair(given, told)


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
    """A round for each draw of examples; without examples one is all there is."""
    if shots and not TASKS[task].example:
        raise UserError(f"{task} is prompted without examples; leave --shots out")
    rounds = []
    for seed in seeds if shots else [0]:
        chosen = drawn_examples(known, [row.given for row in rows], shots, seed, lambda pair: pair.given)
        texts, cut = _write(model, task, rows, chosen, progress)
        scores, note = score_written(task, texts, [row.wanted for row in rows], language)
        rounds.append(WrittenRound(shots, seed, tuple(texts), scores, cut, note))
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
    """The first `count` sentences; what has no end yet counts as one."""
    return "".join(_SENTENCE.findall(text)[:count]).strip()


def _best_rouge(text: str, references: Sequence[str]) -> dict[str, float]:
    """Each figure against the reference that gives the most."""
    scores = [rouge(text, reference) for reference in references]
    return {name: max(one[name] for one in scores) for name in scores[0]}


def score_written(
    task: str, texts: Sequence[str], references: Sequence[Sequence[str]], language: str = ""
) -> tuple[dict[str, float], str]:
    """The task's scores, and what must be known about them."""
    if task == "translation":
        value, signature = bleu(texts, references, language)
        return {"bleu": value}, signature
    if task == "summary":
        found = [_best_rouge(text, wanted) for text, wanted in zip(texts, references)]
        blind = not any(has_rouge_words(one) for wanted in references for one in wanted)
        note = "ROUGE sees Latin letters and digits only, and the references have none" if blind else ""
        return {name: statistics.fmean(one[name] for one in found) for name in found[0]}, note
    pairs = list(zip(texts, references))
    return {
        "exact_match": statistics.fmean(exact_match(text, wanted) for text, wanted in pairs),
        "f1": statistics.fmean(best_word_f1(text, wanted) for text, wanted in pairs),
    }, ""
