"""Transformer-XL and XLNet on SST-2, IMDb and TREC-6 with few labels: the spine's experiment, beside GPT.

    python -m experiments.memory_transfer --system transformer_xl --data DIR [--out runs/memory_transfer/transformer_xl]
    python -m experiments.memory_transfer --system xlnet --data DIR          (likewise gpt)
    python -m experiments.joint_table GPT=runs/memory_transfer/gpt XLNet=runs/memory_transfer/xlnet ...

Pre-trained for 20 minutes at size `tiny` on IMDb's unlabelled reviews. Tasks, draws of labels, test rows and the way of
fine-tuning are those of `imdb_transfer`; there is no column without pre-training. TF-IDF is beside them.

Then bits per byte of 300 test reviews, from left to right: Transformer-XL with the memory that evaluation has, GPT in
windows, XLNet in the order of the text. XLNet's vocabulary at this size is lower-cased, which loses something of the
text, and its figure is marked as not comparable. They are a part of `results.jsonl`, measured once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import foretext as ft
from bench.common import commit
from experiments import imdb_transfer
from experiments.common import TEST_SEED, Experiment, Start, main, read_task, texts_of
from experiments.results import TEXT, Results, text_table
from foretext.runs.run_config import read_position

TITLES = {"transformer_xl": "Transformer-XL", "xlnet": "XLNet", "gpt": "GPT"}
REVIEWS = 300


def measured(model: ft.LanguageModel, data: Path) -> dict[str, Any]:
    """How far a pre-training came, and what it makes of reviews that it has not seen."""
    assert model.model.run is not None
    reviews = texts_of(read_task(imdb_transfer.TASKS["imdb"], data).test)
    chosen = random.Random(TEST_SEED).sample(list(reviews), min(REVIEWS, len(reviews)))
    position, found = read_position(model.model.run), model.perplexity(chosen)
    return {
        "updates": position.step,
        "tokens": position.tokens,
        "texts": len(chosen),
        "per_token": found.per_token,
        "bits_per_byte": found.bits_per_byte,
        "comparable": found.comparable,
    }


def text_part(models: Mapping[str, ft.LanguageModel], data: Path, results: Results) -> str:
    """The same as a table, measured if the results do not have it yet. A run of --base may be of any system."""
    (model,) = models.values()
    found = results.figures(TEXT)
    if found is None:
        since = time.perf_counter()
        found = measured(model, data)
        results.add_part(TEXT, time.perf_counter() - since, commit(), found)
    name = model.model.system.name
    return f"\n{text_table({TITLES.get(name, name): found})}\n"


EXPERIMENT = Experiment(
    "memory_transfer",
    __doc__ or "",
    imdb_transfer.TASKS,
    imdb_transfer.texts,
    starts={name: Start(title, name, finetune_sets=imdb_transfer.FINETUNE_SETS) for name, title in TITLES.items()},
    choose=True,
    others=("tfidf",),
    after=text_part,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
