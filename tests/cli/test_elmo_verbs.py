"""ELMo on the command line: from text to features, a task model on frozen layers, and what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path

import polars
import pytest
import torch
from cli_harness import GOOD, fails, works
from complaints import names
from test_token_tasks import columns
from tolerance import close

from foretext.runs.directory import RunDirectory

SMALL = [
    *("--set", "model.cells=8", "--set", "model.words.width=6", "--set", "model.context=16"),
    *("--set", "model.words.filter_widths=1,2", "--set", "model.words.filter_counts=4,4"),
]


@pytest.fixture(scope="module")
def elmo(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("elmo") / "base"
    said = works("pretrain", files / "text.txt", "--system", "elmo", "--out", run, "--steps", 4, *SMALL)
    said.note("vocabulary: ", "words")
    said.note("8 cells")
    return run


def test_figures_and_vectors(elmo: Path, files: Path, here: Path) -> None:
    said = works("evaluate", elmo, files / "text.txt")
    names(said.out, "perplexity", "directions")
    figures = json.loads(works("evaluate", elmo, files / "text.txt", "--json").out)
    assert figures["context"] is None and figures["stride"] is None, "a document is read whole"
    (here / "text.txt").write_text("a good film\nan unheard-of word\n", encoding="utf-8")
    works("features", elmo, "text.txt", "--out", "all.parquet", "--each", "--words")
    table = polars.read_parquet("all.parquet")
    assert table.columns == ["text", "word", "start", "end", "layer_0", "layer_1", "layer_2"]
    assert table["word"].to_list() == ["a", "good", "film", "an", "unheard", "-", "of", "word"]
    works("features", elmo, "text.txt", "--out", "mix.parquet", "--layers", "0,1,2", "--weights", ".2,.3,.5", "--words")
    first = [table[f"layer_{layer}"][1].to_list() for layer in range(3)]
    mixed = [0.2 * a + 0.3 * b + 0.5 * c for a, b, c in zip(*first)]
    found = polars.read_parquet("mix.parquet")["vector"][1].to_list()
    largest = max(abs(number) for layer in first for number in layer)
    close(found, mixed, terms=3, size=largest, precision=torch.float32)  # three layers


def test_a_tagger_on_frozen_layers(elmo: Path, here: Path) -> None:
    (here / "chunks.txt").write_text(columns(24), encoding="utf-8")
    given = ("finetune", elmo, "chunks.txt", "--task", "tagging", "--format", "conll2000", "--epochs", 2)
    said = works(*given, "--out", "tags", "--set", "transfer.reader.cells=8")
    said.note("1 recurrent", "8 cells", "mixture")
    before, after = (RunDirectory(run).load_tensors("model.safetensors") for run in (elmo, Path("tags")))
    assert all(bool((after[name] == tensor).all()) for name, tensor in before.items() if name.startswith("trunk."))
    assert bool(after["task.model.read.at_input.weights_L"].any()), "the mixture has learned"
    predicted = works("predict", "tags", "--text", f"the {GOOD[0]} film").out
    assert len(predicted.split()) >= 6
    without = ("--set", "transfer.reader.mix=false", "--set", "transfer.reader.vectors=6")
    said = works(*given, "--out", "plain", *without, "--set", "transfer.reader.characters=4")
    assert "mixture" not in said.note("1 recurrent", "6 dimensions", "characters")


def test_it_writes_and_is_prompted(elmo: Path, files: Path, here: Path) -> None:
    options = ("--max-tokens", 4, "--seed", 1)
    text = works("generate", elmo, "--prompt", "the film", *options).out
    assert text.startswith("the film") and works("generate", elmo, "--prompt", "the film", *options).out == text
    text = works("generate", elmo, "--prompt", "the film", "--direction", "backward", *options).out
    assert text.endswith("the film\n")
    names(fails("generate", elmo, "--direction", "up"), "--direction up", "forward", "backward")
    names(works("prompt", elmo, files / "cls.csv", "--shots", "0", "--rows", 4).out, "accuracy", "token", "byte")
    said = works("prompt", elmo, files / "cls.csv", "--rows", 4, "--direction", "backward").out
    assert "accuracy, channel" in said and "accuracy, per" not in said
    said = fails("prompt", elmo, files / "cls.csv", "--task", "last-word", "--direction", "backward")
    names(said, "last-word", "--direction", "classification, entailment")
    rows = ("finetune", elmo, files / "cls.csv", "--task", "classification", "--epochs", 1, "--plan", "gpt")
    for direction in ((), ("--direction", "backward")):
        said = works(*rows, *direction, "--out", "-".join(["out", *direction[1:]]))
        said.note("label", "0.5", "language")
    assert "softmax = " in Path("out-backward/config.toml").read_text()
    assert 'direction = "backward"' in Path("out-backward/config.toml").read_text()
    assert "0.5 · language model, right to left" in works("info", "out-backward").out


def test_what_it_cannot_do(elmo: Path, base: Path, files: Path, here: Path) -> None:
    names(fails("fill", elmo, "a [MASK]"), str(elmo), "elmo", "bert, roberta, albert", "xlnet", "foretext generate")
    names(fails("attention", elmo, "a film", "--out", "a.html"), "elmo", "attention")
    backward = ("--system", "elmo", "--direction", "backward", "--steps", 1)
    names(fails("pretrain", files / "text.txt", *backward), "--direction backward: ", "elmo")
    rows = ("finetune", elmo, files / "cls.csv", "--task", "classification", "--out", "out")
    for setting, parts in (
        ("transfer.lm_weight=0.5", ("lm_weight 0.5: ", "transfer.model=recurrent", "--plan gpt")),
        ("transfer.reader.cells=0", ("transfer.reader.cells", "0")),
        ("transfer.reader.mix=false", ("transfer.reader: ", "mix=true", "beside=ends", "vectors", "characters")),
        ("transfer.model=deep", ("--set transfer.model=deep: ", "linear, recurrent", "'deep'")),
        ("transfer.head=probe", ("transfer.head=probe: ", "transfer.model=recurrent")),
        ("transfer.pooling=concat", ("transfer.pooling=concat: ", "transfer.model=recurrent")),
        ("transfer.layers=0", ("layers 0 of 2: ", "transfer.thaw=never", "--set transfer.thaw=all")),
    ):
        names(fails(*rows, "--set", setting), *parts)
    names(fails(*rows, "--layers", 1), "layers 1 of 2: ", "transfer.thaw=never", "--set transfer.thaw=all")
    other = ("finetune", base, files / "cls.csv", "--task", "classification", "--out", "out")
    recurrent = ("--set", "transfer.model=recurrent")
    names(fails(*other, *recurrent, "--lm-weight", "0.5"), "lm_weight 0.5: ", "transfer.model=recurrent")
    names(fails(*other, *recurrent, "--set", "transfer.reader.characters=3"), "transfer.reader.characters: ")
    assert not Path("out").exists()
