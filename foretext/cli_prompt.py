"""`foretext prompt`: learning in context, without a gradient."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretext.cli_input import check_output, labelled_rows, language_model, parse_columns, read_texts, text_argument
from foretext.cli_output import progress
from foretext.errors import UserError

if TYPE_CHECKING:
    from foretext.api import LanguageModel
    from foretext.evaluate.in_context import Round
    from foretext.tasks.rows import Row

CHOSEN = ("classification", "entailment", "similarity", "choice", "last-word")
WRITTEN = ("summary", "translation", "answer")
TASKS = (*CHOSEN, "acceptability", "winograd", *WRITTEN)


def prompt(
    run: Annotated[Path, typer.Argument(help="A pre-trained run.")],
    file: Annotated[Path, typer.Argument(help="Rows to answer: csv, tsv, jsonl, parquet, or --format.")],
    task: Annotated[str, typer.Option(help=", ".join(TASKS))] = "classification",
    shots: Annotated[str, typer.Option(help="Examples in the context: a number or several, 0,1,5.")] = "0",
    examples: Annotated[Path | None, typer.Option(help="Rows to draw examples from; without it FILE's others.")] = None,
    template: Annotated[
        str | None, typer.Option(help=r"Your own, ending in the answer: 'Review: {text}\nIt is {label}'.")
    ] = None,
    words: Annotated[str, typer.Option(help="Words for labels: 1=good,0=bad.")] = "",
    seeds: Annotated[int, typer.Option(help="Draws of examples.")] = 3,
    rows: Annotated[int, typer.Option(help="Answer so many rows, drawn at random; 0: all.")] = 0,
    good: Annotated[str, typer.Option(help="acceptability: the label of acceptable sentences.")] = "1",
    columns: Annotated[str, typer.Option(help="Other column names: text=review,label=stars.")] = "",
    format: Annotated[str | None, typer.Option(help="A published layout: sst2, cola, copa, …")] = None,
    errors: Annotated[str, typer.Option(help="Bytes that are not UTF-8: strict or replace.")] = "strict",
    out: Annotated[Path | None, typer.Option(help="Each row's answers and scores, as JSON lines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Ask a pre-trained model without training it: examples in the context, no gradient."""
    if task not in TASKS:
        raise UserError(f"no task {task!r}; the tasks are {', '.join(TASKS)}")
    numbers = _numbers(shots)
    if task in ("acceptability", "winograd") and numbers != [0]:
        raise UserError(f"{task} is scored without examples; leave --shots out")
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, not {seeds}")
    if out is not None:
        check_output(out)
        if task not in CHOSEN:
            raise UserError(f"--out is for tasks whose answers are chosen; {task} prints what it finds, see --json")
    model = language_model(run)
    names = parse_columns(columns)
    if task in WRITTEN:
        _written(model, task, file, examples, numbers, rows, names, as_json)
        return
    kind = {"acceptability": "classification", "winograd": "choice"}.get(task, task)
    asked = _drawn(_rows(file, kind, names, format, errors), rows)
    others = asked if examples is None else _rows(examples, kind, names, format, errors)
    if task == "acceptability":
        _acceptability(model, asked, None if examples is None else others, good, as_json)
    elif task == "winograd":
        _winograd(model, asked, as_json)
    else:
        chosen = _template(task, template, [*asked, *others], words)
        rounds = _chosen(model, chosen, asked, others, numbers, seeds)
        if out is not None:
            _write_answers(out, asked, rounds)
        _show_chosen(chosen, len(asked), rounds, as_json)


def _numbers(shots: str) -> list[int]:
    try:
        found = [int(part) for part in shots.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0:
        raise UserError(f"--shots {shots}: give numbers of examples, such as 0 or 0,1,5")
    return found


def _rows(file: Path, kind: str, columns: dict[str, str] | None, format: str | None, errors: str) -> list[Row]:
    from foretext.tasks.rows import Row

    if kind == "last-word":
        texts = read_texts([str(file)], (columns or {}).get("text"), "auto", errors)
        return [Row((text,), None, f"{file} document {number}") for number, text in enumerate(texts, 1)]
    return labelled_rows(file, kind, columns, format, errors)


def _drawn(rows: list[Row], count: int) -> list[Row]:
    if not 0 < count < len(rows):
        return rows
    return [rows[number] for number in sorted(random.Random(0).sample(range(len(rows)), count))]


def _template(task: str, text: str | None, rows: list[Row], words: str) -> Any:
    from foretext.evaluate.templates import Template
    from foretext.tasks.labels import LabelSet

    labels = () if task in ("choice", "last-word") else LabelSet.from_rows(rows).names
    given = None if text is None else text_argument(text, "--template")
    return Template(task, given, labels, parse_columns(words))


def _chosen(
    model: LanguageModel, template: Any, asked: list[Row], others: list[Row], numbers: list[int], seeds: int
) -> list[Round]:
    from foretext.evaluate.in_context import answer_rows

    rounds: list[Round] = []
    for shots in numbers:
        bar = progress(f"{shots} examples")
        rounds += answer_rows(model.model, template, asked, others, shots, range(seeds), bar)
    return rounds


def _show_chosen(template: Any, count: int, rounds: list[Round], as_json: bool) -> None:
    numbers = dict.fromkeys(one.shots for one in rounds)
    described = [_described(template.kind, shots, [one for one in rounds if one.shots == shots]) for shots in numbers]
    if as_json:
        typer.echo(json.dumps({"template": template.text, "rows": count, "results": described}, ensure_ascii=False))
        return
    for result in described:
        draws = result["draws"]
        typer.echo(f"{result['shots']} examples, {count:,} rows, {draws} draw{'' if draws == 1 else 's'} of examples")
        for name, value in result["scores"].items():
            spread = f" ± {value['deviation']:.4f}" if draws > 1 else ""
            typer.echo(f"  {name:24} {value['mean']:.4f}{spread}")
        if result["cut"]:
            typer.echo(f"  {result['cut']:,} contexts were too long and lost their beginning")


def _write_answers(out: Path, asked: list[Row], rounds: list[Round]) -> None:
    """A line for each row and draw: what could be answered, and the score of each answer under each normalisation."""
    from foretext.evaluate.in_context import NORMALISATIONS
    from foretext.tasks.files import write_whole

    lines = []
    for one in rounds:
        for row, answered in zip(asked, one.answers):
            record = {
                "where": row.where,
                "shots": one.shots,
                "seed": one.seed,
                "context": answered.prompt.whole,
                "answers": list(answered.prompt.answers),
                "right": answered.prompt.right,
                "scores": {name: answered.scores(name) for name in NORMALISATIONS},
                "tokens": [found.tokens for found in answered.likelihoods],
                "greedy": [found.greedy for found in answered.likelihoods],
                "cut": max(found.cut for found in answered.likelihoods),
            }
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    write_whole(out, "".join(lines).encode("utf-8"))
    typer.echo(f"{len(lines):,} answered rows in {out}", err=True)


def _described(kind: str, shots: int, rounds: list[Round]) -> dict[str, Any]:
    import math
    import statistics

    from foretext.evaluate.in_context import NORMALISATIONS, accuracy_over

    scores: dict[str, Any] = {}
    if kind == "last-word":
        hits = [statistics.fmean(row.likelihoods[0].greedy for row in one.answers) for one in rounds]
        nats = [-statistics.fmean(row.likelihoods[0].total for row in one.answers) for one in rounds]
        perplexities = [math.exp(min(value, 700.0)) for value in nats]
        for name, values in (("accuracy", hits), ("perplexity per word", perplexities)):
            scores[name] = {"mean": statistics.fmean(values), "deviation": statistics.pstdev(values)}
    else:
        for normalisation in NORMALISATIONS:
            spread = accuracy_over(rounds, normalisation)
            scores[f"accuracy, {normalisation}"] = {"mean": spread.mean, "deviation": spread.deviation}
    return {"shots": shots, "draws": len(rounds), "scores": scores, "cut": sum(one.cut for one in rounds)}


def _acceptability(model: LanguageModel, asked: list[Row], known: list[Row] | None, good: str, as_json: bool) -> None:
    from dataclasses import asdict

    from foretext.evaluate.heuristics import acceptability, sentence_scores

    def scored(rows: list[Row]) -> tuple[list[float], list[str]]:
        texts = [row.texts[0] for row in rows]
        return sentence_scores(model.model, texts, progress("scoring")), [str(row.label) for row in rows]

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
    import statistics

    from foretext.evaluate.heuristics import referents

    found = referents(model.model, asked, progress("scoring"))
    scores = {
        name: statistics.fmean(row.best(name) == row.prompt.right for row in found) for name in ("sum", "per token")
    }
    if as_json:
        typer.echo(json.dumps({"rows": len(asked), "accuracy": scores}))
        return
    for name, value in scores.items():
        typer.echo(f"accuracy, {name:10} {value:.4f}")


def _written(
    model: LanguageModel,
    task: str,
    file: Path,
    examples: Path | None,
    numbers: list[int],
    rows: int,
    columns: dict[str, str] | None,
    as_json: bool,
) -> None:
    from foretext.evaluate.written import pairs_of, score_written, write_answers
    from foretext.tasks.tables import read_table

    asked = pairs_of(read_table(file), task, columns)
    if 0 < rows < len(asked):
        asked = [asked[number] for number in sorted(random.Random(0).sample(range(len(asked)), rows))]
    if max(numbers) and examples is None:
        raise UserError(f"{task} takes its examples from another file: name it by --examples")
    known = [] if examples is None else pairs_of(read_table(examples), task, columns)
    results = []
    for shots in numbers:
        if shots > len(known):
            raise UserError(f"{shots} examples are asked for, and {examples} has {len(known)}; give more")
        texts = write_answers(model.model, task, asked, random.Random(0).sample(known, shots))
        found = score_written(task, texts, [wanted for _, wanted in asked])
        results.append({"shots": shots, "rows": len(asked), "scores": found.values, "note": found.note, "texts": texts})
    if as_json:
        typer.echo(json.dumps(results, ensure_ascii=False))
        return
    for result in results:
        values = "  ".join(f"{name} {value:.4f}" for name, value in result["scores"].items())
        typer.echo(f"{result['shots']} examples, {result['rows']:,} rows: {values}  {result['note']}".rstrip())
