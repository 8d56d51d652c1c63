"""Peak memory of learning a vocabulary and writing token shards, at two sizes of corpus: it must not grow.

    python -m bench.memory [--data DIR] [--megabytes 100 1000]

Makes text of each size (words of IMDb's reviews with --data, otherwise of a small made-up vocabulary), runs both steps
in a process of their own, and samples the resident memory of that process and its workers, all together.
Targets: under 1,000 MB, and the largest within 10 % of the smallest.
"""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.common import ROOT, arguments_for, print_head, table

STEPS = """
import sys, time
from pathlib import Path
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.text.corpus.shard_writing import write_shards, Sharding
from foretext.text.tokenizers.training import train_tokenizer
files = find_files([sys.argv[1]])
start = time.perf_counter()
tokenizer = train_tokenizer(read_documents(files, ReadOptions(), ReadReport()), "byte-bpe", 8000)
middle = time.perf_counter()
manifest = write_shards(files, ReadOptions(), tokenizer, Path(sys.argv[2]), Sharding(0, .01))
end = time.perf_counter()
size = sum(split.utf8_bytes for split in manifest.splits.values()) / 1e6
print(f"vocabulary {middle - start:.1f} s, shards {end - middle:.1f} s ({size / (end - middle):.1f} MB/s)")
"""


def words(data: Path | None) -> list[str]:
    if data is not None:
        with gzip.open(data / "imdb" / "unsup.txt.gz", "rt", encoding="utf-8") as file:
            return file.read(2_000_000).split()
    draw = random.Random(0)
    made = ["".join(draw.choices("etaoinshrdlucmfw", k=draw.randint(1, 9))) for _ in range(20_000)]
    return [made[int(20_000 * draw.random() ** 4)] for _ in range(300_000)]


def write_text(path: Path, megabytes: int, vocabulary: list[str]) -> None:
    """Documents of stretches of the words, from places drawn anew, until the file is large enough."""
    draw = random.Random(1)
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < megabytes * 1_000_000:
            parts = []
            for _ in range(12):
                start = draw.randrange(len(vocabulary) - 20)
                parts.append(" ".join(vocabulary[start : start + 20]))
            written += file.write(" ".join(parts) + "\n")


def tree(process: int) -> list[int]:
    """The process and all below it. A worker that is being started shares its parent's memory until its own programme
    begins (workers are spawned, not forked): until its command line differs it is left out, or the same pages would
    count twice."""
    found = [process]
    for parent in found:
        try:
            own = Path(f"/proc/{parent}/cmdline").read_bytes()
            for task in Path(f"/proc/{parent}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += [child for child in children if Path(f"/proc/{child}/cmdline").read_bytes() != own]
        except OSError:
            continue
    return found


def resident(process: int) -> int:
    """Bytes of memory that the process has for itself or shares, as the kernel counts it now."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def measure(text: Path, out: Path) -> tuple[float, float, str]:
    """The highest sum over the process tree, and the highest single process, in MB; what it said of its time."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", STEPS, str(text), str(out)]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    most_together = most_alone = 0
    while process.poll() is None:
        sizes = [resident(member) for member in tree(process.pid)]
        most_together = max(most_together, sum(sizes))
        most_alone = max(most_alone, *sizes)
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"the measured process failed with exit code {process.returncode}")
    assert process.stdout is not None
    return most_together / 1e6, most_alone / 1e6, process.stdout.read().strip()


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    given = parser.parse_args()
    sizes = [1, 3] if given.quick else given.megabytes
    print_head("Memory of preparing text", ["tokenizers", "tiktoken", "polars"], given.quick)
    vocabulary = words(given.data)
    rows, peaks = [], []
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in sizes:
            text = Path(folder) / "text.txt"
            write_text(text, megabytes, vocabulary)
            together, alone, times = measure(text, Path(folder) / "tokens")
            peaks.append(together)
            verdict = "< 1000 " + ("met" if together < 1000 else "**missed**")
            rows.append([f"{megabytes} MB of text", f"{together:.0f}", f"{alone:.0f}", verdict, times])
    if len(peaks) > 1:
        ratio = peaks[-1] / peaks[0]
        verdict = "0.90 to 1.10 " + ("met" if 0.9 <= ratio <= 1.1 else "**missed**")
        rows.append(["last / first", f"{ratio:.3f}", "", verdict, ""])
    print(table(["peak resident", "all processes, MB", "largest process, MB", "target", "time"], rows))


if __name__ == "__main__":
    main()
