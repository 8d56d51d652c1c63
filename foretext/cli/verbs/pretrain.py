"""`foretext pretrain`: train a language model on unlabelled text."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import Config, Device, Resume, Sets, Source, Target, TextColumn, given_settings
from foretext.cli.output import watched


class Direction(enum.StrEnum):
    forward = "forward"
    backward = "backward"


def pretrain(
    text: Annotated[
        list[str] | None, typer.Argument(help="Files, folders or globs of txt, jsonl, csv, tsv, parquet.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run directory to make.")] = Path("runs/base"),
    system: Annotated[str | None, typer.Option(help="The system (default gpt); `foretext systems` lists them.")] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="tiny (default: minutes on 2 cores), small or paper. The default of modern follows from --minutes."
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget in minutes of training.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in updates (steps).")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget in tokens.")] = None,
    direction: Annotated[Direction | None, typer.Option(help="forward, or backward: read right to left.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (default 0).")] = None,
    start: Annotated[Path | None, typer.Option("--from", help="Continue from this run, on new text.")] = None,
    new_vocabulary: Annotated[
        bool,
        typer.Option(
            "--new-vocabulary",
            help="With --from: learn a vocabulary from the new text; known pieces keep their embeddings.",
        ),
    ] = False,
    vocabulary: Annotated[Path | None, typer.Option(help="A published vocabulary to use: its folder or file.")] = None,
    source: Source = None,
    target: Target = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="A word2vec run to put beside the model instead of learning one; none: no word vectors. For cove: the "
            "source language's vectors, a run or a file."
        ),
    ] = None,
    text_column: TextColumn = None,
    documents: Annotated[
        str | None,
        typer.Option(help="What counts as one document in a .txt file: auto (the default), line, blank or file."),
    ] = None,
    errors: Annotated[
        str | None,
        typer.Option(
            help="Bytes that are not UTF-8: strict (the default: an error) or replace (replaced and counted)."
        ),
    ] = None,
    resume: Resume = False,
    device: Device = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads; with 1, word2vec is reproducible.")] = None,
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Pre-train a language model on unlabelled text."""
    from foretext.runs.run_config import Budget
    from foretext.train.pretraining.pretrain import pretrain as run
    from foretext.train.pretraining.pretrain_request import PretrainRequest

    given = (minutes, steps, tokens)
    request = PretrainRequest(
        inputs=tuple(text or ()),
        out=out,
        system=system,
        size=size,
        budget=None if all(value is None for value in given) else Budget(*given),
        direction=direction.value if direction else None,
        seed=seed,
        sets=tuple(given_settings(config, sets)),
        resume=resume,
        start=start,
        new_vocabulary=new_vocabulary,
        vocabulary=vocabulary,
        source=source,
        target=target,
        vectors=vectors,
        column=text_column,
        documents=documents,
        errors=errors,
        device=device,
        threads=threads,
    )
    with watched() as (terminal, stopper):
        path = run(request, terminal, stopper)
    terminal.note(f"the model is in {path}; next: foretext finetune {path} train.csv --task …")
