"""`foretext finetune`: a task model of labelled rows and a pre-trained run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from foretext.cli.input import (
    Columns,
    Config,
    Device,
    Errors,
    Format,
    Json,
    Metric,
    Resume,
    Sets,
    TextColumn,
    given_settings,
    labelled_rows,
    other_tasks,
    parse_columns,
    read_texts,
    unlabelled_lines,
)
from foretext.cli.output import show_baselines, show_optimism, show_scores, watched
from foretext.errors import UserError
from foretext.plan import NO_TEXT, VIEWS_ALONE, views_named


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
    system: Annotated[
        str | None, typer.Option(help="Instead of RUN: a new model (cvt, …), or views alone: views.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="With --system: tiny (the default), small, paper.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="With --system views: unlabelled text to learn words and topics of; else the rows' texts."),
    ] = None,
    text_column: TextColumn = None,
    minutes: Annotated[float | None, typer.Option(help="With --system views: for that text (the default: 1).")] = None,
    unlabelled: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to learn from too: of views as pretrain reads it (without it that of pre-training; none: none); "
            "of cvt a sentence a line."
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="With --system cvt: another task beside it, as tagging=names.txt or names.txt:tag=2."),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Word vectors, a file or a word2vec run: for --views, elmo, cove, --system cvt."),
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(help="One head over some of ngrams,lsa,vectors,states,tuned (tuned: RUN fine-tuned); or none."),
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
    from foretext.tasks.family import family_of, layout_name
    from foretext.train.finetuning.finetune_request import Base, FinetuneRequest

    format = layout_name(format)
    if system is not None and file is None:  # the one argument is the file
        run, file = None, run
    kind, file = _asked(run, file, system, task, format, resume)
    if text_column is not None and not (text or unlabelled):
        raise UserError("--text-column is for tables of --text or --unlabelled; leave it out")
    own_column = text_column if text else None
    base = Base(run, system, size, vectors, direction, tuple(text or ()), own_column, errors, minutes)
    settings, names = given_settings(config, sets), parse_columns(columns)
    read = functools.partial(labelled_rows, task=kind, columns=names, format=format, errors=errors)
    sentences = system not in (None, VIEWS_ALONE) and views is None
    request = FinetuneRequest(
        base=base,
        rows=read(file),
        kind=kind,
        out=out,
        also=other_tasks(also or [], kind, format, errors),
        unlabelled=_unlabelled(unlabelled, sentences, text_column, errors),
        own_text=not unlabelled and views is None,
        valid=None if valid is None else read(valid),
        hold_out=part,
        seed=seed,
        epochs=epochs,
        plan=plan,
        lm_weight=lm_weight,
        layers=layers,
        from_scratch=from_scratch,
        columns=names,
        format=format,
        metric=metric,
        views=views_named(views),
        sets=tuple(settings),
        resume=resume,
        device=device,
    )
    from foretext.train.finetuning.finetune import finetune as train

    with watched() as (terminal, stopper):
        made = train(request, terminal, stopper)
    scores = made.scores(terminal) if as_json else made.validated
    if scores is not None:
        made = made.with_rivals()  # outside of `watched`: a signal ends it at once, and the run is whole
        rivals = {rival.name: {rival.metric: rival.value} for rival in made.rivals}
        beside = {"of": made.how, "epochs_compared": made.compared, "baselines": rivals}
        show_scores(scores, as_json, f"{made.how}:\n", beside)
        if not as_json:
            show_optimism(made.compared)
            show_baselines(scores, made.rivals)
    elif as_json:
        typer.echo("null")
    terminal.note(f"the model is in {out}; next: foretext predict {out} {family_of(kind).next_step}")


def _unlabelled(files: list[str] | None, sentences: bool, column: str | None, errors: str) -> list[str]:
    """Unlabelled text: documents for views, sentences for a system that learns from these."""
    if not files or files == [NO_TEXT]:
        return []
    return unlabelled_lines(files, errors) if sentences else read_texts(files, column, "auto", errors)


def _asked(
    run: Path | None, file: Path | None, system: str | None, task: str | None, format: str | None, resume: bool
) -> tuple[str, Path]:
    """The kind of task and the file of rows; UserError for what has to be named and is not."""
    from foretext.tasks.family import KINDS
    from foretext.tasks.files.rows import kind_of

    named = file is not None and (run is not None or system is not None)
    if resume and not (named and task is not None):
        raise UserError(
            "--resume takes the same command again: RUN, FILE and --task (the rows are not kept in a run); add them"
        )
    if file is None or not named:
        only = "" if run is None else f" (only {run} is given)"
        raise UserError(
            f"name a run and a file of rows{only}, or --system NAME and a file of rows (--system views needs no run)"
        )
    if task is None:
        raise UserError(f"say what to learn: --task {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    return kind_of(task, format), file
