"""Several texts at once, and beam search."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from foretext.errors import refuse_if
from foretext.generate.beam_search import Rules, search
from foretext.generate.sampling import (
    Decoder,
    Sampling,
    choose,
    generator_of,
    penalised,
    reader_of,
    spaced,
    stop_at,
    text_pieces,
)
from foretext.runs.model import SavedModel
from foretext.text.tokenizers.base import Tokenizer

BATCH = 16
Ending = Literal["end", "stop", "length"]


@dataclass(frozen=True)
class Written:
    """A continuation. `log_probabilities`: of each id under the model's own distribution, before temperature, limits
    and penalty. `ending`: end-of-text, a stop string, or `max_tokens`."""

    text: str
    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    ending: Ending
    cut: int = 0  # tokens of the prompt that were left out


@dataclass
class _Row:
    tokenizer: Tokenizer
    sampling: Sampling
    generator: torch.Generator
    spaced: bool  # whether a space is due between prompt and continuation
    cut: int
    ids: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    ending: Ending = "length"

    def grow(self, scores_V: Tensor, own_V: Tensor, end: int | None) -> None:
        """By a token drawn from `scores_V`; `own_V` has the log-probabilities of the model itself."""
        chosen = choose(scores_V, self.sampling, self.generator)
        if chosen == end:
            self.ending = "end"
            return
        self.ids.append(chosen)
        self.log_probabilities.append(float(own_V[chosen]))
        if self.sampling.stop and any(stop and stop in self._text() for stop in self.sampling.stop):
            self.ending = "stop"

    def _text(self) -> str:
        """What will be shown, stop strings included."""
        return "".join(text_pieces(self.tokenizer, iter(self.ids), self.spaced))

    def written(self) -> Written:
        text = "".join(stop_at(iter([self._text()]), self.sampling.stop))
        return Written(text, tuple(self.ids), tuple(self.log_probabilities), self.ending, self.cut)


def write_in_turn(
    model: SavedModel, prompts: Sequence[str], sampling: Sampling, batch: int = BATCH, reserve: bool = False
) -> Iterator[Written]:
    """A continuation of each prompt, as they are done, `batch` of them at a time. A text depends on its prompt, the
    seed and its place, not on its neighbours. `reserve`: a prompt is cut on the left, and the tokens lost are counted,
    so that it and all `max_tokens` fit the context (or to half of it, if that is more); otherwise the window moves as
    the text grows."""
    refuse_if(
        model.info.direction != "forward",
        "a right-to-left model writes one text at a time, without log-probabilities: generate RUN --prompt …",
    )
    _, context = reader_of(model)
    room = max(context - sampling.max_tokens, context // 2, 1) if reserve and context is not None else sys.maxsize
    for start in range(0, len(prompts), batch):
        yield from _write_batch(model, prompts[start : start + batch], sampling, start, room)


def _write_batch(model: SavedModel, prompts: Sequence[str], sampling: Sampling, first: int, room: int) -> list[Written]:
    """`room`: tokens of a prompt that are read."""
    encoded = [model.tokenizer.encode(prompt) for prompt in prompts]
    rows = []
    for number, (prompt, ids) in enumerate(zip(prompts, encoded), first):
        space, cut = spaced(model.tokenizer, ids, prompt[-1:]), max(0, len(ids) - room)
        rows.append(_Row(model.tokenizer, sampling, generator_of(sampling.seed, number), space, cut))
    decoder, live = Decoder(model, [ids[row.cut :] for row, ids in zip(rows, encoded)]), rows
    for step in range(sampling.max_tokens):
        logits = decoder.logits()
        own_RV, allowed_RV = torch.log_softmax(logits, dim=-1), decoder.allowed(logits)
        for row, known, own_V, allowed_V in zip(live, decoder.rows, own_RV, allowed_RV):
            row.grow(penalised(allowed_V, known, sampling.repetition_penalty), own_V, decoder.end)
        going = [place for place, row in enumerate(live) if row.ending == "length"]
        if not going or step + 1 == sampling.max_tokens:
            break
        if len(going) < len(live):
            decoder.keep(going)
            live = [live[place] for place in going]
        decoder.append([row.ids[-1] for row in live])
    return [row.written() for row in rows]


def beam_search(model: SavedModel, prompt: str, beams: int, sampling: Sampling) -> list[tuple[Written, float]]:
    """The best continuations and their scores, best first: the sum of log-probabilities (with a repetition penalty,
    those after it) divided by the number of tokens (end-of-text among them). Of `sampling` what has nothing to do with
    chance counts: `max_tokens`, `stop` and `repetition_penalty`.

    Each step keeps the `beams` best of all continuations by one token; those that end, by end-of-text or a stop string,
    are put aside. It stops when no continuation can beat the worst of `beams` that have ended, or at `max_tokens`,
    where what goes on counts too.
    """
    refuse_if(model.info.direction != "forward", "beam search is for left-to-right models")
    asked = model.tokenizer.encode(prompt)
    begins = spaced(model.tokenizer, asked, prompt[-1:])

    def text_of(ids: Sequence[int]) -> str:
        return "".join(text_pieces(model.tokenizer, iter(ids), begins))

    def stops(ids: Sequence[int]) -> bool:
        return any(one and one in text_of(ids) for one in sampling.stop)

    rules = Rules(beams, model.tokenizer.end, patient=True, stops=stops)
    decoder = Decoder(model, [asked])

    def grow(rows: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
        if tokens:
            decoder.keep(rows)
            decoder.append(tokens)
        logits = decoder.logits().double()
        pressed = [penalised(row, ids, sampling.repetition_penalty) for row, ids in zip(logits, decoder.rows)]
        scores = torch.log_softmax(torch.stack(pressed), dim=-1)
        scores = scores.masked_fill(decoder.allowed(logits) == -torch.inf, -torch.inf)
        return scores, torch.log_softmax(logits, dim=-1)

    found = []
    for one in search(grow, [sampling.max_tokens], rules)[0]:
        ending: Ending = "stop" if one.stopped else "end" if one.ended else "length"
        text = "".join(stop_at(iter([text_of(one.ids)]), sampling.stop))
        found.append((Written(text, one.ids, one.gains, ending), one.score))
    return found
