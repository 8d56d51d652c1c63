"""Rows of embeddings and biases for another vocabulary, against the released code's loop written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretext.nn.vocabulary_rows import carried_rows

OLD_IDS = np.array([3, -1, 0, 4, -1, 4])


def test_known_pieces_keep_their_rows_and_new_ones_get_the_mean() -> None:
    table, bias = torch.randn(5, 3, requires_grad=True), torch.randn(5)
    for old in (table, bias):
        expected = torch.zeros(6, *old.shape[1:])
        for number, id in enumerate(OLD_IDS):
            expected[number] = old[id].detach() if id >= 0 else sum(old.detach()) / 5
        found = carried_rows(old, OLD_IDS)
        torch.testing.assert_close(found, expected)
        assert not found.requires_grad and found.dtype == old.dtype
    kept = table.detach().clone()
    carried_rows(table, OLD_IDS).zero_()
    assert torch.equal(table, kept), "a copy"
    with pytest.raises(AssertionError, match="row 4 of 4"):
        carried_rows(bias[:4], OLD_IDS)
