"""Pre-trained on IMDb's unlabelled reviews, fine-tuned on SST-2, IMDb and TREC-6 with few labels.

    python -m experiments.imdb_transfer --data DIR [--out runs/imdb_transfer]

Accuracy on SST-2's 872 dev rows, on a fixed random 2,000 of IMDb's test reviews and on TREC's 500 test questions; with
pre-training, without it (the same settings), and TF-IDF (1–2 grams) with logistic regression.

To fit 45 minutes, the reviews (ten times as long as the sentences) are fine-tuned without the language-model loss and
for fewer epochs (10 instead of 15 of 100 reviews, 3 instead of 6 of 500), and 2,000 sentences for three epochs instead
of six; both with and without pre-training.
"""

from __future__ import annotations

from pathlib import Path

from experiments.common import Experiment, Task, main

TASKS = {
    "sst2": Task("SST-2", "sst2", "sst2/train.tsv", "sst2/dev.tsv", (100, 500, 2000), 5),
    "imdb": Task("IMDb", "imdb", "imdb/train.jsonl.gz", "imdb/test.jsonl.gz", (100, 500), 3, test_rows=2000),
    "trec": Task("TREC-6", "trec", "trec/train_5500.label", "trec/TREC_10.label", (100, 500), 5),
}

FINETUNE_SETS = (
    *(f"{task}@100:task.hold_out=0" for task in ("sst2", "imdb", "trec")),
    "imdb:transfer.lm_weight=0",
    "imdb@100:task.epochs=10",
    "imdb@500:task.epochs=3",
    "sst2@2000:task.epochs=3",
)


def texts(data: Path, out: Path) -> Path:
    return data / "imdb" / "unsup.txt.gz"


EXPERIMENT = Experiment("imdb_transfer", __doc__ or "", TASKS, texts, finetune_sets=FINETUNE_SETS)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
