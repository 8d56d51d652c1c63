"""What RoBERTa changes of BERT: larger batches, no next sentence, sequences that are long from the start, byte-level
pieces. (Masks that are drawn anew: `objectives/test_objective_masked.py`.)"""

from __future__ import annotations

from systems_under_test import objective_of, tokenizer_of

from foretext.objectives.masked import MaskedObjective, MaskingConfig
from foretext.systems import SYSTEMS

BERT, ROBERTA = (SYSTEMS[name].sizes["paper"] for name in ("bert", "roberta"))


def test_what_it_changes() -> None:
    bert, roberta = objective_of("bert"), objective_of("roberta")
    assert isinstance(bert, MaskedObjective) and isinstance(roberta, MaskedObjective)
    assert list(bert.weights) == ["masked", "next"] and list(roberta.weights) == ["masked"]
    assert roberta.pairs == "none" and roberta.relation is None, "no label of two spans"
    assert bert.lengths(512) == [(0.9, 128), (1.0, 512)] and roberta.lengths(512) == [(1.0, 512)]
    assert (BERT.tokenizer.kind, ROBERTA.tokenizer.kind) == ("wordpiece", "byte-bpe")
    assert (BERT.pretraining.batch_size, ROBERTA.pretraining.batch_size) == (256, 8192)
    assert (ROBERTA.pretraining.rate, ROBERTA.pretraining.warmup_steps) == (6e-4, 24_000)
    assert {"<s>", "</s>", "<mask>"} <= tokenizer_of("roberta").specials.keys()


def test_both_choose_as_many_and_mask_as_often() -> None:
    for size in (BERT, ROBERTA):
        masking = size.objective
        assert isinstance(masking, MaskingConfig)
        assert (masking.part, masking.masked, masking.random, masking.unit) == (0.15, 0.8, 0.1, "piece")
