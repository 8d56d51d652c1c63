"""Which pieces two vocabularies share: what ULMFiT's second stage needs, where the target text brings its own words.

Howard and Ruder's released code gives a word that both vocabularies have its old row of the embeddings, and a new word
the mean of all old rows. Which is which is found here, for vocabularies of any kind and without a tensor; the rows are
moved by `nn/weights.py`.

Pieces are the same if they stand for the same bytes of text, spaces included, whatever a kind writes for these (`Ġthe`,
`▁the`, and WordPiece's `the` all stand for ` the`; its `##the` for `the`). Character BPE has the space behind a word,
so that between it and another kind only pieces inside words are shared. Special tokens stand for no text: they are the
same by name, or by what they are for (the end of a document, an unknown piece).
"""

from __future__ import annotations

import numpy as np

from foretext.text.tokenizers.base import Tokenizer

NEW = -1  # in place of an old id: the old vocabulary has no such piece


def old_ids(new: Tokenizer, old: Tokenizer) -> np.ndarray:
    """For each id of `new`, the id of the same piece in `old`, or `NEW`: int64 [size of `new`]."""
    known = _ids_of_bytes(old)
    found = np.full(new.size, NEW, dtype=np.int64)
    special = set(new.specials.values())
    for id in range(new.size):
        if id not in special and id != new.unknown:
            found[id] = known.get(new.piece_bytes(id), NEW)
    for role in ("unknown", "end"):
        ours, theirs = getattr(new, role), getattr(old, role)
        if ours is not None and theirs is not None:
            found[ours] = theirs
    for name, id in new.specials.items():
        if name in old.specials:
            found[id] = old.specials[name]
    return found


def _ids_of_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """Of pieces that stand for text; of two that stand for the same, the first."""
    special = {*tokenizer.specials.values(), tokenizer.unknown}
    known: dict[bytes, int] = {}
    for id in range(tokenizer.size):
        if id not in special and (text := tokenizer.piece_bytes(id)):
            known.setdefault(text, id)
    return known
