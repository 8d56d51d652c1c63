"""Folders from elsewhere that are broken or mean harm: one line each, nothing run, nothing written."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from systems_under_test import base_model

from foretext.errors import UserError
from foretext.interop.exchange import import_model
from foretext.interop.hub import export_hub


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_hub(base_model("gpt2"), tmp_path / "theirs")
    return tmp_path / "theirs"


def refused(folder: Path, *words: str, allow_pickle: bool = False) -> None:
    out = folder.parent / "run"
    with pytest.raises(UserError) as error:
        import_model(folder, out, allow_pickle)
    message = str(error.value)
    assert "\n" not in message and all(word in message for word in words), message
    assert not out.exists() and not (folder.parent / "ran").exists()


def test_whole_it_is_read(folder: Path) -> None:
    assert import_model(folder, folder.parent / "run").is_dir()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_malicious_pickle(name: str, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    data = pickle.dumps({"transformer.wte.weight": Evil(folder.parent / "ran")})
    (folder / name).write_bytes(data)
    refused(folder, name, "can run code", "--allow-pickle")
    refused(folder, name, "nothing in it was run", allow_pickle=True)
    torch.save({"transformer.wte.weight": Evil(folder.parent / "ran")}, folder / name)
    refused(folder, name, "nothing in it was run", allow_pickle=True)


def test_an_honest_pickle_is_read_when_it_is_allowed(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refused(folder, "can run code")
    assert import_model(folder, folder.parent / "run", allow_pickle=True).is_dir()


def test_a_truncated_file(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    for size in (0, 4, 100, len(data) // 2, len(data) - 1):
        (folder / "model.safetensors").write_bytes(data[:size])
        refused(folder, "model.safetensors", "safetensors")


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_keys_and_shapes_are_named(folder: Path) -> None:
    changed(folder, lambda tensors: tensors.pop("transformer.h.1.mlp.c_fc.bias"))
    refused(folder, "transformer.h.1.mlp.c_fc.bias", "missing")
    changed(folder, lambda tensors: tensors.update({"transformer.h.1.mlp.c_fc.bias": torch.zeros(7)}))
    refused(folder, "transformer.h.1.mlp.c_fc.bias", "[7]", "[128]")
    changed(folder, lambda tensors: tensors.update({"transformer.h.1.mlp.c_fc.bias": torch.full((128,), torch.nan)}))
    refused(folder, "transformer.h.1.mlp.c_fc.bias", "not finite")
    changed(folder, lambda tensors: tensors.update({"transformer.h.1.mlp.c_fc.bias": torch.zeros(128)}))
    changed(folder, lambda tensors: tensors.update({"score.weight": torch.zeros(2, 32)}))
    refused(folder, "score.weight")


def settings(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_configuration_that_cannot_be(folder: Path) -> None:
    for changes, words in (
        ({"model_type": "llama"}, ("llama", "gpt2")),
        ({"activation_function": "relu"}, ("activation_function", "relu")),
        ({"n_layer": 1000}, ("numbers where config.json needs",)),
        ({"n_head": 5}, ("multiple",)),
        ({"n_embd": "many"}, ("n_embd", "number")),
    ):
        before = (folder / "config.json").read_bytes()
        settings(folder, **changes)
        refused(folder, *words)
        (folder / "config.json").write_bytes(before)
    (folder / "config.json").write_text("[1, 2")
    refused(folder, "config.json", "JSON")
    (folder / "config.json").unlink()
    refused(folder, "config.json", "missing")


def test_another_models_tokenizer(folder: Path) -> None:
    own = folder / "foretext_tokenizer.json"
    data = json.loads(own.read_text())
    data["merges"] = ["a b", "c d"]
    own.write_text(json.dumps(data))
    refused(folder, "another model's tokenizer")
    own.unlink()
    (folder / "tokenizer.json").unlink()
    refused(folder, "no tokenizer here")


def test_the_folder_to_write_is_there_already(folder: Path) -> None:
    (folder.parent / "run").mkdir()
    (folder.parent / "run" / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="not an empty folder"):
        import_model(folder, folder.parent / "run")
    assert (folder.parent / "run" / "mine.txt").read_text() == "keep"


# -- OpenAI's files ----------------------------------------------------------------------------------------------------


def write_openai(folder: Path, layers: int = 2, width: int = 64, context: int = 16) -> dict[str, np.ndarray]:
    """Random weights in the published layout, with a vocabulary of a few symbols."""
    draw = np.random.default_rng(0)
    pieces = ["<unk>", *"abcdefg", *(f"{letter}</w>" for letter in "abcdefg"), "ab</w>", "\n</w>"]
    folder.mkdir()
    (folder / "encoder_bpe_40000.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "vocab_40000.bpe").write_text("#version: 0.2\na b</w>\n")
    arrays = [draw.normal(size=(context, width)), draw.normal(size=(len(pieces), width))]
    for _ in range(layers):
        for size in ((width, 3 * width), (width, width), None, (width, 4 * width), (4 * width, width), None):
            if size is None:
                arrays += [draw.normal(size=width), draw.normal(size=width)]
            else:
                arrays += [draw.normal(size=(1, *size)), draw.normal(size=size[1])]
    (folder / "params_shapes.json").write_text(json.dumps([list(array.shape) for array in arrays]))
    whole = np.concatenate([array.reshape(-1) for array in arrays]).astype(np.float32)
    for number, part in enumerate(np.array_split(whole, 10)):
        np.save(folder / f"params_{number}.npy", part)
    return {"positions": arrays[0], "tokens": arrays[1], "qkv": arrays[2][0]}


def test_openais_layout(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    from foretext.train.rundir import RunDirectory

    arrays = write_openai(tmp_path / "model")
    run = RunDirectory(import_model(tmp_path / "model", tmp_path / "run"))
    tensors = run.load_tensors("model.safetensors")
    for name, key in (("trunk.positions.weight", "positions"), ("trunk.tokens.weight", "tokens")):
        np.testing.assert_array_equal(tensors[name].numpy(), arrays[key].astype(np.float32))
    np.testing.assert_array_equal(tensors["trunk.blocks.0.attention.qkv.weight"].numpy().T, arrays["qkv"].astype("f4"))


def test_openais_layout_broken(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    folder = tmp_path / "model"
    write_openai(folder)
    last = folder / "params_9.npy"
    data = last.read_bytes()
    last.write_bytes(data[:-10])
    refused(folder, "params_9.npy")
    np.save(last, np.array([Evil(tmp_path / "ran")], dtype=object), allow_pickle=True)
    refused(folder, "params_9.npy")
    last.unlink()
    refused(folder, "params_*.npy", "numbers")
    last.write_bytes(data)
    (folder / "params_shapes.json").write_text("[[1, 2], 3]")
    refused(folder, "params_shapes.json")
