"""Pre-train on unlabelled text, fine-tune on few labels, compare with no pre-training and with TF-IDF: the part that
all transfer experiments share.

Everything goes through the public interface. The N labels of a draw are all that a method gets: fine-tuning holds out
its validation rows from them, TF-IDF learns from all of them; the test rows only give the final number. Draws are
plain random ones; the three methods see the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import foretext as ft
from bench.common import arguments_for, commit, head_lines, need_data
from experiments.results import Cell, Results, plan_cells, result_table, sets_for
from foretext.errors import Interrupted, UserError
from foretext.tasks.rows import Row, read_rows
from foretext.tasks.splits import draw
from foretext.train.report import Silent, StepReport
from foretext.train.signals import Stopper

DRAW_SEED = 1000  # seed of a draw's rows is this and its number: others than those that training uses
TEST_SEED = 1
LOG_SECONDS = 60.0
QUICK_PRETRAINING = ("model.layers=1", "model.width=32", "model.heads=2", "model.context=32", "tokenizer.size=400")
SETTINGS = ("minutes", "size", "base", "pretrain_set", "finetune_set", "quick")
EPOCHS, HOLD_OUT = "task.epochs=", "task.hold_out="  # options of their own in fine-tuning, written like settings here
QUICK_FINETUNING = (f"{EPOCHS}1",)


@dataclass(frozen=True)
class Task:
    title: str
    format: str  # of `foretext finetune --format`
    train: str  # below the data folder
    test: str
    labels: tuple[int, ...]
    draws: int
    test_rows: int | None = None  # a fixed random part of the test rows; None: all
    analyzer: Literal["word", "char"] = "word"  # of TF-IDF


@dataclass(frozen=True)
class Experiment:
    name: str
    doc: str
    tasks: dict[str, Task]
    texts: Callable[[Path, Path], Path]  # (data folder, output folder) → file to pre-train on
    pretrain_sets: tuple[str, ...] = ()  # as of --pretrain-set, which comes after them
    finetune_sets: tuple[str, ...] = ()  # as of --finetune-set, likewise


# -- options ---------------------------------------------------------------------------------------------------------


def parse(experiment: Experiment, words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(experiment.doc)
    parser.add_argument("--out", type=Path, default=Path("runs") / experiment.name, help="goes on if it is there")
    parser.add_argument("--minutes", type=float, default=20.0, help="of pre-training")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--base", type=Path, help="a pre-trained run to use instead of pre-training")
    parser.add_argument("--only", help="tasks, separated by commas")
    parser.add_argument("--draws", type=int, help="at most so many draws")
    parser.add_argument("--pretrain-set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument(
        "--finetune-set",
        action="append",
        default=[],
        metavar="[TASK[@LABELS]:]SECTION.KEY=VALUE",
        help="for fine-tuning with and without pre-training; of one task, or of one number of labels",
    )
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    given.pretrain_set = [*experiment.pretrain_sets, *given.pretrain_set]
    given.finetune_set = [*experiment.finetune_sets, *given.finetune_set]
    names = given.only.split(",") if given.only else list(experiment.tasks)
    for name in names:
        if name not in experiment.tasks:
            parser.error(f"--only {name}: no such task; there are {', '.join(experiment.tasks)}")
    given.tasks = {name: experiment.tasks[name] for name in names}
    if given.quick:
        given.minutes = 0.05
        given.pretrain_set = [*QUICK_PRETRAINING, *given.pretrain_set]
        given.finetune_set = [*QUICK_FINETUNING, *given.finetune_set]
        given.tasks = {n: replace(t, labels=(40,), draws=2, test_rows=60) for n, t in given.tasks.items()}
    if given.draws:
        given.tasks = {n: replace(t, draws=min(t.draws, given.draws)) for n, t in given.tasks.items()}
    return given


def check_settings(given: argparse.Namespace, out: Path, names: Sequence[str] = SETTINGS) -> None:
    """An output folder holds results of one set of settings; going on with others would mix them."""
    settings = {name: str(value) if isinstance(value := getattr(given, name), Path) else value for name in names}
    file = out / "settings.json"
    if file.exists():
        old = json.loads(file.read_text(encoding="utf-8"))
        changed = [name for name in names if old.get(name) != settings[name]]
        if changed:
            name = changed[0]
            raise UserError(
                f"{out} was begun with {name} {old.get(name)!r}, not {settings[name]!r}: choose another --out"
                f"{' (--base takes the pre-trained run along)' if 'base' in names else ''}"
            )
        return
    whole = file.with_suffix(".part")
    whole.write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    whole.replace(file)


# -- log -------------------------------------------------------------------------------------------------------------


class Log(Silent):
    """Lines with the time, on standard error and in log.txt; the reporter of pre-training too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last_step = 0.0

    def note(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {text}"
        print(line, file=sys.stderr, flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self.note(title + "".join(f"\n    {name}: {value}" for name, value in lines))

    def step(self, report: StepReport) -> None:
        now = time.monotonic()
        if now - self._last_step < LOG_SECONDS:
            return
        self._last_step = now
        losses = ", ".join(f"{name} {loss:.3f}" for name, loss in report.losses.items())
        self.note(f"step {report.step:,}: {losses}, {report.tokens_per_second:,.0f} tokens/s")

    def evaluation(self, step: int, values: dict[str, float]) -> None:
        self.note(f"step {step:,}: validation " + ", ".join(f"{name} {value:.3f}" for name, value in values.items()))


# -- the methods -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    train: list[Row]
    test: list[Row]


def read_task(task: Task, folder: Path) -> Data:
    train = read_rows(folder / task.train, "classification", format=task.format)
    test = read_rows(folder / task.test, "classification", format=task.format)
    if task.test_rows is not None:
        test = draw(test, task.test_rows, TEST_SEED, stratified=False)
    return Data(train, test)


def drawn_rows(rows: Sequence[Row], labels: int, number: int) -> list[Row]:
    """The labelled rows of draw `number`: at random, whatever their classes."""
    return draw(rows, labels, DRAW_SEED + number, stratified=False)


def accuracy(predicted: Sequence[str], rows: Sequence[Row]) -> float:
    return sum(guess == row.label for guess, row in zip(predicted, rows, strict=True)) / len(rows)


def texts_of(rows: Sequence[Row]) -> list[str]:
    return [row.texts[0] for row in rows]


def tfidf(train: Sequence[Row], test: Sequence[Row], analyzer: str) -> list[str]:
    """1–2 grams of words or of characters, sublinear counts; logistic regression with C = 10.

    scikit-learn's own C = 1 is five points worse at these numbers of labels (SST-2: 52.3 and 60.5 at 100 and 500, 55.6
    and 64.8 with 10): a baseline that nobody would keep.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=1000),
    )
    model.fit(texts_of(train), [str(row.label) for row in train])
    return [str(label) for label in model.predict(texts_of(test))]


def measure(cell: Cell, task: Task, data: Data, base: ft.LanguageModel, sets: Sequence[str]) -> float:
    train = drawn_rows(data.train, cell.labels, cell.draw)
    if cell.method == "tfidf":
        return accuracy(tfidf(train, data.test, task.analyzer), data.test)
    epochs, part = (
        next((text.removeprefix(option) for text in reversed(sets) if text.startswith(option)), None)
        for option in (EPOCHS, HOLD_OUT)
    )
    model = base.finetune(
        train,
        task="classification",
        seed=cell.draw,
        epochs=None if epochs is None else int(epochs),
        hold_out=None if part is None else float(part),
        from_scratch=cell.method == "scratch",
        sets=[text for text in sets if not text.startswith((EPOCHS, HOLD_OUT))],
    )
    return accuracy(model.predict(texts_of(data.test)), data.test)


# -- the run -----------------------------------------------------------------------------------------------------------


def pretrained(experiment: Experiment, given: argparse.Namespace, results: Results, log: Log) -> ft.LanguageModel:
    """The base model: given, or pre-trained here; a run that was stopped goes on."""
    if given.base is not None:
        model = ft.load(given.base)
        if not isinstance(model, ft.LanguageModel):
            raise UserError(f"{given.base} is fine-tuned; --base takes a pre-trained run")
        return model
    begun = time.perf_counter()
    out = given.out / "base"
    try:
        with Stopper(log.note) as stopping:
            model = ft.pretrain(
                experiment.texts(given.data, given.out),
                size=given.size,
                minutes=given.minutes,
                out=out,
                sets=given.pretrain_set,
                resume=True,
                reporter=log,
                stopping=stopping,
            )
        if stopping.requested is not None:  # a signal after the last step, which the loop no longer looked at
            raise Interrupted(stopping.requested, str(given.out))
        return model
    finally:
        results.add_part("pre-training", time.perf_counter() - begun, commit())


def run_cells(given: argparse.Namespace, base: ft.LanguageModel, results: Results, log: Log) -> list[Cell]:
    """Measures what is not measured yet; returns the cells that the time limit left over."""
    cells = plan_cells({n: t.labels for n, t in given.tasks.items()}, {n: t.draws for n, t in given.tasks.items()})
    done = results.accuracies()
    missing = [cell for cell in cells if cell not in done]
    log.note(f"{len(cells)} cells, {len(cells) - len(missing)} of them finished before")
    data: dict[str, Data] = {}
    left: list[Cell] = []
    version = commit()
    for number, cell in enumerate(missing, 1):
        if results.seconds() + results.expected_seconds(cell) > 60 * given.limit:
            left.append(cell)
            continue
        task = given.tasks[cell.task]
        if cell.task not in data:
            data[cell.task] = read_task(task, given.data)
        begun = time.perf_counter()
        found = measure(cell, task, data[cell.task], base, sets_for(given.finetune_set, cell.task, cell.labels))
        took = time.perf_counter() - begun
        results.add_cell(cell, found, took, version)
        log.note(
            f"{number}/{len(missing)} {cell.task} {cell.labels} labels, draw {cell.draw}, {cell.method}: "
            f"{100 * found:.1f} % in {took:.1f} s"
        )
    return left


def report(given: argparse.Namespace, results: Results, left: Sequence[Cell], head: Sequence[str]) -> str:
    lines = [*(f"- {line}" for line in head if not line.startswith("commit"))]
    lines += [f"- measured at commit: {version}" for version in results.commits()]
    parts = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in results.seconds_by_part().items())
    lines.append(f"- minutes: {results.seconds() / 60:.1f} ({parts})")
    if left:
        names = dict.fromkeys(f"{cell.task} {cell.labels} {cell.method}" for cell in left)
        lines.append(f"- **not measured**, for the limit of {given.limit:g} minutes: {', '.join(names)}")
    if given.quick:
        lines.append("- **--quick: too short to mean anything**")
    titles = {name: task.title for name, task in given.tasks.items()}
    found = {cell: value for cell, value in results.accuracies().items() if cell.task in titles}
    return "\n".join([*lines, "", result_table(found, titles)]) + "\n"


def main(experiment: Experiment, words: Sequence[str] | None = None) -> int:
    given = parse(experiment, words)
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        check_settings(given, given.out)
        log = Log(given.out / "log.txt")
        head = head_lines(["torch", "scikit-learn"], f"python -m experiments.{experiment.name}")
        for line in head:
            log.note(line)
        results = Results(given.out / "results.jsonl")
        base = pretrained(experiment, given, results, log)
        left = run_cells(given, base, results, log)
    except (UserError, Interrupted) as error:
        print(error, file=sys.stderr)
        return error.code
    text = report(given, results, left, head)
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0
