"""How much a memory is worth: Transformer-XL over bytes, evaluated with memories from none to far beyond what it was
trained with.

    python -m experiments.memory_length --data DIR [--out runs/memory_length] [--text shakespeare]

One model is pre-trained for 20 minutes, by default on the first 20 MB of enwik8 but for the last 5 %, in segments of
128 bytes after a memory of 128. Then bits per byte of the same 160 stretches of 1,024 bytes from the rest are measured
with a memory of 0, 16, 32, 64, 128, 256, 512 and 1,024 bytes: the next byte is told from one and so many before it. The
paper's claim is that they fall as memory grows, and beyond the memory of training, too. A stretch begins with nothing
before it, so that a memory of 1,024 is never full; the second column says how much is seen on the average.

The plot, `memory_length.png`, has the same numbers.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import foretext as ft
from bench.common import table
from experiments.common import pretraining_lines
from experiments.course import Course, conduct, options, settled
from foretext.api import load_language_model
from foretext.errors import UserError
from foretext.text.corpus.text_files import write_whole

TEXTS = {"enwik8": "enwik8/enwik8-first-20MB.gz", "shakespeare": "tinyshakespeare/input.txt"}
MEMORIES = (0, 16, 32, 64, 128, 256, 512, 1024)
TEST_PART = 0.05  # the end of the text
DOCUMENT = 100_000  # bytes of training text that stand between two ends of text
STRETCH, STRETCHES = 1024, 160  # bytes, that are scored
SETTINGS = ("text", "minutes", "size", "base", "set", "quick")
BYTES = "tokenizer.size=257"  # all bytes, and end-of-text
QUICK = ("model.layers=2", "model.width=32", "model.heads=2", "model.context=32", "model.memory=32")
QUICK_BYTES, QUICK_STRETCHES = 100_000, 4


class Cell(NamedTuple):
    memory: int


# -- text ------------------------------------------------------------------------------------------------------------


def parts_of(given: argparse.Namespace) -> tuple[bytes, bytes]:
    """Training and test bytes."""
    path = given.data / TEXTS[given.text]
    if not path.is_file():
        raise UserError(f"{path} is not there; --data DIR is the folder that has it")
    whole = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if given.quick:
        whole = whole[:QUICK_BYTES]
    cut = int(len(whole) * (1 - TEST_PART))
    return whole[:cut], whole[cut:]


def stretches(text: bytes, size: int, most: int | None = None) -> list[str]:
    """Pieces of about so many bytes, none of which cuts a character in two: what is left of one at a border is left
    out. Spread over the text if they are fewer than it has."""
    starts = range(0, max(1, len(text) - size + 1), size)
    if most is not None and most < len(starts):
        starts = range(0, len(text) - size + 1, (len(text) - size) // max(1, most - 1) or 1)[:most]
    return [text[start : start + size].decode("utf-8", "ignore") for start in starts]


def training_file(text: bytes, out: Path) -> Path:
    """A document a line, so that lines of the text are no documents."""
    path = out / "text.jsonl"
    if not path.exists():
        lines = (json.dumps({"text": one}, ensure_ascii=False) + "\n" for one in stretches(text, DOCUMENT))
        write_whole(path, "".join(lines).encode())
    return path


# -- the run ---------------------------------------------------------------------------------------------------------


def pretrained(course: Course, text: bytes) -> ft.LanguageModel:
    """One that was stopped goes on."""
    given = course.given
    if given.base is not None:
        return load_language_model(given.base)
    return course.part(
        "pre-training",
        lambda: ft.pretrain(
            training_file(text, given.out),
            system="transformer_xl",
            vectors="none",
            size=given.size,
            minutes=given.minutes,
            out=given.out / "base",
            sets=[BYTES, *given.set],
            resume=True,
            reporter=course.log,
            stopping=course.stopping,
        ),
    )


def measure(cell: Cell, model: ft.LanguageModel, texts: Sequence[str]) -> dict[str, Any]:
    found = model.perplexity(texts, memory=cell.memory)
    return {"scores": {"bits": found.bits_per_byte}, "tokens": found.tokens}


def seen_before(memory: int, stretch: int) -> float:
    """Bytes that a byte sees before it, end-of-text among them, on the average over a stretch."""
    return sum(min(place, memory) for place in range(stretch)) / stretch


def result_table(found: Mapping[Cell, Mapping[str, Any]], trained: int) -> str:
    rows, before = [], None
    for cell in sorted(found):
        bits = found[cell]["scores"]["bits"]
        name = f"{cell.memory:,}" + (" (as trained)" if cell.memory == trained else "")
        gained = "" if before is None else f"{bits - before:+.4f}"
        seconds = f"{found[cell]['seconds']:.0f}"
        rows.append([name, f"{seen_before(cell.memory, STRETCH):,.0f}", f"{bits:.4f}", gained, seconds])
        before = bits
    return table(["memory, bytes", "seen on the average", "bits per byte", "against the row above", "seconds"], rows)


def picture(found: Mapping[Cell, Mapping[str, Any]], trained: int) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    cells = sorted(cell for cell in found if cell.memory)  # a byte by itself would leave no room for the others
    axes.plot([cell.memory for cell in cells], [found[cell]["scores"]["bits"] for cell in cells], marker="o")
    axes.axvline(trained, linestyle=":", color="gray", label="memory in training")
    if Cell(0) in found:
        axes.plot([], [], " ", label=f"without memory: {found[Cell(0)]['scores']['bits']:.2f}")
    axes.set_xscale("log", base=2)
    axes.set_xticks([cell.memory for cell in cells], [str(cell.memory) for cell in cells])
    axes.minorticks_off()
    axes.set_xlabel("memory in evaluation, bytes")
    axes.set_ylabel("bits per byte")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    return drawn.getvalue()


def run(course: Course) -> str:
    given = course.given
    train, test = parts_of(given)
    model = pretrained(course, train)
    texts = stretches(test, STRETCH, QUICK_STRETCHES if given.quick else STRETCHES)
    cells = [Cell(memory) for memory in MEMORIES]
    left = course.measure(cells, (), lambda cell: measure(cell, model, texts), "bits", times=1.0)
    found = course.measured(Cell)
    trained = int(model.model.model_config.memory)  # type: ignore[attr-defined]
    write_whole(given.out / "memory_length.png", picture(found, trained))
    facts = pretraining_lines({"xl": model}, {"xl": "Transformer-XL"}) if model.model.run is not None else []
    facts += [f"{model.model.model_config.describe()}; {len(texts)} stretches of {STRETCH:,} bytes of {given.text}"]
    return course.page([result_table(found, trained)], facts, left)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = options(__doc__, "memory_length", minutes=20.0)
    parser.add_argument("--text", choices=list(TEXTS), default="enwik8")
    parser.add_argument("--base", type=Path, help="a pre-trained run of transformer_xl to use instead of pre-training")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="of pre-training")
    return settled(parser, words, {"set": QUICK})


def main(words: Sequence[str] | None = None) -> int:
    return conduct(parse(words), "memory_length", SETTINGS, run)


if __name__ == "__main__":
    raise SystemExit(main())
