"""Fills in blanks, with a masked model's prediction at a mask, or with XLNet's query stream.

Only here does the mask's name in a text mean a blank; elsewhere it is ordinary text. The text around a blank is encoded
part by part, so that the blank is a whole word's place: in a vocabulary whose pieces include spaces, the space before
the blank belongs to it, and text that follows it directly does not begin a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foretext.errors import UserError, refuse_if
from foretext.objectives.base import Objective
from foretext.runs.model import SavedModel, need_trained_head
from foretext.runs.reading import read_as
from foretext.systems import SYSTEMS
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.unigram import SPACE, Unigram


@dataclass(frozen=True)
class Candidate:
    piece: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """`blanks`: the best candidates for each blank, best first; `text`: the given text with the best candidates filled
    in, each chosen by itself."""

    blanks: list[list[Candidate]]
    text: str


def filling_objective(model: SavedModel, what: str) -> Objective:
    """The objective that can predict a blank; UserError for a model that has none."""
    if model.objective is None or not model.system.fills:
        refuse_if(
            model.task is not None,
            f"{model.where} is fine-tuned, but {what} needs the pre-trained run that it was made from",
        )
        able = [name for name, system in SYSTEMS.items() if system.fills]
        why, instead = "predicts a word from one side only", "; foretext generate continues a text"
        if model.system.learns_from != "text" or model.system.learn is not None:
            why, instead = "does not predict the words of its own text", ""
        raise UserError(
            f"{model.where} is of {model.system.name}, which {why}: {what} needs a run of {', '.join(able[:-1])} or "
            f"{able[-1]}{instead}"
        )
    need_trained_head(model, what)
    return model.objective


@torch.no_grad()
def fill(model: SavedModel, text: str, top: int = 5) -> Filled:
    """The best `top` pieces for each mask in `text`."""
    objective = filling_objective(model, "fill").eval()
    mask = objective.blank()
    name = model.tokenizer.piece(mask)
    parts = text.split(name)
    refuse_if(len(parts) < 2, f"there is no blank to fill: write {name} in its place")
    refuse_if(top < 1, f"top must be at least 1, not {top}")
    ids = _encoded(model, parts, mask)
    reading = read_as(model, ids)
    refuse_if(
        reading.count < len(ids),
        f"the text has {len(ids)} tokens, more than the context of {reading.count}; give a shorter one",
    )
    trunk = model.trunk.eval()
    places = [place for place, id in enumerate(reading.ids) if id == mask]
    logits = objective.output_layer(trunk).logits(
        objective.blank_states(trunk, [reading.ids], [places], reading.segments)
    )
    specials = list(model.tokenizer.specials.values())
    logits[:, specials] = -torch.inf
    values, best_ids = logits.softmax(-1).topk(min(top, logits.shape[1] - len(specials)), dim=-1)
    blanks = [
        [Candidate(model.tokenizer.piece(id), id, value) for value, id in zip(of_blank, ids_of_blank)]
        for of_blank, ids_of_blank in zip(values.tolist(), best_ids.tolist())
    ]
    return Filled(blanks, _written(model.tokenizer, parts, [blank[0].id for blank in blanks]))


def _encoded(model: SavedModel, parts: Sequence[str], mask: int) -> list[int]:
    ids: list[int] = []
    for number, part in enumerate(parts):
        if number:
            ids.append(mask)
        if model.tokenizer.lossless and number < len(parts) - 1:
            part = part.removesuffix(" ")  # this space belongs to the blank
        ids_of_part = model.tokenizer.encode(part)
        touches = number > 0 and part[:1].strip() != ""
        ids += _within_word(model.tokenizer, ids_of_part) if touches else ids_of_part
    return ids


def _within_word(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """The ids of a text that does not begin a word. Only unigram pieces differ: they get ▁ at the start of any text."""
    if not isinstance(tokenizer, Unigram) or not ids or not tokenizer.piece(ids[0]).startswith(SPACE):
        return ids
    bare = tokenizer.piece(ids[0]).removeprefix(SPACE)
    if not bare:
        return ids[1:]
    return [tokenizer.pieces.index(bare), *ids[1:]] if bare in tokenizer.pieces else ids


def _written(tokenizer: Tokenizer, parts: Sequence[str], best: Sequence[int]) -> str:
    """The parts as they were given. A piece that begins a word gets a space before it; others are joined to the text
    before them."""
    text = parts[0]
    for id, part in zip(best, parts[1:]):
        piece = tokenizer.piece_bytes(id).decode("utf-8", "replace")
        if tokenizer.lossless or not piece.startswith(" "):
            text = text.removesuffix(" ") + piece + part
        else:
            text += piece.removeprefix(" ") + part
    return text.removeprefix(" ") if not parts[0] else text
