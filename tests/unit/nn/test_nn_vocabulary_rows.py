"""Rows of embeddings and biases for another vocabulary, against the released code's loop written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretext.batch import Batch
from foretext.nn.awd_lstm import AwdLstm, AwdLstmConfig
from foretext.nn.vocabulary_rows import carried_rows, carry_embeddings

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


def test_a_trunk_reads_known_pieces_as_before_and_goes_on_learning() -> None:
    trunk = AwdLstm(AwdLstmConfig(vocabulary=5, layers=2, width=3, hidden=4, dropout=0.0))
    before = trunk(Batch(torch.tensor([[3, 0, 4, 4]]))).top.detach()
    trunk.tokens = carry_embeddings(trunk.tokens, OLD_IDS)
    top = trunk(Batch(torch.tensor([[0, 2, 3, 5]]))).top
    assert torch.equal(top, before)
    top.sum().backward()
    gradient = trunk.tokens.weight.grad
    assert gradient is not None and gradient.shape == (6, 3) == trunk.output_table().shape
    assert gradient[[0, 2, 3, 5]].abs().sum(1).all()
