"""Options and arguments that several verbs of the command line share, each said once, and how what a user wrote in them
is read and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.errors import UserError

if TYPE_CHECKING:
    from foretext.config import Setting

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="section.key=value, a setting of config.toml.")]
Config = Annotated[Path | None, typer.Option(help="A TOML file of settings; --set counts where both say something.")]
Columns = Annotated[str, typer.Option(help="Other column names: text=review,label=stars; tagging: tag=4.")]
Format = Annotated[str | None, typer.Option(help="A published layout: sst2, trec, conll2000, …; none: by the header.")]
Metric = Annotated[str | None, typer.Option(help="The main metric: accuracy, f1, f1_macro, matthews, exact_match, …")]
With = Annotated[
    list[Path] | None, typer.Option("--with", help="Another run of the task (the backward one): both are averaged.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
Source = Annotated[Path | None, typer.Option(help="For cove: sentences, one a line.")]
Target = Annotated[Path | None, typer.Option(help="For cove: their translations, line by line.")]
TextColumn = Annotated[str | None, typer.Option(help="The text column of tables.")]
Documents = Annotated[str, typer.Option(help="What is a document in .txt: auto, line, blank, file.")]
Errors = Annotated[str, typer.Option(help="Bytes that are not UTF-8: strict (an error) or replace (counted).")]


def text_argument(text: str, name: str, otherwise: str = "") -> str:
    """Text from the command line. Bytes that the locale cannot read come from Python as halves of surrogate pairs:
    UTF-8 is read all the same, and other bytes are refused, never replaced. `otherwise`: another way to give them."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        data = os.fsencode(text)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}: not UTF-8 at byte offset {error.start} (byte 0x{data[error.start]:02x}); "
            f"use a terminal and a locale that are set to UTF-8{otherwise and f', or {otherwise}'}"
        ) from None


def parse_columns(text: str) -> dict[str, str] | None:
    """`text=review,label=stars` as a dictionary."""
    return parse_pairs(text, "--columns", "write field=column, field=column; for example text=review,label=stars")


def parse_pairs(text: str, option: str, advice: str) -> dict[str, str] | None:
    """`a=b,c=d` as a dictionary; None without any."""
    if not text:
        return None
    text = text_argument(text, option)
    pairs = [part.split("=", 1) for part in text.split(",")]
    if any(len(pair) != 2 or not pair[0].strip() or not pair[1].strip() for pair in pairs):
        raise UserError(f"{option} {text}: {advice}")
    return {field.strip(): column.strip() for field, column in pairs}


def given_settings(config: Path | None, sets: list[str] | None) -> list[Setting]:
    """What --config's file says, then what --set says, so that --set counts where both say something."""
    from foretext.config import setting_of, settings_in
    from foretext.text.corpus.text_files import read_bytes

    said = [setting_of(one) for one in sets or ()]
    if config is None:
        return said
    try:
        text = read_bytes(config).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{config}: not UTF-8 at byte offset {error.start}; save the file as UTF-8") from None
    return [*settings_in(text, str(config)), *said]


def refuse(given: Mapping[str, object], why: str) -> None:
    """UserError for the first of these options that was given, which would be ignored."""
    for option, value in given.items():
        if value is not None:
            raise UserError(f"{option} {why}")


def check_output(path: Path) -> None:
    """A mistake in --out is found before the work is done, not after it."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file to write")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path}: the folder {path.parent} is not writable; choose another --out")
