"""What a model that reads on makes of a text's beginning: with nothing before it, and after another text.

    python -m experiments.beginnings RUN [RUN ...] --data DIR

Nats a token of the first 128 tokens of 100 of IMDb's test reviews, by place, each after the end of a document and read
from an empty state, or from the state that the first 128 tokens of another review left. These say nothing about it: a
model that does better with them has not learned to begin. For systems whose state goes on for ever (Transformer-XL,
ULMFiT).
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import foretext as ft
from bench.common import arguments_for, head_lines, need_data, table
from experiments import imdb_transfer
from experiments.common import TEST_SEED, read_task, texts_of
from foretext.api import load_language_model
from foretext.batch import Batch
from foretext.errors import UserError
from foretext.nn.trunk import reads_on

TEXTS, LENGTH = 100, 128


def borders(length: int) -> list[int]:
    """Where the parts of a text begin that are told apart, and its length: 0, 1, 2, 4, 8 …"""
    found = [0, 1]
    while found[-1] < length:
        found.append(min(2 * found[-1], length))
    return found


def rows_of(lm: ft.LanguageModel, texts: Sequence[str], count: int, length: int) -> Tensor:
    """[count, length + 1]: the end of a document, and so many tokens of each of the first texts that are as long."""
    tokenizer, found = lm.model.tokenizer, []
    assert tokenizer.end is not None
    for text in texts:
        ids = tokenizer.encode(text)[:length]
        if len(ids) == length:
            found.append([tokenizer.end, *ids])
        if len(found) == count:
            return torch.tensor(found)
    raise UserError(f"{len(found)} texts have {length} tokens, and {count} are needed; give more, or longer ones")


@torch.no_grad()
def by_place(lm: ft.LanguageModel, rows_BT: Tensor) -> tuple[list[float], list[float]]:
    """Nats a token between `borders`, of each row from an empty state, and after the row before it."""
    trunk = lm.model.trunk.eval()
    if not reads_on(trunk):
        raise UserError(f"{lm.model.system.name} reads what fits its context and carries nothing on")
    rows, length = len(rows_BT), rows_BT.shape[1] - 1
    marks = borders(length)
    empty = trunk.new_state(rows)
    after = trunk(Batch(rows_BT[:, 1:].roll(1, 0)), empty).state
    found = []
    for state in (empty, after):
        top = trunk(Batch(rows_BT[:, :-1]), state).top
        nats_N, _ = trunk.output_layer().token_losses(top.flatten(0, 1), rows_BT[:, 1:].reshape(-1))
        nats_BT = nats_N.view(rows, length)
        found.append([float(nats_BT[:, begin:end].mean()) for begin, end in itertools.pairwise(marks)])
    return found[0], found[1]


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments_for(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    given = parser.parse_args(words)
    count, length = (8, 16) if given.quick else (TEXTS, LENGTH)
    marks = borders(length)
    try:
        texts = list(texts_of(read_task(imdb_transfer.TASKS["imdb"], need_data(given.data)).test))
        random.Random(TEST_SEED).shuffle(texts)
        print("\n".join(head_lines(["torch"], "python -m experiments.beginnings")), flush=True)
        lines = []
        for run in given.runs:
            lm = load_language_model(run)
            for begin, end, *nats in zip(marks, marks[1:], *by_place(lm, rows_of(lm, texts, count, length))):
                place = f"{end}" if end == begin + 1 else f"{begin + 1} to {end}"
                lines.append([str(run), place, *(f"{one:.3f}" for one in nats)])
    except UserError as error:
        print(error, file=sys.stderr)
        return error.code
    print(table(["run", "tokens", "nats a token, nothing before", "after another review"], lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
