"""Parallel text and word vectors as what a translation is pre-trained on: both vocabularies, and pairs as token shards.

The vectors' file is read once, when the vocabulary is made. From the first checkpoint on, the vectors are among the
weights; a run that is gone on with before that reads them again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from foretext.runs.budget import POSITION
from foretext.runs.checks import check_vectors
from foretext.runs.directory import RunDirectory, RunWriter
from foretext.runs.machine import check_space
from foretext.runs.model import DataConfig, load_model
from foretext.text.corpus.shards import write_documents
from foretext.text.corpus.text_files import ReadReport
from foretext.train.pretraining.run_setup import Preparing
from foretext.train.starting_over import TOKENS


def prepare_pairs(work: Preparing, run: RunDirectory, writer: RunWriter) -> None:
    """Vocabularies, vectors and shards, as [objective] of the system makes them."""
    data: DataConfig = work.sections["data"]
    settings = work.sections["objective"]
    begun_before = work.take_up(run)
    counts = None
    if not begun_before or not work.has_shards(run):
        counts = settings.corpus(data.source, data.target, data.errors)
        if counts.replaced:
            work.reporter.note(f"{counts.replaced:,} bytes that are not UTF-8 were replaced")
        work.progress("reading pairs", 1, 1)
    if not begun_before:
        _make_vocabularies(work, counts)
    elif not run.has(POSITION) and data.starts_from is None:
        work.vectors = settings.vectors(data.vectors, work.tokenizer)
    if counts is not None:
        _write(work, run, counts)
    work.keep(run, writer)


def _make_vocabularies(work: Preparing, counts: Any) -> None:
    """`model.vectors` follows from the file."""
    data: DataConfig = work.sections["data"]
    if work.request.start is not None:
        work.started_model = load_model(work.request.start)
        work.name_vocabulary(work.started_model.tokenizer)
        return
    assert data.vectors is not None
    tokenizer, matrix, said = counts.vocabularies(data.vectors, work.sections["tokenizer"].size)
    check_vectors(work.request.sets, work.sections["model"].vectors, matrix.shape[1], data.vectors)
    work.vectors = matrix
    work.sections["model"] = dataclasses.replace(work.sections["model"], vectors=matrix.shape[1])
    work.name_vocabulary(tokenizer)
    work.progress("reading vectors", 1, 1)
    work.reporter.note(said)


def _write(work: Preparing, run: RunDirectory, counts: Any) -> None:
    tokenizer, seed = work.tokenizer, work.sections["run"].seed
    assert tokenizer is not None
    check_space(run.path, counts.octets)
    manifest = write_documents(
        counts.documents(tokenizer, seed),
        tokenizer,
        run.path / TOKENS,
        ReadReport(rules={"a pair a line": 1}, replaced=counts.replaced),
        seed=seed,
        valid_fraction=work.sections["data"].valid_fraction,
        ids=counts.ids(tokenizer),
    )
    train, valid = (manifest.splits[name].documents for name in ("train", "valid"))
    for remark in counts.remarks(train, valid, tokenizer):
        work.reporter.note(remark)
