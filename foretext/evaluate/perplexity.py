"""Perplexity: 2^H, H = −(1/N) Σ log₂ p(w_i), and what N counts.

Each document is read after an end-of-text token, which every document follows in training, so that its first token is
predicted too. A document longer than the context is read in overlapping windows: each token is scored once, with at
least context − stride tokens before it (from the second window on). Per token, per word (pieces between white space)
and per byte of the original text are different numbers; only bits per byte compares tokenizers, and only if the
tokenizer keeps the text whole.

A model that reads on for ever (an LSTM) has no windows: each token is scored after all that stands before it in its
document, which is read in pieces, each from the state that the one before it ended with.

So does one with a memory (Transformer-XL), but each token is scored after as many tokens as the memory is long, or all
that there are; how long may be said apart from what it was trained with.

XLNet, which was trained on every order, is scored by one of them, that of the text: its query stream, asked at each
place, sees what stands before it. The window is read once for all its places.

A vocabulary without end-of-text (GPT's, as it was published) has nothing to stand before the first token of a document:
that token is not predicted, and counts as much as the others do on the average.

Perplexity of a bidirectional language model (ELMo): each token told from those before it, and from those after it.

    exp( −(1/2N) Σ_k log p(t_k | t_1 … t_{k−1}) + log p(t_k | t_{k+1} … t_N) )

Each document is read whole from either end, between two of the tokens that stand between documents in training, so that
its first token and its last are told too. It is read in pieces with the state carried over, which is the same as at
once. The full softmax is used, also where training sampled it; a word that cannot be predicted counts as the unknown
one.

Pseudo-perplexity: how surprised a masked model is by each token when it sees all the others (Salazar et al. 2020).

Each token is masked alone, in a window of its document, and the negative log-probabilities are added up. The figure is
no perplexity of a text (the product of these probabilities is none), and does not compare with a causal model's. A long
document is cut into windows of the context, which overlap by half; a token is asked about where it has the most room on
both sides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from foretext.batch import Batch, length_batches, padded
from foretext.errors import refuse, refuse_if
from foretext.evaluate.fill import filling_objective
from foretext.generate.sampling import reader_of
from foretext.nn.relative.relative_attention import LONGEST_MEMORY
from foretext.nn.trunk import Trunk, remembering
from foretext.objectives.base import Objective
from foretext.runs.model import SavedModel, facing
from foretext.runs.reading import read_as
from foretext.runs.report import Reporter
from foretext.text.tokenizers.base import encode_texts

LEFT_TO_RIGHT = "left to right"
ROWS, PIECE = 16, 512  # long documents, and tokens of each, that are read at a time where there is no context
_Window = tuple[list[int], int]  # ids, of which the last so many are scored


@dataclass(frozen=True)
class Perplexity:
    """`per_token`, `per_word` are perplexities; `bits_per_byte` an entropy. `comparable`: no text is lost in
    encoding. A perplexity beyond the largest float is infinite, as per word where no spaces divide words."""

    per_token: float
    per_word: float
    bits_per_byte: float
    tokens: int
    words: int
    bytes: int
    documents: int
    context: int | None  # None: each token was scored after all that stands before it in its document
    stride: int | None
    comparable: bool
    pseudo: bool = False  # each token seen by a masked model from both sides: no perplexity of a text
    order: str | None = None  # of the factorisation that was scored, where a model knows many
    directions: int = 1  # 2: each token told from those before it and from those after it, the mean surprise of the two
    memory: int | None = None  # tokens before each that were seen, of a model with a memory

    def to_dict(self) -> dict[str, object]:
        """For JSON, which has neither infinity nor NaN: those are None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


def perplexity(
    model: SavedModel,
    texts: Sequence[str],
    stride: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
    memory: int | None = None,
) -> Perplexity:
    """Perplexity of `texts`, each a document; of a model that fills blanks, pseudo-perplexity. `stride` None is half
    the context; `memory` None is the configuration's. `progress` hears of the measuring, `reporter` of the encoding
    before it."""
    seen = memory_of(model, memory)
    if model.scored in ("by blanks", "not at all"):
        refuse({"stride": stride}, f"is for models that read in one direction, not {model.system.name}")
        return pseudo_perplexity(model, texts, progress, reporter)
    faces = _faces(model)
    readers = [reader_of(face, "perplexity") for face in faces]
    context = readers[0][1]
    stride = _checked_stride(model, context, stride)
    encoded, tokens = _encoded(model, texts, reporter)
    whole = max(len(ids) for ids in encoded) + 1
    windows = [list(windows_of(face, encoded, context or whole, stride or whole)) for face in faces]
    predicted = sum(count for own in windows for _, count in own)
    refuse_if(not predicted, "there is nothing to predict: every document is one token, and nothing stands before it")
    score = _score_in_pieces if context is None else _score
    parts = (part for (reader, _), own in zip(readers, windows) for part in score(reader, own))
    with remembering(model.trunk, seen and min(seen, whole - 1)):  # no token has more before it
        nats = _total(parts, sum(map(len, windows)), progress) * tokens / predicted
    order = LEFT_TO_RIGHT if model.scored == "in one order" else None
    measured = figures(nats, tokens, texts, context, stride, model.tokenizer.lossless)
    return replace(measured, memory=seen, order=order, directions=len(faces))


def _faces(model: SavedModel) -> list[SavedModel]:
    """The model in each direction that it is scored in."""
    ways = ("forward", "backward") if model.scored == "both ways" else (model.info.direction,)
    return [facing(model, way) for way in ways]


def _total(parts: Iterable[tuple[float, int]], count: int, progress: Callable[[int, int], None] | None) -> float:
    """The nats of all parts, of which each says how many windows it is of; `count`: how many there are."""
    nats, done = 0.0, 0
    for own, windows in parts:
        nats += own
        done += windows
        if progress is not None:
            progress(done, count)
    return nats


def _encoded(model: SavedModel, texts: Sequence[str], reporter: Reporter | None) -> tuple[list[list[int]], int]:
    """The ids of each document, and how many there are in all."""
    heard = functools.partial((reporter or Reporter()).work, "encoding")
    encoded = [ids.tolist() for ids in encode_texts(texts, model.tokenizer, heard)]
    tokens = sum(map(len, encoded))
    refuse_if(not tokens, "there is no text to measure: every document is empty")
    return encoded, tokens


def memory_of(model: SavedModel, asked: int | None) -> int | None:
    """Tokens before each that a model with a memory sees; None: it has none. UserError where it cannot see so many."""
    own = model.trunk.evaluation_memory
    if asked is None:
        return own
    refuse_if(
        own is None,
        "memory is for systems that are scored with one, such as transformer_xl; a text is scored by "
        f"{model.system.name} without: leave it out",
    )
    refuse_if(
        isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= LONGEST_MEMORY,
        f"memory must be a whole number from 0 to {LONGEST_MEMORY:,}, not {asked!r}",
    )
    return asked


def _checked_stride(model: SavedModel, context: int | None, stride: int | None) -> int | None:
    if context is None:
        refuse_if(
            stride is not None,
            f"stride is for models with a context; {model.system.name} reads a document from its beginning to its "
            "end; leave it out",
        )
        return None
    stride = max(1, context // 2) if stride is None else stride
    refuse_if(not 1 <= stride <= context, f"stride must be between 1 and the context of {context} tokens, not {stride}")
    return stride


def figures(
    nats: float,
    tokens: int,
    texts: Sequence[str],
    context: int | None,
    stride: int | None,
    comparable: bool,
) -> Perplexity:
    """What a surprise of `nats` over all tokens of the texts comes to."""
    words = sum(len(text.split()) for text in texts)
    octets = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return Perplexity(
        per_token=_exp(nats / tokens),
        per_word=_exp(nats / words) if words else math.nan,
        bits_per_byte=nats / math.log(2) / octets,
        tokens=tokens,
        words=words,
        bytes=octets,
        documents=len(texts),
        context=context,
        stride=stride,
        comparable=comparable,
    )


def _exp(nats: float) -> float:
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def windows_of(model: SavedModel, encoded: Sequence[list[int]], context: int, stride: int) -> Iterator[_Window]:
    """Windows of at most context + 1 ids (inputs and, shifted, targets) in which each id is a target just once."""
    start = [] if model.tokenizer.end is None else [model.tokenizer.end]
    for ids in encoded:
        stream = start + (ids[::-1] if model.info.direction == "backward" else ids)
        done = 0  # targets scored so far; target t is stream[t + 1]
        total = len(stream) - 1
        while done < total:
            upto = min(total, context) if done == 0 else min(total, done + stride)
            yield stream[max(0, upto - context) : upto + 1], upto - done
            done = upto


@torch.no_grad()
def _score(reader: Trunk, windows: Sequence[_Window]) -> Iterator[tuple[float, int]]:
    """The nats of some windows, and how many they are."""
    for group in length_batches([len(ids) for ids, _ in windows]):
        chosen = [windows[index] for index in group]
        states, told = reader.tell([ids for ids, _ in chosen], [count for _, count in chosen])
        losses, _ = reader.output_layer().token_losses(states, told)
        yield float(losses.double().sum()), len(group)


@torch.no_grad()
def _score_in_pieces(reader: Trunk, windows: Sequence[_Window]) -> Iterator[tuple[float, int]]:
    """The same of whole documents, a piece of each at a time."""
    device = next(reader.parameters()).device
    rows = sorted((ids for ids, _ in windows), key=len, reverse=True)
    for group in length_batches([min(len(ids), PIECE) for ids in rows], ROWS * PIECE):
        ids, real = padded([rows[index][:-1] for index in group])
        targets, _ = padded([rows[index][1:] for index in group])
        nats, state = 0.0, reader.new_state(len(group))
        for first in range(0, ids.shape[1], PIECE):
            mask = real[:, first : first + PIECE]
            hidden = reader(Batch(ids[:, first : first + PIECE].to(device), mask.to(device)), state)
            state = hidden.state
            wanted = reader.told(targets[:, first : first + PIECE][mask].to(device))
            losses, _ = reader.output_layer().token_losses(hidden.top[mask.to(device)], wanted)
            nats += float(losses.double().sum())
        yield nats, len(group)


# -- by blanks ---------------------------------------------------------------------------------------------------------


def pseudo_perplexity(
    model: SavedModel,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
) -> Perplexity:
    """Of `texts`, each a document."""
    objective = filling_objective(model, "pseudo-perplexity").eval()
    encoded, tokens = _encoded(model, texts, reporter)
    room = read_as(model, [0] * model.model_config.context).count
    asked = [question for ids in encoded for question in _questions(model, ids, room)]
    nats = _total(_score_blanks(model.trunk.eval(), objective, asked), tokens, progress)
    measured = figures(nats, tokens, texts, model.model_config.context, max(1, room // 2), comparable=False)
    return replace(measured, pseudo=True)


@torch.no_grad()
def _score_blanks(
    trunk: Trunk, objective: Objective, asked: Sequence[tuple[list[int], int]]
) -> Iterator[tuple[float, int]]:
    """The nats of some tokens, each masked at its place in its own window, and how many they are."""
    for group in length_batches([len(ids) for ids, _ in asked]):
        rows, places = [list(asked[number][0]) for number in group], [asked[number][1] for number in group]
        wanted = torch.tensor([row[place] for row, place in zip(rows, places)], device=next(trunk.parameters()).device)
        for row, place in zip(rows, places):
            row[place] = objective.blank()
        states = objective.blank_states(trunk, rows, [[place] for place in places])
        losses, _ = objective.output_layer(trunk).token_losses(states, wanted)
        yield float(losses.double().sum()), len(group)


def _questions(model: SavedModel, ids: list[int], room: int) -> Iterator[tuple[list[int], int]]:
    """For each token a window, and its place there. Windows begin every half `room` tokens, the last one so that it
    ends with the text."""
    step, last = max(1, room // 2), max(0, len(ids) - room)
    start, reading = 0, read_as(model, ids[:room])
    for token in range(len(ids)):
        near = token // step
        starts = (min(number * step, last) for number in range(max(0, near - 2), near + 2))
        best = max(starts, key=lambda first: _context(first, min(first + room, len(ids)), token))
        if best != start:
            start, reading = best, read_as(model, ids[best : best + room])
        yield reading.ids, reading.first + token - start


def _context(start: int, stop: int, token: int) -> int:
    """What the token sees on its shorter side; −1 where it is not in the window."""
    return min(token - start, stop - 1 - token) if start <= token < stop else -1
