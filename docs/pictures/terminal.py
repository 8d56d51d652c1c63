"""Draws the README's picture: real commands in a temporary folder, their output as an SVG.

    python docs/pictures/terminal.py --data DIR

DIR holds `imdb/unsup.txt.gz` and `sst2/train.tsv`. The picture shows what the commands write to a terminal of this
width, without edits. `--keep FILE` saves what they wrote, `--again FILE` draws it again without running anything."""

from __future__ import annotations

import argparse
import codecs
import csv
import fcntl
import gzip
import io
import json
import os
import pty
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH = 104
REVIEWS, LABELS = 20_000, 500
COMMANDS = (
    "foretext pretrain reviews.txt --system word2vec --minutes 10 --out runs/vectors",
    "foretext nearest runs/vectors boring --n 5",
    "foretext finetune runs/vectors labelled.csv --task classification --out runs/few",
    'foretext predict runs/few --text "Gorgeous to look at, but the plot is a mess." --explain --json',
)
BACKGROUND, FOREGROUND = (16, 20, 28), (214, 219, 229)
BLACK, RED, GREEN, YELLOW = (70, 76, 90), (240, 113, 120), (166, 218, 149), (238, 212, 159)
BLUE, MAGENTA, CYAN = (138, 173, 244), (198, 160, 246), (139, 213, 202)
THEME = TerminalTheme(BACKGROUND, FOREGROUND, [BLACK, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN, FOREGROUND])
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_CONTROL = re.compile(r"(\x1b\[(?:\?25[lh]|\d*[AK])|\r|\n)")


def prepare(data: Path, folder: Path) -> None:
    """Unlabelled reviews, a document a line, and a few labelled sentences."""
    with gzip.open(data / "imdb" / "unsup.txt.gz", "rt", encoding="utf-8") as lines:
        (folder / "reviews.txt").write_text("".join(line for line, _ in zip(lines, range(REVIEWS))), encoding="utf-8")
    rows = [line.split("\t") for line in (data / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    words = {"0": "negative", "1": "positive"}
    with (folder / "labelled.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([text.strip(), words[label]] for text, label in random.Random(0).sample(rows, LABELS))


def run_in_terminal(command: str, folder: Path) -> str:
    """What a command writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "PYTHONPATH": str(Path.cwd())}
    words = ["nice", "-n", "19", sys.executable, "-m", "foretext", *shlex.split(command)[1:]]
    process = subprocess.Popen(words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    decoder, written = codecs.getincrementaldecoder("utf-8")(), []
    while True:
        try:
            read = os.read(ours, 65536)
        except OSError:  # the terminal has nobody left who writes to it
            break
        if not read:
            break
        written.append(decoder.decode(read))
    os.close(ours)
    if process.wait():
        raise SystemExit(f"{command}: exit code {process.returncode}\n{''.join(written)}")
    return "".join(written)


def screen(written: str) -> list[str]:
    """The lines that stay on the screen: live lines and bars overwrite themselves."""
    lines, row, place = [""], 0, 0
    for part in _CONTROL.split(written):
        if part == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif part == "\r":
            place = 0
        elif _CONTROL.fullmatch(part):
            if part.endswith("A"):
                row = max(0, row - int(part[2:-1] or 1))
            elif part.endswith("K"):
                lines[row] = ""
        elif part:
            lines[row] = part if place == 0 else lines[row] + part
            place = 1
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def draw(sessions: list[tuple[str, list[str]]]) -> str:
    """The sessions as one SVG that asks no other machine for anything."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, lines) in enumerate(sessions):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        for line in lines:
            console.print(Text.from_ansi(line))
    svg = console.export_svg(title="foretext", theme=THEME, unique_id="foretext")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: (Fira Code|arial)[^;]*;", f"font-family: {FONTS};", svg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("terminal.svg"))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--again", type=Path)
    asked = parser.parse_args()
    if asked.again:
        written = json.loads(asked.again.read_text(encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory() as name:
            prepare(asked.data, Path(name))
            written = [run_in_terminal(command, Path(name)) for command in COMMANDS]
    if asked.keep:
        asked.keep.write_text(json.dumps(written), encoding="utf-8")
    asked.out.write_text(draw([(command, screen(text)) for command, text in zip(COMMANDS, written)]), encoding="utf-8")


if __name__ == "__main__":
    main()
