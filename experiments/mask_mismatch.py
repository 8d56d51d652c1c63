"""Does it harm that the mask is never there in fine-tuning? And is it better to see both sides at all?

    python -m experiments.mask_mismatch --data DIR [--out runs/mask_mismatch]

BERT replaces 80 % of the tokens that it is asked about by the mask, 10 % by a random one, and leaves 10 %, so that a
task's text, which has no mask, is nothing new. Here the same encoder (`tiny`) learns from the same reviews for the same
ten minutes with 80/10/10 and with 100/0/0, and a causal model (GPT, `tiny`) does too; each is then fine-tuned on 500
labels of SST-2 and of TREC-6. The validation loss of the masked ones is given under both ways to mask, on the same
reviews with the same tokens chosen: losses under two ways to mask are of two questions, and do not compare.

One pre-training each: the deviations are over draws of labels, and a difference within them says nothing. GPT differs
in more than its direction: its vocabulary keeps case (byte-level BPE against WordPiece), it has no next sentence to
tell, and its fine-tuning has the language-model loss beside the task's.
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
from foretext.systems.base import ObjectiveParts
from foretext.train.loop import read_position
from foretext.train.pretrain import validator
from foretext.train.saved import SavedModel

TASKS = {name: replace(imdb_transfer.TASKS[name], labels=(500,), draws=3) for name in ("sst2", "trec")}
MASKS = {
    "80-10-10": ("objective.masked=0.8", "objective.random=0.1"),
    "100-0-0": ("objective.masked=1", "objective.random=0"),
}
STARTS = {
    **{name: Start(f"masked {name.replace('-', '/')}", "bert", sets) for name, sets in MASKS.items()},
    "causal": Start("causal", "gpt"),
}


def masked_loss(model: SavedModel, sets: Sequence[str]) -> float:
    """The loss at the masked tokens of the run's validation text, masked as `sets` say."""
    assert model.run is not None and model.objective is not None
    settings = apply_sets({"objective": model.sections["objective"]}, sets)["objective"]
    objective = model.system.build_objective(ObjectiveParts(model.model_config, settings, model.tokenizer))
    objective.load_state_dict(model.objective.state_dict())
    device = torch.device("cpu")
    losses = validator(model.run, model.trunk, objective, model.model_config, model.info.seed, device)()
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
    starts=STARTS,
    others=("tfidf",),
    minutes=10.0,
    after=validation_table,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
