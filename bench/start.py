"""How long `foretext --help` takes, from a cold call to its last line; target: under 0.5 s.

python -m bench.start [--rounds 7]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from bench.common import arguments_for, print_head, ratio_cell, table


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    print_head("Starting", ["typer"], given.quick)
    commands = {
        "foretext --help": [sys.executable, "-m", "foretext", "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    found = {name: [seconds(words) for _ in range(given.rounds)] for name, words in commands.items()}
    rows = []
    for name, values in found.items():
        middle = statistics.median(values)
        verdict = ratio_cell(middle, 0.5, at_most=True)[1] if "foretext" in name else "–"
        rows.append([name, f"{middle:.2f}", f"{min(values):.2f}", f"{max(values):.2f}", verdict])
    print(table(["seconds", "median", "least", "most", "target"], rows))


if __name__ == "__main__":
    main()
