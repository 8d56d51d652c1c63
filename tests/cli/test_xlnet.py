"""XLNet as it is typed: every verb, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars
import pytest
import torch
from cli_harness import MINUTE, fails, works
from complaints import names
from tolerance import close

TINY = [*MINUTE, "--set", "model.memory=16", "--set", "training.batch_size=4"]


@pytest.fixture(scope="module")
def run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("xlnet") / "base"
    said = works("pretrain", files / "text.txt", "--system", "xlnet", "--out", out, "--steps", 4, *TINY)
    said.note("xlnet", "tiny", str(out))
    return out


@pytest.fixture(scope="module")
def taught(run: Path, files: Path) -> Path:
    out = run.with_name("clf")
    works("finetune", run, files / "cls.csv", "--task", "classification", "--epochs", 1, "--out", out)
    return out


def test_text_is_scored_in_its_own_order(run: Path, files: Path) -> None:
    said = works("evaluate", run, files / "text.txt").out
    assert "pseudo" not in names(said, "perplexity", "left-to-right")
    found = json.loads(works("evaluate", run, files / "text.txt", "--stride", 5, "--json").out)
    assert found["order"] == "left to right" and found["stride"] == 5 and 1 < found["per_token"] < 10_000


def test_it_writes(run: Path) -> None:
    options = ("--max-tokens", 8, "--seed", 1)
    text = works("generate", run, "--prompt", "the film", *options).out
    assert text.startswith("the film") and "<" not in text
    assert works("generate", run, "--prompt", "the film", *options).out == text
    assert works("generate", run, "--prompt", "the film " * 40, *options).out, "a prompt longer than the context"


def test_blanks_are_filled_with_probabilities(run: Path) -> None:
    found = json.loads(works("fill", run, "The story was <mask> and <mask>.", "--top", 400, "--json").out)
    assert found["text"].startswith("The story was") and len(found["blanks"]) == 2
    for blank in found["blanks"]:
        chances = [one["probability"] for one in blank]
        assert chances == sorted(chances, reverse=True)
        close(math.fsum(chances), 1.0, terms=400, precision=torch.float32)  # the softmax over all pieces


def test_vectors_of_texts_and_words(run: Path, files: Path, tmp_path: Path) -> None:
    works("features", run, files / "text.txt", "--out", tmp_path / "texts.parquet")
    assert {len(vector) for vector in polars.read_parquet(tmp_path / "texts.parquet")["vector"]} == {32}
    works("features", run, files / "text.txt", "--layers", "0,1", "--words", "--out", tmp_path / "words.parquet")
    table = polars.read_parquet(tmp_path / "words.parquet")
    assert {len(vector) for vector in table["vector"]} == {32} and table["word"].str.len_chars().min() > 0


def test_where_it_looks(run: Path, taught: Path, tmp_path: Path) -> None:
    for model in (run, taught):
        works("attention", model, "a good film", "--out", tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "xlnet tiny" in page and "\\u003csep>" in page and "\\u003ccls>" in page


def test_labels_of_new_texts(taught: Path, files: Path) -> None:
    said = works("predict", taught, "--text", "a lovely film", "--text", "it was awful").out.splitlines()
    assert said[0] == "text,prediction,probability,p_neg,p_pos" and len(said) == 3
    assert json.loads(works("evaluate", taught, files / "cls.csv", "--json").out)["rows"] == 24
    pieces = json.loads(works("tokens", taught, "a lovely film", "--json").out)[0]
    assert [one["piece"] for one in pieces[-2:]] == ["<sep>", "<cls>"]


def test_out_as_a_folder_of_others_and_back(run: Path, taught: Path, tmp_path: Path) -> None:
    works("export", run, "--out", tmp_path / "folder")
    works("import", tmp_path / "folder", "--out", tmp_path / "again")
    asked = ("The story was <mask>.", "--json")
    assert works("fill", tmp_path / "again", *asked).out == works("fill", run, *asked).out
    said = fails("export", taught, "--out", tmp_path / "clf")
    names(said, "transformers", "--set transfer.pooling=extract --set transfer.head=hidden")


def test_two_segments_to_learn_from(files: Path, tmp_path: Path) -> None:
    pairs = ("--set", "objective.pairs=true", "--set", "objective.length=1.0")
    words = ("--system", "xlnet", "--steps", 2, *TINY, *pairs, "--out", tmp_path / "run")
    works("pretrain", files / "text.txt", *words)
    assert json.loads(works("info", tmp_path / "run", "--json").out)["objective"]["pairs"] is True


def test_mistakes(run: Path, files: Path, tmp_path: Path) -> None:
    text, out = files / "text.txt", tmp_path / "run"
    new = ["pretrain", text, "--system", "xlnet", "--steps", 1, "--out", out]
    rows = ["finetune", run, files / "cls.csv", "--task", "classification", "--out", out]
    for words, parts in (
        (["evaluate", run, text, "--memory", 4], ("memory", "transformer_xl", "xlnet")),
        (["evaluate", run, text, "--stride", 99], ("stride", "32", "99")),
        (["fill", run, "The story was good."], ("blank", "<mask>")),
        ([*new, "--direction", "backward"], ("--direction backward: ", "xlnet")),
        ([*new, "--set", "model.memory=-1"], ("model.memory", "1,000,000", "-1")),
        ([*new, "--set", "objective.predicted=0"], ("objective.predicted", "0")),
        ([*rows, "--lm-weight", 0.5], ("lm_weight 0.5: ", "xlnet")),
    ):
        names(fails(*words), *parts)
        assert not out.exists(), words
