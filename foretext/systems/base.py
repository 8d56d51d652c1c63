"""What a system is: a trunk, a tokenizer, an objective, a way of transfer, and named sizes. Plain data without
behaviour.

Also the sizes `tiny` and `small`: how transformers learn in runs of minutes, which no paper covers. They were chosen on
validation rows of GPT; docs/log.md has the rounds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from foretext.config import StartConfig, TrainingConfig
from foretext.nn.trunk import ModelConfig, Trunk
from foretext.objectives.base import Direction, Objective, ObjectiveConfig
from foretext.objectives.causal import CausalConfig
from foretext.objectives.masked import MaskingConfig
from foretext.plan import ConcatPoolingConfig, TransferPlan
from foretext.tasks.family import TaskConfig
from foretext.tasks.layouts.base import Layout
from foretext.text.tokenizers.base import Tokenizer, TokenizerConfig


@dataclass(frozen=True)
class Size:
    """A named size: the model's shape and its default settings. `vocabulary` is filled in from the tokenizer."""

    model: ModelConfig
    tokenizer: TokenizerConfig
    pretraining: TrainingConfig
    finetuning: TrainingConfig
    epochs: int = 3
    least_updates: int = 0  # fine-tuning takes more epochs (at most 20) if the rows are too few for this many updates
    transfer: TransferPlan = field(default_factory=TransferPlan)
    objective: ObjectiveConfig = field(default_factory=CausalConfig)
    onward: TrainingConfig | None = None  # for pre-training that continues from another run; None: as `pretraining`
    start: StartConfig = field(default_factory=StartConfig)
    # If the plan says transfer.pooling=concat. The penalties are for an LSTM; other systems have none unless set.
    pooling: ConcatPoolingConfig = field(default_factory=lambda: ConcatPoolingConfig(activation=0.0, temporal=0.0))
    # learning rate for fine-tuning in another system's way, by its name in `WAYS`
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TrunkParts:
    """What a trunk is built from. `tokenizer`: for trunks that read more of a token than its id; None: only the weights
    are needed."""

    model: Any  # the system's `config`
    tokenizer: Tokenizer | None = None
    words: int = 0  # vocabulary of its own softmax, if `System.softmax_apart`; 0: none
    direction: Direction = "forward"  # the direction in which that softmax predicts


@dataclass(frozen=True)
class ObjectiveParts:
    """What an objective is built from: a head has the trunk's width, a mask is a token of the vocabulary."""

    model: Any  # the system's `config`
    settings: Any  # its `objective_config`
    tokenizer: Tokenizer
    direction: Direction = "forward"


class Learner(Protocol):
    """Learns a trunk's weights step by step, in its own way. Steps are numbered from 0. The result of a step depends
    only on the current weights, on (seed, number) and on the rates. It is built from the system's `config` (model), its
    `objective_config` (settings), a tokenizer, all of the text (texts), the words per step (step_words), a seed, a
    number of threads, and a folder for temporary files, which it removes."""

    @property
    def model(self) -> Any:
        """The trunk's shape; complete after `begin`."""

    @property
    def steps(self) -> int:
        """The number of steps after which learning is finished, whatever the budget."""

    @property
    def steps_per_epoch(self) -> int:
        """How many of these make one pass over the text."""

    @property
    def tokens(self) -> int:
        """The tokens of the text."""

    @property
    def memory(self) -> int:
        """Approximate bytes of memory needed."""

    @property
    def disk(self) -> int:
        """Approximate maximum size of checkpoints in bytes: the old one is kept until the new one is complete."""

    def describe(self) -> list[tuple[str, str]]:
        """Lines for the plan."""

    def begin(self, minutes: float | None, progress: Callable[[str, int, int], None]) -> list[str]:
        """The work before the first step, unless a checkpoint has it; returns remarks. `minutes`: the budget."""

    def speed(self) -> float:
        """Tokens per second, measured; afterwards the weights are as at the start."""

    def step(self, number: int, rates: tuple[float, float]) -> int:
        """Learns, with a rate that falls from the first to the second value; returns the tokens read."""

    def weights(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The trunk's tensors by name, and the other state that the next step needs."""

    def restore(self, trunk: Trunk, carried: np.ndarray) -> None:
        """Continues from a checkpoint."""

    def close(self) -> None:
        """Removes its temporary files."""


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
    causal: bool = True  # whether it predicts each token from those before it, and so can write and score text
    softmax_apart: bool = False  # whether it is causal in each direction, but its softmax is not the trunk's (ELMo)
    goes_on: bool = False  # whether it writes and scores text in one direction or order, although it is not causal
    fills: bool = False  # whether it can fill in blanks
    finetuned: bool = True  # whether its paper fine-tunes; if not, `--plan paper` uses GPT's settings
    objective_config: type[ObjectiveConfig] = CausalConfig  # the dataclass of [objective]
    # What it is pre-trained on. pairs: parallel text and word vectors; rows: not pre-trained, it learns its task from
    # rows and unlabelled text together.
    learns_from: Literal["text", "pairs", "rows"] = "text"
    tasks: tuple[str, ...] = ()  # kinds of task that it can learn; empty: all
    # Builds the head of a task from a `config`, an `objective_config` and a tokenizer; None: the task's own head.
    build_head: Callable[[TaskConfig, Any, Any, Tokenizer], Any] | None = None
    vocabulary: tuple[str, ...] = ()  # special tokens of its vocabulary, whatever the kind
    # how weights are learned, see `Learner`; None: by gradients in the loop
    learn: Callable[..., Learner] | None = None
    # whether it learns vectors of whole words, which views read and which stand beside a language model
    learns_words: bool = False
    # (FLOP/s, minutes) → the size to train on this machine; None: the default size is `tiny`
    size_for: Callable[[float, float], str] | None = None
    # prefixes of weights with one row per piece; empty: it cannot change its vocabulary
    piece_rows: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether it can continue a text, and so writes, scores completions and learns in context."""
        return self.causal or self.goes_on


# -- sizes for runs of minutes -----------------------------------------------------------------------------------------


_PRETRAINING = TrainingConfig(
    optimizer="muon", rate=5e-3, warmup=0.03, weight_decay=0.01, beta2=0.95, batch_size=16, dropout=0.0
)
_FINETUNING = TrainingConfig(rate=5e-4, schedule="linear", warmup=0.1, batch_size=16, dropout=0.1)
_LEAST_UPDATES = 100  # six epochs of a hundred rows would be only 42
_TRANSFER = TransferPlan(lm_weight=0.5, pooling="mean", head="probe")
# A mask carries no information, so a masked model must first find out where its neighbours are. Minutes pass before it
# knows more than word frequencies. Short sequences with more masks make this faster.
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
    """The same for a masked system: with more masks than usual, and short sequences first."""
    more = replace(objective, part=_PART, early=_EARLY, early_length=_EARLY_LENGTH, grown=_GROWN)
    return short_two_sided_size(model, tokenizer, more)


def short_two_sided_size(model: ModelConfig, tokenizer: TokenizerConfig, objective: ObjectiveConfig) -> Size:
    """The same without an auxiliary loss in fine-tuning, for a bidirectional system."""
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
