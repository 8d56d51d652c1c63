"""`foretext generate`: one text as it is written, several at once, or beam search."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import Json, lines_of, reading_model, standard_input, text_argument
from foretext.errors import refuse, refuse_if

if TYPE_CHECKING:
    from foretext.generate.many import Written
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
    from foretext.generate.sampling import Sampling

    stops = tuple(text_argument(one, "--stop") for one in stop or ())
    sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, stops, repetition_penalty)
    _check_beams(beams, sampling)
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
        for line, written in zip(lines, _best(model, lines, sampling, beams)):
            typer.echo(_json(model, line, written, log_probabilities))
    elif beams or log_probabilities:
        (written,) = _best(model, [prompt], sampling, beams)
        typer.echo(_json(model, prompt, written, log_probabilities) if as_json else prompt + written.text)
    else:
        _stream(model, prompt, sampling, as_json)


def _given(prompt: str) -> str:
    if prompt == "-":
        return standard_input()
    return text_argument(prompt, "--prompt", "pass it on standard input (--prompt -)")


def _check_beams(beams: int, sampling: Sampling) -> None:
    refuse_if(beams < 0, f"--beams must be 0 (sampling) or more, not {beams}")
    refuse_if(
        beams and sampling != replace(sampling, temperature=1.0, top_k=0, top_p=1.0, seed=None),
        "--beams searches for the most likely text and does not sample: leave out the sampling options",
    )


def _stream(model: SavedModel, prompt: str, sampling: Sampling, as_json: bool) -> None:
    from foretext.generate.sampling import generate_text

    pieces = generate_text(model, prompt, sampling)
    if as_json:
        typer.echo(json.dumps({"prompt": prompt, "text": "".join(pieces)}, ensure_ascii=False))
        return
    first = next(pieces, "")  # a prompt that cannot be continued fails here, before anything is shown
    if model.info.direction == "forward":
        sys.stdout.write(prompt)
    for piece in itertools.chain([first], pieces):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write(prompt + "\n" if model.info.direction == "backward" else "\n")


def _best(model: SavedModel, prompts: list[str], sampling: Sampling, beams: int) -> Iterator[Written]:
    """One prompt after the other, so that each result is shown as soon as it is ready."""
    from foretext.generate.many import beam_search, write_in_turn

    if beams:
        return (beam_search(model, one, beams, sampling)[0][0] for one in prompts)
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
