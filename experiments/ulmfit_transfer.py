"""ULMFiT on SST-2 and IMDb with few labels: the spine's experiment, an LSTM in the place of GPT.

    python -m experiments.ulmfit_transfer --data DIR [--out runs/ulmfit_transfer]
    python -m experiments.joint_table ULMFiT=runs/ulmfit_transfer GPT=runs/imdb_transfer

Pre-trained for 20 minutes at size `tiny` on IMDb's unlabelled reviews, which are the target's own text for IMDb and the
general one for SST-2: the first two of ULMFiT's three stages are one here. Draws of labels and test rows (SST-2's 872
dev rows, the same 2,000 of IMDb's test reviews) are those of `imdb_transfer`, all of them; TF-IDF is beside them.
Nothing is trained from scratch here.

Fine-tuned as `tiny` is: concatenated pooling over whole reviews, the slanted triangle, everything at once (the paper's
way: `--finetune-set transfer.rate_decay=2.6 --finetune-set transfer.thaw=gradual --finetune-set training.rate=0.01`).
Epochs are the size's, but fewer for reviews, to fit 45 minutes; with 100 labels all are trained on and the last epoch
is kept, as in `imdb_transfer`. Forward model only.
"""

from __future__ import annotations

from experiments import imdb_transfer
from experiments.common import PRETRAINED, Experiment, Start, main

TASKS = {name: imdb_transfer.TASKS[name] for name in ("sst2", "imdb")}

FINETUNE_SETS = (
    *(f"{task}@100:task.hold_out=0" for task in TASKS),
    "imdb@100:task.epochs=10",
    "imdb@500:task.epochs=8",
)

EXPERIMENT = Experiment(
    "ulmfit_transfer",
    __doc__ or "",
    TASKS,
    imdb_transfer.texts,
    starts={PRETRAINED: Start("ULMFiT", "ulmfit", finetune_sets=FINETUNE_SETS)},
    others=("tfidf",),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
