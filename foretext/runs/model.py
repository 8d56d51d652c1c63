"""A run directory as a model in memory: configuration, tokenizer, trunk and, after fine-tuning, the task's head. Also
how such a model runs over many examples without gradients: in batches of similar length, with the results in the
original order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import Batch, length_batches
from foretext.errors import UserError, refuse_if
from foretext.nn.trunk import ModelConfig, Trunk, check_tensors, reads_on
from foretext.objectives.base import Direction, Objective, Scored
from foretext.runs.directory import RunDirectory
from foretext.runs.report import Reporter, Warns, Work
from foretext.runs.run_config import (
    FinetuneConfig,
    ModelSections,
    PretrainConfig,
    RunConfig,
    config_in,
    is_finished,
    read_config,
    text_of,
)
from foretext.systems import SYSTEMS, system_named
from foretext.systems.base import ObjectiveParts, System, TrunkParts
from foretext.tasks.family import Encoded, Encoding, Progress, TaskConfig, family_of
from foretext.tasks.layouts.base import Layout
from foretext.text.tokenizers.base import Tokenizer, tokenizer_from_json

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead
    from foretext.tasks.views.base import ViewHead

WORDS = "words"  # folder inside a pre-trained run: word vectors learned from the same text


@dataclass
class SavedModel:
    """A loaded run."""

    run: RunDirectory | None
    config: ModelSections
    system: System
    tokenizer: Tokenizer
    trunk: Trunk
    task: TaskHead | None = None
    objective: Objective | None = None  # what a pre-trained run was trained with, including its head if any
    # Word vectors, one row per id. For an untrained model they initialise its embeddings; for a pre-trained one the
    # task model reads them beside the states.
    vectors: np.ndarray | None = None
    views: ViewHead | None = None  # of a fine-tuned run: scores rows instead of trunk and head

    @property
    def info(self) -> RunConfig:
        return self.config.run

    @property
    def where(self) -> str:
        """Its run, for messages."""
        return str(self.run.path) if self.run else "this model"

    @property
    def model_config(self) -> ModelConfig:
        return self.config.model

    @property
    def layout(self) -> Layout:
        """How the texts of a row become one sequence."""
        return self.system.build_layout(dict(self.tokenizer.specials), self.model_config.reads, self.info.direction)

    @property
    def scored(self) -> Scored:
        """How a text is scored: as the objective says, or by the trunk of a causal system if there is no objective."""
        if self.objective is not None:
            return self.objective.scored
        return "in turn" if self.system.causal else "not at all"

    @property
    def task_config(self) -> TaskConfig:
        if self.task is None:
            named = self.run.path if self.run else "RUN"
            raise UserError(
                f"{self.where} has no task: fine-tune it first (foretext finetune {named} rows.csv --task …)"
            )
        return self.finetuned.task

    @property
    def head(self) -> TaskHead:
        """The head of a fine-tuned model."""
        assert self.task is not None
        return self.task

    @property
    def device(self) -> torch.device:
        return next(self.trunk.parameters()).device

    @property
    def decoder(self) -> TaskHead:
        """What turns scores into predictions: the head, or for views of words what chooses tags or spans."""
        if self.views is None:
            return self.head
        config = self.task_config
        return family_of(config.kind).view_task().decoder(self.views, config) or self.head

    @property
    def finetuned(self) -> FinetuneConfig:
        """The configuration of a fine-tuned run."""
        assert isinstance(self.config, FinetuneConfig)
        return self.config

    @property
    def head_drawn(self) -> bool:
        """Whether the head that predicts tokens was drawn on import and has not been trained since."""
        return isinstance(self.config, PretrainConfig) and self.config.data.head_drawn


def need_causal(model: SavedModel, what: str) -> None:
    """UserError if the model does not read in one direction."""
    if model.system.causal:
        return
    able = ", ".join(name for name, system in SYSTEMS.items() if system.writes)
    fills = model.system.fills and model.objective is not None
    why = "predicts no tokens" if model.system.learn is not None else "sees both sides"
    raise UserError(
        f"{what} needs a model that predicts each token from those before it ({able}), and {model.system.name} "
        f"{why}{'; foretext fill asks it about blanks' if fills else ''}"
    )


def need_trained_head(model: SavedModel, what: str) -> None:
    """UserError if the head that predicts tokens was drawn on import and has not been trained since: imported folders
    may lack it."""
    if model.head_drawn:
        lacked = (model.objective or Objective).lacks
        raise UserError(
            f"{model.where} was imported without {lacked}; a new one was drawn and is untrained, but {what} needs a "
            f"trained one; train it with: foretext pretrain TEXT --from {model.where} --out ANOTHER"
        )


def facing(model: SavedModel, direction: str) -> SavedModel:
    """The model as it reads in this direction. ELMo has both; any other run has only the one it was trained in."""
    refuse_if(direction not in ("forward", "backward"), f"--direction {direction}: use forward or backward")
    if direction == model.info.direction:
        return model
    refuse_if(
        model.scored != "both ways" and not model.system.causal,
        f"--direction {direction}: {model.system.name} has no directions to choose from; leave it out",
    )
    refuse_if(
        model.scored != "both ways",
        f"--direction {direction}: this run of {model.system.name} reads {model.info.direction}; leave it out, or "
        f"train another (foretext pretrain … --direction {direction})",
    )
    turned = replace(model.info, direction=cast(Direction, direction))
    return replace(model, config=replace(model.config, run=turned))


def reach_of(model: SavedModel) -> int | None:
    """Tokens that the model can read at once; None: any number, as for an LSTM, which carries its state."""
    return None if reads_on(model.trunk) else model.model_config.reads


def load_tokenizer(run: RunDirectory, info: RunConfig) -> Tokenizer:
    where = str(run.path / "tokenizer.json")
    tokenizer = tokenizer_from_json(text_of(run, "tokenizer.json"), where)
    refuse_if(
        tokenizer.fingerprint() != info.tokenizer,
        f"{where}: not the tokenizer that this model was trained with; restore the right file",
    )
    return tokenizer


def build_task(system: System, config: FinetuneConfig, tokenizer: Tokenizer, dropout: float) -> TaskHead:
    if system.build_head is not None:
        return cast("TaskHead", system.build_head(config.task, config.model, config.objective, tokenizer))
    family = family_of(config.task.kind)
    return family.head(config.task, config.model, config.transfer, dropout, config.pooling)


def load_model(path: str | Path, device: torch.device | str = "cpu") -> SavedModel:
    """Everything in a run directory that prediction and generation need."""
    run = RunDirectory(path)
    config = read_config(run)
    tokenizer = load_tokenizer(run, config.run)
    where, tensors = str(run.path / "model.safetensors"), {}
    if _reads_trunk(config):
        missing = not run.has("model.safetensors")
        refuse_if(
            missing, f"{run.path}: there are no weights before the first checkpoint; continue training with --resume"
        )
        tensors = run.load_tensors("model.safetensors")
        check_amount(config.model, tensors, where, "[model] in config.toml")
    model = _assembled(config, tokenizer, tensors, where, device)
    model.run = run
    if isinstance(config, FinetuneConfig) and config.views is not None:
        from foretext.runs.views import load_views

        model.views = load_views(run, config.task.kind)
    return model


def pretrained_model(path: str | Path, device: str = "cpu") -> SavedModel:
    """The model of a pre-trained run; UserError for a fine-tuned one."""
    model = load_model(path, device)
    refuse_if(model.task is not None, f"{path} is fine-tuned; give a pre-trained run")
    return model


def own_words(run: Path) -> Path | None:
    """The word2vec run beside a language model, if there is one."""
    words = RunDirectory(run / WORDS)
    return words.path if words.exists() and is_finished(words) else None


def _reads_trunk(config: ModelSections) -> bool:
    """False for a fine-tuned run if none of its views reads the trunk."""
    return not isinstance(config, FinetuneConfig) or config.views is None or config.views.reads_trunk


def _assembled(
    config: PretrainConfig | FinetuneConfig,
    tokenizer: Tokenizer,
    tensors: dict[str, Tensor],
    where: str,
    device: torch.device | str = "cpu",
) -> SavedModel:
    reads = _reads_trunk(config)
    model = _built(config, tokenizer, "cpu" if reads else "meta")
    if reads:
        put_weights(_whole(model), tensors, where)
        _whole(model).to(device).eval()
    return model


def _built(config: PretrainConfig | FinetuneConfig, tokenizer: Tokenizer, device: str) -> SavedModel:
    """The model with freshly drawn weights. On the device `meta` the trunk takes no memory and cannot be run; the head
    is real, as the family asks it what its scores mean."""
    system = system_named(config.run.system)
    words = config.task.softmax if isinstance(config, FinetuneConfig) else 0
    with torch.device(device):
        trunk = system.build_trunk(TrunkParts(config.model, tokenizer, words, config.run.direction))
    model = SavedModel(None, config, system, tokenizer, trunk)
    if isinstance(config, FinetuneConfig):
        model.task = build_task(system, config, tokenizer, 0.0)
    else:
        parts = ObjectiveParts(config.model, config.objective, tokenizer, config.run.direction)
        model.objective = system.build_objective(parts)
    return model


def _whole(model: SavedModel) -> nn.ModuleDict:
    """Both parts, under the names that the loop uses in its checkpoints."""
    head = model.task if model.task is not None else model.objective
    assert head is not None
    return nn.ModuleDict({"trunk": model.trunk, "task": head})


def model_tensors(model: SavedModel) -> dict[str, Tensor]:
    """The contents of model.safetensors."""
    return {name: tensor.detach().cpu() for name, tensor in _whole(model).state_dict().items()}


class ModelState(TypedDict):
    """A model as plain data."""

    config: str  # config.toml
    tokenizer: str  # tokenizer.json
    weights: dict[str, np.ndarray]
    views: NotRequired[Mapping[str, Any]]  # of `views_state`


def model_state(model: SavedModel) -> ModelState:
    """A model as plain data (texts and arrays): the contents of its run directory."""
    tensors = model_tensors(model) if _reads_trunk(model.config) else {}
    weights = {name: tensor.numpy() for name, tensor in tensors.items()}
    state: ModelState = {"config": model.config.text(), "tokenizer": model.tokenizer.to_json(), "weights": weights}
    if model.views is not None:
        from foretext.runs.views import views_state

        state["views"] = views_state(model.views)
    return state


def model_of_state(state: ModelState) -> SavedModel:
    """The model that `model_state` turned into data."""
    where = "the saved state"
    tensors = {name: torch.from_numpy(array.copy()) for name, array in state["weights"].items()}
    tokenizer = tokenizer_from_json(state["tokenizer"], where)
    model = _assembled(config_in(state["config"], where), tokenizer, tensors, where)
    if "views" in state:
        from foretext.runs.views import views_of

        model.views = views_of(**state["views"], kind=model.task_config.kind, where=where)
    return model


def check_amount(model: ModelConfig, tensors: dict[str, Tensor], where: str, described: str) -> None:
    """UserError if the configuration needs far more numbers than the file holds; checked before memory is allocated."""
    held, needed = sum(tensor.numel() for tensor in tensors.values()), model.parameters() + model.fixed
    refuse_if(needed > 2 * held, f"{where}: has {held:,} numbers, but {described} needs {needed:,}; restore both")


def put_weights(module: nn.Module, tensors: dict[str, Tensor], where: str) -> None:
    """Loads weights; UserError if they do not fit."""
    check_tensors(tensors, module.state_dict(), where)
    module.load_state_dict(tensors)


def encode(
    rows: Sequence[Any],
    model: SavedModel,
    reporter: Reporter | None = None,
    work: Work | None = None,
    labelled: bool = True,
) -> Encoded:
    """Rows as examples, with labels if `labelled`. What had to be cut or was unknown is counted and reported. Progress
    goes to `work`, or to the reporter; without either, notes become Python warnings."""
    reporter = reporter or Warns()
    tell = work or reporter.work
    encoding = Encoding(model.task_config, model.tokenizer, model.layout)
    return family_of(model.task_config.kind).encode(
        rows, encoding, labelled, reporter.note, lambda done, total: tell("encoding", done, total)
    )


@torch.no_grad()
def example_scores(model: SavedModel, examples: Sequence[Any], progress: Progress | None = None) -> list[np.ndarray]:
    """The scores of each example: logits of its classes or choices, its predicted score, logits of each word's tags, or
    logits of each token as start and end."""
    trunk, task, device = model.trunk.eval(), model.head.eval(), model.device
    by_index: dict[int, np.ndarray] = {}
    for indices in length_batches([example.tokens for example in examples], progress=progress):
        batch = task.make([examples[index] for index in indices])
        # Without labels no loss is computed; the language model's would cost more than the scores.
        batch = replace(batch, labels=None, targets_BT=None).to(device)
        scores = task(trunk, batch).scores.float().cpu().numpy()
        by_index |= {index: examples[index].asked(row) for index, row in zip(indices, scores)}
    return [by_index[index] for index in range(len(examples))]


@torch.no_grad()
def mean_losses(trunk: Trunk, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """Each named loss over all batches: total sum over total count. State is carried from batch to batch."""
    trunk.eval()
    objective.eval()
    totals: dict[str, tuple[float, float]] = {}
    state = None
    for batch in batches:
        outcome = objective(trunk, batch, state)
        state = outcome.state if objective.carries_state else None
        for name, loss in outcome.losses.items():
            total, count = totals.get(name, (0.0, 0.0))
            totals[name] = total + float(loss.total), count + loss.count
    return {name: total / count for name, (total, count) in totals.items() if count}
