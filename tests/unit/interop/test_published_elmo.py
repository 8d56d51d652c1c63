"""A folder of published ELMo as a run: any word is read, the softmax is drawn, and what is wrong is said in a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from complaints import names, refused
from systems_under_test import pretrain_request, write_text
from test_bilm_weights import arrays, options, released_top, released_word, write
from tolerance import close, doubles

from foretext.api import LanguageModel, load_language_model
from foretext.interop.exchange import export_model, import_model
from foretext.nn.recurrent.bilm import BilmTrunkConfig
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.characters import word_characters
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "elmo"
    made.mkdir()
    write(made, options(), arrays())
    return made


def imported(folder: Path, out: Path) -> tuple[LanguageModel, list[str]]:
    notes: list[str] = []
    return load_language_model(import_model(folder, out, notes=notes)), notes


def going_on(folder: Path, sets: tuple[str, ...]) -> PretrainRequest:
    made = pretrain_request("elmo", write_text(folder), folder / "more", 2, start=folder / "run")
    return replace(made, system=None, size=None, sets=sets)


@doubles()
def test_it_reads_any_word_as_the_released_code_does(folder: Path, tmp_path: Path) -> None:
    lm, notes = imported(folder, tmp_path / "run")
    names(notes[0], "words", "spaces")
    names(notes[1], str(folder / "weights.hdf5"), "softmax", "fill", "perplexity", "foretext pretrain TEXT --from")
    config = lm.model.model_config
    assert isinstance(config, BilmTrunkConfig) and (config.layers, config.width, config.state_clip) == (2, 6, 2.0)
    assert isinstance(lm.model.tokenizer, Words) and lm.model.tokenizer.size == 3
    words = ["a", "horse", "isn't", "</S>", "Zyzzyva"]
    (features,) = lm.word_features(" ".join(words), each=True)
    assert features.words == words and features.vectors.shape == (5, 3, 6)
    rows = (word_characters(["<S>"], 10), word_characters(words, 10, borders=False), word_characters(["</S>"], 10))
    encoded = np.stack([released_word(arrays(), row) for row in (np.concatenate(rows) - 1).tolist()])
    close(features.vectors[:, 0], np.tile(encoded[1:-1], 2), terms=1)  # rounded to float32 once
    tops = [released_top(arrays(), encoded, direction)[1:-1] for direction in (0, 1)]
    close(features.vectors[:, 2], np.concatenate(tops, axis=1), terms=1)


def test_without_a_vocabulary_there_is_nothing_to_predict(folder: Path, tmp_path: Path) -> None:
    lm, _ = imported(folder, tmp_path / "run")
    with refused(str(tmp_path / "run"), "softmax", "perplexity", f"foretext pretrain TEXT --from {tmp_path / 'run'}"):
        lm.perplexity("a text")
    with refused("vocabulary", "special"):
        pretrain(going_on(tmp_path, ()))
    with refused("elmo", "transformers"):
        export_model(tmp_path / "run", tmp_path / "out")


def test_a_vocabulary_is_taken_along_and_trained_on(folder: Path, tmp_path: Path) -> None:
    (folder / "vocab-2016.txt").write_text("</S>\n<S>\n<UNK>\nthe\ncat\n\nThe\nthe\n", encoding="utf-8")
    lm, _ = imported(folder, tmp_path / "run")
    tokenizer = lm.model.tokenizer
    assert [tokenizer.piece(id) for id in range(tokenizer.size)] == ["</S>", "<S>", "<UNK>", "the", "cat", "The"]
    again, _ = imported(folder, tmp_path / "again")
    for one, other in zip(lm.model.objective.parameters(), again.model.objective.parameters()):  # type: ignore[union-attr]
        assert torch.equal(one, other), "drawn alike each time"
    trained = load_language_model(pretrain(going_on(tmp_path, ("training.batch_size=4",))))
    assert trained.perplexity("The cat sees the dog .").per_token > 1, "the softmax has been trained"


def test_folders_that_are_not_whole(folder: Path, tmp_path: Path) -> None:
    (folder / "more_weights.hdf5").write_bytes((folder / "weights.hdf5").read_bytes())
    with refused(str(folder), "(more_weights.hdf5, weights.hdf5)"):
        import_model(folder, tmp_path / "run")
    (folder / "more_weights.hdf5").unlink()
    (folder / "vocab.txt").write_bytes(b"\xff\n")
    with refused(str(folder / "vocab.txt"), "vocabulary", "0xff"):
        import_model(folder, tmp_path / "run")
    (folder / "vocab.txt").unlink()
    (folder / "options.json").rename(folder / "other.json")
    with refused(str(folder), "*options*.json"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()
