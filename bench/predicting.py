"""`predict` on runs whose head reads views: rows a second, and memory at its peak.

    python -m bench.predicting --data DIR [--quick]        DIR has sst2/

Views alone (`finetune --system views`), and the same with the states of a GPT of size `tiny`, on sentences of SST-2,
repeated to the number that is wanted. Each is a process of its own, the run loaded from its directory, on as many
threads as there are cores. The vectors are of SST-2's sentences, and padded with words that no row has to 100,000, as
a large text gives them: what a row costs depends on it. Goals: 2,000 rows a second and 600 MB with views alone, 300
rows a second with states.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.common import arguments_for, draw, need_data, print_head, table
from foretext.tasks.files.rows import read_rows

WORDS = 100_000
ROWS = 20_000
LABELS = 500
GOALS = {"views alone": (2000, 600), "with states": (300, None)}


def main() -> int:
    options = arguments_for(__doc__).parse_args()
    data = need_data(options.data)
    print_head("predict with views", ("torch", "numpy", "scipy"), options.quick)
    rows = read_rows(data / "sst2" / "train.tsv", "classification", format="sst2")
    texts = [row.texts[0] for row in rows]
    with tempfile.TemporaryDirectory(prefix="foretext-bench-") as name:
        folder = Path(name)
        _runs(folder, [(row.texts[0], str(row.label)) for row in draw(rows, LABELS, 0)], texts, options.quick)
        count = ROWS // 10 if options.quick else ROWS
        (folder / "rows.json").write_text(json.dumps((texts * (count // len(texts) + 1))[:count]))
        lines = [_measured(folder, kind) for kind in GOALS]
    print(table(("run", "rows/s", "goal", "peak MB", "goal", "load s"), lines))
    return 0


def _runs(folder: Path, labelled: list[tuple[str, str]], texts: list[str], quick: bool) -> None:
    """Both runs. The words that pad the vocabulary stand five times in documents of their own."""
    import foretext as ft

    many = [" ".join(_word(number + i) for i in range(50)) for number in range(0, WORDS, 50)] * 5
    documents = [*texts, *many]
    vectors = folder / "vectors"
    base = ft.pretrain(documents=texts, system="gpt", steps=5 if quick else 50, vectors="none", out=folder / "gpt")
    words = ft.pretrain(documents=documents, system="word2vec", minutes=5, out=vectors, sets=["objective.epochs=1"])
    words.finetune(labelled, task="classification", out=folder / "views alone")
    views = ("ngrams", "lsa", "vectors", "states")
    base.finetune(labelled, task="classification", views=views, vectors=vectors, out=folder / "with states")


def _word(number: int) -> str:
    """Letters alone: a number is its digits."""
    return "q" + "".join("abcdefghij"[int(digit)] for digit in str(number))


def _measured(folder: Path, kind: str) -> tuple[str, ...]:
    command = [sys.executable, "-m", "bench.predicting", "--child", str(folder / kind), str(folder / "rows.json")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    goal, most = GOALS[kind]
    speed, peak, load = (f"{found[name]:,.{digits}f}" for name, digits in (("speed", 0), ("peak", 0), ("load", 1)))
    return kind, speed, f"≥ {goal:,}", peak, f"≤ {most}" if most else "–", load


def child(run: str, rows: str) -> int:
    import foretext as ft

    texts = json.loads(Path(rows).read_text())
    began = time.perf_counter()
    model = ft.load(run)
    load = time.perf_counter() - began
    began = time.perf_counter()
    model.predictions(texts)  # type: ignore[union-attr]
    speed = len(texts) / (time.perf_counter() - began)
    print(json.dumps({"speed": speed, "peak": _peak(), "load": load}))
    return 0


def _peak() -> float:
    """Megabytes. Linux counts the parent's in `ru_maxrss` of a child, and not in VmHWM."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    raise SystemExit(child(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main())
