"""Time to the same validation loss: ours with the defaults of size tiny against the best of three plain AdamW loops.

    python -m bench.time_to_loss --data DIR [--minutes 4] [--dropout 0]      DIR has imdb/unsup.txt.gz

The plain loop (`bench.models`: GPT2LMHeadModel, AdamW, batch 8, linear warm-up over 3 % and cosine to 0 over its
budget) trains for the minutes given at each of three rates; the best end loss is the target. Ours has the same shape,
vocabulary, text, context, dropout and validation windows; its optimiser, schedule, batch size and initialisation are
the defaults of `tiny`. A schedule needs a budget, so ours runs with several, parts of the plain loop's minutes, and the
smallest whose **end** loss reaches the target counts (target: 0.7 of the plain loop's time). Time is training time:
validation is left out on both sides, and so are start-up and one gradient that is thrown away. Plain and our runs
alternate, one at a time, each in a process of its own.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GPT2LMHeadModel

from bench.common import Turns, Worker, arguments_for, need_data, print_head, ratio_cell, reviews, table
from bench.models import PlainLoop, Shape, build_ours
from foretext.nn.transformer.block import TransformerConfig
from foretext.runs.machine import tune_allocator
from foretext.runs.model import mean_losses
from foretext.runs.run_config import Budget
from foretext.systems.gpt import SIZES
from foretext.text.corpus.readers import ReadOptions, find_files
from foretext.text.corpus.shard_writing import Sharding, write_shards
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Order, Windows
from foretext.text.tokenizers.base import TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer

RATES = (3e-4, 1e-3, 3e-3)
PARTS = (0.35, 0.5, 0.7, 1.0)
WARMUP = 0.03
POINTS = 8  # of each curve
VALID_BATCH = 8


@dataclass(frozen=True)
class Run:
    """One training run of either side."""

    shape: Shape
    tokens: Path
    seconds: float
    dropout: float
    batch: int = 8  # plain only
    rate: float = 0.0  # plain only
    valid_windows: int = 64

    def windows(self) -> Windows:
        return Windows(TokenShards.open(self.tokens, "train", verify=False), self.shape.context, 0)

    def validation(self) -> list[Tensor]:
        """The same windows of context + 1 ids for both sides, spread over the validation text."""
        shards = TokenShards.open(self.tokens, "valid", verify=False)
        length = self.shape.context + 1
        starts = torch.linspace(0, len(shards) - length, self.valid_windows).long().tolist()
        return list(torch.stack([torch.from_numpy(shards.window(s, length)) for s in starts]).split(VALID_BATCH))


@dataclass(frozen=True)
class Point:
    seconds: float
    tokens: int
    loss: float


def follow(run: Run, step: Callable[[float], int], validate: Callable[[], float]) -> list[Point]:
    """Trains until the time is spent. `step` is told the seconds so far and returns its tokens."""
    trained, tokens, took, points = 0.0, 0, 0.0, list[Point]()
    while trained + took / 2 < run.seconds:
        begun = time.perf_counter()
        tokens += step(trained)
        took = time.perf_counter() - begun
        trained += took
        if trained < run.seconds and len(points) < int(POINTS * trained / run.seconds):
            points.append(Point(trained, tokens, validate()))
    return [*points, Point(trained, tokens, validate())]


def ours(run: Run, turns: Turns) -> None:
    tune_allocator()
    turns.begin()
    windows, valid = run.windows(), run.validation()
    training = dataclasses.replace(SIZES["tiny"].pretraining, dropout=run.dropout)
    loop = build_ours("gpt", run.shape, training, windows, Budget(minutes=run.seconds / 60))
    batches = [loop.job.objective.make(list(ids.numpy())) for ids in valid]
    loop.gradients(0, batches[:1])
    loop.job.optimizer.zero_grad()

    def step(trained: float) -> int:
        before = loop.position.tokens
        loop.position.seconds = trained  # what the schedule goes by
        loop._step()
        return loop.position.tokens - before

    def validate() -> float:
        loss = mean_losses(loop.job.trunk, loop.job.objective, batches)["lm"]
        loop.model.train()
        return loss

    turns.end(follow(run, step, validate))
    turns.begin()


def plain(run: Run, turns: Turns) -> None:
    turns.begin()
    windows, valid = run.windows(), run.validation()
    order = Order(len(windows), run.batch, 0)
    loop = PlainLoop(GPT2LMHeadModel, run.shape.gpt2(run.dropout), run.rate)
    loop.model(input_ids=valid[0][:, :-1], labels=valid[0][:, :-1]).loss.backward()
    loop.optimizer.zero_grad()
    count = 0

    def step(trained: float) -> int:
        nonlocal count
        progress = trained / run.seconds
        falling = 0.5 * (1 + math.cos(math.pi * max(0.0, progress - WARMUP) / (1 - WARMUP)))
        for group in loop.optimizer.param_groups:
            group["lr"] = run.rate * min(falling, max(progress, 1e-3) / WARMUP)
        epoch, indices = order.batch(count)
        ids = torch.stack([torch.from_numpy(windows.example(epoch, index)) for index in indices])
        loop.step({"input_ids": ids[:, :-1], "labels": ids[:, :-1]})
        count += 1
        return len(indices) * run.shape.context

    @torch.no_grad()
    def validate() -> float:
        loop.model.eval()
        total = sum(
            float(F.cross_entropy(loop.model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"))
            for ids in valid
        )
        loop.model.train()
        return total / sum(ids[:, 1:].numel() for ids in valid)

    turns.end(follow(run, step, validate))
    turns.begin()


def train(side: Callable[[Run, Turns], None], run: Run) -> list[Point]:
    worker = Worker(side, run)
    try:
        return worker.ask()[1]
    finally:
        worker.close()


def prepare(data: Path, folder: Path, quick: bool) -> tuple[Path, Shape]:
    """Vocabulary and token shards of the reviews, and the shape of `tiny`."""
    size = SIZES["tiny"]
    model = size.model
    assert isinstance(model, TransformerConfig)
    count = 500 if quick else None
    vocabulary = 600 if quick else size.tokenizer.size
    tokenizer = train_tokenizer(reviews(data, count), TokenizerConfig(size.tokenizer.kind, vocabulary))
    text = data / "imdb" / "unsup.txt.gz"
    if quick:
        text = folder / "reviews.txt"
        text.write_text("".join(f"{review}\n" for review in reviews(data, count)), encoding="utf-8")
    write_shards(find_files([text]), ReadOptions(), tokenizer, folder / "tokens", Sharding(0, 0.05))
    shape = Shape(model.layers, model.width, model.heads, model.context, tokenizer.size)
    return folder / "tokens", Shape(1, 32, 2, 64, tokenizer.size) if quick else shape


def crossing(points: list[Point], target: float) -> float | None:
    """When a curve is first at the target or below."""
    return next((point.seconds for point in points if point.loss <= target), None)


def report(plains: dict[float, list[Point]], parts: dict[float, list[Point]], seconds: float) -> None:
    rows = []
    best = min(plains, key=lambda rate: plains[rate][-1].loss)
    target = plains[best][-1].loss
    for rate, points in plains.items():
        end = points[-1]
        mark = " (the target)" if rate == best else ""
        rows.append([f"plain, rate {rate:g}{mark}", f"{end.seconds:.0f}", f"{end.tokens:,}", f"{end.loss:.4f}", ""])
    for part, points in parts.items():
        end, first = points[-1], crossing(points, target)
        reached = f"{first:.0f} s" if first is not None else "not reached"
        rows.append(
            [f"ours, {part:g} of the time", f"{end.seconds:.0f}", f"{end.tokens:,}", f"{end.loss:.4f}", reached]
        )
    print(table(["run", "seconds", "tokens", "end loss", "target reached after"], rows) + "\n")
    enough = [part for part, points in sorted(parts.items()) if points[-1].loss <= target]
    if not enough:
        print("none of our budgets reached the plain loop's best loss: **missed**\n")
    else:
        ratio, verdict = ratio_cell(parts[enough[0]][-1].seconds / plains[best][-1].seconds, 0.7, at_most=True)
        columns = ["smallest budget whose end loss reaches the target", "ratio of times", "target"]
        print(table(columns, [[f"{enough[0]:g} of {seconds:.0f} s", ratio, verdict]]) + "\n")
    print("Validation loss after seconds of training:\n")
    curves = {f"plain {rate:g}": points for rate, points in plains.items()}
    curves |= {f"ours {part:g}": points for part, points in parts.items()}
    for name, points in curves.items():
        print(f"- {name}: " + ", ".join(f"{point.seconds:.0f} s {point.loss:.3f}" for point in points))


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--parts", type=float, nargs="+", default=PARTS, help="our budgets, in parts of --minutes")
    parser.add_argument("--batch", type=int, default=8, help="windows a step of the plain loop")
    given = parser.parse_args()
    data = need_data(given.data)
    seconds = 2.0 if given.quick else 60 * given.minutes
    print_head("Time to the same validation loss", ["torch", "transformers"], given.quick)
    with tempfile.TemporaryDirectory() as folder:
        tokens, shape = prepare(data, Path(folder), given.quick)
        base = Run(shape, tokens, seconds, given.dropout, given.batch, valid_windows=8 if given.quick else 64)
        defaults = SIZES["tiny"].pretraining
        print(f"{shape}, dropout {given.dropout:g}; plain: batch {given.batch}, AdamW; ours: batch", end=" ")
        print(f"{defaults.batch_size}, {defaults.optimizer} at {defaults.rate:g}\n", flush=True)
        plains: dict[float, list[Point]] = {}
        parts: dict[float, list[Point]] = {}
        for turn in range(max(len(given.rates), len(given.parts))):
            for rate in given.rates[turn : turn + 1]:
                plains[rate] = train(plain, dataclasses.replace(base, rate=rate))
            for part in given.parts[turn : turn + 1]:
                parts[part] = train(ours, dataclasses.replace(base, seconds=part * seconds))
    report(plains, parts, seconds)


if __name__ == "__main__":
    main()
