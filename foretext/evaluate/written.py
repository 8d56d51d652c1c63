"""GPT-2's tasks without training, whose answers are written, not chosen: summaries after "TL;DR:", translations after
pairs "a = b", answers after "A:".

As in the paper a summary is 100 tokens with top-k 2, of which the first three sentences count; translations and answers
are greedy and end with the line. Examples, where a task has them, are rows of another file, the same for every row.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from foretext.errors import UserError
from foretext.evaluate.text_metrics import bleu, exact_match, rouge, word_f1
from foretext.generate.decode import Sampling
from foretext.generate.many import write_many
from foretext.tasks.tables import Table
from foretext.train.saved import SavedModel

BATCH = 16
_SENTENCE = re.compile(r"[^.!?。！？]*[.!?。！？]+\s*")


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
class WrittenScores:
    values: dict[str, float]
    texts: tuple[str, ...]
    note: str = ""


def pairs_of(table: Table, task: str, columns: dict[str, str] | None) -> list[tuple[str, str]]:
    """What is given and what is wanted, of each row."""
    names = [(columns or {}).get(field, field) for field in TASKS[task].fields]
    for name in names:
        if name not in table.columns:
            raise UserError(
                f"{table.name}: no column {name!r} for {task} (it has {', '.join(table.columns)}); "
                f"name them by --columns {TASKS[task].fields[0]}=…,{TASKS[task].fields[1]}=…"
            )
    given, wanted = (table.column(name) for name in names)
    for where, left, right in zip(table.where, given, wanted):
        if not isinstance(left, str) or not isinstance(right, str) or not left.strip():
            raise UserError(f"{where}: {task} needs text in both columns")
    return list(zip(given, wanted))


def write_answers(
    model: SavedModel, task: str, rows: Sequence[tuple[str, str]], examples: Sequence[tuple[str, str]]
) -> list[str]:
    """What the model writes for each row."""
    chosen = TASKS[task]
    if examples and not chosen.example:
        raise UserError(f"{task} is prompted without examples; leave --shots out")
    before = "".join(chosen.example.format(*example) for example in examples)
    prompts = [before + chosen.prompt.format(given) for given, _ in rows]
    written: list[str] = []
    for start in range(0, len(prompts), BATCH):
        written += [one.text.strip() for one in write_many(model, prompts[start : start + BATCH], chosen.sampling)]
    return [first_sentences(text, 3) for text in written] if task == "summary" else written


def first_sentences(text: str, count: int) -> str:
    found = _SENTENCE.findall(text)[:count]
    return "".join(found).strip() if found else text


def score_written(task: str, texts: Sequence[str], references: Sequence[str], language: str = "") -> WrittenScores:
    if task == "translation":
        value, signature = bleu(texts, references, language)
        return WrittenScores({"bleu": value}, tuple(texts), signature)
    if task == "summary":
        found = [rouge(text, reference) for text, reference in zip(texts, references)]
        return WrittenScores({name: statistics.fmean(one[name] for one in found) for name in found[0]}, tuple(texts))
    pairs = list(zip(texts, references))
    values = {
        "exact_match": statistics.fmean(exact_match(text, [reference]) for text, reference in pairs),
        "f1": statistics.fmean(word_f1(text, [reference]) for text, reference in pairs),
    }
    return WrittenScores(values, tuple(texts))
