"""The masked language model (BERT, RoBERTa, ALBERT), alone or with a question about a pair of spans.

Some tokens of a sequence are chosen. Most of them are replaced by the mask, some by a random token, and some stay. Each
chosen token is predicted from both sides:

    −Σ log softmax(norm(gelu(W h_i + b)) W_eᵀ + b_v)[u_i]   over the chosen i

The softmax is computed at the chosen positions only, and the last layer computes only what is read there. `pairs`
decides what a sequence is: contiguous text (RoBERTa), or two spans and a label, read from the first token's state
(`spans.py`).

A part (15 %) of the tokens is chosen, at least one in every sequence and never a special token: single pieces (BERT,
RoBERTa), whole words, or runs of up to three words (ALBERT: a run of n words with probability ∝ 1/n). Of the chosen
tokens 80 % become the mask, 10 % a random ordinary piece, and 10 % stay. A unit that would exceed the number is
skipped, as in BERT's released code. If none is left, a shortest word is chosen, as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, LossSum, Outcome, padded
from foretext.errors import check_range, refuse_if
from foretext.nn.fused import APPROXIMATE, TiedSoftmax
from foretext.nn.transformer.encoder import EncoderConfig, draw_truncated
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw, Examples, GrowingConfig, Objective, at_targets, growing_lengths
from foretext.objectives.spans import LEAST_ROOM, FullSentences, Span, SpanPairs
from foretext.text.corpus.shards import TokenShards
from foretext.text.tokenizers.base import Tokenizer

MOST_WORDS = 100  # words per run


@dataclass(frozen=True)
class MaskingConfig(GrowingConfig):
    """[objective] of a masked system."""

    part: float = 0.15  # share of the tokens that is chosen
    masked: float = 0.8  # share of the chosen tokens that becomes the mask
    random: float = 0.1  # share of the chosen tokens that becomes a random piece; the rest stay
    unit: Literal["piece", "word", "n-gram"] = "piece"
    longest: int = 3  # words per run, for n-grams
    short: float = 0.1  # share of the span pairs that is shorter than the others

    def check(self) -> None:
        super().check()
        check_range("objective", self, "above 0 and at most 1", "part")
        check_range("objective", self, "at least 0 and at most 1", "masked", "random", "short")
        check_range("objective", self, f"at least 1 and at most {MOST_WORDS}", "longest")
        refuse_if(
            self.masked + self.random > 1.0 + 1e-9,
            f"objective.masked={self.masked} and objective.random={self.random} together exceed 1",
        )


class Masker:
    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer, mask: int) -> None:
        config.check()
        self.config, self.tokenizer, self.mask_id = config, tokenizer, mask
        self.special = np.isin(np.arange(tokenizer.size), list(tokenizer.specials.values()))
        self.ordinary = np.flatnonzero(~self.special)
        chances = 1.0 / np.arange(1, config.longest + 1)
        self.chances = chances / chances.sum()

    def mask(self, ids: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The positions of `ids` to predict, in increasing order, and what replaces them."""
        places = np.flatnonzero(~self.special[ids])
        if not len(places):
            return places, places
        wanted = max(1, round(self.config.part * len(places)))
        pieces = self.config.unit == "piece"
        chosen = np.sort(
            draw.choice(places, wanted, replace=False) if pieces else self._units(ids, places, wanted, draw)
        )
        fate = draw.random(len(chosen))
        other = draw.choice(self.ordinary, len(chosen))
        put = np.where(fate < self.config.masked, self.mask_id, ids[chosen])
        swapped = (fate >= self.config.masked) & (fate < self.config.masked + self.config.random)
        return chosen, np.where(swapped, other, put)

    def _units(self, ids: np.ndarray, places: np.ndarray, wanted: int, draw: np.random.Generator) -> np.ndarray:
        """Whole words, or runs of them. If none is short enough, the first of the shortest words."""
        starts = self.tokenizer.word_starts(ids)[places]
        starts[0] = True
        starts[1:] |= np.diff(places) > 1  # a special token lies between them
        words = np.split(places, np.flatnonzero(starts)[1:])
        taken = np.zeros(len(words), dtype=bool)
        chosen: list[np.ndarray] = []
        count = 0
        order = draw.permutation(len(words))
        for first in order:
            if count >= wanted:
                break
            run = self._run(words, int(first), draw)
            while run > 1 and sum(len(words[i]) for i in range(first, first + run)) > wanted - count:
                run -= 1
            pieces = [words[i] for i in range(first, first + run)]
            size = sum(map(len, pieces))
            if size > wanted - count or taken[first : first + run].any():
                continue
            taken[first : first + run] = True
            chosen += pieces
            count += size
        return np.concatenate(chosen) if chosen else min((words[i] for i in order), key=len)

    def _run(self, words: list[np.ndarray], first: int, draw: np.random.Generator) -> int:
        """Words from `first` on that are masked together; a run does not cross a special token."""
        if self.config.unit == "word":
            return 1
        length = int(draw.choice(len(self.chances), p=self.chances)) + 1
        run = 1
        while run < length and first + run < len(words) and words[first + run][0] == words[first + run - 1][-1] + 1:
            run += 1
        return run


# -- the objective -----------------------------------------------------------------------------------------------------


LEAST_CONTEXT = LEAST_ROOM + 3  # two spans and their special tokens
Pairs = Literal["none", "next sentence", "sentence order"]
LOSS_OF_PAIRS = {"next sentence": "next", "sentence order": "order"}


class MaskedHead(nn.Module):
    """dense, GELU and norm on a state, as wide as the table it is compared with; and the table's bias."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.approximate = APPROXIMATE[config.gelu]
        self.dense = nn.Linear(config.width, config.table_width)
        self.norm = nn.LayerNorm(config.table_width, eps=config.epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        draw_truncated(self.dense.weight, config.init_std)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states_ND: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(states_ND), approximate=self.approximate))


class MaskedObjective(Objective):
    """Masked language model; with `pairs`, each sequence has two spans and a label for their relation."""

    scored = "by blanks"
    lacks = "a head for masked tokens"

    def __init__(
        self,
        config: EncoderConfig,
        masking: MaskingConfig,
        pairs: Pairs,
        specials: tuple[str, str, str],
        tokenizer: Tokenizer,
    ) -> None:
        """`specials`: the first token, the separator and the mask."""
        super().__init__()
        missing = [name for name in specials if name not in tokenizer.specials]
        refuse_if(
            missing, f"the vocabulary has no {', '.join(missing)}, which a masked model needs; use another vocabulary"
        )
        self.first, self.separator, self.mask = (tokenizer.specials[name] for name in specials)
        self.config, self.masking, self.pairs, self.tokenizer = config, masking, pairs, tokenizer
        self.masker = Masker(masking, tokenizer, self.mask)
        self.head = MaskedHead(config)
        self.weights = {"masked": 1.0}
        self.relation: nn.Linear | None = None
        if pairs != "none":
            self.relation = nn.Linear(config.width, 2)
            draw_truncated(self.relation.weight, config.init_std)
            nn.init.zeros_(self.relation.bias)
            self.weights[LOSS_OF_PAIRS[pairs]] = 1.0

    def examples(self, shards: TokenShards, context: int, seed: int) -> Examples:
        if self.pairs == "none":
            return FullSentences(shards, context - 2, self.tokenizer)
        return SpanPairs(shards, context - 3, seed, self.tokenizer, self.pairs, self.masking.short)

    def lengths(self, context: int) -> list[tuple[float, int]]:
        return growing_lengths(self.masking, context, LEAST_CONTEXT)

    def make(self, examples: Sequence[Span], draw: Draw | None = None) -> Batch:
        """With `draw`, tokens are masked and become targets; without it, nothing is masked."""
        rows = [self._framed(span) for span in examples]
        targets = [np.full(len(row), IGNORE) for row in rows]
        if draw is not None:
            for number, row in enumerate(rows):
                chosen, put = self.masker.mask(row, draw.generator(number))
                targets[number][chosen] = row[chosen]
                row[chosen] = put
        ids, real = padded(rows)
        wanted, _ = padded(targets, fill=IGNORE)
        segments = labels = None
        if self.pairs != "none":
            segments, _ = padded([_segments(span) for span in examples])
            labels = torch.tensor([span.label for span in examples])
        return Batch(ids, None if bool(real.all()) else real, segments_BT=segments, targets_BT=wanted, labels=labels)

    def _framed(self, span: Span) -> np.ndarray:
        texts = [part for text in span.texts for part in (text, [self.separator])]
        return np.concatenate([[self.first], *texts]).astype(np.int64)

    def counts(self, batch: Batch) -> dict[str, float]:
        pairs = {LOSS_OF_PAIRS[self.pairs]: float(len(batch.ids_BT))} if self.pairs != "none" else {}
        return super().counts(batch) | pairs

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert batch.targets_BT is not None
        chosen_BT, firsts_B = batch.targets_BT != IGNORE, _first_places(batch)
        top = trunk(
            batch.reading(chosen_BT if self.relation is None else chosen_BT.scatter(1, firsts_B[:, None], True))
        ).top
        states_ND, targets_N = at_targets(batch, top)
        losses = {"masked": LossSum(self.output_layer(trunk).loss(states_ND, targets_N), float(len(targets_N)))}
        if self.relation is not None:
            assert batch.labels is not None
            rows = torch.arange(len(top), device=top.device)
            scores = self.relation(trunk.summary(top[rows, firsts_B]))
            total = F.cross_entropy(scores, batch.labels, reduction="sum")
            losses[LOSS_OF_PAIRS[self.pairs]] = LossSum(total, float(len(batch.labels)))
        return Outcome(losses)

    def output_layer(self, trunk: Trunk) -> TiedSoftmax:
        return TiedSoftmax(trunk.output_table(), self.head.bias, self.head)

    def blank(self) -> int:
        return self.mask

    def blank_states(
        self, trunk: Trunk, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], segments: Sequence[int] = ()
    ) -> Tensor:
        ids, real = padded(rows)
        asked_BT = torch.zeros_like(real)
        for row, blanks in zip(asked_BT, places):
            row[list(blanks)] = True
        batch = Batch(ids, None if bool(real.all()) else real).reading(asked_BT).to(trunk.output_table().device)
        return self.told_from(trunk, batch)[asked_BT]


def _segments(span: Span) -> np.ndarray:
    """0 for the first token, the first text and its separator; 1 for the rest."""
    first, second = span.texts
    return np.repeat([0, 1], [len(first) + 2, len(second) + 1])


def _first_places(batch: Batch) -> Tensor:
    """The index of each row's first real token: [B]."""
    if batch.mask_BT is None:
        return torch.zeros(len(batch.ids_BT), dtype=torch.int64, device=batch.ids_BT.device)
    return batch.mask_BT.int().argmax(1)
