"""The supervised objective of all sentence tasks: L3 = L2 + λ·L1.

L2 is the cross-entropy of the label (regression: the squared error). It is computed from the state at the *extract*
token, through dropout and one new linear layer W_y. Similarity and scored pairs add the states of both orders before
that layer. A choice gives each alternative one score and takes the softmax over them. L1 is the language-model loss on
the same sequences: the mean over each sequence's targets, then over sequences, as in GPT's released code; every
alternative of a choice counts.

With `transfer.head` "probe", `fit_head` fits W_y to the pre-trained states before training. With a hundred labels, a
random W_y spends its first epochs finding a direction and distorts the trunk meanwhile. Fitting it first ("linear
probing, then fine-tuning", Kumar et al. 2022) costs one forward pass: a ridge-penalised logistic regression
(regression: least squares) on standardised states, with the task's own loss, so it works for every kind of task. The
minimum is unique, so the seed has no effect, unless there are so many rows that a sample is drawn.

A state is standardised by its deviation in training, where dropout adds p/(1−p) times its mean square to its variance.
The first token's state of a masked model is nearly the same for all texts. If it were standardised by its small
variance between texts, W_y would get weights that turn dropout into noise far above the signal.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, LossSum, Outcome, length_batches, padded, padded_segments
from foretext.nn.fused import dropout
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw, Objective
from foretext.tasks.files.rows import UNORDERED
from foretext.tasks.layouts.base import TokenSequence

# extract: the state at the extract token; mean: that plus the mean of all states; pooler: that state through
# the trunk's own layer.
Pooling = Literal["extract", "mean", "pooler"]
NO_SCORE = -1e9  # for places without a prediction: a softmax gives them no probability
NO_CHOICE = NO_SCORE  # score of an alternative that an example does not have
INVERSE_PENALTY = 0.01  # C: the penalty |W|²/2C on the standardised weights is added to the sum of the losses
MOST_EXAMPLES = 2000
LEAST_DEVIATION = 1e-3
ITERATIONS = 100


@dataclass(frozen=True)
class Example:
    """A labelled row, transformed: its sequences and its label (class index, 0-based choice, or standardised score)."""

    sequences: tuple[TokenSequence, ...]
    label: float | int | None

    @property
    def tokens(self) -> int:
        return sum(len(sequence.ids) for sequence in self.sequences)

    def asked(self, scores: np.ndarray) -> np.ndarray:
        return scores


class LabelledTask(Objective):
    """What all tasks over labelled rows share: the label's loss, and the language model's if it counts."""

    def __init__(self, lm_weight: float = 0.0) -> None:
        super().__init__()
        self.weights = {"label": 1.0, "lm": lm_weight} if lm_weight else {"label": 1.0}

    def counts(self, batch: Batch) -> dict[str, float]:
        labels = super().counts(batch) if batch.labels is None else {"label": float(len(batch.labels))}
        return labels | {"lm": float(len(batch.ids_BT))}


class SupervisedTask(LabelledTask):
    """Any of the kinds in `rows.KINDS`, on any trunk."""

    pools = True

    def __init__(
        self,
        kind: str,
        classes: int,
        width: int,
        lm_weight: float,
        p: float,
        init_std: float = 0.02,
        pooling: Pooling = "extract",
        hidden: bool = False,
    ) -> None:
        """`hidden`: whether a tanh layer stands before W_y (RoBERTa's head)."""
        super().__init__(lm_weight)
        self.pooling = pooling
        self.kind = kind
        self.p = p
        outputs = 1 if kind in ("choice", "regression") else classes
        self.head = new_layer(width, outputs, init_std)
        self.dense = new_layer(width, width, init_std) if hidden else None

    def make(self, examples: Sequence[Example], draw: Draw | None = None) -> Batch:
        return row_batch(examples, self.kind)

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        with_lm = batch.labels is not None and "lm" in self.weights and torch.is_grad_enabled()
        hidden = trunk(batch if with_lm else self.narrowed(batch))
        states = dropout(self.pool(trunk, hidden.top, batch), self.p, self.training)
        if self.dense is not None:
            states = dropout(torch.tanh(self.dense(states)), self.p, self.training)
        scores = self.arrange(self.head(states), batch)
        losses: dict[str, LossSum] = {}
        if batch.labels is not None:
            losses["label"] = LossSum(self.label_loss(scores, batch.labels), float(len(batch.labels)))
            if with_lm:  # not needed for scoring
                assert batch.targets_BT is not None
                losses["lm"] = sequence_lm_loss(trunk, hidden.top, batch.targets_BT)
        return Outcome(losses, None, scores)

    def fit_head(
        self,
        trunk: Trunk,
        examples: Sequence[Example],
        device: torch.device,
        seed: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Sets W_y from the states of (at most 2,000 of) the examples; both modules are left in training mode."""
        if len(examples) > MOST_EXAMPLES:
            examples = random.Random(seed).sample(list(examples), MOST_EXAMPLES)
        lengths = [example.tokens for example in examples]
        groups = [[examples[index] for index in indices] for indices in length_batches(lengths)]
        states = pooled_states(trunk, self, groups, device, progress)
        whole = self.make([example for group in groups for example in group]).to(device)
        mean = states.mean(0)
        dropped = self.p / (1.0 - self.p) * states.square().mean(0)
        deviation = (states.var(0, correction=0) + dropped).sqrt().clamp(min=LEAST_DEVIATION)
        standard = (states - mean) / deviation
        weight = torch.zeros_like(self.head.weight, requires_grad=True)
        bias = torch.zeros_like(self.head.bias, requires_grad=True)
        optimizer = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            assert whole.labels is not None
            fitted = self.label_loss(self.arrange(standard @ weight.t() + bias, whole), whole.labels)
            total = (fitted + weight.square().sum() / (2 * INVERSE_PENALTY)) / len(examples)
            total.backward()
            return total

        optimizer.step(loss)
        with torch.no_grad():
            self.head.weight.copy_(weight / deviation)
            self.head.bias.copy_(bias - (weight / deviation) @ mean)

    def narrowed(self, batch: Batch) -> Batch:
        """The batch for the trunk, narrowed to the states that `pool` reads."""
        assert batch.extract_B is not None
        return batch if self.pooling == "mean" else batch.reading_one(batch.extract_B)

    def pool(self, trunk: Trunk, top_BTD: Tensor, batch: Batch) -> Tensor:
        """The state that W_y reads: one per example, or per alternative of a choice."""
        assert batch.extract_B is not None and batch.group_B is not None
        rows = torch.arange(len(batch.extract_B), device=top_BTD.device)
        states_BD = top_BTD[rows, batch.extract_B]
        if self.pooling == "pooler":
            states_BD = trunk.summary(states_BD)
        if self.pooling == "mean":
            assert batch.mask_BT is not None
            states_BD = states_BD + (top_BTD * batch.mask_BT[..., None]).sum(1) / batch.mask_BT.sum(1, keepdim=True)
        return both_orders(states_BD, batch).sum(1) if self.kind in UNORDERED else states_BD

    def arrange(self, outputs: Tensor, batch: Batch) -> Tensor:
        """W_y's outputs for pooled states as [examples, classes], [examples, choices] or [examples]."""
        assert batch.group_B is not None
        return arranged(outputs, batch.group_B, self.kind)

    def label_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """L2, summed over the examples."""
        return loss_of_labels(scores, labels, self.kind)


# -- what every model of rows shares -----------------------------------------------------------------------------------


def row_batch(examples: Sequence[Example], kind: str) -> Batch:
    sequences = [sequence for example in examples for sequence in example.sequences]
    ids, real = padded([sequence.ids for sequence in sequences])
    group = [number for number, example in enumerate(examples) for _ in example.sequences]
    return Batch(
        ids,
        real,
        segments_BT=padded_segments([sequence.segments for sequence in sequences], ids.shape[1]),
        targets_BT=next_tokens(ids, real),
        extract_B=torch.tensor([sequence.extract for sequence in sequences]),
        group_B=torch.tensor(group),
        labels=_labels([example.label for example in examples], kind),
    )


def both_orders(rows_BE: Tensor, batch: Batch) -> Tensor:
    """[examples, orders, E] from [sequences, E]; a layout that sees both sides reads a pair in one order only."""
    assert batch.group_B is not None
    return rows_BE.unflatten(0, (int(batch.group_B[-1]) + 1, -1))


def _labels(labels: Sequence[float | int | None], kind: str) -> Tensor | None:
    if any(label is None for label in labels):
        return None
    return torch.tensor(labels, dtype=torch.float32 if kind == "regression" else torch.int64)


def arranged(outputs: Tensor, group_B: Tensor, kind: str) -> Tensor:
    """The outputs for sequences as scores [examples, classes], [examples, choices] or [examples]. `group_B`: the
    example of each sequence, in order."""
    if kind == "regression":
        return outputs.squeeze(1)
    if kind != "choice":
        return outputs
    place_B = torch.arange(len(group_B), device=outputs.device) - torch.searchsorted(group_B, group_B)
    table = outputs.new_full((int(group_B[-1]) + 1, int(place_B.max()) + 1), NO_CHOICE)
    return table.index_put((group_B, place_B), outputs.squeeze(1))


def keep_factor(task: nn.Module, name: str) -> None:
    """A factor on the scores, saved with the weights: 1 until validation rows choose another."""
    task.register_buffer(name, torch.ones(()))


def loss_of_labels(scores: Tensor, labels: Tensor, kind: str) -> Tensor:
    """The loss of the labels, summed over the examples."""
    if kind == "regression":
        return F.mse_loss(scores, labels, reduction="sum")
    return F.cross_entropy(scores, labels, reduction="sum")


# -- what every head on a trunk shares ---------------------------------------------------------------------------------


def new_layer(width: int, outputs: int, deviation: float) -> nn.Linear:
    layer = nn.Linear(width, outputs)
    nn.init.normal_(layer.weight, std=deviation)
    nn.init.zeros_(layer.bias)
    return layer


def real_places(batch: Batch) -> Tensor:
    """[B, T], true at real tokens."""
    if batch.mask_BT is not None:
        return batch.mask_BT
    return torch.ones_like(batch.ids_BT, dtype=torch.bool)


def spread(values_NC: Tensor, places_BT: Tensor) -> Tensor:
    """Scatters values to the true places as [B, T, C]; `NO_SCORE` elsewhere."""
    table = values_NC.new_full((*places_BT.shape, values_NC.shape[1]), NO_SCORE)
    return table.index_put(places_BT.nonzero(as_tuple=True), values_NC)


def next_tokens(ids_BT: Tensor, real_BT: Tensor) -> Tensor:
    """The language model's target at each place: the token to its right, or IGNORE if there is none."""
    targets_BT = torch.full_like(ids_BT, IGNORE)
    targets_BT[:, :-1] = ids_BT[:, 1:].masked_fill(~(real_BT[:, :-1] & real_BT[:, 1:]), IGNORE)
    return targets_BT


def sequence_lm_loss(trunk: Trunk, top_BTD: Tensor, targets_BT: Tensor) -> LossSum:
    """L1: the mean over each sequence's targets, summed over the sequences, as in GPT's released code. Dropout before
    the output layer is applied as in pre-training. A trunk that reads both ways (ELMo) predicts in one direction."""
    count = float(len(top_BTD))
    top_BTD, targets_BT = trunk.foretelling(trunk.output_dropout(top_BTD), targets_BT)
    wanted_BT = targets_BT != IGNORE
    weights_BT = wanted_BT / wanted_BT.sum(1, keepdim=True).clamp(min=1)
    chosen = wanted_BT.reshape(-1).nonzero().squeeze(1)
    top = top_BTD.reshape(-1, top_BTD.shape[-1])[chosen]
    targets, weights = targets_BT.reshape(-1)[chosen], weights_BT.reshape(-1)[chosen]
    return LossSum(trunk.output_layer().loss(top, targets, weights), count)


@torch.no_grad()
def pooled_states(
    trunk: Trunk,
    task: SupervisedTask,
    groups: Sequence[Sequence[Example]],
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """What W_y would read for the examples, group by group, without dropout."""
    trunk.eval()
    task.eval()
    states = []
    for number, group in enumerate(groups, 1):
        batch = task.make(group).to(device)
        states.append(task.pool(trunk, trunk(task.narrowed(batch)).top, batch))
        if progress is not None:
            progress(number, len(groups))
    trunk.train()
    task.train()
    return torch.cat(states)
