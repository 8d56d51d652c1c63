"""Word vectors by the command line: pretrain, info, nearest, evaluate, features, export, and mistakes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars
import pytest
from cli_harness import fails, works
from complaints import names

SETS = ["--set", "model.width=8", "--set", "objective.lsa=3", "--set", "training.batch_size=300", "--threads", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("vectors"), random.Random(0)
    who, does = ("cat", "dog", "child"), ("sees", "likes", "doesn't like")
    lines = [f"The {draw.choice(who)} {draw.choice(does)} the {draw.choice(who)}." for _ in range(200)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    said = works(
        "pretrain", folder / "text.txt", "--system", "word2vec", "--minutes", 1, *SETS, "--out", folder / "run"
    )
    said.note("LSA", "3")
    return folder


def test_what_is_in_it(folder: Path) -> None:
    said = works("info", folder / "run").out
    names(said, "word2vec", "LSA", "8")
    told = json.loads(works("info", folder / "run", "--json").out)
    assert told["model"]["lsa_dimensions"] == 3 and told["position"]["finished"]
    names(works("pretrain", "--resume", "--out", folder / "run").err, "finished")
    assert not (folder / "run" / "loss.png").exists()


def test_nearest_words(folder: Path) -> None:
    out = works("nearest", folder / "run", "cat", "n't", "--n", 2).out.splitlines()
    assert out[0] == "cat" and out[3] == "n't" and len(out) == 6
    (found,) = json.loads(works("nearest", folder / "run", "cat", "dog", "--minus", "child", "--json").out)
    assert found["words"] == ["cat", "dog"] and not {"cat", "dog", "child"} & found["nearest"].keys()
    names(fails("nearest", folder / "run", "catt"), "'catt'", "'cat'")
    names(fails("nearest", folder / "run", "cat", "--minus", "doggo"), "'doggo'", "'dog'")


def test_evaluation_features_and_export(folder: Path, tmp_path: Path) -> None:
    pairs, questions = tmp_path / "pairs.tsv", tmp_path / "questions.txt"
    pairs.write_text("# a comment\ncat\tdog\t9\nlike\tsees\t4\nthe\tzebra\t1\n")
    questions.write_text(": verbs\ncat sees dog sees\n")
    names(works("evaluate", folder / "run", pairs).out, "2 of 3")
    told = json.loads(works("evaluate", folder / "run", pairs, questions, "--json").out)
    assert [one["kind"] for one in told.values()] == ["similarity", "analogies"]
    names(works("evaluate", folder / "run", questions).out, "verbs", "1 of 1")
    names(fails("evaluate", folder / "run", folder / "text.txt"), "text.txt line 1")
    names(fails("evaluate", folder / "run", pairs, "--stride", 4), "--stride")
    works("features", folder / "run", folder / "text.txt", "--out", tmp_path / "f.parquet")
    assert polars.read_parquet(tmp_path / "f.parquet").shape == (200, 2)
    works("export", folder / "run", "--to", "word2vec", "--out", tmp_path / "vectors.txt").note("KeyedVectors")
    assert (tmp_path / "vectors.txt").read_text().startswith("10 8\nthe ")
    names(fails("export", folder / "run", "--to", "nothing", "--out", tmp_path / "x"), "'nothing'", "word2vec", "hf")
    names(fails("export", folder / "run", "--out", tmp_path / "x"), "word2vec")


def test_what_it_cannot_do_is_one_line(folder: Path, tmp_path: Path) -> None:
    for verb, *rest in (
        ("generate", "--prompt", "a"),
        ("fill", "a [MASK]"),
        ("attention", "a", "--out", tmp_path / "a.html"),
        ("translate", "a"),
    ):
        names(fails(verb, folder / "run", *rest), "word2vec")
    few = tmp_path / "few.txt"
    few.write_text("too few words\n")
    given = ("pretrain", few, "--system", "word2vec", "--steps", 2, "--out", tmp_path / "new")
    names(fails(*given), "tokenizer.least=1")
    names(fails(*given, "--threads", 0), "--threads 0")
    assert not (tmp_path / "new").exists()
