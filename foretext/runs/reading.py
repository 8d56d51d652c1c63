"""How models read texts given in Python: the token sequence with end-of-text or special tokens, the trunk's states for
texts and for words, and a run's word vectors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foretext.batch import Batch, length_batches, padded, padded_segments
from foretext.errors import UserError, refuse_if
from foretext.runs.model import SavedModel, encode, load_model, reach_of
from foretext.runs.report import Reporter
from foretext.tasks.files.conll import TaggedSentence
from foretext.text.tokenizers.base import encode_texts
from foretext.text.words.vectors import WordVectors


def given_texts(given: str | Sequence[str], name: str) -> list[str]:
    """One text or several, as a list; `name` is that of the argument."""
    if isinstance(given, str):
        return [given]
    refuse_if(
        not isinstance(given, Iterable) or isinstance(given, bytes),
        f"{name} must be a text or a list of texts, not {type(given).__name__}",
    )
    texts = list(given)
    for number, text in enumerate(texts):
        refuse_if(
            not isinstance(text, str),
            f"{name}[{number}] is {type(text).__name__}, not text; leave it out, or give a text",
        )
    return texts


@dataclass(frozen=True)
class Reading:
    """`ids` in reading order; those of the text are the `count` ids from `first` on. `segments`: the segment of each id
    (XLNet's `<cls>` has its own); empty if all are in the first."""

    ids: list[int]
    first: int
    count: int
    segments: tuple[int, ...] = ()


def read_as(model: SavedModel, ids: Sequence[int]) -> Reading:
    """A text that does not fit the context, if there is one, is cut at its end."""
    context = reach_of(model)
    if model.system.causal:
        start = [] if model.tokenizer.end is None else [model.tokenizer.end]
        kept = list(ids if context is None else ids[: context - len(start)])
        return Reading(start + (kept[::-1] if model.info.direction == "backward" else kept), len(start), len(kept))
    assert context is not None, "a model that sees both sides reads a text in one piece"
    layout = model.system.build_layout(dict(model.tokenizer.specials), context, model.info.direction)
    frame = layout.frame(list(ids[: layout.context - layout.overhead(1)]))
    return Reading(list(frame.ids), *frame.parts[0], told_apart(frame.segments))


def told_apart(segments: tuple[int, ...]) -> tuple[int, ...]:
    """The segments of a sequence, if there is more than one kind."""
    return segments if any(segments) else ()


MOST_WINDOWS = 8  # per text; what comes after them is not read
LONGEST_WINDOW = 1024  # for a trunk without a context

Progress = Callable[[int, int], None]


@torch.no_grad()
def states_of(
    model: SavedModel, readings: Sequence[Reading], states: Callable[[Batch], Tensor], progress: Progress | None
) -> Iterator[tuple[int, np.ndarray]]:
    """The `states` of each reading, [tokens, width], batch by batch."""
    model.trunk.eval()
    for group in length_batches([len(reading.ids) for reading in readings], progress=progress):
        ids_BT, mask_BT = padded([readings[number].ids for number in group])
        segments_BT = padded_segments([readings[number].segments for number in group], ids_BT.shape[1])
        states_BTD = states(Batch(ids_BT, mask_BT, segments_BT=segments_BT).to(model.device)).float().cpu().numpy()
        for row, number in enumerate(group):
            yield number, states_BTD[row, : len(readings[number].ids)]


def text_states(model: SavedModel, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
    """Each text as one vector, the mean of its tokens' states: float32 [texts, width]; zeros for a text without tokens.
    Longer texts are read in windows."""
    readings, owners = _windows(model, texts)
    sums = np.zeros((len(texts), model.model_config.width), dtype=np.float64)
    counts = np.zeros(len(texts))
    for number, states in states_of(model, readings, lambda batch: model.trunk(batch).top, progress):
        reading = readings[number]
        sums[owners[number]] += states[reading.first : reading.first + reading.count].sum(0)
        counts[owners[number]] += reading.count
    return (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)


def _windows(model: SavedModel, texts: Sequence[str]) -> tuple[list[Reading], list[int]]:
    """The windows to read, and the text of each."""
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


# -- words -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def word_states(
    model: SavedModel, rows: Sequence[TaggedSentence], progress: Progress | None = None
) -> tuple[np.ndarray, ...]:
    """Word vectors from the lowest layer (the tokens' own vectors), the middle layer and the top: float32 [words,
    width] each. A word's state is that of the piece where its tag would be predicted. Long sentences are read in
    windows; a word that the vocabulary cannot express is zeros."""
    encoded = encode(rows, model, Reporter(), labelled=False)
    top, widths = model.model_config.layers, model.model_config.layer_widths
    layers = sorted({0, (top + 1) // 2, top})
    firsts = np.cumsum([0, *(len(row.words) for row in rows)])
    tables = tuple(np.zeros((int(firsts[-1]), widths[layer]), dtype=np.float32) for layer in layers)
    trunk = model.trunk.eval()
    for group in length_batches([example.tokens for example in encoded.examples], progress=progress):
        examples = [encoded.examples[number] for number in group]
        states = trunk(model.head.make(examples).to(model.device), keep_layers=True).layers
        for layer, table in zip(layers, tables):
            of_batch = states[layer].float().cpu().numpy()
            for row, number in enumerate(group):
                window = encoded.windows[number]
                table[firsts[window.sentence] + np.array(window.words)] = of_batch[row, list(window.places)]
    return tables


def given_vectors(path: str | Path) -> str | Path | WordVectors:
    """The argument for `read_vectors`: the vectors of a run, or the named file."""
    if not Path(path).is_dir():
        return path
    words, matrix = words_of(load_model(path), str(path))
    return WordVectors(tuple(words), matrix, read=len(words), where=str(path))


def words_of(model: SavedModel, where: str) -> tuple[list[str], np.ndarray]:
    """The words with their own vectors, most frequent first, and the vectors [words, width]. UserError if a word's
    vector depends on its text."""
    rows = None if model.objective is None else model.objective.word_rows(model.trunk)
    if rows is None:
        raise UserError(
            f"{where} is a run of {model.system.name}, whose word vectors depend on the text (foretext features): this "
            "needs a run of pretrain --system word2vec"
        )
    ids, matrix = rows
    return [model.tokenizer.piece(id) for id in ids.tolist()], matrix
