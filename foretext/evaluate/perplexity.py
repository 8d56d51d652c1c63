"""Perplexity: 2^H, H = −(1/N) Σ log₂ p(w_i), and what N counts.

Each document is read after an end-of-text token, as in training, so that its first token is predicted too. A document
longer than the context is read in overlapping windows: each token is scored once, with at least context − stride tokens
before it (from the second window on). Values per token, per word (text between white space) and per byte of the
original text differ; only bits per byte compares across tokenizers, and only if the tokenizer loses no text.

A model that can read on forever (an LSTM) needs no windows: each token is scored after everything before it in its
document. The document is read in pieces, each from the state at the end of the previous one.

A model with a memory (Transformer-XL) does the same, but each token is scored after at most as many tokens as the
memory is long; this length may differ from that in training.

XLNet, which is trained on all orders, is scored in text order: its query stream predicts each position from those
before it. The window is read once for all its positions.

A vocabulary without end-of-text (GPT's, as published) has no token before a document's first one: that token is not
predicted, and counts as the average of the others.

Perplexity of a bidirectional language model (ELMo): each token is predicted from those before it, and from those after
it.

    exp( −(1/2N) Σ_k log p(t_k | t_1 … t_{k−1}) + log p(t_k | t_{k+1} … t_N) )

Each document is read whole in both directions, between two of the tokens that separate documents in training, so that
its first and last token are predicted too. It is read in pieces with the state carried over, which gives the same
result as reading it at once. The full softmax is used, even if training sampled it; a word that cannot be predicted
counts as the unknown word.

Pseudo-perplexity: how surprised a masked model is by each token when it sees all the others (Salazar et al. 2020).

Each token is masked alone, in a window of its document, and the negative log-probabilities are added up. This is not
the perplexity of a text (the product of these probabilities is not a probability), and it must not be compared with a
causal model's. A long document is cut into windows of the context, which overlap by half; a token is scored where it
has the most context on both sides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from foretext.batch import Batch, length_batches, padded
from foretext.errors import counted, refuse, refuse_if
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
ALONE = (
    "pseudo-perplexity: each token was masked alone and predicted from both sides; do not compare it with a causal "
    "model's perplexity"
)
LOSSY = "the tokenizer loses part of the text: do not compare these bits per byte with another model's"
LARGE = 1e9  # from here on, figures are shown as 1.234e+09
ROWS, PIECE = 16, 512  # long documents, and tokens of each, read at a time if the model has no context
_Window = tuple[list[int], int]  # ids, and how many of the last ones are scored


@dataclass(frozen=True)
class Perplexity:
    """`per_token` and `per_word` are perplexities; `bits_per_byte` is an entropy. `comparable`: encoding loses no text.
    A perplexity beyond the largest float is infinite, as per word when no spaces separate words."""

    per_token: float
    per_word: float
    bits_per_byte: float
    tokens: int
    words: int
    bytes: int
    documents: int
    context: int | None  # None: each token was scored after everything before it in its document
    stride: int | None
    comparable: bool
    pseudo: bool = False  # a masked model saw each token's both sides, so this is not the perplexity of a text
    order: str | None = None  # the order of the factorisation that was scored, if a model knows many
    directions: int = 1  # 2: each token was predicted in both directions, and the two losses averaged
    memory: int | None = None  # tokens before each that were seen, for a model with a memory

    def to_dict(self) -> dict[str, object]:
        """For JSON, which has neither infinity nor NaN: these become None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}

    def lines(self) -> list[str]:
        """For people."""
        name = "pseudo-perplexity" if self.pseudo else "perplexity"
        lines = [
            f"{name} per token  {_shown(self.per_token)}  ({counted(self.tokens, 'token')})",
            f"{name} per word   {_shown(self.per_word)}  ({counted(self.words, 'word')} between white space)",
            f"{'bits per byte':{len(name) + len(' per token')}}  {_shown(self.bits_per_byte, 4)}  "
            f"({self.bytes:,} bytes of UTF-8)",
            self._what_was_seen(),
            *self.notes(),
        ]
        if self.pseudo:
            return [*lines, ALONE]
        return lines if self.comparable else [*lines, LOSSY]

    def notes(self) -> list[str]:
        """What a user needs to read the figures correctly."""
        if math.isnan(self.per_token):
            return ["the model's logits are NaN: training diverged; use an earlier run"]
        if self.words and self.per_word >= LARGE:
            length = self.bytes / self.words
            return [
                f"a word here is a run of characters between white space, {length:,.0f} bytes on average: if this "
                "language puts no spaces between words, ignore perplexity per word and use per token or bits per byte"
            ]
        return []

    def _what_was_seen(self) -> str:
        """The context that each token was scored with."""
        documents = counted(self.documents, "document")
        if self.directions == 2:
            return f"{documents}, each read whole in both directions; the figure is the mean of the two"
        windows = f"context {self.context} tokens, stride {self.stride}, {documents}"
        if self.order is not None:
            order = self.order.replace(" ", "-")
            return f"{windows}; each token is predicted from those before it, in {order} order"
        if self.memory is not None:
            return f"each token after at most {self.memory:,} tokens of memory, {documents}"
        if self.context is None:
            return f"each token after everything before it in its document, {documents}"
        return windows


def _shown(figure: float, digits: int = 3) -> str:
    if math.isnan(figure):
        return "NaN"
    if math.isinf(figure):
        return "too large to show"
    return f"{figure:.3e}" if figure >= LARGE else f"{figure:,.{digits}f}"


def perplexity(
    model: SavedModel,
    texts: Sequence[str],
    stride: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
    memory: int | None = None,
) -> Perplexity:
    """Perplexity of `texts`, each a document; for a model that fills blanks, pseudo-perplexity. `stride` None is half
    the context; `memory` None is the configured one. `progress` gets the progress of scoring, `reporter` that of
    encoding."""
    seen = memory_of(model, memory)
    if model.scored in ("by blanks", "not at all"):
        refuse({"stride": stride}, f"is for models that read in one direction, but this is {model.system.name}")
        return pseudo_perplexity(model, texts, progress, reporter)
    faces = _faces(model)
    readers = [reader_of(face, "perplexity") for face in faces]
    context = readers[0][1]
    stride = _checked_stride(model, context, stride)
    encoded, tokens = _encoded(model, texts, reporter)
    whole = max(len(ids) for ids in encoded) + 1
    windows = [list(windows_of(face, encoded, context or whole, stride or whole)) for face in faces]
    predicted = sum(count for of_face in windows for _, count in of_face)
    refuse_if(not predicted, "there is nothing to predict: every document is a single token with nothing before it")
    score = _score_in_pieces if context is None else _score
    parts = (part for (reader, _), of_face in zip(readers, windows) for part in score(reader, of_face))
    with remembering(model.trunk, seen and min(seen, whole - 1)):  # no token has more before it
        nats = _total(parts, sum(map(len, windows)), progress) * tokens / predicted
    order = LEFT_TO_RIGHT if model.scored == "in one order" else None
    measured = figures(nats, tokens, texts, context, stride, model.tokenizer.lossless)
    return replace(measured, memory=seen, order=order, directions=len(faces))


def _faces(model: SavedModel) -> list[SavedModel]:
    """The model in each direction that is scored."""
    ways = ("forward", "backward") if model.scored == "both ways" else (model.info.direction,)
    return [facing(model, way) for way in ways]


def _total(parts: Iterable[tuple[float, int]], count: int, progress: Callable[[int, int], None] | None) -> float:
    """The nats of all parts, each with its number of windows; `count`: the total number."""
    nats, done = 0.0, 0
    for of_part, windows in parts:
        nats += of_part
        done += windows
        if progress is not None:
            progress(done, count)
    return nats


def _encoded(model: SavedModel, texts: Sequence[str], reporter: Reporter | None) -> tuple[list[list[int]], int]:
    """The ids of each document, and their total number."""
    heard = functools.partial((reporter or Reporter()).work, "encoding")
    encoded = [ids.tolist() for ids in encode_texts(texts, model.tokenizer, heard)]
    tokens = sum(map(len, encoded))
    refuse_if(not tokens, "there is no text to measure: every document is empty")
    return encoded, tokens


def memory_of(model: SavedModel, memory: int | None) -> int | None:
    """Tokens of memory before each token, for a model with a memory; None: it has none. UserError if the model cannot
    use that many."""
    configured = model.trunk.evaluation_memory
    if memory is None:
        return configured
    refuse_if(
        configured is None,
        f"memory is for systems with a memory, such as transformer_xl, but {model.system.name} has none: leave it out",
    )
    refuse_if(
        isinstance(memory, bool) or not isinstance(memory, int) or not 0 <= memory <= LONGEST_MEMORY,
        f"memory must be a whole number from 0 to {LONGEST_MEMORY:,}, not {memory!r}",
    )
    return memory


def _checked_stride(model: SavedModel, context: int | None, stride: int | None) -> int | None:
    if context is None:
        refuse_if(
            stride is not None,
            f"stride is for models with a context, but {model.system.name} reads a document from beginning to end; "
            "leave it out",
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
    """The perplexities for a total loss of `nats` over all tokens of the texts."""
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
    """Windows of at most context + 1 ids (inputs and, shifted, targets) in which each id is a target exactly once."""
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
    """The nats of some windows, and their number."""
    for group in length_batches([len(ids) for ids, _ in windows]):
        chosen = [windows[index] for index in group]
        states, targets = reader.tell([ids for ids, _ in chosen], [count for _, count in chosen])
        losses, _ = reader.output_layer().token_losses(states, targets)
        yield float(losses.double().sum()), len(group)


@torch.no_grad()
def _score_in_pieces(reader: Trunk, windows: Sequence[_Window]) -> Iterator[tuple[float, int]]:
    """The nats of whole documents, a piece of each at a time."""
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
            wanted = reader.output_ids(targets[:, first : first + PIECE][mask].to(device))
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
    """Pseudo-perplexity of `texts`, each a document."""
    objective = filling_objective(model, "pseudo-perplexity").eval()
    encoded, tokens = _encoded(model, texts, reporter)
    room = read_as(model, [0] * model.model_config.context).count
    questions = [question for ids in encoded for question in _questions(model, ids, room)]
    nats = _total(_score_blanks(model.trunk.eval(), objective, questions), tokens, progress)
    measured = figures(nats, tokens, texts, model.model_config.context, max(1, room // 2), comparable=False)
    return replace(measured, pseudo=True)


@torch.no_grad()
def _score_blanks(
    trunk: Trunk, objective: Objective, questions: Sequence[tuple[list[int], int]]
) -> Iterator[tuple[float, int]]:
    """The nats of some tokens, each masked at its position in its own window, and their number."""
    for group in length_batches([len(ids) for ids, _ in questions]):
        rows, places = [list(questions[number][0]) for number in group], [questions[number][1] for number in group]
        wanted = torch.tensor([row[place] for row, place in zip(rows, places)], device=next(trunk.parameters()).device)
        for row, place in zip(rows, places):
            row[place] = objective.blank()
        states = objective.blank_states(trunk, rows, [[place] for place in places])
        losses, _ = objective.output_layer(trunk).token_losses(states, wanted)
        yield float(losses.double().sum()), len(group)


def _questions(model: SavedModel, ids: list[int], room: int) -> Iterator[tuple[list[int], int]]:
    """For each token a window and its position there. Windows begin every half `room` tokens; the last one ends with
    the text."""
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
    """The tokens on its shorter side; −1 if the token is not in the window."""
    return min(token - start, stop - 1 - token) if start <= token < stop else -1
