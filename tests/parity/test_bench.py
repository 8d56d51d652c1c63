"""What the benchmarks compare is the same on both sides: shape, rows, masks, settings."""

from __future__ import annotations

import pytest
import torch
from transformers import BertForPreTraining, BertForSequenceClassification, TrainingArguments

from bench.common import _own_words
from bench.finetuning import CONTESTS
from bench.masked import FRAME, MASKING, framed, masked, spans_of
from bench.models import BATCHES, Shape, Specification, build_ours, made_up_vocabulary
from foretext.batch import IGNORE
from foretext.objectives.base import ListedExamples
from foretext.runs.run_config import Budget
from foretext.systems.base import TrainingConfig
from foretext.text.tokenizers.wordpiece import SPECIALS

SPEC = Specification(Shape(2, 32, 2, 24, 200), batch=2)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_both_sides_of_masked_pre_training_have_one_shape(dropout: float) -> None:
    spans = spans_of(SPEC)
    training = TrainingConfig(optimizer="adamw", batch_size=2, dropout=dropout)
    loop = build_ours("bert", SPEC.shape, training, ListedExamples(spans), Budget(steps=9))
    theirs = BertForPreTraining(SPEC.shape.bert(dropout))
    assert sum(p.numel() for p in loop.model.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert set(loop.job.objective.weights) == {"masked", "next"}
    assert loop.job.trunk.config.dropout == theirs.config.hidden_dropout_prob == dropout
    assert theirs.config.attention_probs_dropout_prob == dropout


def test_both_sides_read_the_same_rows() -> None:
    spans, (ids, segments, labels) = spans_of(SPEC), framed(SPEC)
    training = TrainingConfig(optimizer="adamw", batch_size=2, dropout=0.0)
    loop = build_ours("bert", SPEC.shape, training, ListedExamples(spans), Budget(steps=9))
    batch = loop.job.objective.make(spans)
    assert batch.segments_BT is not None and batch.labels is not None
    assert torch.equal(batch.ids_BT, ids) and torch.equal(batch.segments_BT, segments)
    assert torch.equal(batch.labels, labels)
    assert ids.shape == (BATCHES * SPEC.batch, SPEC.shape.context) and FRAME == 3


def test_the_plain_loop_masks_as_ours_does() -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 200, (400, 100))
    shown, labels = masked(ids, 200)
    chosen = labels != IGNORE
    assert not bool((chosen & (ids < len(SPECIALS))).any())
    ordinary = ids >= len(SPECIALS)
    assert float(chosen.sum() / ordinary.sum()) == pytest.approx(MASKING.part, abs=0.01)
    mask = made_up_vocabulary(200).specials["[MASK]"]
    assert float((shown[chosen] == mask).float().mean()) == pytest.approx(MASKING.masked, abs=0.02)
    assert float((shown[chosen] == ids[chosen]).float().mean()) == pytest.approx(0.1, abs=0.02)
    assert bool((shown[~chosen] == ids[~chosen]).all()) and bool((labels[chosen] == ids[chosen]).all())


def test_fine_tuning_reads_what_the_library_reads() -> None:
    contest = CONTESTS["bert"]
    assert contest.classifier is BertForSequenceClassification
    assert {"transfer.pooling=pooler", "transfer.head=random"} == set(contest.sets)
    config = contest.config(SPEC.shape, 0.1)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    assert config.classifier_dropout in (None, 0.1)
    arguments = TrainingArguments(output_dir="unused", use_cpu=True, report_to="none")
    assert arguments.max_grad_norm == 1.0 and arguments.gradient_accumulation_steps == 1
    assert not arguments.dataloader_drop_last, "an epoch is all rows"
    assert getattr(arguments, "train_sampling_strategy", "random") == "random", "rows are not grouped by length"
    assert not getattr(arguments, "group_by_length", False)


def test_a_command_line_names_no_folder_of_this_machine() -> None:
    words = ["--data", "/a", "--out=/b", "--base", "/c", "--rounds", "3", "--set", "x.y=z"]
    assert _own_words(words) == ["--data", "DIR", "--out=RUN", "--base", "RUN", "--rounds", "3", "--set", "x.y=z"]
