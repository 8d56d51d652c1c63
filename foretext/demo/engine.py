"""All that the demonstration asks of the rest of Foretext, in one place.

The runner speaks to the `Engine` protocol: the real one below calls `foretext.api`, and the tests use one that needs
no torch.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foretext.demo.report import LossPoint
from foretext.runs.report import Silent
from foretext.train.signals import StopRequest


@dataclass(frozen=True)
class FineTuning:
    """One fine-tuning and the rows it is scored on."""

    task: str
    train: Path
    valid: Path
    test: Path
    seed: int
    epochs: int
    pretrained: bool
    out: Path | None = None


class Engine(Protocol):
    def settings(self) -> dict[str, object]:
        """What its scores depend on; a result made with others is not used again."""
        ...

    def pretrain(self, corpus: Path, minutes: float, out: Path, seed: int, stopping: StopRequest) -> None:
        """Makes the run at `out`, or goes on with it; ends in `Interrupted`, with a checkpoint, when asked to stop."""
        ...

    def finetune(self, base: Path, job: FineTuning, stopping: StopRequest) -> tuple[str, float]:
        """The metric's name and its value on the test rows; ends in `Interrupted` when asked to stop."""
        ...

    def generate(self, base: Path, prompt: str, seed: int) -> str: ...

    def curve(self, base: Path) -> list[LossPoint]: ...

    def facts(self, base: Path) -> dict[str, str]: ...


# Narrower than `tiny`: twice the tokens in the same minutes, for pre-training and for twenty-four fine-tunings.
NARROW = ("model.width=128", "model.heads=2", "tokenizer.size=4000")


@dataclass
class ForetextEngine:
    """The real thing. `reporter` is handed to pre-training, which tells it how far it is."""

    size: str = "tiny"
    sets: Sequence[str] = NARROW
    finetune_sets: Sequence[str] = ()
    reporter: Any = None  # a foretext.runs.report.Reporter

    def settings(self) -> dict[str, object]:
        return {"size": self.size, "sets": list(self.sets), "finetune_sets": list(self.finetune_sets)}

    def pretrain(self, corpus: Path, minutes: float, out: Path, seed: int, stopping: StopRequest) -> None:
        from foretext.api import pretrain

        pretrain(
            [corpus],
            system="gpt",
            size=self.size,
            minutes=minutes,
            out=out,
            seed=seed,
            sets=self.sets,
            resume=out.exists(),  # cut short: from its last checkpoint, the time spent counts
            reporter=self.reporter,
            stopping=stopping,
        )

    def finetune(self, base: Path, job: FineTuning, stopping: StopRequest) -> tuple[str, float]:
        from foretext.api import load_language_model

        model = load_language_model(base).finetune(
            job.train,
            task=job.task,
            valid=job.valid,
            out=job.out,
            seed=job.seed,
            epochs=job.epochs,
            from_scratch=not job.pretrained,
            reporter=Silent(),  # a long row is cut alike with and without pre-training
            sets=self.finetune_sets,
            stopping=stopping,
        )
        scores = model.evaluate(job.test, reporter=Silent())
        return scores.main, scores.values[scores.main]

    def generate(self, base: Path, prompt: str, seed: int) -> str:
        from foretext.api import load_language_model

        return load_language_model(base).generate(prompt, max_tokens=60, temperature=0.7, top_p=0.9, seed=seed)

    def curve(self, base: Path) -> list[LossPoint]:
        return read_curve(base / "metrics.jsonl")

    def facts(self, base: Path) -> dict[str, str]:
        from importlib.metadata import version

        import torch

        return {
            "torch": version("torch"),
            "threads": str(torch.get_num_threads()),
            "model size": " ".join([self.size, *self.sets]),
        }


def read_curve(path: Path) -> list[LossPoint]:
    """The loss curve out of a run's metrics; lines without a loss are other reports."""
    points: list[LossPoint] = []
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for text in lines:
        line = json.loads(text)
        train, valid = line.get("losses", {}).get("lm"), line.get("validation", {}).get("loss")
        if train is not None or valid is not None:
            points.append(
                LossPoint(
                    int(line.get("step", 0)),
                    int(line.get("tokens", 0)),
                    float("nan") if train is None else float(train),
                    None if valid is None else float(valid),
                )
            )
    return points
