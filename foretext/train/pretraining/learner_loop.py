"""Pre-training of a system with its own learning algorithm (`System.learn`). As in the main loop there is a budget, a
rate that falls with it, progress, atomic checkpoints, signals and resuming.

It is the same loop with another step. The learner has a limited number of steps, so it may finish before the budget is
spent. The rate falls with the budget or the steps, whichever is further.
"""

import shutil
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from foretext.errors import EXIT_MACHINE, UserError, counted
from foretext.nn.trunk import check_tensor
from foretext.runs.commit import RunWriter
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import available_memory, check_space, clock, size_text, writing_to
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import POSITION, Budget, Position
from foretext.systems import system_named
from foretext.systems.base import Learner, ObjectiveParts, System, TrunkParts
from foretext.text.corpus.shards import SPLITS, TokenShards
from foretext.text.order import Order
from foretext.train.loop import CARRIED, Job, Loop, Stage
from foretext.train.optim import make_optimizer, rate_at
from foretext.train.planning import little_read
from foretext.train.pretraining.run_setup import RunSetup
from foretext.train.resume import TOKENS

LINES = ".lines"  # folder inside a run for the learner's files
SAVING_SHARE = 0.05  # of the time, at most, for checkpoints


@dataclass(frozen=True)
class BoundedBudget(Budget):
    """A budget that also ends after a number of steps. For a budget in minutes, `begun` is the seconds spent before the
    first step."""

    most_steps: int = 0
    begun: float = 0.0

    def __post_init__(self) -> None:
        """Overrides the base's check: the values are checked already."""

    def progress(self, position: Position) -> float:
        spent = super().progress(position)
        if self.minutes is not None:
            spent = max(0.0, position.seconds - self.begun) / max(60.0 * self.minutes - self.begun, 1e-9)
        return max(spent, position.step / self.most_steps)

    def spent(self, position: Position, reserve: float = 0.0) -> bool:
        return position.step >= self.most_steps or (position.step > 0 and super().spent(position, reserve))

    def seconds_left(self, position: Position) -> float:
        done = position.step / self.most_steps
        by_steps = (position.seconds - self.begun) * (1.0 - done) / done if done else float("inf")
        return min(by_steps, super().seconds_left(position))


class LearnerLoop(Loop):
    def __init__(
        self, job: Job, learner: Learner, writer: RunWriter | None, reporter: Reporter, stopping: StopRequest
    ) -> None:
        super().__init__(job, writer, reporter, stopping)
        self.learner = learner
        self._saving = 0.0  # seconds that the last checkpoint took

    def _step(self) -> dict[str, float]:
        position, budget = self.position, self.job.budget
        # The final budget is unknown if it counts minutes or tokens, so at least one more step.
        ahead = replace(position, step=position.step + 1)
        rates = [rate_at(self.job.config, budget.progress(moment), position.step) for moment in (position, ahead)]
        if self.job.config.log_samples:
            epoch, chunk = divmod(position.step, self.learner.steps_per_epoch)
            self._log({"epoch": epoch, "samples": [chunk]})
        position.tokens += self.learner.step(position.step, (rates[0], rates[1]))
        position.step += 1
        return {}

    def _take(self) -> None:
        """Copies the learner's weights into the trunk."""
        weights, carried = self.learner.weights()
        trunk_weights = self.job.trunk.state_dict()
        for name, array in weights.items():
            trunk_weights[name].copy_(torch.from_numpy(array))
        self.carried = {0: torch.from_numpy(carried)}

    def save(self) -> None:
        begun = time.perf_counter()
        self._take()
        super().save()
        self._saving = time.perf_counter() - begun

    def _save_every(self) -> float:
        return max(super()._save_every(), self._saving / SAVING_SHARE)

    def restore(self) -> bool:
        resumed = super().restore()
        if resumed:
            self.learner.restore(self.job.trunk, self.carried[0].numpy())
        return resumed

    def _carried_in(self, run: RunDirectory) -> dict[int, Any]:
        tensors = run.load_tensors(CARRIED)
        like = torch.from_numpy(self.learner.weights()[1])
        check_tensor(tensors["0"], tuple(like.shape), like.dtype, f"{run.path / CARRIED}: 0")
        return {0: tensors["0"]}


def learn(setup: RunSetup, writer: RunWriter, threads: int) -> None:
    """Learns what `setup` asks for, to the end of its budget."""
    run, config = setup.run, setup.config
    system = system_named(config.run.system)
    folder = run.path / LINES
    texts = tuple(TokenShards.open(run.path / TOKENS, split, verify=True, ids=setup.tokenizer.size) for split in SPLITS)
    assert system.learn is not None
    learner = system.learn(
        model=config.model,
        settings=config.objective,
        tokenizer=setup.tokenizer,
        texts=texts,
        step_words=config.training.batch_size,
        seed=config.run.seed,
        threads=threads,
        folder=folder,
    )
    try:
        with writing_to(run.path):
            _tell_plan(setup, system, learner)
            spent = 0.0 if run.has(POSITION) else _begin(setup, writer, learner)
            loop = _make_loop(setup, system, learner, writer, spent)
            if not loop.restore():
                loop.position.seconds += spent
            loop.run()
    finally:
        learner.close()
        shutil.rmtree(folder, ignore_errors=True)


def _begin(setup: RunSetup, writer: RunWriter, learner: Learner) -> float:
    """The work before the first step. It determines the trunk's shape, which is recorded. Returns the seconds it took,
    which count towards the budget."""
    begun = time.perf_counter()
    for remark in learner.begin(setup.config.budget.minutes, setup.progress):
        setup.reporter.note(remark)
    setup.config = replace(setup.config, model=learner.model)
    writer.commit({"config.toml": setup.config.text().encode()})
    return time.perf_counter() - begun


def _make_loop(setup: RunSetup, system: System, learner: Learner, writer: RunWriter, spent: float) -> LearnerLoop:
    config = setup.config
    trunk = system.build_trunk(TrunkParts(config.model, setup.tokenizer))
    parts = ObjectiveParts(config.model, config.objective, setup.tokenizer, config.run.direction)
    objective = system.build_objective(parts)
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=(Stage(_no_example, Order(1, 1, 0), 1),),
        optimizer=make_optimizer(config.training, trunk, objective),
        config=config.training,
        budget=BoundedBudget(
            config.budget.minutes, config.budget.steps, config.budget.tokens, most_steps=learner.steps, begun=spent
        ),
        seed=config.run.seed,
        device=torch.device("cpu"),
    )
    return LearnerLoop(job, learner, writer, setup.reporter, setup.stopping)


def _no_example(epoch: int, index: int) -> None:
    raise AssertionError("a learner draws its own examples")


def _tell_plan(setup: RunSetup, system: System, learner: Learner) -> None:
    config, words, speed = setup.config, setup.config.training.batch_size, learner.speed()
    budget, corpus = config.budget, learner.tokens
    words = min(words, corpus)
    steps = min(learner.steps, budget.in_steps(words, speed))
    free = available_memory()
    if free is not None and learner.memory > free:
        raise UserError(
            f"training needs about {size_text(learner.memory)} of memory, but {size_text(free)} are free; use --set "
            "tokenizer.size=…, model.width=… or objective.lsa=…",
            code=EXIT_MACHINE,
        )
    check_space(setup.run.path, learner.disk)
    times = steps / learner.steps_per_epoch
    little = little_read(times, times * corpus / speed)
    setup.reporter.plan(
        f"pre-training {system.name} {config.run.size} into {setup.run.path}",
        [
            ("model", config.model.describe()),
            ("text", f"{corpus:,} words; the budget reads them about {times:.2g} times"),
            (
                "budget",
                f"{budget}: about {counted(max(1, round(steps)), 'step')} of {words:,} words at {speed:,.0f} words/s",
            ),
            *learner.describe(),
            ("time", f"about {clock(times * corpus / speed)}"),
            *([("warning", little)] if little else []),
            ("memory", f"about {size_text(learner.memory)}"),
            ("disk", f"about {size_text(learner.disk)} while saving"),
        ],
    )
