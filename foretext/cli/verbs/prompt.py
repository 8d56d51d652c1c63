"""`foretext prompt`: in-context learning, without training."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretext.cli.input import (
    Json,
    check_output,
    labelled_rows,
    parse_columns,
    parse_pairs,
    plain_table,
    read_texts,
    reading_model,
    text_argument,
)
from foretext.cli.output import progress, show
from foretext.errors import UserError, counted, refuse, refuse_if

if TYPE_CHECKING:
    from foretext.evaluate.in_context import Round, Template
    from foretext.evaluate.untaught import Pair
    from foretext.runs.model import SavedModel
    from foretext.tasks.files.rows import Row

CHOSEN = ("classification", "entailment", "similarity", "choice", "last-word")
WRITTEN = ("summary", "translation", "answer")
LANGUAGES = ("zh", "ja", "ko")
TASKS = (*CHOSEN, "acceptability", "winograd", *WRITTEN)
LABELLED = ("classification", "entailment", "similarity")
_FIELDS = {  # columns that tell which task a file is for
    "choice": {"context", "choice1"},
    "entailment": {"premise", "hypothesis"},
    "similarity": {"text1", "text2"},
    "translation": {"source", "target"},
    "answer": {"question", "answer"},
    "summary": {"text", "summary"},
    "classification": {"text", "label"},
}
# Options that only some tasks have. For other tasks they would be ignored, so they are refused.
_FOR = {
    "--template": CHOSEN,
    "--words": LABELLED,
    "--seeds": (*CHOSEN, "translation", "answer"),
    "--shots": (*CHOSEN, "translation", "answer"),
    "--examples": (*CHOSEN, "translation", "answer", "acceptability"),
    "--good": ("acceptability",),
    "--format": (*LABELLED, "choice", "acceptability", "winograd"),
    "--language": ("translation",),
    "--out": CHOSEN,
}


def prompt(
    run: Annotated[Path, typer.Argument(help="A pre-trained run.")],
    file: Annotated[Path, typer.Argument(help="Rows to answer: csv, tsv, jsonl, parquet, or a published --format.")],
    task: Annotated[str | None, typer.Option(help=f"{', '.join(TASKS)} (default: by FILE's columns).")] = None,
    shots: Annotated[
        str | None, typer.Option(help="Examples in the context: one number, or several such as 0,1,5.")
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(help="Rows to draw examples from (default: the other rows of FILE).")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help=r"Your own template, ending in the answer: 'Review: {text}\nIt is {label}'.")
    ] = None,
    words: Annotated[str | None, typer.Option(help="Words to use for labels: 1=good,0=bad.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many draws of examples (default 3).")] = None,
    rows: Annotated[int, typer.Option(help="Answer this many rows, drawn at random; 0: all.")] = 0,
    direction: Annotated[
        str | None, typer.Option(help="With elmo: forward, or backward to score the text given the answer.")
    ] = None,
    good: Annotated[
        str | None, typer.Option(help="With acceptability: the label of acceptable sentences (default 1).")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="With translation: the target language, if BLEU must segment it: zh, ja, ko.")
    ] = None,
    columns: Annotated[str, typer.Option(help="Column names, if different: text=review,label=stars.")] = "",
    format: Annotated[str | None, typer.Option(help="A published layout such as sst2, cola or copa.")] = None,
    errors: Annotated[str, typer.Option(help="Bytes that are not UTF-8: strict or replace.")] = "strict",
    out: Annotated[
        Path | None, typer.Option(help="Write each row's answers and scores to this JSON lines file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask a pre-trained model without training it: put examples into the context."""
    from foretext.evaluate.in_context import check_prompted

    names = parse_columns(columns)
    guessed = task is None
    task = _task_of(file, names, format, errors) if task is None else task
    _check(task, (template, words, seeds, shots, examples, good, format, language, out))
    _check_values(seeds, rows, language, out)
    numbers, draws = _numbers(shots or "0"), range(3 if seeds is None else seeds)
    model = reading_model(run, direction, "learning in context")
    check_prompted(model, task)

    def read(path: Path) -> list[Any]:
        return _rows(path, task, names, format, errors)

    everything = read(file)
    others = everything if examples is None else read(examples)
    asked = _drawn(everything, rows)
    if task in CHOSEN:
        known = everything if examples is None else [*everything, *others]
        made = _template(task, template, known, words or "")
    if guessed:  # only after all checks, so that an error is the only line shown
        typer.echo(f"task: {task}", err=True)
    if task in WRITTEN:
        _written(model, task, asked, others, numbers, draws, language or "", as_json)
    elif task == "acceptability":
        chosen = "1" if good is None else text_argument(good, "--good")
        _acceptability(model, asked, None if examples is None else others, chosen, as_json)
    elif task == "winograd":
        _winograd(model, asked, as_json)
    else:
        _chosen(model, made, asked, others, numbers, draws, out, as_json)


def _check(task: str, given: Sequence[object]) -> None:
    """UserError for an unknown task, or for an option (`given`: those of `_FOR`) that the task does not have."""
    refuse_if(task not in TASKS, f"unknown task {task!r}; the tasks are {', '.join(TASKS)}")
    for (option, tasks), value in zip(_FOR.items(), given):
        if task not in tasks:
            refuse({option: value}, f"applies to {', '.join(tasks)}, but the task is {task}; leave it out")


def _check_values(seeds: int | None, rows: int, language: str | None, out: Path | None) -> None:
    refuse_if(seeds is not None and seeds < 1, f"--seeds must be at least 1, not {seeds}")
    refuse_if(rows < 0, f"--rows must be 0 (all) or more, not {rows}")
    refuse_if(
        language is not None and language not in LANGUAGES,
        f"--language {language}: BLEU has its own word segmentation for {', '.join(LANGUAGES)} and splits all other "
        "languages at spaces and punctuation; give one of these, or leave it out",
    )
    if out is not None:
        check_output(out)


def _task_of(file: Path, columns: dict[str, str] | None, format: str | None, errors: str) -> str:
    """The task of a file, from its layout or its columns."""
    from foretext.tasks.files.formats import find_format

    if format is not None:
        return find_format(format).kind
    if not {".csv", ".tsv", ".jsonl", ".parquet"} & {suffix.lower() for suffix in file.suffixes}:
        return "last-word"
    columns_there = plain_table(file, errors).columns
    there = {*columns_there, *(columns or {})}
    for task, fields in _FIELDS.items():
        if fields <= there:
            return task
    if "text" in there and len(columns_there) == 1:
        return "last-word"
    raise UserError(
        f"{file}: its columns ({', '.join(columns_there)}) fit no task; give --task, or name the columns with "
        "--columns, such as label=stars"
    )


def _numbers(shots: str) -> list[int]:
    try:
        numbers = [int(part) for part in shots.split(",")]
    except ValueError:
        numbers = [-1]
    refuse_if(min(numbers) < 0, f"--shots {shots}: give numbers of examples, such as 0 or 0,1,5")
    return list(dict.fromkeys(numbers))


def _rows(file: Path, task: str, columns: dict[str, str] | None, format: str | None, errors: str) -> list[Any]:
    """The rows as the task needs them: labelled rows, whole documents, or pairs of texts."""
    from foretext.evaluate.untaught import pairs_of
    from foretext.tasks.files.rows import Row

    if task in WRITTEN:
        return pairs_of(plain_table(file, errors), task, columns)
    if task != "last-word":
        kind = {"acceptability": "classification", "winograd": "choice"}.get(task, task)
        return labelled_rows(file, kind, columns, format, errors)
    for field in columns or {}:
        refuse_if(field != "text", f"--columns: last-word has no field {field!r}; it has text")
    texts = read_texts([str(file)], (columns or {}).get("text"), "auto", errors)
    return [Row((text,), None, f"{file} document {number}") for number, text in enumerate(texts, 1)]


def _drawn(rows: list[Any], count: int) -> list[Any]:
    if not 0 < count < len(rows):
        return rows
    return [rows[number] for number in sorted(random.Random(0).sample(range(len(rows)), count))]


def _template(task: str, text: str | None, rows: list[Row], words: str) -> Template:
    from foretext.evaluate.in_context import Template
    from foretext.tasks.labelled import LabelSet

    labels = LabelSet.from_rows(rows).names if task in LABELLED else ()
    given = None if text is None else text_argument(text, "--template")
    return Template(task, given, labels, parse_pairs(words, "--words", "write label=word, such as 1=good,0=bad"))


# -- the ways to ask ---------------------------------------------------------------------------------------------------


def _chosen(
    model: SavedModel,
    template: Template,
    asked: list[Row],
    others: list[Row],
    numbers: list[int],
    draws: Sequence[int],
    out: Path | None,
    as_json: bool,
) -> None:
    """Answer each row with the most likely of its answers."""
    from foretext.evaluate.in_context import answer_rows

    direction = model.info.direction
    rounds = {
        shots: answer_rows(model, template, asked, others, shots, draws, progress(counted(shots, "example")))
        for shots in numbers
    }
    if out is not None:
        _write_answers(out, asked, [one for own in rounds.values() for one in own], direction)
    results = [_described(template.kind, shots, own) for shots, own in rounds.items()]
    record = {"template": template.text, "rows": len(asked), "direction": direction, "results": results}
    show(as_json, record, [line for result in results for line in _lines(result, len(asked), direction)])


def _lines(result: dict[str, Any], count: int, direction: str = "forward") -> list[str]:
    draws, way = result["draws"], ", right to left" if direction == "backward" else ""
    lines = [
        f"{counted(result['shots'], 'example')}, {counted(count, 'row')}, {counted(draws, 'draw')} of examples{way}"
    ]
    for name, value in result["scores"].items():
        spread = f" ± {value['deviation']:.4f}" if draws > 1 else ""
        lines.append(f"  {name:24} {value['mean']:.4f}{spread}")
    return [*lines, *([f"  {_lost(result['cut'], direction)}"] if result["cut"] else [])]


def _lost(count: int, direction: str) -> str:
    end = "end" if direction == "backward" else "beginning"
    return f"{counted(count, 'context')} cut at the {end}: too long"


def _write_answers(out: Path, asked: list[Row], rounds: list[Round], direction: str) -> None:
    """One line per row and draw: the possible answers, and the score of each under each normalisation."""
    from foretext.text.corpus.text_files import write_whole

    # last-word has a single answer and nothing to compare it with, so nothing is subtracted from its score.
    alone = len(rounds[0].answers[0].prompt.answers) == 1
    normalisations = [name for name in rounds[0].normalisations if not (alone and name == "unbiased")]
    lines = []
    for one in rounds:
        for row, answered in zip(asked, one.answers):
            record = {
                "where": row.where,
                "shots": one.shots,
                "seed": one.seed,
                "context": answered.prompt.whole,
                **({"behind": answered.prompt.behind} if direction == "backward" else {}),
                "answers": list(answered.prompt.answers),
                "right": answered.prompt.right,
                "scores": {name: answered.scores(name) for name in normalisations},
                "tokens": [found.tokens for found in answered.likelihoods],
                "greedy": [found.greedy for found in answered.likelihoods],
                "cut": max(found.cut for found in answered.likelihoods),
            }
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    write_whole(out, "".join(lines).encode("utf-8"))
    typer.echo(f"{len(lines):,} answered rows in {out}", err=True)


def _described(kind: str, shots: int, rounds: list[Round]) -> dict[str, Any]:
    if kind == "last-word":
        hits = [statistics.fmean(row.likelihoods[0].greedy for row in one.answers) for one in rounds]
        nats = [-statistics.fmean(row.likelihoods[0].total for row in one.answers) for one in rounds]
        found = {"accuracy": hits, "perplexity per word": [math.exp(min(value, 700.0)) for value in nats]}
    else:
        found = {f"accuracy, {name}": [one.accuracy(name) for one in rounds] for name in rounds[0].normalisations}
    return _over_draws(shots, found, sum(one.cut for one in rounds))


def _over_draws(shots: int, values: dict[str, list[float]], cut: int) -> dict[str, Any]:
    """Mean and standard deviation of each score over the draws of examples."""
    scores = {
        name: {"mean": statistics.fmean(found), "deviation": statistics.pstdev(found)} for name, found in values.items()
    }
    return {"shots": shots, "draws": len(next(iter(values.values()))), "scores": scores, "cut": cut}


def _acceptability(model: SavedModel, asked: list[Row], known: list[Row] | None, good: str, as_json: bool) -> None:
    from dataclasses import asdict

    from foretext.evaluate.untaught import acceptability, sentence_scores

    def scored(rows: list[Row]) -> tuple[list[float], list[str]]:
        return sentence_scores(model, rows, progress("scoring")), [str(row.label) for row in rows]

    result = acceptability(*scored(asked), good, None if known is None else scored(known))
    matthews = "matthews needs a threshold: give labelled rows to find it with --examples"
    if result.matthews is not None:
        matthews = f"matthews              {result.matthews:.4f}  (threshold {result.threshold:.4f}, from --examples)"
    area = f"area under the curve  {result.area:.4f}  (mean log-probability per token; {counted(len(asked), 'row')})"
    show(as_json, asdict(result), [area, matthews])


def _winograd(model: SavedModel, asked: list[Row], as_json: bool) -> None:
    from foretext.evaluate.in_context import CHANNEL
    from foretext.evaluate.untaught import referents

    answered, direction = referents(model, asked, progress("scoring")), model.info.direction
    ways = CHANNEL if direction == "backward" else ("sum", "per token")
    scores = {name: statistics.fmean(row.best(name) == row.prompt.right for row in answered) for name in ways}
    cut = sum(any(likelihood.cut for likelihood in row.likelihoods) for row in answered)
    lines = [f"accuracy, {name:10} {value:.4f}" for name, value in scores.items()]
    record = {"rows": len(asked), "direction": direction, "accuracy": scores, "cut": cut}
    show(as_json, record, [*lines, *([_lost(cut, direction)] if cut else [])])


def _written(
    model: SavedModel,
    task: str,
    asked: list[Pair],
    known: list[Pair],
    numbers: list[int],
    draws: Sequence[int],
    language: str,
    as_json: bool,
) -> None:
    """Answer each row with a text that the model writes."""
    from foretext.evaluate.untaught import answer_pairs

    results = []
    for shots in numbers:
        bar = progress(f"writing with {counted(shots, 'example')}")
        rounds = answer_pairs(model, task, asked, known, shots, draws, language, bar)
        values = {name: [one.scores[name] for one in rounds] for name in rounds[0].scores}
        described = _over_draws(shots, values, sum(one.cut for one in rounds))
        results.append(described | {"note": rounds[0].note, "texts": [list(one.texts) for one in rounds]})
    notes = [[f"  {result['note']}"] if result["note"] else [] for result in results]
    lines = [line for result, own in zip(results, notes) for line in (*_lines(result, len(asked)), *own)]
    show(as_json, {"rows": len(asked), "results": results}, lines)
