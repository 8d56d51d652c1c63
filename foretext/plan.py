"""The transfer plan: how pre-trained weights become a fine-tuned model.

GPT trains everything at one rate at once. ULMFiT lowers the rate by depth and thaws one group of layers each epoch; in
a run with fewer epochs than groups, more than one (see `WHOLE`). ELMo and CoVe freeze the trunk under a task model of
its own, which reads a mixture of the layers. All are settings of one plan, so each way of transfer works on any trunk,
unless its system has heads of its own (cross-view training). How the rate moves over time is a setting of training. A
trunk names its layer groups from the bottom (embeddings) to the top; the task's head is one group more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from foretext.errors import check_range, refuse_if

NEVER = 1 << 62  # a step that does not come
WHOLE = 0.25  # for at least the last quarter of a run every layer group learns, however gradually they thaw


@dataclass(frozen=True)
class ReaderPlan:
    """A recurrent model of the task's own, and what it reads of each token: x = [vector; γ Σ s_l h_l; characters].
    Layers that are read as they are count as parts of the vector."""

    mix: bool = True  # γ Σ s_l h_l of the trunk's layers (as wide as the top), s and γ learned; false: no mixture
    # Layers of the trunk that are read as they are: none; the lowest, which is the tokens' own vectors; both ends, that
    # and the top side by side (CoVe: [GloVe; CoVe]).
    beside: Literal["none", "lowest", "ends"] = "none"
    twice: bool = False  # another mixture beside the recurrent layer's states
    norm: bool = False  # each layer normalised before it is mixed
    penalty: float = 0.0  # λ of λ‖w‖², s = softmax(w), which draws the mixture towards the mean of the layers
    vectors: int = 0  # numbers of a vector of each token, learned with the task; 0: none
    given: int = 0  # numbers of a vector of each word out of --vectors, which does not learn; 0: none
    characters: int = 0  # filters over a token's characters, where the trunk reads these; 0: none
    cells: int = 200  # of each direction of each recurrent layer
    layers: int = 1  # recurrent ones
    crf: bool = True  # tags are chosen together, by a conditional random field; false: each by itself

    def check(self, used: bool) -> None:
        """UserError for what no model can be. `used`: whether the task has a model of its own."""
        check_range("transfer.reader", self, "at least 0", "penalty", "vectors", "given", "characters")
        check_range("transfer.reader", self, "at least 1", "cells", "layers")
        refuse_if(
            used and not (self.mix or self.vectors or self.given or self.characters or self.beside != "none"),
            "transfer.reader: the task's model reads nothing; take mix=true or beside=ends, or vectors or "
            "characters above 0",
        )
        refuse_if(
            self.twice and not self.mix,
            "transfer.reader.twice: another mixture needs a first one; take mix=true, or twice=false",
        )


VIEWS = ("ngrams", "lsa", "vectors", "states", "tuned")
STATES = "states"  # of the trunk as it was pre-trained
TUNED = "tuned"  # what the fine-tuned trunk says of a row; the other views need nothing fine-tuned
NO_VIEWS = "none"
NO_TEXT = "none"  # after --unlabelled: not even that of pre-training
VIEWS_ALONE = "views"  # after --system: no trunk, only what views learn


@dataclass(frozen=True)
class ViewsConfig:
    """[views]: what one head reads of each row."""

    kinds: tuple[str, ...] = ()

    @property
    def tuned(self) -> bool:
        """Whether the trunk is fine-tuned too, and the head reads its scores."""
        return TUNED in self.kinds

    @property
    def alternatives(self) -> tuple[ViewsConfig, ...]:
        """What cross-validation chooses from. A run keeps one trunk, so its head reads the states of the pre-trained
        trunk, or the scores of the fine-tuned one."""
        if not {STATES, TUNED} <= set(self.kinds):
            return (self,)
        return tuple(ViewsConfig(tuple(kind for kind in self.kinds if kind != other)) for other in (TUNED, STATES))

    @property
    def reads_trunk(self) -> bool:
        """Whether a view reads the trunk; without one the run keeps no weights of it."""
        return not set(self.kinds) <= {"ngrams", "lsa", "vectors"}

    def check(self) -> None:
        """UserError for views that there are not."""
        for name in self.kinds:
            refuse_if(name not in VIEWS, f"views.kinds: there is no view {name!r}; there are {', '.join(VIEWS)}")


def views_named(said: str | None) -> tuple[str, ...] | None:
    """What `--views` says: some by name, `none`, or, where nothing is said, None."""
    if said is None:
        return None
    names = tuple(name.strip() for name in said.split(",") if name.strip())
    if names == (NO_VIEWS,):
        return ()
    for name in names:
        refuse_if(name not in VIEWS, f"--views {name}: there are {', '.join(VIEWS)}, and {NO_VIEWS}")
    refuse_if(not names, f"--views: name some of {', '.join(VIEWS)}, or {NO_VIEWS}")
    return names


@dataclass(frozen=True)
class ConcatPoolingConfig:
    """[pooling], where `TransferPlan.pooling` is "concat". The defaults are those of ULMFiT's released code."""

    piece: int = 70  # tokens that are read at a time
    learned: int = 1400  # tokens, from the end of a document, through whose pieces gradients flow
    hidden: int = 50  # width between the two blocks
    dropout: float = 0.4  # of what is pooled
    hidden_dropout: float = 0.1
    activation: float = 2.0  # weight of AR, as in pre-training, over the states that learn
    temporal: float = 1.0  # weight of TAR

    def check(self) -> None:
        check_range("pooling", self, "at least 1", "piece", "learned", "hidden")
        check_range("pooling", self, "at least 0 and below 1", "dropout", "hidden_dropout")
        check_range("pooling", self, "at least 0", "activation", "temporal")


@dataclass(frozen=True)
class TransferPlan:
    """What is carried over, what is frozen and when it thaws, the rate of each layer group, and the auxiliary
    weight."""

    layers: int = -1  # blocks taken from the pre-trained model, counted from the bottom; −1 takes all
    rate_decay: float = 1.0  # each group learns at 1/rate_decay of the rate of the group above (ULMFiT: 2.6)
    # gradual: the head, then a group more each epoch; never: the head. Rows of new tokens always learn with the head.
    thaw: Literal["all", "gradual", "never"] = "all"
    lm_weight: float = 0.5  # λ in L3 = L2 + λ·L1
    # What W_y reads: the state that speaks; that and the mean of all; that through the trunk's own layer for it (BERT);
    # the last, the largest and the mean one through a head of two blocks (ULMFiT), whose settings are in [pooling].
    pooling: Literal["extract", "mean", "pooler", "concat"] = "extract"
    # W_y at the start: random; fitted to the states before anything learns; random behind a tanh layer (RoBERTa).
    head: Literal["random", "probe", "hidden"] = "random"
    # What is put on the trunk: one new layer; or a recurrent model of the task's own (`reader`), a biLSTM with a CRF
    # for tags, one with pooling for a text, one with attention between the two of a pair.
    model: Literal["linear", "recurrent"] = "linear"
    reader: ReaderPlan = field(default_factory=ReaderPlan)

    def check(self) -> None:
        """UserError for what no fine-tuning can follow."""
        refuse_if(not 0.0 <= self.lm_weight < math.inf, f"lm_weight must be 0 or more, not {self.lm_weight}")
        check_range("transfer", self, "above 0", "rate_decay")
        self.reader.check(self.model == "recurrent")
        refuse_if(
            self.pooling == "concat" and self.head != "random",
            f"transfer.pooling=concat has a head of two blocks, which starts at random: transfer.head={self.head} "
            "cannot be; give transfer.head=random",
        )

    def rate_factor(self, group: int, groups: int) -> float:
        """Factor on the learning rate of layer group `group` of `groups` (the head is the last one)."""
        return float(self.rate_decay ** -(groups - 1 - group))

    def thaws_at(self, group: int, groups: int, steps: int, per_epoch: int) -> int:
        """The step, of `steps`, from which `group` learns. Gradually: one group more each epoch from the top; where
        that would take too long, they are spread evenly over the first three quarters of the run."""
        below = groups - 1 - group
        if self.thaw == "all" or below == 0:
            return 0
        if self.thaw == "never":
            return NEVER
        return min(below * per_epoch, int((1 - WHOLE) * steps * below / (groups - 1)))


@dataclass(frozen=True)
class Way:
    """A published way of transfer, by its name: `finetune --plan`. How large the rate is, a size says."""

    transfer: TransferPlan
    schedule: Literal["cosine", "linear", "constant"]
    warmup: float
    final_rate: float


WAYS = {
    "gpt": Way(TransferPlan(lm_weight=0.5), "linear", warmup=0.002, final_rate=0.0),
    "ulmfit": Way(
        TransferPlan(rate_decay=2.6, thaw="gradual", lm_weight=0.0, pooling="concat"),
        "linear",  # the slanted triangle: up for a tenth of the updates, down to 1/32
        warmup=0.1,
        final_rate=1 / 32,
    ),
}


PAPER = "paper"  # `finetune --plan paper`: all settings of fine-tuning as the size `paper` of the run's system has them


def way_named(name: str) -> Way:
    refuse_if(name not in WAYS, f"--plan {name}: there is no such plan; choose one of {', '.join((PAPER, *WAYS))}")
    return WAYS[name]
