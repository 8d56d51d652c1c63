"""A run's configuration, `config.toml`, with one dataclass per section, and its progress, `training/position.json`."""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import foretext
from foretext.config import Sections, Toml, build, build_sections, from_toml, to_toml
from foretext.errors import UserError, check_range, counted, refuse_if
from foretext.nn.trunk import ModelConfig
from foretext.objectives.base import ObjectiveConfig
from foretext.plan import TUNED, ConcatPoolingConfig, TransferPlan, ViewsConfig
from foretext.runs.directory import RunDirectory
from foretext.systems import DEFAULT, system_named
from foretext.systems.base import StartConfig, System, TokenizerConfig, TrainingConfig
from foretext.tasks.family import KINDS, TaskConfig

FORMAT = 1
POSITION = "training/position.json"
MOST = 1e15  # upper limit for any number; far beyond what can be trained, far below where clocks and counts overflow
MICRO_TOKENS = 4096


# -- sections ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunConfig:
    """[run]: what this directory holds."""

    kind: Literal["pretrain", "finetune"] = "pretrain"
    system: str = DEFAULT
    size: str = "tiny"
    direction: Literal["forward", "backward"] = "forward"
    seed: int = 0
    tokenizer: str = ""  # fingerprint of tokenizer.json: another model's is refused even if the sizes agree
    format: int = FORMAT
    foretext: str = foretext.__version__


@dataclass(frozen=True)
class DataConfig:
    """[data]: the text of a pre-training run."""

    inputs: tuple[str, ...] = ()
    source: str | None = None  # of parallel text, for systems that translate
    target: str | None = None
    # of the source language's words; otherwise the word2vec run copied beside the model, or "none"
    vectors: str | None = None
    column: str | None = None
    documents: str = "auto"
    errors: str = "strict"
    valid_fraction: float = 0.05
    imported_from: str | None = None  # folder that the weights were imported from; then there was no text
    starts_from: str | None = None  # run that this one took its weights and tokenizer from
    head_drawn: bool = False  # imported without a head for masked tokens: a new one was drawn and is untrained

    def check(self) -> None:
        """UserError for settings that cannot split a text."""
        check_range("data", self, "above 0 and below 1", "valid_fraction")


@dataclass
class Position:
    """How far a run has come: everything that the order of samples, the schedule and the log depend on."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    bad_steps: int = 0
    metrics_bytes: int = 0
    best: float | None = None
    best_step: int = 0
    finished: bool = False
    stage: int = 0  # the stage of the last step; carried state belongs to its rows
    halvings: int = 0  # how often the schedule has halved the rate
    last_loss: float | None = None  # the last validation loss, for schedules that depend on it
    optimizer_tensors: int = 0  # number of tensors in its file, to notice missing ones; 0: saved by an earlier version


@dataclass(frozen=True)
class Budget:
    minutes: float | None = None
    steps: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        given = [(name, value) for name, value in vars(self).items() if value is not None]
        refuse_if(len(given) != 1, "give exactly one of --minutes, --steps and --tokens")
        name, value = given[0]
        refuse_if(not 0 < value <= MOST, f"--{name} {value}: a budget must be above 0 and at most {MOST:.0e}")

    def progress(self, position: Position) -> float:
        """The share of the budget that is spent, 0 … 1."""
        if self.minutes is not None:
            return position.seconds / (60.0 * self.minutes)
        if self.steps is not None:
            return position.step / self.steps
        assert self.tokens is not None
        return position.tokens / self.tokens

    def spent(self, position: Position, reserve: float = 0.0) -> bool:
        """Whether to stop. `reserve`: seconds needed for the next step and the final evaluation."""
        if self.minutes is not None:
            return position.seconds + reserve >= 60.0 * self.minutes
        return self.progress(position) >= 1.0

    def in_steps(self, tokens: float, speed: float) -> float:
        """The budget in steps, given the tokens per step and per second."""
        if self.minutes is not None:
            return 60.0 * self.minutes * speed / tokens
        return self.steps if self.steps is not None else (self.tokens or 0) / tokens

    def seconds_left(self, position: Position) -> float:
        if self.minutes is not None:
            return max(0.0, 60.0 * self.minutes - position.seconds)
        done = self.progress(position)
        return position.seconds * (1.0 - done) / done if done else float("inf")

    def __str__(self) -> str:
        if self.minutes is not None:
            return f"{self.minutes:.4g} minute{'' if self.minutes == 1 else 's'}"
        return counted(self.steps, "step") if self.steps is not None else counted(self.tokens or 0, "token")


# -- whole configurations ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelSections:
    """The sections of every model, trained or not."""

    run: RunConfig
    model: ModelConfig

    def by_name(self) -> Sections:
        """The sections in use, in the order of config.toml."""
        return {name: section for name, section in vars(self).items() if section is not None}

    def text(self) -> str:
        """config.toml."""
        return to_toml(self.by_name())


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(ModelSections):
    """The sections of a pre-training run's config.toml, in order."""

    tokenizer: TokenizerConfig
    objective: ObjectiveConfig
    training: TrainingConfig
    budget: Budget
    data: DataConfig
    start: StartConfig | None = None  # if it continues from another run

    @property
    def micro_batch(self) -> int:
        """Sequences per micro-batch."""
        training = self.training
        return training.micro_batch or max(1, min(training.batch_size, MICRO_TOKENS // self.model.context))


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(ModelSections):
    """The sections of a fine-tuning run's config.toml, in order."""

    training: TrainingConfig
    budget: Budget | None = None  # None until the rows are encoded: it depends on them
    transfer: TransferPlan
    pooling: ConcatPoolingConfig | None = None  # if `transfer.pooling` is "concat"
    task: TaskConfig
    objective: Any = None  # for systems with their own heads
    views: ViewsConfig | None = None  # if one head reads views; unless `tuned`, the loop trains nothing

    @property
    def trains(self) -> bool:
        """Whether the loop trains something; a head over views alone does not need it."""
        return self.views is None or self.views.tuned

    @property
    def updates(self) -> int:
        assert self.budget is not None and self.budget.steps is not None
        return self.budget.steps


SECTIONS: dict[str, type] = {
    "run": RunConfig,
    "tokenizer": TokenizerConfig,
    "training": TrainingConfig,
    "budget": Budget,
    "data": DataConfig,
    "transfer": TransferPlan,
    "start": StartConfig,
    "pooling": ConcatPoolingConfig,
    "task": TaskConfig,
    "views": ViewsConfig,
}
_PRETRAINED = ("run", "model", "tokenizer", "objective", "training", "budget", "data")
_FINETUNED = ("run", "model", "training", "budget", "transfer", "task")


def text_of(run: RunDirectory, name: str) -> str:
    """A file of a run, as text."""
    try:
        return run.read(name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{run.path / name}: not text (byte {error.start}); restore it from a copy") from None


def read_config(run: RunDirectory) -> PretrainConfig | FinetuneConfig:
    """A run's config.toml, checked."""
    return config_in(text_of(run, "config.toml"), str(run.path / "config.toml"))


def config_in(text: str, where: str) -> PretrainConfig | FinetuneConfig:
    """The configuration in a text from `ModelSections.text`, checked."""
    raw = from_toml(text, where)
    format = _setting(raw, "run", "format")
    refuse_if(format not in (None, FORMAT), f"{where}: written by a newer Foretext (format {format}); update foretext")
    name = _setting(raw, "run", "system")
    refuse_if(not isinstance(name, str | None), f"{where}: [run] must name the system; restore it from a copy")
    # this decides the classes of [model] and [objective]
    system = system_named(RunConfig.system if name is None else name)
    kinds = SECTIONS | {"model": system.config, "objective": system.objective_config}
    names = _section_names(raw, system)
    sections = build_sections({name: kinds[name] for name in names}, raw, where)
    config = FinetuneConfig(**sections) if "task" in names else PretrainConfig(**sections)
    check_saved(config, where)
    return config


def check_saved(config: PretrainConfig | FinetuneConfig, where: str) -> None:
    """UserError for impossible values: the configuration of a run may have been edited. `where` is its file."""
    try:
        for name in ("model", "training", "transfer", "start", "pooling", "views"):
            if section := getattr(config, name, None):
                section.check()
        check_range("model", config.model, "at least 1", "vocabulary")
        if isinstance(config, FinetuneConfig) and config.task.kind not in KINDS:
            raise UserError(f"task.kind {config.task.kind!r} must be one of {', '.join(KINDS)}")
    except UserError as error:
        raise UserError(f"{where}: {error}; restore it from a copy") from None


def _section_names(raw: Toml, system: System) -> tuple[str, ...]:
    """The sections that this kind of run has, and those that it has only because another section says so."""
    if _setting(raw, "run", "kind") != "finetune":
        return (*_PRETRAINED, "start") if _setting(raw, "data", "starts_from") else _PRETRAINED
    pooled = ("pooling",) if _setting(raw, "transfer", "pooling") == "concat" else ()
    if "views" in raw:
        kinds = _setting(raw, "views", "kinds")
        tuned = isinstance(kinds, list) and TUNED in kinds  # otherwise the loop trains nothing and there is no budget
        return (*(name for name in _FINETUNED if tuned or name != "budget"), *pooled, "views")
    return (*_FINETUNED, *pooled, *(("objective",) if system.build_head is not None else ()))


def _setting(raw: Toml, section: str, key: str) -> Any:
    table = raw.get(section)
    return table.get(key) if isinstance(table, dict) else None


# -- the losses of a fine-tuning ---------------------------------------------------------------------------------------

LABEL = "label"
MIXTURE = "squared weights of the mixture"  # part of the label's loss, so it has no name as a loss
_WORDS = {"lm": "language model", "temporal": "temporal activation"}


def loss_terms(config: FinetuneConfig) -> dict[str, float]:
    """Each named loss and its weight, as in the task. A weight that rises is given with its final value."""
    if config.objective is not None:  # a system with its own heads
        kinds = {LABEL: config.task.kind} | {
            name: kind_and_classes.split()[0] for name, kind_and_classes in config.task.also.items()
        }
        terms: dict[str, float] = config.objective.loss_terms(kinds)
        return terms
    pooling = config.pooling
    penalties = {} if pooling is None else {"activation": pooling.activation, "temporal": pooling.temporal}
    added = {"lm": config.transfer.lm_weight} | penalties
    return {LABEL: 1.0} | {name: weight for name, weight in added.items() if weight}


def describe_loss(config: FinetuneConfig) -> str:
    """The same in one line. Losses on unlabelled text come last, and only if there is such text.

    label + 0.5 · language model                                        GPT label + 2 · activation + 1 · temporal
    activation                    ULMFiT label; unlabelled text: 1 · (forward, backward, future, past)       Cross-View
    Training
    """
    terms, transfer = loss_terms(config), config.transfer
    tasks = {name: weight for name, weight in terms.items() if "." not in name}
    words = _WORDS | ({"lm": "language model, right to left"} if config.run.direction == "backward" else {})
    line = " + ".join(
        name if weight == 1.0 and name not in ("activation", "temporal") else f"{weight:g} · {words.get(name, name)}"
        for name, weight in tasks.items()
    )
    reader = transfer.reader
    if transfer.model == "recurrent" and reader.penalty and (reader.mix or reader.twice):
        line += f" + {reader.penalty:g} · {MIXTURE}"
    views = list(dict.fromkeys(name.partition(".")[2] for name in terms if "." in name))
    if views and config.task.sentences:
        line += f"; unlabelled text: {config.objective.unlabelled_weight:g} · ({', '.join(views)})"
    return line


# -- how far it has come -----------------------------------------------------------------------------------------------


def read_position(run: RunDirectory) -> Position:
    """How far a run has come, from its checkpoint."""
    try:
        position = build(Position, json.loads(run.read(POSITION)), POSITION)
        counts = {name: number for name, number in vars(position).items() if name not in ("best", "last_loss")}
        figures = [number for number in (position.best, position.last_loss) if number is not None]
        if all(0 <= number <= MOST for number in counts.values()) and all(map(math.isfinite, figures)):
            return position
    except (ValueError, RecursionError):
        pass
    except UserError as error:
        if not str(error).startswith(POSITION):  # an error of the file, not of its contents
            raise
    raise UserError(f"{run.path / POSITION}: not a training position; restore it from a copy")


def has_begun(run: RunDirectory) -> bool:
    """Whether there is a checkpoint to resume from."""
    return run.has(POSITION)


def is_finished(run: RunDirectory) -> bool:
    return has_begun(run) and read_position(run).finished
