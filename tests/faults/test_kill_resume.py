"""Training killed at random moments, signalled, starved of memory or robbed of its shards (faults 1, 5, 7, 10, 16).

Children are forked from this process, which has torch loaded and runs it on one thread, so each costs no start-up.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import names, refused
from systems_under_test import (
    EVEN,
    PRETRAINED,
    SMALL_READER,
    TINY,
    base_model,
    pretrain_request,
    stopping_after,
    write_text,
)

from foretext.cli.output import Stopper
from foretext.errors import EXIT_MACHINE, Interrupted, UserError
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter
from foretext.runs.run_config import Budget, is_finished
from foretext.tasks.files.rows import Row
from foretext.train.finetuning.finetune import FinetuneRequest, finetune
from foretext.train.loop import Loop
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest

pytestmark = pytest.mark.skipif(torch.get_num_threads() != 1, reason="forking needs torch on one thread")


def warm() -> None:
    """What training imports only when it needs it, imported once here instead of in each child."""
    import sklearn.metrics  # noqa: F401


def in_child(work: Callable[[], Any], said: Path | None = None) -> int:
    """Runs `work` as the command line would, in a forked process: exit code, and its one line in `said`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except (UserError, Interrupted) as error:
        code = error.code
        if said is not None:
            said.write_text(str(error))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def sample_log(path: Path) -> list[tuple[int, int, list[int]]]:
    return [(row["step"], row["epoch"], row["samples"]) for row in RunDirectory(path).metrics() if "samples" in row]


def wait_for_step(pid: int, run: RunDirectory, step: int) -> None:
    """Until the child's log shows that it has come to `step`."""
    while True:
        log = run.path / "metrics.jsonl"
        lines = log.read_bytes().splitlines() if log.exists() else []
        if any(f'"step": {step},'.encode() in line for line in lines) or step == 0:
            return
        done, status = os.waitpid(pid, os.WNOHANG)
        assert not done, f"the child ended by itself before step {step}: {status}"
        time.sleep(0.001)


def killed_until_finished(work: Callable[[], Any], run: RunDirectory, steps: int, seed: int, kills: int = 10) -> int:
    """`work` killed at random moments, then left to end. How many kills hit it after a checkpoint."""
    moments = random.Random(seed)
    hits = 0
    for step in sorted(moments.randrange(steps * 9 // 10) for _ in range(kills)):
        pid = in_child(work)
        wait_for_step(pid, run, step)
        time.sleep(moments.uniform(0.0, 0.02))
        os.kill(pid, signal.SIGKILL)
        assert code_of(pid) == -signal.SIGKILL
        hits += run.exists() and run.has("training/position.json")
    assert code_of(in_child(work)) == 0
    return hits


# -- SIGKILL ---------------------------------------------------------------------------------------------------------


SPLIT = ("training.optimizer=adamw", "training.dropout=0.1", "training.micro_batch=3")
STEP_TOKENS = 4 * 16  # rows of a batch, and their context: `small_of`


WAYS = {
    "steps-plain": (Budget(steps=120), ()),
    "tokens-split": (Budget(tokens=119 * STEP_TOKENS + 1), SPLIT),  # the 120th step is the one that reaches it
}
# Each system three times in one of the two ways; ten times in both ways with `make test-all`.
KILLED = [(system, list(WAYS)[number % 2], 3) for number, system in enumerate(PRETRAINED)]
KILLED_OFTEN = [pytest.param(system, way, 10, marks=pytest.mark.thorough) for system in PRETRAINED for way in WAYS]


@pytest.mark.parametrize(("system", "way", "kills"), [*KILLED, *KILLED_OFTEN])
def test_pretraining_killed_at_random(system: str, way: str, kills: int, tmp_path: Path) -> None:
    warm()
    budget, sets = WAYS[way]
    text = write_text(tmp_path)
    sets = ("training.save_seconds=0.05", "training.log_samples=true", "training.evaluations=3", *sets)
    request = pretrain_request(system, text, tmp_path / "whole", 120, *sets, budget=budget)
    assert code_of(in_child(lambda: pretrain(request))) == 0
    again = replace(request, out=tmp_path / "killed", resume=True)
    hits = killed_until_finished(lambda: pretrain(again), RunDirectory(again.out), 120, len(sets), kills)
    assert hits >= kills // 3
    whole, killed = RunDirectory(request.out), RunDirectory(again.out)
    assert killed.read("model.safetensors") == whole.read("model.safetensors")
    log = sample_log(request.out)
    steps = 120 if budget.tokens is None or system in EVEN else len(log)
    assert sample_log(again.out) == log and [step for step, *_ in log] == list(range(steps)) and steps >= 120
    assert log[-1][1] >= 2, "epochs ended on the way"
    assert killed.names() == whole.names()
    left = {path.name for path in again.out.iterdir()} - {path.name for path in request.out.iterdir()}
    assert not left, "nothing of the dead is left"
    steps = [row["step"] for row in killed.metrics() if "validation" in row]
    assert steps == [row["step"] for row in whole.metrics() if "validation" in row]


def test_the_mean_of_the_tail_killed_four_times(tmp_path: Path) -> None:
    """Short windows come first, and the weights of the last half of the run are averaged."""
    warm()
    sets = ("training.save_seconds=0.02", "training.log_samples=true", "training.tail=0.5", "training.cautious=true")
    sets += ("objective.early=0.3", "objective.early_length=0.5", "training.table_rate=2", "training.vector_rate=0.5")
    request = pretrain_request("modern", write_text(tmp_path), tmp_path / "whole", 80, *sets)
    assert code_of(in_child(lambda: pretrain(request))) == 0
    again = replace(request, out=tmp_path / "killed", resume=True)
    assert killed_until_finished(lambda: pretrain(again), RunDirectory(again.out), 80, 5, kills=4) >= 2
    whole, killed = RunDirectory(request.out), RunDirectory(again.out)
    assert killed.read("model.safetensors") == whole.read("model.safetensors")
    assert sample_log(again.out) == sample_log(request.out) and killed.names() == whole.names()
    last = replace(request, out=tmp_path / "last", sets=(*request.sets, "training.tail=0"))
    assert code_of(in_child(lambda: pretrain(last))) == 0
    assert RunDirectory(last.out).read("model.safetensors") != whole.read("model.safetensors")


def test_pretraining_on_pairs_of_segments_killed_four_times(tmp_path: Path) -> None:
    """XLNet's rows then remember half of what they read, and the other half is drawn."""
    warm()
    sets = ("training.save_seconds=0.02", "training.log_samples=true", "training.micro_batch=3")
    sets += ("objective.pairs=true", "model.context=24", "objective.length=1.0")
    request = pretrain_request("xlnet", write_text(tmp_path), tmp_path / "whole", 80, *sets)
    assert code_of(in_child(lambda: pretrain(request))) == 0
    again = replace(request, out=tmp_path / "killed", resume=True)
    assert killed_until_finished(lambda: pretrain(again), RunDirectory(again.out), 80, 5, kills=4) >= 2
    whole, killed = RunDirectory(request.out), RunDirectory(again.out)
    assert killed.read("model.safetensors") == whole.read("model.safetensors")
    log = sample_log(request.out)
    assert sample_log(again.out) == log and [step for step, *_ in log] == list(range(80))
    assert log[-1][1] >= 1, "an epoch ended on the way"


def finetune_request(system: str, out: Path, epochs: int) -> FinetuneRequest:
    draw = random.Random(0)
    rows = []
    for number in range(40):
        word = draw.choice(["good", "bad"])
        filler = " ".join(draw.choice(["it", "is", "so"]) for _ in range(draw.randint(1, 5)))
        rows.append(Row((f"{filler} {word}",), word, f"row {number + 1}"))
    sets = (
        "training.save_seconds=0.05",
        "training.log_samples=true",
        "training.batch_size=8",
        "training.micro_batch=3",
        *SMALL_READER[system],
    )
    return FinetuneRequest(base_model(system), rows, "classification", out, epochs=epochs, sets=sets, resume=True)


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("system", TINY)
def test_fine_tuning_killed_at_random(system: str, kills: int, tmp_path: Path) -> None:
    warm()
    request = finetune_request(system, tmp_path / "whole", 12)
    assert code_of(in_child(lambda: finetune(request))) == 0
    again = replace(request, out=tmp_path / "killed")
    run = RunDirectory(tmp_path / "killed")
    assert killed_until_finished(lambda: finetune(again), run, 60, 1, kills) >= kills // 3
    whole = RunDirectory(tmp_path / "whole")
    assert run.read("model.safetensors") == whole.read("model.safetensors")
    assert sample_log(run.path) == sample_log(whole.path)
    shown = [[row["validation"] for row in each.metrics() if "validation" in row] for each in (run, whole)]
    assert shown[0] == shown[1] and len(shown[0]) == 12


def test_learning_from_unlabelled_text_too_killed_four_times(tmp_path: Path) -> None:
    """Cross-view training has a batch of sentences after each labelled one, and averages its weights over all."""
    warm()
    text = [f"{who} {does} it" for who in ("he", "she", "a dog") for does in ("is", "saw", "so likes", "wants")]
    request = replace(finetune_request("cvt", tmp_path / "whole", 2), unlabelled=text)
    assert code_of(in_child(lambda: finetune(request))) == 0
    log = sample_log(request.out)
    assert [step for step, *_ in log] == list(range(20)), "34 rows, eight a step, and as many steps of text"
    again = replace(request, out=tmp_path / "killed")
    run, whole = RunDirectory(again.out), RunDirectory(request.out)
    assert killed_until_finished(lambda: finetune(again), run, 20, 2, kills=4) >= 2
    assert run.read("model.safetensors") == whole.read("model.safetensors")
    assert sample_log(again.out) == log


# -- SIGINT and SIGTERM ----------------------------------------------------------------------------------------------


def with_stopper(request: PretrainRequest) -> None:
    with Stopper() as stopper:
        pretrain(request, stopping=stopper)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_and_writes_a_checkpoint(number: int, code: int, tmp_path: Path) -> None:
    text = write_text(tmp_path)
    request = pretrain_request("gpt", text, tmp_path / "run", 120, "training.log_samples=true", resume=True)
    said = tmp_path / "said"
    pid = in_child(lambda: with_stopper(request), said)
    wait_for_step(pid, RunDirectory(request.out), 10)
    os.kill(pid, number)
    assert code_of(pid) == code
    run = RunDirectory(request.out)
    assert "\n" not in names(said.read_text(), str(run.path), "--resume")
    assert run.has("training/optimizer.safetensors") and not is_finished(run)
    logged = len(sample_log(request.out))
    notes: list[str] = []

    class Notes(Reporter):
        def note(self, text: str) -> None:
            notes.append(text)

    pretrain(request, Notes())
    assert len(notes) == 1
    names(notes[0], f"step {logged}")  # no step that was done is done again
    whole = replace(request, out=tmp_path / "whole")
    pretrain(whole)
    assert run.read("model.safetensors") == RunDirectory(whole.out).read("model.safetensors")
    assert sample_log(run.path) == sample_log(whole.out)


# -- shards ----------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize("harm", [flip, lambda path: path.write_bytes(path.read_bytes()[:-2]), Path.unlink])
def test_a_harmed_shard_is_named_before_the_first_step(
    split: str, harm: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = stopped_early(tmp_path)
    shard = next((request.out / "tokens").glob(f"{split}*"))
    harm(shard)
    monkeypatch.setattr(Loop, "_step", None)
    with refused(f"{shard}: ", f"pretrain TEXT --from {request.out} --out ANOTHER"):
        pretrain(request)


def test_a_missing_list_of_shards_is_not_made_anew_under_a_checkpoint(tmp_path: Path) -> None:
    request = stopped_early(tmp_path)
    (request.out / "tokens" / "manifest.json").unlink()
    with refused("tokens/manifest.json: missing", f"pretrain TEXT --from {request.out} --out ANOTHER"):
        pretrain(request)


def test_shards_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    request = stopped_early(tmp_path)
    manifest = request.out / "tokens" / "manifest.json"
    fingerprint = RunDirectory(request.out).read("config.toml").decode().split('tokenizer = "')[1][:64]
    manifest.write_text(manifest.read_text().replace(fingerprint, "0" * 64))
    with refused(f"{request.out / 'tokens'}: ", "tokenizer"):
        pretrain(request)


def stopped_early(folder: Path, *sets: str) -> PretrainRequest:
    request = pretrain_request("gpt", write_text(folder), folder / "run", 8, *sets)
    with stopping_after(3) as stop:
        assert code_of(in_child(lambda: pretrain(request, stopping=stop))) == 130
    return replace(request, resume=True)


# -- memory ----------------------------------------------------------------------------------------------------------


STARVED = """
import resource, sys
from pathlib import Path
from foretext.errors import UserError
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest
import torch
torch.set_num_threads(1)
(torch.ones(64, 64) @ torch.ones(64, 64)).sum()  # what the library sets aside for itself
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000, used + 60_000_000))
try:
    pretrain(PretrainRequest((), Path(sys.argv[1]), resume=True))
except UserError as error:
    print(error)
    sys.exit(error.code)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures its address space by /proc")
def test_out_of_memory_is_one_line_and_leaves_the_checkpoint(tmp_path: Path) -> None:
    """In a new process whose address space may grow by 60 MB: one that was forked has free memory of its parent's."""
    sets = ("model.width=256", "model.context=64", "training.batch_size=128", "training.micro_batch=128")
    request = stopped_early(tmp_path, *sets)
    run = RunDirectory(request.out)
    before = {name: run.read(name) for name in run.names()}
    command = [sys.executable, "-c", STARVED, str(request.out)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (EXIT_MACHINE, "")
    assert len(ended.stdout.splitlines()) == 1
    names(ended.stdout, "memory", "--set training.micro_batch=64", "128")
    assert {name: run.read(name) for name in run.names()} == before


def test_on_two_threads_too(tmp_path: Path) -> None:
    """As a user runs it: another process each time, both cores, killed after its first checkpoints."""
    text = write_text(tmp_path, 200)
    shape = ("model.layers=2", "model.width=128", "model.heads=4", "model.context=64", "tokenizer.size=400")
    sets = [word for one in (*shape, "training.save_seconds=0.01", "training.dropout=0.1") for word in ("--set", one)]
    command = [sys.executable, "-m", "foretext", "pretrain", str(text), "--steps", "30", *sets]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run([*command, "--out", str(whole)], env=environment, check=True, capture_output=True)
    again = [*command, "--out", str(parts), "--resume"]
    kills = 0
    for _ in range(2):
        running = subprocess.Popen(again, env=environment, stderr=subprocess.DEVNULL)
        position = parts / "training" / "position.json"
        before = position.read_bytes() if position.exists() else b""
        while running.poll() is None and (not position.exists() or position.read_bytes() == before):
            time.sleep(0.005)
        kills += running.poll() is None
        running.kill()
        running.wait()
    assert kills, "never killed while it ran"
    subprocess.run(again, env=environment, check=True, capture_output=True)
    a, b = (RunDirectory(path).load_tensors("model.safetensors") for path in (whole, parts))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
