"""ULMFiT's three stages and both directions, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import polars
import pytest
from cli_harness import fails, works
from complaints import names

TINY = [
    *("--set", "model.layers=2", "--set", "model.width=16", "--set", "model.hidden=20", "--set", "model.context=16"),
    *("--set", "tokenizer.size=300", "--set", "training.batch_size=4"),
]


@pytest.fixture(scope="module")
def stages(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A general model, a model of the target's text with a vocabulary of its own, and a classifier; of either
    direction."""
    folder = tmp_path_factory.mktemp("ulmfit")
    for direction in ("forward", "backward"):
        general, target, clf = (folder / f"{direction}-{name}" for name in ("general", "target", "clf"))
        words = ("--system", "ulmfit", "--direction", direction, "--steps", 3, *TINY, "--out", general)
        works("pretrain", files / "text.txt", *words)
        said = works(
            "pretrain", files / "cls.csv", "--from", general, "--new-vocabulary", "--steps", 3, "--out", target
        )
        said.note("300 pieces", "281", str(general))
        works("finetune", target, files / "cls.csv", "--task", "classification", "--epochs", 5, "--out", clf)
    return folder


def test_three_stages_and_their_settings(stages: Path, files: Path) -> None:
    info = json.loads(works("info", stages / "forward-target", "--json").out)
    assert info["start"] == {"rate_decay": 2.6, "vocabulary": "new"}
    info = json.loads(works("info", stages / "forward-clf", "--json").out)
    assert info["transfer"]["pooling"] == "concat" and info["pooling"]["hidden"] == 50
    assert "label + 2 · activation + 1 · temporal activation" in works("info", stages / "forward-clf").out
    said = works("evaluate", stages / "forward-target", files / "text.txt").out
    assert "stride" not in names(said, "document")
    assert works("generate", stages / "forward-general", "--prompt", "the film", "--max-tokens", 40, "--seed", 1).out


def test_both_directions_averaged(stages: Path, files: Path, tmp_path: Path) -> None:
    forward, backward = stages / "forward-clf", stages / "backward-clf"
    tables = []
    for name, words in (("a", [forward]), ("b", [backward]), ("both", [forward, "--with", backward])):
        out = tmp_path / f"{name}.csv"
        works("predict", words[0], files / "cls.csv", *words[1:], "--out", out)
        tables.append(polars.read_csv(out)["p_pos"].to_numpy())
    # Each is written to six digits, so that a mean of two and what it is compared with may be off by half of the last.
    assert tables[2] == pytest.approx((tables[0] + tables[1]) / 2, rel=0, abs=1.1e-6)
    scores = json.loads(works("evaluate", forward, files / "cls.csv", "--with", backward, "--json").out)
    assert scores["rows"] == 24


def test_mistakes(stages: Path, files: Path, base: Path, clf: Path, tmp_path: Path) -> None:
    general, text, rows = stages / "forward-general", files / "text.txt", files / "cls.csv"
    again = ["finetune", general, rows, "--task", "classification", "--out", tmp_path / "run"]
    new = ["pretrain", text, "--new-vocabulary", "--steps", 1, "--out", tmp_path / "run"]
    for words, parts in (
        (["evaluate", general, text, "--stride", 4], ("stride", "context", "ulmfit")),
        (["evaluate", general, text, "--with", clf], ("--with", "task", str(general))),
        (["predict", clf, rows, "--with", base], (str(base), "task", f"foretext finetune {base}")),
        (["attention", general, "a text", "--out", tmp_path / "a.html"], ("ulmfit", "attention")),
        (["export", general, "--out", tmp_path / "hf"], ("ulmfit", "transformers", "export")),
        ([*again, "--set", "transfer.head=probe"], ("transfer.pooling=concat", "transfer.head=probe", "=random")),
        ([*again, "--set", "training.dropout=3"], ("training.dropout=3.0", "model.input_dropout=0.4", "1.2")),
        ([*again, "--plan", "elmo"], ("--plan elmo: ", "gpt, ulmfit")),
        (new, ("--new-vocabulary", "--from RUN")),
    ):
        names(fails(*words), *parts)
        assert not (tmp_path / "run").exists()
