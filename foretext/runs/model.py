"""A run directory as a model in memory: configuration, tokenizer, trunk and, after fine-tuning, the task's head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

import foretext
from foretext.config import build_sections, from_toml, to_toml
from foretext.errors import UserError
from foretext.nn.model_config import ModelConfig
from foretext.nn.trunk import Trunk, reads_on
from foretext.nn.weights import check_tensors
from foretext.objectives.base import Direction, Objective, Scored
from foretext.plan import ConcatPoolingConfig, TransferPlan
from foretext.runs.budget import Budget
from foretext.runs.directory import RunDirectory
from foretext.systems import system_named
from foretext.systems.base import (
    HeadParts,
    ObjectiveParts,
    StartConfig,
    System,
    TokenizerConfig,
    TrainingConfig,
    TrunkParts,
)
from foretext.tasks.families import KINDS, family_of
from foretext.tasks.task_config import TaskConfig
from foretext.text.tokenizers.base import Tokenizer, tokenizer_from_json

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead

FORMAT = 1


@dataclass(frozen=True)
class RunConfig:
    """[run]: what this directory holds."""

    kind: Literal["pretrain", "finetune"] = "pretrain"
    system: str = "gpt"
    size: str = "tiny"
    direction: Literal["forward", "backward"] = "forward"
    seed: int = 0
    tokenizer: str = ""  # fingerprint of tokenizer.json: another model's is refused even where sizes agree
    format: int = FORMAT
    foretext: str = foretext.__version__


@dataclass(frozen=True)
class DataConfig:
    """[data]: the text of a pre-training run."""

    inputs: tuple[str, ...] = ()
    source: str | None = None  # of parallel text, for systems that translate
    target: str | None = None
    vectors: str | None = None  # file of the source's word vectors
    column: str | None = None
    documents: str = "auto"
    errors: str = "strict"
    valid_fraction: float = 0.05
    imported_from: str | None = None  # folder that the weights were imported from; then there was no text
    starts_from: str | None = None  # run whose weights and tokenizer this one went on with
    head_drawn: bool = False  # imported without a head for masked tokens: one was drawn, and was never trained

    def check(self) -> None:
        """UserError for what no text can be split by."""
        if not 0.0 < self.valid_fraction < 1.0:
            raise UserError(f"data.valid_fraction must be above 0 and below 1, not {self.valid_fraction}")


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
}
BASE_SECTIONS = ("run", "model", "tokenizer", "objective", "training", "budget", "data")
TASK_SECTIONS = ("run", "model", "training", "budget", "transfer", "task")


def config_text(sections: dict[str, Any]) -> str:
    return to_toml(sections)


def _text(run: RunDirectory, name: str) -> str:
    try:
        return run.read(name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{run.path / name}: not text (byte {error.start}); restore it from a copy") from None


def read_config(run: RunDirectory) -> dict[str, Any]:
    """The sections of a run's config.toml, checked."""
    return sections_of(_text(run, "config.toml"), str(run.path / "config.toml"))


def sections_of(text: str, where: str) -> dict[str, Any]:
    """What `config_text` wrote."""
    raw = from_toml(text, where)
    if raw.get("run", {}).get("format", FORMAT) != FORMAT:
        raise UserError(f"{where}: written by a newer Foretext (format {raw['run']['format']}); update foretext")
    names = _section_names(raw)
    system = _system_of(raw, where)
    if "task" in names and system.build_head is not None:
        names = (*names, "objective")
    kinds = SECTIONS | {"model": system.config, "objective": system.objective_config}
    sections = build_sections({name: kinds[name] for name in names}, raw, where)
    check_saved(sections, where)
    return sections


def check_saved(sections: dict[str, Any], where: str) -> None:
    """The configuration of a run may have been altered since: UserError for what no run can have; `where` is its
    file."""
    try:
        for name in ("model", "training", "transfer", "start", "pooling"):
            if name in sections:
                sections[name].check()
        if sections["model"].vocabulary < 1:
            raise UserError(f"model.vocabulary must be at least 1, not {sections['model'].vocabulary}")
        if "task" in sections and sections["task"].kind not in KINDS:
            raise UserError(f"task.kind {sections['task'].kind!r} is none of {', '.join(KINDS)}")
    except UserError as error:
        raise UserError(f"{where}: {error}; restore it from a copy") from None


def _section_names(raw: dict[str, Any]) -> tuple[str, ...]:
    """Those that a run of its kind has, and those that it has only because another says so."""
    if raw.get("run", {}).get("kind") != "finetune":
        return (*BASE_SECTIONS, "start") if _said(raw, "data", "starts_from") else BASE_SECTIONS
    return (*TASK_SECTIONS, "pooling") if _said(raw, "transfer", "pooling") == "concat" else TASK_SECTIONS


def _said(raw: dict[str, Any], section: str, key: str) -> Any:
    found = raw.get(section)
    return found.get(key) if isinstance(found, dict) else None


def _system_of(raw: dict[str, Any], where: str) -> System:
    """The system, which names the dataclasses of [model] and [objective]."""
    section = raw.get("run", {})
    name = section.get("system", RunConfig.system) if isinstance(section, dict) else None
    if not isinstance(name, str):
        raise UserError(f"{where}: [run] must name the system; restore it from a copy")
    return system_named(name)


@dataclass
class SavedModel:
    """A loaded run."""

    run: RunDirectory | None
    sections: dict[str, Any]
    system: System
    tokenizer: Tokenizer
    trunk: Trunk
    task: TaskHead | None = None
    objective: Objective | None = None  # what a pre-trained run was trained by, with its head if it has one
    # A row for each id: of a model that has learned nothing, what its words' vectors start as; of one that was
    # pre-trained, what a task's own model reads beside it.
    vectors: np.ndarray | None = None

    @property
    def info(self) -> RunConfig:
        return self.sections["run"]

    @property
    def model_config(self) -> ModelConfig:
        return self.sections["model"]

    @property
    def scored(self) -> Scored:
        """How a text is scored: as the objective says, or, without one, by the trunk of a causal system."""
        if self.objective is not None:
            return self.objective.scored
        return "in turn" if self.system.causal else "not at all"

    @property
    def task_config(self) -> TaskConfig:
        if self.task is None:
            where = self.run.path if self.run else "this model"
            raise UserError(f"{where} has no task: fine-tune it first (foretext finetune RUN rows.csv --task …)")
        return self.sections["task"]


def need_causal(model: SavedModel, what: str) -> None:
    """UserError for what only a model that reads in one direction can do."""
    if model.system.learn is not None:
        raise UserError(
            f"{what} needs a model that predicts each token from those before it, and {model.system.name} predicts "
            "none in a text"
        )
    if not model.system.causal:
        fills = model.system.fills and model.objective is not None
        raise UserError(
            f"{what} needs a model that predicts each token from those before it, and {model.system.name} sees both "
            f"sides{'; foretext fill asks it about blanks' if fills else ''}"
        )


def need_trained_head(model: SavedModel, what: str) -> None:
    """UserError where what predicts tokens was drawn on import, and not trained since: a folder from elsewhere may lack
    it."""
    data = model.sections.get("data")
    if data is not None and data.head_drawn:
        where = model.run.path if model.run else "this model"
        lacked = (model.objective or Objective).lacks
        raise UserError(
            f"{where} was imported without {lacked}, and the one that was drawn knows nothing: {what} needs one that "
            f"was trained; go on with it: foretext pretrain TEXT --from {where} --out ANOTHER"
        )


def facing(model: SavedModel, direction: str) -> SavedModel:
    """The model as it reads in this direction. ELMo has both; any other run has the one it was trained in."""
    if direction not in ("forward", "backward"):
        raise UserError(f"--direction {direction}: there is forward and backward")
    if direction == model.info.direction:
        return model
    if model.scored != "both ways":
        raise UserError(
            f"--direction {direction}: this run of {model.system.name} reads {model.info.direction}; leave it out, or "
            f"train another (foretext pretrain … --direction {direction})"
        )
    return replace(model, sections=model.sections | {"run": replace(model.info, direction=cast(Direction, direction))})


def reach_of(model: SavedModel) -> int | None:
    """Tokens that the model reads at a time; None: any number, as an LSTM does, whose state goes on."""
    return None if reads_on(model.trunk) else model.model_config.reads


def open_run(path: str | Path) -> RunDirectory:
    return RunDirectory(Path(path))


def load_tokenizer(run: RunDirectory, info: RunConfig) -> Tokenizer:
    where = str(run.path / "tokenizer.json")
    tokenizer = tokenizer_from_json(_text(run, "tokenizer.json"), where)
    if tokenizer.fingerprint() != info.tokenizer:
        raise UserError(f"{where}: not the tokenizer that this model was trained with; put the right file back")
    return tokenizer


def build_task(system: System, sections: dict[str, Any], tokenizer: Tokenizer, dropout: float) -> TaskHead:
    task, model = sections["task"], sections["model"]
    if system.build_head is not None:
        return cast("TaskHead", system.build_head(HeadParts(task, model, sections["objective"], tokenizer)))
    return family_of(task.kind).head(task, model, sections["transfer"], dropout, sections.get("pooling"))


def load_model(path: str | Path, device: torch.device | str = "cpu") -> SavedModel:
    """Everything in a run directory that prediction and generation need."""
    run = open_run(path)
    sections = read_config(run)
    tokenizer = load_tokenizer(run, sections["run"])
    if not run.has("model.safetensors"):
        raise UserError(f"{run.path}: there are no weights before the first checkpoint; train on with --resume")
    where, tensors = str(run.path / "model.safetensors"), run.load_tensors("model.safetensors")
    check_amount(sections["model"], tensors, where, "[model] in config.toml")
    return _assembled(run, sections, tokenizer, tensors, where, device)


def _assembled(
    run: RunDirectory | None,
    sections: dict[str, Any],
    tokenizer: Tokenizer,
    tensors: dict[str, Tensor],
    where: str,
    device: torch.device | str,
) -> SavedModel:
    system = system_named(sections["run"].system)
    trunk, task = _modules(system, sections, tokenizer)
    whole = nn.ModuleDict({"trunk": trunk, "task": task})  # as the loop names them in its checkpoints
    put_weights(whole, tensors, where)
    whole.to(device).eval()
    if sections["run"].kind == "finetune":
        return SavedModel(run, sections, system, tokenizer, trunk, task=cast("TaskHead", task))
    return SavedModel(run, sections, system, tokenizer, trunk, objective=task)


def model_state(model: SavedModel) -> dict[str, Any]:
    """A model as plain data, texts and arrays: what its run directory would hold."""
    head = model.task if model.task is not None else model.objective
    assert head is not None
    tensors = nn.ModuleDict({"trunk": model.trunk, "task": head}).state_dict()
    return {
        "config": config_text(model.sections),
        "tokenizer": model.tokenizer.to_json(),
        "weights": {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()},
    }


def model_of_state(state: dict[str, Any]) -> SavedModel:
    """The model that `model_state` took apart."""
    where = "the saved state"
    tensors = {name: torch.from_numpy(array.copy()) for name, array in state["weights"].items()}
    tokenizer = tokenizer_from_json(state["tokenizer"], where)
    return _assembled(None, sections_of(state["config"], where), tokenizer, tensors, where, "cpu")


def _modules(system: System, sections: dict[str, Any], tokenizer: Tokenizer) -> tuple[Trunk, Objective]:
    """The two parts of a model."""
    info, model = sections["run"], sections["model"]
    if info.kind == "finetune":
        task: Objective = build_task(system, sections, tokenizer, 0.0)
    else:
        task = system.build_objective(ObjectiveParts(model, sections["objective"], tokenizer, info.direction))
    words = sections["task"].softmax if info.kind == "finetune" else 0
    return system.build_trunk(TrunkParts(model, tokenizer, words, info.direction)), task


def check_amount(model: ModelConfig, tensors: dict[str, Tensor], where: str, said: str) -> None:
    """UserError if the configuration needs far more numbers than there are, which no memory may be taken for."""
    there, needed = sum(tensor.numel() for tensor in tensors.values()), model.parameters() + model.fixed
    if needed > 2 * there:
        raise UserError(f"{where}: has {there:,} numbers where {said} needs {needed:,}; restore both")


def put_weights(module: nn.Module, tensors: dict[str, Tensor], where: str) -> None:
    """Loads weights that fit: UserError for others."""
    check_tensors(tensors, module.state_dict(), where)
    module.load_state_dict(tensors)
