"""The protocol that pre-training objectives and labelled tasks share.

An objective says which examples it learns from and in which order, makes them into a `Batch` (all corruption and input
transformation happens there, drawn from generators made of seed, epoch and index), owns its head, calls the trunk, and
returns named *(sum, count)* losses. The loop knows nothing else.

What can be asked of a trained one (scores of tokens, blanks, going on with a text, translations) it says itself, by
methods whose defaults say that it cannot. So scoring, writing and fine-tuning know no objective by name.

Short sequences first: how long examples are in each part of the budget.

A model that is asked about places first has to find out where its neighbours are, which it does sooner, and cheaper, in
short sequences. BERT's paper has one such stage; here lengths may also double from it on until they are whole.

The causal language model: maximise Σ log P(u_i | u_{i-k} … u_{i-1}) (GPT's L1).

An example is a window of consecutive token ids; each id but the first is a target. Right to left is the same
objective over the reversed window, so a model of one direction differs from the other in nothing but the order in
which it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, LossSum, Outcome, padded
from foretext.errors import check_range
from foretext.nn.trunk import OutputLayer, Trunk
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Order, SampleOrder, StreamOrder, Windows
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.word_list import TextKnowledge, WordList

Direction = Literal["forward", "backward"]
# How a text is scored: each token from those before it; likewise, by that one of the orders that it was trained on;
# from those before it and from those after it, apart; each masked alone; or it predicts no tokens of a text.
Scored = Literal["in turn", "in one order", "both ways", "by blanks", "not at all"]


class ObjectiveConfig(Protocol):
    """[objective] of a run: a frozen dataclass beside the objective that it is of."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def check(self) -> None:
        """UserError if nothing can be learned so."""


def shaping(config: ObjectiveConfig) -> tuple[str, ...]:
    """The keys that the weights of an objective's head follow from: none, unless its configuration names some."""
    return getattr(config, "shapes", ())


@dataclass(frozen=True)
class Draw:
    """Where the random numbers of a batch come from: one generator for each example, whatever batch it is in."""

    seed: int
    epoch: int
    indices: tuple[int, ...]

    def generator(self, number: int) -> np.random.Generator:
        """For the example at place `number` of the batch."""
        return np.random.default_rng([self.seed, self.epoch, self.indices[number]])


class Examples(Protocol):
    """What an objective is trained on: `example` is a pure function."""

    def __len__(self) -> int: ...

    def example(self, epoch: int, index: int) -> Any: ...


class Stock(Examples, Protocol):
    """All that a task learns from, before it is put in order."""

    @property
    def rows(self) -> Iterable[Any]:
        """All examples."""

    def epoch_tokens(self, order: SampleOrder) -> list[tuple[int, int]]:
        """The tokens of an epoch in steps of each kind, beside a step of that kind."""

    def beside(self, others: Mapping[str, str]) -> list[tuple[str, str]]:
        """For a plan: what is learned from beside the rows. `others`: what the configuration says of other tasks."""


class ListedExamples:
    """`Stock` of a list."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def example(self, epoch: int, index: int) -> Any:
        return self.rows[index]

    def epoch_tokens(self, order: SampleOrder) -> list[tuple[int, int]]:
        """The tokens of an epoch, beside a step that is like all of its steps."""
        return [(0, sum(row.tokens for row in self.rows))]

    def beside(self, others: Mapping[str, str]) -> list[tuple[str, str]]:
        return []


class Objective(nn.Module):
    """Base of all objectives and tasks; see the module docstring.

    One that `carries_state` gets back, as `state`, what it returned in `Outcome.state` for the micro-batch of the same
    number in the step before (None at the start of an epoch), detached and kept in checkpoints: a tensor, or tuples and
    dictionaries of them. Its examples come in streams: row i of a step goes on where row i of the step before ended.
    """

    weights: dict[str, float]
    carries_state: bool = False
    direction: Direction = "forward"
    norms_rows: bool = False  # whether rows that are read together change each other's loss: batch norm
    perplexity: tuple[str, ...] = ()  # the losses, in nats a token, whose mean's exponential is a perplexity
    average: float = 0.0  # decay of the averaged weights that are evaluated and kept; 0: the last ones are

    def examples(self, shards: TokenShards, context: int, seed: int) -> Examples:
        """Examples of unlabelled text: windows, unless an objective needs something else."""
        return Windows(shards, context, seed)

    def lengths(self, context: int) -> list[tuple[float, int]]:
        """How long examples are: (part of the budget that is spent when it ends, tokens), one after the other."""
        return [(1.0, context)]

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        """Which examples a step sees: of those that `examples` gave."""
        if self.carries_state:
            return StreamOrder(len(examples), batch_size, backward=self.direction == "backward")
        return Order(len(examples), batch_size, seed)

    def usual_length(self, examples: Examples, context: int) -> int:
        """About how many tokens one of the examples has that `examples` gave for this context."""
        return context

    def make(self, examples: Sequence[Any], draw: Draw | None = None) -> Batch:
        """`draw` None: nothing is to be drawn, as where only scores are wanted."""
        raise NotImplementedError

    def begin_step(self, step: int, progress: float) -> None:
        """What all micro-batches of a step share, as how a step is split may not change it: draws from torch's
        generator, and weights that depend on the number of the step or on the spent part of the budget. The loop calls
        it before each step."""

    def counts(self, batch: Batch) -> dict[str, float]:
        """What each loss of this batch will be divided by, known before the forward pass: the number of targets, of an
        objective with one loss."""
        assert batch.targets_BT is not None
        return {next(iter(self.weights)): float((batch.targets_BT != IGNORE).sum())}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        raise NotImplementedError

    # -- what can be asked of one that was pre-trained

    scored: ClassVar[Scored] = "in turn"
    lacks: ClassVar[str] = "its softmax"  # what weights from elsewhere may come without, and is then drawn

    def ids(self, tokenizer: Tokenizer) -> int:
        """How many different ids its token shards may have."""
        return tokenizer.size

    def output_layer(self, trunk: Trunk) -> OutputLayer:
        """What tells tokens from the trunk's states: [N, D] → [N, V]."""
        return trunk.output_layer()

    def logits(self, trunk: Trunk, ids_1T: Tensor, direction: Direction = "forward") -> Tensor:
        """At each place the scores of the token that is told there, [T, V]: the next, or the one that stands there."""
        return self.output_layer(trunk).logits(self.told_from(trunk, Batch(ids_1T))[0])

    def told_from(self, trunk: Trunk, batch: Batch) -> Tensor:
        """The states that tokens are told from: [B, T, D]."""
        return trunk(batch).top

    def reader(self, trunk: Trunk, context: int, direction: Direction) -> Trunk | None:
        """The trunk as one that goes on with a text, where it is not that itself; None: it is, if its system is
        causal."""
        return None

    def text_vectors(self, trunk: Trunk, texts: Sequence[np.ndarray]) -> np.ndarray | None:
        """A vector of each text, given as ids, [texts, width]; None: the mean of its states."""
        return None

    def word_rows(self, trunk: Trunk) -> tuple[np.ndarray, np.ndarray] | None:
        """The ids of words that have a vector of their own, whatever stands beside them, the most frequent first, and
        these vectors [words, width]; None: a word's depends on its text."""
        return None

    def blank(self) -> int:
        """The token that stands for a blank."""
        raise NotImplementedError(f"{type(self).__name__} fills no blanks")

    def blank_states(
        self, trunk: Trunk, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], segments: Sequence[int] = ()
    ) -> Tensor:
        """What the tokens at these places of each row, which are blanks, are told from: [N, D], row after row.
        `segments`: of the tokens of a single row, where they are not all of the first."""
        raise NotImplementedError(f"{type(self).__name__} fills no blanks")

    def translator(self) -> Translator | None:
        """Itself, if it was trained to translate."""
        return None

    def softmax_words(self) -> int:
        """How many words its own softmax tells apart, where it is not the trunk's (`System.softmax_apart`)."""
        raise NotImplementedError(f"{type(self).__name__} has no softmax of its own")

    def give_softmax(self, trunk: Trunk) -> None:
        """Copies that softmax into a trunk that was built with a place for it."""
        raise NotImplementedError(f"{type(self).__name__} has no softmax of its own")

    def knowledge(self, trunk: Trunk, tokenizer: Tokenizer) -> TextKnowledge | None:
        """What it knows of whole words, for views of rows; None: it has no vectors of words."""
        return None

    # -- what is asked of a task

    pools: ClassVar[bool] = False  # whether one state speaks for each sequence that the layout makes of a row

    def check(self, trunk: Trunk) -> None:
        """UserError if it would read of the trunk what that does not have."""

    def stock(self, tasks: Sequence[Sequence[Any]], text: Sequence[tuple[np.ndarray, np.ndarray]] = ()) -> Stock:
        """What is learned from: the examples of the task, and those of others and of unlabelled text (ids, and which of
        them begin a word) for a task that learns from these too."""
        return ListedExamples(tasks[0])

    def fit_head(
        self,
        trunk: Trunk,
        examples: Sequence[Any],
        device: torch.device,
        seed: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fits the head to the states as they are before anything learns (`transfer.head` "probe")."""
        raise NotImplementedError(f"{type(self).__name__} has no head to fit")

    def meet(self, examples: Sequence[Any]) -> None:
        """What will be learned from, once before training, for a task that counts something in it. What it
        counts is a buffer, which is saved with the weights: a run that goes on has it already."""

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        """Vectors of the vocabulary's words that are read beside the trunk's states, for a task that has a place for
        them (`transfer.reader.given`)."""
        raise NotImplementedError(f"{type(self).__name__} reads no vectors beside the trunk")

    def learned_tokens(self, example: Any) -> int:
        """How many of an example's tokens the backward pass goes through, all of which need memory."""
        return int(example.tokens)


class Translator(Objective):
    """An objective that writes translations: a model for `generate/many.py`."""

    lower: bool  # whether it writes lower case only

    @property
    def words(self) -> WordList:
        """What translations are made of."""
        raise NotImplementedError

    def pair(self, source: np.ndarray, target: np.ndarray) -> Any:
        """An example, of the ids of a source, and of its translation with the end."""
        raise NotImplementedError

    def pairs_in(self, source: str | Path, target: str | Path, errors: str) -> tuple[list[Any], list[str]]:
        """All pairs of two files, as examples, and the translations as they stand there."""
        raise NotImplementedError

    def start(self, trunk: Trunk, batch: Batch) -> Any:
        """The sources read, and the decoder before its first word."""
        raise NotImplementedError

    def decode_step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits [B, V] of the word after these, and the state with them read."""
        raise NotImplementedError

    def attention(self, trunk: Trunk, batch: Batch) -> Tensor:
        """[B, T, S]: where the decoder looks for each target word, those before it told; zeros at padding."""
        raise NotImplementedError


# -- short sequences first ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GrowingConfig:
    """The keys of [objective] that say so, of each objective whose sequences may grow."""

    early: float = 0.0  # part of the budget in which sequences are shorter than later
    early_length: float = 0.25  # of the later length, that they have in it
    grown: float = 0.0  # part of the budget after which they have the full length; from `early` on, lengths double

    def check(self) -> None:
        check_range("objective", self, "at least 0 and below 1", "early", "grown")
        check_range("objective", self, "above 0 and at most 1", "early_length")


def growing_lengths(config: GrowingConfig, whole: int, least: int) -> list[tuple[float, int]]:
    """(part of the budget that is spent when it ends, tokens), one after the other; no sequence is shorter than
    `least`."""
    shortest = max(least, round(config.early_length * whole))
    if not config.early or shortest >= whole:
        return [(1.0, whole)]
    doubled = (shortest << times for times in count(1))
    between = list(takewhile(whole.__gt__, doubled)) if config.grown > config.early else []
    ends = [
        config.early + (config.grown - config.early) * number / len(between) for number in range(1, len(between) + 1)
    ]
    return [(config.early, shortest), *zip(ends, between), (1.0, whole)]


# -- the causal language model -----------------------------------------------------------------------------------------


LEAST_WINDOW = 8  # tokens


@dataclass(frozen=True)
class CausalConfig(GrowingConfig):
    """[objective] of a causal system."""


class CausalObjective(Objective):
    """L1 over windows of text, left to right or right to left."""

    perplexity = ("lm",)

    def __init__(self, direction: Direction = "forward", growing: GrowingConfig | None = None) -> None:
        super().__init__()
        self.direction = direction
        self.growing = growing or CausalConfig()
        self.weights = {"lm": 1.0}

    def lengths(self, context: int) -> list[tuple[float, int]]:
        return growing_lengths(self.growing, context, LEAST_WINDOW)

    def make(self, examples: Sequence[np.ndarray], draw: Draw | None = None) -> Batch:
        """Windows (shorter ones are padded) into inputs and shifted targets."""
        ids, real = padded([window[:: 1 if self.direction == "forward" else -1] for window in examples])
        targets = ids[:, 1:].masked_fill(~real[:, 1:], IGNORE)
        return Batch(ids[:, :-1].contiguous(), None if bool(real.all()) else real[:, 1:], targets_BT=targets)

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        hidden = trunk(batch, state)
        return Outcome({"lm": self.lm_loss(trunk, batch, hidden.top)}, hidden.state)

    def lm_loss(self, trunk: Trunk, batch: Batch, top_BTD: Tensor) -> LossSum:
        """Of the targets, each told from its state."""
        states_ND, targets_N = asked(batch, top_BTD)
        return LossSum(trunk.output_layer().loss(states_ND, targets_N), float(len(targets_N)))


def asked(batch: Batch, top_BTD: Tensor) -> tuple[Tensor, Tensor]:
    """The states of the places that are asked for a token, and these tokens."""
    assert batch.targets_BT is not None
    states_ND, targets_N = top_BTD.flatten(0, 1), batch.targets_BT.reshape(-1)
    places = (targets_N != IGNORE).nonzero().squeeze(1)
    return (states_ND[places], targets_N[places]) if len(places) < len(targets_N) else (states_ND, targets_N)
