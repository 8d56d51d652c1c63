"""Looking into a run directory without loading its weights: `info` and `tokens`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from foretext.config import Change, difference, to_plain
from foretext.plan import PAPER
from foretext.runs.budget import read_position
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import clock, size_text
from foretext.runs.model import DataConfig, load_tokenizer, read_config
from foretext.systems import size_named, system_named
from foretext.systems.base import System
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoding
from foretext.tasks.labels import LabelSet
from foretext.tasks.losses import describe_loss

Pieces = list[tuple[int, str]]


def pieces_of(run: RunDirectory, text: str) -> Pieces:
    """Ids and pieces of a text."""
    tokenizer = load_tokenizer(run, read_config(run)["run"])
    return [(number, tokenizer.piece(number)) for number in tokenizer.encode(text)]


def sequences_of(run: RunDirectory, texts: Sequence[str]) -> list[Pieces]:
    """The transformed sequences that a fine-tuned run makes of `texts`; none for a pre-trained run."""
    sections = read_config(run)
    info = sections["run"]
    if info.kind != "finetune":
        return []
    tokenizer = load_tokenizer(run, info)
    system = system_named(info.system)
    layout = system.build_layout(dict(tokenizer.specials), sections["model"].reads, info.direction)
    made = family_of(sections["task"].kind).sequences(texts, Encoding(sections["task"], tokenizer, layout))
    return [[(number, tokenizer.piece(number)) for number in ids] for ids in made]


def describe_run(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """Configuration, progress and files of a run."""
    sections = read_config(run)
    described = {name: to_plain(section) for name, section in sections.items()}
    if run.has("training/position.json"):
        described["position"] = asdict(read_position(run))
    validations = [record["validation"] for record in run.metrics() if "validation" in record]
    if validations:
        described["last validation"] = {name: value for name, value in validations[-1].items() if name != "main"}
    described["files"] = run.sizes()
    return described


def summary_of(run: RunDirectory) -> str:
    """The same for people: what the run is, how far it has come, and which settings are not the size's own."""
    sections = read_config(run)
    info, model = sections["run"], sections["model"]
    tokenizer = load_tokenizer(run, info)
    what = "a pre-trained model" if info.kind == "pretrain" else f"a model for {sections['task'].kind}"
    system = system_named(info.system)
    lines = [
        ("is", f"{what}: {info.system} {info.size}, {_direction(system, info.direction)}"),
        ("shape", model.describe()),
        ("vocabulary", f"{tokenizer.size:,} pieces of {tokenizer.kind}, special tokens included"),
        *(_task_lines(sections) if info.kind == "finetune" else [_origin(sections["data"])]),
        ("trained", _progress_of(run, sections)),
    ]
    validations = [record["validation"] for record in run.metrics() if "validation" in record]
    last = validations[-1] if validations else {}
    shown = {name: value for name, value in last.items() if name != "main" and value is not None}
    if shown:
        lines.append(("validation", "  ".join(f"{name} {value:.4g}" for name, value in shown.items()) + "  (the last)"))
    lines.append(("settings", _own_settings(sections) or f"those of {info.system} {info.size}"))
    if PAPER in system.sizes:
        lines.append(("paper", _unlike_the_paper(sections)))
    lines.append(("files", ", ".join(f"{name} {size_text(size)}" for name, size in run.sizes().items())))
    return "\n".join([str(run.path), *(f"  {name:10}  {value}" for name, value in lines)])


def _origin(data: DataConfig) -> tuple[str, str]:
    if data.imported_from is not None:
        return "imported", f"from {data.imported_from}"
    if data.source is not None:
        return "text", f"{data.source} and its translation {data.target}"
    return "text", ", ".join(data.inputs) + (f", going on from {data.starts_from}" if data.starts_from else "")


_DIRECTIONS = {"forward": "left to right", "backward": "right to left"}
_BOTH = "in both directions at once"


def _direction(system: System, direction: str) -> str:
    if system.learn is not None:
        return system.base
    return _DIRECTIONS[direction] if system.causal else _BOTH


def _task_lines(sections: dict[str, Any]) -> list[tuple[str, str]]:
    task, transfer = sections["task"], sections["transfer"]
    began = "new weights" if task.from_scratch else f"the weights of {task.base or 'a model in memory'}"
    if not task.from_scratch and transfer.layers >= 0:
        began += f", its first {transfer.layers} blocks only"
    lines = [("began with", began), ("loss", describe_loss(sections))]
    if task.sentences:
        lines.append(("text", f"{task.sentences:,} unlabelled sentences beside the rows"))
    if task.also:
        others = (f"{name} ({said.replace(' ', ', ')} classes)" for name, said in task.also.items())
        lines.append(("beside it", ", ".join(others)))
    if task.labels:
        lines.append(("labels", LabelSet(tuple(task.labels)).listing()))
    if task.scheme:
        lines.append(("chunks", f"marked as {task.scheme}" if task.scheme != "other" else "marked otherwise than IOB"))
    if task.unanswerable:
        lines.append(("answers", "a question may have none"))
    if task.format:
        lines.append(("layout", task.format))
    if task.metric:
        lines.append(("chosen by", task.metric))
    if task.columns:
        lines.append(("columns", ", ".join(f"{field}={column}" for field, column in task.columns.items())))
    return lines


def _progress_of(run: RunDirectory, sections: dict[str, Any]) -> str:
    if not run.has("training/position.json"):
        return f"not yet to the first checkpoint (budget: {sections['budget']})"
    position = read_position(run)
    done = f"{position.step:,} steps, {position.tokens:,} tokens, {clock(position.seconds)}"
    best = f"; the weights are those of step {position.best_step:,}" if position.best_step else ""
    return f"{done} of {sections['budget']}: {'finished' if position.finished else 'go on with --resume'}{best}"


def _own_settings(sections: dict[str, Any]) -> str:
    """Settings of model, tokenizer, objective, training, start and pooling that are not the size's defaults."""
    changes = _unlike(
        sections, sections["run"].size, ("model", "tokenizer", "objective", "training", "start", "pooling")
    )
    return ", ".join(f"{change.key}={change.new}" for change in changes)


# From the tokenizer, from training.dropout, and from the text.
_DERIVED = ("model.vocabulary", "model.dropout", "model.lsa_dimensions", "model.lsa_pairs")


def _unlike(sections: dict[str, Any], name: str, parts: tuple[str, ...]) -> list[Change]:
    """The settings in `parts` that are not those of the size `name`."""
    info = sections["run"]
    size = size_named(system_named(info.system), name)
    training = size.pretraining if info.kind == "pretrain" else size.finetuning
    if "start" in sections:
        training = size.onward or size.pretraining
    usual = {"model": size.model, "tokenizer": size.tokenizer, "objective": size.objective, "training": training}
    usual |= {"start": size.start, "pooling": size.pooling, "transfer": size.transfer}
    kept = {part: sections[part] for part in parts if part in sections}
    changes = difference({part: usual[part] for part in kept}, kept)
    return [change for change in changes if change.key not in _DERIVED]


_PLAIN = {  # where a key does not say it in plain words
    "transfer.lm_weight": "λ",
    "transfer.thaw": "thawing",
    "transfer.head": "the head starts",
    "transfer.rate_decay": "rate divided at each layer below by",
    "transfer.model": "the task's model",
    "training.rate": "learning rate",
    "training.final_rate": "rate at the end, of the peak",
    "training.batch_size": "rows a step",
    "tokenizer.kind": "vocabulary of",
    "tokenizer.size": "pieces",
}
# How a machine is used, which no paper is about.
_NOT_OF_A_PAPER = (
    "micro_batch",
    "save_seconds",
    "evaluations",
    "bad_steps",
    "log_samples",
    "sample_megabytes",
    "splitter",
)


def _unlike_the_paper(sections: dict[str, Any]) -> str:
    """In what a run differs from its system's paper, in plain words: what it has, and in brackets the paper's."""
    info = sections["run"]
    fine = info.kind == "finetune"
    parts = ("training", "transfer", "objective") if fine else ("model", "tokenizer", "objective", "training", "start")
    changes = _unlike(sections, PAPER, parts)
    if fine and sections["transfer"].pooling == "concat":
        changes += _unlike(sections, PAPER, ("pooling",))
    if fine and sections["transfer"].model != "recurrent":
        changes = [change for change in changes if not change.key.startswith("transfer.reader.")]
    said = [
        f"{_plain(change.key)} {change.new} ({change.old})"
        for change in changes
        if change.key.rpartition(".")[2] not in _NOT_OF_A_PAPER
    ]
    system = system_named(info.system)
    epochs = size_named(system, PAPER).epochs
    if fine and sections["task"].epochs != epochs:
        said.append(f"epochs {sections['task'].epochs} ({epochs})")
    if fine and sections["task"].from_scratch and not system.build_head:
        said.append("weights new (pre-trained)")
    if fine and sections["task"].shrinks:
        said.append("scores drawn to the mean (as predicted)")
    shape = "; the shape is not the paper's" if fine and _unlike(sections, PAPER, ("model",)) else ""
    whose = "the paper's" if system.finetuned or not fine else "GPT's, for the paper does not fine-tune"
    if not said:
        return f"all settings{' of fine-tuning' if fine else ''} are {whose}{shape}"
    remedy = "; --plan paper has the paper's" if fine else ""
    return f"differs in {', '.join(said)}; {whose} in brackets{remedy}{shape}"


def _plain(key: str) -> str:
    """A key in plain words; of a table inside a section, with the table's name."""
    return _PLAIN.get(key, key.partition(".")[2].replace(".", " ").replace("_", " "))
