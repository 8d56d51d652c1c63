"""Texts as they are given from Python, and one as a model reads it: after end-of-text, or between a masked system's
special tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foretext.errors import UserError
from foretext.runs.model import SavedModel, reach_of


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
