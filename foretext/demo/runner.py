"""The demonstration. It pre-trains on the machine's own documentation, then fine-tunes four tasks: with and without
pre-training, and in `finetune`'s default way, with word vectors beside the model.

The time is promised in advance and kept. Pre-training has a fixed share. Seeds are the outermost loop of fine-tuning: a
seed that does not fit into the remaining time is left out for every task and both sides, and the report says so. Called
again, the demonstration resumes: the runs in its folder are its progress. Under another plan it starts over.
"""

import itertools
import shutil
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from foretext import __version__
from foretext.api import load_language_model, pretrain
from foretext.demo.report import TITLES, TaskResult, render
from foretext.demo.tasks import CORPUS, ROWS, TASKS, DemoData, prepare
from foretext.errors import Interrupted, refuse_if
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import read_position
from foretext.train.resume import CURVE

PROMPTS = ("email.message: def read_lines(path, encoding)\n", "sklearn.linear_model: class Line\n", "Return the")
MARKER = "demonstration.txt"  # what it says is the plan that the runs follow
SIDES = ("with", "without")  # with or without pre-training; both train the model alone
DEFAULT = "default"  # `finetune`'s default way; for the first seed only
TIMES = 4.5  # estimated time as a multiple of one side's: four folds, and then all rows
# Narrower than `tiny`: reads twice the tokens in the same minutes, in pre-training and in fine-tuning.
NARROW = ("model.width=128", "model.heads=2", "tokenizer.size=4000")


class Demo:
    """One run of the demonstration in `folder`, with the promise of 15 minutes on 2 cores."""

    minutes, pretrain_minutes, epochs = 15.0, 4.5, 3
    seeds: Sequence[int] = (0, 1, 2)
    sizes: Mapping[str, int] = ROWS
    sets: Sequence[str] = NARROW
    roots: Sequence[Path] = ()  # of the packages; this Python's own
    now = staticmethod(time.monotonic)

    def __init__(self, folder: Path, console: Console | None = None, stopping: StopRequest | None = None) -> None:
        self.folder, self.runs, self.marker = folder, folder / "runs", folder / MARKER
        self.console, self.stopping = console or Console(), stopping or StopRequest()
        self.deadline = self.now() + 60 * self.minutes
        self.notes: list[str] = []

    def run(self) -> list[TaskResult]:
        """Everything, from the corpus to report.html. A signal keeps the progress, and the next run resumes."""
        refuse_if(
            self.folder.exists()
            and not self.marker.is_file()
            and (not self.folder.is_dir() or any(self.folder.iterdir())),
            f"{self.folder} holds other files, which the demonstration would delete; choose a new or empty folder "
            "with --out",
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.marker.touch()
        self.console.print(
            f"[bold]foretext demo[/bold]: at most {self.minutes:g} minutes on 2 cores. It pre-trains a small GPT on "
            "the documentation inside this Python, then fine-tunes four tasks with and without that pre-training, and "
            "with word vectors beside the model."
        )
        try:
            return self._run()
        except (Interrupted, KeyboardInterrupt) as stopped:  # the latter from Python, where no handler is installed
            raise Interrupted(
                getattr(stopped, "code", 130), str(self.folder), "run the same command again to resume"
            ) from None

    def _run(self) -> list[TaskResult]:
        with self._stage("collecting docstrings and deriving tasks"):
            data = prepare(self.folder / "data", sizes=self.sizes, roots=self.roots, watch=self._end_if_asked)
        rows = (f"{task} {len(data.rows[task, 'train'])}/{len(data.rows[task, 'test'])}" for task in TASKS)
        size = f"Corpus: {data.size}.\nRows for training/test: {', '.join(rows)}."
        self._say(size)
        self._recall(data)
        with self._stage(f"pre-training for {self.pretrain_minutes:.1f} minutes"):
            self.pretrain(data)
        results = self._finetune_all(data)
        with self._stage("writing samples and the report"):
            samples = [prompt + self.generate(prompt) for prompt in PROMPTS]
            page = render(
                f"A small GPT, pre-trained for {self.pretrain_minutes:.1f} minutes on the documentation inside this "
                "Python, is clearly better than the same model without it on "
                f"{sum(result.is_clear for result in results)} of {len(results)} tasks.",
                results=results,
                curve=(self.runs / "base" / CURVE).read_bytes(),
                samples=samples,
                notes=[
                    f"At most {self.minutes:g} minutes, of which {self.minutes - self._left() / 60:.1f} are used.",
                    size,
                    f"Fine-tuning: {self.epochs} epochs, the best by validation; seeds {list(self.seeds)}, with word "
                    f"vectors {self.seeds[0]} only.",
                    f"foretext {__version__}, a gpt tiny with {' '.join(self.sets)}.",
                    *self.notes,
                ],
            )
            (self.folder / "report.html").write_text(page, encoding="utf-8")
        columns = [Column(title, justify="left" if title == "task" else "right") for title in TITLES]
        table = Table(*columns, title="Test rows, accuracy in per cent: mean ± standard deviation over seeds")
        for result in results:
            table.add_row(*result.texts)
        self.console.print(table)
        done = f"Done in {self.minutes - self._left() / 60:.1f} minutes. The report: {self.folder / 'report.html'}"
        self._say("\n".join([*self.notes, "A sample:", samples[0], done]))
        return results

    def _recall(self, data: DemoData) -> None:
        """Keeps the runs made under the same plan; those of another are deleted."""
        files = b"".join(path.read_bytes() for path in sorted(data.folder.iterdir()))
        settings = [__version__, zlib.crc32(files), self.pretrain_minutes, self.epochs, *self.sets]
        plan = f"`foretext demo` replaces what is in this folder. It holds runs of this plan: {settings}\n".encode()
        if self.marker.read_bytes() != plan:
            shutil.rmtree(self.runs, ignore_errors=True)
            self.marker.write_bytes(plan)

    @contextmanager
    def _stage(self, title: str) -> Iterator[None]:
        """A line with the time left. No stage begins after a signal."""
        self._end_if_asked()
        minutes, seconds = divmod(max(0, round(self._left())), 60)
        self._say(f"[{minutes}:{seconds:02d} left] {title}")
        with self.console.status("working"):  # on a terminal
            yield

    def _left(self) -> float:
        return self.deadline - self.now()

    def _end_if_asked(self) -> None:
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, str(self.folder))

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)

    def pretrain(self, data: DemoData) -> None:
        """Makes the run `base`, or resumes it; time already spent counts. A finished run needs nothing."""
        pretrain(
            [data.folder / CORPUS],
            system="gpt",
            size="tiny",
            minutes=self.pretrain_minutes,
            out=self.runs / "base",
            seed=0,
            sets=self.sets,
            resume=(self.runs / "base").exists(),
            stopping=self.stopping,
        )

    def finetune(self, data: DemoData, task: str, side: str, seed: int) -> tuple[float, float]:
        """The accuracy on the test rows, and the seconds that this took. The run may be finished already."""
        began, out = self.now(), self.runs / f"{task}-{side}-{seed}"
        model = load_language_model(self.runs / "base").finetune(
            data.path(task, "train"),
            task=task,
            valid=data.path(task, "valid"),
            out=out,
            seed=seed,
            epochs=self.epochs,
            views=None if side == DEFAULT else (),
            from_scratch=side == "without",
            resume=out.exists(),
            reporter=Reporter(),  # a long row is cut the same way with and without pre-training
            stopping=self.stopping,
        )
        accuracy = model.evaluate(data.path(task, "test"), reporter=Reporter()).values["accuracy"]
        return accuracy, max(self.now() - began, read_position(RunDirectory(out)).seconds)

    def generate(self, prompt: str) -> str:
        return load_language_model(self.runs / "base").generate(
            prompt, max_tokens=60, temperature=0.7, top_p=0.9, seed=1
        )

    def _finetune_all(self, data: DemoData) -> list[TaskResult]:
        """Both sides of every task for each seed that there is time for; after the first seed the default way."""
        scores: dict[tuple[str, str], list[float]] = defaultdict(list)
        seconds: dict[tuple[str, str], float] = defaultdict(float)  # of the longest fine-tuning
        for place, seed in enumerate(self.seeds):
            if place and self._left() <= sum(seconds[task, side] for task in TASKS for side in SIDES):
                self.notes.append(f"There was no time from seed {seed} on: the results are over {place}.")
                break
            for side, task in itertools.product(SIDES if place else (*SIDES, DEFAULT), TASKS):
                if side == DEFAULT and self._left() <= TIMES * seconds[task, "with"]:
                    self.notes.append(f"There was no time for {task} with word vectors.")
                    continue
                way = "with word vectors too" if side == DEFAULT else f"{side} pre-training"
                with self._stage(f"fine-tuning {task}, {way}, seed {seed}"):
                    accuracy, spent = self.finetune(data, task, side, seed)
                scores[task, side].append(accuracy)
                seconds[task, side] = max(seconds[task, side], spent)
        return [
            TaskResult(task, scores[task, "with"], scores[task, "without"], scores[task, DEFAULT], data.guessing(task))
            for task in TASKS
        ]
