"""Several texts at once, and beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from foretext.errors import UserError
from foretext.generate.decode import Sampling, choose, generator_of, penalised, stop_at, text_pieces
from foretext.generate.decoder import Decoder
from foretext.train.saved import SavedModel

Ending = Literal["end", "stop", "length"]


@dataclass(frozen=True)
class Written:
    """A continuation. `log_probabilities`: of each id under the model's own distribution, before temperature, limits
    and penalty. `ending`: end-of-text, a stop string, or `max_tokens`."""

    text: str
    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    ending: Ending


@dataclass
class _Row:
    number: int
    ids: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    ending: Ending = "length"


def write_many(model: SavedModel, prompts: Sequence[str], sampling: Sampling) -> list[Written]:
    """A continuation of each prompt. A text depends on its prompt, the seed and its place, not on its neighbours."""
    if model.info.direction != "forward":
        raise UserError("a right-to-left model writes one text at a time; use generate")
    encoded = [model.tokenizer.encode(prompt) for prompt in prompts]
    rows = [_Row(number) for number in range(len(prompts))]
    generators = [generator_of(sampling.seed, number) for number in range(len(prompts))]
    decoder, live = Decoder(model, encoded), list(rows)
    for step in range(sampling.max_tokens):
        logits = decoder.logits()
        own = torch.log_softmax(logits, dim=-1)
        allowed = decoder.allowed(logits)
        for place, row in enumerate(live):
            scores = penalised(allowed[place], decoder.rows[place], sampling.repetition_penalty)
            chosen = choose(scores, sampling, generators[row.number])
            if chosen == decoder.end:
                row.ending = "end"
                continue
            row.ids.append(chosen)
            row.log_probabilities.append(float(own[place, chosen]))
            if sampling.stop and _stopped(model, row.ids, sampling.stop):
                row.ending = "stop"
        going = [place for place, row in enumerate(live) if row.ending == "length"]
        if not going or step + 1 == sampling.max_tokens:
            break
        if len(going) < len(live):
            decoder.keep(going)
            live = [live[place] for place in going]
        decoder.append([row.ids[-1] for row in live])
    return [_written(model, prompt, row, sampling) for prompt, row in zip(prompts, rows)]


def _stopped(model: SavedModel, ids: Sequence[int], stops: Sequence[str]) -> bool:
    text = model.tokenizer.decode(ids)
    return any(stop and stop in text for stop in stops)


def _written(model: SavedModel, prompt: str, row: _Row, sampling: Sampling) -> Written:
    begins = bool(prompt) and not prompt[-1].isspace() and _ends_word(model, prompt)
    text = "".join(stop_at(text_pieces(model.tokenizer, iter(row.ids), begins), sampling.stop))
    return Written(text, tuple(row.ids), tuple(row.log_probabilities), row.ending)


def _ends_word(model: SavedModel, prompt: str) -> bool:
    ids = model.tokenizer.encode(prompt)
    return bool(ids) and model.tokenizer.ends_word(ids[-1])


def beam_search(
    model: SavedModel, prompt: str, beams: int, max_tokens: int, length_penalty: float = 1.0
) -> list[tuple[Written, float]]:
    """The best continuations and their scores, best first: the sum of log-probabilities divided by the number of tokens
    (end-of-text among them) to the power of `length_penalty`.

    Each step keeps the `beams` best of all continuations by one token; those that end are put aside. It stops when no
    continuation can beat the worst of `beams` that have ended, or at `max_tokens`, where what goes on counts too.
    """
    if beams < 1 or max_tokens < 1:
        raise UserError(f"beam search needs at least one beam and one token, not {beams} and {max_tokens}")
    if model.info.direction != "forward":
        raise UserError("beam search is for left-to-right models")
    start = len(model.tokenizer.encode(prompt)) or 1
    decoder = Decoder(model, [model.tokenizer.encode(prompt)])
    totals, chosen = [0.0], [()]
    done: list[tuple[float, tuple[float, ...], tuple[int, ...], Ending]] = []
    steps: list[tuple[float, ...]] = chosen
    for step in range(max_tokens):
        scores = torch.log_softmax(decoder.allowed(decoder.logits()).double(), dim=-1)
        whole = scores + torch.tensor(totals, dtype=torch.double)[:, None]
        values, places = whole.flatten().topk(min(2 * beams, whole.numel()))
        kept: list[tuple[int, int, float]] = []
        for value, place in zip(values.tolist(), places.tolist()):
            row, token = divmod(place, whole.shape[1])
            if value == -torch.inf:
                continue
            if token == decoder.end:
                if len(kept) < beams:
                    ids = tuple(decoder.rows[row][start:])
                    done.append((value / (step + 1) ** length_penalty, steps[row], ids, "end"))
            elif len(kept) < beams:
                kept.append((row, token, value))
        if not kept:
            break
        added = [float(scores[row, token]) for row, token, _ in kept]
        steps = [(*steps[row], gain) for (row, _, _), gain in zip(kept, added)]
        totals = [value for _, _, value in kept]
        last = step + 1 == max_tokens
        if last or _decided(done, beams, max(totals), step + 1, max_tokens, length_penalty):
            rows = [(*decoder.rows[row][start:], token) for row, token, _ in kept]
            if last:
                done += [(v / (step + 1) ** length_penalty, s, ids, "length") for v, s, ids in zip(totals, steps, rows)]
            break
        decoder.keep([row for row, _, _ in kept])
        decoder.append([token for _, token, _ in kept])
    done.sort(key=lambda entry: -entry[0])
    return [(_beam(model, prompt, ids, gains, ending), score) for score, gains, ids, ending in done[:beams]]


def _decided(
    done: Sequence[tuple[float, object, object, object]], beams: int, best: float, length: int, most: int, power: float
) -> bool:
    """Whether nothing that goes on can come among the best. Its sum can only fall; a positive power helps long ones."""
    if len(done) < beams:
        return False
    worst = sorted((entry[0] for entry in done), reverse=True)[beams - 1]
    return best / (most if power > 0 else length) ** power <= worst


def _beam(model: SavedModel, prompt: str, ids: Sequence[int], gains: Sequence[float], ending: Ending) -> Written:
    begins = bool(prompt) and not prompt[-1].isspace() and _ends_word(model, prompt)
    text = "".join(text_pieces(model.tokenizer, iter(ids), begins))
    return Written(text, tuple(ids), tuple(gains), ending)
