"""The command line. Each verb reads its arguments here and leaves the work to the package; torch is imported only by
verbs that need it."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from foretext import __version__
from foretext.cli_generate import generate
from foretext.cli_input import (
    averaged_model,
    check_output,
    given_settings,
    labelled_rows,
    language_model,
    load_run,
    other_tasks,
    parse_columns,
    read_texts,
    rows_for,
    rows_to_predict,
    task_model,
    text_argument,
    unlabelled_lines,
)
from foretext.cli_inside import attention, features, fill
from foretext.cli_output import progress, run_app, show_perplexity, show_validation
from foretext.cli_prompt import prompt
from foretext.cli_translate import evaluate_translations, translate
from foretext.errors import UserError

app = typer.Typer(
    help="From a pile of unlabelled text and a few labels to a working language model.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

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


class Direction(enum.StrEnum):
    forward = "forward"
    backward = "backward"


@app.command()
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
    from foretext.terminal import Terminal
    from foretext.train.budget import Budget
    from foretext.train.pretrain import pretrain as run
    from foretext.train.pretrain_request import PretrainRequest
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


@app.command()
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
    plan: Annotated[str | None, typer.Option(help="A way of transfer: gpt, ulmfit; without it the size's own.")] = None,
    lm_weight: Annotated[float | None, typer.Option(help="λ in L3 = L2 + λ·L1.")] = None,
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
    from foretext.tasks.families import KINDS, family_of
    from foretext.tasks.remembered import layout_name
    from foretext.tasks.splits import DEFAULT_FRACTION
    from foretext.terminal import Terminal

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
    from foretext.train.fresh import begun_model
    from foretext.train.loop import is_finished
    from foretext.train.rundir import RunDirectory
    from foretext.train.signals import Stopper

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


@app.command()
def predict(
    run: RunArgument,
    file: Annotated[Path | None, typer.Argument(help="Rows to predict; without it --text or standard input.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A text to predict; the parts of one pair or choice; question, passage.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="csv, tsv, jsonl, parquet; tags also txt, answers json; or standard output.")
    ] = None,
    others: With = None,
    columns: Columns = "",
    format: Format = None,
    errors: Errors = "strict",
    as_json: Json = False,
) -> None:
    """Predict labels, choices, scores, tags or answers, with probabilities."""
    from foretext.tasks.predictions import output_text, write_output
    from foretext.terminal import Terminal

    if out is not None:
        check_output(out)
    model = averaged_model(task_model(run), others)
    form = model.family.form(out, as_json)
    read = rows_to_predict(model, file, text, parse_columns(columns), format, errors)
    predictions = model.predictions(read.rows, progress("predicting"), Terminal())
    notes: list[str] = []
    result = model.family.output(read, predictions, form, notes)
    for note in notes:
        typer.echo(note, err=True)
    if out is not None:
        write_output(result, out, form)
        typer.echo(f"{len(read.rows):,} predictions in {out}", err=True)
    else:
        typer.echo(output_text(result, form), nl=False)


@app.command()
def evaluate(
    run: RunArgument,
    files: Annotated[
        list[str] | None, typer.Argument(help="Text for a pre-trained run, labelled rows for a fine-tuned one.")
    ] = None,
    source: Source = None,
    target: Target = None,
    beams: Annotated[
        int | None, typer.Option(help="For --source: hypotheses that are kept (default 5); 1: greedy.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="For --target: zh, ja or ko, which BLEU splits into words.")
    ] = None,
    stride: Annotated[int | None, typer.Option(help="Tokens scored a window; default half the context.")] = None,
    memory: Annotated[
        int | None, typer.Option(help="transformer_xl: tokens before each that are seen; default as configured.")
    ] = None,
    others: With = None,
    columns: Columns = "",
    format: Format = None,
    metric: Metric = None,
    text_column: TextColumn = None,
    documents: Annotated[str | None, typer.Option(help="For text: auto (the default), line, blank, file.")] = None,
    errors: Errors = "strict",
    confusion: Annotated[Path | None, typer.Option(help="Write the confusion matrix as a PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Perplexity of text, the task's metrics on labelled rows, or BLEU of translations."""
    from foretext.api import LanguageModel

    if source is not None or target is not None:
        if files:
            raise UserError(f"translations are scored on --source and --target alone; leave out {files[0]}")
        other: dict[str, object] = {
            "--stride": stride,
            "--memory": memory,
            "--with": others,
            "--columns": columns or None,
            "--format": format,
        }
        other |= {"--metric": metric, "--text-column": text_column, "--documents": documents, "--confusion": confusion}
        for option, given in other.items():
            if given is not None:
                raise UserError(f"{option} is not for translations, which --source and --target are; leave it out")
        evaluate_translations(run, source, target, 5 if beams is None else beams, language or "", errors, as_json)
        return
    for option, given in {"--beams": beams, "--language": language}.items():
        if given is not None:
            raise UserError(f"{option} is for translations: give --source FILE and --target FILE, or leave it out")
    if not files:
        raise UserError("name the files to evaluate on: text, labelled rows, or --source and --target")
    if confusion is not None:
        check_output(confusion)
    model = load_run(run)
    if isinstance(model, LanguageModel):
        if model.model.system.reads == "pairs":
            raise UserError(f"{run} translates: give --source FILE --target FILE instead of {files[0]}")
        for option, given in (("columns", columns or None), ("format", format)):
            if given is not None:
                raise UserError(f"--{option} is for labelled rows, and {run} reads text; leave it out")
        if confusion is not None:
            raise UserError(f"--confusion is for classes, and {run} is a language model without a task; leave it out")
        if others:
            raise UserError(f"--with is for a task, and {run} is a language model without one; leave it out")
        if metric is not None:
            raise UserError(f"--metric is for a task, and {run} is a language model without one; leave it out")
        show_perplexity(model, read_texts(files, text_column, documents or "auto", errors), stride, as_json, memory)
        return
    from foretext.tasks.metrics import format_scores
    from foretext.tasks.pictures import confusion_matrix_png
    from foretext.terminal import Terminal

    texts_only = {"stride": stride, "memory": memory, "text-column": text_column, "documents": documents}
    for option, said in texts_only.items():
        if said is not None:
            raise UserError(f"--{option} is for text, and {run} reads labelled rows; leave it out")
    if confusion is not None and not model.draws_confusion:
        raise UserError(f"--confusion is for classes, and {run} has none (its task is {model.task}); leave it out")
    model = averaged_model(model, others)
    names = parse_columns(columns)
    rows = [row for file in files for row in rows_for(model, Path(file), names, format, errors, need_labels=True).rows]
    scores = model.evaluate(rows, progress("predicting"), metric=metric, reporter=Terminal())
    typer.echo(json.dumps(scores.to_dict(), ensure_ascii=False) if as_json else format_scores(scores))
    if confusion is not None:
        confusion_matrix_png(scores, confusion)


app.command()(generate)
app.command()(translate)


app.command()(features)
app.command()(fill)


@app.command()
def tokens(
    run: RunArgument,
    text: Annotated[list[str], typer.Argument(help="The text; several for a pair, a choice, a question.")],
    as_json: Json = False,
) -> None:
    """The pieces and ids of a text, and for a fine-tuned run the transformed sequences."""
    from foretext.inspection import aligned_pieces, pieces_of, sequences_of
    from foretext.train.rundir import RunDirectory

    text = [text_argument(part, "TEXT") for part in text]
    found = sequences_of(RunDirectory(run), text) or [pieces_of(RunDirectory(run), part) for part in text]
    if as_json:
        typer.echo(json.dumps([[{"id": i, "piece": p} for i, p in sequence] for sequence in found], ensure_ascii=False))
        return
    for sequence in found:
        typer.echo(aligned_pieces(sequence))


@app.command()
def info(run: RunArgument, as_json: Json = False) -> None:
    """What is in a run directory."""
    from foretext.inspection import describe_run, summary_of
    from foretext.train.rundir import RunDirectory

    if as_json:
        typer.echo(json.dumps(describe_run(RunDirectory(run)), ensure_ascii=False))
    else:
        typer.echo(summary_of(RunDirectory(run)))


app.command()(prompt)


app.command()(attention)


@app.command(
    "lm-eval", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def lm_eval(context: typer.Context) -> None:
    """lm-evaluation-harness on a run: --model_args run=RUN --tasks …, as its own command line has them."""
    from foretext.interop.lm_eval import run_harness

    run_harness(context.args)


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Argument(help="A Hugging Face folder, OpenAI's GPT files, or ELMo's options and hdf5.")
    ],
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickled weights too, with the restricted loader.")
    ] = False,
) -> None:
    """Make a run of weights that others trained; nothing in their folder is run."""
    from foretext.interop.exchange import import_model

    notes: list[str] = []
    path = import_model(source, out, allow_pickle, notes)
    for note in notes:
        typer.echo(note, err=True)
    typer.echo(f"the model is in {path}; next: foretext info {path}", err=True)


@app.command()
def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    to: Annotated[str, typer.Option(help="hf: a folder that transformers loads.")] = "hf",
) -> None:
    """Write a run's model for other libraries."""
    from foretext.interop.exchange import export_model

    for note in export_model(run, out, to):
        typer.echo(note, err=True)
    typer.echo(f"the model is in {out}", err=True)


@app.command()
def systems(as_json: Json = False) -> None:
    """The systems, and what each is made of."""
    from foretext.systems import SYSTEMS

    keys = ("paper", "base", "objective", "direction", "tokenizer", "transfer")
    if as_json:
        table = {name: {k: getattr(s, k) for k in keys} | {"sizes": list(s.sizes)} for name, s in SYSTEMS.items()}
        typer.echo(json.dumps(table, ensure_ascii=False))
        return
    for name, system in SYSTEMS.items():
        typer.echo(name)
        for key in keys:
            typer.echo(f"  {key:10} {getattr(system, key)}")
        typer.echo(f"  {'sizes':10} {', '.join(system.sizes)}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and report.html.")] = Path("demo-out"),
) -> None:
    """Everything, on text that is already on this machine: at most 15 minutes on 2 cores."""
    from rich.console import Console

    from foretext.demo.runner import DemoSettings, run_demo
    from foretext.train.signals import Stopper

    console = Console()
    with Stopper(console.print) as stopper:
        run_demo(DemoSettings(out), console=console, stopping=stopper)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    if version:
        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """The program `foretext`."""
    run_app(app)


if __name__ == "__main__":
    main()
