"""Folders from elsewhere that are broken or mean harm: one line each, nothing run, nothing written."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import names, refused
from safetensors.torch import load_file, save_file
from systems_under_test import Evil, base_model
from tolerance import close, doubles

import foretext as ft
from foretext.interop.exchange import import_model
from foretext.interop.hub import export_hub
from foretext.runs.run_config import Budget
from foretext.text.tokenizers.base import END
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_hub(base_model("gpt2"), tmp_path / "theirs")
    return tmp_path / "theirs"


def refuses(folder: Path, *parts: str, allow_pickle: bool = False) -> None:
    out = folder.parent / "run"
    with refused(*parts):
        import_model(folder, out, allow_pickle)
    assert not out.exists() and not (folder.parent / "ran").exists()


def test_whole_it_is_read(folder: Path) -> None:
    assert import_model(folder, folder.parent / "run").is_dir()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_malicious_pickle(name: str, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    data = pickle.dumps({"transformer.wte.weight": Evil(folder.parent / "ran")})
    (folder / name).write_bytes(data)
    refuses(folder, f"{folder / name}: ", "safetensors", "--allow-pickle")
    refuses(folder, f"{folder / name}: ", "restricted", allow_pickle=True)
    torch.save({"transformer.wte.weight": Evil(folder.parent / "ran")}, folder / name)
    refuses(folder, f"{folder / name}: ", "restricted", "posix.mkdir", allow_pickle=True)


def test_an_honest_pickle_is_read_when_it_is_allowed(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refuses(folder, "pytorch_model.bin: ", "--allow-pickle")
    assert import_model(folder, folder.parent / "run", allow_pickle=True).is_dir()


def test_a_truncated_file(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    for size in (0, 4, 100, len(data) // 2, len(data) - 1):
        (folder / "model.safetensors").write_bytes(data[:size])
        refuses(folder, f"{folder / 'model.safetensors'}: ", "again")


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_keys_and_shapes_are_named(folder: Path) -> None:
    file = f"{folder / 'model.safetensors'}: "
    changed(folder, lambda tensors: tensors.pop("transformer.h.1.mlp.c_fc.bias"))
    refuses(folder, file, "transformer.h.1.mlp.c_fc.bias", "missing")
    changed(folder, lambda tensors: tensors.update({"transformer.h.1.mlp.c_fc.bias": torch.zeros(7)}))
    refuses(folder, file, "transformer.h.1.mlp.c_fc.bias", "[7]", "config.json", "[128]")
    changed(folder, lambda tensors: tensors.update({"transformer.h.1.mlp.c_fc.bias": torch.full((128,), torch.nan)}))
    refuses(folder, file, "transformer.h.1.mlp.c_fc.bias", "finite")
    changed(folder, lambda tensors: tensors.update({"transformer.h.1.mlp.c_fc.bias": torch.zeros(128)}))
    changed(folder, lambda tensors: tensors.update({"score.weight": torch.zeros(2, 32)}))
    refuses(folder, file, "score.weight", "GPT2LMHeadModel", "config.json")


def settings(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_configuration_that_cannot_be(folder: Path) -> None:
    for changes, parts in (
        ({"model_type": "llama"}, ("config.json: model_type 'llama'", "openai-gpt, gpt2, bert")),
        ({"activation_function": "relu"}, ("config.json: activation_function", "'relu'", "'gelu_new'")),
        ({"n_layer": 1000}, ("model.safetensors: ", "35,232", "config.json", "12,713,824")),
        ({"n_head": 5}, ("config.json: ", "model.width=32", "multiple", "model.heads=5")),
        ({"n_embd": "many"}, ("config.json: n_embd", "number", "many")),
        ({"n_embd": float("inf")}, ("config.json: n_embd", "number", "inf")),
        ({"n_embd": 10**400}, ("config.json: n_embd", "number", "1000000000")),
        ({"n_layer": 1}, ("model.safetensors: transformer.h.1.", "GPT2LMHeadModel", "config.json")),
        ({"vocab_size": -5}, ("config.json: vocab_size", "-5")),
        ({"model_type": ["gpt2"]}, ("config.json: model_type ['gpt2']", "openai-gpt, gpt2, bert")),
        ({"resid_pdrop": None}, ("config.json: resid_pdrop", "number", "None")),
        ({"resid_pdrop": 0.5}, ("config.json: ", "resid_pdrop 0.5, embd_pdrop 0.0, attn_pdrop 0.0", "equal")),
        ({"eos_token_id": 17}, ("foretext_tokenizer.json: ", END, "256", "config.json", "eos_token_id 17")),
    ):
        before = (folder / "config.json").read_bytes()
        settings(folder, **changes)
        refuses(folder, *parts)
        (folder / "config.json").write_bytes(before)
    (folder / "config.json").write_text("[1, 2")
    refuses(folder, "config.json: ", "JSON", "line 1 column 6")
    (folder / "config.json").unlink()
    refuses(folder, "config.json: missing")


def test_another_models_tokenizer(folder: Path) -> None:
    own = folder / "foretext_tokenizer.json"
    data = json.loads(own.read_text())
    data["merges"] = ["a b", "c d"]
    own.write_text(json.dumps(data))
    refuses(folder, "foretext_tokenizer.json: ", "259", "257")
    own.unlink()
    (folder / "tokenizer.json").unlink()
    refuses(folder, f"{folder}: ", "vocab.json", "merges.txt", "tokenizer.json")


def renamed_end(folder: Path, name: str) -> None:
    """The folder as another would have written it, with another name for its end of text."""
    (folder / "foretext_tokenizer.json").unlink()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        path = folder / file
        path.write_text(path.read_text().replace(END, name))


def test_an_end_of_text_of_another_name(folder: Path) -> None:
    renamed_end(folder, "</s>")
    notes: list[str] = []
    model = ft.load(import_model(folder, folder.parent / "run", notes=notes)).model
    assert model.tokenizer.specials[END] == 256 and "</s>" not in model.tokenizer.specials
    assert len(notes) == 1
    names(notes[0], "</s>", END)
    (folder / "tokenizer_config.json").unlink()
    settings(folder, eos_token_id=None, bos_token_id=None)
    unknown = ft.load(import_model(folder, folder.parent / "other")).model
    assert set(unknown.tokenizer.specials) == {"</s>"}, "nothing says what it is"


def test_special_ids_that_belong_to_another_tokenizer(folder: Path) -> None:
    renamed_end(folder, "</s>")
    (folder / "tokenizer_config.json").unlink()
    settings(folder, eos_token_id=17)
    refuses(folder, f"{folder / 'tokenizer.json'}: ", "config.json", "eos_token_id 17", r"'\x11'")
    settings(folder, eos_token_id=256)
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": {"content": "</s>"}}))
    settings(folder, pad_token_id=3)
    refuses(folder, f"{folder / 'tokenizer.json'}: ", "</s>", "id 256", "config.json", "pad_token_id 3")
    settings(folder, pad_token_id=256)
    assert import_model(folder, folder.parent / "run").is_dir()


def test_what_a_tokenizer_puts_round_texts_is_said(folder: Path) -> None:
    (folder / "foretext_tokenizer.json").unlink()
    settings_file = folder / "tokenizer_config.json"
    settings_file.write_text(json.dumps(json.loads(settings_file.read_text()) | {"add_bos_token": True}))
    notes: list[str] = []
    import_model(folder, folder.parent / "run", notes=notes)
    assert len(notes) == 1
    names(notes[0], "tokenizer", "special")


def test_a_tokenizer_that_would_cut_text_otherwise(folder: Path) -> None:
    (folder / "foretext_tokenizer.json").unlink()
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    for changes, parts in (
        ({"normalizer": {"type": "Lowercase"}}, ("normalizer",)),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}}, ("pre_tokenizer",)),
        ({"pre_tokenizer": {"type": "Whitespace"}}, ("pre_tokenizer",)),
        ({"added_tokens": [{"id": 3}]}, ("'added_tokens'", "content", "id")),
        ({"added_tokens": [{"id": [1], "content": END}]}, (f"'{END}'", "id 256", "id [1]")),
        ({"added_tokens": [{"id": 3, "content": END}]}, (f"'{END}'", "id 256", "id 3")),
        ({"added_tokens": [{"id": 256, "content": END, "special": False}]}, (f"'{END}'", "special")),
        ({"model": whole["model"] | {"merges": [5]}}, ("merge", "5")),
        ({"model": whole["model"] | {"merges": 5}}, ("'merges'", "list")),
        ({"model": whole["model"] | {"vocab": {"a": "b", "c": 1}}}, ("ids", "0 … 2")),
    ):
        path.write_text(json.dumps(whole | changes))
        refuses(folder, f"{path}: ", *parts)
    path.write_bytes(b"\xff\xfe{}")
    refuses(folder, f"{path}: ", "JSON", "0xff")


def test_pieces_of_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    keys = sorted(tensors)
    (folder / "model.safetensors").unlink()
    where = {}
    for number, part in enumerate((keys[:5], keys[5:])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where | {keys[0]: "../model.safetensors"}}))
    refuses(folder, f"{index}: ", "'../model.safetensors'")
    index.write_text(json.dumps({"weight_map": where | {"nothing": "model-00001-of-00002.safetensors"}}))
    refuses(folder, f"{folder / 'model-00001-of-00002.safetensors'}: ", "nothing", index.name)
    index.write_text(json.dumps({"weight_map": where}))
    (folder / "model-00002-of-00002.safetensors").rename(folder / "aside")
    refuses(folder, f"{folder / 'model-00002-of-00002.safetensors'}: missing", index.name)
    (folder / "aside").rename(folder / "model-00002-of-00002.safetensors")
    assert import_model(folder, folder.parent / "run").is_dir()


def test_what_a_trainer_leaves_beside_the_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    (folder / "training_args.bin").write_bytes(pickle.dumps(Evil(folder.parent / "ran")))
    assert import_model(folder, folder.parent / "run", allow_pickle=True).is_dir()
    assert not (folder.parent / "ran").exists()
    (folder / "pytorch_model.bin").rename(folder / "weights.pt")
    with refused(f"{folder}: ", "training_args.bin, weights.pt", "pytorch_model.bin"):
        import_model(folder, folder.parent / "other", allow_pickle=True)


def test_the_folder_to_write_is_there_already(folder: Path) -> None:
    (folder.parent / "run").mkdir()
    (folder.parent / "run" / "mine.txt").write_text("keep")
    with refused(str(folder.parent / "run"), "folder", "--out"):
        import_model(folder, folder.parent / "run")
    assert (folder.parent / "run" / "mine.txt").read_text() == "keep"


# -- OpenAI's files ----------------------------------------------------------------------------------------------------


def write_openai(folder: Path, layers: int = 2, width: int = 64, context: int = 16) -> list[np.ndarray]:
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
    return [array.astype(np.float32) for array in arrays]


def test_openais_layout(tmp_path: Path) -> None:
    """The reference, filled from the same arrays in the order in which they were published, gives the same logits."""
    pytest.importorskip("spacy")
    transformers = pytest.importorskip("transformers")
    arrays = write_openai(tmp_path / "model")
    config = transformers.OpenAIGPTConfig(
        vocab_size=len(arrays[1]), n_positions=len(arrays[0]), n_embd=64, n_layer=2, n_head=1
    )
    with doubles():
        ours = ft.load(import_model(tmp_path / "model", tmp_path / "run"))
        theirs = transformers.OpenAIGPTLMHeadModel(config).eval()
    places = ["positions_embed.weight", "tokens_embed.weight"]
    for layer in range(2):
        for part in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2"):
            places += [f"h.{layer}.{part}.weight", f"h.{layer}.{part}.bias"]
    weights = {
        f"transformer.{name}": torch.from_numpy(array.squeeze()) for name, array in zip(places, arrays, strict=True)
    }
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight", "transformer.position_ids"}
    theirs.tie_weights()
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0]
    close(ours.logits(ids), expected, terms=1, precision=torch.float32)  # which are handed out in float32


def test_going_on_from_a_model_without_end_of_text(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    write_openai(tmp_path / "model")
    run = import_model(tmp_path / "model", tmp_path / "run")
    with refused("end-of-text", "prompt"):
        ft.load(run).generate("", max_tokens=2)
    text = tmp_path / "text.txt"
    text.write_text("a b c d e f g\n" * 60)
    request = PretrainRequest((str(text),), tmp_path / "longer", None, None, Budget(steps=2), start=run)
    longer = ft.load(pretrain(request))
    assert longer.model.model_config.vocabulary == ft.load(run).model.model_config.vocabulary + 1
    assert longer.model.tokenizer.specials == {END: longer.model.model_config.vocabulary - 1}


def test_openais_layout_broken(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    folder = tmp_path / "model"
    write_openai(folder)
    last = folder / "params_9.npy"
    data = last.read_bytes()
    last.write_bytes(data[:-10])
    refuses(folder, f"{last}: ")
    np.save(last, np.array([Evil(tmp_path / "ran")], dtype=object), allow_pickle=True)
    refuses(folder, f"{last}: ")
    last.unlink()
    refuses(folder, f"{folder}: ", "9 files", "params_*.npy", "params_shapes.json", "102,080")
    last.write_bytes(data)
    shapes = (folder / "params_shapes.json").read_text()
    for wrong, parts in (
        ("[[1, 2], 3]", (f"{folder / 'params_shapes.json'}: ", "shapes")),
        ("[[], []]", (f"{folder}: ", "10 files", "params_shapes.json", "2")),
        (shapes.replace("[1, 64, 192]", "[2, 32, 192]", 1), ("params_shapes.json: array 2", "[192, 32]", "[192, 64]")),
    ):
        (folder / "params_shapes.json").write_text(wrong)
        refuses(folder, *parts)
    (folder / "params_shapes.json").write_text(shapes)
    whole = np.load(last)
    for wrong_array, parts in (
        (np.full_like(whole, np.nan), ("params_shapes.json: array 22 (", "finite")),
        (whole.astype(int), (f"{last}: ", "floating-point")),
        (np.array(["a"] * len(whole)), (f"{last}: ", "floating-point")),
    ):
        np.save(last, wrong_array)
        refuses(folder, *parts)
    np.savez(folder / "zip.npz", whole)
    last.write_bytes((folder / "zip.npz").read_bytes())
    refuses(folder, f"{last}: ")


@pytest.mark.parametrize("content", ["5", "null", '{"a": "b", "c": 1}', '{"a": true, "b": 1}', "[1]"])
def test_a_vocabulary_that_is_none(content: str, folder: Path) -> None:
    (folder / "foretext_tokenizer.json").unlink()
    (folder / "vocab.json").write_text(content)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    refuses(folder, f"{folder / 'vocab.json'}: ", "ids")


def test_a_small_pickle_that_would_fill_the_memory(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.wpe.weight"] = torch.zeros(1).expand(10_000_000, 32)
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert (folder / "pytorch_model.bin").stat().st_size < 1_000_000
    settings(folder, n_positions=10_000_000)
    refuses(folder, "pytorch_model.bin: ", "plain", allow_pickle=True)


def test_a_configuration_without_an_end(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    refuses(folder, "config.json: ", "JSON", "500 MB")
