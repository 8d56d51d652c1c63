"""Words of sentences as views read them, with the states that the trunk has of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from foretext.batch import length_batches
from foretext.runs.model import SavedModel, encode
from foretext.runs.report import Reporter
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.views.base import Units, word_units

Progress = Callable[[int, int], None]


def sentence_units(
    model: SavedModel, rows: Sequence[TaggedSentence], states: bool, progress: Progress | None = None
) -> Units:
    units = word_units([row.words for row in rows])
    return replace(units, states=word_states(model, rows, progress)) if states else units


def read_layers(model: SavedModel) -> tuple[int, ...]:
    """The lowest, which is the words themselves, the middle one and the top."""
    layers = model.model_config.layers
    return tuple(sorted({0, (layers + 1) // 2, layers}))


def state_widths(model: SavedModel) -> tuple[int, ...]:
    return tuple(model.model_config.layer_widths[layer] for layer in read_layers(model))


@torch.no_grad()
def word_states(
    model: SavedModel, rows: Sequence[TaggedSentence], progress: Progress | None = None
) -> tuple[np.ndarray, ...]:
    """Of each layer that is read float32 [words, width], at the piece that a tag would be asked at; long sentences are
    read in windows, and a word of which the vocabulary has nothing is zeros."""
    encoded = encode(rows, model, Reporter(), labelled=False)
    layers = read_layers(model)
    firsts = np.cumsum([0, *(len(row.words) for row in rows)])
    found = tuple(np.zeros((int(firsts[-1]), width), dtype=np.float32) for width in state_widths(model))
    trunk, done = model.trunk.eval(), 0
    for group in length_batches([example.tokens for example in encoded.examples]):
        examples = [encoded.examples[number] for number in group]
        states = trunk(model.head.make(examples).to(model.device), keep_layers=True).layers
        for layer, own in zip(layers, found):
            table = states[layer].float().cpu().numpy()
            for row, number in enumerate(group):
                window = encoded.windows[number]
                own[firsts[window.sentence] + np.array(window.words)] = table[row, list(window.places)]
        done += len(group)
        if progress is not None:
            progress(done, len(encoded.examples))
    return found
