"""Generates text one token at a time from the model's own distribution, with a cache of keys and values.

Sampling: the logits are divided by the temperature (0: the best token is taken), then cut to the `top_k` best (ties:
lower ids first) and to the smallest set whose probability reaches `top_p`. Special tokens and `<unk>` are never
generated: all but end-of-text are forbidden, and end-of-text ends the text.

Spacing: prompt and continuation join correctly. With byte-level BPE the pieces are the text, spaces included. In GPT's
character BPE a piece that ends a word also stands for the space after it. That space is held back until another word
follows; the first one, which belongs to the prompt's last word, begins the continuation.

`Decoder` is the engine under sampling, batches and beams: rows of tokens that grow by one token per step, with a cache
of what was read.

When a row no longer fits the context, the newest half of a context's length is read again and the row continues from
there; shorter rows stay whole. Such a step costs a little more, and earlier text is forgotten. A model that can read on
forever (an LSTM) does not need this.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretext.batch import Batch, padded
from foretext.errors import check_range, refuse_if
from foretext.nn.trunk import Trunk, reads_on
from foretext.runs.model import SavedModel, need_causal, need_trained_head, reach_of
from foretext.text.tokenizers.base import Tokenizer


def reader_of(model: SavedModel, what: str = "writing text") -> tuple[Trunk, int | None]:
    """What reads a text and continues it, and how many tokens it can read at once (None: any number). UserError for a
    model that cannot do `what` because it does not predict each token from those before it."""
    reader = None
    if model.objective is not None:
        reader = model.objective.reader(model.trunk, model.model_config.reads, model.info.direction)
    if reader is None:
        need_causal(model, what)
        return model.trunk.eval(), reach_of(model)
    need_trained_head(model, what)
    return reader, None if reads_on(reader) else model.model_config.reads


class Decoder:
    """`rows` are what has been read so far: prompts, and what was appended. An empty prompt starts after
    end-of-text."""

    def __init__(self, model: SavedModel, prompts: Sequence[Sequence[int]]) -> None:
        refuse_if(not prompts, "there is no prompt to continue")
        self.trunk, self.context = reader_of(model)
        self.end = model.tokenizer.end
        self.forbidden = [number for number in model.tokenizer.specials.values() if number != self.end]
        if model.tokenizer.unknown is not None:
            self.forbidden.append(model.tokenizer.unknown)
        start = [] if self.end is None else [self.end]
        self.rows = [list(prompt or start) for prompt in prompts]
        refuse_if(not all(self.rows), "this model's vocabulary has no end-of-text to start after; give a prompt")
        self._top: Tensor
        self._state: Any
        self._device = next(self.trunk.parameters()).device
        # Everything before these is forgotten.
        self._starts = [0 if self.context is None else max(0, len(row) - self.context) for row in self.rows]
        self._read_all()

    @torch.no_grad()
    def logits(self) -> Tensor:
        """The logits [rows, vocabulary] of each row's next token, on the CPU."""
        return self.trunk.output_layer().logits(self._top).float().cpu()

    def allowed(self, logits: Tensor) -> Tensor:
        """The logits without special tokens and `<unk>`, which are never written; end-of-text stays."""
        forbidden = torch.tensor([number for number in self.forbidden if number < logits.shape[-1]], dtype=torch.long)
        return logits.index_fill(-1, forbidden, -torch.inf)

    @torch.no_grad()
    def append(self, tokens: Sequence[int]) -> None:
        """Appends one token to each row."""
        assert len(tokens) == len(self.rows)
        for row, token in zip(self.rows, tokens):
            row.append(token)
        room = self.trunk.room(self._state)
        if room is not None and room < 1:
            assert self.context is not None
            half = max(1, self.context // 2)
            for number, row in enumerate(self.rows):
                if len(row) - self._starts[number] > self.context:
                    self._starts[number] = len(row) - half
            self._read_all()
            return
        self._read(Batch(torch.tensor(tokens, device=self._device)[:, None]), self._state)

    def keep(self, numbers: Sequence[int]) -> None:
        """Keeps these rows, in this order; a row may be taken several times."""
        self.rows = [list(self.rows[number]) for number in numbers]
        self._starts = [self._starts[number] for number in numbers]
        chosen = torch.tensor(list(numbers), device=self._device)
        self._top = self._top[chosen]
        self._state = self.trunk.pick(self._state, chosen)

    @torch.no_grad()
    def _read_all(self) -> None:
        """Reads everything from the start. Shorter rows are padded on the left, so that all end at one position."""
        rows = [row[start:] for row, start in zip(self.rows, self._starts)]
        ids, real = (part.flip(1) for part in padded([row[::-1] for row in rows]))
        batch = Batch(ids, None if bool(real.all()) else real).to(self._device)
        self._read(batch, self.trunk.new_state(len(rows)))

    def _read(self, batch: Batch, state: object) -> None:
        hidden = self.trunk(batch, state)
        self._top, self._state = hidden.top[:, -1], hidden.state


# -- sampling ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampling:
    max_tokens: int = 100
    temperature: float = 1.0
    top_k: int = 0  # 0: no limit
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repetition_penalty: float = 1.0  # 1: none

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole = name in ("max_tokens", "top_k", "seed")
            fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            refuse_if(
                name != "stop" and not fits and (name, value) != ("seed", None),
                f"{name} must be a {'whole ' * whole}number, not {value!r}",
            )
        check_range("", self, "at least 1", "max_tokens")
        check_range("", self, "at least 0", "temperature", "top_k")
        check_range("", self, "above 0 and at most 1", "top_p")
        check_range("", self, "above 0", "repetition_penalty")
        if self.seed is not None:
            check_range("", self, f"at least 0 and below {1 << 63:,}", "seed")


def check_beams(beams: int, sampling: Sampling) -> None:
    """UserError for a number of beams that cannot be, and for options of sampling beside them."""
    refuse_if(beams < 0, f"--beams must be 0 (sampling) or more, not {beams}")
    refuse_if(
        beams and sampling != replace(sampling, temperature=1.0, top_k=0, top_p=1.0, seed=None),
        "--beams searches for the most likely text and does not sample: leave out the sampling options",
    )


def choose(logits_V: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """One token id, drawn from `logits_V`."""
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    # The best logit is shifted to 0 and the others below it, so that no small temperature can make it infinite.
    exact = logits_V.double()
    scaled = (exact - exact.max()) / sampling.temperature
    if sampling.top_k and sampling.top_k < len(scaled):
        least = torch.topk(scaled, sampling.top_k).values[-1]
        too_many = (scaled == least).nonzero().squeeze(1)[sampling.top_k - int((scaled > least).sum()) :]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
        scaled[too_many] = -torch.inf
    probabilities = torch.softmax(scaled, dim=-1)
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(descending=True)
        # A token stays if those before it do not yet reach top_p, so the first always stays.
        probabilities[order[ordered.cumsum(0) - ordered >= sampling.top_p]] = 0.0
    return int(torch.multinomial(probabilities, 1, generator=generator))


def penalised(logits_V: Tensor, known: Sequence[int], penalty: float) -> Tensor:
    """Makes tokens that have already occurred less likely (Keskar et al. 2019): positive logits are divided by
    `penalty`, negative ones multiplied."""
    if penalty == 1.0:
        return logits_V
    seen = torch.tensor(sorted(number for number in set(known) if number < len(logits_V)), dtype=torch.long)
    scores = logits_V[seen]
    return logits_V.index_copy(0, seen, torch.where(scores > 0, scores / penalty, scores * penalty))


def generator_of(seed: int | None, row: int = 0) -> torch.Generator:
    """The random generator of one text, from the seed and its position; the first uses the seed alone."""
    if seed is None:
        return torch.Generator().manual_seed(torch.seed() >> 1)
    mixed = seed if not row else int(np.random.SeedSequence([seed, row]).generate_state(1, np.uint64)[0]) >> 1
    return torch.Generator().manual_seed(mixed)


def generate_ids(model: SavedModel, prompt: Sequence[int], sampling: Sampling) -> Iterator[int]:
    """New ids after `prompt`, in the model's reading direction, until end-of-text or `max_tokens`."""
    decoder = Decoder(model, [prompt])
    generator = generator_of(sampling.seed)
    for number in range(sampling.max_tokens):
        logits = penalised(decoder.allowed(decoder.logits())[0], decoder.rows[0], sampling.repetition_penalty)
        chosen = choose(logits, sampling, generator)
        if chosen == decoder.end:
            return
        yield chosen
        if number + 1 < sampling.max_tokens:
            decoder.append([chosen])


def generate_text(model: SavedModel, prompt: str, sampling: Sampling) -> Iterator[str]:
    """The continuation of `prompt` in pieces, as they are generated; a right-to-left model's text comes as one
    piece."""
    ids = model.tokenizer.encode(prompt)
    if model.info.direction == "backward":
        written = [*generate_ids(model, ids[::-1], sampling)][::-1]
        text = _cut_left("".join(text_pieces(model.tokenizer, iter(written))), sampling.stop)
        text = text if model.tokenizer.lossless else text.lstrip(" ")  # no space before the first word
        # In a word vocabulary, the prompt's first piece may bring a space that is not in the prompt.
        brings = bool(ids) and model.tokenizer.piece_bytes(ids[0]).startswith(b" ") and not prompt[:1].isspace()
        spaces = brings or spaced(model.tokenizer, written, prompt[:1])
        yield text + " " if text and spaces else text
        return
    begins = spaced(model.tokenizer, ids, prompt[-1:])
    yield from stop_at(text_pieces(model.tokenizer, generate_ids(model, ids, sampling), begins), sampling.stop)


def text_around(model: SavedModel, prompt: str, sampling: Sampling) -> Iterator[str]:
    """The prompt and its continuation in the order of the text, piece by piece. A prompt that cannot be continued fails
    before anything is given out."""
    pieces = generate_text(model, prompt, sampling)
    first = next(pieces, "")
    yield from (prompt, first) if model.info.direction == "forward" else (first,)
    yield from pieces
    if model.info.direction == "backward":
        yield prompt


def spaced(tokenizer: Tokenizer, before: Sequence[int], neighbour: str) -> bool:
    """Whether a space belongs after `before`; `neighbour` is the prompt's nearest character."""
    return bool(before) and tokenizer.ends_word(before[-1]) and bool(neighbour) and not neighbour.isspace()


def text_pieces(tokenizer: Tokenizer, ids: Iterator[int], space: bool = False) -> Iterator[str]:
    """Ids as text. Holds back the bytes of a character until it is complete, and the space after a word until something
    follows on the same line. `space`: a space is due already."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for number in ids:
        text = decoder.decode(tokenizer.piece_bytes(number))
        if space and not text.startswith("\n"):
            text = " " + text
        ends = tokenizer.ends_word(number)
        text = text[:-1] if ends else text
        space = ends and not text.endswith("\n")
        if text:
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest


def stop_at(pieces: Iterator[str], stops: Sequence[str]) -> Iterator[str]:
    """`pieces` up to the first stop string, which is left out; what may be the beginning of one is held back."""
    stops = [stop for stop in stops if stop]
    held = ""
    for piece in pieces:
        held += piece
        places = [held.index(stop) for stop in stops if stop in held]
        if places:
            if held[: min(places)]:
                yield held[: min(places)]
            return
        keep = max((_overlap(held, stop) for stop in stops), default=0)
        if len(held) > keep:
            yield held[: len(held) - keep]
            held = held[len(held) - keep :]
    if held:
        yield held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a beginning of `stop`."""
    return next((length for length in range(len(stop) - 1, 0, -1) if text.endswith(stop[:length])), 0)


def _cut_left(text: str, stops: Sequence[str]) -> str:
    """The text after the last stop string: the mirror image of `stop_at`."""
    return text[max((text.rfind(stop) + len(stop) for stop in stops if stop and stop in text), default=0) :]
