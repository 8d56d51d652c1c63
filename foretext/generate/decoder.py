"""Rows of tokens that grow by one token a step, with a cache of what was read: the engine under sampling, batches and
beams.

When a row no longer fits the context, the newest half of a context's length is read again and the row goes on from
there; rows that are shorter stay whole. A step then costs a little more, and the text before that half is forgotten.
A model that reads on for ever (an LSTM) forgets nothing so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from foretext.batch import Batch
from foretext.errors import UserError
from foretext.nn.trunk import Trunk, reads_on
from foretext.runs.model import SavedModel, need_causal, need_trained_head, reach_of


def reader_of(model: SavedModel, what: str = "writing text") -> tuple[Trunk, int | None]:
    """What reads a text and goes on with it, and how much it reads at a time (None: any number of tokens). UserError
    for a model that cannot do `what`, as it predicts no token from those before it."""
    own = None
    if model.objective is not None:
        own = model.objective.reader(model.trunk, model.model_config.reads, model.info.direction)
    if own is None:
        need_causal(model, what)
        return model.trunk.eval(), reach_of(model)
    need_trained_head(model, what)
    return own, None if reads_on(own) else model.model_config.reads


class Decoder:
    """`rows` are what has been read so far: prompts, and what was appended to them. An empty prompt begins after
    end-of-text."""

    def __init__(self, model: SavedModel, prompts: Sequence[Sequence[int]]) -> None:
        if not prompts:
            raise UserError("there is no prompt to go on from")
        self.trunk, self.context = reader_of(model)
        self.end = model.tokenizer.end
        self.forbidden = [number for number in model.tokenizer.specials.values() if number != self.end]
        if model.tokenizer.unknown is not None:
            self.forbidden.append(model.tokenizer.unknown)
        self.rows = [list(prompt) or self._start() for prompt in prompts]
        self._top: Tensor
        self._state: Any
        self._device = next(self.trunk.parameters()).device
        # What stands before these is forgotten.
        self._starts = [0 if self.context is None else max(0, len(row) - self.context) for row in self.rows]
        self._read_all()

    def _start(self) -> list[int]:
        if self.end is None:
            raise UserError("this model's vocabulary has no end-of-text to begin after; give a prompt")
        return [self.end]

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Scores [rows, vocabulary] of each row's next token, as the model gives them, on the CPU."""
        return self.trunk.output_layer().logits(self._top).float().cpu()

    def allowed(self, logits: Tensor) -> Tensor:
        """The same without special tokens and `<unk>`, which are never written; end-of-text stays."""
        forbidden = [number for number in self.forbidden if number < logits.shape[-1]]
        return logits.index_fill(-1, torch.tensor(forbidden, dtype=torch.long), -torch.inf)

    @torch.no_grad()
    def append(self, tokens: Sequence[int]) -> None:
        """One token more for each row."""
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
        """These rows, in this order; one may be taken several times."""
        self.rows = [list(self.rows[number]) for number in numbers]
        self._starts = [self._starts[number] for number in numbers]
        chosen = torch.tensor(list(numbers), device=self._device)
        self._top = self._top[chosen]
        self._state = self.trunk.pick(self._state, chosen)

    @torch.no_grad()
    def _read_all(self) -> None:
        """From nothing. Shorter rows are filled up on the left, so that all end at one place."""
        rows = [row[start:] for row, start in zip(self.rows, self._starts)]
        longest = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        real = torch.zeros(len(rows), longest, dtype=torch.bool)
        for number, row in enumerate(rows):
            ids[number, longest - len(row) :] = torch.tensor(list(row))
            real[number, longest - len(row) :] = True
        batch = Batch(ids, None if bool(real.all()) else real).to(self._device)
        self._read(batch, self.trunk.new_state(len(rows)))

    def _read(self, batch: Batch, state: object) -> None:
        hidden = self.trunk(batch, state)
        self._top, self._state = hidden.top[:, -1], hidden.state
