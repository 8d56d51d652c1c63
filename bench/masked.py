"""Masked pre-training tokens/s: our BERT against a plain loop of `transformers`' `BertForPreTraining`.

    python -m bench.masked [--layers 4 --width 256 --heads 4 --context 256 --vocabulary 8000 --batch 16]

Both sides train the same shape (a pooler and both heads included) on the same rows: `[CLS] a [SEP] b [SEP]` of random
ids that fill the context, so that nothing is padded and no data is needed, with segments and a random next-sentence
label. A step of either side draws its masks anew (15 % of the ordinary tokens: 80 % become the mask, 10 % another
piece, 10 % stay), goes forward and backward through the masked and the next-sentence loss, clips the gradient and
updates by AdamW. A token is a position of the input, masked or not: batch × context of them a step.

Ours is a step of the product's loop with BERT's `MaskedObjective`: rows are framed and masked one by one, in numpy, and
the output softmax is computed at the masked positions only. The plain loop is in `bench.models`: its rows are framed
beforehand, masked as the library's collator does it (each token by a draw of its own, a whole batch at once, labels
−100 where nothing is masked), and given without an attention mask, since all of them are real. `BertForPreTraining`
computes logits at every position: that is part of what is compared. Its attention is the library's default, sdpa
(`--attention eager` for the other), its AdamW and its allocator are as they come; ours has the allocator that
`foretext pretrain` sets.

Two lines, target 1.3 for each: without dropout, and dropout .1 at the paper's places on both sides (embeddings,
attention weights, before each residual addition). Reading text and choosing spans is on neither side.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import numpy as np
import torch
from torch import Tensor
from transformers import BertForPreTraining

from bench.common import Turns, print_head, repeat
from bench.models import RATE, Line, PlainLoop, Specification, asked_for, compare, made_up_vocabulary, run_ours
from foretext.batch import IGNORE
from foretext.objectives.masked import MaskingConfig
from foretext.objectives.spans import Span
from foretext.systems.bert import BERT
from foretext.text.tokenizers.wordpiece import SPECIALS

TARGET = 1.3
MASKING = MaskingConfig()  # ours has the same: the paper's
ORDINARY = len(SPECIALS)  # the first id that is no special token
FRAME = 3  # [CLS], and [SEP] after each text


def spans_of(spec: Specification) -> list[Span]:
    """Two random texts each, which fill the context with their frame, and a label."""
    draw = np.random.default_rng(0)
    room = spec.shape.context - FRAME
    ids = draw.integers(ORDINARY, spec.shape.vocabulary, (spec.rows, room))
    borders = draw.integers(1, room, spec.rows)
    labels = draw.integers(0, 2, spec.rows)
    return [Span((row[:border], row[border:]), int(label)) for row, border, label in zip(ids, borders, labels)]


def ours(spec: Specification, turns: Turns) -> None:
    run_ours("bert", spec, spans_of(spec), turns)


def framed(spec: Specification) -> tuple[Tensor, Tensor, Tensor]:
    """The same spans for the plain loop: ids and segments, [rows, context] each, and labels."""
    spans = spans_of(spec)
    specials = made_up_vocabulary(spec.shape.vocabulary).specials
    layout = BERT.build_layout(specials, spec.shape.context, "forward")
    frames = [layout.frame(*(text.tolist() for text in span.texts)) for span in spans]
    ids = torch.tensor([frame.ids for frame in frames])
    segments = torch.tensor([frame.segments for frame in frames])
    assert ids.shape == segments.shape == (spec.rows, spec.shape.context)
    return ids, segments, torch.tensor([span.label for span in spans])


def masked(ids: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """The ids as they are shown, and as they are asked for: `IGNORE` where nothing was chosen."""
    chosen = (torch.rand(ids.shape) < MASKING.part) & (ids >= ORDINARY)
    fate = torch.rand(ids.shape)
    hidden = chosen & (fate < MASKING.masked)
    swapped = chosen & ~hidden & (fate < MASKING.masked + MASKING.random)
    shown = ids.masked_fill(hidden, SPECIALS.index("[MASK]"))
    shown = torch.where(swapped, torch.randint(ORDINARY, vocabulary, ids.shape), shown)
    return shown, ids.masked_fill(~chosen, IGNORE)


def plain(spec: Specification, turns: Turns) -> None:
    batches = cycle(zip(*(rows.split(spec.batch) for rows in framed(spec))))
    config = spec.shape.bert(spec.dropout, spec.in_attention, spec.attention)
    loop = PlainLoop(BertForPreTraining, config, RATE)

    def step() -> None:
        ids, segments, follows = next(batches)
        shown, labels = masked(ids, spec.shape.vocabulary)
        loop.step({"input_ids": shown, "token_type_ids": segments, "labels": labels, "next_sentence_label": follows})

    repeat(turns, step)


def lines_of(spec: Specification) -> list[Line]:
    return [
        Line("without dropout", spec, TARGET),
        Line("dropout .1 everywhere", replace(spec, dropout=0.1), TARGET),
    ]


def main() -> None:
    asked = asked_for(__doc__, "BERT")
    print_head("Masked pre-training", ["torch", "transformers"], asked.quick)
    for spec in asked.specifications:
        compare(ours, plain, "BERT", lines_of(spec), asked, "15 % masked, next sentence")


if __name__ == "__main__":
    main()
