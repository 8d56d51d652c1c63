"""What all tasks share that put a head on a trunk: which places are real, the outputs of chosen places as one
padded tensor, and the auxiliary language-model loss L1."""

from __future__ import annotations

import torch
from torch import Tensor

from foretext.batch import IGNORE, Batch
from foretext.nn.trunk import Trunk

NO_SCORE = -1e9  # of a place that is not asked about: no softmax gives it anything


def real_places(batch: Batch) -> Tensor:
    """[B, T], true at real tokens."""
    if batch.mask_BT is not None:
        return batch.mask_BT
    return torch.ones_like(batch.ids_BT, dtype=torch.bool)


def spread(values_NC: Tensor, places_BT: Tensor) -> Tensor:
    """The values of the places that are true, as [B, T, C]; `NO_SCORE` at the others."""
    table = values_NC.new_full((*places_BT.shape, values_NC.shape[1]), NO_SCORE)
    return table.index_put(places_BT.nonzero(as_tuple=True), values_NC)


def next_tokens(ids_BT: Tensor, real_BT: Tensor) -> Tensor:
    """What the language model has to predict at each place: the token to its right, IGNORE where there is none."""
    targets_BT = torch.full_like(ids_BT, IGNORE)
    targets_BT[:, :-1] = ids_BT[:, 1:].masked_fill(~(real_BT[:, :-1] & real_BT[:, 1:]), IGNORE)
    return targets_BT


def sequence_lm_loss(trunk: Trunk, top_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """L1: the mean over each sequence's targets, summed over the sequences, as GPT's released code has it. A trunk that
    drops out what tokens are predicted from in pre-training does so here too; one that reads in two directions
    (ELMo's) predicts by one of them."""
    top_BTD, targets_BT = trunk.foretelling(trunk.output_dropout(top_BTD), targets_BT)
    wanted_BT = targets_BT != IGNORE
    weights_BT = wanted_BT / wanted_BT.sum(1, keepdim=True).clamp(min=1)
    chosen = wanted_BT.reshape(-1).nonzero().squeeze(1)
    top = top_BTD.reshape(-1, top_BTD.shape[-1])[chosen]
    targets, weights = targets_BT.reshape(-1)[chosen], weights_BT.reshape(-1)[chosen]
    return trunk.output_layer().loss(top, targets, weights)
