"""The demonstration. It pre-trains on the machine's own documentation, then fine-tunes four tasks: with and without
pre-training, and in `finetune`'s default way, with word vectors beside the model.

The time is promised in advance and kept. Pre-training has a fixed share. Seeds are the outermost loop of fine-tuning: a
seed that does not fit into the remaining time is left out for every task and both sides, and the report says so.
Progress is in progress.json together with its plan: called again, the demonstration resumes; under another plan it
starts over.
"""

import itertools
import json
import platform
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from foretext import __version__
from foretext.api import load_language_model, pretrain
from foretext.demo.report import TaskResult, render
from foretext.demo.tasks import COLUMNS, ROWS, TASKS, DemoData, prepare
from foretext.errors import Interrupted, refuse_if
from foretext.runs.report import Reporter, StopRequest
from foretext.text.corpus.text_files import write_whole
from foretext.train.resume import CURVE

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
MARKER = "demonstration.txt"
SIDES = ("with", "without")  # with or without pre-training; both train the model alone
DEFAULT = "default"  # `finetune`'s default way; for the first seed only
TIMES = 4.5  # estimated time as a multiple of one side's: four folds, and then all rows
# Narrower than `tiny`: reads twice the tokens in the same minutes, in pre-training and in fine-tuning.
NARROW = ("model.width=128", "model.heads=2", "tokenizer.size=4000")


@dataclass
class Demo:
    """One run of the demonstration in `folder`; the defaults are the promise of 15 minutes on 2 cores."""

    folder: Path
    minutes: float = 15.0
    pretrain_share: float = 0.3
    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 3
    sizes: Mapping[str, int] = field(default_factory=lambda: ROWS)
    sets: Sequence[str] = NARROW
    console: Console = field(default_factory=Console)
    roots: Sequence[Path] = ()
    now: Callable[[], float] = time.monotonic
    stopping: StopRequest = field(default_factory=StopRequest)
    reporter: Reporter | None = None

    def __post_init__(self) -> None:
        self.base = self.folder / "base"
        self.pretrain_minutes = self.minutes * self.pretrain_share
        self.began = self.now()
        self.notes: list[str] = []
        # progress.json. Names of scores are "TASK SIDE SEED"; seconds are the longest fine-tuning of each task.
        self.progress: dict[str, Any] = {}

    def run(self) -> list[TaskResult]:
        """Everything, from the corpus to report.html. A signal keeps the progress, and the next run resumes."""
        self._take_folder()
        self.console.print(
            f"[bold]foretext demo[/bold]: at most {self.minutes:g} minutes on 2 cores. It pre-trains a small GPT on "
            "the documentation inside this Python, then fine-tunes four tasks with and without that pre-training, and "
            "with word vectors beside the model."
        )
        try:
            return self._run()
        except Interrupted as stopped:
            code = stopped.code
        except KeyboardInterrupt:  # when called from Python, where no handler is installed
            code = 130
        raise Interrupted(code, str(self.folder), "run the same command again to resume")

    def _take_folder(self) -> None:
        """The demonstration deletes what an earlier one left, so it works only in its own folder."""
        marker = self.folder / MARKER
        refuse_if(
            self.folder.exists() and not marker.is_file() and (not self.folder.is_dir() or any(self.folder.iterdir())),
            f"{self.folder} holds other files, which the demonstration would delete; choose a new or empty folder "
            "with --out",
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        marker.write_text("This folder belongs to `foretext demo`, which replaces what is in it.\n", encoding="utf-8")

    def _run(self) -> list[TaskResult]:
        with self._stage("collecting docstrings and deriving tasks"):
            data = prepare(self.folder / "data", sizes=self.sizes, roots=self.roots, watch=self._end_if_asked)
        rows = ", ".join(f"{task} {len(data.rows[task, 'train'])}/{len(data.rows[task, 'test'])}" for task in TASKS)
        self._say(
            f"Corpus: {data.size}, from {data.modules['train']:,} modules; "
            f"{data.modules['valid'] + data.modules['test']:,} other modules are kept for validation and test.\n"
            f"Rows for training/test: {rows}."
        )
        settings = [self.minutes, self.pretrain_share, self.epochs, *self.sets]
        self._recall(json.dumps([__version__, zlib.crc32(data.corpus.read_bytes()), rows, *settings]))
        with self._stage(f"pre-training for {self.pretrain_minutes:.1f} minutes"):
            self.pretrain(data)
        self._finetune_all(data)
        results = [self._result(data, task) for task in TASKS]
        with self._stage("writing samples and the report"):
            samples = [(prompt, self.generate(prompt)) for prompt in PROMPTS]
            write_whole(self.folder / "report.html", self._page(data, results, samples).encode())
        self._show(results, samples)
        return results

    def _recall(self, plan: str) -> None:
        """Resumes progress made under the same plan; progress under another plan is deleted."""
        with suppress(OSError, ValueError):
            self.progress = json.loads((self.folder / "progress.json").read_bytes())
        if self.progress.get("plan") != plan:
            shutil.rmtree(self.base, ignore_errors=True)
            self.progress = {"plan": plan, "scores": {}, "seconds": {}}
            self._write_progress()

    def _write_progress(self) -> None:
        write_whole(self.folder / "progress.json", json.dumps(self.progress).encode())

    @contextmanager
    def _stage(self, title: str) -> Iterator[None]:
        """A line with the time left; on a terminal it is updated during the stage. No stage begins after a signal."""
        self._end_if_asked()
        label = self._label(title)
        if self.console.is_terminal:
            with Live(get_renderable=lambda: self._label(title), console=self.console, transient=True):
                yield
            self.console.print(label)
        else:
            self.console.print(label)
            yield

    def _label(self, title: str) -> Text:
        minutes, seconds = divmod(max(0, round(self._left())), 60)
        return Text(f"[{minutes}:{seconds:02d} left] {title}")

    def _left(self) -> float:
        return self.began + 60 * self.minutes - self.now()

    def _end_if_asked(self) -> None:
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, str(self.folder))

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._say(text)

    def pretrain(self, data: DemoData) -> None:
        """Makes the run `base`, or resumes it; time already spent counts. A finished run needs nothing."""
        pretrain(
            [data.corpus],
            system="gpt",
            size="tiny",
            minutes=self.pretrain_minutes,
            out=self.base,
            seed=0,
            sets=self.sets,
            resume=self.base.exists(),
            reporter=self.reporter,
            stopping=self.stopping,
        )

    def finetune(self, data: DemoData, task: str, side: str, seed: int) -> float:
        """The accuracy on the test rows. Runs made in the default way are kept."""
        out = self.folder / "tasks" / task if side == DEFAULT else None
        if out:
            shutil.rmtree(out, ignore_errors=True)
        model = load_language_model(self.base).finetune(
            data.path(task, "train"),
            task=task,
            valid=data.path(task, "valid"),
            out=out,
            seed=seed,
            epochs=self.epochs,
            views=None if side == DEFAULT else (),
            from_scratch=side == "without",
            reporter=Reporter(),  # a long row is cut the same way with and without pre-training
            stopping=self.stopping,
        )
        return model.evaluate(data.path(task, "test"), reporter=Reporter()).values["accuracy"]

    def generate(self, prompt: str) -> str:
        return load_language_model(self.base).generate(prompt, max_tokens=60, temperature=0.7, top_p=0.9, seed=1)

    def _finetune_all(self, data: DemoData) -> None:
        """Both sides of every task for each seed that there is time for; after the first seed the default way."""
        scores, seconds, numbers = self.progress["scores"], self.progress["seconds"], itertools.count(1)
        total = len(TASKS) * (len(SIDES) * len(self.seeds) + 1)
        for place, seed in enumerate(self.seeds):
            jobs = [(task, side) for task in TASKS for side in SIDES] + [(task, DEFAULT) for task in TASKS if not place]
            missing = any(_name(task, side, seed) not in scores for task, side in jobs)
            if place and missing and self._left() <= 2 * sum(seconds.values()):
                self._note(f"There was no time for seed {seed}: the results are over {place}.")
                return
            for (task, side), number in zip(jobs, numbers):
                if _name(task, side, seed) in scores:
                    continue
                if side == DEFAULT and self._left() <= TIMES * seconds[task]:
                    self._note(f"There was no time for {task} with word vectors.")
                    continue
                way = "with word vectors too" if side == DEFAULT else f"{side} pre-training"
                with self._stage(f"fine-tuning {number}/{total}: {task}, {way}, seed {seed}"):
                    began = self.now()
                    scores[_name(task, side, seed)] = self.finetune(data, task, side, seed)
                    if side != DEFAULT:
                        seconds[task] = max(seconds.get(task, 0.0), self.now() - began)
                    self._write_progress()

    def _result(self, data: DemoData, task: str) -> TaskResult:
        scores = self.progress["scores"]
        pretrained, untrained = (
            [scores[name] for seed in self.seeds if (name := _name(task, side, seed)) in scores] for side in SIDES
        )
        rows = (len(data.rows[task, "train"]), len(data.rows[task, "test"]))
        default = scores.get(_name(task, DEFAULT, self.seeds[0]))
        return TaskResult(task, pretrained, untrained, *rows, data.guessing(task), QUESTIONS[task], default)

    def _page(self, data: DemoData, results: list[TaskResult], samples: list[tuple[str, str]]) -> str:
        clear = sum(result.is_clear for result in results)
        return render(
            title="Does pre-training help?",
            summary=f"A small GPT, pre-trained for {self.pretrain_minutes:.1f} minutes on the documentation inside "
            f"this Python, is clearly better than the same model without it on {clear} of {len(results)} tasks.",
            curve=(self.base / CURVE).read_bytes(),
            results=results,
            samples=samples,
            notes=[
                "Modules are split, not rows: no text of a validation or test row is in the corpus or a training row.",
                "Wrong answers are the right answers of other rows: an answer by itself says nothing about its label.",
                "With and without: the configuration and the tokenizer are the same; only the initial weights differ.",
                "With word vectors: what finetune does by default. One head reads n-grams, topics and word vectors "
                f"of the corpus beside the fine-tuned model; seed {self.seeds[0]} only.",
                *self.notes,
            ],
            facts={
                "time used": f"{(self.now() - self.began) / 60:.1f} minutes of at most {self.minutes:g}",
                "pre-training": f"{self.pretrain_minutes:.1f} minutes",
                "corpus": data.size,
                "modules": ", ".join(f"{count:,} for {split}" for split, count in data.modules.items()),
                "largest packages": ", ".join(data.packages),
                "fine-tuning": f"{self.epochs} epochs, the best by validation, seeds {list(self.seeds)}",
                "foretext": __version__,
                "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
                "torch": version("torch"),
                "model size": " ".join(["tiny", *self.sets]),
            },
            examples={task: list(zip(COLUMNS[task], data.rows[task, "train"][0])) for task in TASKS},
        )

    def _show(self, results: list[TaskResult], samples: list[tuple[str, str]]) -> None:
        names = ("with pre-training", "without", "gain", "with word vectors too", "guessing")
        titles = (Column(title, justify="right") for title in names)
        table = Table("task", *titles, title="Test rows, accuracy in per cent: mean ± standard deviation over seeds")
        for result in results:
            table.add_row(result.task, *result.texts)
        self.console.print(table)
        self._say(f"A sample:\n{''.join(samples[0])}")
        used = (self.now() - self.began) / 60
        self._say(f"Done in {used:.1f} minutes. The report: {self.folder / 'report.html'}")


def _name(task: str, side: str, seed: int) -> str:
    """The name of a score in progress.json."""
    return f"{task} {side} {seed}"
