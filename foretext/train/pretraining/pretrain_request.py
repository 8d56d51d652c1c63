"""What a user asks of pre-training, and the configuration that it resolves to: a size's defaults, a run that is gone on
with or gone on from, options and --set, checked before any work is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from foretext.config import Change, Setting, apply_sets, difference
from foretext.errors import UserError
from foretext.objectives.base import shaping
from foretext.runs.budget import Budget
from foretext.runs.checks import (
    check_seed,
    check_sets,
    check_start,
    check_tokenizer,
    check_training,
    check_valid_fraction,
)
from foretext.runs.directory import RunDirectory
from foretext.runs.model import DataConfig, RunConfig, open_run, read_config
from foretext.systems import size_named, system_named
from foretext.systems.base import System, TrainingConfig
from foretext.text.tokenizers.base import Tokenizer, tokenizer_from_published
from foretext.train.from_run import check_new_vocabulary
from foretext.train.resume import agreed_sections
from foretext.train.vocabulary import completed

MICRO_TOKENS = 4096


@dataclass(frozen=True)
class PretrainRequest:
    """What a user asks for. Anything left None comes from the size's defaults, or from the run that is resumed."""

    inputs: tuple[str, ...]
    out: Path
    system: str | None = None  # gpt
    size: str | None = None  # tiny
    budget: Budget | None = None
    direction: Literal["forward", "backward"] | None = None  # forward
    seed: int | None = None  # 0
    sets: tuple[str | Setting, ...] = ()  # section.key=value, or what a file says; the last counts
    resume: bool = False
    start: Path | None = None  # run to go on from, with new text
    new_vocabulary: bool = False  # with `start`: learned from the new text, or the published one, not the run's
    vocabulary: Path | None = None  # folder with a published vocabulary
    source: Path | None = None  # parallel text, for a system that reads it: line n of one file and of the other
    target: Path | None = None
    vectors: Path | None = None  # of the source's words
    column: str | None = None
    documents: str | None = None  # auto
    errors: str | None = None  # strict
    device: str = "auto"


def resolved_sections(request: PretrainRequest, run: RunDirectory, note: Callable[[Change], None]) -> dict[str, Any]:
    """The resolved configuration; when resuming, the run's own, after comparing: `note` gets each change."""
    check_sets(request.sets, _said_by_options(request))
    if request.resume and run.has("config.toml"):
        return _resumed_sections(request, read_config(run), run.path, note)
    nothing = not request.inputs and request.source is None and request.target is None
    if request.resume and nothing:
        raise UserError(f"{run.path}: there is no run to go on with; name the text and a budget to start one")
    if request.start is None:  # else its system is not known yet
        _check_named(request, system_named(request.system or RunConfig.system))
    if request.budget is None:
        raise UserError("say how long: --minutes, --steps or --tokens")
    if request.new_vocabulary and request.start is None:
        raise UserError("--new-vocabulary is for going on from a run, --from RUN; without one every vocabulary is new")
    started = None if request.start is None else _started(request, open_run(request.start))
    kept: RunConfig = started["run"] if started else RunConfig()
    info = RunConfig(
        "pretrain",
        request.system or kept.system,
        request.size or kept.size,
        request.direction or kept.direction,
        request.seed or 0,
    )
    system = system_named(info.system)
    _check_named(request, system)
    if not system.causal and info.direction == "backward":
        raise UserError(
            f"--direction backward: {info.system} sees both sides at once and has no direction; leave it out"
        )
    size = size_named(system, info.size)
    sections: dict[str, Any] = {
        "run": info,
        "model": started["model"] if started else size.model,
        "tokenizer": started["tokenizer"] if started else size.tokenizer,
        "objective": started["objective"] if started else size.objective,
        "training": (started and size.onward) or size.pretraining,
        "budget": request.budget,
        "data": _replaced(DataConfig(), _given_data(request)),
    }
    if started is None:
        resolved = _with_sets(sections, request.sets)
        if system.reads == "pairs":
            chosen = resolved["tokenizer"]
            resolved["objective"].check_vocabulary(chosen.kind, chosen.size, system.name)
        return resolved
    sections["start"] = _replaced(size.start, _given_start(request))
    resolved = _with_sets(sections, request.sets)
    if resolved["start"].vocabulary == "new":
        check_new_vocabulary(system, resolved["model"])
    elif request.vocabulary is not None:
        assert request.start is not None
        _check_vocabulary(request.vocabulary, kept, request.start)
    _check_kept(sections, resolved, request.start)
    return resolved


def _check_named(request: PretrainRequest, system: System) -> None:
    """What the system learns from is named, and nothing that it cannot read."""
    if system.reads == "rows":
        raise UserError(
            f"{system.name} is not pre-trained: it learns a task from labelled rows and unlabelled text at once; use "
            f"foretext finetune FILE --system {system.name} --task … --unlabelled TEXT"
        )
    pairs = {"--source": request.source, "--target": request.target, "--vectors": request.vectors}
    if system.reads == "text":
        given = [option for option, value in pairs.items() if value is not None]
        if given:
            raise UserError(f"{given[0]} is for a system that translates (cove), not {system.name}; leave it out")
        if not request.inputs:
            raise UserError("name the text to pre-train on: files, folders or globs")
        return
    if request.inputs:
        raise UserError(
            f"{system.name} learns from two files, line n of one the translation of line n of the other: give "
            f"--source FILE --target FILE, and leave out {request.inputs[0]}"
        )
    if request.start is not None and request.vectors is not None:
        raise UserError(f"--from {request.start} keeps that run's vectors; leave out --vectors")
    missing = [option for option, value in pairs.items() if value is None]
    if request.start is not None:
        missing.remove("--vectors")
    if missing:
        raise UserError(f"{system.name} learns from parallel text and word vectors: give {' and '.join(missing)}")
    text_only = {"--vocabulary": request.vocabulary, "--text-column": request.column, "--documents": request.documents}
    for option, value in text_only.items():
        if value is not None:
            raise UserError(f"{option} is for plain text, and {system.name} learns from pairs of lines; leave it out")


def _resumed_sections(
    request: PretrainRequest, old: dict[str, Any], where: Path, note: Callable[[Change], None]
) -> dict[str, Any]:
    """The run's own configuration with what the user gives this time, if that may change."""
    if old["run"].kind != "pretrain":
        raise UserError(f"{where} is a fine-tuned run; go on with it by foretext finetune … --out {where} --resume")
    given = {
        "system": request.system,
        "size": request.size,
        "direction": request.direction,
        "seed": request.seed,
    }
    new = old | {
        "run": _replaced(old["run"], given),
        "data": _replaced(old["data"], _given_data(request)),
        "budget": request.budget or old["budget"],
    }
    if request.new_vocabulary and "start" not in old:
        raise UserError(f"{where} was begun with a vocabulary of its own; leave --new-vocabulary out")
    if "start" in old:
        new["start"] = _replaced(old["start"], _given_start(request))
    if request.vocabulary is not None:
        _check_vocabulary(request.vocabulary, old["run"], where)
    return agreed_sections(old, _with_sets(new, request.sets), where, note)


def _said_by_options(request: PretrainRequest) -> dict[str, str]:
    """Keys of config.toml that the options have said already, and how to name these."""
    given: dict[str, tuple[str, object]] = {
        "data.column": ("--text-column says", request.column),
        "data.documents": ("--documents says", request.documents),
        "data.errors": ("--errors says", request.errors),
    }
    given["start.vocabulary"] = ("--new-vocabulary says", request.new_vocabulary or None)
    for name in ("minutes", "steps", "tokens"):
        given[f"budget.{name}"] = ("--minutes, --steps and --tokens say", request.budget)
    return {key: words for key, (words, value) in given.items() if value is not None}


def _given_data(request: PretrainRequest) -> dict[str, Any]:
    return {
        "inputs": tuple(request.inputs) or None,
        "source": None if request.source is None else str(request.source),
        "target": None if request.target is None else str(request.target),
        "vectors": None if request.vectors is None else str(request.vectors),
        "column": request.column,
        "documents": request.documents,
        "errors": request.errors,
        "starts_from": str(request.start) if request.start else None,
    }


def _given_start(request: PretrainRequest) -> dict[str, Any]:
    return {"vocabulary": "new" if request.new_vocabulary else None}


def _replaced(section: Any, given: dict[str, Any]) -> Any:
    """`section` with what was given; None stands for 'not said'."""
    return dataclasses.replace(section, **{name: value for name, value in given.items() if value is not None})


def _check_vocabulary(folder: Path, kept: RunConfig, where: Path) -> None:
    """A run's vocabulary never changes: naming the one it has is fine, another is refused."""
    if published_tokenizer(folder, kept.system).fingerprint() != kept.tokenizer:
        raise UserError(
            f"{where} has another vocabulary than --vocabulary {folder}, and keeps it; leave the option out"
        )


def published_tokenizer(folder: Path, system: str) -> Tokenizer:
    return completed(tokenizer_from_published(folder), system_named(system))


def _with_sets(sections: dict[str, Any], sets: Sequence[str | Setting]) -> dict[str, Any]:
    """`sections` after --set, checked. What [run] says is not for setting: it has options of its own."""
    check_seed(sections["run"].seed)
    changed = apply_sets({name: section for name, section in sections.items() if name != "run"}, sets)
    check_training(changed["training"])
    changed["objective"].check()
    changed["model"] = dataclasses.replace(changed["model"], dropout=changed["training"].dropout)
    changed["model"].check()
    check_tokenizer(changed["tokenizer"])
    check_valid_fraction(changed["data"].valid_fraction)
    if "start" in changed:
        check_start(changed["start"])
    return {"run": sections["run"]} | changed


def micro_batch_of(sections: dict[str, Any]) -> int:
    """Sequences at a time."""
    training: TrainingConfig = sections["training"]
    return training.micro_batch or max(1, min(training.batch_size, MICRO_TOKENS // sections["model"].context))


def _started(request: PretrainRequest, start: RunDirectory) -> dict[str, Any]:
    """The configuration of the run to go on from. Its system, size and direction are kept, so that options which say
    something else are refused."""
    old = read_config(start)
    kept: RunConfig = old["run"]
    if kept.kind != "pretrain":
        raise UserError(f"{start.path} is fine-tuned; --from takes a pre-trained run")
    if not start.has("model.safetensors"):
        raise UserError(f"{start.path}: no weights yet (training has not reached its first checkpoint)")
    for name in ("system", "size", "direction"):
        given = getattr(request, name)
        if given is not None and given != getattr(kept, name):
            raise UserError(
                f"--from {start.path} keeps that run's {name}, {getattr(kept, name)}: --{name} {given} cannot be; "
                f"leave it out, or leave --from out"
            )
    return old


# Dropout follows training.dropout; how far is remembered, and from where on distances look alike, is no weight's shape.
WEIGHTLESS = ("model.dropout", "model.memory", "model.evaluation_memory", "model.clamp")


def _check_kept(before: dict[str, Any], after: dict[str, Any], start: Path | None) -> None:
    """Weights that are carried over fit one shape, of trunk and head, and, unless a new one is asked for, one
    vocabulary: --set may not change them."""
    names = ["model", "objective", *(["tokenizer"] if after["start"].vocabulary == "kept" else [])]
    heads = [f"objective.{key}" for key in shaping(after["objective"])]
    for change in difference({name: before[name] for name in names}, {name: after[name] for name in names}):
        free = change.key.startswith("objective.") and change.key not in heads
        if change.key not in WEIGHTLESS and not free:
            raise UserError(
                f"--from {start} keeps that run's {change.key}, {change.old}: it cannot become {change.new}; "
                "leave that setting out"
            )
