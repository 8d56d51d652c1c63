"""`foretext prompt`: learning in context, without a gradient."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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
    refuse,
    text_argument,
)
from foretext.cli.output import progress
from foretext.errors import UserError

if TYPE_CHECKING:
    from foretext.api import LanguageModel
    from foretext.evaluate.in_context import Round, Template
    from foretext.evaluate.written import Pair
    from foretext.tasks.files.rows import Row

Asked = TypeVar("Asked")
CHOSEN = ("classification", "entailment", "similarity", "choice", "last-word")
WRITTEN = ("summary", "translation", "answer")
LANGUAGES = ("zh", "ja", "ko")
TASKS = (*CHOSEN, "acceptability", "winograd", *WRITTEN)
LABELLED = ("classification", "entailment", "similarity")
_FIELDS = {  # by which a file's task is known
    "choice": {"context", "choice1"},
    "entailment": {"premise", "hypothesis"},
    "similarity": {"text1", "text2"},
    "translation": {"source", "target"},
    "answer": {"question", "answer"},
    "summary": {"text", "summary"},
    "classification": {"text", "label"},
}
# Options that not every task has, and those that have them; anywhere else they would be ignored, so they are refused.
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
    file: Annotated[Path, typer.Argument(help="Rows to answer: csv, tsv, jsonl, parquet, or --format.")],
    task: Annotated[str | None, typer.Option(help=f"{', '.join(TASKS)}; without it as FILE's columns say.")] = None,
    shots: Annotated[str | None, typer.Option(help="Examples in the context: a number or several, 0,1,5.")] = None,
    examples: Annotated[Path | None, typer.Option(help="Rows to draw examples from; without it FILE's others.")] = None,
    template: Annotated[
        str | None, typer.Option(help=r"Your own, ending in the answer: 'Review: {text}\nIt is {label}'.")
    ] = None,
    words: Annotated[str | None, typer.Option(help="Words for labels: 1=good,0=bad.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Draws of examples; 3 if not said.")] = None,
    rows: Annotated[int, typer.Option(help="Answer so many rows, drawn at random; 0: all.")] = 0,
    direction: Annotated[
        str | None, typer.Option(help="elmo: forward, or backward, which tells the text from the answer.")
    ] = None,
    good: Annotated[str | None, typer.Option(help="acceptability: the label of acceptable sentences; 1.")] = None,
    language: Annotated[str | None, typer.Option(help="translation: the target's language, for BLEU: zh, ja.")] = None,
    columns: Annotated[str, typer.Option(help="Other column names: text=review,label=stars.")] = "",
    format: Annotated[str | None, typer.Option(help="A published layout: sst2, cola, copa, …")] = None,
    errors: Annotated[str, typer.Option(help="Bytes that are not UTF-8: strict or replace.")] = "strict",
    out: Annotated[Path | None, typer.Option(help="Each row's answers and scores, as JSON lines.")] = None,
    as_json: Json = False,
) -> None:
    """Ask a pre-trained model without training it: examples in the context, no gradient."""
    names = parse_columns(columns)
    guessed = task is None
    task = _task_of(file, names, format, errors) if task is None else task
    _check(task, (template, words, seeds, shots, examples, good, format, language, out))
    numbers, draws = _numbers(shots or "0"), _draws(seeds)
    _check_values(rows, language)
    if out is not None:
        check_output(out)
    model = _asked_model(run, direction, task)
    if task in WRITTEN:
        pairs = _pairs(file, task, names, errors)
        known = pairs if examples is None else _pairs(examples, task, names, errors)
        _announce(task, guessed)
        _written(model, task, _drawn(pairs, rows), known, numbers, draws, language or "", as_json)
        return
    kind = {"acceptability": "classification", "winograd": "choice"}.get(task, task)
    everything = _rows(file, kind, names, format, errors)
    others = everything if examples is None else _rows(examples, kind, names, format, errors)
    asked = _drawn(everything, rows)
    if task not in ("acceptability", "winograd"):
        made = _template(task, template, everything if examples is None else [*everything, *others], words or "")
    _announce(task, guessed)
    if task == "acceptability":
        chosen = "1" if good is None else text_argument(good, "--good")
        _acceptability(model, asked, None if examples is None else others, chosen, as_json)
    elif task == "winograd":
        _winograd(model, asked, as_json)
    else:
        way = model.model.info.direction
        rounds = _chosen(model, made, asked, others, numbers, draws)
        if out is not None:
            _write_answers(out, asked, rounds, way)
        _show_chosen(made, len(asked), rounds, way, as_json)


def _asked_model(run: Path, direction: str | None, task: str) -> LanguageModel:
    from foretext.evaluate.in_context import check_prompted

    model = reading_model(run, direction, "learning in context")
    check_prompted(model.model, task)
    return model


def _announce(task: str, guessed: bool) -> None:
    """Which task the columns speak for, once nothing of what was given is wrong: a refusal stands alone."""
    if guessed:
        typer.echo(f"task: {task}", err=True)


def _check(task: str, given: Sequence[object]) -> None:
    """UserError for what is no task, or for an option (`given`: those of `_FOR`) that the task does not have."""
    if task not in TASKS:
        raise UserError(f"no task {task!r}; the tasks are {', '.join(TASKS)}")
    for (option, tasks), value in zip(_FOR.items(), given):
        if task not in tasks:
            refuse({option: value}, f"is for {', '.join(tasks)}, and the task is {task}; leave it out")


def _draws(seeds: int | None) -> range:
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds must be at least 1, not {seeds}")
    return range(3 if seeds is None else seeds)


def _check_values(rows: int, language: str | None) -> None:
    if rows < 0:
        raise UserError(f"--rows must be 0 (all) or more, not {rows}")
    if language is not None and language not in LANGUAGES:
        raise UserError(
            f"--language {language}: BLEU cuts {', '.join(LANGUAGES)} in ways of their own, all others by spaces and "
            "punctuation; give one of these, or leave it out"
        )


def _task_of(file: Path, columns: dict[str, str] | None, format: str | None, errors: str) -> str:
    """The task that a file is for, by its layout or its columns."""
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
        f"{file}: its columns ({', '.join(columns_there)}) belong to no task; name the task by --task, or the columns "
        "by --columns, such as label=stars"
    )


def _numbers(shots: str) -> list[int]:
    try:
        found = [int(part) for part in shots.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0:
        raise UserError(f"--shots {shots}: give numbers of examples, such as 0 or 0,1,5")
    return list(dict.fromkeys(found))


def _rows(file: Path, kind: str, columns: dict[str, str] | None, format: str | None, errors: str) -> list[Row]:
    from foretext.tasks.files.rows import Row

    if kind == "last-word":
        for field in columns or {}:
            if field != "text":
                raise UserError(f"--columns: last-word has no field {field!r}; it has text")
        texts = read_texts([str(file)], (columns or {}).get("text"), "auto", errors)
        return [Row((text,), None, f"{file} document {number}") for number, text in enumerate(texts, 1)]
    return labelled_rows(file, kind, columns, format, errors)


def _pairs(file: Path, task: str, columns: dict[str, str] | None, errors: str) -> list[Pair]:
    from foretext.evaluate.written import pairs_of

    return pairs_of(plain_table(file, errors), task, columns)


def _drawn(rows: list[Asked], count: int) -> list[Asked]:
    if not 0 < count < len(rows):
        return rows
    return [rows[number] for number in sorted(random.Random(0).sample(range(len(rows)), count))]


def _template(task: str, text: str | None, rows: list[Row], words: str) -> Template:
    from foretext.evaluate.in_context import Template
    from foretext.tasks.labelled import LabelSet

    labels = LabelSet.from_rows(rows).names if task in LABELLED else ()
    given = None if text is None else text_argument(text, "--template")
    return Template(task, given, labels, parse_pairs(words, "--words", "write label=word, such as 1=good,0=bad"))


def _chosen(
    model: LanguageModel,
    template: Template,
    asked: list[Row],
    others: list[Row],
    numbers: list[int],
    draws: Sequence[int],
) -> list[Round]:
    from foretext.evaluate.in_context import answer_rows

    rounds: list[Round] = []
    for shots in numbers:
        bar = progress(f"{shots} examples")
        rounds += answer_rows(model.model, template, asked, others, shots, draws, bar)
    return rounds


def _show_chosen(template: Template, count: int, rounds: list[Round], direction: str, as_json: bool) -> None:
    numbers = dict.fromkeys(one.shots for one in rounds)
    described = [_described(template.kind, shots, [one for one in rounds if one.shots == shots]) for shots in numbers]
    if as_json:
        record = {"template": template.text, "rows": count, "direction": direction, "results": described}
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    for result in described:
        _show(result, count, direction)


def _show(result: dict[str, Any], count: int, direction: str = "forward") -> None:
    draws, way = result["draws"], ", right to left" if direction == "backward" else ""
    typer.echo(f"{result['shots']} examples, {count:,} rows, {draws} draw{'' if draws == 1 else 's'} of examples{way}")
    for name, value in result["scores"].items():
        spread = f" ± {value['deviation']:.4f}" if draws > 1 else ""
        typer.echo(f"  {name:24} {value['mean']:.4f}{spread}")
    if result["cut"]:
        typer.echo(f"  {_lost(result['cut'], direction)}")


def _lost(count: int, direction: str) -> str:
    return f"{count:,} contexts were too long and lost their {'end' if direction == 'backward' else 'beginning'}"


def _write_answers(out: Path, asked: list[Row], rounds: list[Round], direction: str) -> None:
    """A line for each row and draw: what could be answered, and the score of each answer under each normalisation."""
    from foretext.text.corpus.text_files import write_whole

    # The one answer of last-word is compared with nothing, so that nothing is subtracted from it either.
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
    """Mean and deviation of each score over draws of examples."""
    scores = {
        name: {"mean": statistics.fmean(found), "deviation": statistics.pstdev(found)} for name, found in values.items()
    }
    return {"shots": shots, "draws": len(next(iter(values.values()))), "scores": scores, "cut": cut}


def _acceptability(model: LanguageModel, asked: list[Row], known: list[Row] | None, good: str, as_json: bool) -> None:
    from dataclasses import asdict

    from foretext.evaluate.heuristics import acceptability, sentence_scores

    def scored(rows: list[Row]) -> tuple[list[float], list[str]]:
        return sentence_scores(model.model, rows, progress("scoring")), [str(row.label) for row in rows]

    found = acceptability(*scored(asked), good, None if known is None else scored(known))
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    typer.echo(f"area under the curve  {found.area:.4f}  (mean log-probability of a token; {len(asked):,} rows)")
    if found.matthews is None:
        typer.echo("matthews needs a threshold: give labelled rows to find it on by --examples")
    else:
        typer.echo(f"matthews              {found.matthews:.4f}  (threshold {found.threshold:.4f}, from --examples)")


def _winograd(model: LanguageModel, asked: list[Row], as_json: bool) -> None:
    from foretext.evaluate.heuristics import referents
    from foretext.evaluate.in_context import CHANNEL

    found, direction = referents(model.model, asked, progress("scoring")), model.model.info.direction
    ways = CHANNEL if direction == "backward" else ("sum", "per token")
    hits = {name: [float(row.best(name) == row.prompt.right) for row in found] for name in ways}
    scores = {name: statistics.fmean(values) for name, values in hits.items()}
    cut = sum(any(likelihood.cut for likelihood in row.likelihoods) for row in found)
    if as_json:
        typer.echo(json.dumps({"rows": len(asked), "direction": direction, "accuracy": scores, "cut": cut}))
        return
    for name, value in scores.items():
        typer.echo(f"accuracy, {name:10} {value:.4f}")
    if cut:
        typer.echo(_lost(cut, direction))


def _written(
    model: LanguageModel,
    task: str,
    asked: list[Pair],
    known: list[Pair],
    numbers: list[int],
    draws: Sequence[int],
    language: str,
    as_json: bool,
) -> None:
    from foretext.evaluate.written import answer_pairs

    results = []
    for shots in numbers:
        bar = progress(f"writing after {shots} examples")
        rounds = answer_pairs(model.model, task, asked, known, shots, draws, language, bar)
        values = {name: [one.scores[name] for one in rounds] for name in rounds[0].scores}
        described = _over_draws(shots, values, sum(one.cut for one in rounds))
        results.append(described | {"note": rounds[0].note, "texts": [list(one.texts) for one in rounds]})
    if as_json:
        typer.echo(json.dumps({"rows": len(asked), "results": results}, ensure_ascii=False))
        return
    for result in results:
        _show(result, len(asked))
        if result["note"]:
            typer.echo(f"  {result['note']}")
