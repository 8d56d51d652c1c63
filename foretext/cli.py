"""The command line. Each verb reads its arguments here and leaves the work to the package; torch is imported only by
verbs that need it."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretext import __version__
from foretext.errors import Interrupted, UserError

if TYPE_CHECKING:
    from foretext.api import LanguageModel, TaskModel
    from foretext.tasks.rows import Row

app = typer.Typer(
    help="From a pile of unlabelled text and a few labels to a working language model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="section.key=value, any setting of config.toml.")]
Columns = Annotated[str, typer.Option(help="Other column names: text=review,label=stars.")]
Format = Annotated[str | None, typer.Option(help="A published layout: sst2, cola, trec, imdb, rte, …")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
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
    system: Annotated[str, typer.Option(help="Which system; see `foretext systems`.")] = "gpt",
    size: Annotated[str, typer.Option(help="tiny (minutes on 2 cores), small, paper.")] = "tiny",
    minutes: Annotated[float | None, typer.Option(help="Budget in minutes of training.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in updates.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget in tokens.")] = None,
    direction: Annotated[Direction, typer.Option(help="backward reads right to left.")] = Direction.forward,
    seed: Annotated[int, typer.Option()] = 0,
    start: Annotated[Path | None, typer.Option("--from", help="Go on from this run, with new text.")] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="Folder with a published vocabulary.")] = None,
    text_column: TextColumn = None,
    documents: Documents = "auto",
    errors: Errors = "strict",
    resume: Resume = False,
    device: Device = "auto",
    sets: Sets = None,
) -> None:
    """Pre-train a language model on unlabelled text."""
    from foretext.terminal import Terminal
    from foretext.train.budget import Budget
    from foretext.train.pretrain import PretrainRequest
    from foretext.train.pretrain import pretrain as run
    from foretext.train.signals import Stopper

    given = (minutes, steps, tokens)
    request = PretrainRequest(
        inputs=tuple(text or ()),
        out=out,
        system=system,
        size=size,
        budget=None if all(value is None for value in given) else Budget(*given),
        direction=direction.value,
        seed=seed,
        sets=tuple(sets or ()),
        resume=resume,
        start=start,
        vocabulary=vocabulary,
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
    run: Annotated[Path, typer.Argument(help="The pre-trained run.")],
    file: Annotated[Path, typer.Argument(help="Labelled rows: csv, tsv, jsonl, parquet, or --format.")],
    task: Annotated[str, typer.Option(help="classification, entailment, similarity, choice, regression.")],
    out: Annotated[Path, typer.Option(help="The run directory to make.")] = Path("runs/task"),
    valid: Annotated[Path | None, typer.Option(help="Validation rows; without it 15 % are held out.")] = None,
    lm_weight: Annotated[float | None, typer.Option(help="λ in L3 = L2 + λ·L1.")] = None,
    layers: Annotated[int | None, typer.Option(help="Transfer the embeddings and the first n blocks only.")] = None,
    from_scratch: Annotated[bool, typer.Option("--from-scratch", help="Draw new weights.")] = False,
    epochs: Annotated[int | None, typer.Option()] = None,
    seed: Annotated[int, typer.Option()] = 0,
    columns: Columns = "",
    format: Format = None,
    errors: Errors = "strict",
    resume: Resume = False,
    device: Device = "auto",
    sets: Sets = None,
) -> None:
    """Teach a pre-trained model a task from labelled rows."""
    from foretext.terminal import Terminal

    names = parse_columns(columns)
    rows, held_out = _labelled(file, task, names, format, errors), None
    if valid is not None:
        held_out = _labelled(valid, task, names, format, errors)
    from foretext.train.signals import Stopper

    base = _language_model(run)
    terminal = Terminal()
    try:
        with Stopper(terminal.note) as stopper:
            model = base.finetune(
                rows,
                task=task,
                valid=held_out,
                out=out,
                seed=seed,
                epochs=epochs,
                lm_weight=lm_weight,
                layers=layers,
                from_scratch=from_scratch,
                columns=names,
                format=format,
                sets=sets or (),
                resume=resume,
                device=device,
                reporter=terminal,
                stopping=stopper,
            )
    finally:
        terminal.close()
    _show_validation(model, held_out)
    terminal.note(f"the model is in {out}; next: foretext predict {out} new.csv --out predictions.csv")


@app.command()
def predict(
    run: RunArgument,
    file: Annotated[Path | None, typer.Argument(help="Rows to predict; without it --text or standard input.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="A text to predict; twice for pairs.")] = None,
    out: Annotated[Path | None, typer.Option(help="csv, tsv, jsonl or parquet; without it standard output.")] = None,
    columns: Columns = "",
    format: Format = None,
    errors: Errors = "strict",
    as_json: Json = False,
) -> None:
    """Predict labels, choices or scores, with probabilities."""
    from foretext.tasks.predictions import prediction_table, table_text, write_table
    from foretext.tasks.rows import rows_of

    model = _task_model(run)
    config = model.model.task_config
    names = parse_columns(columns) or dict(config.columns) or None
    table = _input_table(file, text, model.task, names, format or (config.format if file else None), errors)
    rows = rows_of(table, model.task, columns=names, need_labels=False)
    predictions = model.predictions(rows, _progress("predicting"))
    notes: list[str] = []
    result = prediction_table(table, predictions, notes)
    for note in notes:
        typer.echo(note, err=True)
    if out is not None:
        write_table(result, out)
        typer.echo(f"{len(rows):,} predictions in {out}", err=True)
    else:
        typer.echo(table_text(result, "jsonl" if as_json else "csv"), nl=False)


@app.command()
def evaluate(
    run: RunArgument,
    files: Annotated[list[str], typer.Argument(help="Text for a pre-trained run, labelled rows for a fine-tuned one.")],
    stride: Annotated[int | None, typer.Option(help="Tokens scored a window; default half the context.")] = None,
    columns: Columns = "",
    format: Format = None,
    text_column: TextColumn = None,
    documents: Documents = "auto",
    errors: Errors = "strict",
    confusion: Annotated[Path | None, typer.Option(help="Write the confusion matrix as a PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Perplexity of text, or the task's metrics on labelled rows."""
    from foretext.api import LanguageModel

    model = _load(run)
    if isinstance(model, LanguageModel):
        _evaluate_text(model, files, stride, text_column, documents, errors, as_json)
        return
    from foretext.tasks.metrics import format_scores
    from foretext.tasks.pictures import confusion_matrix_png

    config = model.model.task_config
    names = parse_columns(columns) or dict(config.columns) or None
    rows = [row for file in files for row in _labelled(Path(file), model.task, names, format or config.format, errors)]
    scores = model.evaluate(rows, _progress("predicting"))
    typer.echo(json.dumps(scores.to_dict(), ensure_ascii=False) if as_json else format_scores(scores))
    if confusion is not None:
        confusion_matrix_png(scores, confusion)


@app.command()
def generate(
    run: RunArgument,
    prompt: Annotated[str, typer.Option(help="What to go on from; - reads standard input.")] = "",
    max_tokens: Annotated[int, typer.Option()] = 100,
    temperature: Annotated[float, typer.Option(help="0 takes the best token each time.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="0: no limit.")] = 0,
    top_p: Annotated[float, typer.Option()] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Write text with a pre-trained model, as it comes."""
    model = _language_model(run)
    prompt = sys.stdin.read() if prompt == "-" else prompt
    pieces = model.stream(prompt, max_tokens, temperature, top_k, top_p, seed, stop or ())
    if as_json:
        typer.echo(json.dumps({"prompt": prompt, "text": "".join(pieces)}, ensure_ascii=False))
        return
    if model.model.info.direction == "forward":
        sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write(prompt + "\n" if model.model.info.direction == "backward" else "\n")


@app.command()
def features(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(help="Text: a document a vector.")],
    out: Annotated[Path, typer.Option(help="A .parquet file.")],
    text_column: TextColumn = None,
    documents: Documents = "auto",
    errors: Errors = "strict",
) -> None:
    """Sentence vectors: the mean of the top layer's states."""
    import polars

    model = _language_model(run)
    texts = _texts([str(file)], text_column, documents, errors)
    polars.DataFrame({"text": texts, "vector": model.features(texts).tolist()}).write_parquet(out)
    typer.echo(f"{len(texts):,} vectors of {model.model.model_config.width} numbers in {out}", err=True)


@app.command()
def tokens(
    run: RunArgument,
    text: Annotated[list[str], typer.Argument(help="The text; several for a pair or a choice.")],
    as_json: Json = False,
) -> None:
    """The pieces and ids of a text, and for a fine-tuned run the exact transformed sequences."""
    from foretext.inspection import pieces_of, sequences_of
    from foretext.train.rundir import RunDirectory

    found = sequences_of(RunDirectory(run), text) or [pieces_of(RunDirectory(run), part) for part in text]
    if as_json:
        typer.echo(json.dumps([[{"id": i, "piece": p} for i, p in sequence] for sequence in found], ensure_ascii=False))
        return
    for sequence in found:
        typer.echo(" ".join(p for _, p in sequence))
        typer.echo(" ".join(str(i) for i, _ in sequence))


@app.command()
def info(run: RunArgument, as_json: Json = False) -> None:
    """What is in a run directory."""
    from foretext.inspection import describe_run
    from foretext.train.rundir import RunDirectory

    described = describe_run(RunDirectory(run))
    if as_json:
        typer.echo(json.dumps(described, ensure_ascii=False))
        return
    for section, values in described.items():
        typer.echo(section)
        for name, value in values.items():
            typer.echo(f"  {name}: {value}")


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
    from foretext.demo.runner import DemoSettings, run_demo

    run_demo(DemoSettings(out))


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


# -- shared by the verbs ---------------------------------------------------------------------------------------


def parse_columns(text: str) -> dict[str, str] | None:
    """`text=review,label=stars` as a dictionary."""
    if not text:
        return None
    pairs = [part.split("=", 1) for part in text.split(",")]
    if any(len(pair) != 2 or not pair[0].strip() or not pair[1].strip() for pair in pairs):
        raise UserError(f"--columns {text}: write field=column, field=column; for example text=review,label=stars")
    return {field.strip(): column.strip() for field, column in pairs}


def _load(run: Path) -> LanguageModel | TaskModel:
    from foretext.api import load

    return load(run)


def _language_model(run: Path) -> LanguageModel:
    from foretext.api import load_language_model

    return load_language_model(run)


def _task_model(run: Path) -> TaskModel:
    from foretext.api import TaskModel

    model = _load(run)
    if not isinstance(model, TaskModel):
        raise UserError(f"{run} has no task: fine-tune it first (foretext finetune {run} rows.csv --task …)")
    return model


def _labelled(file: Path, task: str, columns: dict[str, str] | None, format: str | None, errors: str) -> list[Row]:
    from foretext.tasks.rows import read_rows

    notes: list[str] = []
    rows = read_rows(file, task, columns=columns, format=format, need_labels=True, errors=errors, notes=notes)
    for note in notes:
        typer.echo(note, err=True)
    return rows


def _input_table(
    file: Path | None,
    texts: list[str] | None,
    task: str,
    columns: dict[str, str] | None,
    format: str | None,
    errors: str,
) -> Any:
    """Rows to predict, from a file, from --text, or from standard input (a text a line, or JSON lines)."""
    from foretext.tasks.rows import read_task_table, table_from
    from foretext.tasks.tables import parse_jsonl

    if file is not None:
        return read_task_table(file, task, columns=columns, format=format, errors=errors)
    if texts:
        single = task in ("classification", "regression")
        if task == "choice":
            return table_from([(texts[0], texts[1:])], task)
        return table_from(list(texts) if single else [tuple(texts)], task)
    data = sys.stdin.read()
    if not data.strip():
        raise UserError("nothing to predict: name a file, give --text, or write lines to standard input")
    if data.lstrip().startswith("{"):
        return parse_jsonl(data, "standard input")
    return table_from([line for line in data.splitlines() if line.strip()], task)


def _texts(files: list[str], column: str | None, documents: str, errors: str) -> list[str]:
    from foretext.text.files import ReadReport, find_files
    from foretext.text.readers import ReadOptions, read_documents

    return list(read_documents(find_files(files), ReadOptions(column, documents, errors), ReadReport()))


def _evaluate_text(
    model: LanguageModel,
    files: list[str],
    stride: int | None,
    column: str | None,
    documents: str,
    errors: str,
    as_json: bool,
) -> None:
    measured = model.perplexity(_texts(files, column, documents, errors), stride, _progress("reading"))
    if as_json:
        typer.echo(json.dumps(measured.to_dict()))
        return
    typer.echo(f"perplexity per token  {measured.per_token:,.3f}  ({measured.tokens:,} tokens)")
    typer.echo(f"perplexity per word   {measured.per_word:,.3f}  ({measured.words:,} words between white space)")
    typer.echo(f"bits per byte         {measured.bits_per_byte:.4f}  ({measured.bytes:,} bytes of UTF-8)")
    typer.echo(f"context {measured.context} tokens, stride {measured.stride}, {measured.documents:,} documents")
    if not measured.comparable:
        typer.echo("the tokenizer does not keep the text whole: bits per byte do not compare with other models'")


def _show_validation(model: TaskModel, held_out: list[Row] | None) -> None:
    """The best epoch's figures on the validation file, with a picture of the confusion."""
    if held_out is None:
        return
    from foretext.tasks.metrics import format_scores
    from foretext.tasks.pictures import confusion_matrix_png

    scores = model.evaluate(held_out)
    typer.echo(format_scores(scores))
    if scores.confusion and model.path is not None:
        confusion_matrix_png(scores, model.path / "confusion.png")


def _progress(title: str) -> Any:
    from foretext.terminal import Terminal

    terminal = Terminal()

    def show(done: int, total: int) -> None:
        terminal.work(title, done, total)
        if done == total:
            terminal.close()

    return show


def main() -> None:
    """Runs the command line; a user's mistake is one line and an exit code."""
    try:
        app(prog_name="foretext")
    except UserError as error:
        typer.echo(f"foretext: {error}", err=True)
        sys.exit(error.code)
    except Interrupted as stopped:
        typer.echo(f"foretext: {stopped}; go on with --resume", err=True)
        sys.exit(stopped.code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


if __name__ == "__main__":
    main()
