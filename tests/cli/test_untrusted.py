"""Files that a user got from elsewhere: code in them never runs, and what does not belong together is refused."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import pytest
from cli_harness import MINUTE, fails, works
from systems_under_test import Evil


@pytest.fixture
def evil(here: Path) -> bytes:
    """A pickle that makes the folder `ran` when it is loaded."""
    data = pickle.dumps(Evil(here / "ran"))
    pickle.loads(data)
    assert Path("ran").is_dir(), "the fixture must be able to do harm"
    Path("ran").rmdir()
    return data


def repair_manifest(run: Path, name: str) -> None:
    """Makes the manifest fit a file that was put there, as an attacker would."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    data = (run / name).read_bytes()
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["e.pt", "e.bin", "e.pkl", "e.npy", "e.txt", "e.jsonl", "e.parquet", "e.csv"])
def test_a_pickle_under_any_name(name: str, evil: bytes, base: Path, clf: Path) -> None:
    Path(name).write_bytes(evil)
    fails("pretrain", name, "--steps", 1, "--out", "run")
    fails("finetune", base, name, "--task", "classification", "--out", "run")
    fails("predict", clf, name)
    fails("evaluate", base, name)
    fails("features", base, name, "--out", "v.parquet")
    for verb in (["info"], ["generate"], ["predict", "--text", "x"], ["tokens", "x"]):
        assert "not a run directory but a file" in fails(verb[0], name, *verb[1:])
    fails("pretrain", "--vocabulary", name, name, "--steps", 1, "--out", "run")
    assert not Path("ran").exists() and not Path("run").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.toml"])
def test_a_pickle_inside_a_run(name: str, evil: bytes, base: Path, here: Path) -> None:
    run = here / "run"
    shutil.copytree(base, run)
    (run / name).write_bytes(evil)
    assert name in fails("generate", run)
    repair_manifest(run, name)
    assert name in fails("generate", run)
    assert not Path("ran").exists()


def test_a_pickle_as_position(evil: bytes, base: Path, here: Path) -> None:
    shutil.copytree(base, "run")
    Path("run/training/position.json").write_bytes(evil)
    repair_manifest(here / "run", "training/position.json")
    for command in (["info", "run"], ["info", "run", "--json"], ["pretrain", "--out", "run", "--resume"]):
        assert "position.json: not a position" in fails(*command)
    assert not Path("ran").exists()


def test_another_models_tokenizer(base: Path, files: Path, here: Path) -> None:
    """Of the same size, with the manifest repaired: refused by what it is."""
    run = here / "run"
    shutil.copytree(base, run)
    data = json.loads((run / "tokenizer.json").read_text())
    data["merges"][-1], data["merges"][-2] = data["merges"][-2], data["merges"][-1]
    (run / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    assert "tokenizer.json" in fails("generate", run)
    repair_manifest(run, "tokenizer.json")
    rows, text = files / "cls.csv", files / "text.txt"
    for command in (
        ["generate", run],
        ["tokens", run, "x"],
        ["info", run],
        ["evaluate", run, text],
        ["finetune", run, rows, "--task", "classification", "--out", "x"],
        ["pretrain", text, "--from", run, "--steps", 1, "--out", "x"],
    ):
        assert "tokenizer.json: not the tokenizer that this model was trained with" in fails(*command)
    assert not Path("x").exists()


def test_another_models_weights(base: Path, files: Path, here: Path) -> None:
    shape = [part.replace("width=32", "width=64") for part in MINUTE]
    works("pretrain", files / "text.txt", "--steps", 1, "--out", "wide", *shape)
    shutil.copytree(base, "run")
    shutil.copy("wide/model.safetensors", "run/model.safetensors")
    repair_manifest(here / "run", "model.safetensors")
    assert "the file belongs to another model" in fails("generate", "run")


def test_flipped_bits_are_named(base: Path, here: Path) -> None:
    shutil.copytree(base, "run")
    data = bytearray(Path("run/model.safetensors").read_bytes())
    data[-5] ^= 1
    Path("run/model.safetensors").write_bytes(data)
    assert "run/model.safetensors: damaged" in fails("generate", "run")


ALTERED = [
    ("training/position.json", '"step": 4', '"step": -5', "position.json: not a position"),
    ("training/position.json", '"step": 4', '"step": true', "position.json: not a position"),
    ("training/position.json", '"seconds": ', '"seconds": -', "position.json: not a position"),
    ("training/position.json", '"finished": true', '"finished": 3', "position.json: not a position"),
]


@pytest.mark.parametrize(("name", "old", "new", "words"), ALTERED, ids=[new for _, _, new, _ in ALTERED])
def test_a_position_that_no_run_can_have(name: str, old: str, new: str, words: str, base: Path, here: Path) -> None:
    shutil.copytree(base, "run")
    path = Path("run", name)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    repair_manifest(Path("run"), name)
    assert words in fails("info", "run")
    assert words in fails("info", "run", "--json")
    assert words in fails("pretrain", "--out", "run", "--resume")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("heads", "0", "model.heads must be at least 1"),
        ("layers", "900", "numbers where [model] in config.toml needs"),
        ("width", "80000000", "numbers where [model] in config.toml needs"),
        ("kind", '"zzz"', "zzz"),
    ],
)
def test_an_altered_configuration_is_refused_at_once(key: str, value: str, words: str, clf: Path, here: Path) -> None:
    shutil.copytree(clf, "altered")
    config = Path("altered/config.toml")
    lines = config.read_text().splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.startswith(f"{key} = ")]
    lines[places[-1 if key == "kind" else 0]] = f"{key} = {value}\n"  # of [task] or of [model]
    config.write_text("".join(lines))
    repair_manifest(Path("altered"), "config.toml")
    assert words in fails("predict", "altered", "--text", "good")
