"""A model is asked without being trained: one function for each way of asking. What comes back holds everything to
print (`lines`) or to write as JSON (`to_dict`).

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from foretext.errors import counted
from foretext.evaluate.in_context import CHANNEL, Round, Template, answer_rows
from foretext.evaluate.prompt_request import CHOSEN, LABELLED, WRITTEN, PromptRequest
from foretext.evaluate.untaught import (
    Acceptability,
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


class Answers(Protocol):
    """What each way of asking returns."""

    def to_dict(self) -> dict[str, object]:
        """For JSON."""

    def lines(self) -> list[str]:
        """For people."""

    def records(self) -> Iterator[dict[str, object]]:
        """One for each row and draw of examples, if the task chooses among answers."""


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

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def lines(self, rows: int, direction: str = "forward") -> list[str]:
        draws, way = counted(self.draws, "draw"), ", right to left" if direction == "backward" else ""
        lines = [f"{counted(self.shots, 'example')}, {counted(rows, 'row')}, {draws} of examples{way}"]
        for name, score in self.scores.items():
            deviation = f" ± {score.deviation:.4f}" if self.draws > 1 else ""
            lines.append(f"  {name:24} {score.mean:.4f}{deviation}")
        return [*lines, *([f"  {_lost(self.cut, direction)}"] if self.cut else [])]


def _over_draws(shots: int, values: Sequence[Mapping[str, float]], cut: int) -> ShotScores:
    """`values`: the scores of each draw."""
    columns = {name: [of_draw[name] for of_draw in values] for name in values[0]}
    scores = {name: Spread(statistics.fmean(column), statistics.pstdev(column)) for name, column in columns.items()}
    return ShotScores(shots, len(values), scores, cut)


def _lost(count: int, direction: str) -> str:
    end = "end" if direction == "backward" else "beginning"
    return f"{counted(count, 'context')} cut at the {end}: too long"


@dataclass(frozen=True)
class Chosen:
    """`rounds`: one for each draw, for each number of examples in turn."""

    template: Template
    rows: Sequence[Row]
    direction: str
    rounds: tuple[Round, ...]
    results: tuple[ShotScores, ...]

    def to_dict(self) -> dict[str, object]:
        results = [result.to_dict() for result in self.results]
        of_all = {"template": self.template.text, "rows": len(self.rows), "direction": self.direction}
        return {**of_all, "results": results}

    def lines(self) -> list[str]:
        return [line for result in self.results for line in result.lines(len(self.rows), self.direction)]

    def records(self) -> Iterator[dict[str, object]]:
        """The possible answers, and the score of each under each normalisation."""
        # last-word has a single answer and nothing to compare it with, so nothing is subtracted from its score.
        alone = len(self.rounds[0].answers[0].prompt.answers) == 1
        normalisations = [name for name in self.rounds[0].normalisations if not (alone and name == "unbiased")]
        for round_ in self.rounds:
            for row, answered in zip(self.rows, round_.answers):
                yield {
                    "where": row.where,
                    "shots": round_.shots,
                    "seed": round_.seed,
                    "context": answered.prompt.whole,
                    **({"behind": answered.prompt.behind} if self.direction == "backward" else {}),
                    "answers": list(answered.prompt.answers),
                    "right": answered.prompt.right,
                    "scores": {name: answered.scores(name) for name in normalisations},
                    "tokens": [likelihood.tokens for likelihood in answered.likelihoods],
                    "greedy": [likelihood.greedy for likelihood in answered.likelihoods],
                    "cut": max(likelihood.cut for likelihood in answered.likelihoods),
                }


class _WithoutRecords:
    """For ways of asking that do not choose among answers."""

    def records(self) -> Iterator[dict[str, object]]:
        return iter(())


@dataclass(frozen=True)
class WrittenAnswers(_WithoutRecords):
    """`rounds`: those behind each of `results`, one for each draw."""

    rows: int
    results: tuple[ShotScores, ...]
    rounds: tuple[tuple[WrittenRound, ...], ...]

    def to_dict(self) -> dict[str, object]:
        results = [
            result.to_dict() | {"note": rounds[0].note, "texts": [list(round_.texts) for round_ in rounds]}
            for result, rounds in zip(self.results, self.rounds)
        ]
        return {"rows": self.rows, "results": results}

    def lines(self) -> list[str]:
        lines = []
        for result, rounds in zip(self.results, self.rounds):
            lines += [*result.lines(self.rows), *([f"  {rounds[0].note}"] if rounds[0].note else [])]
        return lines


@dataclass(frozen=True)
class Judged(_WithoutRecords):
    acceptability: Acceptability
    rows: int

    def to_dict(self) -> dict[str, object]:
        return asdict(self.acceptability)

    def lines(self) -> list[str]:
        area, matthews, threshold = self.acceptability.area, self.acceptability.matthews, self.acceptability.threshold
        correlation = "matthews needs a threshold: give labelled rows to find it with --examples"
        if matthews is not None:
            correlation = f"matthews              {matthews:.4f}  (threshold {threshold:.4f}, from --examples)"
        return [
            f"area under the curve  {area:.4f}  (mean log-probability per token; {counted(self.rows, 'row')})",
            correlation,
        ]


@dataclass(frozen=True)
class Resolved(_WithoutRecords):
    rows: int
    direction: str
    accuracy: Mapping[str, float]  # under each normalisation
    cut: int  # rows that were too long

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[str]:
        lines = [f"accuracy, {name:10} {value:.4f}" for name, value in self.accuracy.items()]
        return [*lines, *([_lost(self.cut, self.direction)] if self.cut else [])]


# -- the ways of asking ------------------------------------------------------------------------------------------------


def choose(model: SavedModel, questions: Questions, work: Work) -> Chosen:
    """Answers each row with the most likely of its answers."""
    template, request, rows = questions.template, questions.request, questions.rows
    assert template is not None
    rounds, results = list[Round](), []
    for shots in request.numbers:
        progress = functools.partial(work, counted(shots, "example"))
        drawn = answer_rows(model, template, rows, questions.others, shots, range(request.draws), progress)
        values = [_round_scores(request.task, round_) for round_ in drawn]
        results.append(_over_draws(shots, values, sum(round_.cut for round_ in drawn)))
        rounds += drawn
    return Chosen(template, rows, model.info.direction, tuple(rounds), tuple(results))


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


def write(model: SavedModel, questions: Questions, work: Work) -> WrittenAnswers:
    """Answers each row with a text that the model writes."""
    request, rows, others = questions.request, questions.rows, questions.others
    rounds, results = [], []
    for shots in request.numbers:
        progress = functools.partial(work, f"writing with {counted(shots, 'example')}")
        draws = range(request.draws)
        drawn = answer_pairs(model, request.task, rows, others, shots, draws, request.language or "", progress)
        values = [round_.scores for round_ in drawn]
        results.append(_over_draws(shots, values, sum(round_.cut for round_ in drawn)))
        rounds.append(tuple(drawn))
    return WrittenAnswers(len(rows), tuple(results), tuple(rounds))


def judge(model: SavedModel, questions: Questions, work: Work) -> Judged:
    """Scores sentences. The rows given as examples, if any, are where the threshold comes from."""
    progress = functools.partial(work, "scoring")

    def scored(rows: Sequence[Row]) -> tuple[list[float], list[str]]:
        return sentence_scores(model, rows, progress), [str(row.label) for row in rows]

    scores, labels = scored(questions.rows)
    known = scored(questions.others) if questions.others_given else None
    return Judged(acceptability(scores, labels, questions.request.good, known), len(questions.rows))


def resolve(model: SavedModel, questions: Questions, work: Work) -> Resolved:
    """Chooses what a blank refers to."""
    answered, direction = referents(model, questions.rows, functools.partial(work, "scoring")), model.info.direction
    ways = CHANNEL if direction == "backward" else ("sum", "per token")
    accuracy = {name: statistics.fmean(row.best(name) == row.prompt.right for row in answered) for name in ways}
    cut = sum(any(likelihood.cut for likelihood in row.likelihoods) for row in answered)
    return Resolved(len(questions.rows), direction, accuracy, cut)
