"""The shape of a Transformer-XL (Dai et al. 2019), and one of its blocks: relative attention over a memory and what is
read, then a feed-forward part."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.errors import check_range, refuse_if
from foretext.nn.adaptive_softmax import adaptive_parameters
from foretext.nn.fused import add_dropped, dropout, linear
from foretext.nn.packing import Packing, chosen, pick
from foretext.nn.relative.relative_attention import LONGEST_MEMORY, RelativeAttention, check_width
from foretext.nn.transformer.transformer import TransformerShape

Biases = tuple[Tensor, Tensor] | None  # u and w, where all blocks share them


@dataclass(frozen=True)
class TransformerXLConfig(TransformerShape):
    """The defaults are those of the released base model for WikiText-103, but for `inner` (2100 there), the
    vocabulary's cutoffs and one token of `evaluation_memory`: 640 there is a token itself and 639 before it."""

    layers: int = 16
    width: int = 410
    heads: int = 10
    inner: int = 0  # width of the feed-forward part; 0: four times the width
    context: int = 150  # tokens of a segment, which gradients flow through
    memory: int = 150  # states before it that are seen while pre-training
    evaluation_memory: int = 640  # tokens before each that are seen afterwards
    clamp: int = 400  # distances beyond this one are as this one; 0: none is
    dropout: float = 0.1  # of embeddings, distances, the feed-forward part's units, what is added, and the top
    attention_dropout: float = 0.0  # of the attention weights
    untied: bool = False  # whether each layer has a u and w of its own
    cutoffs: tuple[int, ...] = ()  # ids at which an adaptive softmax is cut, most frequent first; none: a plain softmax
    divisor: int = 1  # by what each part of it is narrower than the one before
    epsilon: float = 1e-5
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        check_width(self.width)
        most = f"at most {LONGEST_MEMORY:,}"
        check_range("model", self, f"at least 0 and {most}", "inner", "memory", "evaluation_memory", "clamp")
        check_range("model", self, f"at least 1 and {most}", "divisor")
        check_range("model", self, "at least 0 and below 1", "attention_dropout")
        self._check_cutoffs()

    def _check_cutoffs(self) -> None:
        given = ",".join(str(cut) for cut in self.cutoffs)
        refuse_if(
            list(self.cutoffs) != sorted(set(self.cutoffs)) or any(cut < 1 for cut in self.cutoffs),
            f"model.cutoffs={given}: give ids that rise, from 1 on",
        )
        refuse_if(
            self.cutoffs and self.vocabulary and self.cutoffs[-1] >= self.vocabulary,
            f"model.cutoffs={given}: the vocabulary has only {self.vocabulary:,} pieces; give ids below that, or "
            "none for a plain softmax: --set model.cutoffs=",
        )
        refuse_if(
            not self.cutoffs and self.divisor > 1,
            f"model.divisor={self.divisor} is for an adaptive softmax; set model.cutoffs too",
        )
        refuse_if(
            self.width // self.divisor ** len(self.cutoffs) < 1,
            f"model.divisor={self.divisor}: nothing is left of a width of {self.width}",
        )

    @property
    def feed_forward(self) -> int:
        return self.inner or 4 * self.width

    @property
    def reads(self) -> int:
        """Tokens that a task reads at a time: as far as distances are known from pre-training, and seen afterwards."""
        return min(self.context + self.memory, self.evaluation_memory + 1)

    def remarks(self) -> tuple[str, ...]:
        """On numbers that stayed behind when the segments or the memory were made longer."""
        farthest = self.context + self.memory - 1
        found = []
        if self.evaluation_memory < farthest:
            found.append(
                f"model.evaluation_memory={self.evaluation_memory}: training sees up to {farthest} tokens back, but "
                f"scoring and writing do not, and a task reads {self.reads} tokens of a text; to see as far: --set "
                f"model.evaluation_memory={farthest}"
            )
        if 0 < self.clamp < farthest:
            found.append(
                f"model.clamp={self.clamp}: training sees up to {farthest} tokens back, but all distances beyond "
                f"{self.clamp} are one to it; to tell all apart: --set model.clamp={farthest}"
            )
        return tuple(found)

    def carried(self, rows: int) -> int:
        """Every layer's states, and a mark for each place."""
        return rows * self.memory * (self.layers * self.width + 1)

    def describe(self) -> str:
        return (
            f"{self.layers} blocks, width {self.width}, {self.heads} heads, segments of {self.context} "
            f"after a memory of {self.memory}"
        )

    def parameters(self) -> int:
        width, inner = self.width, self.feed_forward
        adaptive = self.cutoffs and adaptive_parameters(self.vocabulary, width, self.cutoffs, self.divisor)
        tables = adaptive or (width + 1) * self.vocabulary
        block = 5 * width * width + inner * (2 * width + 1) + 5 * width
        return tables + self.layers * block + 2 * width * (self.layers if self.untied else 1)

    def activations(self, tokens: int) -> int:
        memory = self.memory / self.context  # places of it for each token
        weights = self.heads * (self.context + self.memory) * (3 if self.attention_dropout else 1)
        states = (16 + 3 * memory) * self.width + (3 if self.dropout else 2) * self.feed_forward
        return int(tokens * self.layers * (states + weights))


class TransformerXLBlock(nn.Module):
    """Relative attention and a feed-forward part with ReLU, each added to what it read, and normed."""

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        width, inner, heads = config.width, config.feed_forward, config.heads
        self.p = config.dropout
        self.attention = RelativeAttention(width, heads, width // heads, config.attention_dropout, biased=config.untied)
        self.norm1 = nn.LayerNorm(width, eps=config.epsilon)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width, eps=config.epsilon)

    def forward(
        self,
        x_ND: Tensor,
        packing: Packing,
        far_RHK: Tensor,
        unseen: tuple[Tensor | None, ...],
        biases: Biases,
        picked_R: Tensor | None = None,
    ) -> Tensor:
        """The states of all packed tokens of a segment without memory, or of these alone. `unseen`: what is added to
        the scores of each group."""
        own = self.attention
        weights = torch.cat([own.query.weight, own.key.weight, own.value.weight])
        qkv_N3HK = packing.grouped(F.linear(x_ND, weights).unflatten(1, (3, own.heads, own.head_width)))
        parts = []
        for (first, rows, length), hidden in zip(packing.groups, unseen):
            q, k, v = qkv_N3HK[first : first + rows * length].unflatten(0, (rows, length)).unbind(2)
            parts.append(own.mix(q, k, v, far_RHK[len(far_RHK) - length :], hidden, biases=biases).flatten(0, 1))
        mixed = parts[0] if len(parts) == 1 else torch.cat([*parts, qkv_N3HK[:0, 0]])  # which may be all there is
        return self._after(pick(x_ND, picked_R), pick(mixed.flatten(1), chosen(packing.from_groups, picked_R)))

    def read_on(
        self, x_BTD: Tensor, keys: Tensor, values: Tensor, far_RHK: Tensor, hidden: Tensor | None, biases: Biases
    ) -> Tensor:
        """The states of a segment whose keys and values follow those of a memory."""
        q = self.attention.query(x_BTD).unflatten(2, keys.shape[2:])
        mixed = self.attention.mix(q, keys, values, far_RHK, hidden, biases=biases)
        return self._after(x_BTD.flatten(0, 1), mixed.flatten(2).flatten(0, 1)).view(x_BTD.shape)

    def _after(self, x_ND: Tensor, mixed_NI: Tensor) -> Tensor:
        x = self.norm1(add_dropped(x_ND, self.attention.out(mixed_NI), self.p, self.training))
        inner = dropout(linear(x, self.up).relu_(), self.p, self.training)
        return self.norm2(add_dropped(x, linear(inner, self.down), self.p, self.training))
