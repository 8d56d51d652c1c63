"""Word vectors beside a language model: a word2vec run in the folder `words` of its run, learned from the same text.

The trunk does not read them and trains as in its paper. Fine-tuning reads them beside the trunk, because a few minutes
of word vectors learn things that a language model of twenty minutes does not (docs/results.md).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from foretext.errors import UserError
from foretext.runs.directory import RunDirectory
from foretext.runs.lock import LOCK
from foretext.runs.model import WORDS, own_words
from foretext.runs.run_config import (
    POSITION,
    Budget,
    DataConfig,
    PretrainConfig,
    is_finished,
    read_config,
    read_position,
)
from foretext.systems import system_named, word_system
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.train.pretraining.pretrain_request import NO_VECTORS, PretrainRequest
from foretext.train.resume import TOKENS

SHARE = 0.2  # of a budget in minutes, at most
MINUTES = 1.0  # if the budget is in steps or tokens
LEAST_TEXT = 200_000  # characters; with less text, vectors add nothing to n-grams


def words_request(request: PretrainRequest, config: PretrainConfig, run: RunDirectory) -> PretrainRequest | None:
    """The request that learns the vectors. None: they exist already, are not wanted, or the text is too short."""
    system, folder = system_named(config.run.system), RunDirectory(run.path / WORDS)
    if system.learns_from != "text" or system.learn is not None or run.has(POSITION):
        return None
    begun = request.resume and folder.has("config.toml") and _same_text(folder, config)
    if begun and is_finished(folder):
        return None
    if not begun and folder.exists():  # left by an earlier start
        shutil.rmtree(folder.path)
    if config.data.vectors is not None:
        if config.data.vectors != NO_VECTORS:
            _copy(Path(config.data.vectors), folder.path)
        return None
    return _request_for(folder.path, request, config, begun) if begun or _enough(config.data) else None


def budget_beside(config: PretrainConfig, run: RunDirectory) -> Budget:
    """The budget that the vectors leave."""
    minutes, words = config.budget.minutes, own_words(run.path)
    if minutes is None or words is None or config.data.vectors is not None:
        return config.budget
    return Budget(minutes=max(minutes / 2, minutes - read_position(RunDirectory(words)).seconds / 60))


def _request_for(out: Path, request: PretrainRequest, config: PretrainConfig, resume: bool) -> PretrainRequest:
    minutes, data = config.budget.minutes if config.budget else None, config.data
    return PretrainRequest(
        inputs=data.inputs,
        out=out,
        system=word_system().name,
        budget=Budget(minutes=MINUTES if minutes is None else SHARE * minutes),
        seed=config.run.seed,
        resume=resume,
        column=data.column,
        documents=data.documents,
        errors=data.errors,
        threads=request.threads,
    )


def _enough(data: DataConfig) -> bool:
    options = ReadOptions(column=data.column, documents=data.documents, errors=data.errors)
    return text_length(read_documents(find_files(data.inputs), options, ReadReport())) >= LEAST_TEXT


def _same_text(words: RunDirectory, config: PretrainConfig) -> bool:
    kept = read_config(words)
    return isinstance(kept, PretrainConfig) and kept.data.inputs == config.data.inputs


def text_length(documents: Iterable[str]) -> int:
    """The characters of the text, counted up to `LEAST_TEXT`."""
    count = 0
    for document in documents:
        count += len(document)
        if count >= LEAST_TEXT:
            break
    return count


def forget_tokens(words: Path) -> None:
    """Deletes the token shards of finished vectors; nothing reads them again."""
    shutil.rmtree(words / TOKENS, ignore_errors=True)


def _copy(source: Path, to: Path) -> None:
    run = RunDirectory(source)
    if not system_named(read_config(run).run.system).learns_words or not is_finished(run):
        raise UserError(f"--vectors {source}: not a finished word2vec run; name one, or leave --vectors out")
    for name in run.names():
        run.read(name)  # verifies the file
    shutil.copytree(source, to, ignore=shutil.ignore_patterns(TOKENS, LOCK))
