"""Several texts at once, and beam search.

Beam search works on a step function, for many texts at once; with one beam it is greedy search.

`grow` gets the rows of the last step that continue, and the word appended to each. It returns the log-probabilities of
the words after them. Finished rows are dropped at once, so each step computes only hypotheses that still grow. There
are two uses: translation (`search_translations`, over the model of `nn/recurrent/cove.py`), and the continuation of a
prompt (`beam_search`).

For each text, beam search keeps the best `beams` unfinished hypotheses by the sum of their log-probabilities. A
hypothesis that ends is set aside if it is among the `beams` best of its step. A text is done when `beams` hypotheses
have ended, or at its limit of words. A `patient` search sets aside every ending that ranks above the last hypothesis
kept, and continues until nothing that grows can rank among the best.

The ended hypotheses of a text are compared by (Σ log p) / n, where n counts its words and the end symbol. Hypotheses
cut off at the limit (n: their words) rank below all that have ended, since a translation that does not end mostly
repeats itself. In a patient search they rank like the others.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from foretext.errors import refuse_if
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
from foretext.text.words.word_list import START, UNKNOWN

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
    cut: int = 0  # tokens of the prompt that were cut

    def record(self, prompt: str, tokenizer: Tokenizer | None = None) -> dict[str, object]:
        """For JSON, with the tokens if `tokenizer` tells their pieces."""
        record: dict[str, object] = {"prompt": prompt, "text": self.text, "ending": self.ending}
        if tokenizer is not None:
            record["tokens"] = [
                {"id": id, "piece": tokenizer.piece(id), "log_probability": value}
                for id, value in zip(self.ids, self.log_probabilities)
            ]
        return record


@dataclass
class _Row:
    tokenizer: Tokenizer
    sampling: Sampling
    generator: torch.Generator
    spaced: bool  # whether a space is needed between prompt and continuation
    cut: int
    ids: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    ending: Ending = "length"

    def grow(self, scores_V: Tensor, own_V: Tensor, end: int | None) -> None:
        """Appends a token drawn from `scores_V`; `own_V` has the model's own log-probabilities."""
        chosen = choose(scores_V, self.sampling, self.generator)
        if chosen == end:
            self.ending = "end"
            return
        self.ids.append(chosen)
        self.log_probabilities.append(float(own_V[chosen]))
        if self.sampling.stop and any(stop and stop in self._text() for stop in self.sampling.stop):
            self.ending = "stop"

    def _text(self) -> str:
        """The text to show, stop strings included."""
        return "".join(text_pieces(self.tokenizer, iter(self.ids), self.spaced))

    def written(self) -> Written:
        text = "".join(stop_at(iter([self._text()]), self.sampling.stop))
        return Written(text, tuple(self.ids), tuple(self.log_probabilities), self.ending, self.cut)


def write_in_turn(
    model: SavedModel, prompts: Sequence[str], sampling: Sampling, batch: int = BATCH, reserve: bool = False
) -> Iterator[Written]:
    """A continuation of each prompt, yielded as it is done, `batch` prompts at a time. A text depends on its prompt,
    the seed and its position, not on its neighbours. With `reserve`, a prompt is cut on the left, and the lost tokens
    counted, so that it and all `max_tokens` fit the context (but at most to half of it). Otherwise the window moves as
    the text grows."""
    refuse_if(
        model.info.direction != "forward",
        "a right-to-left model writes one text at a time, without log-probabilities: generate RUN --prompt …",
    )
    _, context = reader_of(model)
    room = max(context - sampling.max_tokens, context // 2, 1) if reserve and context is not None else sys.maxsize
    for start in range(0, len(prompts), batch):
        yield from _write_batch(model, prompts[start : start + batch], sampling, start, room)


def best_texts(model: SavedModel, prompts: Sequence[str], sampling: Sampling, beams: int = 0) -> Iterator[Written]:
    """A continuation of each prompt, yielded as it is done: the best that a search with this many beams finds; 0: a
    sampled one."""
    if beams:
        return (beam_search(model, prompt, beams, sampling)[0][0] for prompt in prompts)
    return write_in_turn(model, prompts, sampling)


def _write_batch(model: SavedModel, prompts: Sequence[str], sampling: Sampling, first: int, room: int) -> list[Written]:
    """`room`: the most tokens of a prompt that are read."""
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


# -- beam search -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hypothesis:
    """A text without its end symbol. `log_probability` is that of all its words and, if it `ended` with the end symbol,
    of that too; `stopped`: it ended with a stop string. `gains`: the model's own log-probability for each word, if
    known. `row`: its row in the last step."""

    ids: tuple[int, ...]
    log_probability: float
    ended: bool = False
    stopped: bool = False
    gains: tuple[float, ...] = ()
    row: int = 0

    @property
    def score(self) -> float:
        """The mean log-probability per word, counting the end symbol."""
        return self.log_probability / max(1, len(self.ids) + self.ended)


@dataclass(frozen=True)
class Rules:
    """`end`: the end symbol, if there is one. `stops`: whether a text ends with these words."""

    beams: int
    end: int | None
    patient: bool = False
    stops: Callable[[tuple[int, ...]], bool] = lambda ids: False

    def __post_init__(self) -> None:
        whole = isinstance(self.beams, int) and not isinstance(self.beams, bool)
        refuse_if(not whole or self.beams < 1, f"beams must be a whole number, at least 1, not {self.beams!r}")

    def rank(self, one: Hypothesis) -> tuple[bool, float]:
        """Sort key: ended hypotheses first (except in a patient search), then by score, best first."""
        return not self.patient and not one.ended, -one.score


# Takes the rows that continue and their words (none at the start). Returns two log-probabilities [rows, V]: those for
# the search, with −∞ for words that are never written, and the model's own, if they are to be kept.
Grow = Callable[[list[int], list[int]], tuple[Tensor, Tensor | None]]


def search(grow: Grow, limits: Sequence[int], rules: Rules) -> list[list[Hypothesis]]:
    """At most `beams` hypotheses for each text, best first."""
    done: list[list[Hypothesis]] = [[] for _ in limits]
    live = {number: [Hypothesis((), 0.0, row=number)] for number in range(len(limits))}
    while live:
        beams = [one for beam in live.values() for one in beam]
        scores, own = grow([one.row for one in beams], [one.ids[-1] for one in beams if one.ids])
        # At most `beams` continuations of one hypothesis can be kept; the other candidates may end.
        values, words = (part.tolist() for part in scores.topk(min(2 * rules.beams, scores.shape[1]), dim=1))
        rows = itertools.count()
        for number, beam in list(live.items()):
            grown = [new for one, row in zip(beam, rows) for new in _grown(one, row, values[row], words[row])]
            live[number] = _sort_out(grown, done[number], own, rules)
            if not _goes_on(live[number], done[number], limits[number], rules):
                del live[number]
    return [sorted(ended, key=rules.rank)[: rules.beams] for ended in done]


def _grown(one: Hypothesis, row: int, gains: list[float], words: list[int]) -> list[Hypothesis]:
    """A hypothesis with each of the words that may follow it."""
    return [
        replace(one, ids=(*one.ids, word), log_probability=one.log_probability + gain, row=row)
        for gain, word in zip(gains, words)
        if gain > -torch.inf
    ]


def _sort_out(grown: list[Hypothesis], done: list[Hypothesis], own: Tensor | None, rules: Rules) -> list[Hypothesis]:
    """Returns the best `beams` hypotheses that continue, from candidates with their next word; those that end go to
    `done`."""
    kept: list[Hypothesis] = []
    best = sorted(grown, key=lambda one: -one.log_probability)[: 2 * rules.beams]
    for place, one in enumerate(best):
        if one.ids[-1] == rules.end:
            if rules.patient or place < rules.beams:
                done.append(replace(one, ids=one.ids[:-1], ended=True))
            continue
        if own is not None:
            one = replace(one, gains=(*one.gains, float(own[one.row, one.ids[-1]])))
        if rules.stops(one.ids):
            done.append(replace(one, stopped=True))
            continue
        kept.append(one)
        if len(kept) == rules.beams:
            break
    return kept


def _goes_on(kept: list[Hypothesis], done: list[Hypothesis], limit: int, rules: Rules) -> bool:
    """Whether to continue with a text: until enough hypotheses have ended; in a patient search, until nothing that
    grows can rank among them. Hypotheses cut off at the limit go to `done`."""
    if not kept:
        return False
    if len(kept[0].ids) >= limit:
        done += kept
        return False
    if len(done) < rules.beams or not rules.patient:
        return len(done) < rules.beams
    worst = sorted((one.score for one in done), reverse=True)[rules.beams - 1]
    # The sum of the best growing hypothesis can only fall, and is divided by at most `limit` words.
    return kept[0].log_probability / limit > worst


@torch.no_grad()
def search_translations(
    step: Callable[[Tensor, Any], tuple[Tensor, Any]],
    state: Any,
    limits: Sequence[int],
    rules: Rules,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first, with `Translator.decode_step`; `state` is the model's state
    before the first word."""
    count = len(limits)

    def grow(rows: list[int], words: list[int]) -> tuple[Tensor, None]:
        nonlocal state, count
        if rows != list(range(count)):
            state = state.pick(torch.tensor(rows, device=device))
        count = len(rows)
        logits_BV, state = step(torch.tensor(words or [START] * count, device=device), state)
        gains_BV = torch.log_softmax(logits_BV, dim=1)
        gains_BV[:, [START, UNKNOWN]] = -torch.inf  # never written
        return gains_BV.cpu(), None

    return search(grow, limits, rules)


def beam_search(model: SavedModel, prompt: str, beams: int, sampling: Sampling) -> list[tuple[Written, float]]:
    """The best continuations with their scores, best first. A score is the sum of log-probabilities (after a repetition
    penalty, if any) divided by the number of tokens, end-of-text included. Only `max_tokens`, `stop` and
    `repetition_penalty` of `sampling` apply.

    Each step keeps the `beams` best continuations by one token. Those that end, with end-of-text or a stop string, are
    set aside. The search stops when no continuation can beat the worst of `beams` ended ones, or at `max_tokens`, where
    unfinished ones count too.
    """
    refuse_if(model.info.direction != "forward", "beam search is for left-to-right models")
    ids_of_prompt = model.tokenizer.encode(prompt)
    begins = spaced(model.tokenizer, ids_of_prompt, prompt[-1:])

    def text_of(ids: Sequence[int]) -> str:
        return "".join(text_pieces(model.tokenizer, iter(ids), begins))

    def stops(ids: Sequence[int]) -> bool:
        return any(stop and stop in text_of(ids) for stop in sampling.stop)

    rules = Rules(beams, model.tokenizer.end, patient=True, stops=stops)
    decoder = Decoder(model, [ids_of_prompt])

    def grow(rows: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
        if tokens:
            decoder.keep(rows)
            decoder.append(tokens)
        logits = decoder.logits().double()
        pressed = [penalised(row, ids, sampling.repetition_penalty) for row, ids in zip(logits, decoder.rows)]
        scores = torch.log_softmax(torch.stack(pressed), dim=-1)
        scores = scores.masked_fill(decoder.allowed(logits) == -torch.inf, -torch.inf)
        return scores, torch.log_softmax(logits, dim=-1)

    results = []
    for hypothesis in search(grow, [sampling.max_tokens], rules)[0]:
        ending: Ending = "stop" if hypothesis.stopped else "end" if hypothesis.ended else "length"
        text = "".join(stop_at(iter([text_of(hypothesis.ids)]), sampling.stop))
        results.append((Written(text, hypothesis.ids, hypothesis.gains, ending), hypothesis.score))
    return results
