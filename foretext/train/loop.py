"""The one training loop, for pre-training and fine-tuning. It knows no system, no task and no loss by name.

Exact by construction: the samples of a step are a pure function of (seed, step), random numbers are drawn from a
generator seeded anew for each (seed, step, micro-batch), and everything else that a step depends on is in the
checkpoint. So a run that was killed and went on ends in the same weights, bit for bit, as one that was never stopped.

Counts are added up over all micro-batches of a step before the first backward pass, so that splitting a batch cannot
change its gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from foretext.batch import Batch, detached
from foretext.errors import EXIT_NOT_FINITE, Interrupted, refuse_if
from foretext.objectives.base import Draw
from foretext.runs.commit import RunWriter
from foretext.runs.report import Reporter, StepReport, StopRequest
from foretext.runs.run_config import Position
from foretext.train.checkpoint import Job, Stage, Training, on_its_own
from foretext.train.optim import clip_gradients, rate_at

REPORT_SECONDS = 1.0
EVALUATION_SHARE = 0.05
SAVE_SHARE = 0.1  # of a budget in minutes: what a kill can cost


def step_seed(seed: int, step: int, part: int) -> int:
    """A 63-bit seed from (seed, step, part)."""
    return int(np.random.SeedSequence([seed, step, part]).generate_state(1, np.uint64)[0] >> 1)


def _seed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed`. A CPU draws from one generator; before it comes to that, the function keeps the text of its
    caller's stack for each kind of accelerator that is not in use, which takes longer than a small step."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


class Loop(Training):
    """Runs a `Job` to the end of its budget, writing checkpoints through `writer` (None: keep nothing on disk)."""

    def __init__(self, job: Job, writer: RunWriter | None, reporter: Reporter, stopping: StopRequest) -> None:
        super().__init__(job, writer, reporter)
        self.stopping = stopping
        self._last_reported = self._started
        self._evaluations = 0
        self._evaluation_seconds = 0.0  # of the last one
        self._evaluating = 0.0  # of all
        self._step_seconds = 0.0
        self._running: dict[str, list[float]] = {}

    # -- one step --------------------------------------------------------------------------------------------------

    def stage(self) -> Stage:
        """The one that the position is in."""
        return self.job.stages[self._stage_number()]

    def _stage_number(self) -> int:
        progress, stages = self.job.budget.progress(self.position), self.job.stages
        return next((number for number, stage in enumerate(stages) if progress < stage.until), len(stages) - 1)

    def batches(self, step: int, stage: Stage | None = None) -> tuple[int, list[Batch], list[int]]:
        """The micro-batches of a step, in the stage of now if no other is said."""
        job, stage = self.job, stage or self.stage()
        epoch, indices = stage.order.batch(step)
        parts: list[Batch] = []
        for start in range(0, len(indices), stage.micro_batch):
            part = indices[start : start + stage.micro_batch]
            examples = [stage.example(epoch, index) for index in part]
            parts.append(job.objective.make(examples, Draw(job.seed, epoch, tuple(part))).to(job.device))
        return epoch, parts, indices

    def gradients(self, step: int, parts: Sequence[Batch]) -> dict[str, float]:
        """Adds the gradient of the step's loss to the parameters; returns the mean of each named loss that the step is
        about."""
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
            if total is not None and total.requires_grad:  # not where all that it depends on is frozen
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
            self.carried = {}  # the streams begin again, or are others
        position.stage = number
        carried = dict(self.carried)
        losses = self.gradients(position.step, parts)
        norm = clip_gradients(job.optimizer.gradients(), job.config.clip)
        if math.isfinite(norm) and all(math.isfinite(loss) for loss in losses.values()):
            job.optimizer.step(rate)
            if self.average is not None:
                self.average.update()
        else:
            self.carried = carried  # the new one is likely not finite either
            self._bad_step(epoch, indices, losses, norm)
        job.optimizer.zero_grad()
        position.step += 1
        position.tokens += sum(batch.real_tokens for batch in parts)
        return losses

    def _rate(self) -> float:
        position = self.position
        return rate_at(self.job.config, self.job.budget.progress(position), position.step, position.halvings)

    def _bad_step(self, epoch: int, indices: list[int], losses: dict[str, float], norm: float) -> None:
        """No update; the samples are kept; a bounded number of such steps is passed over."""
        self.position.bad_steps += 1
        shown = {name: str(loss) for name, loss in losses.items()}  # JSON has no NaN
        self._log({"bad_step": {"epoch": epoch, "samples": indices, "losses": shown, "norm": str(norm)}})
        where = f"; its samples are in {self.writer.run.path / 'metrics.jsonl'}" if self.writer else ""
        refuse_if(
            self.position.bad_steps > self.job.config.bad_steps,
            f"step {self.position.step}: the loss or its gradient is not finite "
            f"({self.position.bad_steps} such steps so far){where}; lower the rate "
            "(--set training.rate=…) and go on with --resume",
            code=EXIT_NOT_FINITE,
        )
        self.reporter.note(f"step {self.position.step}: loss or gradient not finite; no update was made{where}")

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> Position:
        """Trains to the end of the budget. A signal ends it early, after a checkpoint, with `Interrupted`."""
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
        """Seconds between checkpoints; of a budget in minutes at most `SAVE_SHARE` of it."""
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
        """Of a budget in minutes, validation may take `EVALUATION_SHARE` and no more."""
        if self.job.budget.spent(self.position, self._evaluation_seconds):
            return False  # the closing evaluation is next
        if self.job.budget.minutes is None or not self._evaluation_seconds:
            return True
        return self._evaluating + self._evaluation_seconds <= EVALUATION_SHARE * self.position.seconds

    def _finish(self) -> None:
        self._evaluate()
        if self.best is not None or self.average is not None:
            self.model.load_state_dict(self._predicting() if self.best is None else self.best)
        self._check_weights()  # also where nothing is written
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

    def _log(self, record: dict[str, Any]) -> None:
        if self.writer:
            head = {"step": self.position.step, "tokens": self.position.tokens, "seconds": self.position.seconds}
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
        """The rate is halved when a validation loss is higher than the one before it, and each time from then on."""
        position = self.position
        if position.halvings or (position.last_loss is not None and loss > position.last_loss):
            position.halvings += 1
        position.last_loss = loss if math.isfinite(loss) else None
