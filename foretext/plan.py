"""The transfer plan: how pre-trained weights become a fine-tuned model.

GPT trains everything at one rate from the start. ULMFiT lowers the rate with depth and unfreezes one layer group per
epoch (more than one if there are fewer epochs than groups; see `WHOLE`). ELMo and CoVe freeze the trunk, and a task
model reads a mixture of its layers. All these are settings of one plan, so each way of transfer works on any trunk,
unless its system has its own heads (cross-view training). The learning-rate schedule belongs to training, not to the
plan. A trunk lists its layer groups from the bottom (embeddings) to the top; the task's head is one more group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from foretext.errors import check_range, refuse_if

NEVER = 1 << 62  # a step that is never reached
WHOLE = 0.25  # all layer groups learn for at least the last quarter of a run, however gradually they thaw


@dataclass(frozen=True)
class ReaderPlan:
    """A recurrent task model, and what it reads for each token: x = [vector; γ Σ s_l h_l; characters]. Layers that are
    read unmixed (`beside`) count as part of the vector."""

    mix: bool = True  # read γ Σ s_l h_l, a learned mixture of the trunk's layers, as wide as its top; false: no mixture
    # Layers of the trunk that are read unmixed: none; the lowest, which holds the tokens' own vectors; or both ends,
    # which is the lowest and the top side by side (CoVe: [GloVe; CoVe]).
    beside: Literal["none", "lowest", "ends"] = "none"
    twice: bool = False  # add a second mixture beside the recurrent layer's states
    norm: bool = False  # normalise each layer before mixing
    penalty: float = 0.0  # λ in λ‖w‖² with s = softmax(w); it pulls the mixture towards the mean of the layers
    vectors: int = 0  # width of a token vector learned with the task; 0: none
    given: int = 0  # width of the fixed word vectors from --vectors; 0: none
    characters: int = 0  # character filters per token, if the trunk reads characters; 0: none
    cells: int = 200  # per direction of each recurrent layer
    layers: int = 1  # recurrent layers
    crf: bool = True  # choose all tags together with a conditional random field; false: each tag by itself

    def check(self, used: bool) -> None:
        """UserError for impossible settings. `used`: whether the task has its own model."""
        check_range("transfer.reader", self, "at least 0", "penalty", "vectors", "given", "characters")
        check_range("transfer.reader", self, "at least 1", "cells", "layers")
        refuse_if(
            used and not (self.mix or self.vectors or self.given or self.characters or self.beside != "none"),
            "transfer.reader: the task model reads nothing; set mix=true or beside=ends, or vectors or characters "
            "above 0",
        )
        refuse_if(
            self.twice and not self.mix,
            "transfer.reader.twice: a second mixture needs a first one; set mix=true, or twice=false",
        )


VIEWS = ("ngrams", "lsa", "vectors", "states", "tuned")
STATES = "states"  # of the pre-trained trunk
TUNED = "tuned"  # the scores of the fine-tuned trunk; the other views need no fine-tuning
NO_VIEWS = "none"
NO_TEXT = "none"  # after --unlabelled: no text at all, not even that of pre-training
VIEWS_ALONE = "views"  # after --system: views without a trunk


@dataclass(frozen=True)
class ViewsConfig:
    """[views]: what the head reads of each row."""

    kinds: tuple[str, ...] = ()

    @property
    def tuned(self) -> bool:
        """Whether the trunk is fine-tuned too, so that the head can read its scores."""
        return TUNED in self.kinds

    @property
    def alternatives(self) -> tuple[ViewsConfig, ...]:
        """The sets of views that cross-validation chooses from. A run keeps one trunk, so its head reads the states of
        the pre-trained trunk, or the scores of the fine-tuned one, or no trunk at all."""
        if not {STATES, TUNED} <= set(self.kinds):
            return (self,)
        return tuple(
            config for config in (self.without(TUNED), self.without(STATES), self.without_trunk) if config.kinds
        )

    def without(self, *left_out: str) -> ViewsConfig:
        return ViewsConfig(tuple(kind for kind in self.kinds if kind not in left_out))

    @property
    def without_trunk(self) -> ViewsConfig:
        return self.without(STATES, TUNED)

    @property
    def reads_trunk(self) -> bool:
        """Whether a view reads the trunk; if not, the run keeps no trunk weights."""
        return not set(self.kinds) <= {"ngrams", "lsa", "vectors"}

    def check(self) -> None:
        """UserError for unknown views."""
        for name in self.kinds:
            refuse_if(name not in VIEWS, f"views.kinds: no view is called {name!r}; the views are {', '.join(VIEWS)}")


def views_named(option: str | None) -> tuple[str, ...] | None:
    """The views named by `--views`; () for `none`; None if the option was not given."""
    if option is None:
        return None
    names = tuple(name.strip() for name in option.split(",") if name.strip())
    if names == (NO_VIEWS,):
        return ()
    for name in names:
        refuse_if(name not in VIEWS, f"--views {name}: the views are {', '.join(VIEWS)}, or {NO_VIEWS}")
    refuse_if(not names, f"--views: name one or more of {', '.join(VIEWS)}, or {NO_VIEWS}")
    return names


@dataclass(frozen=True)
class ConcatPoolingConfig:
    """[pooling], for `TransferPlan.pooling` = "concat". The defaults are those of ULMFiT's released code."""

    piece: int = 70  # tokens read at a time
    learned: int = 1400  # gradients flow through the pieces that hold the last so many tokens of a document
    hidden: int = 50  # width between the two blocks of the head
    dropout: float = 0.4  # on the pooled states
    hidden_dropout: float = 0.1
    activation: float = 2.0  # weight of AR over the states that learn, as in pre-training
    temporal: float = 1.0  # weight of TAR

    def check(self) -> None:
        check_range("pooling", self, "at least 1", "piece", "learned", "hidden")
        check_range("pooling", self, "at least 0 and below 1", "dropout", "hidden_dropout")
        check_range("pooling", self, "at least 0", "activation", "temporal")


@dataclass(frozen=True)
class TransferPlan:
    """What is transferred, what is frozen and when it thaws, the rate of each layer group, and the auxiliary weight."""

    layers: int = -1  # blocks taken from the pre-trained model, from the bottom; −1: all
    rate_decay: float = 1.0  # each group learns at 1/rate_decay of the rate of the group above (ULMFiT: 2.6)
    # gradual: the head first, then one more group per epoch; never: only the head. Embeddings of new tokens always
    # learn with the head.
    thaw: Literal["all", "gradual", "never"] = "all"
    lm_weight: float = 0.5  # λ in L3 = L2 + λ·L1
    # What the head's W_y reads. extract: the state of one token; mean: that plus the mean of all states; pooler:
    # that state through the trunk's own layer (BERT); concat: the last, maximum and mean state, through ULMFiT's head
    # of two blocks, whose settings are in [pooling].
    pooling: Literal["extract", "mean", "pooler", "concat"] = "extract"
    # How W_y starts: random; fitted to the states before training; or random behind a tanh layer (RoBERTa).
    head: Literal["random", "probe", "hidden"] = "random"
    # What is put on the trunk: one linear layer, or a recurrent task model (`reader`): a biLSTM with a CRF for tags,
    # with pooling for a text, with attention between the two texts of a pair.
    model: Literal["linear", "recurrent"] = "linear"
    reader: ReaderPlan = field(default_factory=ReaderPlan)

    def check(self) -> None:
        """UserError for impossible settings."""
        refuse_if(not 0.0 <= self.lm_weight < math.inf, f"lm_weight must be 0 or more, not {self.lm_weight}")
        check_range("transfer", self, "above 0", "rate_decay")
        self.reader.check(self.model == "recurrent")
        refuse_if(
            self.pooling == "concat" and self.head != "random",
            "transfer.pooling=concat has its own head of two blocks, which starts at random, so "
            f"transfer.head={self.head} is impossible; set transfer.head=random",
        )

    def rate_factor(self, group: int, groups: int) -> float:
        """Factor on the learning rate of layer group `group` out of `groups` (the last group is the head)."""
        return float(self.rate_decay ** -(groups - 1 - group))

    def thaws_at(self, group: int, groups: int, steps: int, per_epoch: int) -> int:
        """The step (out of `steps`) from which `group` learns. Gradual thawing adds one group per epoch, from the top.
        If that would take too long, the thaws are spread evenly over the first three quarters of the run."""
        below = groups - 1 - group
        if self.thaw == "all" or below == 0:
            return 0
        if self.thaw == "never":
            return NEVER
        return min(below * per_epoch, int((1 - WHOLE) * steps * below / (groups - 1)))


@dataclass(frozen=True)
class Way:
    """A published way of transfer, by name: `finetune --plan`. The learning rate comes from the size."""

    transfer: TransferPlan
    schedule: Literal["cosine", "linear", "constant"]
    warmup: float
    final_rate: float


WAYS = {
    "gpt": Way(TransferPlan(lm_weight=0.5), "linear", warmup=0.002, final_rate=0.0),
    "ulmfit": Way(
        TransferPlan(rate_decay=2.6, thaw="gradual", lm_weight=0.0, pooling="concat"),
        "linear",  # the slanted triangle: rise for a tenth of the updates, then fall to 1/32
        warmup=0.1,
        final_rate=1 / 32,
    ),
}


PAPER = "paper"  # `finetune --plan paper`: all fine-tuning settings as in the size `paper` of the run's system


def way_named(name: str) -> Way:
    refuse_if(name not in WAYS, f"--plan {name}: unknown plan; choose one of {', '.join((PAPER, *WAYS))}")
    return WAYS[name]
