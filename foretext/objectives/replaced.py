"""Replaced-token detection (ELECTRA, Clark et al. 2020): a small masked model fills in blanks, and for every token the
trunk predicts whether it was replaced.

    −Σ log p_G(u_i | masked)   over the masked i    +    λ Σ −log D(replaced or not | corrupted, t)   over all t

The generator belongs to this objective and uses the trunk's embeddings. It is discarded with the objective's head; only
the trunk is transferred. Its tokens are sampled from its distribution, so no gradient flows from the detector into it.
A token that it restores by chance counts as original. `make` draws the random numbers from (seed, epoch, index), so
splitting a step changes nothing.

Blanks are predicted by the generator, as in any masked model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, Hidden, LossSum, Outcome
from foretext.errors import check_range
from foretext.nn.fused import APPROXIMATE, CHUNK_ELEMENTS
from foretext.nn.packing import pack
from foretext.nn.transformer.encoder import Encoder, EncoderConfig, draw_truncated
from foretext.nn.trunk import OutputLayer, Trunk
from foretext.objectives.base import Draw
from foretext.objectives.masked import MaskedObjective, MaskingConfig
from foretext.objectives.spans import Span
from foretext.text.tokenizers.base import Tokenizer

REPLACED = "replaced"


@dataclass(frozen=True)
class ReplacedConfig(MaskingConfig):
    """[objective] of a system that detects replaced tokens."""

    shapes: ClassVar[tuple[str, ...]] = ("generator",)

    masked: float = 0.85  # share of the chosen tokens that becomes the mask; the rest stay
    random: float = 0.0
    generator: float = 0.25  # width, heads and inner width of the generator, relative to the trunk's
    detection: float = 50.0  # λ

    def check(self) -> None:
        super().check()
        check_range("objective", self, "above 0 and at most 1", "generator")
        check_range("objective", self, "at least 0", "detection")

    def shape_of(self, model: EncoderConfig) -> EncoderConfig:
        """The generator's shape, for a trunk of this shape."""
        part = self.generator
        return replace(
            model,
            width=int(part * model.width),
            heads=max(1, int(part * model.heads)),
            inner=int(part * model.block().feed_forward),
            embedding=model.table_width,
            pooler=False,
        )


@dataclass(frozen=True)
class ReplacedBatch(Batch):
    chance_BT: Tensor | None = None  # random numbers from 0 to 1 for the generator's samples at the chosen positions


class Generator(Encoder):
    """A masked model without embedding tables of its own."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        del self.tokens, self.positions, self.segments, self.norm

    def write(self, trunk: Trunk, batch: Batch) -> Hidden:
        """Fills in the blanks of a batch, with the embedding tables of `trunk`."""
        assert isinstance(trunk, Encoder)
        packing = pack(batch)
        return self.read(trunk.rows(packing), packing)


class Detector(nn.Module):
    """dense and GELU on a state, and one number: the logit of "this token was replaced"."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.approximate = APPROXIMATE[config.gelu]
        self.dense, self.score = nn.Linear(config.width, config.width), nn.Linear(config.width, 1)
        for layer in (self.dense, self.score):
            draw_truncated(layer.weight, config.init_std)
            nn.init.zeros_(layer.bias)

    def forward(self, states_ND: Tensor) -> Tensor:
        return self.score(F.gelu(self.dense(states_ND), approximate=self.approximate)).squeeze(-1)


class ReplacedObjective(MaskedObjective):
    lacks = "its generator"

    def __init__(
        self, model: EncoderConfig, settings: ReplacedConfig, specials: tuple[str, str, str], tokenizer: Tokenizer
    ) -> None:
        settings.check()
        shape = settings.shape_of(model)
        shape.check()
        super().__init__(shape, settings, "none", specials, tokenizer)
        self.generator, self.detector = Generator(shape), Detector(model)
        self.weights[REPLACED] = settings.detection

    def make(self, examples: Sequence[Span], draw: Draw | None = None) -> Batch:
        batch = super().make(examples, draw)
        chance_BT = torch.zeros(batch.ids_BT.shape)
        if draw is not None:
            numbers = [draw.generator(number).spawn(1)[0].random(len(row)) for number, row in enumerate(batch.ids_BT)]
            chance_BT = torch.from_numpy(np.stack(numbers).astype(np.float32))
        return ReplacedBatch(**{field.name: getattr(batch, field.name) for field in fields(Batch)}, chance_BT=chance_BT)

    def counts(self, batch: Batch) -> dict[str, float]:
        return super().counts(batch) | {REPLACED: float(batch.real_tokens)}

    def forward(self, trunk: Trunk, batch: Batch, state: Any = None) -> Outcome:
        assert isinstance(batch, ReplacedBatch) and batch.targets_BT is not None and batch.chance_BT is not None
        chosen_BT = batch.targets_BT != IGNORE
        states = self.told_from(trunk, batch.reading(chosen_BT))[chosen_BT]
        layer, targets = self.output_layer(trunk), batch.targets_BT[chosen_BT]
        losses = {"masked": LossSum(layer.loss(states, targets), float(len(targets)))}
        written = drawn(layer, states.detach(), batch.chance_BT[chosen_BT], len(self.head.bias))
        corrupted = replace(batch, ids_BT=batch.ids_BT.masked_scatter(chosen_BT, written))
        replaced_BT = torch.zeros_like(chosen_BT).masked_scatter(chosen_BT, written != targets)
        real_BT = torch.ones_like(chosen_BT) if batch.mask_BT is None else batch.mask_BT
        scores = self.detector(trunk(corrupted).top[real_BT])
        total = F.binary_cross_entropy_with_logits(scores, replaced_BT[real_BT].to(scores.dtype), reduction="sum")
        return Outcome(losses | {REPLACED: LossSum(total, float(len(scores)))})

    def told_from(self, trunk: Trunk, batch: Batch) -> Tensor:
        """The generator's states."""
        return self.generator.write(trunk, batch).top


@torch.no_grad()
def drawn(layer: OutputLayer, states_ND: Tensor, chance_N: Tensor, vocabulary: int) -> Tensor:
    """Samples a token from each distribution: the first one at which the cumulative probability exceeds the random
    number."""
    ids = [
        torch.searchsorted(layer.logits(states).softmax(-1).cumsum(-1), chance[:, None], right=True).squeeze(1)
        for states, chance in zip(*(part.split(max(1, CHUNK_ELEMENTS // vocabulary)) for part in (states_ND, chance_N)))
    ]
    return torch.cat(ids).clamp(max=vocabulary - 1) if ids else chance_N.long()
