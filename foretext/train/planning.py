"""The plan shown before pre-training or fine-tuning: tokens, steps, time, memory and disk. Also the refusal of what
cannot fit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from foretext.errors import EXIT_MACHINE, UserError, counted
from foretext.nn.fused import CHUNK_ELEMENTS, LEAST_ROWS
from foretext.nn.trunk import ModelConfig
from foretext.objectives.base import Objective, Stock
from foretext.plan import TransferPlan
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import available_memory, check_space, clock, size_text
from foretext.runs.run_config import FinetuneConfig, describe_loss
from foretext.tasks.family import Encoded, TaskConfig, family_of
from foretext.train.loop import Job, Loop, Stage

_HEADER = 256  # bytes, at most, that a tensor needs besides its numbers: name, shape, and AdamW's step count
MANY_TIMES = 4
LITTLE = 0.01  # share of a text; a budget that reads less has hardly begun
WEIGHT = 4  # bytes
STATES = 4 * WEIGHT  # a weight, its gradient, and two optimiser tensors
LEAST_TO_PROBE = 20  # updates; with fewer, measuring the speed first is not worth the time
FORWARD_SHARE = 1 / 3  # of a training step's time: validation has no backward pass, which costs two forward passes
SMALLER_SIZE = "a smaller --size, --set model.width=… or model.layers=…"  # the remedy when memory is short
SMALLER_RUN = "a smaller pre-trained RUN (with --system: a smaller --size)"


# -- the plan ----------------------------------------------------------------------------------------------------------


def describe_plan(loop: Loop, speeds: Sequence[float], corpus: int, model: ModelConfig) -> list[tuple[str, str]]:
    """The plan of a pre-training on `corpus` tokens, given the tokens per second in each stage."""
    job = loop.job
    steps, tokens, seconds = expected(loop, speeds)
    micro = job.stages[-1].micro_batch
    memory = Memory(model, micro, model.context, head=head_size(job.objective), carried=job.carried)
    size = f"{tokens / steps:,.0f} tokens each, at {tokens / seconds:,.0f} tokens/s"
    amount = size if job.budget.steps is not None else f"about {counted(steps, 'step')}, {size}"
    return _with_text(
        ("model", f"{model.parameters():,} parameters: {model.describe()}"),
        ("text", f"{corpus:,} tokens; {_passes(tokens / max(1, corpus), job.config.dropout)}"),
        ("budget", f"{job.budget}: {amount}{_warmup(job.config.warmup_steps, steps)}"),
        ("sequences", _lengths(job.objective.lengths(model.context))),
        ("streams", _streams(loop, model.context)),
        ("time", f"about {clock(seconds)}"),
        ("warning", little_read(tokens / max(1, corpus), seconds)),
        *_machine(loop, memory),
    )


def little_read(times: float, seconds: float) -> str:
    """A warning if a budget of so many seconds reads almost nothing of the text; `times`: how often it reads the
    text."""
    if not 0.0 < times < LITTLE:
        return ""
    return (
        f"the budget reads only 1/{1 / times:,.0f} of the text, and reading all of it would take about "
        f"{clock(seconds / times)}: give more --minutes, a smaller size or less text"
    )


def describe_finetuning(
    loop: Loop, config: FinetuneConfig, train: Encoded, valid: Encoded, stock: Stock
) -> list[tuple[str, str]]:
    """The plan of a fine-tuning on encoded rows. `stock` is all that is learned from; the time is for the updates that
    are left."""
    task, transfer, model, updates = config.task, config.transfer, config.model, config.updates
    job = loop.job
    turns = stock.epoch_tokens(job.stages[-1].order)
    tokens = sum(kind_tokens for _, kind_tokens in turns)
    cut = len(train.examples) != len(train.rows)  # then an update counts windows
    windows = f", {len(train.examples):,} windows to train on" if cut else ""
    unit = "windows" if cut else "rows"
    weights = "new weights" if task.from_scratch else "pre-trained weights"
    if not task.from_scratch and transfer.layers >= 0:
        weights = f"embeddings and the first {counted(transfer.layers, 'block')} are pre-trained"
    memory = finetuning_memory(job.stages[-1].micro_batch, model, job.objective, stock, valid)
    return _with_text(
        ("rows", f"{len(train.rows):,} to train on, {len(valid.rows):,} to validate on{windows}"),
        *stock.beside(task.also),
        ("tokens", f"{tokens:,} per epoch, {task.epochs * tokens:,} in all"),
        ("labels", ", ".join(task.labels[:12]) or task.kind),
        ("model", f"{model.parameters():,} parameters: {model.describe()}; {weights}"),
        ("task model", _task_model(job.objective, transfer)),
        ("loss", describe_loss(config)),
        ("validation", "" if config.views is not None else _unsettled(task, valid)),
        (
            "budget",
            f"{counted(task.epochs, 'epoch')}, {counted(updates, 'update')} of {config.training.batch_size} {unit}",
        ),
        ("frozen", _frozen(loop, updates)),
        ("time", _finetuning_time(loop, updates, task.epochs, turns, valid)),
        ("batch norm", _normed(loop)),
        *_machine(loop, memory),
    )


def _with_text(*lines: tuple[str, str]) -> list[tuple[str, str]]:
    """The lines with content: each function below returns the text of one, or "" if there is nothing to say."""
    return [(name, text) for name, text in lines if text]


def _machine(loop: Loop, memory: Memory) -> list[tuple[str, str]]:
    return [
        ("memory", f"about {size_text(memory.needed())}"),
        ("disk", "" if loop.writer is None else f"about {size_text(disk_needed(loop.job))} while saving"),
        ("threads", f"{torch.get_num_threads()} on {loop.job.device}"),
    ]


def _passes(times: float, dropout: float) -> str:
    """How often the text is read; a small model without dropout starts to overfit after a few passes."""
    if times < 1.0:
        return f"the budget reads about {100.0 * times:.2g} % of them"
    often = ", so it may overfit: train for less time, use --set training.dropout=0.1, or both"
    return f"the budget reads them about {times:.2g} times{often if times > MANY_TIMES and dropout == 0.0 else ''}"


def _warmup(warmup_steps: int, steps: int) -> str:
    """A warning if the warm-up, which counts steps, is longer than the run."""
    warning = (
        f", all within the warm-up of {warmup_steps:,} steps: the rate never reaches its peak; shorten the warm-up "
        "with --set training.warmup_steps=…"
    )
    return "" if warmup_steps < steps else warning


def _lengths(lengths: Sequence[tuple[float, int]]) -> str:
    """The sequence lengths, if they change."""
    later = [f"{length} from {until:.0%} of the budget on" for (until, _), (_, length) in itertools.pairwise(lengths)]
    return f"of {lengths[0][1]} tokens at first; {', '.join(later)}" if later else ""


def sequences_for(count: int, context: int, length: int) -> int:
    """How many sequences of `length` hold as many tokens as `count` whole contexts."""
    return count * (context // length)


def _streams(loop: Loop, context: int) -> str:
    """A note if the text is too short for as many streams as a step has sequences."""
    job = loop.job
    if not job.objective.carries_state:
        return ""
    wanted = sequences_for(job.config.batch_size, context, job.objective.lengths(context)[0][1])
    rows = sum(len(batch.ids_BT) for batch in loop.batches(0, job.stages[0])[1])
    return f"{rows} side by side, not {wanted}: the text is too short for more" if rows < wanted else ""


def _task_model(task: nn.Module, transfer: TransferPlan) -> str:
    """The task model, if it is more than one linear layer."""
    if transfer.model == "linear":
        return ""
    reader = transfer.reader
    read = {
        "a mixture of the layers": reader.mix,
        "the lowest layer": reader.beside == "lowest",
        "the lowest layer and the top": reader.beside == "ends",
        f"learned vectors of {reader.vectors} dimensions": reader.vectors,
        f"given vectors of {reader.given} dimensions": reader.given,
        "characters": reader.characters,
    }
    shape = f"{counted(reader.layers, 'recurrent layer')} of {reader.cells} cells per direction"
    return f"{head_size(task):,} parameters: {shape} over {', '.join(part for part in read if read[part])}"


def _unsettled(task: TaskConfig, valid: Encoded) -> str:
    """A note if there are no validation rows for a choice that predictions depend on."""
    means = "" if valid.rows else family_of(task.kind).unsettled(task)
    return f"no validation rows, so {means}" if means else ""


def _frozen(loop: Loop, steps: int) -> str:
    """When the frozen layers thaw, or that they never do."""
    groups = loop.job.optimizer.groups
    if last := _last_thaw(loop, steps):
        return (
            f"{len(groups) - 1} layer groups at first; they thaw one by one from the top; all learn from update "
            f"{last:,} on"
        )
    never = any(group.thaws_at >= steps for group in groups)
    return "all pre-trained layers; only the task's own weights learn" if never else ""


def _normed(loop: Loop) -> str:
    """A note if a step is split although batch norm makes its rows affect each other's loss."""
    micro, rows = loop.job.stages[-1].micro_batch, loop.job.config.batch_size
    split = loop.job.objective.norms_rows and micro < rows
    return f"over the {micro} rows of a micro-batch, not the {rows} of an update" if split else ""


# -- time --------------------------------------------------------------------------------------------------------------


def probe_speed(loop: Loop, stage: Stage | None = None, thawed: int = 0, step: int = 0) -> float:
    """Tokens per second in a stage (default: the current one), in a `step` like this, with what learns at step
    `thawed`. Measured on two gradient computations that are thrown away: weights, buffers, optimiser and carried state
    are restored, and each step seeds its random numbers anew."""
    best = float("inf")
    tokens = 0
    carried = loop.carried
    buffers = {name: buffer.clone() for name, buffer in loop.model.named_buffers()}  # statistics of batch norm
    for _ in range(2):
        loop.carried = {}
        begun = time.perf_counter()
        _, parts, _ = loop.batches(step, stage)
        loop.job.optimizer.thaw(thawed)  # frozen parameters cost nothing
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
    """The steps, tokens and seconds in the budget, given the tokens per second in each stage."""
    steps = tokens = seconds = before = 0.0
    for stage, speed in zip(loop.job.stages, speeds, strict=True):
        part, before = stage.until - before, stage.until
        step_tokens = sum(batch.real_tokens for batch in loop.batches(0, stage)[1])
        part_steps = part * loop.job.budget.in_steps(step_tokens, speed)
        steps += part_steps
        tokens += part_steps * step_tokens
        seconds += part_steps * step_tokens / speed
    return max(1, round(steps)), round(tokens), seconds


def _finetuning_time(loop: Loop, updates: int, epochs: int, turns: Sequence[tuple[int, int]], valid: Encoded) -> str:
    """The time for the remaining updates. `turns`: a step of each kind, and the tokens of an epoch in such steps."""
    left = updates - loop.position.step
    if left < LEAST_TO_PROBE:
        return ""
    speeds = [_finetuning_speed(loop, updates, step) for step, _ in turns]
    learning = sum(kind_tokens / speed for (_, kind_tokens), speed in zip(turns, speeds))
    epoch = learning + FORWARD_SHARE * sum(example.tokens for example in valid.examples) / speeds[0]
    speed = sum(kind_tokens for _, kind_tokens in turns) / learning
    return f"about {clock(left / updates * epochs * epoch)} at {speed:,.0f} tokens/s"


def _finetuning_speed(loop: Loop, steps: int, step: int = 0) -> float:
    """Tokens per second over a whole run, in steps like this one. Each group that thaws makes a step more expensive by
    the same amount."""
    first, thawed = probe_speed(loop, step=step), _last_thaw(loop, steps)
    if not thawed:
        return first
    last = probe_speed(loop, thawed=thawed, step=step)
    before = 1 / last - (1 / last - 1 / first) / (len(loop.job.optimizer.groups) - 1)  # the last group thaws
    return steps / (thawed * (1 / first + before) / 2 + (steps - thawed) / last)


def _last_thaw(loop: Loop, steps: int) -> int:
    """The step at which the last group thaws, leaving out those that never do."""
    return max(group.thaws_at for group in loop.job.optimizer.groups if group.thaws_at < steps)


# -- memory and disk ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Memory needed for training, estimated from the configuration alone."""

    model: ModelConfig
    micro: int  # examples per micro-batch
    length: int  # tokens of the longest example
    keeps_best: bool = False  # the best weights are kept beside the current ones
    head: int = 0  # numbers learned on top of the trunk; 0 if unknown yet
    carried: int = 0  # numbers carried from step to step; 0 if the rows are not known yet

    def weights(self) -> int:
        """How many numbers are learned."""
        return self.model.parameters() + self.head

    def states(self) -> int:
        """Bytes of weights, gradients and optimiser, and of weights that do not learn."""
        copies = 1 + self.keeps_best
        return (STATES + WEIGHT * self.keeps_best) * self.weights() + WEIGHT * copies * self.model.fixed

    def held(self) -> int:
        """Bytes of carried state: the new one of a step and the old one, which is kept until the step is done."""
        return 2 * WEIGHT * self.carried

    def needed(self) -> int:
        """Bytes needed: weights and optimiser, carried state, and the activations of one micro-batch."""
        tokens = self.micro * self.length
        read = replace(self.model, context=min(self.length, self.model.context))
        logits = read.vocabulary * min(tokens, max(LEAST_ROWS, CHUNK_ELEMENTS // read.vocabulary))
        return self.states() + self.held() + 4 * (read.activations(tokens) + logits)


def check_memory(memory: Memory, smaller: str = SMALLER_SIZE, built: bool = False) -> None:
    """UserError if training would not fit, before any work is done. An unknown vocabulary counts as one piece, so that
    nothing is refused that might fit. `smaller`: how to make the model smaller; `built`: its weights are in memory
    already."""
    known = replace(memory.model, vocabulary=memory.model.vocabulary or 1)
    memory = replace(memory, model=known)
    available = available_memory()
    if available is None:
        return
    available += WEIGHT * (memory.weights() + memory.model.fixed) * built
    if memory.needed() <= available:
        return
    states, free = size_text(memory.states()), f"{size_text(available)} are free"
    if memory.states() > available:
        short = f"the weights with gradients and optimiser need about {states} of memory, but {free}; use "
    elif memory.states() + memory.held() > available:
        short = (
            f"the state carried from step to step needs about {size_text(memory.held())} of memory beside {states} of "
            f"weights, gradients and optimiser, but {free}; use fewer rows, --set training.batch_size=…, or "
        )
    else:
        fewer = f"--set training.micro_batch={memory.micro // 2}, or " if memory.micro > 1 else ""
        short = f"training needs about {size_text(memory.needed())} of memory, but {free}; use {fewer}"
    raise UserError(f"{short}{smaller}", code=EXIT_MACHINE)


def finetuning_memory(micro: int, model: ModelConfig, task: Objective, stock: Stock, valid: Encoded) -> Memory:
    """Memory for everything that is learned from. The best epoch's weights are kept if there are validation rows to
    choose it."""
    longest = max(task.learned_tokens(example) for example in stock.rows)
    return Memory(model, micro, longest, keeps_best=bool(valid.rows), head=head_size(task))


def head_size(objective: nn.Module) -> int:
    """How many numbers an objective or a task learns besides the trunk's."""
    return sum(parameter.numel() for parameter in objective.parameters())


def disk_needed(job: Job) -> int:
    """The most disk space that checkpoints take, which is while saving: the old one is kept until the new one is
    complete.

    A checkpoint holds the weights, including those that do not learn; once more if the best or averaged ones are kept
    beside the current ones (averaged ones twice more); the optimiser's state (two tensors per parameter for AdamW, one
    for Muon, none for plain SGD); and the state carried from step to step.
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
    """UserError, before training, if the checkpoints would not fit. An existing checkpoint's space counts as
    available."""
    sizes = run.sizes() if run.exists() else {}
    stored = sum(size for name, size in sizes.items() if name == "model.safetensors" or name.startswith("training/"))
    check_space(run.path, max(0, disk_needed(job) - stored))
