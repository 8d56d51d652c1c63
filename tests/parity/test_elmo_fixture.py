"""A small ELMo as it was published (weights, options, vocabulary), against the numbers of the released code: the top
layer of 30 sentences in three streams, and the encodings of its vocabulary."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from foretext.interop.bilm_weights import load_bilm
from foretext.nn.bilm import Bilm, BilmState, without_borders
from foretext.text.characters import word_characters, word_table

h5py = pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def folder() -> Path:
    data = os.environ.get("FORETEXT_DATA")
    if not data or not (Path(data) / "elmo-fixture" / "lm_weights.hdf5").is_file():
        pytest.skip("set FORETEXT_DATA to a folder with elmo-fixture")
    return Path(data) / "elmo-fixture"


@pytest.fixture(scope="module")
def bilm(folder: Path) -> Bilm:
    return load_bilm(folder / "options.json", folder / "lm_weights.hdf5")


@pytest.fixture(scope="module")
def streams(folder: Path) -> list[list[list[str]]]:
    sentences = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    return [[sentence.split() for sentence in stream] for stream in sentences]


def expected(folder: Path, stream: int, sentence: int) -> np.ndarray:
    """[2 directions, words, 16]."""
    with h5py.File(folder / f"lm_embeddings_{stream}.hdf5", "r") as file:
        return file[str(sentence)][...]


def top_layers(bilm: Bilm, sentences: list[list[str]], state: BilmState | None) -> tuple[list[np.ndarray], BilmState]:
    table = word_table(sentences)
    mask = torch.from_numpy(table.mask_BT)
    with torch.no_grad():
        words = bilm.encode(torch.from_numpy(table.characters_UC), torch.from_numpy(table.places_BT))
        read = bilm(words, mask, state)
    (top,), inner = without_borders([read.top], mask)
    return [row[real].numpy() for row, real in zip(top, inner)], read.state


def test_top_layer_with_the_state_carried_over_batches_of_three(
    folder: Path, bilm: Bilm, streams: list[list[list[str]]]
) -> None:
    state, worst, anew = None, np.zeros(2), 0.0
    for number in range(10):
        batch = [stream[number] for stream in streams]
        fresh, _ = top_layers(bilm, batch, None)
        tops, state = top_layers(bilm, batch, state)
        for stream, (top, without) in enumerate(zip(tops, fresh)):
            wanted = expected(folder, stream, number)
            assert wanted.shape == (2, len(batch[stream]), 16)
            found = np.stack(np.split(top, 2, axis=-1))
            worst = np.maximum(worst, np.abs(found - wanted).max(axis=(1, 2)))
            if number:
                anew = max(anew, float(np.abs(np.stack(np.split(without, 2, axis=-1)) - wanted).max()))
    print(f"greatest difference forward {worst[0]:.1e}, backward {worst[1]:.1e}; with no state carried {anew:.1e}")
    assert (worst < 1e-5).all(), worst
    assert anew > 1e-3, "the state is to matter"


def test_encodings_of_the_vocabulary(folder: Path, bilm: Bilm) -> None:
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    with h5py.File(folder / "elmo_token_embeddings.hdf5", "r") as file:
        wanted = file["embedding"][...]
    with torch.no_grad():
        found = bilm.words(torch.from_numpy(word_characters(words))).numpy()
    print(f"greatest difference {np.abs(found - wanted).max():.1e} over {len(words)} words")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
