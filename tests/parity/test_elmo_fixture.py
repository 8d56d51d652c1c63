"""A small ELMo as it was published (weights, options, vocabulary), against the numbers of the released code: the top
layer of 30 sentences in three streams, and the encodings of its vocabulary. Theirs are float32, ours are computed in
float64, so that they are the same on every machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tolerance import close, doubles
from typer.testing import CliRunner
from word_tables import word_table

from foretext.api import load_language_model
from foretext.batch import Batch, padded
from foretext.cli.app import app
from foretext.interop.bilm_weights import load_bilm
from foretext.interop.exchange import import_model
from foretext.nn.recurrent.bilm import Bilm, BilmState
from foretext.runs.model import load_model
from foretext.text.words.characters import word_characters

h5py = pytest.importorskip("h5py")
# Their sums are of hundreds of terms and might be off by as many roundings; those on file are off by two. (Ours are not
# rounded so that a processor could add to it.)
STORED = 4


@pytest.fixture(scope="module")
def folder() -> Path:
    data = os.environ.get("FORETEXT_DATA")
    if not data or not (Path(data) / "elmo-fixture" / "lm_weights.hdf5").is_file():
        pytest.skip("set FORETEXT_DATA to a folder with elmo-fixture")
    return Path(data) / "elmo-fixture"


@pytest.fixture(scope="module")
def bilm(folder: Path) -> Bilm:
    return load_bilm(folder / "options.json", folder / "lm_weights.hdf5").double()


@pytest.fixture(scope="module")
def streams(folder: Path) -> list[list[list[str]]]:
    sentences = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    return [[sentence.split() for sentence in stream] for stream in sentences]


def expected(folder: Path) -> list[list[np.ndarray]]:
    """[2 directions, words, 16] of each sentence of each stream."""
    found = []
    for stream in range(3):
        with h5py.File(folder / f"lm_embeddings_{stream}.hdf5", "r") as file:
            found.append([file[str(sentence)][...] for sentence in range(10)])
    return found


def top_layers(bilm: Bilm, sentences: list[list[str]], state: BilmState | None) -> tuple[list[np.ndarray], BilmState]:
    """Of each sentence's words, without its borders; and what to go on from."""
    table = word_table(sentences)
    with torch.no_grad():
        read = bilm(table.encoded(bilm), table.mask_BT, state)
    return [row[1 : 1 + len(words)].numpy() for row, words in zip(read.top, sentences)], read.state


def by_direction(top: np.ndarray) -> np.ndarray:
    return np.stack(np.split(top, 2, axis=-1))


def test_top_layer_with_the_state_carried_over_batches_of_three(
    folder: Path, bilm: Bilm, streams: list[list[list[str]]]
) -> None:
    wanted = expected(folder)
    found: list[list[np.ndarray]] = [[], [], []]
    state, anew = None, 0.0
    for number in range(10):
        batch = [stream[number] for stream in streams]
        fresh, _ = top_layers(bilm, batch, None)
        tops, state = top_layers(bilm, batch, state)
        for stream, (top, without) in enumerate(zip(tops, fresh)):
            assert wanted[stream][number].shape == (2, len(batch[stream]), 16)
            found[stream].append(by_direction(top))
            if number:
                anew = max(anew, float(np.abs(by_direction(without) - wanted[stream][number]).max()))
    close(found, wanted, terms=STORED)
    assert anew > 1e-3, "the state is to matter"


def test_the_same_through_foretext_import(folder: Path, streams: list[list[list[str]]], tmp_path: Path) -> None:
    """As a user does it: the folder becomes a run, whose tokenizer, layout and trunk read the sentences."""
    said = CliRunner().invoke(app, ["import", str(folder), "--out", str(tmp_path / "run")])
    assert said.exit_code == 0, said.output
    with doubles():
        model = load_model(tmp_path / "run")
        state = model.trunk.new_state(3)  # type: ignore[operator]
    layout = model.system.build_layout(dict(model.tokenizer.specials), model.model_config.reads, "forward")
    found: list[list[np.ndarray]] = [[], [], []]
    for number in range(10):
        rows = [layout.frame(model.tokenizer.encode(" ".join(stream[number]))) for stream in streams]
        with torch.no_grad():
            hidden = model.trunk(Batch(*padded([frame.ids for frame in rows])), state)
        state = hidden.state
        for stream, frame in enumerate(rows):
            first, length = frame.parts[0]
            assert length == len(streams[stream][number]), "a word is one token"
            found[stream].append(by_direction(hidden.top[stream, first : first + length].numpy()))
    close(found, expected(folder), terms=STORED)


def test_features_of_the_imported_run(folder: Path, bilm: Bilm, tmp_path: Path) -> None:
    """The three layers of each word of a sentence, without a state from before."""
    sentence = ["The", "cat", "sat", ",", "n't", "it", "?"]
    table = word_table([sentence])
    with torch.no_grad():
        layers = bilm(table.encoded(bilm), table.mask_BT).layers
    with doubles():
        lm = load_language_model(import_model(folder, tmp_path / "run"))
        (found,) = lm.word_features(" ".join(sentence), each=True)
    assert found.words == sentence
    wanted = np.stack([layer[0, 1:-1].numpy() for layer in layers], 1)  # without the borders
    close(found.vectors, wanted, terms=1, precision=torch.float32)  # which are handed out in float32


def test_encodings_of_the_vocabulary(folder: Path, bilm: Bilm) -> None:
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    with h5py.File(folder / "elmo_token_embeddings.hdf5", "r") as file:
        wanted = file["embedding"][...]
    with torch.no_grad():
        found = bilm.words(torch.from_numpy(word_characters(words))).numpy()
    assert len(words) == 458
    close(found, wanted, terms=STORED)
