"""How many files of foretext/ a user's data crosses: `python tests/walks.py` prints a table for four verbs.

A file counts for a verb if one of its functions or methods runs between the verb's start and its end, in this process,
with a minute GPT. Imports, class bodies and what dataclasses write themselves do not count.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = str(ROOT / "foretext") + os.sep
SMALL = ("model.layers=1", "model.width=16", "model.heads=2", "model.context=32", "tokenizer.size=300")
SETS = [word for one in (*SMALL, "training.batch_size=4") for word in ("--set", one)]
VERBS = {
    "pretrain": ["pretrain", "text.txt", "--steps", "3", "--out", "base", *SETS],
    "finetune": ["finetune", "base", "rows.csv", "--task", "classification", "--epochs", "1", "--out", "clf"],
    "predict": ["predict", "clf", "rows.csv", "--out", "said.csv"],
    "generate": ["generate", "base", "--prompt", "a good", "--max-tokens", "4"],
}


def crossed(words: list[str]) -> set[str]:
    """Runs a verb and says which files it crossed."""
    files: set[str] = set()

    def heard(frame, event, argument):  # type: ignore[no-untyped-def]
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
            return
        name = code.co_filename.removeprefix(PACKAGE)
        if name not in files and code.co_flags & inspect.CO_OPTIMIZED and not _importing(frame):
            files.add(name)

    sys.path.insert(0, str(ROOT))
    sys.argv = ["foretext", *words]
    from foretext.__main__ import main

    sys.setprofile(heard)
    try:
        main()
    except SystemExit as end:
        assert not end.code, f"foretext {' '.join(words)} ended with {end.code}"
    finally:
        sys.setprofile(None)
    return files


def _importing(frame: FrameType | None) -> bool:
    """Whether a function runs because a module is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def table() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text("a good film and a bad one\n" * 200)
        Path(folder, "rows.csv").write_text("text,label\n" + "a good film,pos\na bad film,neg\n" * 8)
        for verb in VERBS:
            done = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), verb], cwd=folder, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            names = done.stderr.split("\n== ")[-1].split()
            print(f"{verb:10} {len(names)} files")
            if "--files" in sys.argv:
                print("   " + "\n   ".join(names))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in VERBS:
        found = crossed(VERBS[sys.argv[1]])
        print("\n== " + " ".join(sorted(found)), file=sys.stderr)
    else:
        table()
