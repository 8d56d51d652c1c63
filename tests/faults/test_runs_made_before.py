"""Runs that were written before the manifest became the one pointer of a commit: they load, predict and go on.

`data/runs_before` has a finished pre-trained run, a fine-tuned one that was stopped after five of sixteen steps, and
the same one killed in the middle of the commit after step seven: half of its files are still in the staging folder that
its journal, `commit.json`, names. (No lock is kept: another host's is never taken over.)
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tolerance import close

import foretext
from foretext.runs.directory import RunDirectory
from foretext.runs.model import load_model
from foretext.runs.run_config import is_finished, read_position
from foretext.tasks.files.rows import Row
from foretext.train.finetuning.finetune import FinetuneRequest, finetune

BEFORE = Path(__file__).parents[1] / "data" / "runs_before"
TEXTS = ["The cat sees fish.", "The old man likes a red ball."]
PERPLEXITY = 257.1128078022209
QUESTIONS = ["the cat is good", "the dog is bad"]
CHANCES = [[0.4989238109294835, 0.5010761890705164], [0.5289059583336249, 0.47109404166637514]]
TERMS = 500  # roundings on the way through one layer of eight states


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a run names the one that it started from as the command line did
    return Path(shutil.copytree(BEFORE, tmp_path / "runs")).relative_to(tmp_path)


def request(out: Path) -> FinetuneRequest:
    how = (("good", "yes"), ("bad", "no"), ("fine", "yes"), ("poor", "no"))
    told = [(f"the {who} is {what}", label) for who in ("cat", "dog", "child", "man") for what, label in how]
    rows = [Row((text,), label, f"row {number}") for number, (text, label) in enumerate(told, start=1)]
    sets = ("training.batch_size=4", "training.micro_batch=3", "training.log_samples=true")
    sets += ("training.save_seconds=1000000",)
    base = load_model(out.parent / "pretrained")
    return FinetuneRequest(base, rows, "classification", out, epochs=4, sets=sets, resume=True)


def samples(run: RunDirectory) -> list[object]:
    return [(row["step"], row["samples"]) for row in run.metrics() if "samples" in row]


def test_a_pretrained_run_is_read(runs: Path) -> None:
    model = foretext.load(runs / "pretrained")
    assert is_finished(RunDirectory(runs / "pretrained"))
    close(model.perplexity(TEXTS).per_token, PERPLEXITY, terms=TERMS, precision=torch.float32)
    assert model.generate("The", max_tokens=3)


@pytest.mark.parametrize(("name", "step"), [("stopped", 5), ("killed", 7)])
def test_an_unfinished_run_predicts_and_goes_on(runs: Path, name: str, step: int) -> None:
    run = RunDirectory(runs / name)
    assert (run.path / "commit.json").exists() == (name == "killed")
    assert read_position(run).step == step
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    model = foretext.load(run.path)
    close(model.predict_proba(QUESTIONS), CHANCES, terms=TERMS, precision=torch.float32)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before, (
        "reading changes nothing"
    )
    finetune(request(run.path))
    assert is_finished(run) and read_position(run).step == 16
    whole = RunDirectory(runs / "whole")
    finetune(request(whole.path))
    assert samples(run) == samples(whole) and len(samples(run)) == 16
    assert run.names() == whole.names()
    assert {path.name for path in run.path.iterdir()} == {path.name for path in whole.path.iterdir()}


def test_what_is_gone_on_with_ends_in_the_same_weights(runs: Path) -> None:
    """Both are the same run, two steps apart; the processor that made them may have rounded otherwise."""
    ends = []
    for name in ("stopped", "killed"):
        finetune(request(runs / name))
        ends.append(RunDirectory(runs / name).load_tensors("model.safetensors"))
    close(ends[0], ends[1], terms=16 * TERMS)
