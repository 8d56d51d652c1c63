"""Weights and tokenizers exchanged with `transformers`: what it wrote gives the same logits here, what we write gives
the same logits and ids there, and what comes back in is what went out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import names, refused
from masked_references import same_answers, shaken, there
from systems_under_test import byte_tokenizer
from tolerance import close, doubles
from torch import Tensor
from transformer_terms import forward_terms

import foretext as ft
from foretext.interop.exchange import export_model, import_model
from foretext.interop.hub import TABLES, _ours, export_hub
from foretext.interop.hub_tokenizer import read_tokenizer, tokenizer_files
from foretext.runs.directory import RunDirectory
from foretext.systems import SYSTEMS
from foretext.systems.base import TrunkParts
from foretext.text.tokenizers.base import END, TokenizerConfig
from foretext.text.tokenizers.byte_bpe import ByteBPE
from foretext.text.tokenizers.char_bpe import CharBPE
from foretext.text.tokenizers.training import train_tokenizer

transformers = pytest.importorskip("transformers")

SMALL = ("model.layers=2", "model.width=32", "model.heads=2", "model.context=32", "tokenizer.size=300")
SHAPES = [(257, 2, 32, 4, 24), (257, 1, 8, 1, 40), (264, 3, 48, 3, 24)]  # 264: rows that no piece has
TEXTS = ["Hello world", "  two  spaces\n\n\tand tabs ", "don't we'll", "中文 ไทย \U0001f600", "1,234.5 (ok)!!", ""]
MERGED = ["Hello world, hello there", "don't we'll they're", "1,234.5 and 12 (ok)!!", "中文很好 中文"] * 8
SENTENCES = [
    "The quick brown fox doesn't jump over 12,345 lazy dogs...",
    "It's A test -- of (words), 3.14!",
    "中文很好 yes",
]


def reference(system: str, shape: tuple[int, ...]) -> torch.nn.Module:
    vocabulary, layers, width, heads, context = shape
    sizes = {"vocab_size": vocabulary, "n_positions": context, "n_embd": width, "n_layer": layers, "n_head": heads}
    if system == "gpt":
        model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes))
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=256, eos_token_id=256))
    return shaken(model)


def same_logits(ours: Any, theirs: Tensor, shape: tuple[int, ...]) -> None:
    _, layers, width, _, context = shape
    close(ours, theirs, terms=forward_terms(layers, width, 4 * width, context))


def write_folder(model: torch.nn.Module, folder: Path) -> Path:
    """As `save_pretrained` leaves it, with a byte tokenizer in its own library's format."""
    model.save_pretrained(folder, safe_serialization=True)
    files, _ = tokenizer_files(byte_tokenizer(), 24, delimited=False)
    (folder / "tokenizer.json").write_bytes(files["tokenizer.json"])
    return folder


def write_vocabulary(folder: Path, library: bytes) -> dict[str, int]:
    """vocab.json and merges.txt, as older tokenizers write themselves."""
    whole = json.loads(library)["model"]
    (folder / "vocab.json").write_text(json.dumps(whole["vocab"]), encoding="utf-8")
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in whole["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return dict(whole["vocab"])


def test_what_tokenizer_json_says_counts_beside_a_vocabulary(tmp_path: Path) -> None:
    own = train_tokenizer(MERGED, TokenizerConfig("byte-bpe", 290))
    files, _ = tokenizer_files(own, 24, delimited=False)
    write_vocabulary(tmp_path, files["tokenizer.json"])
    data = json.loads(files["tokenizer.json"])
    for change, part in (
        ({"normalizer": {"type": "Lowercase"}}, "normalizer"),
        ({"pre_tokenizer": {**data["pre_tokenizer"], "add_prefix_space": True}}, "pre_tokenizer"),
    ):
        (tmp_path / "tokenizer.json").write_text(json.dumps({**data, **change}))
        with refused(str(tmp_path / "tokenizer.json"), part):
            read_tokenizer(tmp_path, own.size, {}, TABLES["gpt2"], [])


@pytest.mark.parametrize("layout", ["tokenizer.json", "vocab.json", "vocab.json, added tokens", "foretext"])
def test_a_tokenizer_with_merges_in_each_layout(layout: str, tmp_path: Path) -> None:
    own = train_tokenizer(MERGED, TokenizerConfig("byte-bpe", 290))
    files, _ = tokenizer_files(own, 24, delimited=False)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in [*TEXTS, *MERGED[:4], "Hello <|endoftext|> there"]:
        assert theirs.encode(text) == own.encode(text), text
    if layout != "foretext":
        (tmp_path / "foretext_tokenizer.json").unlink()
    if layout.startswith("vocab.json"):
        ids = write_vocabulary(tmp_path, files["tokenizer.json"])
        if "added" in layout:
            (tmp_path / "added_tokens.json").write_text(json.dumps({END: ids.pop(END)}))
            (tmp_path / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
        (tmp_path / "tokenizer.json").unlink()
    found = read_tokenizer(tmp_path, own.size, {"eos_token_id": own.specials[END]}, TABLES["gpt2"], [])
    assert found.fingerprint() == own.fingerprint()


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("layout", ["tokenizer.json", "vocab.json"])
def test_end_of_text_before_all_pieces(layout: str, tmp_path: Path) -> None:
    """As a vocabulary begins whose special tokens were given before it was trained."""
    trained = train_tokenizer(MERGED, TokenizerConfig("byte-bpe", 290))
    assert isinstance(trained, ByteBPE)
    ids = {END: 0} | {piece: id + 1 for piece, id in trained.written().items()}
    own = ByteBPE.from_published(ids, trained.merges, "a test")
    sizes = {"vocab_size": own.size, "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    theirs = shaken(transformers.GPT2LMHeadModel(config))
    theirs.save_pretrained(tmp_path / "theirs", safe_serialization=True)
    files, _ = tokenizer_files(own, 24, delimited=False)
    if layout == "tokenizer.json":
        (tmp_path / "theirs" / "tokenizer.json").write_bytes(files["tokenizer.json"])
    else:
        write_vocabulary(tmp_path / "theirs", files["tokenizer.json"])
    ours = ft.load(import_model(tmp_path / "theirs", tmp_path / "run"))
    assert ours.model.tokenizer.specials == {END: 0} and ours.model.tokenizer.end == 0
    given = own.encode("Hello world, hello there")
    assert [id - 1 for id in given] == trained.encode("Hello world, hello there")
    close(ours.logits(given), logits_of(theirs, given), terms=1, precision=torch.float32)
    export_model(tmp_path / "run", tmp_path / "out")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    assert again.eos_token_id == 0
    for text in [*TEXTS, *MERGED[:4]]:
        assert again.encode(text) == ours.model.tokenizer.encode(text) == own.encode(text), text


def logits_of(model: torch.nn.Module, ids: list[int]) -> Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0]


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("system", ["gpt", "gpt2"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_and_out_and_in_again(system: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    theirs = reference(system, shape)
    write_folder(theirs, tmp_path / "theirs")
    ours = ft.load(import_model(tmp_path / "theirs", tmp_path / "run"))
    ids = np.random.default_rng(0).integers(0, 257, 20).tolist()
    expected = logits_of(theirs, ids)
    assert expected.std() > 0.1
    close(ours.logits(ids), expected, terms=1, precision=torch.float32)  # which are handed out in float32

    assert export_model(tmp_path / "run", tmp_path / "exported") == []
    again = there(transformers.AutoModelForCausalLM, tmp_path / "exported")
    assert type(again) is type(theirs)
    same_logits(logits_of(again, ids), expected, shape)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported", local_files_only=True)
    for text in TEXTS:
        assert tokenizer.encode(text) == ours.model.tokenizer.encode(text), text

    import_model(tmp_path / "exported", tmp_path / "second")
    first, second = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "second")
    a, b = first.load_tensors("model.safetensors"), second.load_tensors("model.safetensors")
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    assert first.read("tokenizer.json") == second.read("tokenizer.json")
    assert ft.load(tmp_path / "second").model.model_config == ours.model.model_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A pre-trained run of each system, made when it is first asked for, and only read."""
    folder, made = tmp_path_factory.mktemp("runs"), dict[str, Path]()

    def run_of(system: str) -> Path:
        if system not in made:
            who, what = ("cat", "dog", "man"), ("fish", "sun", "sea", "a good film", "so bad")
            documents = [f"The {one} sees {other}." for one in who for other in what] * 4
            ft.pretrain(documents=documents, system=system, steps=10, out=folder / system, sets=SMALL)
            made[system] = folder / system
        return made[system]

    return run_of


@pytest.mark.parametrize("system", ["gpt", "gpt2"])
def test_a_block_that_they_do_not_have(system: str, runs: Callable[[str], Path], tmp_path: Path) -> None:
    """Every choice of the block that is not the system's own; transformers has these models under other names."""
    choices = {"norm": "pre" if system == "gpt" else "post", "norm_kind": "rms", "activation": "relu", "gated": True}
    choices |= {"inner": 64, "bias": False, "positions": "rotary", "query_key_norm": True, "values": "first"}
    choices |= {"embedding_norm": True, "embedding_skips": True, "soft_cap": 15.0, "untied": True}
    assert set(choices) == set(TABLES[system].fixed)
    model = ft.load(runs(system)).model
    for field, choice in choices.items():
        changed = replace(model, config=replace(model.config, model=replace(model.model_config, **{field: choice})))
        with refused(f"model.{field}"):
            export_hub(changed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("system", ["gpt", "gpt2"])
def test_a_trained_run_generates_the_same_there(system: str, runs: Callable[[str], Path], tmp_path: Path) -> None:
    """Shaken, so that no two tokens are as good as each other up to rounding."""
    run = runs(system)
    with doubles():
        lm = ft.load(run)
        shaken(lm.model.trunk)
        export_hub(lm.model, tmp_path / "out")
        model = there(transformers.AutoModelForCausalLM, tmp_path / "out")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        given = tokenizer("The cat", return_tensors="pt").input_ids
        banned = [[number] for number in lm.model.tokenizer.specials.values() if number != tokenizer.eos_token_id]
        written = model.generate(given, max_new_tokens=12, do_sample=False, bad_words_ids=banned or None)
        text = tokenizer.decode(written[0, given.shape[1] :], skip_special_tokens=True)
        assert lm.generate("The cat", max_tokens=12, temperature=0) == text != ""


def exported(run: Path, out: Path) -> tuple[Any, list[str]]:
    """A fine-tuned run, in float64 and with weights that matter to its answers; the notes of its export."""
    clf: Any = ft.load(run)
    shaken(clf.model.trunk)
    shaken(clf.model.task)
    return clf, export_hub(clf.model, out)


@pytest.mark.parametrize(
    ("system", "task"),
    [
        ("gpt", "classification"),
        ("gpt", "entailment"),
        ("gpt", "regression"),
        ("gpt2", "classification"),
        pytest.param("gpt2", "entailment", marks=pytest.mark.thorough),
        pytest.param("gpt2", "regression", marks=pytest.mark.thorough),
    ],
)
def test_a_classifier_there(system: str, task: str, runs: Callable[[str], Path], tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [("a good film", "pos"), ("so bad", "neg"), ("good good", "pos")]
    if task == "entailment":
        rows = [("a good film", "good", "yes"), ("so bad", "good", "no"), ("bad film", "bad", "yes")]
    if task == "regression":
        rows = [("a good film", 4.5), ("so bad", 1.0), ("good good", 5.0)]
    sets = ("transfer.pooling=extract",)
    ft.load(runs(system)).finetune(rows, task=task, epochs=1, hold_out=0.0, out=tmp_path / "clf", sets=sets)
    texts = [("so good film", "good"), ("bad", "a bad one indeed")] if task == "entailment" else ["so good film", "bad"]
    pairs = [list(column) for column in zip(*texts)] if task == "entailment" else [texts]
    with doubles(), torch.no_grad():
        clf, _ = exported(tmp_path / "clf", tmp_path / "out")
        model = there(transformers.AutoModelForSequenceClassification, tmp_path / "out")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        logits = model(**tokenizer(*pairs, padding=True, return_tensors="pt")).logits
        # The head's bias goes into 32 numbers before it, and a deviation into its weights.
        if task == "regression":
            same_answers(logits[:, 0], clf.predict(texts), rounded=2 * 32)
            return
        same_answers(logits.softmax(-1), clf.predict_proba(texts), rounded=32)
        assert [model.config.id2label[int(best)] for best in logits.argmax(-1)] == clf.predict(texts)


ODD = [
    "A new—sentence… with “quotes”, tabs\tand\n\nlines  ",
    "it's 1,000.50 o'clock?!",
    "中文，很好！（yes）？",
    "ﬁne oﬃce ＡＢＣ",
    "one\r\ntwo\rthree",
    "ﾊﾞｽ ΟΔΟΣ. ΣΟΦΟΣ Σ",
]


def test_gpts_character_vocabulary_there(tmp_path: Path) -> None:
    tokenizer = train_tokenizer([*SENTENCES, *ODD] * 3, TokenizerConfig("char-bpe", 300, splitter="rules"))
    assert isinstance(tokenizer, CharBPE)
    files, notes = tokenizer_files(tokenizer, 32, delimited=False)
    assert len(notes) == 1 and names(notes[0], "tokenizer.json", "ftfy")
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in [*SENTENCES, *ODD]:
        assert theirs.encode(text) == tokenizer.encode(text), text
    (tmp_path / "foretext_tokenizer.json").unlink()
    for layout in ("tokenizer.json", "vocab.json"):
        if layout == "vocab.json":
            write_vocabulary(tmp_path, files["tokenizer.json"])
        found = read_tokenizer(tmp_path, tokenizer.size, {"eos_token_id": tokenizer.specials[END]}, TABLES["gpt"], [])
        assert isinstance(found, CharBPE) and found.fingerprint() == tokenizer.fingerprint()


def test_spacys_rules_are_not_there(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    tokenizer = train_tokenizer(SENTENCES * 3, TokenizerConfig("char-bpe", 300, splitter="spacy"))
    _, notes = tokenizer_files(tokenizer, 32, delimited=False)
    assert len(notes) == 1 and names(notes[0], "tokenizer.json", "spaCy's")


@pytest.mark.parametrize("system", ["gpt", "gpt2"])
def test_a_chooser_there(system: str, runs: Callable[[str], Path], tmp_path: Path) -> None:
    rows = [("the film", ["good", "bad"], 1), ("the end", ["so bad", "good film"], 2), ("it", ["bad", "so"], 1)]
    sets = ("transfer.pooling=extract",)
    ft.load(runs(system)).finetune(rows, task="choice", epochs=1, hold_out=0.0, out=tmp_path / "clf", sets=sets)
    choices = ["good film", "a bad one", "so"]
    with doubles(), torch.no_grad():
        clf, notes = exported(tmp_path / "clf", tmp_path / "out")
        name = {"gpt": "OpenAIGPTDoubleHeadsModel", "gpt2": "GPT2DoubleHeadsModel"}[system]
        names(notes[0], name)
        model = there(getattr(transformers, name), tmp_path / "out")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
        encoded = [tokenizer("the film", choice).input_ids for choice in choices]
        scores = torch.stack([model(torch.tensor([[ids]])).mc_logits[0, 0] for ids in encoded])
        same_answers(scores.softmax(0), clf.predict_proba([("the film", choices)])[0])


@pytest.mark.usefixtures("in_float64")
def test_attention_weights() -> None:
    theirs = reference("gpt2", SHAPES[0])
    theirs.set_attn_implementation("eager")
    ids = torch.randint(257, (1, 15))
    system = SYSTEMS["gpt2"]
    config: Any = replace(system.sizes["paper"].model, vocabulary=257, layers=2, width=32, heads=4, context=24)
    trunk: Any = system.build_trunk(TrunkParts(config))
    trunk.load_state_dict(_ours(dict(theirs.state_dict()), system, TABLES[system.name], config, "reference"))
    with torch.no_grad():
        expected = torch.stack(theirs(ids, output_attentions=True).attentions)[:, 0]
    same_logits(trunk.eval().attention_weights(ids[0]), expected, SHAPES[0])
