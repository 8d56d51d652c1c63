"""What the demonstration has finished, on disk, so that a run after Ctrl-C goes on where the last one stopped.

`results.jsonl` has one line for each finished fine-tuning. A line counts only for the plan (corpus, rows, seeds,
epochs) that it was made under: every line carries the plan's fingerprint, and lines of another plan are ignored.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finished:
    """One fine-tuning: its test score, how long it took, and what chose its epoch."""

    task: str
    pretrained: bool
    seed: int
    metric: str
    score: float
    seconds: float
    rows: int
    test_rows: int


class ResultBook:
    """The finished fine-tunings of one plan."""

    def __init__(self, path: Path, plan: Mapping[str, object]) -> None:
        self.path = Path(path)
        self.plan = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]
        self._finished: dict[tuple[str, bool, int], Finished] = {}
        for line in self._lines():
            if line.pop("plan", None) == self.plan:
                one = Finished(**line)
                self._finished[one.task, one.pretrained, one.seed] = one

    def _lines(self) -> list[dict]:
        """Every whole line; one cut short by a kill is as if its fine-tuning had not finished."""
        lines: list[dict] = []
        if self.path.is_file():
            for text in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    lines.append(json.loads(text))
                except json.JSONDecodeError:
                    continue
        return [line for line in lines if isinstance(line, dict) and set(line) == {"plan", *Finished.__annotations__}]

    def get(self, task: str, pretrained: bool, seed: int) -> Finished | None:
        return self._finished.get((task, pretrained, seed))

    def scores(self, task: str, pretrained: bool) -> list[float]:
        return [
            one.score for (name, flag, _), one in sorted(self._finished.items()) if (name, flag) == (task, pretrained)
        ]

    def all(self) -> list[Finished]:
        return [one for _, one in sorted(self._finished.items())]

    def add(self, one: Finished) -> None:
        """Recorded and on disk before it returns."""
        self._finished[one.task, one.pretrained, one.seed] = one
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A last line that a kill cut short must not swallow this one.
        cut = self.path.is_file() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(("\n" if cut else "") + json.dumps({"plan": self.plan, **asdict(one)}) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
