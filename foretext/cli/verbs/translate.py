"""`foretext translate`: translate sentences with a run of cove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import Errors, Json, check_output, language_model, lines_of, standard_input, text_argument
from foretext.cli.output import progress, visible
from foretext.errors import counted, refuse_if
from foretext.text.corpus.text_files import text_lines, write_whole

if TYPE_CHECKING:
    from foretext.evaluate.translation import TranslationAttention


def translate(
    run: Annotated[Path, typer.Argument(help="A run of pretrain --system cove.")],
    text: Annotated[
        str, typer.Argument(help="A file with one sentence per line, - for standard input, or the text itself.")
    ],
    out: Annotated[Path | None, typer.Option(help="The file to write (default: standard output).")] = None,
    beams: Annotated[int, typer.Option(help="Beam size; 1: greedy.")] = 5,
    show_attention: Annotated[
        bool, typer.Option("--show-attention", help="Below each line, show where each word of the translation attends.")
    ] = False,
    errors: Errors = "strict",
    as_json: Json = False,
) -> None:
    """Translate sentences, line by line."""
    if out is not None:
        check_output(out)
    lines = _sentences(text, errors)
    refuse_if(
        not any(line.strip() for line in lines),
        "nothing to translate: give a file or a text, or write lines to standard input",
    )
    model, show_progress = language_model(run), progress("translating")
    if show_attention:
        attention = model.translation_attention(lines, None, beams, show_progress)
        shown = [json.dumps(of.to_dict(), ensure_ascii=False) if as_json else _looks(of) for of in attention]
    else:
        shown = model.translate(lines, beams, show_progress)
        if as_json:
            records = [{"text": line, "translation": translation} for line, translation in zip(lines, shown)]
            shown = [json.dumps(record, ensure_ascii=False) for record in records]
    written = "".join(f"{line}\n" for line in shown)
    if out is None:
        typer.echo(written, nl=False)
        return
    write_whole(out, written.encode("utf-8"))
    typer.echo(f"{counted(len(shown), 'translation')} in {out}", err=True)


def _looks(attention: TranslationAttention) -> str:
    """A translation, and for each of its words the source word with the most attention. If the source has that word
    several times, its position is given too."""
    from rich.cells import cell_len

    names = [
        f"{visible(word)}({place})" if attention.source.count(word) > 1 else visible(word)
        for place, word in enumerate(attention.source, 1)
    ]
    wide = max(map(cell_len, names), default=0)
    words = [visible(word) for word in attention.target]
    first = max(map(cell_len, words), default=0)
    lines = [attention.translation]
    for row, word in enumerate(words):
        most = ((names[place], weight) for place, weight in attention.most(row))
        seen = (f"{name}{' ' * (wide - cell_len(name))} {weight:.2f}" for name, weight in most)
        lines.append(f"  {word}{' ' * (first - cell_len(word))}  {'  '.join(seen)}")
    if attention.unknown:
        lines.append(f"  not in the vocabulary: {', '.join(map(visible, attention.unknown))}")
    return "\n".join([*lines, ""] if words else lines)


def _sentences(given: str, errors: str) -> list[str]:
    """The lines of a file or of standard input, or those of the text itself. An argument that can only be a file name
    must exist."""
    if given == "-":
        return list(text_lines(standard_input(errors)))
    text = text_argument(given, "TEXT", "pass it in a file or on standard input with --errors replace")
    path = Path(text)
    looks_like_one = len(text.split()) == 1 and ("/" in text or "." in text.strip(".!?…"))
    try:
        exists = path.is_file() or (looks_like_one and path.exists())  # a word may also be the name of a folder
    except OSError:  # too long for a file name
        exists = False
    refuse_if(not exists and looks_like_one, f"{text}: no such file; check the path")
    if not exists:
        return [text.replace("\n", " ")]
    return lines_of(path, errors)
