"""`foretext finetune`: train a pre-trained run on a task with labelled rows."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from foretext.cli.output import Terminal, show_baselines, show_scores, watched
from foretext.errors import UserError, refuse_if
from foretext.plan import NO_TEXT, VIEWS_ALONE, views_named

if TYPE_CHECKING:
    from foretext.train.finetuning.finetune import Finetuned


def finetune(
    run: Annotated[Path | None, typer.Argument(help="The pre-trained run; leave it out with --system.")] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Labelled rows: csv, tsv, jsonl, parquet, or a published --format; CoNLL columns "
            "for tagging; SQuAD JSON for span.",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Required: classification, entailment, similarity, choice, regression, tagging or span."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The run directory to make.")] = Path("runs/task"),
    valid: Annotated[Path | None, typer.Option(help="Validation rows; without it 15 % of FILE is held out.")] = None,
    part: Annotated[
        float | None,
        typer.Option(
            "--hold-out",
            help="Share of the rows to hold out (default 0.15). 0: train on all rows and keep the last epoch.",
        ),
    ] = None,
    plan: Annotated[
        str | None, typer.Option(help="How to transfer: paper, gpt or ulmfit (default: as the run's size does it).")
    ] = None,
    lm_weight: Annotated[
        float | None, typer.Option(help="Weight of the language-model loss: λ in L3 = L2 + λ·L1.")
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(help="With elmo: the direction whose language-model loss is λ·L1, forward or backward."),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Transfer only the embeddings and the first n blocks.")] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Keep RUN's configuration and tokenizer, but draw new weights.")
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(help="Instead of RUN: a new model of this system (cvt), or views: no trunk, only views."),
    ] = None,
    size: Annotated[str | None, typer.Option(help="With --system: tiny (the default), small or paper.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="With --system views: unlabelled text to learn word vectors and topics from (default: the rows' own "
            "texts)."
        ),
    ] = None,
    text_column: TextColumn = None,
    minutes: Annotated[
        float | None, typer.Option(help="With --system views: minutes to learn from --text (default 1).")
    ] = None,
    unlabelled: Annotated[
        list[str] | None,
        typer.Option(
            help="Unlabelled text to learn from as well. With views: files as pretrain reads them (default: the text "
            "of pre-training; none: no text). With cvt: one sentence per line."
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            help="With --system cvt: another task to train on as well, such as tagging=names.txt or names.txt:tag=2."
        ),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Word vectors, a file or a word2vec run: for --views, elmo, cove and --system cvt."),
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(
            help="Train one head over some of ngrams,lsa,vectors,states,tuned (tuned: fine-tune RUN too). "
            "none: the trunk alone."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows (default: as the size does it).")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
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
    """Train a pre-trained model on a task with labelled rows."""
    from foretext.tasks.family import family_of, layout_name
    from foretext.train.finetuning.finetune_request import Base, FinetuneRequest

    format = layout_name(format)
    if system is not None and file is None:  # the only argument is the file
        run, file = None, run
    kind, file = _task_and_rows(run, file, system, task, format, resume)
    refuse_if(
        text_column is not None and not (text or unlabelled),
        "--text-column needs tables given with --text or --unlabelled; leave it out",
    )
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
        trained = train(request, terminal, stopper)
    _show(trained, terminal, as_json)  # outside `watched`: the run is complete, so a signal may end this at once
    terminal.note(f"the model is in {out}; next: foretext predict {out} {family_of(kind).next_step}")


def _show(trained: Finetuned, terminal: Terminal, as_json: bool) -> None:
    """The scores on the rows held out, beside those of the cheap baselines."""
    scores = trained.scores(terminal) if as_json else trained.validated
    if scores is None:
        if as_json:
            typer.echo("null")
        return
    trained = trained.with_rivals()
    rivals = {rival.name: {rival.metric: rival.value} for rival in trained.rivals}
    beside = {"of": trained.how, "epochs_compared": trained.compared, "baselines": rivals}
    show_scores(scores, as_json, f"{trained.how}:\n", beside)
    if as_json:
        return
    if trained.compared > 1:
        typer.echo(
            f"this is the best of {trained.compared} epochs, chosen on these same rows, so the score is optimistic; "
            "measure the model on other rows (foretext evaluate)"
        )
    show_baselines(scores, trained.rivals)


def _unlabelled(files: list[str] | None, sentences: bool, column: str | None, errors: str) -> list[str]:
    """Unlabelled text: documents for views, sentences for cvt."""
    if not files or files == [NO_TEXT]:
        return []
    return unlabelled_lines(files, errors) if sentences else read_texts(files, column, "auto", errors)


def _task_and_rows(
    run: Path | None, file: Path | None, system: str | None, task: str | None, format: str | None, resume: bool
) -> tuple[str, Path]:
    """The task and the file of rows; UserError if something required is missing."""
    from foretext.tasks.family import KINDS
    from foretext.tasks.files.rows import kind_of

    named = file is not None and (run is not None or system is not None)
    refuse_if(
        resume and not (named and task is not None),
        "--resume needs the same command again: RUN, FILE and --task (a run does not keep the rows); add them",
    )
    if file is None or not named:
        only = "" if run is None else f" (only {run} was given)"
        raise UserError(
            f"give a run and a file of rows{only}, or --system NAME and a file of rows (--system views needs no run)"
        )
    if task is None:
        raise UserError(f"name the task: --task {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    return kind_of(task, format), file
