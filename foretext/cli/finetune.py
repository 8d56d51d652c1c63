"""`foretext pretrain` and `finetune`: the verbs that train a model and make a run directory."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import labelled_rows, language_model, other_tasks, unlabelled_lines
from foretext.cli.options import (
    Columns,
    Config,
    Device,
    Errors,
    Format,
    Json,
    Metric,
    Resume,
    Sets,
    Source,
    Target,
    TextColumn,
    given_settings,
    parse_columns,
)
from foretext.cli.output import show_validation
from foretext.errors import UserError


class Direction(enum.StrEnum):
    forward = "forward"
    backward = "backward"


def pretrain(
    text: Annotated[
        list[str] | None, typer.Argument(help="Files, folders, globs; txt, jsonl, csv, tsv, parquet.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run directory to make.")] = Path("runs/base"),
    system: Annotated[str | None, typer.Option(help="Which system (the default: gpt); see `foretext systems`.")] = None,
    size: Annotated[str | None, typer.Option(help="tiny (the default: minutes on 2 cores), small, paper.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget in minutes of training.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in updates.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget in tokens.")] = None,
    direction: Annotated[Direction | None, typer.Option(help="forward, or backward: right to left.")] = None,
    seed: Annotated[int | None, typer.Option(help="0 unless given.")] = None,
    start: Annotated[Path | None, typer.Option("--from", help="Go on from this run, with new text.")] = None,
    new_vocabulary: Annotated[
        bool, typer.Option("--new-vocabulary", help="With --from: a vocabulary of the new text; known pieces are kept.")
    ] = False,
    vocabulary: Annotated[Path | None, typer.Option(help="A published vocabulary: its folder, or its file.")] = None,
    source: Source = None,
    target: Target = None,
    vectors: Annotated[Path | None, typer.Option(help="For cove: the source's word vectors, text or gzip.")] = None,
    text_column: TextColumn = None,
    documents: Annotated[
        str | None, typer.Option(help="What is a document in .txt: auto (the default), line, blank, file.")
    ] = None,
    errors: Annotated[
        str | None, typer.Option(help="Bytes that are not UTF-8: strict (the default: an error), replace (counted).")
    ] = None,
    resume: Resume = False,
    device: Device = "auto",
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Pre-train a language model on unlabelled text."""
    from foretext.cli.terminal import Terminal
    from foretext.runs.budget import Budget
    from foretext.train.pretraining.pretrain import pretrain as run
    from foretext.train.pretraining.pretrain_request import PretrainRequest
    from foretext.train.signals import Stopper

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
    )
    terminal = Terminal()
    try:
        with Stopper(terminal.note) as stopper:
            path = run(request, terminal, stopper)
    finally:
        terminal.close()
    terminal.note(f"the model is in {path}; next: foretext finetune {path} train.csv --task …")


def finetune(
    run: Annotated[Path | None, typer.Argument(help="The pre-trained run; left out with --system.")] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Labelled rows: csv, tsv, jsonl, parquet, --format; CoNLL columns; SQuAD JSON.", show_default=False
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Needed: classification, entailment, similarity, choice, regression, tagging, span."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The run directory to make.")] = Path("runs/task"),
    valid: Annotated[Path | None, typer.Option(help="Validation rows; without it 15 % are held out.")] = None,
    part: Annotated[
        float | None, typer.Option("--hold-out", help="Another part than .15; 0: none, the last epoch is kept.")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(help="A way of transfer: paper, gpt, ulmfit; without it the size's own.")
    ] = None,
    lm_weight: Annotated[float | None, typer.Option(help="λ in L3 = L2 + λ·L1.")] = None,
    direction: Annotated[str | None, typer.Option(help="elmo: which direction has λ·L1, forward or backward.")] = None,
    layers: Annotated[int | None, typer.Option(help="Transfer the embeddings and the first n blocks only.")] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="RUN's shape and tokenizer, new weights.")
    ] = False,
    system: Annotated[str | None, typer.Option(help="Instead of RUN: a new model and vocabulary.")] = None,
    size: Annotated[str | None, typer.Option(help="With --system: tiny (the default), small, paper.")] = None,
    unlabelled: Annotated[
        list[str] | None, typer.Option(help="With --system cvt: text to learn from too, a sentence a line.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="With --system cvt: another task beside it, as tagging=names.txt or names.txt:tag=2."),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="With --system cvt: what the words' vectors start as, text or gzip.")
    ] = None,
    epochs: Annotated[int | None, typer.Option()] = None,
    seed: Annotated[int, typer.Option()] = 0,
    columns: Columns = "",
    format: Format = None,
    metric: Metric = None,
    errors: Errors = "strict",
    resume: Resume = False,
    device: Device = "auto",
    config: Config = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Teach a pre-trained model a task from labelled rows."""
    from foretext.cli.terminal import Terminal
    from foretext.tasks.families import KINDS, family_of
    from foretext.tasks.files.formats import kind_of
    from foretext.tasks.files.remembered import layout_name
    from foretext.tasks.splits import DEFAULT_FRACTION

    format = layout_name(format)
    complete = run is not None and task is not None and (file is not None or system is not None)
    if resume and not complete:
        raise UserError(
            "--resume takes the same command again: RUN, FILE and --task (the rows are not kept in a run); add them"
        )
    if run is None or (system is None and file is None):
        only = "" if run is None else f" (only {run} is given)"
        raise UserError(f"name a run and a file of rows{only}, or --system NAME and a file of rows")
    if task is None:
        raise UserError(f"say what to learn: --task {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    task = kind_of(task, format)
    if system is not None and file is not None:
        raise UserError("--system starts from nothing: give the file of rows without a run, or leave out --system")
    if system is None and vectors is not None:
        raise UserError(f"--vectors is for a new model (--system cvt), and {run} has its words already; leave it out")
    if system is None and size is not None:
        raise UserError(f"--size is for a new model (--system), and {run} has its size already; leave it out")
    settings = given_settings(config, sets)
    names = parse_columns(columns)
    rows = labelled_rows(file or run, task, names, format, errors)
    others = other_tasks(also or [], task, format, errors)
    text = unlabelled_lines(unlabelled, errors) if unlabelled else []
    if valid is not None and part is not None:
        raise UserError("--hold-out is for rows without --valid; leave out one of them")
    split = family_of(task).hold_out(rows, DEFAULT_FRACTION if part is None else part, seed)
    held_out = split.valid if valid is None else labelled_rows(valid, task, names, format, errors)
    from foretext.api import LanguageModel, new_model
    from foretext.runs.budget import is_finished
    from foretext.runs.directory import RunDirectory
    from foretext.train.signals import Stopper
    from foretext.train.untrained import begun_model

    terminal = Terminal()
    begun = RunDirectory(out)
    finished = resume and is_finished(begun)
    try:
        if system is None:
            base = language_model(run)
        else:
            shape = [one for one in settings if one.names[0] in ("model", "tokenizer")]
            settings = [one for one in settings if one.names[0] not in ("model", "tokenizer")]
            learned = split.train if valid is None else rows  # a word of rows held out is as unknown as any other
            if resume and begun.has("config.toml"):
                base = LanguageModel(begun_model(out, system, shape, vectors), out)
            else:
                base = new_model(learned, system, size or "tiny", seed, shape, terminal, task, text, others, vectors)
            from_scratch = True
        if direction is not None:
            base = base.facing(direction)  # type: ignore[arg-type]  # which says what it may be
        with Stopper(terminal.note) as stopper:
            model = base.finetune(
                rows,
                task=task,
                valid=None if valid is None else held_out,
                out=out,
                seed=seed,
                epochs=epochs,
                plan=plan,
                lm_weight=lm_weight,
                layers=layers,
                from_scratch=from_scratch,
                columns=names,
                format=format,
                metric=metric,
                hold_out=part,
                unlabelled=text,
                also=others,
                sets=settings,
                resume=resume,
                device=device,
                reporter=terminal,
                stopping=stopper,
            )
    finally:
        terminal.close()
    undrawn = bool(held_out) and model.draws_confusion and not (out / "confusion.png").exists()
    if not finished:
        show_validation(model, held_out, out, as_json)
    elif as_json or undrawn:
        show_validation(model, held_out, out if undrawn else None, as_json)
    terminal.note(f"the model is in {out}; next: foretext predict {out} {model.family.next_step}")
