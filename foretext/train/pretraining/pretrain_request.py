"""What a user asks of pre-training, and the configuration that it resolves to: the size's defaults, the run to resume
or to continue from, options and --set, checked before any work is done."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from foretext.config import Change, Setting, Toml, apply_sets, difference
from foretext.errors import UserError, refuse, refuse_if
from foretext.objectives.base import shaping
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import products_a_second, using_threads
from foretext.runs.run_config import Budget, DataConfig, PretrainConfig, RunConfig, read_config
from foretext.systems import size_named, system_named
from foretext.systems.base import StartConfig, System
from foretext.text.tokenizers.base import END, Tokenizer
from foretext.text.tokenizers.published import tokenizer_from_published
from foretext.train.resume import agreed, check_seed, check_sets

Section = TypeVar("Section", RunConfig, DataConfig, StartConfig)
NO_VECTORS = "none"  # --vectors none: no word vectors beside a language model


@dataclass(frozen=True)
class PretrainRequest:
    """What a user asks for. Fields left None come from the size's defaults, or from the run that is resumed."""

    inputs: tuple[str, ...]
    out: Path
    system: str | None = None  # gpt
    size: str | None = None  # tiny
    budget: Budget | None = None
    direction: Literal["forward", "backward"] | None = None  # forward
    seed: int | None = None  # 0
    sets: tuple[str | Setting, ...] = ()  # section.key=value, or settings of a file; later ones override earlier ones
    resume: bool = False
    start: Path | None = None  # run to continue from, on new text
    # with `start`: a vocabulary learned from the new text, or the published one, instead of the run's
    new_vocabulary: bool = False
    vocabulary: Path | None = None  # folder with a published vocabulary
    source: Path | None = None  # parallel text, for cove: line n of the one file translates line n of the other
    target: Path | None = None
    # for cove: the source language's word vectors; for others: the word2vec run to put beside, or NO_VECTORS
    vectors: Path | None = None
    column: str | None = None
    documents: str | None = None  # auto
    errors: str | None = None  # strict
    device: str = "auto"
    threads: int | None = None  # CPU threads; None: torch's default


def written_texts(texts: Iterable[str], file: Path) -> Path:
    """Texts given in Python, written to a file that pre-training reads."""
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    file.write_text("".join(lines), encoding="utf-8", errors="replace")
    return file


def with_size(request: PretrainRequest, run: RunDirectory) -> tuple[PretrainRequest, str]:
    """The request with the size that follows from minutes and machine, and the plan's line about it. The request is
    unchanged if it names a size, has no minutes, continues a run, or if its system has no such rule."""
    going_on = request.start is not None or (request.resume and run.has("config.toml"))
    minutes = None if request.budget is None else request.budget.minutes
    if going_on or request.size is not None or minutes is None:
        return request, ""
    system = system_named(request.system or RunConfig.system)
    if system.size_for is None:
        return request, ""
    with using_threads(request.threads):
        products = products_a_second(request.device)
    name = system.size_for(products, minutes)
    line = f"{name}: chosen for {minutes:g} minutes at {products / 1e9:.0f} GFLOP/s; --size sets another"
    return replace(request, size=name), line


def resolved_config(request: PretrainRequest, run: RunDirectory, note: Callable[[Change], None]) -> PretrainConfig:
    """The resolved configuration. When resuming, it is the run's own, after a comparison: `note` gets each change."""
    check_sets(request.sets, _said_by_options(request))
    if request.resume and run.has("config.toml"):
        return _resumed_config(request, run, note)
    refuse_if(
        request.resume and not (request.inputs or request.source or request.target),
        f"{run.path}: there is no run to resume; name the text and a budget to start one",
    )
    if request.start is None:  # otherwise its system is not known yet
        _check_named(request, system_named(request.system or RunConfig.system))
    if request.budget is None:
        raise UserError("give a budget: --minutes, --steps or --tokens")
    if request.start is not None:
        return _config_from(request, request.start, request.budget)
    refuse_if(
        request.new_vocabulary,
        "--new-vocabulary is for continuing from a run (--from RUN); without one every vocabulary is new",
    )
    return _new_config(request, request.budget)


def _new_config(request: PretrainRequest, budget: Budget) -> PretrainConfig:
    """The size's settings, overridden by options and --set."""
    info = _new_run(request, RunConfig())
    system = system_named(info.system)
    refuse_if(
        not system.causal and info.direction == "backward",
        f"--direction backward: {info.system} sees both sides at once and has no direction; leave it out",
    )
    size = size_named(system, info.size)
    data = _with_data(DataConfig(), request)
    defaults = PretrainConfig(
        info,
        size.model,
        tokenizer=size.tokenizer,
        objective=size.objective,
        training=size.pretraining,
        budget=budget,
        data=data,
    )
    config = _with_sets(defaults, request.sets)
    if system.learns_from == "pairs":
        settings: Any = config.objective  # for a system that reads pairs: it says which words it can read
        settings.check_vocabulary(config.tokenizer.kind, config.tokenizer.size, system.name)
    return config


def _config_from(request: PretrainRequest, start: Path, budget: Budget) -> PretrainConfig:
    """The shape and the vocabulary of the run to continue from, and its size's settings for that."""
    old = _startable_config(request, RunDirectory(start))
    system = system_named(old.run.system)
    _check_named(request, system)
    refuse_if(
        system.learn is not None,
        f"--from {start}: {system.name} learns its vectors from all the text at once; give the old and the new text "
        "together, without --from",
    )
    size = size_named(system, old.run.size)
    kept = replace(
        old,
        run=_new_run(request, old.run),
        training=size.onward or size.pretraining,
        budget=budget,
        data=_with_data(DataConfig(), request),
        start=_with_start(size.start, request),
    )
    config = _with_sets(kept, request.sets)
    assert config.start is not None
    if config.start.vocabulary == "new":
        refuse_if(
            not system.piece_rows,
            f"--new-vocabulary: {system.name} has no weights that depend on its pieces; leave it out",
        )
        refuse_if(
            getattr(config.model, "cutoffs", ()),
            "--new-vocabulary: an adaptive softmax is cut by word frequency and cannot take new words; leave it out",
        )
    elif request.vocabulary is not None:
        _check_vocabulary(request.vocabulary, old.run, start)
    _check_kept(kept, config, start)
    return config


def _new_run(request: PretrainRequest, defaults: RunConfig) -> RunConfig:
    return RunConfig(
        "pretrain",
        request.system or defaults.system,
        request.size or defaults.size,
        request.direction or defaults.direction,
        request.seed or 0,
    )


def _resumed_config(request: PretrainRequest, run: RunDirectory, note: Callable[[Change], None]) -> PretrainConfig:
    """The run's own configuration, with the changes that the user may make now."""
    old, where = read_config(run), run.path
    if not isinstance(old, PretrainConfig):
        raise UserError(f"{where} is a fine-tuned run; resume it with foretext finetune … --out {where} --resume")
    refuse_if(
        request.new_vocabulary and old.start is None,
        f"{where} was started with its own vocabulary; leave --new-vocabulary out",
    )
    new = replace(
        old,
        run=_replaced(old.run, {name: getattr(request, name) for name in ("system", "size", "direction", "seed")}),
        data=_with_data(old.data, request),
        budget=request.budget or old.budget,
        start=old.start and _with_start(old.start, request),
    )
    if request.vocabulary is not None:
        _check_vocabulary(request.vocabulary, old.run, where)
    return agreed(old, _with_sets(new, request.sets), where, note)


# -- what is named -----------------------------------------------------------------------------------------------------


def _check_named(request: PretrainRequest, system: System) -> None:
    """Checks that the system's input is named, and nothing that it cannot read."""
    refuse_if(
        system.learns_from == "rows",
        f"{system.name} is not pre-trained: it learns a task from labelled rows and unlabelled text together; use "
        f"foretext finetune FILE --system {system.name} --task … --unlabelled TEXT",
    )
    pairs = {"--source": request.source, "--target": request.target}
    if system.learns_from == "pairs":
        _check_pairs_named(request, system, pairs | {"--vectors": request.vectors})
        return
    if system.learn is not None:
        pairs |= {"--vectors": request.vectors}
    refuse(pairs, f"is for a system that translates (cove), not {system.name}; leave it out")
    refuse_if(not request.inputs, "name the text to pre-train on: files, folders or globs")


def _check_pairs_named(request: PretrainRequest, system: System, pairs: dict[str, Path | None]) -> None:
    if request.inputs:
        raise UserError(
            f"{system.name} learns from two files, where line n of the one translates line n of the other: give "
            f"--source FILE --target FILE, and leave out {request.inputs[0]}"
        )
    refuse_if(
        request.start is not None and request.vectors is not None,
        f"--from {request.start} keeps that run's vectors; leave out --vectors",
    )
    needed = [option for option in pairs if request.start is None or option != "--vectors"]
    if missing := [option for option in needed if pairs[option] is None]:
        raise UserError(f"{system.name} learns from parallel text and word vectors: give {' and '.join(missing)}")
    text_only = {"--vocabulary": request.vocabulary, "--text-column": request.column, "--documents": request.documents}
    refuse(text_only, f"is for plain text, but {system.name} learns from pairs of lines; leave it out")


def _said_by_options(request: PretrainRequest) -> dict[str, str]:
    """Keys of config.toml that options set, and how messages name these options."""
    given: dict[str, tuple[str, object]] = {
        "data.column": ("--text-column says", request.column),
        "data.documents": ("--documents says", request.documents),
        "data.errors": ("--errors says", request.errors),
        "start.vocabulary": ("--new-vocabulary says", request.new_vocabulary or None),
    }
    budget = ("--minutes, --steps and --tokens say", request.budget)
    given |= {f"budget.{name}": budget for name in ("minutes", "steps", "tokens")}
    return {key: words for key, (words, value) in given.items() if value is not None}


def _with_data(data: DataConfig, request: PretrainRequest) -> DataConfig:
    names = ("source", "target", "vectors", "column", "documents", "errors")
    given = {name: getattr(request, name) for name in names} | {"starts_from": request.start}
    words = {name: str(value) for name, value in given.items() if value is not None}
    return _replaced(data, {"inputs": tuple(request.inputs) or None, **words})


def _with_start(start: StartConfig, request: PretrainRequest) -> StartConfig:
    return _replaced(start, {"vocabulary": "new" if request.new_vocabulary else None})


def _replaced(section: Section, given: Toml) -> Section:
    """`section` with the given values; None stands for 'not given'."""
    return replace(section, **{name: value for name, value in given.items() if value is not None})


# -- what can be -------------------------------------------------------------------------------------------------------


def _with_sets(config: PretrainConfig, sets: Sequence[str | Setting]) -> PretrainConfig:
    """`config` with --set applied, checked. The keys of [run] have options of their own and cannot be set."""
    check_seed(config.run.seed)
    sections = apply_sets({name: section for name, section in config.by_name().items() if name != "run"}, sets)
    sections["model"] = replace(sections["model"], dropout=sections["training"].dropout)
    changed = PretrainConfig(config.run, **sections)
    for section in (changed.training, changed.objective, changed.model, changed.tokenizer, changed.data, changed.start):
        if section is not None:
            section.check()
    return changed


def _check_vocabulary(folder: Path, kept: RunConfig, where: Path) -> None:
    """A run's vocabulary never changes: naming the same one is fine, another is refused."""
    refuse_if(
        published_tokenizer(folder, kept.system).fingerprint() != kept.tokenizer,
        f"{where} keeps its own vocabulary, which is not that of --vocabulary {folder}; leave the option out",
    )


def published_tokenizer(folder: Path, system: str) -> Tokenizer:
    return completed(tokenizer_from_published(folder), system_named(system).vocabulary)


def completed(tokenizer: Tokenizer, specials: Sequence[str] = ()) -> Tokenizer:
    """A published vocabulary, extended by the missing ones of `specials` and by an end-of-text token, which ends each
    document here."""
    missing = [name for name in specials if name not in tokenizer.specials]
    tokenizer = tokenizer.with_specials(missing) if missing else tokenizer
    return tokenizer if tokenizer.end is not None else tokenizer.with_specials([END])


def _startable_config(request: PretrainRequest, start: RunDirectory) -> PretrainConfig:
    """The configuration of the run to continue from. Its system, size and direction are kept; options that differ are
    refused."""
    old = read_config(start)
    if not isinstance(old, PretrainConfig):
        raise UserError(f"{start.path} is fine-tuned; --from takes a pre-trained run")
    refuse_if(
        not start.has("model.safetensors"),
        f"{start.path}: no weights yet (training has not reached its first checkpoint)",
    )
    for name in ("system", "size", "direction"):
        given = getattr(request, name)
        refuse_if(
            given is not None and given != getattr(old.run, name),
            f"--from {start.path} keeps that run's {name}, {getattr(old.run, name)}: --{name} {given} is impossible; "
            "leave it out, or leave --from out",
        )
    return old


# Dropout follows training.dropout. No weight's shape depends on the length of the memory or on where distances are
# clamped.
WEIGHTLESS = ("model.dropout", "model.memory", "model.evaluation_memory", "model.clamp")


def _check_kept(before: PretrainConfig, after: PretrainConfig, start: Path) -> None:
    """UserError if --set changes the shape of trunk or head, which the weights carried over need, or the vocabulary,
    unless a new one is asked for."""
    assert after.start is not None
    names = ["model", "objective", *(["tokenizer"] if after.start.vocabulary == "kept" else [])]
    heads = [f"objective.{key}" for key in shaping(after.objective)]
    old, new = ({name: config.by_name()[name] for name in names} for config in (before, after))
    for change in difference(old, new):
        free = change.key.startswith("objective.") and change.key not in heads
        refuse_if(
            change.key not in WEIGHTLESS and not free,
            f"--from {start} keeps that run's {change.key}, {change.old}: it cannot become {change.new}; leave that "
            "setting out",
        )
