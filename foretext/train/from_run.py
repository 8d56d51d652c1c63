"""What a pre-training takes over from the run that it starts from (`pretrain --from RUN`): weights, and, for text with
words of its own, what is kept for each piece of the vocabulary.

ULMFiT's second stage (Howard and Ruder 2018) is such a start: the general model goes on with the target's text, the
lower layers at lower rates, and with a vocabulary of that text, if so chosen. Both work on every system that says which
of its weights have a row for each piece.

Howard and Ruder's released code gives a word that both vocabularies have its old row of the embeddings, and a new word
the mean of all old rows. Pieces are the same if they stand for the same bytes of text, spaces included, whatever a kind
writes for these (`Ġthe`, `▁the`, and WordPiece's `the` all stand for ` the`; its `##the` for `the`). Character BPE has
the space behind a word, so that between it and another kind only pieces inside words are shared. Special tokens stand
for no text: they are the same by name, or by what they are for (the end of a document, an unknown piece).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from foretext.errors import UserError
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.nn.weights import carried_rows
from foretext.objectives.base import Objective
from foretext.runs.model import SavedModel, put_weights
from foretext.systems.base import System
from foretext.text.tokenizers.base import Tokenizer

NEW = -1  # in place of an old id: the old vocabulary has no such piece


def check_new_vocabulary(system: System, model: ModelConfig) -> None:
    if not system.piece_rows:
        raise UserError(f"--new-vocabulary: {system.name} has no weights that follow its pieces; leave it out")
    if getattr(model, "cutoffs", ()):
        raise UserError("--new-vocabulary: an adaptive softmax is cut by how frequent its words were; leave it out")


def take_weights(started: SavedModel, trunk: Trunk, objective: Objective, vocabulary: int, where: str) -> None:
    """All weights, for the same vocabulary, or for one that has grown at its end."""
    if started.model_config.vocabulary < vocabulary:
        started.trunk.grow_vocabulary(vocabulary)
    put_weights(trunk, started.trunk.state_dict(), where)
    if started.objective is not None:
        put_weights(objective, started.objective.state_dict(), where)


def take_for_vocabulary(
    started: SavedModel,
    trunk: Trunk,
    objective: Objective,
    tokenizer: Tokenizer,
    where: str,
    note: Callable[[str], None],
) -> None:
    """All weights; of those with a row for each piece, the rows of pieces that both vocabularies have, and for new ones
    the mean of all old rows."""
    ids = old_ids(tokenizer, started.tokenizer)
    known = int((ids != NEW).sum())
    note(
        f"of the vocabulary's {tokenizer.size:,} pieces {known:,} are known to {where}; the others begin as their mean"
    )
    rows = started.system.piece_rows
    put_weights(trunk, _renumbered(started.trunk.state_dict(), "trunk", rows, ids), where)
    if started.objective is not None:
        put_weights(objective, _renumbered(started.objective.state_dict(), "task", rows, ids), where)


def _renumbered(state: dict[str, Tensor], part: str, rows: tuple[str, ...], ids: np.ndarray) -> dict[str, Tensor]:
    return {name: carried_rows(x, ids) if f"{part}.{name}".startswith(rows) else x for name, x in state.items()}


def old_ids(new: Tokenizer, old: Tokenizer) -> np.ndarray:
    """For each id of `new`, the id of the same piece in `old`, or `NEW`: int64 [size of `new`]."""
    known = _ids_of_bytes(old)
    ids = np.full(new.size, NEW, dtype=np.int64)
    special = set(new.specials.values())
    for id in range(new.size):
        if id not in special and id != new.unknown:
            ids[id] = known.get(new.piece_bytes(id), NEW)
    for role in ("unknown", "end"):
        ours, theirs = getattr(new, role), getattr(old, role)
        if ours is not None and theirs is not None:
            ids[ours] = theirs
    for name, id in new.specials.items():
        if name in old.specials:
            ids[id] = old.specials[name]
    return ids


def _ids_of_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """Of pieces that stand for text; of two that stand for the same, the first."""
    special = {*tokenizer.specials.values(), tokenizer.unknown}
    known: dict[bytes, int] = {}
    for id in range(tokenizer.size):
        if id not in special and (text := tokenizer.piece_bytes(id)):
            known.setdefault(text, id)
    return known
