"""Pseudo-perplexity: how surprised a masked model is by each token when it sees all the others (Salazar et al. 2020).

Each token is masked alone, in a window of its document, and the negative log-probabilities are added up. The figure is
no perplexity of a text (the product of these probabilities is none), and does not compare with a causal model's. A long
document is cut into windows of the context, which overlap by half; a token is asked about where it has the most room on
both sides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from foretext.batch import BATCH_TOKENS
from foretext.errors import UserError
from foretext.evaluate.fill import filling_objective
from foretext.evaluate.perplexity import Perplexity, figures
from foretext.evaluate.reading import read_as
from foretext.runs.model import SavedModel
from foretext.runs.report import Reporter
from foretext.text.corpus.encoding import encode_texts


@dataclass(frozen=True)
class _Asked:
    """A window, and the place of the token that is asked about."""

    ids: list[int]
    place: int


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
    heard = functools.partial((reporter or Reporter()).work, "encoding")
    encoded = [ids.tolist() for ids in encode_texts(texts, model.tokenizer, heard)]
    tokens = sum(map(len, encoded))
    if not tokens:
        raise UserError("there is no text to measure: every document is empty")
    room = read_as(model, [0] * model.model_config.context).count
    nats, done = 0.0, 0
    for batch in _batches(asked for ids in encoded for asked in _questions(model, ids, room)):
        rows, places = [list(asked.ids) for asked in batch], [asked.place for asked in batch]
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
    return figures(nats, tokens, texts, model.model_config.context, stride, comparable=False, pseudo=True)


def _questions(model: SavedModel, ids: list[int], room: int) -> Iterator[_Asked]:
    """One for each token. Windows begin every half `room` tokens, the last one so that it ends with the text."""
    step, last = max(1, room // 2), max(0, len(ids) - room)
    start, reading = 0, read_as(model, ids[:room])
    for token in range(len(ids)):
        near = token // step
        starts = (min(number * step, last) for number in range(max(0, near - 2), near + 2))
        best = max(starts, key=lambda first: _context(first, min(first + room, len(ids)), token))
        if best != start:
            start, reading = best, read_as(model, ids[best : best + room])
        yield _Asked(reading.ids, reading.first + token - start)


def _context(start: int, stop: int, token: int) -> int:
    """What the token sees on its shorter side; −1 where it is not in the window."""
    return min(token - start, stop - 1 - token) if start <= token < stop else -1


def _batches(asked: Iterator[_Asked]) -> Iterator[list[_Asked]]:
    """Neighbours together, as many as fit when all are filled up to the longest."""
    group: list[_Asked] = []
    longest = 0
    for one in asked:
        if group and (len(group) + 1) * max(len(one.ids), longest) > BATCH_TOKENS:
            yield group
            group, longest = [], 0
        group.append(one)
        longest = max(longest, len(one.ids))
    if group:
        yield group
