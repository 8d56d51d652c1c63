"""What a system is: a trunk, a tokenizer, an objective, a way of transfer, and named sizes. Plain data, no behaviour
of its own.

How transformers learn in runs of minutes, which no paper gives: the sizes `tiny` and `small`. Chosen on validation
rows of GPT; docs/results.md has the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from foretext.config import StartConfig, TrainingConfig
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.objectives.base import CausalConfig, Direction, Objective, ObjectiveConfig
from foretext.objectives.masked import MaskingConfig
from foretext.plan import ConcatPoolingConfig, TransferPlan
from foretext.systems.hub_names import HubNames
from foretext.tasks.family import TaskConfig
from foretext.tasks.layouts.base import Layout
from foretext.text.tokenizers.base import Tokenizer, TokenizerConfig


@dataclass(frozen=True)
class Size:
    """A named size: the model's shape and the defaults that go with it. `vocabulary` is filled in from the
    tokenizer."""

    model: ModelConfig
    tokenizer: TokenizerConfig
    pretraining: TrainingConfig
    finetuning: TrainingConfig
    epochs: int = 3
    least_updates: int = 0  # fine-tuning goes on for more epochs (at most 20) where the rows are too few for so many
    transfer: TransferPlan = field(default_factory=TransferPlan)
    objective: ObjectiveConfig = field(default_factory=CausalConfig)
    onward: TrainingConfig | None = None  # pre-training that starts from another run; None: as `pretraining`
    start: StartConfig = field(default_factory=StartConfig)
    # Where the plan says transfer.pooling=concat. The penalties are an LSTM's; others have none unless told.
    pooling: ConcatPoolingConfig = field(default_factory=lambda: ConcatPoolingConfig(activation=0.0, temporal=0.0))
    rates: Mapping[str, float] = field(default_factory=dict)  # of fine-tuning another's way, by its name in `WAYS`


@dataclass(frozen=True)
class TrunkParts:
    """What a trunk is made of. `tokenizer` is what its ids are of, for trunks that read more of a token than its id;
    None: only the weights are wanted."""

    model: Any  # the system's `config`
    tokenizer: Tokenizer | None = None
    words: int = 0  # of a softmax of its own, where `System.softmax_apart`; 0: none
    direction: Direction = "forward"  # in which that predicts


@dataclass(frozen=True)
class ObjectiveParts:
    """What an objective is made of: a head has the trunk's width, a mask is a token of the vocabulary."""

    model: Any  # the system's `config`
    settings: Any  # its `objective_config`
    tokenizer: Tokenizer
    direction: Direction = "forward"


class Learner(Protocol):
    """Learns a trunk's weights step by step, in its own way. Steps are numbered from 0; what one does depends on the
    weights so far, on (seed, number) and on the rates alone. It is made of the system's `config` (model), its
    `objective_config` (settings), a tokenizer, all of the text (texts), the words of the text in a step (step_words), a
    seed, a number of threads, and a folder in which it may make files while it learns, and which it removes."""

    @property
    def model(self) -> Any:
        """The trunk's shape; whole after `begin`."""

    @property
    def steps(self) -> int:
        """After which there is nothing left to do, however much of the budget is."""

    @property
    def steps_per_epoch(self) -> int:
        """Of those, how many read the text once."""

    @property
    def tokens(self) -> int:
        """Of the text."""

    @property
    def memory(self) -> int:
        """Bytes that learning needs, about."""

    @property
    def disk(self) -> int:
        """Bytes that checkpoints take at their most, about: the old one stands until the new one is whole."""

    def describe(self) -> list[tuple[str, str]]:
        """Lines for the plan."""

    def begin(self, minutes: float | None, progress: Callable[[str, int, int], None]) -> list[str]:
        """What is done before the first step, unless a checkpoint has it; returns remarks. `minutes`: the budget."""

    def speed(self) -> float:
        """Tokens a second, measured, with the weights as they were at the start afterwards."""

    def step(self, number: int, rates: tuple[float, float]) -> int:
        """Learns, at rates that go from one to the other; returns the tokens read."""

    def weights(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The trunk's tensors by name, and what else the next step needs."""

    def restore(self, trunk: Trunk, carried: np.ndarray) -> None:
        """Goes on from a checkpoint."""

    def close(self) -> None:
        """Removes the files that it made."""


@dataclass(frozen=True)
class System:
    name: str
    paper: str
    base: str
    objective: str
    direction: str
    tokenizer: str
    transfer: str
    specials: tuple[str, ...]  # tokens that fine-tuning adds
    sizes: dict[str, Size]
    config: type[ModelConfig]  # the dataclass of [model]
    build_trunk: Callable[[TrunkParts], Trunk]
    build_objective: Callable[[ObjectiveParts], Objective]
    build_layout: Callable[[dict[str, int], int, Direction], Layout]
    hub: HubNames | None = None  # how others write it; None: it cannot be exchanged yet
    written_as: tuple[HubNames, ...] = ()  # further tables, for export alone: the first that has a run's choices
    causal: bool = True  # whether it predicts each token from those before it, so that it can write and score text
    softmax_apart: bool = False  # whether it is causal in each direction, but its softmax is not the trunk's (ELMo)
    goes_on: bool = False  # whether it writes and scores text though it is not causal, in one direction or order
    fills: bool = False  # whether it can be asked what stands in a blank
    finetuned: bool = True  # whether its paper fine-tunes; false: `--plan paper` takes GPT's settings
    objective_config: type[ObjectiveConfig] = CausalConfig  # the dataclass of [objective]
    # What it is pre-trained on; pairs: parallel text, and word vectors; rows: nothing, it learns its task from rows and
    # unlabelled text at once.
    reads: Literal["text", "pairs", "rows"] = "text"
    tasks: tuple[str, ...] = ()  # kinds of task that it can be taught; none named: all
    # Of a task, with a `config`, an `objective_config` and a tokenizer: its head; None: the task's own.
    build_head: Callable[[TaskConfig, Any, Any, Tokenizer], Any] | None = None
    vocabulary: tuple[str, ...] = ()  # specials that its vocabulary has, of whatever kind that is
    learn: Callable[..., Learner] | None = None  # how weights are learned, see `Learner`; None: by the loop's gradients
    # The size for a machine that makes so many products a second (`runs/machine.py`) and for so many minutes; None: the
    # size is `tiny` unless another is named.
    size_for: Callable[[float, float], str] | None = None
    piece_rows: tuple[str, ...] = ()  # how weights with a row for each piece begin; none: it takes no other vocabulary

    @property
    def writes(self) -> bool:
        """Whether it can go on with a text, so that it writes, scores completions and learns in context."""
        return self.causal or self.goes_on


# -- sizes for runs of minutes -----------------------------------------------------------------------------------------


_PRETRAINING = TrainingConfig(
    optimizer="muon", rate=5e-3, warmup=0.03, weight_decay=0.01, beta2=0.95, batch_size=16, dropout=0.0
)
_FINETUNING = TrainingConfig(rate=5e-4, schedule="linear", warmup=0.1, batch_size=16, dropout=0.1)
_LEAST_UPDATES = 100  # six epochs of a hundred rows would be 42
_TRANSFER = TransferPlan(lm_weight=0.5, pooling="mean", head="probe")
# A mask says nothing of its own, so a masked model first has to find out where its neighbours are, and minutes go by
# before it knows more than how frequent words are. It finds them sooner in short sequences, and with more to tell.
_PART, _EARLY, _EARLY_LENGTH, _GROWN = 0.4, 0.15, 0.125, 0.3


def short_size(model: ModelConfig, pieces: int) -> Size:
    """A size for minutes on a CPU, with a byte-level vocabulary of so many pieces."""
    return Size(
        model,
        TokenizerConfig("byte-bpe", pieces),
        _PRETRAINING,
        _FINETUNING,
        epochs=6,
        least_updates=_LEAST_UPDATES,
        transfer=_TRANSFER,
        rates={"ulmfit": 2e-3},  # not tuned
    )


def short_masked_size(model: ModelConfig, tokenizer: TokenizerConfig, objective: MaskingConfig) -> Size:
    """The same for a masked system: more masks than it has by itself, and short sequences first."""
    more = replace(objective, part=_PART, early=_EARLY, early_length=_EARLY_LENGTH, grown=_GROWN)
    return short_two_sided_size(model, tokenizer, more)


def short_two_sided_size(model: ModelConfig, tokenizer: TokenizerConfig, objective: ObjectiveConfig) -> Size:
    """The same without an auxiliary loss in fine-tuning, for a system that sees both sides."""
    return Size(
        model,
        tokenizer,
        _PRETRAINING,
        _FINETUNING,
        epochs=6,
        least_updates=_LEAST_UPDATES,
        transfer=TransferPlan(lm_weight=0.0, pooling="mean", head="probe"),
        objective=objective,
    )
