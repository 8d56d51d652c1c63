"""Scoring each token after a context: Transformer-XL's memory against reading the context again for each token.

    python -m bench.memory_reuse [--quick] [--context 512] [--size tiny]

All sides score tokens of one text, each token's probability after the 512 before it, with the same random weights. A
model without memory reads the last 512 tokens anew for each token and takes the last state. One with a memory does what
`foretext evaluate` does: it reads a segment of tokens after the memory that the last one left, and has the probability
of each of them (the paper's evaluation). And it can go on by a single token, as it does where text is written: then
nothing is shared between tokens, and what is remembered is copied for each. All compute the softmax of the states over
the whole vocabulary. They take turns. Before that they score a few tokens in one process, and have to agree.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from bench.common import Turns, alternate, arguments_for, print_head, ratio_cell, table
from foretext.batch import Batch
from foretext.nn.relative.transformer_xl import TransformerXL, TransformerXLConfig
from foretext.systems.transformer_xl import SIZES

TARGET = 20.0
AGREE = 1e-3  # nats


def model_of(specification: dict[str, Any]) -> TransformerXL:
    """Random weights; a memory as long as the context, all of which is also read at once where it is read again."""
    torch.manual_seed(0)
    size, context = SIZES[specification["size"]], specification["context"]
    assert isinstance(size.model, TransformerXLConfig)
    shape = replace(size.model, vocabulary=size.tokenizer.size, memory=context, evaluation_memory=context - 1)
    if specification["quick"]:
        shape = replace(shape, layers=2, width=64, heads=2, vocabulary=500)
    return TransformerXL(shape).eval()


def text_of(specification: dict[str, Any], model: TransformerXL, tokens: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, model.config.vocabulary, (1, specification["context"] + tokens + 1), generator=draw)


class Remembering:
    """So many tokens at a time, from the state that the last ones left."""

    def __init__(self, model: TransformerXL, ids: torch.Tensor, context: int) -> None:
        self.model, self.ids, self.place = model, ids, context - 1
        with torch.no_grad():
            self.state = model(Batch(ids[:, : self.place]), model.new_state(1)).state

    @torch.no_grad()
    def score(self, tokens: int) -> list[float]:
        upto = self.place + tokens
        hidden = self.model(Batch(self.ids[:, self.place : upto]), self.state)
        losses, _ = self.model.output_layer().token_losses(hidden.top[0], self.ids[0, self.place + 1 : upto + 1])
        self.state, self.place = hidden.state, upto
        return losses.tolist()


class Rereading:
    """The last `context` tokens for each."""

    def __init__(self, model: TransformerXL, ids: torch.Tensor, context: int) -> None:
        self.model, self.ids, self.place, self.context = model, ids, context - 1, context

    @torch.no_grad()
    def score(self, tokens: int) -> list[float]:
        return [self._next() for _ in range(tokens)]

    def _next(self) -> float:
        window = self.ids[:, self.place + 1 - self.context : self.place + 1]
        last = torch.zeros(window.shape, dtype=torch.bool)
        last[:, -1] = True
        top = self.model(Batch(window).reading(last)).top
        self.place += 1
        losses, _ = self.model.output_layer().token_losses(top[:, -1], self.ids[0, self.place : self.place + 1])
        return float(losses)


def remembering(specification: dict[str, Any], turns: Turns) -> None:
    _side(Remembering, specification, turns)


def rereading(specification: dict[str, Any], turns: Turns) -> None:
    _side(Rereading, specification, turns)


def _side(kind: type[Remembering] | type[Rereading], specification: dict[str, Any], turns: Turns) -> None:
    model = model_of(specification)
    tokens, at_a_time = specification["tokens"], specification["at_a_time"]
    ids = text_of(specification, model, tokens)
    while True:
        reader = kind(model, ids, specification["context"])
        turns.begin()
        for _ in range(tokens // at_a_time):
            reader.score(at_a_time)
        turns.end()


def agree(specification: dict[str, Any], tokens: int = 4) -> float:
    """The largest difference between the ways over the first tokens. The first layer sees the same in all; in the
    layers above, a memory reaches farther back than a window, so that only a model of one layer has to agree."""
    model = model_of(specification)
    one = TransformerXL(replace(model.config, layers=1)).eval()
    ids = text_of(specification, one, tokens)
    again, segment, single = (
        kind(one, ids, specification["context"]) for kind in (Rereading, Remembering, Remembering)
    )
    right, together = again.score(tokens), segment.score(tokens)
    apart = [single.score(1)[0] for _ in range(tokens)]
    return max(abs(loss - told) for way in (together, apart) for loss, told in zip(way, right, strict=True))


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments_for(__doc__)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--size", default="tiny", choices=[name for name in SIZES if name != "paper"])
    given = parser.parse_args(words)
    print_head("Memory reused", ["torch"], given.quick)
    specification = {"context": given.context, "size": given.size, "quick": given.quick}
    difference = agree(specification)
    if difference > AGREE:
        raise SystemExit(f"the two ways differ by {difference:.2g} nats: one of them is wrong")
    segment = model_of(specification).config.context
    tokens = {"segments": 4 * segment, "single": 20 if given.quick else 200, "again": 2 if given.quick else 10}
    at_a_time = {"segments": segment, "single": 1, "again": 1}
    sides = {
        name: (
            rereading if name == "again" else remembering,
            specification | {"tokens": tokens[name], "at_a_time": at_a_time[name]},
        )
        for name in tokens
    }
    seconds = alternate(sides, 2 if given.quick else 5)
    each = {name: statistics.median(took) / tokens[name] for name, took in seconds.items()}
    rows = []
    for name, said in (
        ("segments", f"memory, segments of {segment}: `evaluate`"),
        ("single", "memory, one token at a time: `generate`"),
    ):
        ratio, target = ratio_cell(each["again"] / each[name], TARGET)
        shown = [f"{1000 * each[way]:.3f}" for way in (name, "again")]
        rows.append([said, str(given.context), *shown, ratio, target if name == "segments" else ""])
    columns = ["", "context", "ms a token", "ms a token, read again", "ratio", "target"]
    print(table(columns, rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
