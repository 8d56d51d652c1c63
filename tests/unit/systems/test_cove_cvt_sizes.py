"""CoVe's and cross-view training's sizes are the papers', and both are built from words and vectors."""

from __future__ import annotations

import numpy as np
import pytest

from foretext.nn.cvt import WordBatch
from foretext.objectives.cross_view import CrossViewTask, WordExample
from foretext.systems import cove, cvt
from foretext.text.vectors import WordVectors
from foretext.text.word_list import WordList

VECTORS = WordVectors(("man", "dog"), np.arange(6, dtype=np.float32).reshape(2, 3))
WORDS = WordList(("Hund", "dog", "00"))


def test_what_the_papers_have() -> None:
    model = cove.SIZES["paper"].model
    assert (model.vectors, model.width, model.layers, model.dropout) == (300, 600, 2, 0.2)
    # torch's nn.LSTM(300, 300, num_layers=2, bidirectional=True), as the released encoder is
    assert model.parameters() == 2 * 4 * 300 * (300 + 300 + 2) + 2 * 4 * 300 * (600 + 300 + 2)
    paper = cvt.SIZES["paper"]
    assert (paper.model.cells, paper.model.upper_cells, paper.objective.hidden) == (1024, 512, 512)
    assert paper.objective.views == ("forward", "backward", "future", "past") and paper.objective.average == 0.998


def test_rates() -> None:
    assert cove.halved_rate(1.0, []) == cove.halved_rate(1.0, [9, 8, 8]) == 1.0
    assert [cove.halved_rate(1.0, [9, 7, 8, 6, 5][:n]) for n in range(6)] == [1, 1, 1, 0.5, 0.25, 0.125]
    assert cvt.released_rate(0) == 0 and cvt.released_rate(2_500) == pytest.approx(0.25 / 1.25)
    assert cvt.released_rate(10_000) == pytest.approx(0.5 / 1.5)


@pytest.mark.parametrize("vectors", [None, VECTORS])
def test_cvt_is_built_with_vectors_and_without(vectors: WordVectors | None) -> None:
    trunk, objective = cvt.new_cvt(cvt.SIZES["tiny"], WORDS, [CrossViewTask("t", "tagging", 2)], vectors)
    assert trunk.words.weight.shape == (6, 100 if vectors is None else 3)
    if vectors is not None:
        assert trunk.words.weight[4].tolist() == [3, 4, 5]
    batch = objective.make([WordExample(("Dog", "12", "zebra"), 0, (0, 1, 0))])
    assert isinstance(batch, WordBatch) and batch.ids_BT.tolist() == [[0, 4, 5, 2, 1]]
    assert objective(trunk, batch).losses["t"].count == 3
