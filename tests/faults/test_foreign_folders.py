"""Folders from elsewhere that are broken or mean harm: one line each, nothing run, nothing written."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from systems_under_test import Evil, base_model

import foretext as ft
from foretext.errors import UserError
from foretext.interop.exchange import import_model
from foretext.interop.hub import export_hub
from foretext.text.tokenizer import END
from foretext.train.budget import Budget
from foretext.train.pretrain import pretrain
from foretext.train.pretrain_request import PretrainRequest


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
        ({"n_embd": float("inf")}, ("n_embd", "number")),
        ({"n_embd": 10**400}, ("n_embd", "number")),
        ({"n_layer": 1}, ("transformer.h.1.", "has no place")),
        ({"vocab_size": -5}, ("config.json", "vocab")),
        ({"model_type": ["gpt2"]}, ("model_type",)),
        ({"resid_pdrop": None}, ("resid_pdrop", "number")),
        ({"resid_pdrop": 0.5}, ("resid_pdrop 0.5", "make them equal")),
        ({"eos_token_id": 17}, ("eos_token_id 17", "another model's tokenizer")),
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
    assert any("</s> ends a text there, and is called <|endoftext|> here" in note for note in notes)
    (folder / "tokenizer_config.json").unlink()
    settings(folder, eos_token_id=None, bos_token_id=None)
    unknown = ft.load(import_model(folder, folder.parent / "other")).model
    assert set(unknown.tokenizer.specials) == {"</s>"}, "nothing says what it is"


def test_special_ids_that_belong_to_another_tokenizer(folder: Path) -> None:
    renamed_end(folder, "</s>")
    (folder / "tokenizer_config.json").unlink()
    settings(folder, eos_token_id=17)
    refused(folder, "config.json has eos_token_id 17, which is the piece", "another model's tokenizer")
    settings(folder, eos_token_id=256)
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": {"content": "</s>"}}))
    settings(folder, pad_token_id=3)
    refused(folder, "</s> is id 256, but config.json has pad_token_id 3", "another model's tokenizer")
    settings(folder, pad_token_id=256)
    assert import_model(folder, folder.parent / "run").is_dir()


def test_what_a_tokenizer_puts_round_texts_is_said(folder: Path) -> None:
    (folder / "foretext_tokenizer.json").unlink()
    settings_file = folder / "tokenizer_config.json"
    settings_file.write_text(json.dumps(json.loads(settings_file.read_text()) | {"add_bos_token": True}))
    notes: list[str] = []
    import_model(folder, folder.parent / "run", notes=notes)
    assert len(notes) == 1 and "puts special tokens round every text by itself" in notes[0]


def test_a_tokenizer_that_would_cut_text_otherwise(folder: Path) -> None:
    (folder / "foretext_tokenizer.json").unlink()
    path = folder / "tokenizer.json"
    whole = json.loads(path.read_text())
    for changes, words in (
        ({"normalizer": {"type": "Lowercase"}}, ("normalizer",)),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}}, ("pre_tokenizer",)),
        ({"pre_tokenizer": {"type": "Whitespace"}}, ("pre_tokenizer",)),
        ({"added_tokens": [{"id": 3}]}, ("added_tokens",)),
        ({"added_tokens": [{"id": [1], "content": END}]}, ("is id 256 and id [1]",)),
        ({"added_tokens": [{"id": 3, "content": END}]}, ("is id", "and id 3")),
        ({"added_tokens": [{"id": 256, "content": END, "special": False}]}, ("was added as ordinary text",)),
        ({"model": whole["model"] | {"merges": [5]}}, ("merge", "5")),
        ({"model": whole["model"] | {"merges": 5}}, ("'merges' must be a list",)),
        ({"model": whole["model"] | {"vocab": {"a": "b", "c": 1}}}, ("ids are not 0",)),
    ):
        path.write_text(json.dumps(whole | changes))
        refused(folder, "tokenizer.json", *words)
    path.write_bytes(b"\xff\xfe{}")
    refused(folder, "tokenizer.json")


def test_pieces_of_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    where = {}
    for number, part in enumerate((names[:5], names[5:])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where | {names[0]: "../model.safetensors"}}))
    refused(folder, "../model.safetensors")
    index.write_text(json.dumps({"weight_map": where | {"nothing": "model-00001-of-00002.safetensors"}}))
    refused(folder, "nothing is not in it")
    index.write_text(json.dumps({"weight_map": where}))
    (folder / "model-00002-of-00002.safetensors").rename(folder / "aside")
    refused(folder, "model-00002-of-00002.safetensors", "missing")
    (folder / "aside").rename(folder / "model-00002-of-00002.safetensors")
    assert import_model(folder, folder.parent / "run").is_dir()


def test_what_a_trainer_leaves_beside_the_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    (folder / "training_args.bin").write_bytes(pickle.dumps(Evil(folder.parent / "ran")))
    assert import_model(folder, folder.parent / "run", allow_pickle=True).is_dir()
    assert not (folder.parent / "ran").exists()
    (folder / "pytorch_model.bin").rename(folder / "weights.pt")
    with pytest.raises(UserError, match=r"which of training_args\.bin, weights\.pt"):
        import_model(folder, folder.parent / "other", allow_pickle=True)


def test_the_folder_to_write_is_there_already(folder: Path) -> None:
    (folder.parent / "run").mkdir()
    (folder.parent / "run" / "mine.txt").write_text("keep")
    with pytest.raises(UserError, match="not an empty folder"):
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
    ours = ft.load(import_model(tmp_path / "model", tmp_path / "run"))
    config = transformers.OpenAIGPTConfig(
        vocab_size=len(arrays[1]), n_positions=len(arrays[0]), n_embd=64, n_layer=2, n_head=1
    )
    theirs = transformers.OpenAIGPTLMHeadModel(config).eval()
    names = ["positions_embed.weight", "tokens_embed.weight"]
    for layer in range(2):
        for part in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2"):
            names += [f"h.{layer}.{part}.weight", f"h.{layer}.{part}.bias"]
    weights = {
        f"transformer.{name}": torch.from_numpy(array.squeeze()) for name, array in zip(names, arrays, strict=True)
    }
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight", "transformer.position_ids"}
    theirs.tie_weights()
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(ours.logits(ids), expected, atol=1e-3, rtol=1e-4)


def test_going_on_from_a_model_without_end_of_text(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    write_openai(tmp_path / "model")
    run = import_model(tmp_path / "model", tmp_path / "run")
    with pytest.raises(UserError, match="give a prompt"):
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
    refused(folder, "params_9.npy")
    np.save(last, np.array([Evil(tmp_path / "ran")], dtype=object), allow_pickle=True)
    refused(folder, "params_9.npy")
    last.unlink()
    refused(folder, "params_*.npy", "numbers")
    last.write_bytes(data)
    shapes = (folder / "params_shapes.json").read_text()
    for wrong in ("[[1, 2], 3]", "[[], []]", shapes.replace("[1, 64, 192]", "[2, 32, 192]", 1)):
        (folder / "params_shapes.json").write_text(wrong)
        refused(folder, "params_shapes.json")
    (folder / "params_shapes.json").write_text(shapes)
    whole = np.load(last)
    for wrong_array in (np.full_like(whole, np.nan), whole.astype(int), np.array(["a"] * len(whole))):
        np.save(last, wrong_array)
        refused(folder)
    np.savez(folder / "zip.npz", whole)
    last.write_bytes((folder / "zip.npz").read_bytes())
    refused(folder, "params_9.npy")


@pytest.mark.parametrize("content", ["5", "null", '{"a": "b", "c": 1}', '{"a": true, "b": 1}', "[1]"])
def test_a_vocabulary_that_is_none(content: str, folder: Path) -> None:
    (folder / "foretext_tokenizer.json").unlink()
    (folder / "vocab.json").write_text(content)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    refused(folder, "vocab.json", "pieces and their ids")


def test_a_small_pickle_that_would_fill_the_memory(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.wpe.weight"] = torch.zeros(1).expand(10_000_000, 32)
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert (folder / "pytorch_model.bin").stat().st_size < 1_000_000
    settings(folder, n_positions=10_000_000)
    refused(folder, "pytorch_model.bin", "plain tensors", allow_pickle=True)


def test_a_configuration_without_an_end(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    refused(folder, "config.json", "not a file")
