"""The run directory without faults: commit, read, replace, remove, the log, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from complaints import names, refused

from foretext.errors import EXIT_MACHINE, UserError
from foretext.runs.directory import JOURNAL, MANIFEST, RunDirectory, newest_commit
from foretext.runs.lock import LOCK


def made(path: Path) -> RunDirectory:
    run = RunDirectory(path / "run")
    with run.writer() as writer:
        writer.commit(
            {"config.toml": b"a = 1\n", "model.safetensors": {"w": torch.arange(6.0)}, "training/position.json": b"{}"}
        )
    return run


def test_commit_and_read(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert run.exists()
    assert run.names() == ["config.toml", "model.safetensors", "training/position.json"]
    assert run.read("config.toml") == b"a = 1\n"
    assert newest_commit(run.path).path("config.toml") == run.path / "config.toml"
    assert torch.equal(run.load_tensors("model.safetensors")["w"], torch.arange(6.0))
    assert run.sizes()["config.toml"] == 6
    left = {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}
    assert left == {*run.names(), MANIFEST}, "no journal, no lock, no staging"


def test_a_later_commit_keeps_replaces_and_removes(tmp_path: Path) -> None:
    run = made(tmp_path)
    with run.writer() as writer:
        writer.commit({"config.toml": b"a = 2\n"}, remove=["training/position.json"])
        writer.commit({"labels.json": b"[]"})
    assert run.read("config.toml") == b"a = 2\n"
    assert run.names() == ["config.toml", "labels.json", "model.safetensors"]
    assert not run.has("training/position.json")
    assert not (run.path / "training").exists()
    assert run.load_tensors("model.safetensors").keys() == {"w"}


def test_tensors_that_are_mapped_stay_what_they_were(tmp_path: Path) -> None:
    run = made(tmp_path)
    with (run.path / "model.safetensors").open("rb") as old:
        tensors = run.load_tensors("model.safetensors")
        with run.writer() as writer:
            writer.commit({"model.safetensors": {"w": torch.full((6,), 9.0)}})
        assert torch.equal(tensors["w"], torch.arange(6.0))
        assert len(old.read()) > 0
    assert run.load_tensors("model.safetensors")["w"][0] == 9.0


def test_tensors_on_strides_and_with_gradients_are_stored(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3).requires_grad_()
    run = RunDirectory(tmp_path)
    with run.writer() as writer:
        writer.commit({"m.safetensors": {"t": weight.T}})
    assert torch.equal(run.load_tensors("m.safetensors")["t"], weight.detach().T)


def test_file_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        run = made(tmp_path)
    finally:
        os.umask(before)
    assert {(run.path / name).stat().st_mode & 0o777 for name in run.names()} == {0o640}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = made(tmp_path / "1"), made(tmp_path / "2")
    for name in [*one.names(), MANIFEST]:
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()


def test_not_a_run(tmp_path: Path) -> None:
    with refused(str(tmp_path), MANIFEST):
        RunDirectory(tmp_path).names()
    with refused(f"{tmp_path / 'x'}: ", "foretext pretrain", f"--out {tmp_path / 'x'}"):
        RunDirectory(tmp_path / "x").read("config.toml")
    (tmp_path / "x").write_text("x")
    with refused(str(tmp_path / "x"), "file"):
        RunDirectory(tmp_path / "x").read("config.toml")
    with refused(str(tmp_path / "x"), "file"), RunDirectory(tmp_path / "x").writer():
        pass
    assert not RunDirectory(tmp_path).has("config.toml")
    assert not RunDirectory(tmp_path).exists()
    run = made(tmp_path)
    with refused(str(run.path), "model.bin", "config.toml, model.safetensors"):
        run.read("model.bin")


def test_a_file_that_is_no_part_of_the_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("precious")
    with RunDirectory(tmp_path).writer() as writer, refused(str(tmp_path / "config.toml"), "--out"):
        writer.commit({"config.toml": b"x"})
    assert (tmp_path / "config.toml").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../x", ".x", "", "a//b", "a\\b", MANIFEST, JOURNAL, LOCK, "metrics.jsonl"]
)
def test_names_that_a_caller_may_not_use(tmp_path: Path, name: str) -> None:
    with RunDirectory(tmp_path).writer() as writer, pytest.raises(AssertionError):
        writer.commit({name: b"x"})


def test_a_failure_while_staging_leaves_nothing(tmp_path: Path) -> None:
    run = made(tmp_path)
    shared = torch.zeros(4)
    with run.writer() as writer:
        with pytest.raises(RuntimeError):  # safetensors refuses tensors that share memory
            writer.commit({"config.toml": b"new", "model.safetensors": {"a": shared, "b": shared}})
        assert not list(run.path.glob(".staging*"))
        writer.commit({"config.toml": b"newer"})
    assert run.read("config.toml") == b"newer"


def test_metrics(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    notices: list[str] = []
    with run.writer(notices.append) as writer:
        writer.log.append({"step": 1, "loss": float("nan"), "name": "é", "all": {"x": float("inf")}})
        length = writer.log.size()
        writer.log.append({"step": 2})
        assert [row["step"] for row in run.metrics()] == [1, 2], "flushed at once"
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 3, "lo')  # a torn line
    assert [row["step"] for row in run.metrics()] == [1, 2]
    with run.writer(notices.append) as writer:
        writer.log.truncate(length)
        writer.log.append({"step": 4})
    assert run.metrics() == [{"step": 1, "loss": None, "name": "é", "all": {"x": None}}, {"step": 4}]
    assert notices == []
    with run.writer(notices.append) as writer:
        (tmp_path / "metrics.jsonl").write_bytes(b'{"a": 1}\n{"b"')
        writer.log.truncate(1000)
        writer.log.append({"c": 1})
    assert run.metrics() == [{"a": 1}, {"c": 1}]
    names(notices[0], str(tmp_path / "metrics.jsonl"), "987")


def test_a_damaged_log_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"a": 1}\nxx\n')
    with refused("metrics.jsonl line 2"):
        RunDirectory(tmp_path).metrics()
    assert RunDirectory(tmp_path / "none").metrics() == []


def test_a_read_only_directory_is_a_clear_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    run = made(tmp_path)
    run.path.chmod(0o555)
    with pytest.raises(UserError) as caught, run.writer():
        pass
    assert caught.value.code == EXIT_MACHINE
    run.path.chmod(0o755)


def test_reading_without_torch(tmp_path: Path) -> None:
    run = made(tmp_path)
    code = (
        "import sys; from foretext.runs.directory import RunDirectory\n"
        f"print(RunDirectory({str(run.path)!r}).read('config.toml')); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "b'a = 1\\n'\n", done.stderr


def test_the_manifest_has_sizes_and_hashes(tmp_path: Path) -> None:
    manifest = json.loads((made(tmp_path).path / MANIFEST).read_text())
    assert manifest["format"] == 1
    assert manifest["files"]["training/position.json"] == {
        "bytes": 2,
        "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    }
