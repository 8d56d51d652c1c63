"""Runs the numeric tests as other machines would, and prints a table: `make portable`.

    python tests/portable.py               # every setting; then the whole suite once without vector instructions
    python tests/portable.py --quick       # every setting, not the whole suite

Libraries choose their kernels by the processor: AVX-512, AVX2 or neither, for PyTorch (`ATEN_CPU_CAPABILITY`), for MKL
(`MKL_CBWR`) and for oneDNN (`ONEDNN_MAX_CPU_ISA`); and sums are split by the number of threads. Each of them adds up in
another order. The last column is the largest part of what `tolerance.close` allows that any comparison used.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMERIC = ("tests/unit/nn", "tests/unit/objectives", "tests/unit/test_golden.py", "tests/parity")
WHOLE = ("tests",)  # with those that are too long for every change
SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"MKL_CBWR": "COMPATIBLE"},
    {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    {"OMP_NUM_THREADS": "1"},
    {"OMP_NUM_THREADS": "4"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    runs = [(setting, NUMERIC) for setting in SETTINGS]
    if not parser.parse_args().quick:
        runs.append(({"ATEN_CPU_CAPABILITY": "default"}, WHOLE))
    rows = [outcome(setting, tests) for setting, tests in runs]
    print("\n| setting | tests | passed | failed | skipped | seconds | of what is allowed |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row[:-1]) + " |")
    sys.exit(any(row[-1] for row in rows))


def outcome(setting: dict[str, str], tests: tuple[str, ...]) -> list[str]:
    """A row of the table; its last field, which is not shown, is empty if all is well."""
    name = " ".join(f"{key}={value}" for key, value in setting.items()) or "the machine's own"
    print(f"{name}: {' '.join(tests)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **setting, "FORETEXT_MARGINS": folder}
        if "OMP_NUM_THREADS" in setting:
            environment["FORETEXT_TEST_THREADS"] = setting["OMP_NUM_THREADS"]
        begun = time.monotonic()
        often = [] if tests == WHOLE else ["-m", "not thorough"]
        command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", *often, *tests]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        seconds = time.monotonic() - begun
        shares = {
            test: share for path in Path(folder).glob("*.json") for test, share in json.loads(path.read_text()).items()
        }
    lines = done.stdout.splitlines()
    print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR"))))
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", lines[-1])}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    worst = max(shares, key=lambda test: shares[test], default="")
    share = f"{shares[worst]:.2f} ({worst.rpartition('::')[2]})" if worst else "none compared"
    shown = (counts.get("passed", 0), failed, counts.get("skipped", 0), round(seconds))
    bad = "failed" if done.returncode or failed or not counts.get("passed") else ""
    return [name, " ".join(tests), *map(str, shown), share, bad]


if __name__ == "__main__":
    main()
