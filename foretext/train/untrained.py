"""The model that a fine-tuning starts from: a run, or, from nothing, new weights and a vocabulary of the rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretext.config import Setting, apply_sets, setting_of
from foretext.errors import UserError
from foretext.runs.directory import RunDirectory
from foretext.runs.model import RunConfig, SavedModel, facing, load_model, load_tokenizer, read_config
from foretext.runs.report import Note, Silent, Work
from foretext.runs.run_vectors import given_vectors
from foretext.systems import size_named, system_named
from foretext.systems.base import System, TokenizerConfig, TrunkParts
from foretext.tasks.families import family_of
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.word_tokenizer import WordTokenizer
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.vectors import read_vectors
from foretext.text.words.word_forms import with_vectors
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest, OtherTask
from foretext.train.planning import Memory, check_memory
from foretext.train.pretraining.run_setup import new_tokenizer
from foretext.train.resume import check_seed, check_sets, check_vectors

_SILENT = Silent()


def with_base(request: FinetuneRequest, learned: Sequence[Any], note: Note, work: Work) -> FinetuneRequest:
    """The request with the model to start from, where it only names it: a run, the model that the run in `out` was
    begun with, or a new one. Its vocabulary is of the rows `learned` (a word of rows held out is as unknown as any
    other), of the other tasks and of the unlabelled text."""
    base = request.base
    if not isinstance(base, Base):
        return request
    if base.run is not None:
        request = replace(request, base=with_given(pretrained_model(base.run), base.vectors, note))
    elif base.system is not None:
        shape = [one for one in map(setting_of, request.sets) if one.names[0] in ("model", "tokenizer")]
        rest = tuple(one for one in map(setting_of, request.sets) if one not in shape)
        if request.resume and request.out is not None and RunDirectory(request.out).has("config.toml"):
            model = begun_model(request.out, base.system, shape, base.vectors)
        else:
            texts = texts_of([OtherTask("rows", request.kind, learned), *request.also], request.unlabelled)
            size, seed = base.size or "tiny", request.seed
            model = fresh_model(base.system, size, texts, seed, shape, base.vectors, note, work)
        request = replace(request, base=model, sets=rest, from_scratch=True)
    return request if base.direction is None else replace(request, base=facing(request.start, base.direction))


def with_given(model: SavedModel, vectors: str | Path | None, note: Note = _SILENT.note) -> SavedModel:
    """A pre-trained model with vectors, of a file or of a run, for a task's own model to read beside its states."""
    if vectors is None:
        return model
    if not isinstance(model.tokenizer, Words | WordTokenizer):
        where = model.run.path if model.run else "this model"
        raise UserError(
            f"--vectors are of words, and {where} reads pieces ({model.tokenizer.kind}); leave it out, or take a run "
            "of elmo or cove"
        )
    specials = set(model.tokenizer.specials.values())
    words = ["" if id in specials else word for id, word in enumerate(model.tokenizer.pieces)]
    found = read_vectors(given_vectors(vectors), only=words)
    matrix = found.rows(words)
    known = int(matrix.any(axis=1).sum())
    if not known:
        raise UserError(f"{vectors}: has no vector for any of the model's {len(words):,} words; give others")
    note(f"{known:,} of {len(words):,} words have a vector in {vectors}")
    return replace(model, vectors=matrix)


def pretrained_model(path: str | Path, device: str = "cpu") -> SavedModel:
    """The model of a pre-trained run; a fine-tuned one is an error."""
    model = load_model(path, device)
    if model.task is not None:
        raise UserError(f"{path} is fine-tuned; here a pre-trained run is wanted")
    return model


def texts_of(tasks: Sequence[OtherTask], more: Sequence[str]) -> Iterator[str]:
    """What a new vocabulary is learned from: the texts of the rows of tasks, and `more`."""
    return itertools.chain((text for one in tasks for text in family_of(one.kind).texts(one.rows)), more)


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
    """`system` at `size` with `sets` (model.…, tokenizer.…), not trained at all. The vocabulary is learned from
    `texts`, and `work` hears of it. `vectors`: a file of what the words' vectors start as."""
    check_seed(seed)
    check_sets(sets)
    found = system_named(system)
    chosen = size_named(found, size)
    sections = apply_sets({"model": chosen.model, "tokenizer": chosen.tokenizer}, sets)
    sections["model"].check()
    sections["tokenizer"].check()
    check_memory(Memory(sections["model"], 1, 1))
    config: TokenizerConfig = sections["tokenizer"]
    for remark in sections["model"].remarks():
        note(remark)
    tokenizer = new_tokenizer(found, texts, config, seed, work)
    matrix = None
    if vectors is not None:
        tokenizer, matrix = _started_vectors(found, tokenizer, vectors, config.size)
        note(f"{int(matrix.any(axis=1).sum()):,} of {tokenizer.size:,} words have a vector in {vectors}")
        check_vectors(sets, sections["model"].vectors, matrix.shape[1], vectors)
        sections["model"] = replace(sections["model"], vectors=matrix.shape[1])
    sections["model"] = replace(sections["model"], vocabulary=tokenizer.size)
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
    shape = {"run": replace(info, kind="pretrain"), "model": sections["model"]}
    trunk = found.build_trunk(TrunkParts(sections["model"], tokenizer))
    return SavedModel(None, shape, found, tokenizer, trunk, vectors=matrix)


def _started_vectors(
    system: System, tokenizer: Tokenizer, vectors: str | Path, size: int
) -> tuple[Tokenizer, np.ndarray]:
    if system.build_head is None:
        raise UserError(
            f"--vectors is for a system that learns vectors of words (cvt), not {system.name}; leave it out"
        )
    return with_vectors(tokenizer, given_vectors(vectors), size)
