"""Does it harm that the mask is never there in fine-tuning? And is it better to see both sides at all?

    python -m experiments.mask_mismatch --data DIR [--out runs/mask_mismatch]

BERT replaces 80 % of the tokens that it is asked about by the mask, 10 % by a random one, and leaves 10 %, so that a
task's text, which has no mask, is nothing new. Here one encoder learns from the same reviews for the same ten minutes
with 80/10/10 and with 100/0/0, and a causal model does too; each is then fine-tuned on 500 labels of SST-2 and of
TREC-6. The validation loss of the masked ones is given under both ways to mask, on the same reviews with the same
tokens chosen: losses under two ways to mask are of two questions, and do not compare.

What is asked is all that should differ, so the encoder is RoBERTa's (no next sentence, text across documents as GPT
reads it) and the causal model GPT's, both `tiny`: 4 × 192, 3 heads, context 256, post-norm, tanh GELU, byte-level BPE
of 8,000 ids learned from the same text, the same optimiser, rate, batch and schedule, no dropout in pre-training and .1
in fine-tuning, λ = 0, the same epochs. The head of all three reads the state that speaks (the first token's, of a
causal model the last one's) added to the mean of all states, and is fitted to them first: a causal model's mean has
states that have read little, but its last one has read all.

What still differs: five of the encoder's ids are specials, so that it has five merges fewer. It has a norm after its
embeddings and a dense layer before its softmax, and draws its first weights from a truncated normal. Its loss is of 40
% of the tokens, so that a step costs less (the table has the updates), and it begins with short sequences, which a
masked model of minutes needs and a causal one does not; both are `tiny`'s defaults. It reads whole sentences, GPT
windows of 256 cut anywhere. Two of its 256 places are the frame. GPT meets its start and extract tokens in fine-tuning
for the first time, the encoder has seen its own. The rates were chosen for GPT. One pre-training each: the deviations
are over draws of labels, and a difference within them says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

import foretext as ft
from bench.common import table
from experiments import imdb_transfer
from experiments.common import Experiment, Start, main
from foretext.config import apply_sets
from foretext.runs.model import SavedModel
from foretext.runs.run_config import PretrainConfig, read_position
from foretext.systems.base import ObjectiveParts
from foretext.train.pretraining.pretrain import validator

TASKS = {name: replace(imdb_transfer.TASKS[name], labels=(500,), draws=5) for name in ("sst2", "trec")}
MASKS = {
    "80-10-10": ("objective.masked=0.8", "objective.random=0.1"),
    "100-0-0": ("objective.masked=1", "objective.random=0"),
}
ENCODER = ("model.gelu=tanh", "model.first_position=0")  # as GPT has them
FINETUNE_SETS = ("transfer.lm_weight=0",)
STARTS = {
    **{name: Start(f"masked {name.replace('-', '/')}", "roberta", (*ENCODER, *sets)) for name, sets in MASKS.items()},
    "causal": Start("causal", "gpt"),
}


def masked_loss(model: SavedModel, sets: Sequence[str]) -> float:
    """The loss at the masked tokens of the run's validation text, masked as `sets` say."""
    assert model.run is not None and model.objective is not None and isinstance(model.config, PretrainConfig)
    settings = apply_sets({"objective": model.config.objective}, sets)["objective"]
    objective = model.system.build_objective(ObjectiveParts(model.model_config, settings, model.tokenizer))
    objective.load_state_dict(model.objective.state_dict())
    device = torch.device("cpu")
    losses = validator(model.run, model.trunk, objective, model.model_config.context, model.info.seed, device)()
    return losses.get("masked", losses["loss"])  # where there is no other loss, that is it


def validation_table(models: Mapping[str, ft.LanguageModel]) -> str:
    """How far each pre-training came, and the masked ones' losses under both ways to mask."""
    rows = []
    for name, model in models.items():
        assert model.model.run is not None
        position = read_position(model.model.run)
        losses = [f"{masked_loss(model.model, sets):.3f}" if name in MASKS else "–" for sets in MASKS.values()]
        rows.append([STARTS[name].title, f"{position.step:,}", f"{position.tokens:,}", *losses])
    heads = [f"validation loss, masks {name.replace('-', '/')}" for name in MASKS]
    return "\n" + table(["pre-training", "updates", "tokens", *heads], rows) + "\n"


EXPERIMENT = Experiment(
    "mask_mismatch",
    __doc__ or "",
    TASKS,
    imdb_transfer.texts,
    finetune_sets=FINETUNE_SETS,
    starts=STARTS,
    others=("tfidf",),
    minutes=10.0,
    after=lambda models, data, results: validation_table(models),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
