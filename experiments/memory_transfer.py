"""Transformer-XL and XLNet on SST-2 and IMDb with few labels: the spine's experiment, beside GPT.

    python -m experiments.memory_transfer --system transformer_xl --data DIR [--out runs/memory_transfer/transformer_xl]
    python -m experiments.memory_transfer --system xlnet --data DIR          (likewise gpt)
    python -m experiments.joint_table GPT=runs/memory_transfer/gpt XLNet=runs/memory_transfer/xlnet ...

Pre-trained for 20 minutes at size `tiny` on IMDb's unlabelled reviews. Draws of labels, test rows (SST-2's 872 dev
rows, the same 2,000 of IMDb's test reviews) and the way of fine-tuning are those of `imdb_transfer`, the first three
draws; TF-IDF is beside them.

Then bits per byte of 300 test reviews, from left to right: Transformer-XL with the memory that evaluation has, GPT in
windows, XLNet in the order of the text. XLNet's vocabulary at this size is lower-cased, which loses something of the
text, and its figure is marked as not comparable.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import foretext as ft
from bench.common import table
from experiments import imdb_transfer
from experiments.common import TEST_SEED, Experiment, Start, main, read_task, texts_of
from experiments.masked_transfer import TASKS
from foretext.train.loop import read_position

TITLES = {"transformer_xl": "Transformer-XL", "xlnet": "XLNet", "gpt": "GPT"}
REVIEWS = 300


def text_table(models: Mapping[str, ft.LanguageModel], data: Path) -> str:
    """How far each pre-training came, and what it makes of reviews that it has not seen."""
    reviews = texts_of(read_task(imdb_transfer.TASKS["imdb"], data).test)
    chosen = random.Random(TEST_SEED).sample(list(reviews), min(REVIEWS, len(reviews)))
    rows = []
    for model in models.values():
        assert model.model.run is not None
        position, found = read_position(model.model.run), model.perplexity(chosen)
        comparable = "yes" if found.comparable else "no: its vocabulary loses something of the text"
        rows.append(
            [
                TITLES[model.model.system.name],
                f"{position.step:,}",
                f"{position.tokens:,}",
                f"{found.per_token:.1f}",
                f"{found.bits_per_byte:.3f}",
                comparable,
            ]
        )
    heads = ["pre-training", "updates", "tokens", "perplexity per token", "bits per byte", "comparable"]
    return "\n" + table(heads, rows) + "\n"


EXPERIMENT = Experiment(
    "memory_transfer",
    __doc__ or "",
    TASKS,
    imdb_transfer.texts,
    starts={name: Start(title, name, finetune_sets=imdb_transfer.FINETUNE_SETS) for name, title in TITLES.items()},
    choose=True,
    others=("tfidf",),
    after=text_table,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
