"""Fine-tuning, real tokens/s: ours against `transformers.Trainer` with its padding collator, on SST-2 and on IMDb.

    python -m bench.finetuning --data DIR [--system bert]        DIR has sst2/ and imdb/

Ours is `foretext.train.finetuning.finetune.finetune` as a user runs it, with dropout .1; the other side is a
`transformers` model of the same shape, with dropout .1 at the same places, `DataCollatorWithPadding`, the Trainer's own
optimiser, and no evaluation, saving or logging. A batch is padded to its longest row, and rows are not grouped by
length: the Trainer's defaults both. Both sides start from random weights and get the same rows as the same ids (IMDb
cut at 512), shuffled anew each epoch, in batches of one size, an update each. A turn is one epoch over the rows, so
both see exactly the same real tokens; padding is not counted. Target: 2.5.

- `--system gpt`, the default: start, text, extract; λ = 0; against `GPT2ForSequenceClassification`.
- `--system bert`: `[CLS]`, text, `[SEP]`; the first state through the pooler, dropout and a head drawn at random, as
  the paper and `BertForSequenceClassification` have it. The Trainer's rows carry no segments:
  of one text they are all 0, which the library fills in.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BertForSequenceClassification, GPT2ForSequenceClassification

from bench.common import (
    Turns,
    alternate,
    arguments_for,
    draw,
    medians,
    need_data,
    print_head,
    ratio_cell,
    reviews,
    table,
)
from bench.models import Shape
from foretext.runs.model import SavedModel
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import ModelSections, RunConfig
from foretext.systems import system_named
from foretext.systems.base import TrunkParts
from foretext.tasks.files.rows import Row, read_rows
from foretext.text.tokenizers.base import END, Tokenizer, TokenizerConfig, tokenizer_from_json
from foretext.text.tokenizers.training import train_tokenizer
from foretext.train.finetuning.finetune import FinetuneRequest, finetune

EPOCHS = 10_000  # more than will ever be asked for


@dataclass(frozen=True)
class Contest:
    """How a system is fine-tuned on both sides."""

    sets: tuple[str, ...]  # ours, beside batch size, dropout and rate
    config: Callable[[Shape, float], Any]  # the library's, from the shape and the dropout
    classifier: Callable[[Any], nn.Module]  # the library's, from its configuration
    remark: str  # for the report


CONTESTS = {
    "gpt": Contest((), Shape.gpt2, GPT2ForSequenceClassification, "λ = 0"),
    "bert": Contest(
        ("transfer.pooling=pooler", "transfer.head=random"),
        Shape.bert,
        BertForSequenceClassification,
        "BERT, pooled [CLS]",
    ),
}


@dataclass(frozen=True)
class Specification:
    shape: Shape
    rows: list[Row]
    tokenizer: str
    batch: int
    system: str = "gpt"
    dropout: float = 0.1

    def reader(self) -> Tokenizer:
        """With the tokens that fine-tuning adds."""
        tokenizer = tokenizer_from_json(self.tokenizer, "tokenizer.json")
        return tokenizer.with_specials(system_named(self.system).specials)

    def ids(self) -> list[tuple[int, ...]]:
        """The rows as both sides read them."""
        tokenizer = self.reader()
        specials = dict(tokenizer.specials)
        layout = system_named(self.system).build_layout(specials, self.shape.context, "forward")
        encoded = tokenizer.encode_many([row.texts[0] for row in self.rows])
        return [layout.sequences("classification", [ids.tolist()])[0].ids for ids in encoded]


class _Epochs(StopRequest):
    """Stands where a signal would ask the loop to stop, which the loop looks at after each step: counts them, from the
    first turn on (before it, fitting the head looks too)."""

    def __init__(self, turns: Turns, steps: int) -> None:
        self.turns, self.steps, self.count = turns, steps, 0
        self.counting = False

    @property
    def requested(self) -> int | None:
        self.count += self.counting
        if self.counting and self.count % self.steps == 0:
            self.turns.end()
            self.turns.begin()
        return None


class _WaitBeforeTraining(Reporter):
    def __init__(self, epochs: _Epochs) -> None:
        self.epochs = epochs

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self.epochs.counting = True
        self.epochs.turns.begin()


def ours(spec: Specification, turns: Turns) -> None:
    tokenizer = tokenizer_from_json(spec.tokenizer, "tokenizer.json")
    system = system_named(spec.system)
    model = replace(spec.shape.ours(spec.system, spec.dropout), vocabulary=tokenizer.size)
    torch.manual_seed(0)
    sections = ModelSections(RunConfig(system=spec.system), model)
    base = SavedModel(None, sections, system, tokenizer, system.build_trunk(TrunkParts(model, tokenizer)))
    sets = (f"training.batch_size={spec.batch}", f"training.dropout={spec.dropout}", "training.rate=1e-4")
    request = FinetuneRequest(
        base=base,
        rows=spec.rows,
        kind="classification",
        valid=(),
        epochs=EPOCHS,
        lm_weight=0.0,
        sets=(*sets, *CONTESTS[spec.system].sets),
        device="cpu",
    )
    epochs = _Epochs(turns, -(-len(spec.rows) // spec.batch))
    finetune(request, _WaitBeforeTraining(epochs), epochs)


def trainer(spec: Specification, turns: Turns) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from tokenizers import Tokenizer as Plain
    from tokenizers.models import WordLevel
    from transformers import (
        DataCollatorWithPadding,
        PreTrainedTokenizerFast,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class EpochTurns(TrainerCallback):
        def on_epoch_begin(self, *_: object, **__: object) -> None:
            turns.begin()

        def on_epoch_end(self, *_: object, **__: object) -> None:
            turns.end()

    names = sorted({str(row.label) for row in spec.rows})
    rows = [
        {"input_ids": list(ids), "attention_mask": [1] * len(ids), "labels": names.index(str(row.label))}
        for ids, row in zip(spec.ids(), spec.rows)
    ]
    padding = spec.reader().size  # one id more; the collator needs nothing else from its tokenizer
    padder = PreTrainedTokenizerFast(
        tokenizer_object=Plain(WordLevel({END: padding}, unk_token=END)), pad_token=END, unk_token=END
    )
    contest = CONTESTS[spec.system]
    config = contest.config(replace(spec.shape, vocabulary=padding + 1), spec.dropout)
    config.pad_token_id, config.num_labels = padding, len(names)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=spec.batch,
            num_train_epochs=EPOCHS,
            use_cpu=True,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            eval_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,  # there is no other device to pin it for
        )
        Trainer(
            model=contest.classifier(config),
            args=arguments,
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(padder),
            callbacks=[EpochTurns()],
        ).train()


def rows_of(path: Path, format: str, count: int) -> list[Row]:
    return draw(read_rows(path, "classification", format=format), count, 0)


def learn_vocabulary(system: str, data: Path, size: int, documents: int) -> Tokenizer:
    """Of the kind that `tiny` has."""
    kind = system_named(system).sizes["tiny"].tokenizer.kind
    return train_tokenizer(reviews(data, documents), TokenizerConfig(kind, size))


def compare(name: str, spec: Specification, rounds: int) -> list[str]:
    lengths = [len(ids) for ids in spec.ids()]
    found = medians(alternate({"ours": (ours, spec), "trainer": (trainer, spec)}, rounds))
    rates = {side: sum(lengths) / seconds for side, seconds in found.items()}
    ratio, verdict = ratio_cell(found["trainer"] / found["ours"], 2.5)
    what = f"{name}: {len(lengths)} rows, {sum(lengths) / len(lengths):.0f} tokens each, batch {spec.batch}"
    return [what, f"{rates['ours']:,.0f}", f"{rates['trainer']:,.0f}", ratio, verdict]


def main() -> None:
    parser = arguments_for(__doc__)
    for name, value in Shape().__dict__.items():
        if name != "context":
            parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--system", default="gpt", choices=list(CONTESTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sst2-rows", type=int, default=640)
    parser.add_argument("--imdb-rows", type=int, default=64)
    parser.add_argument("--sst2-batch", type=int, default=32)
    parser.add_argument("--imdb-batch", type=int, default=16)
    given = parser.parse_args()
    data = need_data(given.data)
    shape = Shape(given.layers, given.width, given.heads, given.context, given.vocabulary)
    rounds, sst2_rows, imdb_rows = given.rounds, given.sst2_rows, given.imdb_rows
    if given.quick:
        shape, rounds, sst2_rows, imdb_rows = Shape(1, 32, 2, 64, 600), 2, 64, 32
    print_head("Fine-tuning", ["torch", "transformers", "accelerate"], given.quick)
    tokenizer = learn_vocabulary(given.system, data, shape.vocabulary, 200 if given.quick else 20_000)
    print(f"{shape}; {CONTESTS[given.system].remark}, dropout .1; median of {rounds} epochs\n", flush=True)
    sst2 = rows_of(data / "sst2" / "train.tsv", "sst2", sst2_rows)
    imdb = rows_of(data / "imdb" / "train.jsonl.gz", "imdb", imdb_rows)
    batches = {"SST-2": (sst2, given.sst2_batch), f"IMDb cut at {shape.context}": (imdb, given.imdb_batch)}
    lines = [
        compare(name, Specification(shape, rows, tokenizer.to_json(), batch, given.system), rounds)
        for name, (rows, batch) in batches.items()
    ]
    print(table(["real tokens/s", "ours", "Trainer", "ratio", "target"], lines))


if __name__ == "__main__":
    main()
