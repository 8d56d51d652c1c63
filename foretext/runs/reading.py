"""Texts as they are given from Python; one as a model reads it, after end-of-text or between a masked system's special
tokens; and the states of a trunk that has read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretext.batch import Batch, length_batches, padded, padded_segments
from foretext.errors import UserError
from foretext.runs.model import SavedModel, reach_of
from foretext.text.tokenizers.base import encode_texts


def given_texts(given: str | Sequence[str], name: str) -> list[str]:
    """One text or several, as a list; `name` is the argument's."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise UserError(f"{name} must be a text or a list of texts, not {type(given).__name__}")
    texts = list(given)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"{name}[{number}] is {type(text).__name__}, not text; leave it out, or give a text")
    return texts


@dataclass(frozen=True)
class Reading:
    """`ids` in the order of reading; those of the text stand from `first` on, `count` of them. `segments`: the type of
    each, where they are not all of the first (XLNet's `<cls>` is of its own); empty: they are."""

    ids: list[int]
    first: int
    count: int
    segments: tuple[int, ...] = ()


def read_as(model: SavedModel, ids: Sequence[int]) -> Reading:
    """What does not fit the context, if there is one, is left out, from the end."""
    context = reach_of(model)
    if model.system.causal:
        start = [] if model.tokenizer.end is None else [model.tokenizer.end]
        kept = list(ids if context is None else ids[: context - len(start)])
        return Reading(start + (kept[::-1] if model.info.direction == "backward" else kept), len(start), len(kept))
    assert context is not None, "what sees both sides reads a text at once"
    layout = model.system.build_layout(dict(model.tokenizer.specials), context, model.info.direction)
    frame = layout.frame(list(ids[: layout.context - layout.overhead(1)]))
    return Reading(list(frame.ids), *frame.parts[0], told_apart(frame.segments))


def told_apart(segments: tuple[int, ...]) -> tuple[int, ...]:
    """The segments of a sequence, if there is more than the first among them."""
    return segments if any(segments) else ()


MOST_WINDOWS = 8  # of one text; what comes after them is not read
LONGEST_WINDOW = 1024  # of a trunk that has no context of its own

Progress = Callable[[int, int], None]


@torch.no_grad()
def states_of(
    model: SavedModel, readings: Sequence[Reading], states: Callable[[Batch], Tensor], progress: Progress | None
) -> Iterator[tuple[int, np.ndarray]]:
    """The `states` of each reading, [tokens, width], batch by batch."""
    model.trunk.eval()
    done = 0
    for group in length_batches([len(reading.ids) for reading in readings]):
        ids_BT, mask_BT = padded([readings[number].ids for number in group])
        segments_BT = padded_segments([readings[number].segments for number in group], ids_BT.shape[1])
        states_BTD = states(Batch(ids_BT, mask_BT, segments_BT=segments_BT).to(model.device)).float().cpu().numpy()
        for row, number in enumerate(group):
            yield number, states_BTD[row, : len(readings[number].ids)]
        done += len(group)
        if progress is not None:
            progress(done, len(readings))


def text_states(model: SavedModel, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
    """A text as one vector, the mean of its tokens' states: float32 [texts, width]; one without tokens is zeros. Texts
    longer than the context are read in windows."""
    readings, owners = _windows(model, texts)
    sums = np.zeros((len(texts), model.model_config.width), dtype=np.float64)
    counts = np.zeros(len(texts))
    for number, states in states_of(model, readings, lambda batch: model.trunk(batch).top, progress):
        reading = readings[number]
        sums[owners[number]] += states[reading.first : reading.first + reading.count].sum(0)
        counts[owners[number]] += reading.count
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
