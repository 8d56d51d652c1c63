"""The bidirectional language model (ELMo, Peters et al. 2018): each word is predicted from those before it, and from
those after it.

    Σ_k log p(t_k | t_1 … t_{k−1}; Θ_x, →Θ, Θ_s) + log p(t_k | t_{k+1} … t_N; Θ_x, ←Θ, Θ_s)

Both directions are trained in one step with equal weight. They share the character encoder Θ_x, which belongs to the
trunk, and the softmax Θ_s over words, which is the head here. Words are the targets; their characters are the input.

Words and shards. A token of a shard is a word: its id is the target, its piece in the vocabulary gives the characters,
and the token after each document is the border `</S>`. So a shard holds everything if the vocabulary has every word of
the text, including rare ones that are not worth a row of the softmax. With `targets`, only the first so many ids can be
predicted; other words count as the unknown word when they are targets, but are read by their own characters. (A word
outside the vocabulary has lost its characters.) With a vocabulary of subword pieces, pieces are read and predicted in
the same way.

Streams. The state is carried from step to step, and it must have read what precedes in reading order; for the backward
direction that is the text to the right. So the two directions read different parts of the text in a step. Window i of
N, from the left, is paired with window N − 1 − i: while a row's forward direction moves through its stretch of the text
from the left, its backward direction moves through another stretch from the right. In an epoch each reads everything. A
window has one word more than is read: the forward direction reads all but the last word and predicts the next ones, the
backward direction reads all but the first and predicts the previous ones.

The released code gives both directions the same sentences, the backward one each sentence from its end, so that its
state goes from the beginning of one sentence to the end of the next. With windows that lie end to end, that would let
it see the word that it must predict.

A large vocabulary is sampled in training (`nn/recurrent/bilm.py`), with new candidates for each direction; scores
always use the full softmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foretext.batch import IGNORE, Batch, Hidden, LossSum, Outcome, padded
from foretext.errors import UserError, check_range, refuse_if
from foretext.nn.fused import dropout
from foretext.nn.recurrent.bilm import (
    MOST_SHARE,
    BilmTrunk,
    BilmTrunkConfig,
    Candidates,
    SpelledBatch,
    StackState,
    WordSoftmax,
    draw_candidates,
)
from foretext.nn.recurrent.lstm_layer import reading_order
from foretext.nn.trunk import OutputLayer, Trunk
from foretext.objectives.base import Direction, Draw, Objective
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Windows
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.characters import (
    BEGIN,
    BEGIN_SENTENCE,
    END,
    END_SENTENCE,
    NO_WORD,
    border_characters,
    word_characters,
)

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class BilmObjectiveConfig:
    shapes: ClassVar[tuple[str, ...]] = ("targets",)

    samples: int = 8192  # candidates per target in training, if the vocabulary has at least twice as many; 0: all words
    targets: int = 0  # number of words that can be predicted, from the first id on; 0: all

    def check(self) -> None:
        check_range("objective", self, "at least 0", "samples", "targets")
        refuse_if(
            self.targets == 1,
            "objective.targets=1: the only word would always be right; give more, or 0 for the whole vocabulary",
        )


class BothWays:
    """Windows in pairs: one for the forward direction, and for the backward one the window equally far from the end."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def example(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.windows.example(epoch, index), self.windows.example(epoch, len(self) - 1 - index)


class BilmObjective(Objective):
    carries_state = True
    perplexity = (FORWARD, BACKWARD)
    scored = "both ways"

    def __init__(self, config: BilmTrunkConfig, settings: BilmObjectiveConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.settings, self.tokenizer, self.length, self.p = settings, tokenizer, config.words.length, config.dropout
        self.words = _predicted(settings.targets, tokenizer)
        self.head = WordSoftmax(self.words, config.words.width)
        self.weights = {FORWARD: 0.5, BACKWARD: 0.5}
        self.drawn: dict[str, Candidates] = {}  # the candidates of the step, per direction

    def begin_step(self, step: int, progress: float) -> None:
        """Draws the candidates, the same for all micro-batches."""
        if self.samples:
            device = self.head.table_VD.device
            self.drawn = {name: draw_candidates(self.samples, self.words, device) for name in self.weights}

    @property
    def samples(self) -> int:
        """The number of candidates in training; 0: all words."""
        return self.settings.samples if MOST_SHARE * self.settings.samples <= self.words else 0

    def examples(self, shards: TokenShards, context: int, seed: int) -> BothWays:
        refuse_if(
            self.words == len(self.tokenizer.specials),
            "the vocabulary has no word to learn, only special tokens; train a new run on the text",
        )
        return BothWays(Windows(shards, context, seed))

    def make(self, examples: Sequence[tuple[np.ndarray, np.ndarray]], draw: Draw | None = None) -> Batch:
        """Pairs of windows; shorter ones are padded. Nothing is drawn."""
        rows = len(examples)
        windows, real = padded([pair[0] for pair in examples] + [pair[1] for pair in examples], fill=-1)
        distinct_U, places = np.unique(windows.numpy(), return_inverse=True)
        if distinct_U[0] != -1:  # row 0 stands for no word
            distinct_U, places = np.concatenate([[-1], distinct_U]), places + 1
        ids = torch.from_numpy(places.reshape(windows.shape))
        targets = windows.masked_fill(~real, IGNORE)
        if self.tokenizer.unknown is not None:
            targets = torch.where(targets < self.words, targets, self.tokenizer.unknown)
        front, back = slice(None, rows), slice(rows, None)
        none = np.full((1, self.length), NO_WORD, dtype=np.int64)
        return SpelledBatch(
            ids[front, :-1].contiguous(),
            real[front, 1:],  # the last real word of a row is not read
            targets_BT=targets[front, 1:].contiguous(),
            characters_UC=torch.from_numpy(
                np.concatenate([none, spelling(self.tokenizer, distinct_U[1:], self.length)])
            ),
            back_ids_BT=ids[back, 1:].contiguous(),
            back_mask_BT=real[back, 1:],
            back_targets_BT=targets[back, :-1].masked_fill(~real[back, 1:], IGNORE),
        )

    def counts(self, batch: Batch) -> dict[str, float]:
        return {name: float((targets != IGNORE).sum()) for name, targets in _targets(batch).items()}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        hidden = trunk(batch, trunk.new_state(len(batch.ids_BT)) if state is None else state)
        width = self.head.table_VD.shape[1]
        assert self.drawn or not (self.training and self.samples), "candidates are drawn before a step"
        losses = {}
        for states_BTD, (name, targets_BT) in zip(hidden.top.split(width, dim=-1), _targets(batch).items()):
            wanted_BT = targets_BT != IGNORE
            states_ND = dropout(states_BTD[wanted_BT], self.p, self.training)
            total = self.head.loss(states_ND, targets_BT[wanted_BT], self.drawn.get(name) if self.training else None)
            losses[name] = LossSum(total, float(len(states_ND)))
        return Outcome(losses, hidden.state)

    def logits(self, trunk: Trunk, ids_1T: Tensor, direction: Direction = "forward") -> Tensor:
        """Logits of the next word in this direction, over the words that can be predicted."""
        reader = self.reader(trunk, 0, direction)
        return reader.output_layer().logits(reader(Batch(ids_1T), reader.new_state(1)).top[0])

    def reader(self, trunk: Trunk, context: int, direction: Direction) -> Trunk:
        assert isinstance(trunk, BilmTrunk)
        return OneWay(trunk, self, direction == "backward").eval()

    def softmax_words(self) -> int:
        return self.words

    def give_softmax(self, trunk: Trunk) -> None:
        assert isinstance(trunk, BilmTrunk) and trunk.softmax is not None
        trunk.softmax.load_state_dict(self.head.state_dict())


def spelling(tokenizer: Tokenizer, ids: np.ndarray, length: int) -> np.ndarray:
    """The characters of these ids, [ids, length]: those of their pieces, and a sentence's borders for the special
    tokens that mean them. The token after each document also ends a sentence."""
    table = word_characters([tokenizer.piece(int(id)) for id in ids], length, borders=False)
    borders = {tokenizer.end: END_SENTENCE, tokenizer.specials.get(END): END_SENTENCE}
    for id, character in (borders | {tokenizer.specials.get(BEGIN): BEGIN_SENTENCE}).items():
        if id is not None:
            table[ids == id] = border_characters(character, length)
    return table


def _targets(batch: Batch) -> dict[str, Tensor]:
    assert isinstance(batch, SpelledBatch) and batch.targets_BT is not None and batch.back_targets_BT is not None
    return {FORWARD: batch.targets_BT, BACKWARD: batch.back_targets_BT}


def _predicted(targets: int, tokenizer: Tokenizer) -> int:
    """The number of words that can be predicted."""
    if targets == 0 or targets >= tokenizer.size:
        return tokenizer.size
    for name, id in (("unknown word", tokenizer.unknown), ("end of a document", tokenizer.end)):
        if id is None or id >= targets:
            raise UserError(
                f"objective.targets={targets}: the vocabulary's {name} is not among its first {targets} ids, so other "
                "words cannot be left out; use another vocabulary, or objective.targets=0"
            )
    return targets


# -- going on with a text ----------------------------------------------------------------------------------------------


class OneWay(Trunk):
    """One direction of ELMo's biLM as a trunk that continues a text, for the decoder and for completions.

    A biLM is two separate language models of the same words (Peters et al. 2018): one predicts each word from those
    before it, the other from those after it. So either can write: the forward one after a prompt, the backward one
    before it. A word without a row in the softmax is scored as the unknown word and is never written. Input is read
    from left to right in either direction: a text to be read from its end is passed in reverse.
    """

    def __init__(self, trunk: BilmTrunk, objective: BilmObjective, backward: bool) -> None:
        super().__init__()
        self.trunk, self.softmax = trunk, objective.head
        self.stack = trunk.bilm.backwards if backward else trunk.bilm.forwards
        self.unknown = objective.tokenizer.unknown

    def forward(self, batch: Batch, state: StackState) -> Hidden:
        characters_UC, ids_BT = self.trunk.spelled(batch)
        words_UD = self.trunk.bilm.words(characters_UC)
        real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        order = reading_order(real_BT, backward=False)
        layers, after = self.stack(F.embedding(order.gather(ids_BT), words_UD), order, state)
        return Hidden(order.scatter(layers[-1]), (), after)

    def output_ids(self, targets_N: Tensor) -> Tensor:
        words = len(self.softmax.bias_V)
        return targets_N if self.unknown is None else torch.where(targets_N < words, targets_N, self.unknown)

    def output_layer(self) -> OutputLayer:
        return self.softmax.over_all()

    def new_state(self, rows: int) -> StackState:
        return self.stack.new_state(rows)

    def room(self, state: StackState) -> None:
        """Any number of tokens can follow."""

    def pick(self, state: StackState, rows: Tensor) -> StackState:
        return tuple((h[rows], c[rows]) for h, c in state)
