"""Parallel text and word vectors as what a translation is pre-trained on: both vocabularies, and pairs as token shards.

The vectors' file, or run, is read once, when the vocabulary is made. From the first checkpoint on, the vectors are
among the weights; a run that is gone on with before that reads them again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from foretext.runs.directory import RunWriter
from foretext.runs.machine import check_space
from foretext.runs.run_config import POSITION
from foretext.runs.run_vectors import given_vectors
from foretext.text.corpus.shards import Sharding, write_documents
from foretext.text.corpus.text_files import ReadReport
from foretext.train.pretraining.run_setup import RunSetup
from foretext.train.resume import TOKENS, check_vectors


def prepare_pairs(setup: RunSetup, writer: RunWriter) -> None:
    """Vocabularies, vectors and shards, as [objective] of the system makes them."""
    data = setup.config.data
    settings: Any = setup.config.objective  # of a system that reads pairs: it makes the corpus
    begun_before = setup.take_up()
    counts = None
    if not begun_before or not setup.has_shards():
        counts = settings.corpus(data.source, data.target, data.errors)
        if counts.replaced:
            setup.reporter.note(f"{counts.replaced:,} bytes that are not UTF-8 were replaced")
        setup.progress("reading pairs", 1, 1)
    if not begun_before:
        _make_vocabularies(setup, counts)
    elif not setup.run.has(POSITION) and data.vectors is not None and data.starts_from is None:
        setup.vectors = settings.vectors(given_vectors(data.vectors), setup.tokenizer)
    if counts is not None:
        _write(setup, counts)
    setup.keep(writer)


def _make_vocabularies(setup: RunSetup, counts: Any) -> None:
    """`model.vectors` follows from the file."""
    data = setup.config.data
    if setup.request.start is not None:
        setup.name_vocabulary(setup.started_model.tokenizer)
        return
    assert data.vectors is not None
    tokenizer, setup.vectors, said = counts.vocabularies(given_vectors(data.vectors), setup.config.tokenizer.size)
    width = setup.vectors.shape[1]
    model: Any = setup.config.model  # of a system that translates: it has the width of its words' vectors
    check_vectors(setup.request.sets, model.vectors, width, data.vectors)
    setup.config = dataclasses.replace(setup.config, model=dataclasses.replace(model, vectors=width))
    setup.name_vocabulary(tokenizer)
    setup.progress("reading vectors", 1, 1)
    setup.reporter.note(said)


def _write(setup: RunSetup, counts: Any) -> None:
    tokenizer, seed = setup.tokenizer, setup.config.run.seed
    check_space(setup.run.path, counts.octets)
    manifest = write_documents(
        counts.documents(tokenizer, seed),
        tokenizer,
        setup.run.path / TOKENS,
        ReadReport(rules={"a pair a line": 1}, replaced=counts.replaced),
        Sharding(seed, setup.config.data.valid_fraction),
        ids=counts.ids(tokenizer),
    )
    train, valid = (manifest.splits[name].documents for name in ("train", "valid"))
    for remark in counts.remarks(train, valid, tokenizer):
        setup.reporter.note(remark)
