"""Perplexity of a bidirectional language model (ELMo): each token told from those before it, and from those after it.

    exp( −(1/2N) Σ_k log p(t_k | t_1 … t_{k−1}) + log p(t_k | t_{k+1} … t_N) )

Each document is read whole from either end, between two of the tokens that stand between documents in training, so that
its first token and its last are told too. It is read in pieces with the state carried over, which is the same as at
once. The full softmax is used, also where training sampled it; a word that cannot be predicted counts as the unknown
one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch

from foretext.batch import length_batches
from foretext.errors import UserError
from foretext.evaluate.perplexity import Perplexity, figures
from foretext.objectives.base import Objective
from foretext.runs.model import SavedModel, need_trained_head
from foretext.runs.report import Reporter
from foretext.text.corpus.encoding import encode_texts

PIECE = 256  # tokens of a document that are read at a time


@torch.no_grad()
def perplexity_of_both(
    model: SavedModel,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
    piece: int = PIECE,
) -> Perplexity:
    """Of `texts`, each a document."""
    objective = model.objective
    assert objective is not None and objective.scored == "both ways"
    need_trained_head(model, "perplexity")
    heard = functools.partial((reporter or Reporter()).work, "encoding")
    encoded = [ids.astype(np.int64) for ids in encode_texts(texts, model.tokenizer, heard)]
    tokens = sum(map(len, encoded))
    if not tokens:
        raise UserError("there is no text to measure: every document is empty")
    nats, done = 0.0, 0
    for group in length_batches([len(ids) for ids in encoded]):
        rows = [encoded[number] for number in group]
        nats += _surprise(model, objective, rows, piece)
        done += sum(map(len, rows))
        if progress is not None:
            progress(done, tokens)
    return figures(nats, tokens, texts, None, None, comparable=model.tokenizer.lossless, directions=2)


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
