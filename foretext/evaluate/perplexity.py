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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from foretext.batch import Batch, length_batches, padded
from foretext.errors import UserError
from foretext.evaluate.fill import filling_objective
from foretext.generate.sampling import reader_of
from foretext.nn.relative.relative_attention import LONGEST_MEMORY
from foretext.nn.trunk import Trunk, remembering
from foretext.objectives.base import Objective
from foretext.runs.model import SavedModel, need_trained_head
from foretext.runs.reading import read_as
from foretext.runs.report import Reporter
from foretext.text.tokenizers.base import encode_texts

LEFT_TO_RIGHT = "left to right"
ROWS, PIECE = 16, 512  # documents, and tokens of each, that are read at a time where there is no context


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


@dataclass(frozen=True)
class _Window:
    ids: list[int]
    scored: int  # the last so many targets are counted


def perplexity(
    model: SavedModel,
    texts: Sequence[str],
    stride: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
    memory: int | None = None,
) -> Perplexity:
    """Perplexity of `texts`, each a document. `stride` None is half the context; `memory` None is the configuration's.
    `progress` hears of the measuring, `reporter` of the encoding before it."""
    (reader, context), seen = reader_of(model, "perplexity"), memory_of(model, memory)
    stride = _checked_stride(model, context, stride)
    encoded, tokens = _encoded(model, texts, reporter)
    whole = max(len(ids) for ids in encoded) + 1
    windows = [window for ids in encoded for window in _windows(model, ids, context or whole, stride or whole)]
    predicted = sum(window.scored for window in windows)
    if not predicted:
        raise UserError("there is nothing to predict: every document is one token, and nothing stands before it")
    score = _score if context is not None else _score_in_pieces
    with remembering(model.trunk, None if seen is None else min(seen, whole - 1)):  # no token has more before it
        nats = score(reader, windows, progress) * tokens / predicted
    order = LEFT_TO_RIGHT if model.scored == "in one order" else None
    return replace(
        figures(nats, tokens, texts, context, stride, model.tokenizer.lossless),
        memory=seen,
        order=order,
    )


def _encoded(model: SavedModel, texts: Sequence[str], reporter: Reporter | None) -> tuple[list[list[int]], int]:
    """The ids of each document, and how many there are in all."""
    heard = functools.partial((reporter or Reporter()).work, "encoding")
    encoded = [ids.tolist() for ids in encode_texts(texts, model.tokenizer, heard)]
    tokens = sum(map(len, encoded))
    if not tokens:
        raise UserError("there is no text to measure: every document is empty")
    return encoded, tokens


def memory_of(model: SavedModel, asked: int | None) -> int | None:
    """Tokens before each that a model with a memory sees; None: it has none. UserError where it cannot see so many."""
    own = model.trunk.evaluation_memory
    if asked is None:
        return own
    if own is None:
        raise UserError(
            "memory is for systems that are scored with one, such as transformer_xl; a text is scored by "
            f"{model.system.name} without: leave it out"
        )
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= LONGEST_MEMORY:
        raise UserError(f"memory must be a whole number from 0 to {LONGEST_MEMORY:,}, not {asked!r}")
    return asked


def _checked_stride(model: SavedModel, context: int | None, stride: int | None) -> int | None:
    if context is None:
        if stride is not None:
            raise UserError(
                f"stride is for models with a context; {model.system.name} reads a document from its beginning to its "
                "end; leave it out"
            )
        return None
    stride = max(1, context // 2) if stride is None else stride
    if not 1 <= stride <= context:
        raise UserError(f"stride must be between 1 and the context of {context} tokens, not {stride}")
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


def _windows(model: SavedModel, ids: list[int], context: int, stride: int) -> Iterator[_Window]:
    """Windows of at most context + 1 ids (inputs and, shifted, targets) in which each id is a target just once."""
    if model.info.direction == "backward":
        ids = ids[::-1]
    end = model.tokenizer.end
    stream = ids if end is None else [end, *ids]
    done = 0  # targets scored so far; target t is stream[t + 1]
    total = len(stream) - 1
    while done < total:
        upto = min(total, context) if done == 0 else min(total, done + stride)
        first = max(0, upto - context)
        yield _Window(stream[first : upto + 1], upto - done)
        done = upto


@torch.no_grad()
def _score(reader: Trunk, windows: list[_Window], progress: Callable[[int, int], None] | None) -> float:
    total, done = 0.0, 0
    for group in length_batches([len(window.ids) for window in windows]):
        chosen = [windows[index] for index in group]
        states, told = reader.tell([window.ids for window in chosen], [window.scored for window in chosen])
        losses, _ = reader.output_layer().token_losses(states, told)
        total += float(losses.double().sum())
        done += len(group)
        if progress is not None:
            progress(done, len(windows))
    return total


@torch.no_grad()
def _score_in_pieces(reader: Trunk, windows: list[_Window], progress: Callable[[int, int], None] | None) -> float:
    """The same of whole documents: as many side by side as fit `ROWS`, a piece of each at a time."""
    device = next(reader.parameters()).device
    longest_first = sorted(windows, key=lambda window: -len(window.ids))
    total = 0.0
    for start in range(0, len(windows), ROWS):
        group = longest_first[start : start + ROWS]
        ids, real = padded([window.ids[:-1] for window in group])
        targets, _ = padded([window.ids[1:] for window in group])
        state = reader.new_state(len(group))
        for first in range(0, ids.shape[1], PIECE):
            mask = real[:, first : first + PIECE]
            hidden = reader(Batch(ids[:, first : first + PIECE].to(device), mask.to(device)), state)
            state = hidden.state
            wanted = targets[:, first : first + PIECE][mask].to(device)
            losses, _ = reader.output_layer().token_losses(hidden.top[mask.to(device)], wanted)
            total += float(losses.double().sum())
        if progress is not None:
            progress(start + len(group), len(windows))
    return total


# -- both ways ---------------------------------------------------------------------------------------------------------


WORDS = 256  # of a document that are read at a time, both ways


@torch.no_grad()
def perplexity_of_both(
    model: SavedModel,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
    piece: int = WORDS,
) -> Perplexity:
    """Of `texts`, each a document."""
    objective = model.objective
    assert objective is not None and objective.scored == "both ways"
    need_trained_head(model, "perplexity")
    encoded, tokens = _encoded(model, texts, reporter)
    nats, done = 0.0, 0
    for group in length_batches([len(ids) for ids in encoded]):
        rows = [np.array(encoded[number], dtype=np.int64) for number in group]
        nats += _surprise(model, objective, rows, piece)
        done += sum(map(len, rows))
        if progress is not None:
            progress(done, tokens)
    return replace(figures(nats, tokens, texts, None, None, model.tokenizer.lossless), directions=2)


def _surprise(model: SavedModel, objective: Objective, rows: Sequence[np.ndarray], piece: int) -> float:
    """Nats of all tokens of these documents, the mean of both directions."""
    trunk = model.trunk.eval()
    objective.eval()
    device = next(trunk.parameters()).device
    border = np.array([model.tokenizer.end], dtype=np.int64)
    forward = [np.concatenate([border, ids]) for ids in rows]
    backward = [np.concatenate([ids, border]) for ids in rows]
    total, state = 0.0, None
    for start in range(0, max(map(len, rows)), piece):
        # The forward direction goes on from the left, the backward one from the right; each piece has a token more
        # than are told.
        stop = start + piece + 1
        lefts = [row[start:stop] for row in forward]
        rights = [row[max(0, len(row) - stop) : max(0, len(row) - start)] for row in backward]
        outcome = objective(trunk, objective.make(list(zip(lefts, rights))).to(device), state)
        state = outcome.state
        total += sum(weight * float(outcome.losses[name].total) for name, weight in objective.weights.items())
    return total


# -- by blanks ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def pseudo_perplexity(
    model: SavedModel,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
) -> Perplexity:
    """Of `texts`, each a document."""
    objective = filling_objective(model, "pseudo-perplexity").eval()
    trunk = model.trunk.eval()
    device = next(trunk.parameters()).device
    encoded, tokens = _encoded(model, texts, reporter)
    room = read_as(model, [0] * model.model_config.context).count
    nats, done = 0.0, 0
    asked = [question for ids in encoded for question in _questions(model, ids, room)]
    for group in length_batches([len(ids) for ids, _ in asked]):
        rows, places = [list(asked[number][0]) for number in group], [asked[number][1] for number in group]
        wanted = torch.tensor([row[place] for row, place in zip(rows, places)], device=device)
        for row, place in zip(rows, places):
            row[place] = objective.blank()
        states = objective.blank_states(trunk, rows, [[place] for place in places])
        losses, _ = objective.output_layer(trunk).token_losses(states, wanted)
        nats += float(losses.double().sum())
        done += len(rows)
        if progress is not None:
            progress(done, tokens)
    stride = max(1, room // 2)
    return replace(figures(nats, tokens, texts, model.model_config.context, stride, comparable=False), pseudo=True)


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
