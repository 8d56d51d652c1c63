"""A training in progress as a checkpoint has it: where it stands, its weights, its optimiser, what it carries.

The state that an objective carries from step to step (Transformer-XL's memory, BPTT's hidden state) is a tensor, or
tuples and string-keyed dictionaries of states; the first axis of each tensor is the rows. Each micro-batch of a step
has a state of its own: its rows go on where the same rows of the step before ended, however a step is split. A run may
go on in micro-batches of another size, and `split_again` hands each row its own state then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foretext.batch import mapped
from foretext.errors import EXIT_NOT_FINITE, refuse_if
from foretext.nn.trunk import Trunk
from foretext.nn.weights import FOREIGN, AveragedWeights, check_names, check_tensor, check_tensors
from foretext.objectives.base import Objective
from foretext.runs.commit import RunWriter
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter
from foretext.runs.run_config import POSITION, Budget, Position, has_begun, read_position
from foretext.systems.base import TrainingConfig
from foretext.text.order import SampleOrder
from foretext.train.optim import Optimizer

LOST_SHARE = 0.5  # of a budget in minutes: what kills before the first checkpoint can cost
OPTIMIZER = "training/optimizer.safetensors"
CURRENT = "training/current.safetensors"  # the weights to go on with, where model.safetensors has the best ones
CARRIED = "training/state.safetensors"
AVERAGE = "training/average.safetensors"  # averaged weights and how many have gone into them
UNDONE = "undone"  # marks a line of the log about a step that was made after the checkpoint gone on from


@dataclass(frozen=True)
class Stage:
    """What is learned from, until a part of the budget is spent."""

    example: Callable[[int, int], Any]  # (epoch, index) → example; a pure function
    order: SampleOrder
    micro_batch: int
    evaluate: Callable[[], dict[str, float]] = dict  # empty if there is nothing to validate on
    until: float = 1.0


@dataclass(frozen=True)
class Job:
    """Everything that one training run is made of."""

    trunk: Trunk
    objective: Objective
    stages: tuple[Stage, ...]  # one after the other; the last to the end
    optimizer: Optimizer
    config: TrainingConfig
    budget: Budget
    seed: int
    device: torch.device
    evaluate_every: int | None = None  # steps; None: `config.evaluations` times over the budget
    keep_best: str | None = None  # name of the validation figure (more is better) whose best weights are kept
    carried: int = 0  # numbers that the objective carries from step to step, of all rows


class Training:
    """What a checkpoint keeps of a `Job`; `writer` None: nothing is kept on disk."""

    def __init__(self, job: Job, writer: RunWriter | None, reporter: Reporter) -> None:
        self.job = job
        self.writer = writer
        self.reporter = reporter
        self.position = Position()
        self.model = nn.ModuleDict({"trunk": job.trunk, "task": job.objective})
        self.best: dict[str, Tensor] | None = None
        decay = job.objective.average
        self.average = AveragedWeights(job.optimizer.parameters, decay) if decay else None
        self.carried: dict[int, Any] = {}  # micro-batch → state for the same rows in the next step
        self._started = self._last_saved = time.perf_counter()

    def _clock(self) -> None:
        self.position.seconds = time.perf_counter() - self._started

    def _averaged(self) -> AbstractContextManager[None]:
        """Inside, the model has the weights that predict."""
        return nullcontext() if self.average is None else self.average.swapped()

    def _predicting(self) -> dict[str, Tensor]:
        """A copy of the weights that predict: the averaged ones where there are any."""
        with self._averaged():
            return {key: tensor.detach().clone() for key, tensor in self.model.state_dict().items()}

    def _check_weights(self) -> None:
        """A model of numbers that are none is worth nothing: no checkpoint is made of it."""
        for name, parameter in self.model.named_parameters():
            refuse_if(
                not bool(torch.isfinite(parameter).all()),
                f"step {self.position.step}: {name} holds numbers that are not finite, so nothing more is saved; "
                "lower the rate (--set training.rate=…) and start again, or go on from the last checkpoint with "
                "--resume",
                code=EXIT_NOT_FINITE,
            )

    def save(self) -> None:
        """A checkpoint. `model.safetensors` is what a user loads: the best weights so far if they are kept."""
        self._last_saved = time.perf_counter()
        if self.writer is None:
            return
        self._check_weights()
        self._clock()
        self.position.metrics_bytes = self.writer.log.size()
        self.position.optimizer_tensors = 0 if self.position.finished else len(self.job.optimizer.state)
        current = {key: tensor.detach().contiguous().cpu() for key, tensor in self.model.state_dict().items()}
        files: dict[str, bytes | dict[str, Tensor]] = {
            "model.safetensors": current if self.best is None else self.best,
            POSITION: (json.dumps(asdict(self.position), indent=1) + "\n").encode(),
        }
        if self.position.finished:
            self.writer.commit(files, remove=(OPTIMIZER, CURRENT, CARRIED, AVERAGE))
            return
        files[OPTIMIZER] = self.job.optimizer.state_tensors()
        if self.average is not None:
            files[AVERAGE] = self.average.state_tensors()
            if self.best is None:
                files["model.safetensors"] = self._predicting()
        if self.best is not None or self.average is not None:
            files[CURRENT] = current
        if self.carried:
            files[CARRIED] = to_tensors(self.carried)
        self.writer.commit(files)

    def _minutes_spent(self, run: RunDirectory) -> float:
        """Of a budget in minutes, the seconds that the log saw, also those after the last checkpoint: they are gone.
        At most `LOST_SHARE` of the budget is counted before there is any checkpoint: something is left to train in."""
        if self.job.budget.minutes is None:
            return 0.0
        logged = (record.get("seconds") for record in run.metrics() if UNDONE not in record)
        spent = max((float(value) for value in logged if isinstance(value, int | float)), default=0.0)
        whole = 60.0 * self.job.budget.minutes
        return min(spent, whole if has_begun(run) else LOST_SHARE * whole)

    def restore(self) -> bool:
        """Goes back to the checkpoint in the run directory, and the log with it; False (and an empty log, but for bad
        steps) if there is none yet."""
        assert self.writer is not None
        run = self.writer.run
        spent = self._minutes_spent(run)
        if not has_begun(run):
            self._cut_log(0)
            self.position.seconds = spent
            return False
        self.position = read_position(run)
        self.position.seconds = max(self.position.seconds, spent)
        weights = self._weights(run, "model.safetensors")
        if run.has(CURRENT):
            if self.position.best is not None:
                self.best = weights
            weights = self._weights(run, CURRENT)
        self.model.load_state_dict(weights)
        if run.has(OPTIMIZER):
            kept = self.position.optimizer_tensors
            self.job.optimizer.load_state(run.load_tensors(OPTIMIZER), str(run.path / OPTIMIZER), kept)
        if self.average is not None and run.has(AVERAGE):
            self.average.load_state(run.load_tensors(AVERAGE), str(run.path / AVERAGE))
        if run.has(CARRIED):
            self.carried = self._carried_in(run)
        self._cut_log(self.position.metrics_bytes)
        self.reporter.note(f"going on at step {self.position.step:,}")
        return True

    def _weights(self, run: RunDirectory, name: str) -> dict[str, Tensor]:
        tensors = run.load_tensors(name)
        check_tensors(tensors, self.model.state_dict(), str(run.path / name))
        return tensors

    def _carried_in(self, run: RunDirectory) -> dict[int, Any]:
        """What the last step left, in the stage that it was in, which may be over."""
        stage = self.job.stages[min(self.position.stage, len(self.job.stages) - 1)]
        tensors, where = run.load_tensors(CARRIED), str(run.path / CARRIED)
        self.model.train()  # what is carried in training may be other than in evaluation
        trunk = self.job.trunk
        new = trunk.new_state(1) if self.job.objective.carries_state else None
        rows = len(stage.order.batch(max(0, self.position.step - 1))[1])
        check_carried(tensors, new, rows, trunk.memory_length(), where)
        return split_again(from_tensors(tensors, self.job.device), stage.micro_batch)

    def _cut_log(self, size: int) -> None:
        """Back to where the checkpoint left the log. The samples of bad steps made since are kept, once for each step,
        and marked: a run that stopped because of them is told to go on, and they are what tells why."""
        assert self.writer is not None
        bad = {row.get("step"): row for row in self.writer.log.rows_after(size, "bad_step")}
        self.writer.log.truncate(size)
        for row in bad.values():
            self.writer.log.append(row | {UNDONE: True})


# -- carried state -----------------------------------------------------------------------------------------------------


def on_its_own(state: Any) -> Any:
    """The same state without the rest of what it is a part of: a memory is the end of a longer tensor, all of which
    would be held with it from step to step."""

    def alone(tensor: Tensor) -> Tensor:
        whole = tensor.untyped_storage().nbytes() <= tensor.numel() * tensor.element_size()
        return tensor if whole else tensor.clone()

    return mapped(state, alone)


def split_again(states: Mapping[int, Any], size: int) -> dict[int, Any]:
    """The states of micro-batches of so many rows, the last perhaps of fewer, from those of micro-batches of any."""
    parts = [dict(_leaves(states[number])) for number in sorted(states)]
    if not parts:
        return {}
    whole = {path: _joined([part[path] for part in parts]) for path in parts[0]}
    counts = [len(next(iter(own.values()))) for own in (whole, *parts)]
    if all(own == min(size, counts[0] - number * size) for number, own in enumerate(counts[1:])):
        return dict(states)
    starts = range(0, counts[0], size)
    return {number: _grown(whole, slice(start, start + size)) for number, start in enumerate(starts)}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all. A memory that is not full yet may be shorter in one than in another; what it holds stands at its
    right end."""
    if parts[0].ndim < 2:
        return torch.cat(list(parts))
    longest = max(part.shape[1] for part in parts)
    missing = [part.new_zeros(len(part), longest - part.shape[1], *part.shape[2:]) for part in parts]
    return torch.cat([torch.cat(pair, dim=1) for pair in zip(missing, parts)])


def to_tensors(states: Mapping[int, Any]) -> dict[str, Tensor]:
    """The states of all micro-batches under names like `0/2/hidden`."""
    return {
        str(number) + path: tensor.detach().cpu().contiguous().clone()
        for number, state in states.items()
        for path, tensor in _leaves(state)
    }


def _leaves(state: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a state by their paths in it, as `/2/hidden`; a state that is one tensor has an empty path."""
    if isinstance(state, Tensor):
        yield path, state
        return
    items = list(enumerate(state)) if isinstance(state, tuple) else list(state.items())
    assert items, "an empty state cannot be kept; carry none instead"
    for key, part in items:
        assert isinstance(key, int) or not (key.isdigit() or "/" in key), f"{key!r}: not a name for a part of a state"
        yield from _leaves(part, f"{path}/{key}")


def from_tensors(tensors: Mapping[str, Tensor], device: torch.device) -> dict[int, Any]:
    """The reverse of `to_tensors`: numbered parts are tuples, named ones dictionaries."""
    own: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        number, slash, rest = path.partition("/")
        own.setdefault(int(number), {})[slash + rest] = tensor.to(device)
    return {number: _grown(leaves) for number, leaves in own.items()}


def _grown(leaves: Mapping[str, Tensor], rows: slice | None = None) -> Any:
    """The reverse of `_leaves`; with `rows` of these only, by themselves."""
    if "" in leaves:
        return leaves[""] if rows is None else leaves[""][rows].clone()
    branches: dict[str, dict[str, Tensor]] = {}
    for path, tensor in leaves.items():
        key, slash, rest = path[1:].partition("/")
        branches.setdefault(key, {})[slash + rest] = tensor
    if all(key.isdigit() for key in branches):
        return tuple(_grown(branches[str(number)], rows) for number in range(len(branches)))
    return {key: _grown(branch, rows) for key, branch in branches.items()}


def check_carried(tensors: Mapping[str, Tensor], new: Any, rows: int, longest: int, where: str) -> None:
    """UserError unless these are the states of micro-batches that have `rows` rows in all. `new` is the state of one
    row that has read nothing; where it has an empty axis, a memory, any length up to `longest` will do. None: nothing
    is carried."""
    wanted = {} if new is None else dict(_leaves(new))
    numbers = {path.partition("/")[0] for path in tensors}
    parts = {str(number) for number in range(len(numbers))}
    check_names(tensors, {number + name: wanted[name] for number in parts for name in wanted}, where)
    found = 0
    for number in sorted(parts):
        found += _check_part({name: tensors[number + name] for name in wanted}, wanted, longest, where, number)
    refuse_if(found != rows, f"{where}: states of {found} rows instead of {rows}; {FOREIGN}")


def _check_part(own: Mapping[str, Tensor], wanted: Mapping[str, Tensor], longest: int, where: str, number: str) -> int:
    """How many rows the state of one micro-batch has; UserError if its tensors are not like those that are wanted."""
    first = next(iter(own.values()))
    rows = len(first) if first.ndim else 0
    length = max((tensor.shape[1] for tensor in own.values() if tensor.ndim > 1), default=0)
    memories = {name for name, like in wanted.items() if like.ndim > 1 and like.shape[1] == 0}
    refuse_if(
        length > longest and memories, f"{where}: a memory of {length} tokens instead of at most {longest}; {FOREIGN}"
    )
    for name, tensor in own.items():
        like = wanted[name]
        shape = (rows, *((length, *like.shape[2:]) if name in memories else like.shape[1:]))
        check_tensor(tensor, shape, like.dtype, f"{where}: {number}{name}")
    return rows
