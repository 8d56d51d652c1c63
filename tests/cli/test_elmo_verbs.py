"""ELMo on the command line: from text to features, a task model on frozen layers, and what it cannot do."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest
from cli_harness import GOOD, fails, works
from test_token_tasks import columns

from foretext.train.rundir import RunDirectory

SMALL = [
    *("--set", "model.cells=8", "--set", "model.words.width=6", "--set", "model.context=16"),
    *("--set", "model.words.filter_widths=1,2", "--set", "model.words.filter_counts=4,4"),
]


@pytest.fixture(scope="module")
def elmo(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("elmo") / "base"
    said = works("pretrain", files / "text.txt", "--system", "elmo", "--out", run, "--steps", 4, *SMALL)
    assert "pieces of words" in said.err and "8 cells a direction" in said.err
    return run


def test_figures_and_vectors(elmo: Path, files: Path, here: Path) -> None:
    said = works("evaluate", elmo, files / "text.txt")
    assert said.out.startswith("perplexity per token") and "the mean of both directions" in said.out
    (here / "text.txt").write_text("a good film\nan unheard-of word\n", encoding="utf-8")
    works("features", elmo, "text.txt", "--out", "all.parquet", "--each", "--words")
    table = polars.read_parquet("all.parquet")
    assert table.columns == ["text", "word", "start", "end", "layer_0", "layer_1", "layer_2"]
    assert table["word"].to_list() == ["a", "good", "film", "an", "unheard", "-", "of", "word"]
    works("features", elmo, "text.txt", "--out", "mix.parquet", "--layers", "0,1,2", "--weights", ".2,.3,.5", "--words")
    first = [table[f"layer_{layer}"][1].to_list() for layer in range(3)]
    mixed = [0.2 * a + 0.3 * b + 0.5 * c for a, b, c in zip(*first)]
    assert polars.read_parquet("mix.parquet")["vector"][1].to_list() == pytest.approx(mixed, abs=1e-5)


def test_a_tagger_on_frozen_layers(elmo: Path, here: Path) -> None:
    (here / "chunks.txt").write_text(columns(24), encoding="utf-8")
    given = ("finetune", elmo, "chunks.txt", "--task", "tagging", "--format", "conll2000", "--epochs", 2)
    said = works(*given, "--out", "tags", "--set", "transfer.reader.cells=8")
    assert "1 recurrent layer of 8 cells a direction over a mixture of the layers" in said.err
    before, after = (RunDirectory(run).load_tensors("model.safetensors") for run in (elmo, Path("tags")))
    assert all(bool((after[name] == tensor).all()) for name, tensor in before.items() if name.startswith("trunk."))
    assert bool(after["task.model.read.at_input.weights_L"].any()), "the mixture has learned"
    predicted = works("predict", "tags", "--text", f"the {GOOD[0]} film").out
    assert len(predicted.split()) >= 6
    without = ("--set", "transfer.reader.mix=false", "--set", "transfer.reader.vectors=6")
    said = works(*given, "--out", "plain", *without, "--set", "transfer.reader.characters=4")
    assert "over vectors of 6, characters" in said.err


def test_what_it_cannot_do(elmo: Path, base: Path, files: Path, here: Path) -> None:
    assert "reads in both directions, each by itself: fill needs a masked model" in fails("fill", elmo, "a [MASK]")
    assert "writing text needs a model that predicts each token from those before it" in fails("generate", elmo)
    assert "elmo has no attention to look at" in fails("attention", elmo, "a film", "--out", "a.html")
    backward = ("--system", "elmo", "--direction", "backward", "--steps", 1)
    assert "has no direction" in fails("pretrain", files / "text.txt", *backward)
    rows = ("finetune", elmo, files / "cls.csv", "--task", "classification", "--out", "out")
    for setting, says in (
        ("transfer.lm_weight=0.5", "has no language-model loss to add"),
        ("transfer.reader.cells=0", "transfer.reader.cells must be at least 1, not 0"),
        ("transfer.reader.mix=false", "the task's model reads nothing"),
        ("transfer.model=deep", "transfer.model"),
        ("transfer.head=probe", "transfer.head=probe: the task's own model"),
        ("transfer.pooling=concat", "transfer.pooling=concat: the task's own model"),
        ("transfer.layers=0", "layers 0 of 2: the others would be newly drawn"),
    ):
        assert says in fails(*rows, "--set", setting)
    assert "layers 1 of 2: the others would be newly drawn" in fails(*rows, "--layers", 1)
    other = ("finetune", base, files / "cls.csv", "--task", "classification", "--out", "out")
    recurrent = ("--set", "transfer.model=recurrent")
    assert "no language-model loss beside it" in fails(*other, *recurrent, "--lm-weight", "0.5")
    assert "has no characters of them" in fails(*other, *recurrent, "--set", "transfer.reader.characters=3")
    assert not Path("out").exists()
