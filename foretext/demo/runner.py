"""The demonstration: pre-train on the machine's own documentation, then fine-tune four tasks with and without it.

The time is promised beforehand and kept. Pre-training has a fixed share. Fine-tuning's cost is estimated from one
short, measured fine-tuning, and from that one number a step of a fixed ladder of training rows is chosen, once, for
every task and for both sides; the choice is kept in plan.json and used again by a run that goes on. Seeds are the
outermost loop, so that if the time ends early all the same, each task has as many seeds as the others, and the report
says how many.
"""

import csv
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from foretext import __version__
from foretext.demo.engine import Engine, FineTuning, ForetextEngine
from foretext.demo.report import ReportData, TaskResult, percent, write_report
from foretext.demo.results import Finished, ResultBook
from foretext.demo.tasks import TASKS, DemoData, TaskLimits, prepare
from foretext.errors import Interrupted, UserError
from foretext.text.corpus.whole_files import write_whole
from foretext.train.signals import NeverStop, StopRequest

QUESTIONS = {
    "classification": "Which area of programming is this docstring from?",
    "entailment": "Is this the description of what the signature says?",
    "similarity": "Is the second text a shortened copy of the first?",
    "choice": "Which of four endings is the sentence's own?",
}
PROMPTS = (
    "email.message: def read_lines(path, encoding='utf-8')\n",
    "sklearn.linear_model: class Line(alpha=1.0)\n",
    "Return the",
)
TOKEN = 4  # characters, about; each text has one special token more
ROW_LADDER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35, 0.25)
MARKER = "demonstration.txt"
RESERVE = 0.1  # of the minutes, for samples, the report and surprises
TIMED_ROWS = 200  # fine-tunings of fewer rows only warm up
MEASURED = (("entailment", 32), ("entailment", TIMED_ROWS), ("similarity", TIMED_ROWS))


@dataclass(frozen=True)
class DemoSettings:
    """What can be chosen; the defaults are the promise of 15 minutes on 2 cores."""

    folder: Path
    minutes: float = 15.0
    pretrain_share: float = 0.35
    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 3
    seed: int = 0
    limits: TaskLimits = field(default_factory=TaskLimits)

    @property
    def pretrain_minutes(self) -> float:
        return self.minutes * self.pretrain_share

    def plan(self, data: DemoData, engine: Engine) -> dict[str, object]:
        """All that the scores depend on; a result made under another plan is not used again."""
        return {
            "version": __version__,
            "minutes": self.minutes,
            "share": self.pretrain_share,
            "epochs": self.epochs,
            "seed": self.seed,
            "limits": asdict(self.limits),
            "corpus": [data.corpus_documents, data.corpus_bytes],
            "rows": data.sizes,
            "engine": engine.settings(),
        }


class Clock:
    """Time left of the promise."""

    def __init__(self, minutes: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.start = now()
        self.end = self.start + 60 * minutes

    def left(self) -> float:
        return self.end - self._now()

    def used(self) -> float:
        return self._now() - self.start

    def label(self) -> str:
        seconds = max(0, round(self.left()))
        return f"{seconds // 60}:{seconds % 60:02d} left"


class TimeLeft(ProgressColumn):
    """The time left, redrawn by the progress display's own thread while a stage blocks."""

    max_refresh = 0.5

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def render(self, task: Task) -> Text:
        return Text(self.clock.label(), style="bold")


class Demo:
    """One run of the demonstration in `settings.folder`."""

    def __init__(
        self,
        settings: DemoSettings,
        engine: Engine | None = None,
        console: Console | None = None,
        roots: list[Path] | None = None,
        now: Callable[[], float] = time.monotonic,
        stopping: StopRequest | None = None,
    ) -> None:
        self.settings = settings
        self.folder = Path(settings.folder)
        self.engine: Engine = engine or ForetextEngine()
        self.console = console or Console()
        self.roots = roots
        self.now = now
        self.stopping = stopping or NeverStop()
        self.clock = Clock(settings.minutes, now)
        self.notes: list[str] = []

    def run(self) -> list[TaskResult]:
        """Everything, from the corpus to report.html. After a signal what is done is kept, and the next run goes on."""
        self._take_folder()
        self.clock = Clock(self.settings.minutes, self.now)
        minutes = f"{self.settings.minutes:g}"
        self.console.print(
            f"[bold]foretext demo[/bold]: at most {minutes} minutes on 2 cores. It pre-trains a small GPT on the "
            "documentation inside this Python, then fine-tunes four tasks with and without that pre-training."
        )
        try:
            return self._run()
        except Interrupted as stopped:
            code = stopped.code
        except KeyboardInterrupt:  # from Python, where no handler is installed
            code = 130
        raise Interrupted(code, str(self.folder), "run the same command again to go on from here")

    def _take_folder(self) -> None:
        """The demonstration clears away what an earlier one left, so it works only in a folder of its own."""
        marker = self.folder / MARKER
        if self.folder.exists() and not marker.is_file() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise UserError(
                f"{self.folder} holds something else than a demonstration, whose files it would replace; "
                "choose a new or empty folder with --out"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        marker.write_text("This folder belongs to `foretext demo`, which replaces what is in it.\n", encoding="utf-8")

    def _run(self) -> list[TaskResult]:
        with self._stage("collecting docstrings and deriving tasks"):
            data = prepare(
                self.folder / "data",
                seed=self.settings.seed,
                limits=self.settings.limits,
                roots=self.roots,
                watch=self._end_if_asked,
            )
        self._describe(data)
        plan = self.settings.plan(data, self.engine)
        book = ResultBook(self.folder / "results.jsonl", plan)
        base = self._pretrain(data, book)
        share = self._row_share(data, base, book)
        files = {task: self._training_file(data, task, share) for task in TASKS}
        self._finetune_all(data, base, book, files)
        results = [self._result(data, book, task, files[task]) for task in TASKS]
        with self._stage("writing samples and the report"):
            samples = [(prompt, self.engine.generate(base, prompt, seed=1)) for prompt in PROMPTS]
            self._write_report(data, base, results, samples)
        self._show(results, samples)
        return results

    @contextmanager
    def _stage(self, title: str) -> Iterator[None]:
        """A line with the time left; on a terminal it runs on while the stage does. None begins after a signal."""
        self._end_if_asked()
        label = f"[{self.clock.label()}] {title}"
        if not self.console.is_terminal:
            self.console.print(label, markup=False, highlight=False)
            yield
            return
        columns = (SpinnerColumn(), TimeLeft(self.clock), TextColumn("{task.description}"))
        with Progress(*columns, console=self.console, transient=True) as bar:
            bar.add_task(title)
            yield
        self.console.print(label, markup=False, highlight=False)

    def _end_if_asked(self) -> None:
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, str(self.folder))

    def _describe(self, data: DemoData) -> None:
        rows = ", ".join(f"{task} {sizes['train']}/{sizes['test']}" for task, sizes in data.sizes.items())
        self.console.print(
            f"Corpus: {data.corpus_documents:,} docstrings, {data.corpus_bytes / 1e6:.1f} MB, from "
            f"{data.modules['train']:,} modules; {data.modules['valid'] + data.modules['test']:,} other modules "
            "are kept for validation and test.\n"
            f"Rows for training/test: {rows}.",
            highlight=False,
        )

    def _pretrain(self, data: DemoData, book: ResultBook) -> Path:
        base, marker = self.folder / "base", self.folder / "pretraining.json"
        kept = json.loads(marker.read_text(encoding="utf-8")) if marker.is_file() else {}
        if kept.get("plan") == book.plan and kept["finished"]:
            self.console.print("Pre-training is done already; going on with it.")
            return base
        if base.exists() and kept.get("plan") != book.plan:
            shutil.rmtree(base)  # made under another plan
        write_whole(marker, json.dumps({"plan": book.plan, "finished": False}).encode())
        with self._stage(f"pre-training for {self.settings.pretrain_minutes:.1f} minutes"):
            self.engine.pretrain(data.corpus, self.settings.pretrain_minutes, base, self.settings.seed, self.stopping)
        write_whole(marker, json.dumps({"plan": book.plan, "finished": True}).encode())
        return base

    def _row_share(self, data: DemoData, base: Path, book: ResultBook) -> float:
        """The step of the ladder at which every fine-tuning fits, by one measured fine-tuning; kept once chosen."""
        path = self.folder / "plan.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["plan"] == book.plan:
                return float(kept["share"])
        with self._stage("measuring the speed of fine-tuning"):
            seconds_per_character = self._measure(data, base)
        available = self.clock.left() - RESERVE * 60 * self.settings.minutes
        share = choose_share(data, self.settings, seconds_per_character, available)
        chosen = {"plan": book.plan, "share": share, "seconds_per_character": seconds_per_character}
        write_whole(path, json.dumps(chosen).encode())
        if share < 1:
            self.console.print(
                f"By the speed measured, {share:.0%} of the training rows fit into the time; both sides get the same."
            )
        return share

    def _measure(self, data: DemoData, base: Path) -> float:
        """Seconds a character, over two tasks whose rows differ. The first fine-tuning pays for what is loaded once, so
        it is not timed."""
        seconds = size = 0.0
        for task, rows in MEASURED:
            train = _first_rows(data.path(task, "train"), self.folder / "data" / "measure.csv", rows)
            job = FineTuning(task, train, train, train, self.settings.seed, 1, pretrained=False)
            began = self.now()
            self.engine.finetune(base, job, self.stopping)
            if rows >= TIMED_ROWS:
                seconds += self.now() - began
                size += work(train, train, train, task, 1)
        return seconds / max(1.0, size)

    def _training_file(self, data: DemoData, task: str, share: float) -> Path:
        whole = data.path(task, "train")
        if share >= 1:
            return whole
        rows = int(data.sizes[task]["train"] * share)
        return _first_rows(whole, self.folder / "data" / f"{task}-train-{rows}.csv", rows)

    def _finetune_all(self, data: DemoData, base: Path, book: ResultBook, files: dict[str, Path]) -> None:
        jobs = [
            (seed, task, pretrained) for seed in self.settings.seeds for task in TASKS for pretrained in (True, False)
        ]
        longest: dict[str, float] = {}
        for number, (seed, task, pretrained) in enumerate(jobs, start=1):
            if found := book.get(task, pretrained, seed):
                longest[task] = max(longest.get(task, 0.0), found.seconds)
                continue
            if self._out_of_time(seed, task, pretrained, longest):
                return
            side = "with" if pretrained else "without"
            with self._stage(f"fine-tuning {number}/{len(jobs)}: {task}, {side} pre-training, seed {seed}"):
                one = self._finetune(data, base, files[task], task, pretrained, seed)
            longest[task] = max(longest.get(task, 0.0), one.seconds)
            book.add(one)

    def _out_of_time(self, seed: int, task: str, pretrained: bool, longest: dict[str, float]) -> bool:
        """Before a seed's first fine-tuning: whether the whole of that seed does not fit any more."""
        is_first = task == TASKS[0] and pretrained
        if not is_first or seed == self.settings.seeds[0] or self.clock.left() > 2 * sum(longest.values()):
            return False
        self.notes.append(
            f"The time was up before seed {seed}: the figures are over {self.settings.seeds.index(seed)}."
        )
        self.console.print(self.notes[-1], highlight=False)
        return True

    def _finetune(self, data: DemoData, base: Path, train: Path, task: str, pretrained: bool, seed: int) -> Finished:
        keeps = pretrained and seed == self.settings.seeds[0]
        out = self.folder / "tasks" / task if keeps else None
        if out and out.exists():
            shutil.rmtree(out)
        job = FineTuning(
            task, train, data.path(task, "valid"), data.path(task, "test"), seed, self.settings.epochs, pretrained, out
        )
        began = self.now()
        metric, score = self.engine.finetune(base, job, self.stopping)
        rows = count_rows(train)
        return Finished(task, pretrained, seed, metric, score, self.now() - began, rows, data.sizes[task]["test"])

    def _result(self, data: DemoData, book: ResultBook, task: str, train: Path) -> TaskResult:
        metric = next((one.metric for one in book.all() if one.task == task), "accuracy")
        return TaskResult(
            task=task,
            metric=metric,
            with_pretraining=book.scores(task, True),
            without=book.scores(task, False),
            n_train=count_rows(train),
            n_test=data.sizes[task]["test"],
            baseline=data.guessing[task],
            question=QUESTIONS[task],
        )

    def _write_report(
        self, data: DemoData, base: Path, results: list[TaskResult], samples: list[tuple[str, str]]
    ) -> None:
        clear = sum(one.is_clear for one in results)
        facts = {
            "time used": f"{self.clock.used() / 60:.1f} minutes of at most {self.settings.minutes:g}",
            "pre-training": f"{self.settings.pretrain_minutes:.1f} minutes",
            "corpus": f"{data.corpus_documents:,} docstrings, {data.corpus_bytes / 1e6:.1f} MB",
            "modules": f"{data.modules['train']:,} for training, {data.modules['valid']:,} for validation, "
            f"{data.modules['test']:,} for test",
            "largest packages": ", ".join(sorted(data.harvest.packages, key=lambda n: -data.harvest.packages[n])[:10]),
            "fine-tuning": f"{self.settings.epochs} epochs, the best by validation, seeds {list(self.settings.seeds)}",
            "foretext": __version__,
            "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            **self.engine.facts(base),
        }
        notes = [
            "Modules are split, not rows: no text of a validation or test row is in the corpus or a training row.",
            "Wrong answers are the right answers of other rows, so an answer by itself says nothing about its label.",
            "Both sides have one configuration and one tokenizer; only the weights at the start differ.",
            *self.notes,
        ]
        report = ReportData(
            title="Does pre-training help?",
            summary=f"A small GPT, pre-trained for {self.settings.pretrain_minutes:.1f} minutes on the documentation "
            f"inside this Python, is clearly better than the same model without it on {clear} of {len(results)} tasks.",
            curve=self.engine.curve(base),
            results=results,
            samples=samples,
            notes=notes,
            facts=facts,
            examples={task: _first_example(data.path(task, "train")) for task in TASKS},
        )
        write_report(self.folder / "report.html", report)

    def _show(self, results: list[TaskResult], samples: list[tuple[str, str]]) -> None:
        table = Table(title="Test rows, per cent: mean ± standard deviation over seeds")
        for title in ("task", "metric", "with pre-training", "without", "gain", "guessing"):
            table.add_column(title, justify="left" if title in ("task", "metric") else "right")
        for one in results:
            gain = f"{100 * one.gain:+.1f}{' ✓' if one.is_clear else ''}" if one.is_complete else "–"
            guess = "" if one.baseline is None else f"{100 * one.baseline:.1f}"
            table.add_row(one.task, one.metric, percent(one.with_pretraining), percent(one.without), gain, guess)
        self.console.print(table)
        prompt, continuation = samples[0]
        self.console.print("A sample:", highlight=False)
        self.console.print(prompt + continuation, markup=False, highlight=False)
        used = f"{self.clock.used() / 60:.1f} minutes"
        self.console.print(f"Done in {used}. The report: {self.folder / 'report.html'}", highlight=False)


def work(train: Path, valid: Path, test: Path, task: str, epochs: int) -> float:
    """A fine-tuning's size in characters read forward; a training step counts three times, a pair in both orders
    twice. Characters, not words: a signature has many tokens and few spaces."""
    return 3 * epochs * _characters(train, task) + epochs * _characters(valid, task) + _characters(test, task)


def _characters(path: Path, task: str) -> float:
    total = 0
    for row in _read(path)[1:]:
        lengths = [len(field) + TOKEN for field in row[:-1]]
        if task == "choice":
            total += (len(lengths) - 1) * lengths[0] + sum(lengths[1:])
        else:
            total += sum(lengths) * (2 if task == "similarity" else 1)
    return float(total)


def choose_share(data: DemoData, settings: DemoSettings, seconds_per_character: float, available: float) -> float:
    """The largest step of the ladder whose estimate fits into `available` seconds, or the smallest."""
    for share in ROW_LADDER:
        characters = sum(
            3 * settings.epochs * share * _characters(data.path(task, "train"), task)
            + settings.epochs * _characters(data.path(task, "valid"), task)
            + _characters(data.path(task, "test"), task)
            for task in TASKS
        )
        if 2 * len(settings.seeds) * characters * seconds_per_character <= available:
            return share
    return ROW_LADDER[-1]


def _read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def count_rows(path: Path) -> int:
    return len(_read(path)) - 1


def _first_example(path: Path) -> list[tuple[str, str]]:
    columns, row = _read(path)[:2]
    return list(zip(columns, row))


def _first_rows(source: Path, target: Path, count: int) -> Path:
    rows = _read(source)
    if len(rows) < 2:
        raise UserError(f"{source} has no rows: remove its folder and run the demonstration again")
    with target.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows[: count + 1])
    return target


def run_demo(
    settings: DemoSettings,
    engine: Engine | None = None,
    console: Console | None = None,
    stopping: StopRequest | None = None,
) -> list[TaskResult]:
    """What `foretext demo` calls."""
    return Demo(settings, engine, console, stopping=stopping).run()
