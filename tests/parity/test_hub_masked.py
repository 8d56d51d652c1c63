"""Folders of BERT, RoBERTa and ALBERT exchanged with `transformers`: what it wrote gives the same logits here, what we
write gives the same logits and ids there, what comes back in is what went out, and what is broken is refused in one
line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import complaints
import pytest
import torch
from complaints import names
from masked_references import (
    CORPUS,
    KIND,
    MASKED,
    SHAPES,
    assert_same_run,
    config_of,
    files_of,
    loaded,
    logits_here,
    masked_logits,
    ordinary_ids,
    pair_logits,
    reference,
    refused,
    same_logits,
    shaken,
    there,
    tokenizer_of,
    write_folder,
)
from safetensors.torch import load_file, save_file

from foretext.batch import Batch
from foretext.evaluate.fill import fill, filling_objective
from foretext.interop.exchange import export_model, import_model
from foretext.interop.hub import TABLES
from foretext.objectives.masked import MaskingConfig
from foretext.systems import SYSTEMS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("in_float64")

TEXTS = ["The cat's hat", "  so GOOD,\n\nfilm!", "那家酒店 yes", "1234 hats (ok)", "", "naïve Øre \U0001f600 x" * 3]
BASES = {"bert": "BertModel", "roberta": "RobertaModel", "albert": "AlbertModel"}
MASKED_LM = {"bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM", "albert": "AlbertForMaskedLM"}


@pytest.fixture(params=MASKED)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_and_out_and_in_again(system: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    tokenizer = tokenizer_of(system)
    theirs = reference(system, shape, tokenizer.size)
    write_folder(theirs, system, tokenizer, tmp_path / "theirs")
    notes: list[str] = []
    run = import_model(tmp_path / "theirs", tmp_path / "run", notes=notes)
    assert notes == [] and not loaded(run).config.data.head_drawn
    ids = ordinary_ids(tokenizer, 2, 20)
    with torch.no_grad():
        expected = theirs(input_ids=ids)
    assert masked_logits(expected).std() > 0.05
    tokens, pairs = logits_here(loaded(run), ids)
    same_logits(tokens, masked_logits(expected), shape)
    if pairs is not None:
        same_logits(pairs, pair_logits(expected), shape)

    assert export_model(run, tmp_path / "exported") == []
    for automatic in (transformers.AutoModelForMaskedLM, transformers.AutoModelForPreTraining):
        again = there(automatic, tmp_path / "exported")
        with torch.no_grad():
            found = again(input_ids=ids)
        same_logits(masked_logits(found), masked_logits(expected), shape)
    assert type(again) is type(theirs)
    if pairs is not None:
        same_logits(pair_logits(found), pair_logits(expected), shape)
    import_model(tmp_path / "exported", tmp_path / "second")
    assert_same_run(run, tmp_path / "second")


def test_ids_and_roles_there(system: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(system)
    write_folder(reference(system, SHAPES[0], tokenizer.size), system, tokenizer, tmp_path / "theirs")
    export_model(import_model(tmp_path / "theirs", tmp_path / "run"), tmp_path / "exported")
    own = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported", local_files_only=True)
    layout = SYSTEMS[system].build_layout(tokenizer.specials, 24, "forward")
    for text in [*TEXTS, *CORPUS[:4]]:
        assert own.encode(text, add_special_tokens=False) == tokenizer.encode(text), text
        assert own.encode(text) == list(layout.frame(tokenizer.encode(text)).ids), text
    pair = own("The cat", "so good film")
    frame = layout.frame(tokenizer.encode("The cat"), tokenizer.encode("so good film"))
    assert pair["input_ids"] == list(frame.ids)
    if frame.segments:
        assert pair["token_type_ids"] == list(frame.segments) and 1 in frame.segments
    else:
        assert "token_type_ids" not in pair
    first, separator, mask = TABLES[system].needs
    assert (own.cls_token, own.sep_token, own.mask_token) == (first, separator, mask)
    assert own.mask_token_id == tokenizer.specials[mask]
    assert own.pad_token == ("[PAD]" if system == "bert" else "<pad>")
    assert own.unk_token == ("[UNK]" if system == "bert" else "<unk>")
    assert own.model_max_length == 24


def test_a_folder_without_heads(system: str, tmp_path: Path) -> None:
    """As an encoder alone is saved: names without the prefix, here a pooler too, which RoBERTa has no use for."""
    tokenizer = tokenizer_of(system)
    theirs = reference(system, SHAPES[0], tokenizer.size, BASES[system])
    write_folder(theirs, system, tokenizer, tmp_path / "theirs")
    written = load_file(tmp_path / "theirs" / "model.safetensors")
    assert "embeddings.word_embeddings.weight" in written and any(name.startswith("pooler.") for name in written)
    notes: list[str] = []
    run = import_model(tmp_path / "theirs", tmp_path / "run", notes=notes)
    assert len(notes) == 1 and "pooler" not in names(notes[0], "model.safetensors", "masked", "foretext pretrain")
    model = loaded(run)
    assert model.config.data.head_drawn
    ids = ordinary_ids(tokenizer, 2, 20)
    with torch.no_grad():
        output = theirs(input_ids=ids)
        top = model.trunk(Batch(ids)).top
        same_logits(top, output.last_hidden_state)
        if system != "roberta":
            pooled = model.trunk.summary(top[:, 0])  # type: ignore[operator]
            same_logits(pooled, output.pooler_output)
    with complaints.refused(str(run), "masked", "fill", f"foretext pretrain TEXT --from {run}"):
        fill(model, f"a {TABLES[system].needs[2]} film")

    notes = export_model(run, tmp_path / "exported")
    assert len(notes) == 1 and names(notes[0], "masked", "AutoModel")
    again = there(transformers.AutoModel, tmp_path / "exported")
    with torch.no_grad():
        same_logits(again(input_ids=ids).last_hidden_state, output.last_hidden_state)
    import_model(tmp_path / "exported", tmp_path / "second")
    assert_same_run(run, tmp_path / "second")


def test_a_masked_model_alone(system: str, tmp_path: Path) -> None:
    """BERT's and ALBERT's have no pooler and no head for pairs then; the masked head is whole."""
    tokenizer = tokenizer_of(system)
    theirs = reference(system, SHAPES[0], tokenizer.size, MASKED_LM[system])
    write_folder(theirs, system, tokenizer, tmp_path / "theirs")
    notes: list[str] = []
    model = loaded(import_model(tmp_path / "theirs", tmp_path / "run", notes=notes))
    if system == "roberta":
        assert notes == []
    else:
        assert len(notes) == 1
        said = names(notes[0], str(tmp_path / "theirs" / "model.safetensors"), "pooler", "pairs")
        assert "masked" not in said.replace(str(tmp_path), "")
    filling_objective(model, "fill")
    ids = ordinary_ids(tokenizer, 2, 20)
    with torch.no_grad():
        expected = theirs(input_ids=ids).logits
    same_logits(logits_here(model, ids)[0], expected)


def test_what_is_drawn_is_drawn_alike(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("bert")
    write_folder(reference("bert", SHAPES[0], tokenizer.size, "BertModel"), "bert", tokenizer, tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "one")
    torch.manual_seed(99)
    import_model(tmp_path / "theirs", tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_the_old_names_of_norms(tmp_path: Path) -> None:
    """As in files that were made of the ones that the paper's authors released."""
    tokenizer = tokenizer_of("bert")
    folder = write_folder(reference("bert", SHAPES[0], tokenizer.size), "bert", tokenizer, tmp_path / "theirs")
    import_model(folder, tmp_path / "new")
    old = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[name] = tensor
    old |= {
        "bert.embeddings.position_ids": torch.arange(24)[None],
        "cls.predictions.decoder.weight": old["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": old["cls.predictions.bias"].clone(),
    }
    save_file(old, folder / "model.safetensors")
    import_model(folder, tmp_path / "old")
    assert_same_run(tmp_path / "new", tmp_path / "old")


def test_what_config_json_leaves_out(tmp_path: Path) -> None:
    """A key that is not there has the default of `transformers`."""
    tokenizer = tokenizer_of("bert")
    shape = (2, 48, 12, 192, 24, 0)  # 12 heads are the default
    folder = write_folder(reference("bert", shape, tokenizer.size), "bert", tokenizer, tmp_path / "theirs")
    import_model(folder, tmp_path / "whole")
    config = json.loads((folder / "config.json").read_text())
    kept = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")
    config = {key: config[key] for key in (*kept, "max_position_embeddings")}
    (folder / "config.json").write_text(json.dumps(config))
    import_model(folder, tmp_path / "short")
    assert_same_run(tmp_path / "whole", tmp_path / "short")


def test_a_position_table_that_begins_elsewhere(tmp_path: Path) -> None:
    """RoBERTa counts positions from its padding's id on, wherever that is."""
    tokenizer = tokenizer_of("roberta")
    for padding in (0, 5):
        order = ["<s>", "</s>", "<unk>", "<mask>", "madeup", "<pad>"]
        order.insert(padding, order.pop(order.index("<pad>")))
        ids = {name: id for id, name in enumerate(order)}
        written: Any = tokenizer
        pieces = sorted(written.written(), key=written.written().__getitem__)
        ids |= {piece: id for id, piece in enumerate(pieces, start=len(order))}
        own = type(written).from_published(ids, written.merges, "a test")
        assert own.specials["<pad>"] == padding
        special = {"pad_token_id": padding, "bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"]}
        config = config_of("roberta", SHAPES[0], own.size, **special)
        config.max_position_embeddings = 24 + padding + 1
        theirs = shaken(transformers.RobertaForMaskedLM(config))
        folder = write_folder(theirs, "roberta", own, tmp_path / f"theirs{padding}")
        run = import_model(folder, tmp_path / f"run{padding}")
        shape: Any = loaded(run).model_config
        assert (shape.context, shape.first_position) == (24, min(2, padding + 1))
        ids_there = ordinary_ids(own, 2, 24)
        with torch.no_grad():
            expected = theirs(input_ids=ids_there).logits
        same_logits(logits_here(loaded(run), ids_there)[0], expected)
        export_model(run, tmp_path / f"out{padding}")
        import_model(tmp_path / f"out{padding}", tmp_path / f"again{padding}")
        assert_same_run(run, tmp_path / f"again{padding}")
        again = there(transformers.AutoModelForMaskedLM, tmp_path / f"out{padding}")
        with torch.no_grad():
            same_logits(again(input_ids=ids_there).logits, expected)


def test_ids_that_the_vocabulary_leaves_out_are_fillers(tmp_path: Path) -> None:
    """RoBERTa's published pieces leave out three ids before `<mask>`; the weights have rows for them."""
    written: Any = tokenizer_of("roberta")
    names = ["<s>", "<pad>", "</s>", "<unk>", "madeupword0000", "madeupword0001", "<mask>"]
    pieces = sorted(written.written(), key=written.written().__getitem__)
    ids = {name: id for id, name in enumerate([*names[:4], *pieces, *names[4:]])}
    own = type(written).from_published(ids, written.merges, "a test")
    theirs = shaken(transformers.RobertaForMaskedLM(config_of("roberta", SHAPES[0], own.size)))
    folder = write_folder(theirs, "roberta", own, tmp_path / "theirs")
    for name in ("tokenizer.json", "foretext_tokenizer.json"):
        (folder / name).unlink(missing_ok=True)
    merges = "".join(f"{left} {right}\n" for left, right in written.merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    kept = {piece: id for piece, id in ids.items() if not piece.startswith("madeup")}
    (folder / "vocab.json").write_text(json.dumps(kept), encoding="utf-8")
    found = loaded(import_model(folder, tmp_path / "run")).tokenizer
    assert found.size == own.size and found.specials == own.specials and found.encode("a b") == own.encode("a b")
    kept["a b"] = 10_000
    (folder / "vocab.json").write_text(json.dumps(kept), encoding="utf-8")
    refused(folder, "vocab.json", "ids", f"{len(kept) - 1}")


# -- what is broken --------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(system: str, tmp_path: Path) -> Path:
    tokenizer = tokenizer_of(system)
    return write_folder(reference(system, SHAPES[0], tokenizer.size), system, tokenizer, tmp_path / "theirs")


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_keys_and_shapes_are_named(system: str, folder: Path) -> None:
    whole = load_file(folder / "model.safetensors")
    key = next(name for name in whole if name.endswith(("attention.self.key.bias", "attention.key.bias")))
    norm = next(
        name
        for name in whole
        if name.endswith(("transform.LayerNorm.bias", "lm_head.layer_norm.bias"))
        or name == "predictions.LayerNorm.bias"
    )
    for name in (key, norm):
        changed(folder, lambda tensors, name=name: tensors.pop(name))
        refused(folder, "model.safetensors", name, "missing")
        changed(folder, lambda tensors, name=name: tensors.update({name: torch.zeros(7)}))
        refused(folder, "model.safetensors", name, "[7]", f"[{len(whole[name])}]")
        changed(folder, lambda tensors, name=name: tensors.update({name: torch.full_like(whole[name], torch.nan)}))
        refused(folder, "model.safetensors", name, "finite")
        changed(folder, lambda tensors, name=name: tensors.update({name: whole[name]}))
    changed(folder, lambda tensors: tensors.update({"qa_outputs.weight": torch.zeros(2, 32)}))
    refused(folder, "model.safetensors", "qa_outputs.weight", "config.json")
    changed(folder, lambda tensors: tensors.pop("qa_outputs.weight"))
    table = {"bert": "cls.predictions.decoder.", "roberta": "lm_head.decoder.", "albert": "predictions.decoder."}
    words = next(tensor for name, tensor in whole.items() if name.endswith("word_embeddings.weight"))
    changed(folder, lambda tensors: tensors.update({f"{table[system]}weight": words + 1}))
    refused(folder, "model.safetensors", f"{table[system]}weight", "table")
    changed(folder, lambda tensors: tensors.pop(f"{table[system]}weight"))
    changed(folder, lambda tensors: tensors.update({f"{table[system]}bias": torch.ones(len(words))}))
    refused(folder, "model.safetensors", f"{table[system]}bias")
    changed(folder, lambda tensors: tensors.pop(f"{table[system]}bias"))
    assert import_model(folder, folder.parent / "run").is_dir()


def test_a_configuration_that_cannot_be(system: str, folder: Path) -> None:
    padding = "[PAD]" if system == "bert" else "<pad>"
    numbers = sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"hidden_act": "relu"}, ("hidden_act", "'relu'", "'gelu'")),
        ({"hidden_act": ["gelu"]}, ("hidden_act", "['gelu']")),
        ({"position_embedding_type": "relative_key"}, ("position_embedding_type", "relative_key", "absolute")),
        ({"num_attention_heads": 5}, ("model.heads=5",)),
        ({"num_hidden_layers": 0}, ("layers",))
        if system == "albert"
        else ({"num_hidden_layers": 1000}, ("model.safetensors", f"{numbers:,}")),
        ({"hidden_size": "many"}, ("hidden_size", "many")),
        ({"intermediate_size": 0}, ("intermediate_size",)),
        ({"vocab_size": -5}, ("vocab_size", "-5")),
        ({"hidden_dropout_prob": 0.5}, ("hidden_dropout_prob", "0.5", "attention_probs_dropout_prob")),
        ({"max_position_embeddings": 12}, ("position_embeddings.weight", "[12, ")),
        ({"pad_token_id": 4}, ("tokenizer.json", padding, "pad_token_id")),
    ]
    if system == "albert":
        cases += [
            ({"num_hidden_groups": 2}, ("num_hidden_groups",)),
            ({"inner_group_num": 2}, ("inner_group_num",)),
        ]
    else:
        cases += [({"is_decoder": True}, ("is_decoder",)), ({"add_cross_attention": True}, ("add_cross_attention",))]
    if system == "roberta":
        cases += [
            ({"hidden_act": "gelu_new"}, ("hidden_act", "'gelu_new'", "'gelu'")),
            ({"pad_token_id": -1}, ("pad_token_id", "-1")),
        ]
    else:
        cases += [({"type_vocab_size": 1}, ("type_vocab_size",))]
    path = folder / "config.json"
    before = path.read_text()
    for changes, parts in cases:
        path.write_text(json.dumps(json.loads(before) | changes))
        refused(folder, "config.json", *parts)


def test_another_models_tokenizer(system: str, folder: Path) -> None:
    other = {"bert": "roberta", "roberta": "albert", "albert": "roberta"}[system]
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(files_of(other, tokenizer_of(other))["tokenizer.json"])
    refused(folder, "tokenizer.json", *TABLES[system].vocabularies)
    (folder / "foretext_tokenizer.json").write_text(tokenizer_of(other).to_json())
    refused(folder, "foretext_tokenizer.json", TABLES[system].needs[0])
    (folder / "foretext_tokenizer.json").unlink()
    data = json.loads(whole)
    added = [one for one in data["added_tokens"] if "MASK" not in one["content"].upper()]
    (folder / "tokenizer.json").write_text(json.dumps(data | {"added_tokens": added}))
    if system == "albert":  # the piece is there, but nothing says that it is special
        refused(folder, "tokenizer.json", "[MASK]")
    (folder / "tokenizer.json").unlink()
    needed = {"bert": "vocab.txt", "roberta": "vocab.json", "albert": "spiece.model"}
    refused(folder, str(folder), needed[system], "tokenizer.json")


def test_every_masked_system_is_here() -> None:
    masked = {name for name, system in SYSTEMS.items() if system.objective_config is MaskingConfig}
    assert set(MASKED) == masked == set(KIND)
