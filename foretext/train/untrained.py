"""A model to fine-tune from when there is no run: new weights, and a vocabulary learned from the rows."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretext.config import Setting, apply_sets, setting_of
from foretext.errors import refuse_if
from foretext.runs.directory import RunDirectory
from foretext.runs.model import SavedModel, load_tokenizer
from foretext.runs.reading import given_vectors
from foretext.runs.report import Note, Reporter, Work
from foretext.runs.run_config import ModelSections, RunConfig, read_config
from foretext.systems import size_named, system_named
from foretext.systems.base import System, TokenizerConfig, TrunkParts
from foretext.tasks.family import family_of
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.word_forms import with_vectors
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest, OtherTask
from foretext.train.planning import Memory, check_memory
from foretext.train.pretraining.run_setup import new_tokenizer
from foretext.train.resume import check_seed, check_sets, check_vectors

_SILENT = Reporter()


def new_base(request: FinetuneRequest, base: Base, learned: Sequence[Any], note: Note, work: Work) -> FinetuneRequest:
    """The request with a new model to start from, or with the one that the run in `out` was started with. The
    vocabulary comes from the training rows `learned` (not from rows held out), from the other tasks and from the
    unlabelled text."""
    assert base.system is not None
    shape = [setting for setting in map(setting_of, request.sets) if setting.names[0] in ("model", "tokenizer")]
    rest = tuple(setting for setting in map(setting_of, request.sets) if setting not in shape)
    if request.resume and request.out is not None and RunDirectory(request.out).has("config.toml"):
        model = begun_model(request.out, base.system, shape, base.vectors)
    else:
        texts = texts_of([OtherTask("rows", request.kind, learned), *request.also], request.unlabelled)
        model = fresh_model(base.system, base.size or "tiny", texts, request.seed, shape, base.vectors, note, work)
    return replace(request, base=model, sets=rest, from_scratch=True)


def texts_of(tasks: Sequence[OtherTask], more: Sequence[str]) -> Iterator[str]:
    """The texts for a new vocabulary: those of the tasks' rows, and `more`."""
    return itertools.chain((text for task in tasks for text in family_of(task.kind).texts(task.rows)), more)


def fresh_model(
    system: str,
    size: str,
    texts: Iterable[str],
    seed: int = 0,
    sets: Sequence[str | Setting] = (),
    vectors: str | Path | None = None,
    note: Note = _SILENT.note,
    work: Work = _SILENT.work,
) -> SavedModel:
    """An untrained `system` at `size`, with `sets` (model.…, tokenizer.…). The vocabulary is learned from `texts`, and
    `work` gets the progress. `vectors`: a file of initial word vectors."""
    check_seed(seed)
    check_sets(sets)
    definition = system_named(system)
    chosen = size_named(definition, size)
    model, config = _shaped(chosen.model, chosen.tokenizer, sets)
    config.check()
    check_memory(Memory(model, 1, 1))
    for remark in model.remarks():
        note(remark)
    tokenizer = new_tokenizer(definition, texts, config, seed, work)
    matrix = None
    if vectors is not None:
        tokenizer, matrix = _started_vectors(definition, tokenizer, vectors, config.size)
        note(f"{int(matrix.any(axis=1).sum()):,} of {tokenizer.size:,} words have a vector in {vectors}")
        width = matrix.shape[1]
        check_vectors(sets, model.vectors, width, vectors)
        model = replace(model, vectors=width)
    model = replace(model, vocabulary=tokenizer.size)
    model.check()  # again: the vocabulary is known now
    info = RunConfig("pretrain", system, size, "forward", seed, tokenizer.fingerprint())
    return _new_model(definition, ModelSections(info, model), tokenizer, matrix)


def _shaped(model: Any, tokenizer: TokenizerConfig, sets: Sequence[str | Setting]) -> tuple[Any, TokenizerConfig]:
    """The system's [model], checked, and [tokenizer], with `sets` applied."""
    sections = apply_sets({"model": model, "tokenizer": tokenizer}, sets)
    sections["model"].check()
    return sections["model"], sections["tokenizer"]


def _new_model(system: System, config: ModelSections, tokenizer: Tokenizer, vectors: np.ndarray | None) -> SavedModel:
    return SavedModel(
        None, config, system, tokenizer, system.build_trunk(TrunkParts(config.model, tokenizer)), vectors=vectors
    )


def begun_model(
    path: Path, system: str, sets: Sequence[str | Setting] = (), vectors: str | Path | None = None
) -> SavedModel:
    """The model of `fresh_model` for a fine-tuning that was started in `path`, with that run's shape and vocabulary;
    `sets` may repeat them."""
    run = RunDirectory(path)
    kept = read_config(run)
    info = kept.run
    refuse_if(
        info.system != system,
        f"{path}: started with --system {info.system}, not {system}; name that one, or start a new run",
    )
    check_sets(sets)
    tokenizer = load_tokenizer(run, info)
    definition = system_named(system)
    # Settings for the tokenizer are not saved, only the result.
    model, _ = _shaped(kept.model, size_named(definition, info.size).tokenizer, sets)
    matrix = None if vectors is None else _started_vectors(definition, tokenizer, vectors, tokenizer.size)[1]
    return _new_model(definition, ModelSections(replace(info, kind="pretrain"), model), tokenizer, matrix)


def _started_vectors(
    system: System, tokenizer: Tokenizer, vectors: str | Path, size: int
) -> tuple[Tokenizer, np.ndarray]:
    refuse_if(
        system.build_head is None,
        f"--vectors is for a system that learns word vectors (cvt), not {system.name}; leave it out",
    )
    return with_vectors(tokenizer, given_vectors(vectors), size)
