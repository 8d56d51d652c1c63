"""Runs the mutants of `mutants.json` against the tests that cover them, and says which of them were noticed.

    python tests/mutants/run.py map --out map.json                      # all tests once, with coverage
    python tests/mutants/run.py kill --map map.json --out killed.json   # each mutant, against its tests
    python tests/mutants/run.py compare before.json after.json

`map` notes for each mutant which tests run its line, or, of a line that runs when its file is imported, which tests run
anything of that file; and how long each test takes. `kill` changes the line in a copy of the tree and runs those tests
until one fails, for 60 seconds at most: as many as take half a minute, one case of each test function first, quick ones
first; those of one file together, so that what they share is made once. What failed is run again without the mutant: a
mutant is killed when that passes, or when the tests are not done after a minute; it is gone when its line is no longer
there. `compare` fails if a mutant that was killed before is neither killed after nor gone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.json")
TREE = ("foretext", "tests", "bench", "experiments", "docs", "README.md", "README.zh-CN.md", "pyproject.toml")
TREE += ("CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt")
SECONDS, OF_TESTS = 60.0, 30.0  # for a mutant, and what its tests may take without it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    mapping = verbs.add_parser("map")
    mapping.add_argument("--out", type=Path, required=True)
    mapping.add_argument("tests", nargs="*", default=["tests"])
    killing = verbs.add_parser("kill")
    killing.add_argument("--map", type=Path, required=True)
    killing.add_argument("--out", type=Path, required=True)
    killing.add_argument("--only", nargs="*", help="numbers of mutants; all, if none is given")
    killing.add_argument("--workers", type=int, default=2)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGHUP, lambda *_: None)  # which a mutant may send to whoever holds a lock
    if given.verb == "map":
        write_map(given.out, given.tests)
    elif given.verb == "kill":
        kill_all(json.loads(given.map.read_text()), given.out, given.only, given.workers)
    else:
        compare(json.loads(given.before.read_text()), json.loads(given.after.read_text()))


def write_map(out: Path, tests: list[str]) -> None:
    from coverage import CoverageData

    with tempfile.TemporaryDirectory() as folder:
        data, durations = Path(folder) / "coverage", Path(folder) / "durations.json"
        environment = {
            **os.environ,
            "COVERAGE_FILE": str(data),
            "MUTANTS_DURATIONS": str(durations),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
        }
        command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "durations_plugin", "-p", "no:cacheprovider"]
        command += ["--cov=foretext", "--cov-context=test", "--cov-report=", *tests]
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        took = json.loads(durations.read_text())
        covered = CoverageData(str(data))
        covered.read()
        tests_of = {
            mutant["id"]: covering(covered, mutant, took) for mutant in json.loads(LIST.read_text(encoding="utf-8"))
        }
    out.write_text(json.dumps({"seconds": took, "tests": tests_of}))
    print("no test covers:", [number for number, tests in tests_of.items() if not tests])


def covering(covered: Any, mutant: dict, took: dict[str, float]) -> list[str]:
    path = ROOT / mutant["file"]
    lines = covered.contexts_by_lineno(str(path))
    place = line_of(mutant, path)
    if place is None:
        return []
    on_line = {context.partition("|")[0] for context in lines.get(place + 1, ())} & took.keys()
    in_file = {context.partition("|")[0] for contexts in lines.values() for context in contexts} & took.keys()
    return sorted(on_line or in_file)


def line_of(mutant: dict, path: Path) -> int | None:
    """Where the mutant's line is now, from 0; None if it is gone."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    places = [number for number, line in enumerate(lines) if line == mutant["before"]]
    return places[mutant["nth"]] if len(places) > mutant["nth"] else None


def kill_all(known: dict, out: Path, only: list[str] | None, workers: int) -> None:
    mutants = [mutant for mutant in json.loads(LIST.read_text(encoding="utf-8")) if not only or mutant["id"] in only]
    results = json.loads(out.read_text()) if out.exists() else {}
    trees: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(workers):
            trees.put(copy_of_tree(Path(folder) / str(number)))

        def measure(mutant: dict) -> None:
            tree = trees.get()
            chosen = in_turn(known["tests"][mutant["id"]], known["seconds"])
            begun = time.monotonic()
            fate, by = kill(mutant, chosen, tree)
            results[mutant["id"]] = {"fate": fate, "by": by, "tests": len(chosen)}
            print(f"{mutant['id']} {fate:9s} {time.monotonic() - begun:5.1f} s  {by}", flush=True)
            out.write_text(json.dumps(results, indent=1, sort_keys=True))
            trees.put(tree)

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(measure, [mutant for mutant in mutants if only or mutant["id"] not in results]))
    print(Counter(result["fate"] for result in results.values()))


def copy_of_tree(target: Path) -> Path:
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(exist_ok=True)
            shutil.copy(source, target / name)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "foretext", "tests"], cwd=target, check=True)
    return target


def in_turn(tests: list[str], seconds: dict[str, float]) -> list[str]:
    """One case of each test function, then another of each; the quickest first; as many as may be taken."""
    by_function: dict[str, list[str]] = {}
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        by_function.setdefault(test.partition("[")[0], []).append(test)
    turns = max(map(len, by_function.values()), default=0)
    ordered = [cases[turn] for turn in range(turns) for cases in by_function.values() if turn < len(cases)]
    chosen, total = [], 0.0
    for test in ordered:
        total += seconds[test]
        if chosen and total > OF_TESTS:
            break
        chosen.append(test)
    files = {test.partition("::")[0]: place for place, test in reversed(list(enumerate(chosen)))}
    return sorted(chosen, key=lambda test: files[test.partition("::")[0]])


def kill(mutant: dict, tests: list[str], tree: Path) -> tuple[str, str]:
    """What became of it, and which test noticed."""
    path = tree / mutant["file"]
    place = line_of(mutant, path)
    if place is None:
        return "gone", ""
    if not tests:
        return "uncovered", ""
    whole = path.read_text(encoding="utf-8")
    lines = whole.splitlines()
    lines[place] = mutant["after"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        old.unlink()
    try:
        code, output = outcome(tests, tree)
    finally:
        path.write_text(whole, encoding="utf-8")
    if code is None:
        return "timeout", ""
    if code == 0:
        return "survived", ""
    noticed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = noticed[0][:200] if noticed else f"exit code {code}"
    failed = next((place for place, test in enumerate(tests) if f" {test}" in f"{by} "), len(tests) - 1)
    if outcome(tests[: failed + 1], tree)[0] != 0:
        return "unclear", f"fails without the mutant too: {by}"
    return "killed", by


def outcome(tests: list[str], tree: Path) -> tuple[int | None, str]:
    """How the tests end in this tree, by pytest's exit code (None: not within a minute), and what it says."""
    arguments = tree / "tests.txt"
    arguments.write_text("\n".join(tests) + "\n")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", f"@{arguments}"]
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        with_children(process)


def with_children(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def compare(before: dict, after: dict) -> None:
    noticed = {"killed", "timeout"}
    for name, results in (("before", before), ("after", after)):
        print(name, dict(Counter(result["fate"] for result in results.values())))
    killed = [{number for number in results if results[number]["fate"] in noticed} for results in (before, after)]
    gone = {number for number in after if after[number]["fate"] == "gone"}
    lost, won = sorted(killed[0] - killed[1] - gone), sorted(killed[1] - killed[0])
    print("gone:", sorted(gone))
    print("killed only after:", won)
    print("killed only before:", lost)
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
