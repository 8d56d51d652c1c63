"""Skill without fine-tuning against updates of pre-training: the paper's figure 2 (right), on a model made here.

    python -m experiments.zero_shot --data DIR [--out runs/zero_shot]

A GPT is pre-trained on IMDb's unlabelled reviews for a fixed number of updates, and stopped on the way at points that
double; at each the model is asked, without any training, by GPT's own heuristics: CoLA by the mean log-probability of a
sentence against a threshold from 500 training rows (Matthews), SST-2 by "very positive" against "very negative", COPA
by the answer with the higher mean log-probability, LAMBADA by the most likely last word. Stopping and going on gives
the weights of a run that was never stopped. A killed experiment goes on from its last checkpoint, at most five minutes
back; Ctrl-C writes one.

SST-2 is asked a second time, by "very good" against "very bad": a small model must have met the words, and among the
first 20,000 documents of these reviews "very positive" stands 6 times, "very good" 1,116 times. So small a model also
likes one of the two words better whatever it has read, and the threshold between them comes from 500 training rows, as
CoLA's does. Whatever needs no threshold is given as the area under the curve: .5 is guessing.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import foretext as ft
from bench.common import arguments_for, commit, draw, need_data, table
from experiments.common import Log
from experiments.course import Course, conduct
from foretext.errors import Interrupted, UserError
from foretext.evaluate.in_context import Round, Template, answer_rows
from foretext.evaluate.untaught import VERY, acceptability, sentence_scores
from foretext.runs.directory import RunDirectory
from foretext.runs.model import SavedModel
from foretext.runs.report import StepReport, StopRequest
from foretext.runs.run_config import POSITION
from foretext.tasks.files.rows import Row, read_rows

ROWS = {"cola": 527, "cola_train": 500, "sst2": 872, "sst2_train": 500, "copa": 500, "copa_test": 500, "lambada": 5153}
FIRST = 50  # the loop reports at least at every fiftieth update
WORDS = {"very positive": ("negative", "positive"), "very good": ("bad", "good")}
PLOTTED = {  # and what guessing gives
    "CoLA (area under the curve)": 0.5,
    "SST-2, very good (area under the curve)": 0.5,
    "SST-2, very good (accuracy)": 0.5,
    "COPA (accuracy)": 0.5,
    "LAMBADA (accuracy)": 0.0,
}


class Stopping(Log, StopRequest):
    """Asks the run to stop once it has made so many updates, or when a signal comes."""

    def __init__(self, path: Path, updates: int, signals: StopRequest) -> None:
        super().__init__(path)
        self.updates, self.signals = updates, signals
        self.there = False

    def step(self, report: StepReport) -> None:
        super().step(report)
        self.there = self.there or report.step >= self.updates

    @property
    def requested(self) -> int | None:
        return self.signals.requested or (130 if self.there else None)


def points(steps: int) -> list[int]:
    """Updates at which to ask: doubling, and the last."""
    found = []
    at = FIRST
    while at < steps:
        found.append(at)
        at *= 2
    return [*found, steps]


def rows_of(data: Path, quick: bool) -> dict[str, list[Row]]:
    files = {
        "cola": ("cola/in_domain_dev.tsv", "classification", "cola"),
        "cola_train": ("cola/in_domain_train.tsv", "classification", "cola"),
        "sst2": ("sst2/dev.tsv", "classification", "sst2"),
        "sst2_train": ("sst2/train.tsv", "classification", "sst2"),
        "copa": ("copa/copa-dev.xml", "choice", "copa"),
        "copa_test": ("copa/copa-test.xml", "choice", "copa"),
    }
    found = {name: read_rows(data / path, kind, format=format) for name, (path, kind, format) in files.items()}
    lines = (data / "lambada" / "lambada_test.jsonl").read_text(encoding="utf-8").splitlines()
    found["lambada"] = [
        Row((json.loads(line)["text"],), None, f"line {number}") for number, line in enumerate(lines, 1)
    ]
    most = {name: 20 if quick else count for name, count in ROWS.items()}
    return {name: draw(rows, min(most[name], len(rows)), 0) for name, rows in found.items()}


def ask(model: SavedModel, rows: dict[str, list[Row]]) -> dict[str, float]:
    """The scores of one model."""

    def judged(name: str) -> tuple[list[float], list[str]]:
        return sentence_scores(model, rows[name]), labels_of(rows[name])

    cola = acceptability(*judged("cola"), "1", judged("cola_train"))
    copa = answer_rows(model, Template("choice"), [*rows["copa"], *rows["copa_test"]], [], 0, [0])[0]
    words = answer_rows(model, Template("last-word"), rows["lambada"], [], 0, [0])[0]
    nats = -statistics.fmean(row.likelihoods[0].total for row in words.answers)
    return {
        "CoLA (Matthews)": cola.matthews or 0.0,
        "CoLA (area under the curve)": cola.area,
        **sentiment(model, rows["sst2"], rows["sst2_train"]),
        "COPA (accuracy)": copa.accuracy("per token"),
        "LAMBADA (accuracy)": statistics.fmean(row.likelihoods[0].greedy for row in words.answers),
        "LAMBADA (perplexity per word)": math.exp(min(nats, 700.0)),
    }


def labels_of(rows: Sequence[Row]) -> list[str]:
    return [str(row.label) for row in rows]


def sentiment(model: SavedModel, rows: Sequence[Row], known: Sequence[Row]) -> dict[str, float]:
    """Scores of SST-2 by both pairs of words: as the paper has it, and against a threshold that `known` rows give."""
    found = {}
    for name, (bad, good) in WORDS.items():
        very = Template("classification", VERY, ("0", "1"), {"0": bad, "1": good})
        asked = answer_rows(model, very, rows, [], 0, [0])[0]
        if name == "very positive":
            found[f"SST-2, {name} (accuracy)"] = asked.accuracy("sum")
        margins = margins_of(asked)
        other = answer_rows(model, very, known, [], 0, [0])[0]
        judged = acceptability(margins, labels_of(rows), "1", (margins_of(other), labels_of(known)))
        assert judged.threshold is not None
        if name == "very good":
            hits = [(margin > judged.threshold) == (row.label == "1") for margin, row in zip(margins, rows)]
            found[f"SST-2, {name} (accuracy)"] = statistics.fmean(hits)
        found[f"SST-2, {name} (area under the curve)"] = judged.area
    return found


def margins_of(asked: Round) -> list[float]:
    """How much more likely the second answer is than the first."""
    return [row.likelihoods[1].total - row.likelihoods[0].total for row in asked.answers]


def train_to(given: argparse.Namespace, updates: int, signals: StopRequest) -> ft.LanguageModel:
    """The run with so many updates made; it goes on from where it is."""
    model = _as_it_is(given, updates) or _trained(given, updates, signals)
    made = updates_of(model)
    if made != updates:
        raise UserError(f"{given.out / 'run'} has made {made} updates, not {updates}: choose another --out")
    return model


def updates_of(model: ft.LanguageModel) -> int:
    assert model.model.run is not None
    return int(json.loads(model.model.run.read(POSITION))["step"])


def _as_it_is(given: argparse.Namespace, updates: int) -> ft.LanguageModel | None:
    """The run, if it was stopped there and the experiment was killed before it asked."""
    run = RunDirectory(given.out / "run")
    if not run.has(POSITION) or int(json.loads(run.read(POSITION))["step"]) != updates:
        return None
    model = ft.load(run.path)
    assert isinstance(model, ft.LanguageModel)
    return model


def _trained(given: argparse.Namespace, updates: int, signals: StopRequest) -> ft.LanguageModel:
    log = Stopping(given.out / "log.txt", updates, signals)
    try:
        return ft.pretrain(
            given.data / "imdb" / "unsup.txt.gz",
            system=given.system,
            vectors="none",
            size=given.size,
            steps=given.steps,
            out=given.out / "run",
            sets=tuple(given.set),
            resume=True,
            reporter=log,
            stopping=log,
        )
    except Interrupted:
        if signals.requested is not None or not log.there:
            raise
        model = ft.load(given.out / "run")
        assert isinstance(model, ft.LanguageModel)
        return model


def plot(records: Sequence[dict[str, Any]], path: Path) -> None:
    """On the left each score less what guessing gives, in points; on the right LAMBADA's perplexity per word."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    steps = [record["updates"] for record in records]
    for name, chance in PLOTTED.items():
        left.plot(steps, [100 * (record["scores"][name] - chance) for record in records], marker="o", label=name)
    left.axhline(0, color="0.6", linewidth=0.8)
    left.set_ylabel("points above guessing")
    left.legend(frameon=False, fontsize=8)
    surprise = "LAMBADA (perplexity per word)"
    right.plot(steps, [record["scores"][surprise] for record in records], marker="o", color="tab:purple")
    right.set_yscale("log")
    right.set_ylabel(f"{surprise}, lower is better")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("updates of pre-training")
        axes.grid(alpha=0.3)
    figure.savefig(path)


def measure(course: Course) -> None:
    """Trains and asks, point by point; what is there is not done again."""
    given = course.given
    rows = rows_of(given.data, given.quick)
    done = {record["updates"] for record in course.results.records}
    for updates in points(given.steps):
        if updates in done:
            continue
        begun = time.perf_counter()
        model = train_to(given, updates, course.stopping)
        trained = time.perf_counter()
        scores = ask(model.model, rows)
        now = time.perf_counter()
        course.results.append(
            {
                "updates": updates,
                "scores": scores,
                "seconds": round(now - begun, 2),
                "asking_seconds": round(now - trained, 2),
                "commit": commit(),
            }
        )
        course.log.note(f"{updates} updates: " + ", ".join(f"{name} {value:.3f}" for name, value in scores.items()))


def run(course: Course) -> str:
    measure(course)
    records = course.results.records
    plot(records, course.given.out / "zero_shot.png")
    names = list(records[0]["scores"])
    lines = [[str(record["updates"]), *(f"{record['scores'][name]:.3f}" for name in names)] for record in records]
    return course.page([table(["updates", *names], lines)])


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/zero_shot"), help="goes on if it is there")
    parser.add_argument("--steps", type=int, default=3200)
    parser.add_argument("--system", default="gpt")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    if given.quick:
        given.steps = 60
        given.set = ["model.layers=1", "model.width=32", "model.heads=2", "model.context=64", "tokenizer.size=400"]
    return conduct(given, "zero_shot", ("system", "size", "steps", "set", "quick"), run)


if __name__ == "__main__":
    raise SystemExit(main())
