"""A model is asked without being trained: one function for each way of asking. What comes back holds everything to
print (`lines`) or to write as JSON (`record`).

    choose        a row's most likely answer, after k solved examples (`in_context`)
    write         a text for each row, which is compared with the right ones (`untaught`)
    judge         acceptable sentences against others, by their probability
    resolve       what a blank refers to, by the probability of the rest
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from foretext.errors import counted
from foretext.evaluate.in_context import CHANNEL, Round, Template, answer_rows
from foretext.evaluate.options import CHOSEN, LABELLED, WRITTEN, PromptRequest
from foretext.evaluate.untaught import (
    WrittenRound,
    acceptability,
    answer_pairs,
    referents,
    sentence_scores,
)
from foretext.runs.model import SavedModel
from foretext.runs.report import Work
from foretext.tasks.files.rows import Row
from foretext.tasks.labelled import LabelSet

Drawn = TypeVar("Drawn", Round, WrittenRound)  # what is found with one draw of examples


@dataclass(frozen=True)
class Questions:
    """What is asked: labelled rows, documents as rows without labels, or pairs of texts, as the task has them."""

    request: PromptRequest
    rows: Sequence[Any]
    others: Sequence[Any]  # rows to draw examples from
    others_given: bool = False  # False: `others` are all rows of the file itself
    template: Template | None = None  # for tasks that choose


def questions_of(request: PromptRequest, rows: Sequence[Any], others: Sequence[Any] | None = None) -> Questions:
    """Checks the template and draws the rows to be answered. `others`: rows to draw examples from; None: `rows`."""
    template = None
    if request.task in CHOSEN:
        known = rows if others is None else [*rows, *others]
        labels = LabelSet.from_rows(known).names if request.task in LABELLED else ()
        template = Template(request.task, request.template, labels, request.words)
    drawn = _drawn(rows, request.rows)
    return Questions(request, drawn, rows if others is None else others, others is not None, template)


def _drawn(rows: Sequence[Any], count: int) -> Sequence[Any]:
    """`count` rows, in their order; all of them if there are no more, or for 0."""
    if not 0 < count < len(rows):
        return rows
    return [rows[number] for number in sorted(random.Random(0).sample(range(len(rows)), count))]


@dataclass(frozen=True)
class Answers:
    """What each way of asking returns."""

    record: Mapping[str, object]  # for JSON
    lines: list[str]  # for people
    rows: Iterable[dict[str, object]] = ()  # for each row and draw of examples, if the task chooses among answers


def ask(model: SavedModel, questions: Questions, work: Work) -> Answers:
    """Asks as the task does. `work` gets a title and the progress under it."""
    task = questions.request.task
    if task in CHOSEN:
        return choose(model, questions, work)
    if task in WRITTEN:
        return write(model, questions, work)
    return judge(model, questions, work) if task == "acceptability" else resolve(model, questions, work)


# -- the results -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A score over the draws of examples."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class ShotScores:
    """The scores with so many examples in the context. `cut`: contexts that were too long, over all draws."""

    shots: int
    draws: int
    scores: Mapping[str, Spread]
    cut: int

    def lines(self, rows: int, direction: str = "forward") -> list[str]:
        draws, way = counted(self.draws, "draw"), ", right to left" if direction == "backward" else ""
        lines = [f"{counted(self.shots, 'example')}, {counted(rows, 'row')}, {draws} of examples{way}"]
        for name, score in self.scores.items():
            deviation = f" ± {score.deviation:.4f}" if self.draws > 1 else ""
            lines.append(f"  {name:24} {score.mean:.4f}{deviation}")
        return [*lines, *(f"  {line}" for line in _lines_of_cut(self.cut, direction))]


def _lines_of_cut(count: int, direction: str) -> list[str]:
    end = "end" if direction == "backward" else "beginning"
    return [f"{counted(count, 'context')} cut at the {end}: too long"] if count else []


# -- the ways of asking ------------------------------------------------------------------------------------------------


def _over_shots(
    request: PromptRequest,
    answer: Callable[[int, str], Sequence[Drawn]],
    scores_of: Callable[[Drawn], Mapping[str, float]],
) -> list[tuple[ShotScores, Sequence[Drawn]]]:
    """For each number of examples the scores, and the draws behind them. `answer` gets the number, and its name."""
    results = []
    for shots in request.numbers:
        drawn = answer(shots, counted(shots, "example"))
        values = [scores_of(round_) for round_ in drawn]
        columns = {name: [of_draw[name] for of_draw in values] for name in values[0]}
        spreads = {name: Spread(statistics.fmean(each), statistics.pstdev(each)) for name, each in columns.items()}
        results.append((ShotScores(shots, len(drawn), spreads, sum(round_.cut for round_ in drawn)), drawn))
    return results


def choose(model: SavedModel, questions: Questions, work: Work) -> Answers:
    """Answers each row with the most likely of its answers."""
    template, request, rows, direction = questions.template, questions.request, questions.rows, model.info.direction
    assert template is not None

    def answer(shots: int, title: str) -> list[Round]:
        progress = functools.partial(work, title)
        return answer_rows(model, template, rows, questions.others, shots, range(request.draws), progress)

    results = _over_shots(request, answer, functools.partial(_round_scores, request.task))
    record = {"template": template.text, "rows": len(rows), "direction": direction}
    lines = [line for scores, _ in results for line in scores.lines(len(rows), direction)]
    rounds = [round_ for _, drawn in results for round_ in drawn]
    return Answers(record | {"results": [asdict(scores) for scores, _ in results]}, lines, _records(rows, rounds))


def _records(rows: Sequence[Row], rounds: Sequence[Round]) -> Iterator[dict[str, object]]:
    """The possible answers of each row, and the score of each under each normalisation."""
    # last-word has a single answer and nothing to compare it with, so nothing is subtracted from its score.
    alone = len(rounds[0].answers[0].prompt.answers) == 1
    normalisations = [name for name in rounds[0].normalisations if not (alone and name == "unbiased")]
    for round_ in rounds:
        for row, answered in zip(rows, round_.answers):
            yield {
                "where": row.where,
                "shots": round_.shots,
                "seed": round_.seed,
                "context": answered.prompt.whole,
                **({"behind": answered.prompt.behind} if round_.normalisations == CHANNEL else {}),
                "answers": list(answered.prompt.answers),
                "right": answered.prompt.right,
                "scores": {name: answered.scores(name) for name in normalisations},
                "tokens": [likelihood.tokens for likelihood in answered.likelihoods],
                "greedy": [likelihood.greedy for likelihood in answered.likelihoods],
                "cut": max(likelihood.cut for likelihood in answered.likelihoods),
            }


def _round_scores(task: str, round_: Round) -> dict[str, float]:
    """The scores of one draw of examples."""
    if task != "last-word":
        return {f"accuracy, {name}": round_.accuracy(name) for name in round_.normalisations}
    words = [answered.likelihoods[0] for answered in round_.answers]
    nats = -statistics.fmean(word.total for word in words)
    return {
        "accuracy": statistics.fmean(word.greedy for word in words),
        "perplexity per word": math.exp(min(nats, 700.0)),
    }


def write(model: SavedModel, questions: Questions, work: Work) -> Answers:
    """Answers each row with a text that the model writes."""
    request, rows, others = questions.request, questions.rows, questions.others

    def answer(shots: int, title: str) -> list[WrittenRound]:
        progress, draws = functools.partial(work, f"writing with {title}"), range(request.draws)
        return answer_pairs(model, request.task, rows, others, shots, draws, request.language or "", progress)

    results, lines = [], list[str]()
    for scores, drawn in _over_shots(request, answer, lambda round_: round_.scores):
        note = drawn[0].note
        results.append(asdict(scores) | {"note": note, "texts": [list(round_.texts) for round_ in drawn]})
        lines += [*scores.lines(len(rows)), *([f"  {note}"] if note else [])]
    return Answers({"rows": len(rows), "results": results}, lines)


def judge(model: SavedModel, questions: Questions, work: Work) -> Answers:
    """Scores sentences. The rows given as examples, if any, are where the threshold comes from."""
    progress = functools.partial(work, "scoring")

    def scored(rows: Sequence[Row]) -> tuple[list[float], list[str]]:
        return sentence_scores(model, rows, progress), [str(row.label) for row in rows]

    scores, labels = scored(questions.rows)
    known = scored(questions.others) if questions.others_given else None
    found, rows = acceptability(scores, labels, questions.request.good, known), counted(len(questions.rows), "row")
    correlation = "matthews needs a threshold: give labelled rows to find it with --examples"
    if found.matthews is not None:
        correlation = f"matthews              {found.matthews:.4f}  (threshold {found.threshold:.4f}, from --examples)"
    area = f"area under the curve  {found.area:.4f}  (mean log-probability per token; {rows})"
    return Answers(asdict(found), [area, correlation])


def resolve(model: SavedModel, questions: Questions, work: Work) -> Answers:
    """Chooses what a blank refers to."""
    direction, progress = model.info.direction, functools.partial(work, "scoring")
    ways = CHANNEL if direction == "backward" else ("sum", "per token")
    found = Round(0, 0, tuple(referents(model, questions.rows, progress)), ways)
    accuracy = {name: found.accuracy(name) for name in ways}
    record = {"rows": len(questions.rows), "direction": direction, "accuracy": accuracy, "cut": found.cut}
    lines = [f"accuracy, {name:10} {value:.4f}" for name, value in accuracy.items()]
    return Answers(record, [*lines, *_lines_of_cut(found.cut, direction)])
