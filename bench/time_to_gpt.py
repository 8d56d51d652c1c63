"""Time until `modern` reaches the validation loss of GPT after a fixed time (target: 0.4 of that time).

    python -m bench.time_to_gpt --data DIR [--minutes 20] [--parts .3 .4 .5]      DIR has imdb/unsup.txt.gz

Each run is `foretext pretrain --size tiny --vectors none` on IMDb's unlabelled reviews. Runs follow each other, each in
its own process. All have the same vocabulary and the same validation windows, so losses per token compare like bits per
byte. A learning-rate schedule needs a fixed budget, so `modern` runs with several: shares of GPT's minutes. The result
is the smallest budget whose **final** loss reaches GPT's.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.common import arguments_for, need_data, print_head, ratio_cell, table
from foretext.runs.directory import RunDirectory
from foretext.runs.run_config import read_position
from foretext.text.corpus.shards import read_manifest

TARGET = 0.4
QUICK = ("model.layers=1", "model.width=32", "model.heads=2", "model.context=64", "tokenizer.size=600")


@dataclass(frozen=True)
class End:
    minutes: float
    tokens: int
    loss: float
    bits: float  # per byte


def trained(system: str, minutes: float, data: Path, folder: Path, quick: bool) -> End:
    out = folder / f"{system}-{minutes:g}"
    words = ["pretrain", str(data / "imdb" / "unsup.txt.gz"), "--system", system, "--size", "tiny", "--vectors", "none"]
    words += ["--minutes", str(minutes), "--out", str(out)]
    for one in QUICK if quick else ():
        words += ["--set", one]
    subprocess.run([sys.executable, "-m", "foretext", *words], check=True, stdout=subprocess.DEVNULL)
    run = RunDirectory(out)
    loss = [row["validation"]["loss"] for row in run.metrics() if "validation" in row][-1]
    position, valid = read_position(run), read_manifest(run.path / "tokens").splits["valid"]
    return End(position.seconds / 60, position.tokens, loss, loss / math.log(2) * valid.tokens / valid.utf8_bytes)


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--parts", type=float, nargs="+", default=(0.3, 0.4, 0.5), help="shares of --minutes")
    given = parser.parse_args()
    data, minutes = need_data(given.data), 0.1 if given.quick else given.minutes
    print_head("Time to GPT's validation loss", ["torch"], given.quick)
    with tempfile.TemporaryDirectory() as scratch:
        gpt = trained("gpt", minutes, data, Path(scratch), given.quick)
        parts = {part: trained("modern", part * minutes, data, Path(scratch), given.quick) for part in given.parts}
    rows = [
        [name, f"{end.minutes:.1f}", f"{end.tokens:,}", f"{end.loss:.4f}", f"{end.bits:.4f}"]
        for name, end in [("gpt", gpt), *((f"modern, {part:g} of the time", end) for part, end in parts.items())]
    ]
    print(table(["run", "minutes", "tokens", "loss per token", "bits per byte"], rows) + "\n")
    enough = [part for part, end in sorted(parts.items()) if end.loss <= gpt.loss]
    if not enough:
        print("modern reached GPT's loss with none of these budgets: **missed**\n")
        return
    ratio, verdict = ratio_cell(parts[enough[0]].minutes / gpt.minutes, TARGET, at_most=True)
    print(
        table(
            ["smallest budget whose final loss reaches GPT's", "ratio of times", "target"],
            [[f"{enough[0]:g}", ratio, verdict]],
        )
    )


if __name__ == "__main__":
    main()
