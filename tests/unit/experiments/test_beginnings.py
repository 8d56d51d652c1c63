"""Nats by place, with nothing before a text and after another: against reading each row by itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from complaints import names, refused
from systems_under_test import TERMS, base_model, pretrain_request, shaken_model, write_text
from tolerance import close, doubles, terms_of

from experiments import imdb_transfer
from experiments.beginnings import borders, by_place, main, rows_of
from foretext.api import LanguageModel
from foretext.batch import Batch
from foretext.train.pretraining.pretrain import pretrain


def test_places_double() -> None:
    assert borders(128) == [0, 1, 2, 4, 8, 16, 32, 64, 128] and borders(20) == [0, 1, 2, 4, 8, 16, 20]


@pytest.mark.parametrize("system", ["transformer_xl", "ulmfit"])
def test_each_row_is_as_by_itself(system: str) -> None:
    with doubles():
        lm = LanguageModel(shaken_model(system, 0.1), Path())
        compare_by_place(lm)


def compare_by_place(lm: LanguageModel) -> None:
    texts = ["much too short", "a film of many words", "another one, no better", "the third one is it"]
    rows_BT = rows_of(lm, texts, 3, 16)
    assert rows_BT.shape == (3, 17) and rows_BT[:, 0].tolist() == [lm.model.tokenizer.end] * 3
    assert bytes(rows_BT[0, 1:].tolist()) == b"a film of many w"
    empty, after = by_place(lm, rows_BT)
    trunk = lm.model.trunk
    with torch.no_grad():
        parts: list[list[torch.Tensor]] = [[], []]
        for number, row in enumerate(rows_BT):
            before = trunk(Batch(rows_BT[number - 1, 1:][None]), trunk.new_state(1)).state  # type: ignore[operator]
            for own, state in zip(parts, (trunk.new_state(1), before)):  # type: ignore[operator]
                top = trunk(Batch(row[None, :-1]), state).top[0]
                own.append(trunk.output_layer().token_losses(top, row[1:])[0])
        expected = [torch.stack(own) for own in parts]
    for found, nats_BT in zip((empty, after), expected):
        literal = [float(nats_BT[:, begin:end].mean()) for begin, end in ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16))]
        close(found, literal, terms=terms_of(2 * TERMS, lm.model.tokenizer.size, 3 * 8))  # two rows, softmax, mean
    assert empty != pytest.approx(after, abs=1e-3)


def test_what_cannot_be_asked() -> None:
    with refused("gpt", "context"):
        by_place(LanguageModel(base_model("gpt"), Path()), torch.zeros(2, 5, dtype=torch.long))
    with refused("1 texts", "9 tokens", " 2 "):
        rows_of(LanguageModel(base_model("transformer_xl"), Path()), ["long enough", "short"], 2, 9)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pretrain(pretrain_request("transformer_xl", write_text(tmp_path), tmp_path / "run", 2))
    folder = tmp_path / "imdb"
    folder.mkdir()
    for name, count in (("train", 4), ("test", imdb_transfer.TASKS["imdb"].test_rows or 0)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            for number in range(count):
                text = f"review {number} of a film that nobody has ever seen twice, or once"
                file.write(json.dumps({"text": text, "label": str(number % 2)}) + "\n")
    assert main([str(run), "--data", str(tmp_path), "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[2].strip() for line in lines[-5:]] == ["1", "2", "3 to 4", "5 to 8", "9 to 16"]
    assert main([str(tmp_path / "none"), "--data", str(tmp_path), "--quick"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    names(said, f"{tmp_path / 'none'}:")
