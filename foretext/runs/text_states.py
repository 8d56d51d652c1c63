"""A text as one vector: the mean of its tokens' states. Texts longer than the context are read in windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from foretext.batch import Batch, length_batches, padded, padded_segments
from foretext.runs.model import SavedModel, reach_of
from foretext.runs.reading import Reading, read_as
from foretext.text.corpus.encoding import encode_texts

MOST_WINDOWS = 8  # of one text; what comes after them is not read
LONGEST_WINDOW = 1024  # of a trunk that has no context of its own

Progress = Callable[[int, int], None]


@torch.no_grad()
def text_states(model: SavedModel, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
    """float32 [texts, width]; a text without tokens is zeros."""
    readings, owners = _windows(model, texts)
    trunk = model.trunk.eval()
    device = next(trunk.parameters()).device
    sums = np.zeros((len(texts), model.model_config.width), dtype=np.float64)
    counts = np.zeros(len(texts))
    done = 0
    for group in length_batches([len(reading.ids) for reading in readings]):
        ids_BT, mask_BT = padded([readings[number].ids for number in group])
        segments_BT = padded_segments([readings[number].segments for number in group], ids_BT.shape[1])
        states = trunk(Batch(ids_BT, mask_BT, segments_BT=segments_BT).to(device)).top.float().cpu().numpy()
        for row, number in enumerate(group):
            reading = readings[number]
            sums[owners[number]] += states[row, reading.first : reading.first + reading.count].sum(0)
            counts[owners[number]] += reading.count
        done += len(group)
        if progress is not None:
            progress(done, len(readings))
    return (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)


def _windows(model: SavedModel, texts: Sequence[str]) -> tuple[list[Reading], list[int]]:
    """What is read, and the text that each is of."""
    reach = reach_of(model) or LONGEST_WINDOW
    readings: list[Reading] = []
    owners: list[int] = []
    for number, ids in enumerate(encode_texts(texts, model.tokenizer)):
        rest = ids.tolist()
        for _ in range(MOST_WINDOWS):
            if not rest:
                break
            reading = read_as(model, rest[:reach])
            readings.append(reading)
            owners.append(number)
            rest = rest[max(reading.count, 1) :]
    return readings, owners
