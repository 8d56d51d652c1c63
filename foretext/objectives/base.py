"""The protocol that pre-training objectives and labelled tasks share.

An objective defines its examples and their order, and makes them into a `Batch`; all corruption and input
transformation happens there, drawn from generators made of seed, epoch and index. It owns its head, calls the trunk,
and returns named *(sum, count)* losses. The loop knows nothing else.

A trained objective also defines what it can be asked (scores of tokens, blanks, continuing a text, translations), by
methods whose defaults say that it cannot. So scoring, writing and fine-tuning know no objective by name.

Short sequences first: `growing_lengths` gives the length of examples in each part of the budget. A model with position
queries must first find out where its neighbours are, which is faster and cheaper with short sequences. BERT's paper has
one such stage; here lengths may also double from it on until they are full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, Outcome
from foretext.errors import check_range
from foretext.nn.trunk import OutputLayer, Trunk
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Order, SampleOrder, StreamOrder, Windows
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.word_list import TextKnowledge, WordList

Direction = Literal["forward", "backward"]
# How a text is scored. in turn: each token from those before it; in one order: the same, with one of the orders that it
# was trained on; both ways: separately from those before it and from those after it; by blanks: each masked alone; not
# at all: it predicts no tokens of a text.
Scored = Literal["in turn", "in one order", "both ways", "by blanks", "not at all"]


class ObjectiveConfig(Protocol):
    """[objective] of a run: a frozen dataclass beside its objective."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def check(self) -> None:
        """UserError for settings that cannot be trained with."""


def shaping(config: ObjectiveConfig) -> tuple[str, ...]:
    """The keys that decide the shape of the head's weights: none, unless the configuration names some."""
    return getattr(config, "shapes", ())


@dataclass(frozen=True)
class Draw:
    """The random numbers of a batch: one generator per example, whatever batch it is in."""

    seed: int
    epoch: int
    indices: tuple[int, ...]

    def generator(self, number: int) -> np.random.Generator:
        """For the example at position `number` of the batch."""
        return np.random.default_rng([self.seed, self.epoch, self.indices[number]])


class Examples(Protocol):
    """The training examples of an objective; `example` is a pure function."""

    def __len__(self) -> int: ...

    def example(self, epoch: int, index: int) -> Any: ...


class Stock(Examples, Protocol):
    """All that a task learns from, before it is ordered."""

    @property
    def rows(self) -> Iterable[Any]:
        """All examples."""

    def epoch_tokens(self, order: SampleOrder) -> list[tuple[int, int]]:
        """The tokens of an epoch in steps of each kind, and an example step of that kind."""

    def beside(self, others: Mapping[str, str]) -> list[tuple[str, str]]:
        """For the plan: what is learned from besides the rows. `others`: what the configuration says about other
        tasks."""


class ListedExamples:
    """A `Stock` from a list."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def example(self, epoch: int, index: int) -> Any:
        return self.rows[index]

    def epoch_tokens(self, order: SampleOrder) -> list[tuple[int, int]]:
        """The tokens of an epoch, and an example step, since all its steps are alike."""
        return [(0, sum(row.tokens for row in self.rows))]

    def beside(self, others: Mapping[str, str]) -> list[tuple[str, str]]:
        return []


class Objective(nn.Module):
    """Base of all objectives and tasks; see the module docstring.

    If it `carries_state`, it gets back as `state` what it returned in `Outcome.state` for the same micro-batch number
    in the previous step (None at the start of an epoch). The state is detached and saved in checkpoints: a tensor, or
    tuples and dictionaries of them. The examples come in streams: row i of a step continues row i of the previous step.
    """

    weights: dict[str, float]
    carries_state: bool = False
    direction: Direction = "forward"
    norms_rows: bool = False  # whether the rows of a micro-batch affect each other's loss (batch norm)
    perplexity: tuple[str, ...] = ()  # the losses, in nats per token, whose mean's exponential is a perplexity
    average: float = 0.0  # decay of the averaged weights that are evaluated and saved; 0: the last weights are

    def examples(self, shards: TokenShards, context: int, seed: int) -> Examples:
        """Examples from unlabelled text: windows, unless an objective needs something else."""
        return Windows(shards, context, seed)

    def lengths(self, context: int) -> list[tuple[float, int]]:
        """The lengths of examples, in order: (share of the budget at which it ends, tokens)."""
        return [(1.0, context)]

    def order(self, examples: Examples, batch_size: int, seed: int) -> SampleOrder:
        """Which of the `examples` each step sees."""
        if self.carries_state:
            return StreamOrder(len(examples), batch_size, backward=self.direction == "backward")
        return Order(len(examples), batch_size, seed)

    def usual_length(self, examples: Examples, context: int) -> int:
        """About how many tokens one of the `examples` for this context has."""
        return context

    def make(self, examples: Sequence[Any], draw: Draw | None = None) -> Batch:
        """`draw` None: nothing is random, as for scoring."""
        raise NotImplementedError

    def begin_step(self, step: int, progress: float) -> None:
        """What all micro-batches of a step share, so that splitting a step changes nothing: draws from torch's
        generator, and weights that depend on the step number or the spent share of the budget. The loop calls it before
        each step."""

    def counts(self, batch: Batch) -> dict[str, float]:
        """What each loss of this batch will be divided by, known before the forward pass: for an objective with one
        loss, the number of targets."""
        assert batch.targets_BT is not None
        return {next(iter(self.weights)): float((batch.targets_BT != IGNORE).sum())}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        raise NotImplementedError

    # -- what can be asked of one that was pre-trained

    scored: ClassVar[Scored] = "in turn"
    lacks: ClassVar[str] = "its softmax"  # the part that imported weights may lack, and that is then drawn

    def ids(self, tokenizer: Tokenizer) -> int:
        """How many different ids its token shards may contain."""
        return tokenizer.size

    def output_layer(self, trunk: Trunk) -> OutputLayer:
        """Predicts tokens from the trunk's states: [N, D] → [N, V]."""
        return trunk.output_layer()

    def logits(self, trunk: Trunk, ids_1T: Tensor, direction: Direction = "forward") -> Tensor:
        """At each position the logits of the token predicted there, [T, V]: the next one, or the one at that
        position."""
        return self.output_layer(trunk).logits(self.told_from(trunk, Batch(ids_1T))[0])

    def told_from(self, trunk: Trunk, batch: Batch) -> Tensor:
        """The states that tokens are predicted from: [B, T, D]."""
        return trunk(batch).top

    def reader(self, trunk: Trunk, context: int, direction: Direction) -> Trunk | None:
        """A trunk that continues a text, if it is not the objective's own trunk; None: it is that trunk, if the system
        is causal."""
        return None

    def text_vectors(self, trunk: Trunk, texts: Sequence[np.ndarray]) -> np.ndarray | None:
        """A vector for each text, given as ids, [texts, width]; None: the mean of its states."""
        return None

    def word_rows(self, trunk: Trunk) -> tuple[np.ndarray, np.ndarray] | None:
        """The ids of words with a vector that does not depend on context, most frequent first, and these vectors
        [words, width]; None: vectors depend on the text."""
        return None

    def blank(self) -> int:
        """The token that marks a blank."""
        raise NotImplementedError(f"{type(self).__name__} fills no blanks")

    def blank_states(
        self, trunk: Trunk, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], segments: Sequence[int] = ()
    ) -> Tensor:
        """The states that predict the blanks at these positions of each row: [N, D], row after row. `segments`: of the
        tokens of a single row, if there is more than one."""
        raise NotImplementedError(f"{type(self).__name__} fills no blanks")

    def translator(self) -> Translator | None:
        """The objective itself, if it was trained to translate."""
        return None

    def softmax_words(self) -> int:
        """The vocabulary of its own softmax, if it does not use the trunk's (`System.softmax_apart`)."""
        raise NotImplementedError(f"{type(self).__name__} has no softmax of its own")

    def give_softmax(self, trunk: Trunk) -> None:
        """Copies that softmax into a trunk that was built with a place for it."""
        raise NotImplementedError(f"{type(self).__name__} has no softmax of its own")

    def knowledge(self, trunk: Trunk, tokenizer: Tokenizer) -> TextKnowledge | None:
        """What it knows of whole words, for views of rows; None: it has no word vectors."""
        return None

    # -- what is asked of a task

    pools: ClassVar[bool] = False  # whether one state represents each sequence that the layout makes of a row

    def check(self, trunk: Trunk) -> None:
        """UserError if it would read something that the trunk does not have."""

    def stock(self, tasks: Sequence[Sequence[Any]], text: Sequence[tuple[np.ndarray, np.ndarray]] = ()) -> Stock:
        """What is learned from: the examples of the task and, for a task that uses them, those of other tasks and of
        unlabelled text (ids, and which of them begin a word)."""
        return ListedExamples(tasks[0])

    def fit_head(
        self,
        trunk: Trunk,
        examples: Sequence[Any],
        device: torch.device,
        seed: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fits the head to the states before training (`transfer.head` "probe")."""
        raise NotImplementedError(f"{type(self).__name__} has no head to fit")

    def meet(self, examples: Sequence[Any]) -> None:
        """Called once before training with all examples, for a task that counts something in them. The counts are
        buffers, saved with the weights, so a resumed run has them already."""

    def put_vectors(self, matrix_VE: np.ndarray) -> None:
        """Word vectors to read beside the trunk's states, for a task that has a place for them
        (`transfer.reader.given`)."""
        raise NotImplementedError(f"{type(self).__name__} reads no vectors beside the trunk")

    def learned_tokens(self, example: Any) -> int:
        """How many of an example's tokens the backward pass goes through; all of these need memory."""
        return int(example.tokens)


class Translator(Objective):
    """An objective that writes translations: a model for `generate/many.py`."""

    lower: bool  # whether it writes lower case only

    @property
    def words(self) -> WordList:
        """The words that translations are made of."""
        raise NotImplementedError

    def pair(self, source: np.ndarray, target: np.ndarray) -> Any:
        """An example, from the ids of a source, and of its translation including the end."""
        raise NotImplementedError

    def pairs_in(self, source: str | Path, target: str | Path, errors: str) -> tuple[list[Any], list[str]]:
        """All pairs of two files as examples, and the translations as in the file."""
        raise NotImplementedError

    def start(self, trunk: Trunk, batch: Batch) -> Any:
        """Reads the sources; the decoder's state before its first word."""
        raise NotImplementedError

    def decode_step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits [B, V] of the word after these, and the next state."""
        raise NotImplementedError

    def attention(self, trunk: Trunk, batch: Batch) -> Tensor:
        """[B, T, S]: where the decoder attends for each target word, given those before it; zeros at padding."""
        raise NotImplementedError


def at_targets(batch: Batch, top_BTD: Tensor) -> tuple[Tensor, Tensor]:
    """The states at positions with targets, and these targets."""
    assert batch.targets_BT is not None
    states_ND, targets_N = top_BTD.flatten(0, 1), batch.targets_BT.reshape(-1)
    places = (targets_N != IGNORE).nonzero().squeeze(1)
    return (states_ND[places], targets_N[places]) if len(places) < len(targets_N) else (states_ND, targets_N)


# -- short sequences first ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GrowingConfig:
    """Keys of [objective] that every objective with growing sequences has."""

    early: float = 0.0  # share of the budget in which sequences are shorter
    early_length: float = 0.25  # their length then, as a share of the full length
    grown: float = 0.0  # share of the budget after which they have full length; from `early` on, lengths double

    def check(self) -> None:
        check_range("objective", self, "at least 0 and below 1", "early", "grown")
        check_range("objective", self, "above 0 and at most 1", "early_length")


def growing_lengths(config: GrowingConfig, whole: int, least: int) -> list[tuple[float, int]]:
    """(share of the budget at which it ends, tokens), in order; no sequence is shorter than `least`."""
    shortest = max(least, round(config.early_length * whole))
    if not config.early or shortest >= whole:
        return [(1.0, whole)]
    doubled = (shortest << times for times in count(1))
    between = list(takewhile(whole.__gt__, doubled)) if config.grown > config.early else []
    ends = [
        config.early + (config.grown - config.early) * number / len(between) for number in range(1, len(between) + 1)
    ]
    return [(config.early, shortest), *zip(ends, between), (1.0, whole)]
