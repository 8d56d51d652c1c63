"""`foretext generate`: one text as it is written, several at once, or beam search."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretext.cli.input import Json, lines_of, reading_model, standard_input, text_argument
from foretext.errors import refuse, refuse_if

if TYPE_CHECKING:
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
