"""The text that a run was pre-trained on, as unlabelled text beside labelled rows.

A run's token shards hold its text, so a head over views can learn from it (`tasks/views/self_training.py`) without the
user naming it again. This happens unless views are given by name. A line says so; `--unlabelled none` turns it off. If
the shards have been deleted, there is nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from foretext.errors import UserError
from foretext.runs.model import SavedModel
from foretext.tasks.views.self_training import drawn_texts
from foretext.text.corpus.shards import DamagedShards, TokenShards
from foretext.text.tokenizers.base import Tokenizer
from foretext.train.finetuning.finetune_request import FinetuneRequest
from foretext.train.resume import TOKENS

LEAST_TEXTS = 200  # with fewer, a student learns nothing beyond the rows


def with_own_text(
    request: FinetuneRequest, sources: Sequence[SavedModel], note: Callable[[str], None]
) -> FinetuneRequest:
    """The request with the text of the first of these models that has some, unless the user has given texts, or
    none."""
    if request.unlabelled or not request.own_text or request.kind != "classification":
        return request
    texts = next((found for model in sources if (found := texts_of(model, request.seed))), [])
    if len(texts) < LEAST_TEXTS:
        return request
    note(f"also learning from {len(texts):,} texts of pre-training (--unlabelled none turns this off)")
    return replace(request, unlabelled=tuple(texts))


def texts_of(model: SavedModel, seed: int) -> list[str]:
    """Texts that a run was pre-trained on, drawn by the seed; empty if its shards are gone."""
    if model.run is None or not (model.run.path / TOKENS).exists() or model.tokenizer.end is None:
        return []
    try:
        shards = TokenShards.open(model.run.path / TOKENS, "train", verify=True)
    except DamagedShards as damage:
        raise UserError(f"{damage.fault}; give --unlabelled none, or restore it from a copy") from None
    return drawn_texts(_Documents(shards, model.tokenizer), seed)


@dataclass
class _Documents(Sequence[str]):
    """The documents of shards, each decoded on demand."""

    shards: TokenShards
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        assert self.tokenizer.end is not None
        self.ends = self.shards.places(self.tokenizer.end)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        start = int(self.ends[number - 1]) + 1 if number else 0
        return self.tokenizer.decode(self.shards.window(start, int(self.ends[number]) - start).tolist())
