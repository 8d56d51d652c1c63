"""Files that a user got from elsewhere: code in them never runs, and what does not belong together is refused."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import pytest
from cli_harness import MINUTE, fails, works
from complaints import names
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
    for command in (
        ["pretrain", name, "--steps", 1, "--out", "run"],
        ["finetune", base, name, "--task", "classification", "--out", "run"],
        ["predict", clf, name],
        ["evaluate", base, name],
        ["features", base, name, "--out", "v.parquet"],
        ["pretrain", "--vocabulary", name, name, "--steps", 1, "--out", "run"],
    ):
        names(fails(*command), name)
    for verb in (["info"], ["generate"], ["predict", "--text", "x"], ["tokens", "x"]):
        names(fails(verb[0], name, *verb[1:]), name, "directory")
    assert not Path("ran").exists() and not Path("run").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.toml"])
def test_a_pickle_inside_a_run(name: str, evil: bytes, base: Path, here: Path) -> None:
    run = here / "run"
    shutil.copytree(base, run)
    (run / name).write_bytes(evil)
    names(fails("generate", run), f"{run / name}: ", f"{len(evil)} bytes", "manifest.json")
    repair_manifest(run, name)
    assert "manifest.json" not in names(fails("generate", run), f"{run / name}: ")
    assert not Path("ran").exists()


def test_a_pickle_as_position(evil: bytes, base: Path, here: Path) -> None:
    shutil.copytree(base, "run")
    Path("run/training/position.json").write_bytes(evil)
    repair_manifest(here / "run", "training/position.json")
    for command in (["info", "run"], ["info", "run", "--json"], ["pretrain", "--out", "run", "--resume"]):
        assert "manifest.json" not in names(fails(*command), "run/training/position.json: ")
    assert not Path("ran").exists()


def test_another_models_tokenizer(base: Path, files: Path, here: Path) -> None:
    """Of the same size, with the manifest repaired: refused by what it is."""
    run = here / "run"
    shutil.copytree(base, run)
    data = json.loads((run / "tokenizer.json").read_text())
    data["merges"][-1], data["merges"][-2] = data["merges"][-2], data["merges"][-1]
    (run / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    names(fails("generate", run), f"{run / 'tokenizer.json'}: ", "manifest.json")
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
        assert "manifest.json" not in names(fails(*command), f"{run / 'tokenizer.json'}: ", "trained")
    assert not Path("x").exists()


def test_another_models_weights(base: Path, files: Path, here: Path) -> None:
    shape = [part.replace("width=32", "width=64") for part in MINUTE]
    works("pretrain", files / "text.txt", "--steps", 1, "--out", "wide", *shape)
    shutil.copytree(base, "run")
    shutil.copy("wide/model.safetensors", "run/model.safetensors")
    repair_manifest(here / "run", "model.safetensors")
    names(fails("generate", "run"), "run/model.safetensors: ", "trunk.tokens.weight", "[345, 64]", "[345, 32]")


def test_flipped_bits_are_named(base: Path, here: Path) -> None:
    shutil.copytree(base, "run")
    data = bytearray(Path("run/model.safetensors").read_bytes())
    data[-5] ^= 1
    Path("run/model.safetensors").write_bytes(data)
    names(fails("generate", "run"), "run/model.safetensors: ", "SHA-256", "manifest.json")


ALTERED = [
    ('"step": 4', '"step": -5'),
    ('"step": 4', '"step": true'),
    ('"seconds": ', '"seconds": -'),
    ('"finished": true', '"finished": 3'),
]


@pytest.mark.parametrize(("old", "new"), ALTERED, ids=[new for _, new in ALTERED])
def test_a_position_that_no_run_can_have(old: str, new: str, base: Path, here: Path) -> None:
    shutil.copytree(base, "run")
    name = "training/position.json"
    path = Path("run", name)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    repair_manifest(Path("run"), name)
    for command in (["info", "run"], ["info", "run", "--json"], ["pretrain", "--out", "run", "--resume"]):
        assert "manifest.json" not in names(fails(*command), "run/training/position.json: ")


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("heads", "0", ("altered/config.toml: ", "model.heads", "0")),
        ("layers", "900", ("altered/model.safetensors: ", "[model]", "config.toml", "11,445,760")),
        ("width", "80000000", ("altered/model.safetensors: ", "[model]", "config.toml", "153,600,032,480,000,000")),
        ("kind", '"zzz"', ("altered/config.toml: ", "task.kind 'zzz'", "classification, entailment")),
    ],
    ids=["heads", "layers", "width", "kind"],
)
def test_an_altered_configuration_is_refused_at_once(
    key: str, value: str, parts: tuple[str, ...], clf: Path, here: Path
) -> None:
    shutil.copytree(clf, "altered")
    config = Path("altered/config.toml")
    lines = config.read_text().splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.startswith(f"{key} = ")]
    lines[places[-1 if key == "kind" else 0]] = f"{key} = {value}\n"  # of [task] or of [model]
    config.write_text("".join(lines))
    repair_manifest(Path("altered"), "config.toml")
    names(fails("predict", "altered", "--text", "good"), *parts)
