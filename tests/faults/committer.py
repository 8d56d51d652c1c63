"""The child of the kill tests: commits files that all carry one step number.

committer.py DIRECTORY loop         commits step after step, printing each when it is done, until it is killed
committer.py DIRECTORY hold         takes the lock, says so, waits

`one_step` is for a process that the test forks, and may kill itself on the way.
"""

import hashlib
import json
import os
import signal
import sys
import time

from foretext.runs import commit as committing
from foretext.runs.commit import RunWriter
from foretext.runs.directory import RunDirectory
from foretext.runs.lock import host_name

NAMES = ("config.toml", "model.safetensors", "training/position.json", "training/optimizer.safetensors")
ODD = "training/odd.json"  # only odd steps have it


def content(step: int) -> bytes:
    return f"{step}\n".encode() * 5000


def commit(writer: RunWriter, step: int) -> None:
    names = [*NAMES, ODD] if step % 2 else [*NAMES]
    writer.commit({name: content(step) for name in names}, remove=[] if step % 2 else [ODD])


def journal_of(run: RunDirectory, step: int) -> None:
    """An even step as a version that committed by a journal left it, killed after the journal was in its place."""
    staging = run.path / f".staging-{host_name()}-{2**22 + 1}-1-ab"
    staging.mkdir()
    contents = {name: (f"{number}-{name.rpartition('/')[2]}", content(step)) for number, name in enumerate(NAMES)}
    stamps = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, (_, data) in contents.items()
    }
    manifest = json.dumps({"format": 1, "files": stamps}).encode()
    contents["manifest.json"] = ("manifest.json", manifest)
    stamps["manifest.json"] = {"bytes": len(manifest), "sha256": hashlib.sha256(manifest).hexdigest()}
    for staged, data in contents.values():
        (staging / staged).write_bytes(data)
    files = {name: stamps[name] | {"staged": staged} for name, (staged, _) in contents.items()}
    journal = {"format": 1, "staging": staging.name, "files": files, "remove": [ODD]}
    (run.path / "commit.json").write_text(json.dumps(journal))


def step_of(run: RunDirectory) -> int:
    """The one step that all files are of; 0 before the first commit. Asserts that they agree."""
    if not run.exists():
        return 0
    read = {name: run.read(name) for name in run.names()}
    step = int(read["config.toml"].split()[0])
    assert all(data == content(step) for data in read.values()), f"mixed: {[(n, d[:9]) for n, d in read.items()]}"
    assert set(read) == ({*NAMES, ODD} if step % 2 else {*NAMES})
    return step


def one_step(run: RunDirectory, kill_before: int | None = None) -> list[str]:
    """Opens the directory and commits one step; dies by SIGKILL before stage `kill_before`. The stages' names."""
    seen: list[str] = []

    def at_stage(name: str) -> None:
        seen.append(name)
        if len(seen) == kill_before:
            os.kill(os.getpid(), signal.SIGKILL)

    committing.on_stage = at_stage
    try:
        with run.writer() as writer:
            commit(writer, step_of(run) + 1)
    finally:
        committing.on_stage = committing.no_stage
    return seen


def main(path: str, mode: str) -> None:
    run = RunDirectory(path)
    with run.writer() as writer:
        if mode == "hold":
            print("held", flush=True)
            time.sleep(60)
        step = step_of(run)
        while mode == "loop":
            step += 1
            commit(writer, step)
            print(step, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
