"""Pre-train on unlabelled text (or import what others trained), fine-tune on few labels, compare with no pre-training
and with TF-IDF: the part that all transfer experiments share.

Everything goes through the public interface. The N labels of a draw are all that a method gets: fine-tuning holds out
its validation rows from them, TF-IDF learns from all of them; the test rows only give the final number. Draws are
plain random ones; all methods see the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import foretext as ft
from bench.common import arguments_for, commit, draw, head_lines, need_data
from experiments.results import TITLES, Cell, Results, first_words, own_options, plan_cells, result_table, sets_for
from foretext.api import load_language_model
from foretext.cli.output import Stopper
from foretext.errors import Interrupted, UserError
from foretext.interop.exchange import import_model
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter, StepReport
from foretext.runs.run_config import read_position
from foretext.systems import system_named
from foretext.tasks.files.rows import Row, read_rows

DRAW_SEED = 1000  # seed of a draw's rows is this and its number: others than those that training uses
TEST_SEED = 1
LOG_SECONDS = 60.0
QUICK_SHAPE = {"layers": 1, "width": 32, "heads": 2, "hidden": 32, "context": 32}  # of which a system has what it has
QUICK_PRETRAINING = ("tokenizer.size=400",)
QUICK_FINETUNING = ("task.epochs=1",)
SETTINGS = ("system", "minutes", "size", "base", "pretrain_set", "finetune_set", "quick", "starts_from")
PRETRAINED = "pretrained"  # the method of an experiment with one start


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
class Start:
    """What fine-tuning begins from: a system that is pre-trained here, or weights that others trained."""

    title: str = TITLES[PRETRAINED]  # of its column
    system: str = "gpt"
    pretrain_sets: tuple[str, ...] = ()  # those of the experiment and of the command line come after them
    finetune_sets: tuple[str, ...] = ()  # likewise
    source: Callable[[], Path] | None = None  # folder of others' weights, imported instead of pre-training

    def quick(self) -> tuple[str, ...]:
        """Settings of a model that is made in seconds."""
        own = {field.name for field in fields(system_named(self.system).config)}
        return tuple(f"model.{name}={value}" for name, value in QUICK_SHAPE.items() if name in own)

    def said(self) -> list[str]:
        """What makes it another start, for settings.json."""
        return [self.title, self.system, *self.pretrain_sets, *self.finetune_sets]


@dataclass(frozen=True)
class Experiment:
    name: str
    doc: str
    tasks: dict[str, Task]
    texts: Callable[[Path, Path], Path]  # (data folder, output folder) → file to pre-train on
    pretrain_sets: tuple[str, ...] = ()  # as of --pretrain-set, which comes after them
    finetune_sets: tuple[str, ...] = ()  # as of --finetune-set, likewise
    starts: Mapping[str, Start] = field(default_factory=lambda: {PRETRAINED: Start()})  # by method
    choose: bool = False  # whether a run is about one of the starts, named by --system
    others: tuple[str, ...] = ("scratch", "tfidf")  # methods beside the starts
    minutes: float = 20.0  # of each pre-training
    # What else the page says of the models; it is given the data folder too, and the results to keep what it finds in.
    after: Callable[[Mapping[str, ft.LanguageModel], Path, Results], str] | None = None


# -- options ---------------------------------------------------------------------------------------------------------


def _parser(experiment: Experiment) -> argparse.ArgumentParser:
    parser = arguments_for(experiment.doc)
    parser.add_argument("--out", type=Path, help=f"goes on if it is there; runs/{experiment.name} if none is given")
    if experiment.choose:
        parser.add_argument("--system", choices=list(experiment.starts), default=next(iter(experiment.starts)))
    else:
        parser.set_defaults(system=None)
    parser.add_argument("--minutes", type=float, default=experiment.minutes, help="of each pre-training")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--size", default="tiny")
    if experiment.choose or len(experiment.starts) == 1:
        parser.add_argument("--base", type=Path, help="a pre-trained run to use instead of pre-training")
    else:
        parser.set_defaults(base=None)
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
    return parser


def parse(experiment: Experiment, words: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser(experiment)
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    given.starts = {PRETRAINED: experiment.starts[given.system]} if experiment.choose else dict(experiment.starts)
    given.starts_from = {method: start.said() for method, start in given.starts.items()}
    given.methods = {method: start.title for method, start in given.starts.items()}
    given.methods |= {method: TITLES[method] for method in experiment.others}
    given.out = given.out or Path("runs", experiment.name, *([given.system] if experiment.choose else []))
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
    """An output folder holds results of one set of settings; going on with others would mix them. What a folder does
    not name is from before there was such a setting."""
    settings = {name: str(value) if isinstance(value := getattr(given, name), Path) else value for name in names}
    file = out / "settings.json"
    if file.exists():
        old = json.loads(file.read_text(encoding="utf-8"))
        changed = [name for name in names if name in old and old[name] != settings[name]]
        if changed:
            name = changed[0]
            raise UserError(
                f"{out} was begun with {name} {old[name]!r}, not {settings[name]!r}: choose another --out"
                f"{' (--base takes the pre-trained run along)' if 'base' in names else ''}"
            )
        return
    whole = file.with_suffix(".part")
    whole.write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    whole.replace(file)


# -- log -------------------------------------------------------------------------------------------------------------


class Log(Reporter):
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
        test = draw(test, task.test_rows, TEST_SEED)
    return Data(train, test)


def drawn_rows(rows: Sequence[Row], labels: int, number: int) -> list[Row]:
    """The labelled rows of draw `number`: at random, whatever their classes."""
    return draw(rows, labels, DRAW_SEED + number)


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


def cut(rows: Sequence[Row], words: str | None) -> Sequence[Row]:
    """The rows with the first `words` words of their texts; None: as they are."""
    if words is None:
        return rows
    return [replace(row, texts=tuple(first_words(text, int(words)) for text in row.texts)) for row in rows]


def measure(cell: Cell, task: Task, data: Data, base: ft.LanguageModel | None, sets: Sequence[str]) -> float:
    """The accuracy of a cell. `base`: what is fine-tuned; from scratch only its shape and vocabulary; None: TF-IDF."""
    train = drawn_rows(data.train, cell.labels, cell.draw)
    if base is None:
        return accuracy(tfidf(train, data.test, task.analyzer), data.test)
    options, rest = own_options(sets)
    epochs, part, words = (options.get(f"task.{name}") for name in ("epochs", "hold_out", "words"))
    model = base.finetune(
        cut(train, words),
        task="classification",
        seed=cell.draw,
        epochs=None if epochs is None else int(epochs),
        hold_out=None if part is None else float(part),
        from_scratch=cell.method == "scratch",
        sets=rest,
    )
    return accuracy(model.predict(texts_of(cut(data.test, words))), data.test)


# -- the run -----------------------------------------------------------------------------------------------------------


def begun(
    method: str, experiment: Experiment, given: argparse.Namespace, results: Results, log: Log
) -> ft.LanguageModel:
    """What a method fine-tunes: given, imported, or pre-trained here; a run that was stopped goes on."""
    if given.base is not None:
        return load_language_model(given.base)
    start, alone = given.starts[method], len(given.starts) == 1
    out = given.out / ("base" if alone else f"base-{method}")
    since = time.perf_counter()
    try:
        if start.source is not None:
            return load_language_model(imported(start.source(), out, log.note))
        with Stopper(log.note) as stopping:
            model = ft.pretrain(
                experiment.texts(given.data, given.out),
                system=start.system,
                size=given.size,
                minutes=given.minutes,
                vectors="none",  # the trunk alone is measured
                out=out,
                sets=[*start.pretrain_sets, *(start.quick() if given.quick else ()), *given.pretrain_set],
                resume=True,
                reporter=log,
                stopping=stopping,
            )
        if stopping.requested is not None:  # a signal after the last step, which the loop no longer looked at
            raise Interrupted(stopping.requested, str(given.out))
        return model
    finally:
        what = "pre-training" if start.source is None else "import"
        results.add_part(what if alone else f"{what}, {start.title}", time.perf_counter() - since, commit())


def imported(source: Path, out: Path, note: Callable[[str], None]) -> Path:
    """The run that others' weights make. It is made aside: a kill leaves nothing that stands in the way."""
    if not RunDirectory(out).exists():
        notes: list[str] = []
        with tempfile.TemporaryDirectory(prefix=".import-", dir=out.parent) as aside:
            import_model(source, Path(aside) / out.name, notes=notes).rename(out)
        for text in notes:
            note(text)
    return out


def run_cells(
    given: argparse.Namespace, bases: Mapping[str, ft.LanguageModel], results: Results, log: Log
) -> list[Cell]:
    """Measures what is not measured yet; returns the cells that the time limit left over."""
    labels, draws = ({name: getattr(task, of) for name, task in given.tasks.items()} for of in ("labels", "draws"))
    cells = plan_cells(labels, draws, given.methods)
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
        # From scratch: the shape and the vocabulary of the first.
        method = next(iter(bases)) if cell.method == "scratch" else cell.method
        own = given.starts[method].finetune_sets if method in given.starts else ()
        sets = sets_for([*own, *given.finetune_set], cell.task, cell.labels)
        since = time.perf_counter()
        found = measure(cell, task, data[cell.task], bases.get(method), sets)
        took = time.perf_counter() - since
        results.add_cell(cell, found, took, version)
        log.note(
            f"{number}/{len(missing)} {cell.task} {cell.labels} labels, draw {cell.draw}, {cell.method}: "
            f"{100 * found:.1f} % in {took:.1f} s"
        )
    return left


def pretraining_lines(bases: Mapping[str, ft.LanguageModel], titles: Mapping[str, str]) -> list[str]:
    """How far each pre-training came, and its last validation; nothing of what others trained, which has no updates."""
    lines = []
    for method, model in bases.items():
        assert model.model.run is not None
        position = read_position(model.model.run)
        if position.step:
            last = [row["validation"] for row in model.model.run.metrics() if "validation" in row][-1]
            values = ", ".join(f"{name} {value:.3f}" for name, value in last.items())
            counts = f"{position.step:,} updates, {position.tokens:,} tokens"
            lines.append(f"pre-training, {titles[method]}: {counts}; validation at the end: {values}")
    return lines


def report(given: argparse.Namespace, results: Results, left: Sequence[Cell], head: Sequence[str]) -> str:
    lines = [*(f"- {line}" for line in head if not line.startswith("commit"))]
    lines += [f"- measured at commit: {version}" for version in results.commits()]
    parts = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in results.seconds_by_part(given.methods).items())
    lines.append(f"- minutes: {results.seconds() / 60:.1f} ({parts})")
    if left:
        names = dict.fromkeys(f"{cell.task} {cell.labels} {cell.method}" for cell in left)
        lines.append(f"- **not measured**, for the limit of {given.limit:g} minutes: {', '.join(names)}")
    if given.quick:
        lines.append("- **--quick: too short to mean anything**")
    titles = {name: task.title for name, task in given.tasks.items()}
    known = results.accuracies().items()
    found = {cell: value for cell, value in known if cell.task in titles and cell.method in given.methods}
    return "\n".join([*lines, "", result_table(found, titles, given.methods)]) + "\n"


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
        bases = {method: begun(method, experiment, given, results, log) for method in given.starts}
        left = run_cells(given, bases, results, log)
        head += pretraining_lines(bases, given.methods)
        text = report(given, results, left, head)
        (given.out / "table.md").write_text(text, encoding="utf-8")  # before what may still fail
        if experiment.after is not None:
            more = experiment.after(bases, given.data, results)
            text = report(given, results, left, head) + more
            (given.out / "table.md").write_text(text, encoding="utf-8")
    except (UserError, Interrupted) as error:
        print(error, file=sys.stderr)
        return error.code
    print(text)
    return 0
