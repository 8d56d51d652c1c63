"""The one training loop, for pre-training and fine-tuning. It knows no system, no task and no loss by name.

Resuming is exact by construction: the samples of a step are a pure function of (seed, step), random numbers come from a
generator seeded anew for each (seed, step, micro-batch), and everything else that a step depends on is in the
checkpoint. So a run that was killed and resumed ends with the same weights, bit for bit, as an uninterrupted one.

Counts are added up over all micro-batches of a step before the first backward pass, so that splitting a batch cannot
change its gradient.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import Batch, detached
from foretext.errors import EXIT_NOT_FINITE, Interrupted, refuse_if
from foretext.nn.trunk import AveragedWeights, Trunk, check_tensors
from foretext.objectives.base import Draw, Objective
from foretext.runs.commit import RunWriter
from foretext.runs.directory import LogLine, RunDirectory
from foretext.runs.report import Reporter, StepReport, StopRequest
from foretext.runs.run_config import POSITION, Budget, Position, has_begun, read_position
from foretext.systems.base import TrainingConfig
from foretext.text.order import SampleOrder
from foretext.train.carried import check_carried, from_tensors, on_its_own, split_again, to_tensors
from foretext.train.optim import Optimizer, clip_gradients, rate_at

REPORT_SECONDS = 1.0
EVALUATION_SHARE = 0.05
SAVE_SHARE = 0.1  # of a budget in minutes: the most that a kill can cost
LOST_SHARE = 0.5  # of a budget in minutes: the most that kills before the first checkpoint can cost
OPTIMIZER = "training/optimizer.safetensors"
CURRENT = "training/current.safetensors"  # the weights to resume from, if model.safetensors has the best ones
CARRIED = "training/state.safetensors"
AVERAGE = "training/average.safetensors"  # averaged weights, and how many steps went into them


@dataclass(frozen=True)
class Stage:
    """What is learned from until a share of the budget is spent."""

    example: Callable[[int, int], Any]  # (epoch, index) → example; a pure function
    order: SampleOrder
    micro_batch: int
    evaluate: Callable[[], dict[str, float]] = dict  # empty if there is nothing to validate on
    until: float = 1.0


@dataclass(frozen=True)
class Job:
    """Everything that one training run consists of."""

    trunk: Trunk
    objective: Objective
    stages: tuple[Stage, ...]  # one after the other; the last one runs to the end
    optimizer: Optimizer
    config: TrainingConfig
    budget: Budget
    seed: int
    device: torch.device
    evaluate_every: int | None = None  # steps; None: `config.evaluations` times over the budget
    keep_best: str | None = None  # validation metric (higher is better) whose best weights are kept
    carried: int = 0  # numbers that the objective carries from step to step, over all rows

    @property
    def averages(self) -> bool:
        """Whether averaged weights are evaluated and kept: a moving average (`objective.average`) or the mean over the
        tail (`training.tail`)."""
        refuse_if(
            self.config.tail > 0 and self.objective.average > 0,
            "training.tail and objective.average both average weights; set one of them to 0",
        )
        return self.config.tail > 0 or self.objective.average > 0


def step_seed(seed: int, step: int, part: int) -> int:
    """A 63-bit seed from (seed, step, part)."""
    return int(np.random.SeedSequence([seed, step, part]).generate_state(1, np.uint64)[0] >> 1)


def _seed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` without its overhead. A CPU run uses one generator, but torch's function also stores the
    caller's stack as text for each kind of unused accelerator, which takes longer than a small step."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


class Loop:
    """Runs a `Job` to the end of its budget and writes checkpoints through `writer` (None: writes nothing)."""

    def __init__(self, job: Job, writer: RunWriter | None, reporter: Reporter, stopping: StopRequest) -> None:
        self.job = job
        self.writer = writer
        self.reporter = reporter
        self.stopping = stopping
        self.position = Position()
        self.model = nn.ModuleDict({"trunk": job.trunk, "task": job.objective})
        self.best: dict[str, Tensor] | None = None
        decay = None if job.config.tail else job.objective.average
        self.average = AveragedWeights(job.optimizer.parameters, decay) if job.averages else None
        self.carried: dict[int, Any] = {}  # micro-batch → state for the same rows in the next step
        self._started = self._last_saved = self._last_reported = time.perf_counter()
        self._evaluations = 0
        self._evaluation_seconds = 0.0  # of the last validation
        self._evaluating = 0.0  # of all validations
        self._step_seconds = 0.0
        self._running: dict[str, list[float]] = {}

    # -- one step --------------------------------------------------------------------------------------------------

    def stage(self) -> Stage:
        """The stage of the current position."""
        return self.job.stages[self._stage_number()]

    def _stage_number(self) -> int:
        progress, stages = self.job.budget.progress(self.position), self.job.stages
        return next((number for number, stage in enumerate(stages) if progress < stage.until), len(stages) - 1)

    def batches(self, step: int, stage: Stage | None = None) -> tuple[int, list[Batch], list[int]]:
        """The micro-batches of a step, by default in the current stage."""
        job, stage = self.job, stage or self.stage()
        epoch, indices = stage.order.batch(step)
        parts: list[Batch] = []
        for start in range(0, len(indices), stage.micro_batch):
            part = indices[start : start + stage.micro_batch]
            examples = [stage.example(epoch, index) for index in part]
            parts.append(job.objective.make(examples, Draw(job.seed, epoch, tuple(part))).to(job.device))
        return epoch, parts, indices

    def gradients(self, step: int, parts: Sequence[Batch]) -> dict[str, float]:
        """Adds the gradient of the step's loss to the parameters. Returns the mean of each named loss that the step has
        targets for."""
        job = self.job
        totals: dict[str, float] = {}
        for batch in parts:
            for name, count in job.objective.counts(batch).items():
                totals[name] = totals.get(name, 0.0) + count
        means = dict.fromkeys(totals, 0.0)
        _seed(step_seed(job.seed, step, 0), job.device)
        job.objective.begin_step(step, job.budget.progress(self.position))
        for number, batch in enumerate(parts):
            _seed(step_seed(job.seed, step, number), job.device)
            outcome = job.objective(job.trunk, batch, self.carried.get(number))
            if job.objective.carries_state:
                self.carried[number] = on_its_own(detached(outcome.state))
            terms = []
            for name, loss in outcome.losses.items():
                if totals[name]:
                    terms.append(job.objective.weights[name] * loss.total / totals[name])
                    means[name] += float(loss.total.detach()) / totals[name]
            total = torch.stack(terms).sum() if terms else None
            if total is not None and total.requires_grad:  # false if everything that it depends on is frozen
                total.backward()
        return {name: means[name] for name in job.objective.weights if totals[name]}

    def _step(self) -> dict[str, float]:
        job, position = self.job, self.position
        number = self._stage_number()
        stage = job.stages[number]
        epoch, parts, indices = self.batches(position.step, stage)
        if job.config.log_samples:
            self._log({"epoch": epoch, "samples": indices})
        rate = self._rate()
        job.optimizer.thaw(position.step)
        if position.stage != number or position.step % stage.order.steps_per_epoch == 0:
            self.carried = {}  # the streams start again, or are new ones
        position.stage = number
        carried = dict(self.carried)
        losses = self.gradients(position.step, parts)
        norm = clip_gradients(job.optimizer.gradients(), job.config.clip)
        if math.isfinite(norm) and all(math.isfinite(loss) for loss in losses.values()):
            job.optimizer.step(rate)
            if self.average is not None and self._averages():
                self.average.update()
        else:
            self.carried = carried  # the new state is probably not finite either
            self._bad_step(epoch, indices, losses, norm)
        job.optimizer.zero_grad()
        position.step += 1
        position.tokens += sum(batch.real_tokens for batch in parts)
        return losses

    def _averages(self) -> bool:
        """Whether this step's weights enter the average: without a tail those of every step do."""
        tail = self.job.config.tail
        return not tail or self.job.budget.progress(self.position) >= 1.0 - tail

    def _rate(self) -> float:
        position = self.position
        return rate_at(self.job.config, self.job.budget.progress(position), position.step, position.halvings)

    def _bad_step(self, epoch: int, indices: list[int], losses: dict[str, float], norm: float) -> None:
        """Skips the update of a step with a non-finite loss, logs its samples, and stops after a limited number of such
        steps."""
        self.position.bad_steps += 1
        shown = {name: str(loss) for name, loss in losses.items()}  # JSON has no NaN
        self._log({"bad_step": {"epoch": epoch, "samples": indices, "losses": shown, "norm": str(norm)}})
        where = f"; its samples are in {self.writer.run.path / 'metrics.jsonl'}" if self.writer else ""
        refuse_if(
            self.position.bad_steps > self.job.config.bad_steps,
            f"step {self.position.step}: the loss or its gradient is not finite ({self.position.bad_steps} such steps "
            f"so far){where}; lower the rate (--set training.rate=…) and continue with --resume",
            code=EXIT_NOT_FINITE,
        )
        self.reporter.note(f"step {self.position.step}: the loss or its gradient is not finite; update skipped{where}")

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> Position:
        """Trains to the end of the budget. A signal ends training early with a checkpoint and `Interrupted`."""
        job, position = self.job, self.position
        self._started = time.perf_counter() - position.seconds
        self._evaluations = self._due_evaluations()
        while not position.finished:
            if job.budget.spent(position, self._step_seconds + self._evaluation_seconds):
                self._finish()
                break
            begun = time.perf_counter()
            self.model.train()
            tokens = position.tokens
            losses = self._step()
            self._step_seconds = time.perf_counter() - begun
            self._clock()
            self._report(losses, position.tokens - tokens)
            if self._due_evaluations() > self._evaluations and self._affordable():
                self._evaluations = self._due_evaluations()
                self._evaluate()
            if self.stopping.requested is not None:
                self.save()
                raise Interrupted(self.stopping.requested, str(self.writer.run.path) if self.writer else None)
            if time.perf_counter() - self._last_saved > self._save_every():
                self.save()
        return position

    def _save_every(self) -> float:
        """Seconds between checkpoints; for a budget in minutes at most `SAVE_SHARE` of it."""
        minutes = self.job.budget.minutes
        every = self.job.config.save_seconds
        return every if minutes is None else min(every, SAVE_SHARE * 60.0 * minutes)

    def _due_evaluations(self) -> int:
        every = self.job.evaluate_every
        if every is None and self.job.config.schedule == "halving":
            every = self.stage().order.steps_per_epoch
        if every is not None:
            return self.position.step // every
        return int(self.job.budget.progress(self.position) * self.job.config.evaluations)

    def _affordable(self) -> bool:
        """With a budget in minutes, validation may take `EVALUATION_SHARE` of it."""
        if self.job.budget.spent(self.position, self._evaluation_seconds):
            return False  # the final validation comes next
        if self.job.budget.minutes is None or not self._evaluation_seconds:
            return True
        return self._evaluating + self._evaluation_seconds <= EVALUATION_SHARE * self.position.seconds

    def _finish(self) -> None:
        self._evaluate()
        if self.best is not None or self.average is not None:
            self.model.load_state_dict(self._predicting() if self.best is None else self.best)
        self._check_weights()  # even if nothing is written
        self.position.finished = True
        self.save()

    def _report(self, losses: dict[str, float], tokens: int) -> None:
        for name, loss in losses.items():
            self._running.setdefault(name, []).append(loss)
        now = time.perf_counter()
        if now - self._last_reported < REPORT_SECONDS and self.position.step % 50:
            return
        self._last_reported = now
        means = {name: sum(values) / len(values) for name, values in self._running.items()}
        self._running = {}
        progress = self.job.budget.progress(self.position)
        rate = self._rate()
        speed = tokens / self._step_seconds
        left = self.job.budget.seconds_left(self.position)
        self.reporter.step(StepReport(self.position.step, means, rate, self.position.tokens, speed, progress, left))
        self._log({"losses": means, "rate": rate, "tokens_per_second": round(speed, 1)})

    def _log(self, record: LogLine) -> None:
        if self.writer:
            head: LogLine = {
                "step": self.position.step,
                "tokens": self.position.tokens,
                "seconds": self.position.seconds,
            }
            self.writer.log.append(head | record)

    def _evaluate(self) -> None:
        begun = time.perf_counter()
        self.model.eval()
        with torch.no_grad(), self._averaged():
            values = self.stage().evaluate()
        self.model.train()
        if values:
            self._log({"validation": values})
            self.reporter.evaluation(self.position.step, values)
        if self.job.config.schedule == "halving" and "loss" in values:
            self._halve(values["loss"])
        name = self.job.keep_best
        best = -math.inf if self.position.best is None else self.position.best
        if name is not None and best < values[name] < math.inf:
            self.position.best, self.position.best_step = values[name], self.position.step
            self.best = self._predicting()
        self._evaluation_seconds = time.perf_counter() - begun
        self._evaluating += self._evaluation_seconds
        self._clock()

    def _halve(self, loss: float) -> None:
        """Halves the rate when the validation loss has risen, and at every validation after that."""
        position = self.position
        if position.halvings or (position.last_loss is not None and loss > position.last_loss):
            position.halvings += 1
        position.last_loss = loss if math.isfinite(loss) else None

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _clock(self) -> None:
        self.position.seconds = time.perf_counter() - self._started

    def _averaged(self) -> AbstractContextManager[None]:
        """Inside the block, the model has the weights used for prediction."""
        return nullcontext() if self.average is None else self.average.swapped()

    def _predicting(self) -> dict[str, Tensor]:
        """A copy of the weights used for prediction: the averaged ones if there are any."""
        with self._averaged():
            return {key: tensor.detach().clone() for key, tensor in self.model.state_dict().items()}

    def _check_weights(self) -> None:
        """UserError for NaN or infinite weights: a checkpoint of them would be worthless."""
        for name, parameter in self.model.named_parameters():
            refuse_if(
                not bool(torch.isfinite(parameter).all()),
                f"step {self.position.step}: {name} holds non-finite numbers, so nothing more is saved; lower the "
                "rate (--set training.rate=…) and start again, or continue from the last checkpoint with --resume",
                code=EXIT_NOT_FINITE,
            )

    def save(self) -> None:
        """Writes a checkpoint. `model.safetensors` is what a user loads: the best weights so far, if these are kept."""
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
        """Seconds already spent of a budget in minutes, from the log; those after the last checkpoint count too. Before
        the first checkpoint at most `LOST_SHARE` of the budget is counted, so that some is left for training."""
        if self.job.budget.minutes is None:
            return 0.0
        logged = (record.get("seconds") for record in run.metrics() if "undone" not in record)
        spent = max((float(value) for value in logged if isinstance(value, int | float)), default=0.0)
        whole = 60.0 * self.job.budget.minutes
        return min(spent, whole if has_begun(run) else LOST_SHARE * whole)

    def restore(self) -> bool:
        """Restores the checkpoint in the run directory and its log. If there is none, returns False and empties the
        log, except for bad steps."""
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
        self.reporter.note(f"resuming at step {self.position.step:,}")
        return True

    def _weights(self, run: RunDirectory, name: str) -> dict[str, Tensor]:
        tensors = run.load_tensors(name)
        check_tensors(tensors, self.model.state_dict(), str(run.path / name))
        return tensors

    def _carried_in(self, run: RunDirectory) -> dict[int, Any]:
        """The carried state of the last step, which may belong to an earlier stage."""
        stage = self.job.stages[min(self.position.stage, len(self.job.stages) - 1)]
        tensors, where = run.load_tensors(CARRIED), str(run.path / CARRIED)
        self.model.train()  # state carried in training may differ from that in evaluation
        trunk = self.job.trunk
        new = trunk.new_state(1) if self.job.objective.carries_state else None
        rows = len(stage.order.batch(max(0, self.position.step - 1))[1])
        check_carried(tensors, new, rows, trunk.memory_length(), where)
        return split_again(from_tensors(tensors, self.job.device), stage.micro_batch)

    def _cut_log(self, size: int) -> None:
        """Truncates the log to its length at the checkpoint. Samples of bad steps after it are kept once and marked: a
        run that stopped because of them is told to resume, and they show why it stopped."""
        assert self.writer is not None
        bad = {row.get("step"): row for row in self.writer.log.rows_after(size, "bad_step")}
        self.writer.log.truncate(size)
        for row in bad.values():
            self.writer.log.append(row | {"undone": True})
