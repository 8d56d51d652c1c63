"""The plan that is shown before training, pre-training or fine-tuning: how many tokens and steps, how long, how much
memory and disk; and the refusal of what cannot fit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from foretext.errors import EXIT_MACHINE, UserError
from foretext.nn.fused import CHUNK_ELEMENTS, LEAST_ROWS
from foretext.nn.trunk import ModelConfig
from foretext.objectives.base import Objective, Stock
from foretext.plan import TransferPlan
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import available_memory, check_space, clock, size_text
from foretext.runs.run_config import FinetuneConfig, describe_loss
from foretext.tasks.family import Encoded, TaskConfig, family_of
from foretext.train.loop import Job, Loop, Stage

_HEADER = 256  # bytes, at most, that a tensor takes beside its numbers: its name and shape, and AdamW's count of steps
MANY_TIMES = 4
LITTLE = 0.01  # of a text: a budget that reads less of it has hardly begun
WEIGHT = 4  # bytes
STATES = 4 * WEIGHT  # a weight itself, its gradient, two of the optimiser
LEAST_TO_PROBE = 20  # updates: fewer are done before a measurement would be worth its time
FORWARD_SHARE = 1 / 3  # of a training step's time: validation has no backward pass, which costs two forward ones
SMALLER_SIZE = "a smaller --size, --set model.width=… or model.layers=…"  # what to do where memory is short
SMALLER_RUN = "a smaller pre-trained RUN (with --system: a smaller --size)"


# -- the plan ----------------------------------------------------------------------------------------------------------


def describe_plan(loop: Loop, speeds: Sequence[float], corpus: int, model: ModelConfig) -> list[tuple[str, str]]:
    """The plan of a pre-training on `corpus` tokens, at so many tokens a second in each stage."""
    job = loop.job
    steps, tokens, seconds = expected(loop, speeds)
    micro = job.stages[-1].micro_batch
    memory = Memory(model, micro, model.context, head=head_size(job.objective), carried=job.carried)
    made = f"about {steps:,} steps of {tokens / steps:,.0f} tokens at {tokens / seconds:,.0f} tokens/s"
    return _told(
        ("model", f"{model.parameters():,} parameters: {model.describe()}"),
        ("text", f"{corpus:,} tokens; {_passes(tokens / max(1, corpus), job.config.dropout)}"),
        ("budget", f"{job.budget}: {made}{_warmup(job.config.warmup_steps, steps)}"),
        ("sequences", _lengths(job.objective.lengths(model.context))),
        ("streams", _streams(loop, model.context)),
        ("time", f"about {clock(seconds)}"),
        ("warning", little_read(tokens / max(1, corpus), seconds)),
        *_machine(loop, memory),
    )


def little_read(times: float, seconds: float) -> str:
    """What to say of a budget of so many seconds in which a text is read so many times, where that is next to none of
    it."""
    if not 0.0 < times < LITTLE:
        return ""
    return (
        f"the budget reads about 1/{1 / times:,.0f} of the text, all of it would take about {clock(seconds / times)}: "
        "give more --minutes, a smaller size or less text"
    )


def describe_finetuning(
    loop: Loop, config: FinetuneConfig, train: Encoded, valid: Encoded, stock: Stock
) -> list[tuple[str, str]]:
    """The plan of a fine-tuning on rows that are encoded, `stock` being all that is learned from; the time is that of
    the updates which are left."""
    task, transfer, model, updates = config.task, config.transfer, config.model, config.updates
    job = loop.job
    turns = stock.epoch_tokens(job.stages[-1].order)
    tokens = sum(own for _, own in turns)
    cut = len(train.examples) != len(train.rows)  # then an update counts parts of rows
    windows = f", {len(train.examples):,} windows to train on" if cut else ""
    unit = "windows" if cut else "rows"
    weights = "new weights" if task.from_scratch else "pre-trained weights"
    if not task.from_scratch and transfer.layers >= 0:
        weights = f"embeddings and the first {transfer.layers} blocks pre-trained"
    memory = finetuning_memory(job.stages[-1].micro_batch, model, job.objective, stock, valid)
    return _told(
        ("rows", f"{len(train.rows):,} to train on, {len(valid.rows):,} to validate{windows}"),
        *stock.beside(task.also),
        ("tokens", f"{tokens:,} an epoch, {task.epochs * tokens:,} in all"),
        ("labels", ", ".join(task.labels[:12]) or task.kind),
        ("model", f"{model.parameters():,} parameters: {model.describe()}; {weights}"),
        ("task model", _task_model(job.objective, transfer)),
        ("loss", describe_loss(config)),
        ("validation", _unsettled(task, valid)),
        ("budget", f"{task.epochs} epochs, {updates:,} updates of {config.training.batch_size} {unit}"),
        ("frozen", _frozen(loop, updates)),
        ("time", _finetuning_time(loop, updates, task.epochs, turns, valid)),
        ("batch norm", _normed(loop)),
        *_machine(loop, memory),
    )


def _told(*lines: tuple[str, str]) -> list[tuple[str, str]]:
    """The lines that have something to say: each function below gives the text of one, and "" if there is nothing."""
    return [(name, text) for name, text in lines if text]


def _machine(loop: Loop, memory: Memory) -> list[tuple[str, str]]:
    return [
        ("memory", f"about {size_text(memory.needed())}"),
        ("disk", "" if loop.writer is None else f"about {size_text(disk_needed(loop.job))} while saving"),
        ("threads", f"{torch.get_num_threads()} on {loop.job.device}"),
    ]


def _passes(times: float, dropout: float) -> str:
    """How often the text is read; a small model without dropout begins to learn it by heart after a few times."""
    often = ", so often that it may learn them by heart: less time, or --set training.dropout=0.1, or both"
    return f"the run sees {times:.2g} times as many{often if times > MANY_TIMES and dropout == 0.0 else ''}"


def _warmup(warmup_steps: int, steps: int) -> str:
    """What to know where the warm-up, which counts steps, is longer than the run."""
    told = (
        f", all in the warm-up of {warmup_steps:,}: the rate never peaks; shorten it by --set training.warmup_steps=…"
    )
    return "" if warmup_steps < steps else told


def _lengths(lengths: Sequence[tuple[float, int]]) -> str:
    """How long the sequences are, where that changes."""
    later = [f"from {until:.0%} on {length}" for (until, _), (_, length) in itertools.pairwise(lengths)]
    return f"of {lengths[0][1]} tokens at first; of the budget, {', '.join(later)}" if later else ""


def sequences_for(count: int, context: int, length: int) -> int:
    """How many sequences of `length` have as many tokens as `count` of a whole context."""
    return count * (context // length)


def _streams(loop: Loop, context: int) -> str:
    """Where the text is too short for as many streams as a step has sequences."""
    job = loop.job
    if not job.objective.carries_state:
        return ""
    asked = sequences_for(job.config.batch_size, context, job.objective.lengths(context)[0][1])
    rows = sum(len(batch.ids_BT) for batch in loop.batches(0, job.stages[0])[1])
    return f"{rows} side by side, not {asked}: the text is too short for more" if rows < asked else ""


def _task_model(task: nn.Module, transfer: TransferPlan) -> str:
    """Where more than one layer is put on the trunk."""
    if transfer.model == "linear":
        return ""
    reader = transfer.reader
    read = {
        "a mixture of the layers": reader.mix,
        "the lowest layer": reader.beside == "lowest",
        "the lowest layer and the top": reader.beside == "ends",
        f"vectors of {reader.vectors}": reader.vectors,
        f"given vectors of {reader.given}": reader.given,
        "characters": reader.characters,
    }
    shape = f"{reader.layers} recurrent layer{'' if reader.layers == 1 else 's'} of {reader.cells} cells a direction"
    return f"{head_size(task):,} parameters: {shape} over {', '.join(part for part in read if read[part])}"


def _unsettled(task: TaskConfig, valid: Encoded) -> str:
    """Where there are no rows to choose something on that predictions depend on."""
    means = "" if valid.rows else family_of(task.kind).unsettled(task)
    return f"no rows, and so {means}" if means else ""


def _frozen(loop: Loop, steps: int) -> str:
    """Where not everything learns from the start: when it does, or what never will."""
    groups = loop.job.optimizer.groups
    if last := _last_thaw(loop, steps):
        return (
            f"{len(groups) - 1} layer groups at first; they thaw one after the other, from the top; all learn from "
            f"update {last:,} on"
        )
    never = any(group.thaws_at >= steps for group in groups)
    return "the pre-trained layers, from beginning to end; the task's own weights learn" if never else ""


def _normed(loop: Loop) -> str:
    """Where a step is split though its rows change each other's loss."""
    micro, rows = loop.job.stages[-1].micro_batch, loop.job.config.batch_size
    split = loop.job.objective.norms_rows and micro < rows
    return f"over the {micro} rows that are read at a time, not the {rows} of an update" if split else ""


# -- time --------------------------------------------------------------------------------------------------------------


def probe_speed(loop: Loop, stage: Stage | None = None, thawed: int = 0, step: int = 0) -> float:
    """Tokens a second in a stage (the one of now if none is said), in a `step` like this, with what learns at step
    `thawed`, from two gradient computations that are thrown away: weights, buffers, optimiser and what is carried are
    as they were, and each step seeds its random numbers anew."""
    best = float("inf")
    tokens = 0
    carried = loop.carried
    buffers = {name: buffer.clone() for name, buffer in loop.model.named_buffers()}  # batch norm's statistics
    for _ in range(2):
        loop.carried = {}
        begun = time.perf_counter()
        _, parts, _ = loop.batches(step, stage)
        loop.job.optimizer.thaw(thawed)  # what is frozen costs nothing
        loop.model.train()
        loop.gradients(0, parts[:1])
        best = min(best, time.perf_counter() - begun)
        tokens = parts[0].real_tokens
        loop.job.optimizer.zero_grad()
    loop.carried = carried
    for name, buffer in loop.model.named_buffers():
        buffer.copy_(buffers[name])
    return tokens / best


def expected(loop: Loop, speeds: Sequence[float]) -> tuple[int, int, float]:
    """The steps, tokens and seconds that the budget comes to, at so many tokens a second in each stage."""
    steps = tokens = seconds = before = 0.0
    for stage, speed in zip(loop.job.stages, speeds, strict=True):
        part, before = stage.until - before, stage.until
        step_tokens = sum(batch.real_tokens for batch in loop.batches(0, stage)[1])
        made = part * loop.job.budget.in_steps(step_tokens, speed)
        steps += made
        tokens += made * step_tokens
        seconds += made * step_tokens / speed
    return max(1, round(steps)), round(tokens), seconds


def _finetuning_time(loop: Loop, updates: int, epochs: int, turns: Sequence[tuple[int, int]], valid: Encoded) -> str:
    """How long the updates that are left take; `turns`: a step of each kind, and an epoch's tokens in such steps."""
    left = updates - loop.position.step
    if left < LEAST_TO_PROBE:
        return ""
    speeds = [_finetuning_speed(loop, updates, step) for step, _ in turns]
    learning = sum(own / speed for (_, own), speed in zip(turns, speeds))
    epoch = learning + FORWARD_SHARE * sum(example.tokens for example in valid.examples) / speeds[0]
    speed = sum(own for _, own in turns) / learning
    return f"about {clock(left / updates * epochs * epoch)} at {speed:,.0f} tokens/s"


def _finetuning_speed(loop: Loop, steps: int, step: int = 0) -> float:
    """Tokens a second over a whole run, in steps like this one. Each group that thaws makes a step as much dearer as
    the others do."""
    first, thawed = probe_speed(loop, step=step), _last_thaw(loop, steps)
    if not thawed:
        return first
    last = probe_speed(loop, thawed=thawed, step=step)
    before = 1 / last - (1 / last - 1 / first) / (len(loop.job.optimizer.groups) - 1)  # the last group thaws
    return steps / (thawed * (1 / first + before) / 2 + (steps - thawed) / last)


def _last_thaw(loop: Loop, steps: int) -> int:
    """The step at which the last of the groups that ever thaw does so."""
    return max(group.thaws_at for group in loop.job.optimizer.groups if group.thaws_at < steps)


# -- memory and disk ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """What training takes of memory, as an estimate from the configuration alone."""

    model: ModelConfig
    micro: int  # examples at a time
    length: int  # tokens of the longest example
    keeps_best: bool = False  # the best weights beside those that are trained
    head: int = 0  # numbers that are learned on top of the trunk; 0 also where they are not known yet
    carried: int = 0  # numbers that are carried from step to step; 0 also where the rows are not known yet

    def weights(self) -> int:
        """How many numbers are learned."""
        return self.model.parameters() + self.head

    def states(self) -> int:
        """Bytes of weights, gradients and optimiser, and of what does not learn."""
        copies = 1 + self.keeps_best
        return (STATES + WEIGHT * self.keeps_best) * self.weights() + WEIGHT * copies * self.model.fixed

    def held(self) -> int:
        """Bytes of what is carried: what a step makes, and what it was given, which stands until the step is made."""
        return 2 * WEIGHT * self.carried

    def needed(self) -> int:
        """Bytes: the states, what is carried, and the activations of one micro-batch."""
        tokens = self.micro * self.length
        read = replace(self.model, context=min(self.length, self.model.context))
        logits = read.vocabulary * min(tokens, max(LEAST_ROWS, CHUNK_ELEMENTS // read.vocabulary))
        return self.states() + self.held() + 4 * (read.activations(tokens) + logits)


def check_memory(memory: Memory, smaller: str = SMALLER_SIZE, built: bool = False) -> None:
    """UserError if training would not fit, to be asked before any work is done. A vocabulary that is not known yet
    counts as one piece, so that nothing is refused that might fit. `smaller`: what makes the model smaller; `built`:
    its weights are in memory already."""
    known = replace(memory.model, vocabulary=memory.model.vocabulary or 1)
    memory = replace(memory, model=known)
    there = available_memory()
    if there is None:
        return
    there += WEIGHT * (memory.weights() + memory.model.fixed) * built
    if memory.needed() <= there:
        return
    states, free = size_text(memory.states()), f"{size_text(there)} are free"
    if memory.states() > there:
        short = f"the weights alone, with gradients and optimiser, need about {states} of memory and {free}; use "
    elif memory.states() + memory.held() > there:
        short = (
            f"what is carried from step to step needs about {size_text(memory.held())} of memory beside {states} of "
            f"weights, gradients and optimiser, and {free}; use fewer rows, --set training.batch_size=…, or "
        )
    else:
        fewer = f"--set training.micro_batch={memory.micro // 2}, or " if memory.micro > 1 else ""
        short = f"training needs about {size_text(memory.needed())} of memory and {free}; use {fewer}"
    raise UserError(f"{short}{smaller}", code=EXIT_MACHINE)


def finetuning_memory(micro: int, model: ModelConfig, task: Objective, stock: Stock, valid: Encoded) -> Memory:
    """Of all that is learned from; the best epoch's weights are kept where there are rows to choose it by."""
    longest = max(task.learned_tokens(example) for example in stock.rows)
    return Memory(model, micro, longest, keeps_best=bool(valid.rows), head=head_size(task))


def head_size(objective: nn.Module) -> int:
    """How many numbers an objective or a task learns beside the trunk's."""
    return sum(parameter.numel() for parameter in objective.parameters())


def disk_needed(job: Job) -> int:
    """Bytes that checkpoints take at their most, which is while saving: the old one stands until the new one is whole.

    A checkpoint has the weights, with what does not learn, once more if the best or averaged ones are kept beside those
    to go on with (averaged ones once more), the optimiser's state: two tensors a parameter with AdamW, one where Muon
    learns it, none with plain SGD; and what is carried from step to step.
    """
    checkpoint = WEIGHT * job.carried
    averaged = job.averages
    copies = 1 + (job.keep_best is not None or averaged)
    for name, parameter in job.optimizer.parameters.items():
        checkpoint += (copies + averaged + job.optimizer.kept(name)) * _bytes(parameter)
    for module in (job.trunk, job.objective):
        learned = {name for name, _ in module.named_parameters()}
        checkpoint += sum(copies * _bytes(kept) for name, kept in module.state_dict().items() if name not in learned)
    return 2 * checkpoint


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size() + _HEADER


def check_disk(run: RunDirectory, job: Job) -> None:
    """UserError, before training, if the checkpoints would not fit. One that is there already is room well used."""
    there = run.sizes() if run.exists() else {}
    stored = sum(size for name, size in there.items() if name == "model.safetensors" or name.startswith("training/"))
    check_space(run.path, max(0, disk_needed(job) - stored))
