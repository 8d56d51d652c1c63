"""The experiment on systems with a memory: that a minute of it runs and goes on, and what it says of a text."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from complaints import names
from systems_under_test import pretrain_request, write_text

import foretext as ft
from experiments import imdb_transfer
from experiments.common import main, parse
from experiments.memory_transfer import EXPERIMENT, REVIEWS, text_part
from experiments.results import TEXT, Results
from foretext.api import LanguageModel
from foretext.errors import UserError
from foretext.train.pretraining.pretrain import pretrain


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made, draw = tmp_path / "data", random.Random(1)
    for name in ("sst2", "imdb"):
        (made / name).mkdir(parents=True)

    def row(number: int) -> tuple[str, str]:
        return f"a {draw.choice(('good', 'great') if number % 2 else ('bad', 'dull'))} film", str(number % 2)

    for name in ("train.tsv", "dev.tsv"):
        lines = ["sentence\tlabel", *("\t".join(row(number)) for number in range(60))]
        (made / "sst2" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, count in (("train", 10), ("test", imdb_transfer.TASKS["imdb"].test_rows or 0)):
        with gzip.open(made / "imdb" / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(dict(zip(("text", "label"), row(number)))) + "\n" for number in range(count))
    return made


def test_a_minute_of_it_runs_and_goes_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = pretrain(pretrain_request("transformer_xl", write_text(tmp_path), tmp_path / "base", 2))
    given = ["--data", str(data), "--out", str(tmp_path / "out"), "--base", str(base), "--quick"]
    given += ["--only", "sst2", "--draws", "1"]
    page = tmp_path / "out" / "table.md"

    def broken(self: LanguageModel, texts: Any) -> None:
        raise UserError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "perplexity", broken)
        assert main(EXPERIMENT, given) == 2
    assert "| SST-2, 40 | 1 | " in page.read_text(encoding="utf-8"), "what was measured is on the page"
    assert main(EXPERIMENT, given) == 0
    last = page.read_text(encoding="utf-8").splitlines()[-1]
    assert last.startswith("| Transformer-XL | 2 | ") and last.endswith(" | yes |")
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "perplexity", lambda *given: pytest.fail("measured twice"))
        assert main(EXPERIMENT, given) == 0
    assert page.read_text(encoding="utf-8").splitlines()[-1] == last
    records = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [one.get("method") or one["part"] for one in records] == ["pretrained", "tfidf", TEXT], "each once"
    assert records[-1]["figures"]["texts"] == REVIEWS
    names(capsys.readouterr().out, "--quick")


def test_a_given_run_may_be_of_a_system_that_is_none_of_these(data: Path, tmp_path: Path) -> None:
    base = ft.load(pretrain(pretrain_request("ulmfit", write_text(tmp_path), tmp_path / "base", 2)))
    assert isinstance(base, LanguageModel)
    assert "| ulmfit | 2 | " in text_part({"pretrained": base}, data, Results(tmp_path / "results.jsonl"))


def test_it_is_the_spines_experiment_but_for_what_it_says(tmp_path: Path) -> None:
    given = parse(EXPERIMENT, ["--data", str(tmp_path)])
    assert given.tasks == imdb_transfer.TASKS and given.minutes == imdb_transfer.EXPERIMENT.minutes
    assert given.starts["pretrained"].finetune_sets == imdb_transfer.FINETUNE_SETS
    assert list(given.methods) == ["pretrained", "tfidf"]
    assert "there is no column without pre-training" in EXPERIMENT.doc
