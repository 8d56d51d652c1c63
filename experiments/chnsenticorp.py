"""Chinese: pre-trained on ChnSentiCorp's training texts without their labels, fine-tuned on 500 labels of it.

    python -m experiments.chnsenticorp --data DIR [--out runs/chnsenticorp]

Accuracy on its 1,200 test rows; with pre-training, without it (the same settings), and TF-IDF on 1–2 grams of
characters (Chinese has no spaces to find words by) with logistic regression.

In 20 minutes so small a text is read ten to fifteen times, so pre-training has dropout here, which `tiny` leaves out.
"""

from __future__ import annotations

import json
from pathlib import Path

from experiments.common import Experiment, Task, main, texts_of
from foretext.tasks.files.rows import read_rows

TASK = Task(
    "ChnSentiCorp",
    "chnsenticorp",
    "chnsenticorp/train.tsv",
    "chnsenticorp/test.tsv",
    labels=(500,),
    draws=3,
    analyzer="char",
)

PRETRAIN_SETS = ("training.dropout=0.1",)


def texts(data: Path, out: Path) -> Path:
    """The texts alone, as JSON lines: read by the layout's own rules, in which a quote is an ordinary character."""
    file = out / "text.jsonl"
    if not file.exists():
        rows = read_rows(data / TASK.train, "classification", format=TASK.format)
        part = file.with_suffix(".part")
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts_of(rows))
        part.write_text("".join(lines), encoding="utf-8")
        part.replace(file)
    return file


EXPERIMENT = Experiment("chnsenticorp", __doc__ or "", {"chnsenticorp": TASK}, texts, PRETRAIN_SETS)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
