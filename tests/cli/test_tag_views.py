"""`finetune --task tagging --views`, and every verb on the run that it makes."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from cli_harness import fails, works
from complaints import names
from safetensors.numpy import load_file, save_file

from foretext.tasks.files.conll import read_conll

TAGS = ("--task", "tagging")
VECTORS = ("--set", "model.width=8", "--set", "objective.lsa=3", "--set", "training.batch_size=300", "--threads", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    lines = []
    for number in range(24):
        who, what = ("Ann", "Bob", "王")[number % 3], ("sees", "likes")[number % 2]
        lines += ["the O", "old O", f"{who} B-PER", "Stone I-PER", f"{what} O", ". O", ""]
        lines += [f"{who} B-PER", f"{what} O", "it O", "" if number % 4 else "!!! O\n"]
    (folder / "tags.txt").write_text("\n".join(lines) + "\n")
    text = [f"the old {who} {what} it ." for who in ("ann", "bob", "stone") for what in ("sees", "likes")] * 40
    (folder / "text.txt").write_text("\n".join(text) + "\n")
    works("pretrain", folder / "text.txt", "--system", "word2vec", "--minutes", 1, *VECTORS, "--out", folder / "words")
    return folder


@pytest.fixture(scope="module")
def views(folder: Path) -> Path:
    said = works("finetune", folder / "words", folder / "tags.txt", *TAGS, "--out", folder / "run")
    assert "by cross-validation" in said.out and "most frequent tag of each word: f1" in said.out
    return folder / "run"


def test_a_word2vec_run_has_views_without_being_asked(views: Path) -> None:
    written = {path.name for path in (views / "views").iterdir()}
    assert written == {"views.json", "head.safetensors", "ngrams.safetensors", "vectors.safetensors"}
    shown = works("info", views).out
    assert "ngrams" in shown and "vectors" in shown and "most frequent tag" in shown


def test_predict_and_evaluate(folder: Path, views: Path, tmp_path: Path) -> None:
    works("predict", views, folder / "tags.txt", "--out", tmp_path / "said.txt")
    gold = read_conll(folder / "tags.txt")
    assert [row.tags for row in read_conll(tmp_path / "said.txt", column=3)] == [row.tags for row in gold]
    found = json.loads(works("evaluate", views, folder / "tags.txt", "--json").out)
    assert found["values"]["f1"] == 1.0
    said = works("predict", views, "--text", "the old Ann Stone likes zebras", "--json").out
    assert json.loads(said)["prediction"] == ["O", "O", "B-PER", "I-PER", "O", "O"]
    assert all(0.0 < own <= 1.0 for own in json.loads(said)["probability"])


def test_explain(folder: Path, views: Path, tmp_path: Path) -> None:
    works("predict", views, folder / "tags.txt", "--explain", "--out", tmp_path / "why.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "why.csv").read_text())))
    assert len(rows) == sum(len(row.words) for row in read_conll(folder / "tags.txt"))
    assert all(name in row["why"] for row in rows for name in ("ngrams", "vectors", "neighbours"))
    assert len(json.loads(works("predict", views, "--text", "Ann sees", "--explain", "--json").out)["why"]) == 2
    names(fails("predict", views, "--text", "Ann sees", "--explain"), "--explain", "--json")


def test_states_of_any_trunk(folder: Path, base: Path, tmp_path: Path) -> None:
    run, given = tmp_path / "run", ("--views", "ngrams,vectors,states", "--vectors", folder / "words")
    said = works("finetune", base, folder / "tags.txt", *TAGS, *given, "--valid", folder / "tags.txt", "--out", run)
    assert "validation rows" in said.out
    assert (run / "views" / "states.safetensors").exists()
    one = json.loads(works("predict", run, "--text", "the old Ann Stone likes", "--json").out)
    works("predict", run, folder / "tags.txt", "--out", tmp_path / "said.jsonl")
    many = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert one["prediction"] == ["O", "O", "B-PER", "I-PER", "O"]
    assert len(many) == len(read_conll(folder / "tags.txt"))


def test_finished_is_said_and_none_trains(folder: Path, views: Path, tmp_path: Path) -> None:
    again = ("finetune", folder / "words", folder / "tags.txt", *TAGS)
    assert "finished" in works(*again, "--out", views, "--resume").err
    works(*again, "--views", "none", "--epochs", 1, "--set", "transfer.reader.cells=4", "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "views").exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--views", "lsa"), ("--views lsa", "tagging", "ngrams,vectors,states")),
        (("--views", "ngrams,states"), ("--views states", "word2vec")),
    ],
)
def test_mistakes(folder: Path, tmp_path: Path, options: tuple[str, ...], parts: tuple[str, ...]) -> None:
    run = tmp_path / "run"
    names(fails("finetune", folder / "words", folder / "tags.txt", *TAGS, *options, "--out", run), *parts)
    assert not run.exists()


def test_other_tags_are_refused(views: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("Ann B-LOC\nsees V\n\n")
    names(fails("evaluate", views, tmp_path / "other.txt"), "other.txt", "--columns")


def spoiled(views: Path, run: Path, name: str, spoil: str) -> Path:
    """A copy in which a tensor of a file is one row short, its hash made to match."""
    import hashlib

    shutil.copytree(views, run)
    file = run / "views" / name
    tensors = load_file(file)
    save_file({key: own[:-1].copy() if key == spoil else own for key, own in tensors.items()}, file)
    manifest = json.loads((run / "manifest.json").read_text())
    for key, entry in manifest["files"].items():
        if (run / key).exists():
            data = (run / key).read_bytes()
            entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("head.safetensors", "chain.transitions"),
        ("head.safetensors", "weight.ngrams.own"),
        ("vectors.safetensors", "groups"),
    ],
)
def test_files_that_do_not_fit_are_refused(views: Path, tmp_path: Path, name: str, tensor: str) -> None:
    run = spoiled(views, tmp_path / "run", name, tensor)
    names(fails("predict", run, "--text", "Ann sees"), "views", "restore")


@pytest.mark.parametrize("name", ["views.json", "head.safetensors", "vectors.safetensors"])
def test_flipped_bytes_are_refused(views: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(views, run)
    data = bytearray((run / "views" / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / "views" / name).write_bytes(data)
    names(fails("predict", run, "--text", "Ann sees"), name)


THREADS = str(torch.get_num_threads())  # those of this process, so that the child's sums are rounded as here


def test_a_kill_leaves_nothing_half_written(folder: Path, views: Path, tmp_path: Path) -> None:
    """Killed while the head is fitted; the same command with --resume then ends in the run of an undisturbed one."""
    command = ["finetune", str(folder / "words"), str(folder / "tags.txt"), *TAGS, "--out", str(tmp_path / "run")]
    child = subprocess.Popen(
        [sys.executable, "-c", "from foretext.cli.app import main; main()", *command],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": THREADS},
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "threads" in line:
            break
    time.sleep(0.05)
    child.kill()
    child.wait()
    run = tmp_path / "run"
    assert (run / "views").exists() == (run / "model.safetensors").exists()
    works(*command, "--resume")
    for name in ("head.safetensors", "ngrams.safetensors", "vectors.safetensors"):
        assert (run / "views" / name).read_bytes() == (views / "views" / name).read_bytes()


def test_a_tag_that_one_sentence_has(folder: Path, tmp_path: Path) -> None:
    """Whichever sentence it is, it is learned from: nothing is held out."""
    usual = "the O\nAnn B-PER\nsees O\n\n"
    for place in (0, 7, 13, 19):
        blocks = [usual.replace("Ann", f"Ann{number}") for number in range(20)]
        blocks[place] = "Rome B-LOC\n\n"
        (tmp_path / "rare.txt").write_text("".join(blocks))
        run = tmp_path / f"run{place}"
        works("finetune", folder / "words", tmp_path / "rare.txt", *TAGS, "--out", run)
        said = json.loads(works("predict", run, "--text", "Rome", "--json").out)
        assert said["prediction"] == ["B-LOC"]
