"""Rows of embeddings and biases for another vocabulary, against the released code's loop written out; and for more
pieces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tolerance import close
from torch import nn

from foretext.nn.trunk import carried_rows, grown

OLD_IDS = np.array([3, -1, 0, 4, -1, 4])


def test_known_pieces_keep_their_rows_and_new_ones_get_the_mean() -> None:
    table, bias = torch.randn(5, 3, requires_grad=True), torch.randn(5)
    for old in (table, bias):
        expected = torch.zeros(6, *old.shape[1:])
        for number, id in enumerate(OLD_IDS):
            expected[number] = old[id].detach() if id >= 0 else sum(old.detach()) / 5
        found = carried_rows(old, OLD_IDS)
        close(found, expected, terms=5)  # the mean of five rows
        assert not found.requires_grad and found.dtype == old.dtype
    kept = table.detach().clone()
    carried_rows(table, OLD_IDS).zero_()
    assert torch.equal(table, kept), "a copy"
    with pytest.raises(AssertionError, match="row 4 of 4"):
        carried_rows(bias[:4], OLD_IDS)


def test_rows_that_are_added_are_drawn_and_the_old_ones_stay() -> None:
    tokens = nn.Embedding(5, 3).double()
    before = tokens.weight.detach().clone()
    more = grown(tokens, 7, lambda rows_VD: nn.init.constant_(rows_VD, 4.0))
    assert torch.equal(more.weight[:5], before) and bool((more.weight[5:] == 4.0).all()) and len(more.weight) == 7
    assert more.weight.requires_grad and more.weight.dtype == torch.double
    with torch.no_grad():
        more.weight.zero_()
    assert torch.equal(tokens.weight, before), "a copy"
