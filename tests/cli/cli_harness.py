"""The command line called in this process, so that torch is imported once: what a test gives it and what it says."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import typer.main
from complaints import names

from foretext.cli import app as cli

GET_COMMAND = functools.cache(typer.main.get_command)  # read from the annotations once, not for each of the hundreds
ROOT = Path(__file__).resolve().parents[2]
MINUTE = [
    *("--set", "model.layers=2", "--set", "model.width=32", "--set", "model.heads=2"),
    *("--set", "model.context=32", "--set", "tokenizer.size=400"),
]
GOOD, BAD = ["good", "great", "fine", "lovely", "happy", "bright"], ["bad", "awful", "poor", "ugly", "sad", "dark"]
OTHER = ["the", "a", "film", "story", "actor", "scene", "was", "is", "it", "and", "of", "in"]
KINDS = {
    "classification": "cls.csv",
    "entailment": "ent.csv",
    "similarity": "sim.tsv",
    "choice": "cho.jsonl",
    "regression": "reg.csv",
}


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line that begins with `foretext: `; it is the last on standard error."""
        lines = [line for line in self.err.splitlines() if line.startswith("foretext: ")]
        assert len(lines) == 1 and self.err.endswith(lines[0] + "\n"), self.err
        assert "Traceback" not in self.err and "internal error" not in self.err, self.err
        return lines[0]

    def note(self, *parts: str) -> str:
        """The one line on standard error that names every part."""
        lines = [line for line in self.err.splitlines() if all(part in line for part in parts)]
        assert len(lines) == 1, f"{len(lines)} lines have {parts}: {self.err}"
        return names(lines[0], *parts)


def foretext(*arguments: object, stdin: str | bytes = "") -> Said:
    """Runs `foretext ARGUMENTS` in this process."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(typer.main, "get_command", GET_COMMAND),
        mock.patch.object(sys, "argv", ["foretext", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            code = ended.code
    return Said(code, out.getvalue(), err.getvalue())


def works(*arguments: object, stdin: str | bytes = "") -> Said:
    """The same for a command that must work."""
    said = foretext(*arguments, stdin=stdin)
    assert said.code == 0, said.err
    return said


def fails(*arguments: object, code: int = 2, stdin: str | bytes = "") -> str:
    """The complaint of a command that must fail with `code`."""
    said = foretext(*arguments, stdin=stdin)
    assert said.code == code, f"exit code {said.code}: {said.err}"
    return said.complaint


def write_files(folder: Path) -> None:
    """A text, and rows for every kind of task."""
    draw = random.Random(0)

    def sentence(words: list[str], length: int = 8) -> str:
        return " ".join(draw.choice(words if draw.random() < 0.5 else OTHER) for _ in range(length))

    text = "\n".join(sentence(draw.choice([GOOD, BAD])) for _ in range(200))
    (folder / "text.txt").write_text(text + "\n", encoding="utf-8")
    rows: dict[str, list[tuple[object, ...]]] = {
        "cls.csv": [("text", "label")],
        "ent.csv": [("premise", "hypothesis", "label")],
        "sim.tsv": [("text1", "text2", "label")],
        "reg.csv": [("text", "score")],
    }
    choices = []
    for i in range(24):
        words = GOOD if i % 2 else BAD
        rows["cls.csv"].append((sentence(words), "pos" if i % 2 else "neg"))
        rows["ent.csv"].append((sentence(GOOD, 4), sentence(words, 4), ("yes", "no", "maybe")[i % 3]))
        rows["sim.tsv"].append((sentence(GOOD, 4), sentence(words, 4), i % 2))
        rows["reg.csv"].append((sentence(words), i / 7))
        some = {f"choice{k + 1}": sentence(words, 3) for k in range(2 + i % 3)}
        choices.append({"context": sentence(GOOD, 4), **some, "label": 1 + i % 2})
    for name, lines in rows.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter="\t" if name.endswith("tsv") else ",").writerows(lines)
    (folder / "cho.jsonl").write_text("".join(json.dumps(row) + "\n" for row in choices), encoding="utf-8")


def labelled(*rows: tuple[str, str]) -> str:
    """Classification rows as CSV."""
    return "".join(f"{text},{label}\n" for text, label in [("text", "label"), *rows])


def many(count: int, labels: str = "ab") -> str:
    return labelled(*((f"some film {i}", labels[i % len(labels)]) for i in range(count)))
