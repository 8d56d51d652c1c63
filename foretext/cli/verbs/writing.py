"""`foretext generate`, `translate` and `fill`: what a pre-trained run writes. One text as it is written, several at
once, or beam search; translations by a run of cove; what a masked model predicts for blanks."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import (
    Errors,
    Json,
    RunArgument,
    check_output,
    language_model,
    lines_of,
    reading_model,
    standard_input,
    text_argument,
)
from foretext.cli.output import progress, show, visible
from foretext.errors import counted, refuse, refuse_if
from foretext.text.corpus.text_files import text_lines, write_whole

if TYPE_CHECKING:
    from foretext.evaluate.translation import TranslationAttention
    from foretext.generate.sampling import Sampling
    from foretext.runs.model import SavedModel


def generate(
    run: Annotated[Path, typer.Argument(help="A pre-trained run.")],
    prompt: Annotated[str, typer.Option(help="The text to continue; - reads standard input.")] = "",
    prompts: Annotated[
        Path | None,
        typer.Option(help="A file with one prompt per line: all are continued at once, output is JSON lines."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Write at most this many tokens.")] = 100,
    temperature: Annotated[float, typer.Option(help="0: always take the most likely token.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Sample from the k most likely tokens only (0: from all).")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the fewest most likely tokens whose probabilities reach this sum.")
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: tokens that have already occurred become less likely.")
    ] = 1.0,
    beams: Annotated[int, typer.Option(help="Beam search with this many beams; 0: sampling.")] = 0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this string; may be repeated.")] = None,
    log_probabilities: Annotated[
        bool, typer.Option("--log-probabilities", help="With --json or --prompts: each token and its log-probability.")
    ] = False,
    direction: Annotated[
        str | None, typer.Option(help="With elmo: forward, or backward to write what comes before the prompt.")
    ] = None,
    errors: Annotated[
        str | None,
        typer.Option(help="With --prompts, bytes that are not UTF-8: strict (an error, the default) or replace."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write text with a pre-trained model."""
    from foretext.generate.sampling import Sampling, check_beams, generate_text, text_around

    stops = tuple(text_argument(one, "--stop") for one in stop or ())
    sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, stops, repetition_penalty)
    check_beams(beams, sampling)
    refuse_if(prompts is not None and prompt, "give either --prompt or --prompts, not both")
    if prompts is None:
        refuse({"--errors": errors}, "applies to --prompts only; leave it out")
        alone = log_probabilities and not as_json
        refuse({"--log-probabilities": alone or None}, "needs --json or --prompts; add one of them")
    prompt = _given(prompt)
    model = reading_model(run, direction, "writing text")
    if prompts is not None:
        lines = [line for line in lines_of(prompts, errors or "strict") if line.strip()]
        refuse_if(not lines, f"{prompts}: no prompts; write one per line")
        _show_records(model, lines, sampling, beams, log_probabilities)
    elif as_json and (beams or log_probabilities):
        _show_records(model, [prompt], sampling, beams, log_probabilities)
    elif as_json:
        text = "".join(generate_text(model, prompt, sampling))
        typer.echo(json.dumps({"prompt": prompt, "text": text}, ensure_ascii=False))
    elif beams:
        from foretext.generate.many import best_texts

        (written,) = best_texts(model, [prompt], sampling, beams)
        typer.echo(prompt + written.text)
    else:
        for piece in text_around(model, prompt, sampling):
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")


def _given(prompt: str) -> str:
    if prompt == "-":
        return standard_input()
    return text_argument(prompt, "--prompt", "pass it on standard input (--prompt -)")


def _show_records(
    model: SavedModel, prompts: list[str], sampling: Sampling, beams: int, log_probabilities: bool
) -> None:
    """Each result as soon as it is ready, as a line of JSON."""
    from foretext.generate.many import best_texts

    tokenizer = model.tokenizer if log_probabilities else None
    for prompt, written in zip(prompts, best_texts(model, prompts, sampling, beams)):
        typer.echo(json.dumps(written.record(prompt, tokenizer), ensure_ascii=False))


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


def fill(
    run: RunArgument,
    text: Annotated[
        str, typer.Argument(help="A text with one or more blanks: [MASK], or <mask> for RoBERTa and XLNet.")
    ],
    top: Annotated[int, typer.Option(help="How many candidates per blank.")] = 5,
    as_json: Json = False,
) -> None:
    """Show what a masked model predicts for each blank of a text, with probabilities."""
    filled = language_model(run).fill(text_argument(text, "TEXT"), top)
    lines = [
        line
        for number, blank in enumerate(filled.blanks, 1)
        for line in (
            f"blank {number}",
            *(f"  {candidate.probability:7.4f}  {visible(candidate.piece)}" for candidate in blank),
        )
    ]
    record = {"text": filled.text, "blanks": [[asdict(candidate) for candidate in blank] for blank in filled.blanks]}
    show(as_json, record, [*lines, filled.text])
