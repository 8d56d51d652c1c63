"""Files of an unfinished run that hold other tensors than the run has, and whose hashes fit (fault 24): each is refused
by the file and the tensor before any of it is used. The optimiser's kernels would write beyond a smaller tensor."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import names, refused
from safetensors.torch import load_file, save_file
from systems_under_test import base_model, pretrain_request, stopping_after, write_text
from torch import Tensor

from foretext.errors import Interrupted
from foretext.interop.hub import TABLES, _ours, shapes_of
from foretext.interop.hub_tensors import by_their_names
from foretext.nn.trunk import AveragedWeights
from foretext.runs.report import Reporter
from foretext.systems.gpt2 import GPT2
from foretext.tasks.files.rows import Row
from foretext.train.finetuning.finetune import FinetuneRequest, finetune
from foretext.train.loop import AVERAGE, CARRIED, CURRENT, OPTIMIZER
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest

MODEL = "model.safetensors"
Change = Callable[[dict[str, Tensor], str], None]


def stopped(folder: Path, system: str) -> PretrainRequest:
    """The request to go on with a run that was stopped after three steps."""
    request = pretrain_request(system, write_text(folder), folder / "run", 8)
    with stopping_after(3) as stop, pytest.raises(Interrupted):
        pretrain(request, stopping=stop)
    return replace(request, resume=True)


@pytest.fixture(scope="module", params=["gpt", "ulmfit", "xlnet", "transformer_xl"])
def unfinished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PretrainRequest:
    return stopped(tmp_path_factory.mktemp(request.param), request.param)


def shorter(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name][:1].clone() if tensors[name].ndim else tensors[name].repeat(2)


def flat(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name].reshape(-1, 1).clone()


def other_dtype(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name].to(torch.float16)


def missing(tensors: dict[str, Tensor], name: str) -> None:
    del tensors[name]


def not_finite(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = torch.full_like(tensors[name], torch.nan)


def renamed(tensors: dict[str, Tensor], name: str) -> None:
    tensors[f"{name}/nowhere"] = tensors[name].clone()


CHANGES = [shorter, flat, other_dtype, missing, not_finite, renamed]


def changed(run: Path, file: str, change: Change, number: int) -> str:
    """Changes one of the file's tensors and makes the hash fit; the tensor's name."""
    path = run / file
    tensors = load_file(path)
    name = sorted(key for key in tensors if tensors[key].is_floating_point() and tensors[key].numel() > 1)[number]
    change(tensors, name)
    save_file(tensors, path)
    renew_hash(run, file)
    return name


def renew_hash(run: Path, file: str) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    data = (run / file).read_bytes()
    manifest["files"][file] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_file_that_is_gone_on_with(unfinished: PretrainRequest, change: Change) -> None:
    run = unfinished.out
    files = [file for file in (OPTIMIZER, MODEL, CARRIED) if (run / file).exists()]
    assert (CARRIED in files) == (unfinished.system != "gpt")
    for file in files:
        before = {name: (run / name).read_bytes() for name in (file, "manifest.json")}
        name = changed(run, file, change, number=-1)
        with refused(str(run / file), name):
            pretrain(unfinished, Reporter())
        for part, data in before.items():
            (run / part).write_bytes(data)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_averages_and_the_weights_beside_them(change: Change, tmp_path: Path) -> None:
    """Cross-View Training keeps an average, and so the weights to go on with apart."""
    texts = [("a dark film", "no"), ("a bright day", "yes")] * 8
    rows = [Row((text,), label, f"row {number}") for number, (text, label) in enumerate(texts)]
    sets = ("training.batch_size=4", "training.save_seconds=1e9")
    request = FinetuneRequest(base_model("cvt"), rows, "classification", tmp_path / "run", epochs=2, sets=sets)
    with stopping_after(3) as stop, pytest.raises(Interrupted):
        finetune(request, stopping=stop)
    for file in (AVERAGE, CURRENT):
        before = {name: (tmp_path / "run" / name).read_bytes() for name in (file, "manifest.json")}
        name = changed(tmp_path / "run", file, change, number=-1)
        with refused(str(tmp_path / "run" / file), name):
            finetune(replace(request, resume=True))
        for part, data in before.items():
            (tmp_path / "run" / part).write_bytes(data)


def test_a_state_of_the_optimiser_that_lacks_a_parameter(unfinished: PretrainRequest) -> None:
    """All of its tensors, or those of everything: the run would go on, and be another one."""
    run = unfinished.out
    before = {name: (run / name).read_bytes() for name in (OPTIMIZER, "manifest.json")}
    for lacking in ("/", "trunk.tokens.weight/"):
        left = {key: tensor for key, tensor in load_file(run / OPTIMIZER).items() if lacking not in key}
        save_file(left, run / OPTIMIZER)
        renew_hash(run, OPTIMIZER)
        with refused(str(run / OPTIMIZER), "tensors"):
            pretrain(unfinished, Reporter())
        for part, data in before.items():
            (run / part).write_bytes(data)


@pytest.mark.parametrize("system", ["transformer_xl", "xlnet"])
def test_a_memory_longer_than_the_models(system: str, tmp_path: Path) -> None:
    request = stopped(tmp_path, system)
    states = load_file(request.out / CARRIED)
    longer = {name: state.repeat(1, 300, *[1] * (state.ndim - 2)) for name, state in states.items()}
    save_file(longer, request.out / CARRIED)
    renew_hash(request.out, CARRIED)
    with refused(str(request.out / CARRIED), "memory"):
        pretrain(request, Reporter())


def test_averages_of_fewer_than_no_updates() -> None:
    average = AveragedWeights({"w": torch.nn.Parameter(torch.zeros(2))}, 0.9)
    state = {**average.state_tensors(), "updates": torch.tensor(-1)}
    with refused("average.safetensors", "updates", "-1"):
        average.load_state(state, "average.safetensors")


@pytest.mark.parametrize("fault", ["object", "float", "bytes", "beyond"])
def test_shards_of_other_ids(fault: str, tmp_path: Path) -> None:
    """What a manifest says of its tokens decides how memory is read: objects are pointers (this ended the process)."""
    request = stopped(tmp_path, "gpt")
    tokens = request.out / "tokens"
    manifest = json.loads((tokens / "manifest.json").read_text())
    if fault == "beyond":
        shard = manifest["splits"]["train"]["shards"][0]
        data = np.full(shard["tokens"], 60_000, dtype="<u2").tobytes()
        (tokens / shard["name"]).write_bytes(data)
        shard["sha256"] = hashlib.sha256(data).hexdigest()
    else:
        manifest["dtype"] = {"object": "O", "float": "float16", "bytes": "S2"}[fault]
    (tokens / "manifest.json").write_text(json.dumps(manifest))
    where = shard["name"] if fault == "beyond" else "manifest.json"
    with refused(where, "shards"):
        pretrain(request, Reporter())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_imported_weights_are_numbers_with_a_fraction(dtype: torch.dtype) -> None:
    model = replace(GPT2.sizes["tiny"].model, vocabulary=9, layers=1, width=4, heads=1, context=4)
    weights = {name: torch.zeros(shape) for name, shape in shapes_of(GPT2, model).items()}
    theirs = by_their_names(weights, TABLES["gpt2"], model)
    name = next(name for name in theirs if name.endswith("wte.weight"))
    with refused("folder", "wte.weight", str(dtype).removeprefix("torch.")):
        _ours({**theirs, name: theirs[name].to(dtype)}, GPT2, TABLES["gpt2"], model, "folder")


def test_a_smaller_state_of_the_optimiser_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The real file, the real command: this ended in a corrupted heap."""
    request = stopped(tmp_path, "gpt")
    name = changed(request.out, OPTIMIZER, shorter, number=0)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "foretext", "pretrain", "--resume", "--out", str(request.out)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    complaint = [line for line in done.stderr.splitlines() if line.startswith("foretext: ")]
    assert len(complaint) == 1 and "Traceback" not in done.stderr
    names(complaint[0], OPTIMIZER, name)
