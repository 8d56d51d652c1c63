"""What writes text. `foretext generate`: one text as it comes, several at once, or the best of beams. `foretext
translate`: sentences by a run that was trained to translate."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import (
    Errors,
    Json,
    check_output,
    language_model,
    lines_of,
    reading_model,
    standard_input,
    text_argument,
)
from foretext.cli.output import progress, visible
from foretext.errors import refuse, refuse_if
from foretext.text.corpus.text_files import text_lines, write_whole

if TYPE_CHECKING:
    from foretext.evaluate.translation import TranslationAttention
    from foretext.generate.many import Written
    from foretext.generate.sampling import Sampling
    from foretext.runs.model import SavedModel


def generate(
    run: Annotated[Path, typer.Argument(help="A pre-trained run.")],
    prompt: Annotated[str, typer.Option(help="What to go on from; - reads standard input.")] = "",
    prompts: Annotated[
        Path | None, typer.Option(help="A file with a prompt a line: all at once, JSON lines out.")
    ] = None,
    max_tokens: Annotated[int, typer.Option()] = 100,
    temperature: Annotated[float, typer.Option(help="0 takes the best token each time.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="0: no limit.")] = 0,
    top_p: Annotated[float, typer.Option()] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: what is there already becomes less likely.")
    ] = 1.0,
    beams: Annotated[int, typer.Option(help="Beam search with so many; 0: sampling.")] = 0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string; may be repeated.")] = None,
    log_probabilities: Annotated[
        bool, typer.Option("--log-probabilities", help="With --json: each token and its log-probability.")
    ] = False,
    direction: Annotated[
        str | None, typer.Option(help="elmo: forward, or backward, which writes what stands before the prompt.")
    ] = None,
    errors: Annotated[
        str | None, typer.Option(help="--prompts: bytes that are not UTF-8: strict (an error, the default) or replace.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write text with a pre-trained model, as it comes."""
    from foretext.generate.sampling import Sampling

    stops = tuple(text_argument(one, "--stop") for one in stop or ())
    sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, stops, repetition_penalty)
    refuse_if(prompts is not None and prompt, "give either --prompt or --prompts, not both")
    if prompts is None:
        refuse({"--errors": errors}, "is for the file of --prompts; leave it out")
        alone = log_probabilities and not as_json
        refuse({"--log-probabilities": alone or None}, "are for --json or --prompts; add one")
    refuse_if(beams < 0, f"--beams must be 0 (sampling) or more, not {beams}")
    refuse_if(
        beams and sampling != replace(sampling, temperature=1.0, top_k=0, top_p=1.0, seed=None),
        "--beams looks for the most likely text, without chance: leave out the options of sampling",
    )
    prompt = (
        standard_input()
        if prompt == "-"
        else text_argument(prompt, "--prompt", "give it on standard input (--prompt -)")
    )
    model = reading_model(run, direction, "writing text")
    if prompts is not None:
        lines = [line for line in lines_of(prompts, errors or "strict") if line.strip()]
        refuse_if(not lines, f"{prompts}: no prompts; write one a line")
        for line, written in zip(lines, _best(model, lines, sampling, beams)):
            typer.echo(_json(model, line, written, log_probabilities))
    elif beams or log_probabilities:
        (written,) = _best(model, [prompt], sampling, beams)
        typer.echo(_json(model, prompt, written, log_probabilities) if as_json else prompt + written.text)
    else:
        _stream(model, prompt, sampling, as_json)


def _stream(model: SavedModel, prompt: str, sampling: Sampling, as_json: bool) -> None:
    from foretext.generate.sampling import generate_text

    pieces = generate_text(model, prompt, sampling)
    if as_json:
        typer.echo(json.dumps({"prompt": prompt, "text": "".join(pieces)}, ensure_ascii=False))
        return
    first = next(pieces, "")  # what cannot be gone on with says so here, before anything is shown
    if model.info.direction == "forward":
        sys.stdout.write(prompt)
    for piece in itertools.chain([first], pieces):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write(prompt + "\n" if model.info.direction == "backward" else "\n")


def _best(model: SavedModel, prompts: list[str], sampling: Sampling, beams: int) -> Iterator[Written]:
    """One after the other, so that each is shown when it is there."""
    from foretext.generate.many import beam_search, write_in_turn

    if beams:
        most, stop, penalty = sampling.max_tokens, sampling.stop, sampling.repetition_penalty
        return (beam_search(model, one, beams, most, 1.0, stop, penalty)[0][0] for one in prompts)
    return write_in_turn(model, prompts, sampling)


def _json(model: SavedModel, prompt: str, written: Written, log_probabilities: bool) -> str:
    record: dict[str, object] = {"prompt": prompt, "text": written.text, "ending": written.ending}
    if log_probabilities:
        pieces = [model.tokenizer.piece(number) for number in written.ids]
        record["tokens"] = [
            {"id": number, "piece": piece, "log_probability": value}
            for number, piece, value in zip(written.ids, pieces, written.log_probabilities)
        ]
    return json.dumps(record, ensure_ascii=False)


# -- translations ------------------------------------------------------------------------------------------------------


def translate(
    run: Annotated[Path, typer.Argument(help="A run of pretrain --system cove.")],
    text: Annotated[str, typer.Argument(help="A file with a sentence a line, - for standard input, or the text.")],
    out: Annotated[Path | None, typer.Option(help="A file for the translations; without it standard output.")] = None,
    beams: Annotated[int, typer.Option(help="Hypotheses that are kept; 1: the likeliest word each time.")] = 5,
    show_attention: Annotated[
        bool, typer.Option("--show-attention", help="Under each line, where each word of the translation looks.")
    ] = False,
    errors: Errors = "strict",
    as_json: Json = False,
) -> None:
    """Translate sentences, a line for each line."""
    if out is not None:
        check_output(out)
    lines = _sentences(text, errors)
    refuse_if(
        not any(line.strip() for line in lines),
        "nothing to translate: name a file, give a text, or write lines to standard input",
    )
    model, told = language_model(run), progress("translating")
    if show_attention:
        looked = model.translation_attention(lines, None, beams, told)
        found = [json.dumps(one.to_dict(), ensure_ascii=False) if as_json else _looks(one) for one in looked]
    else:
        found = model.translate(lines, beams, told)
        if as_json:
            found = [
                json.dumps({"text": text, "translation": line}, ensure_ascii=False) for text, line in zip(lines, found)
            ]
    written = "".join(f"{line}\n" for line in found)
    if out is None:
        typer.echo(written, nl=False)
        return
    write_whole(out, written.encode("utf-8"))
    typer.echo(f"{len(found):,} translations in {out}", err=True)


def _looks(found: TranslationAttention) -> str:
    """A translation, and under it a row for each of its words: what it looks at most. Of a word that the source has
    several times the place is said too."""
    from rich.cells import cell_len

    names = [
        f"{visible(word)}({place})" if found.source.count(word) > 1 else visible(word)
        for place, word in enumerate(found.source, 1)
    ]
    wide = max(map(cell_len, names), default=0)
    words = [visible(word) for word in found.target]
    first = max(map(cell_len, words), default=0)
    lines = [found.translation]
    for row, word in enumerate(words):
        most = ((names[place], weight) for place, weight in found.most(row))
        seen = (f"{name}{' ' * (wide - cell_len(name))} {weight:.2f}" for name, weight in most)
        lines.append(f"  {word}{' ' * (first - cell_len(word))}  {'  '.join(seen)}")
    if found.unknown:
        lines.append(f"  not in the vocabulary: {', '.join(map(visible, found.unknown))}")
    return "\n".join([*lines, ""] if words else lines)


def _sentences(given: str, errors: str) -> list[str]:
    """The lines of a file or of standard input, or a text's. What can only be meant as a file has to be one."""
    if given == "-":
        return list(text_lines(standard_input(errors)))
    text = text_argument(given, "TEXT", "give it in a file or on standard input with --errors replace")
    path = Path(text)
    looks_like_one = len(text.split()) == 1 and ("/" in text or "." in text.strip(".!?…"))
    try:
        there = path.is_file() or (looks_like_one and path.exists())  # a word may be the name of a folder too
    except OSError:  # far too long for a name
        there = False
    refuse_if(not there and looks_like_one, f"{text}: no such file; check the path")
    if not there:
        return [text.replace("\n", " ")]
    return lines_of(path, errors)
