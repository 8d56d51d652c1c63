"""A model without pre-training, for fine-tuning from nothing: new weights, and a vocabulary trained on the rows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foretext.config import Setting, apply_sets
from foretext.errors import UserError
from foretext.runs.checks import check_seed, check_sets, check_tokenizer, check_vectors
from foretext.runs.directory import RunDirectory
from foretext.runs.model import RunConfig, SavedModel, load_tokenizer, read_config
from foretext.runs.report import Reporter, Silent
from foretext.systems import size_named, system_named
from foretext.systems.base import System, TokenizerConfig, TrunkParts
from foretext.tasks.files.rows import Row
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.words.form_vectors import with_vectors
from foretext.train.planning import Memory, check_memory
from foretext.train.vocabulary import new_tokenizer


def fresh_model(
    system: str,
    size: str,
    rows: Sequence[Row],
    seed: int = 0,
    sets: Sequence[str | Setting] = (),
    reporter: Reporter | None = None,
    more: Sequence[str] = (),
    vectors: str | Path | None = None,
) -> SavedModel:
    """`system` at `size` with `sets` (model.…, tokenizer.…), not trained at all; `reporter` hears of the vocabulary,
    which is learned from the rows and from `more` texts. `vectors`: a file of what the words' vectors start as."""
    check_seed(seed)
    check_sets(sets)
    found = system_named(system)
    chosen = size_named(found, size)
    sections = apply_sets({"model": chosen.model, "tokenizer": chosen.tokenizer}, sets)
    sections["model"].check()
    check_tokenizer(sections["tokenizer"])
    check_memory(Memory(sections["model"], 1, 1))
    config: TokenizerConfig = sections["tokenizer"]
    texts = itertools.chain((text for row in rows for text in row.texts), more)
    reporter = reporter or Silent()
    for remark in sections["model"].remarks():
        reporter.note(remark)
    tokenizer = new_tokenizer(found, texts, config, seed, reporter.work)
    matrix = None
    if vectors is not None:
        tokenizer, matrix = _started_vectors(found, tokenizer, vectors, config.size)
        reporter.note(f"{int(matrix.any(axis=1).sum()):,} of {tokenizer.size:,} words have a vector in {vectors}")
        check_vectors(sets, sections["model"].vectors, matrix.shape[1], vectors)
        sections["model"] = dataclasses.replace(sections["model"], vectors=matrix.shape[1])
    sections["model"] = dataclasses.replace(sections["model"], vocabulary=tokenizer.size)
    sections["model"].check()  # once more: the vocabulary is known
    sections["run"] = RunConfig("pretrain", system, size, "forward", seed, tokenizer.fingerprint())
    trunk = found.build_trunk(TrunkParts(sections["model"], tokenizer))
    return SavedModel(None, sections, found, tokenizer, trunk, vectors=matrix)


def begun_model(
    path: Path, system: str, sets: Sequence[str | Setting] = (), vectors: str | Path | None = None
) -> SavedModel:
    """What `fresh_model` made for a fine-tuning that was begun in `path`: its shape and its vocabulary are the run's;
    `sets` may say the same again."""
    run = RunDirectory(path)
    kept = read_config(run)
    info: RunConfig = kept["run"]
    if info.system != system:
        raise UserError(f"{path}: begun with --system {info.system}, not {system}; name that one, or start a new run")
    check_sets(sets)
    tokenizer = load_tokenizer(run, info)
    known = size_named(system_named(system), info.size).tokenizer  # what was said of it is not kept, only the result
    sections = apply_sets({"model": kept["model"], "tokenizer": known}, sets)
    sections["model"].check()
    found = system_named(system)
    matrix = None if vectors is None else _started_vectors(found, tokenizer, vectors, tokenizer.size)[1]
    shape = {"run": dataclasses.replace(info, kind="pretrain"), "model": sections["model"]}
    trunk = found.build_trunk(TrunkParts(sections["model"], tokenizer))
    return SavedModel(None, shape, found, tokenizer, trunk, vectors=matrix)


def _started_vectors(
    system: System, tokenizer: Tokenizer, vectors: str | Path, size: int
) -> tuple[Tokenizer, np.ndarray]:
    if system.build_head is None:
        raise UserError(
            f"--vectors is for a system that learns vectors of words (cvt), not {system.name}; leave it out"
        )
    return with_vectors(tokenizer, vectors, size)
