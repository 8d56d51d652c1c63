"""What each part of `modern` is worth: bits per byte with one part left out, or with one part added.

    python -m experiments.modern_parts --data DIR [--out runs/modern_parts] [--steps 250] [--batch 16] [--only gpt,+cap]

Every row is a pre-training with the shape of GPT's `tiny` on IMDb's unlabelled reviews, without word vectors beside it.
All rows have the same vocabulary of 8,000 pieces, order of windows, number of updates and validation windows. They
differ only in the named part, so losses per token compare like bits per byte. All read the same number of tokens, but
take different times. The table shows the seconds per update, which are comparable only if nothing else ran. A row whose
folder exists is not run again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import foretext as ft
from bench.common import arguments_for, need_data, print_head, table
from foretext.runs.directory import RunDirectory
from foretext.runs.run_config import is_finished, read_position
from foretext.text.corpus.shards import read_manifest

GPT = "gpt"
ROWS: dict[str, tuple[str, ...]] = {
    GPT: (),
    "modern": (),
    "-skips": ("model.embedding_skips=false",),
    "-skips-norm": ("model.embedding_skips=false", "model.embedding_norm=false"),
    "-zero": ("model.zero_residuals=false",),
    "-rotary": ("model.positions=learned",),
    "-query-key norm": ("model.query_key_norm=false",),
    "-relu2": ("model.activation=gelu-tanh",),
    "-embedding norm": ("model.embedding_norm=false",),
    "-rms": ("model.norm_kind=layer",),
    "+cap": ("model.soft_cap=15",),
    "+values": ("model.values=embeddings",),
    "+swiglu": ("model.activation=silu", "model.gated=true", "model.inner=512"),
    "+untied": ("model.untied=true",),
    "+early": ("objective.early=0.3", "objective.early_length=0.25"),
    "+tables": ("training.table_rate=3",),
    "+vectors": ("training.vector_rate=3",),
    "+cautious": ("training.cautious=true", "training.weight_decay=0.1"),
    "+tail": ("training.tail=0.2",),
    "+rate": ("training.rate=0.01",),
    "-rate": ("training.rate=0.0025",),
}


def trained(name: str, data: Path, folder: Path, steps: int, batch: int, quick: bool) -> RunDirectory:
    run = RunDirectory(folder / name.replace(" ", "-"))
    if is_finished(run):
        return run
    small = ("model.layers=2", "model.width=32", "model.heads=2", "model.context=64", "tokenizer.size=600")
    sets = (f"training.batch_size={batch}", *(small if quick else ()), *ROWS[name])
    ft.pretrain(
        data / "imdb" / "unsup.txt.gz",
        system=GPT if name == GPT else "modern",
        size="tiny",
        steps=steps,
        out=run.path,
        vectors="none",
        sets=sets,
        resume=True,
    )
    return run


def cells(name: str, run: RunDirectory) -> list[str]:
    position, valid = read_position(run), read_manifest(run.path / "tokens").splits["valid"]
    loss = [row["validation"]["loss"] for row in run.metrics() if "validation" in row][-1]
    bits = loss / math.log(2) * valid.tokens / valid.utf8_bytes
    return [name, f"{position.tokens:,}", f"{loss:.4f}", f"{bits:.4f}", f"{position.seconds / position.step:.2f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/modern_parts"))
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=16, help="windows an update")
    parser.add_argument("--only", help="rows, by commas; without it all")
    given = parser.parse_args(arguments)
    names = given.only.split(",") if given.only else list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        raise SystemExit(f"there is no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    print_head("The parts of modern", ["torch"], given.quick)
    data, steps = need_data(given.data), 4 if given.quick else given.steps
    found = [cells(name, trained(name, data, given.out, steps, given.batch, given.quick)) for name in names]
    print(table(["row", "tokens", "loss a token", "bits a byte", "seconds an update"], found))


if __name__ == "__main__":
    main()
