"""Parallel text and word vectors as what a translation is pre-trained on: both vocabularies, and pairs as token shards.

The vectors' file is read once, when the vocabulary is made. From the first checkpoint on, the vectors are among the
weights; a run that is gone on with before that reads them again.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from foretext.errors import UserError
from foretext.objectives.translation_pairs import (
    PairReport,
    ParallelText,
    TranslationSettings,
    WordCounts,
    count_words,
    pair_documents,
    pair_ids,
    vectors_of,
    vocabularies,
)
from foretext.runs.budget import POSITION
from foretext.runs.directory import RunWriter
from foretext.runs.machine import check_space
from foretext.text.corpus.shards import Sharding, write_documents
from foretext.text.corpus.text_files import ReadReport
from foretext.text.tokenizers.word_tokenizer import WordTokenizer
from foretext.train.pretraining.run_setup import RunSetup
from foretext.train.resume import TOKENS, check_vectors

BYTES_A_WORD = 4  # of a pair, in shards, at most
FEW_KNOWN = 0.5  # part of the source's words: with fewer the user is told


def prepare_pairs(setup: RunSetup, writer: RunWriter) -> None:
    """Vocabularies, vectors and shards."""
    data, settings = setup.config.data, setup.config.objective
    assert data.source is not None and data.target is not None and isinstance(settings, TranslationSettings)
    text = ParallelText(data.source, data.target, settings, data.errors)
    begun_before = setup.take_up()
    counts = None if begun_before and setup.has_shards() else _count(setup, text)
    if not begun_before:
        assert counts is not None
        _make_vocabularies(setup, settings, counts)
    elif not setup.run.has(POSITION) and data.starts_from is None:
        assert data.vectors is not None and isinstance(setup.tokenizer, WordTokenizer)
        setup.vectors = vectors_of(data.vectors, setup.tokenizer)
    if counts is not None:
        _write(setup, text, counts)
    setup.keep(writer)


def _count(setup: RunSetup, text: ParallelText) -> WordCounts:
    counts = count_words(text)
    if not counts.different:
        raise UserError(
            f"{text.source}, {text.target}: one pair is too little to train on and to validate with; give more"
        )
    if replaced := _replaced(counts.report):
        setup.reporter.note(f"{replaced:,} bytes that are not UTF-8 were replaced")
    setup.progress("reading pairs", 1, 1)
    return counts


def _make_vocabularies(setup: RunSetup, settings: TranslationSettings, counts: WordCounts) -> None:
    """`model.vectors` follows from the file."""
    data = setup.config.data
    if setup.request.start is not None:
        setup.name_vocabulary(setup.started_model.tokenizer)
        return
    assert data.vectors is not None
    tokenizer, setup.vectors = vocabularies(data.vectors, counts, settings, setup.config.tokenizer.size)
    width = setup.vectors.shape[1]
    model: Any = setup.config.model  # of a system that translates: it has the width of its words' vectors
    check_vectors(setup.request.sets, model.vectors, width, data.vectors)
    setup.config = dataclasses.replace(setup.config, model=dataclasses.replace(model, vectors=width))
    setup.name_vocabulary(tokenizer)
    setup.progress("reading vectors", 1, 1)
    setup.reporter.note(
        f"vocabulary: {tokenizer.size:,} words with vectors of {width}, {tokenizer.target_words.size:,} to translate "
        "into"
    )


def _write(setup: RunSetup, text: ParallelText, counts: WordCounts) -> None:
    tokenizer = setup.tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    check_space(setup.run.path, BYTES_A_WORD * (counts.sources.total() + counts.targets.total() + counts.pairs))
    seed = setup.config.run.seed
    manifest = write_documents(
        pair_documents(text.pairs(), tokenizer, seed),
        tokenizer,
        setup.run.path / TOKENS,
        ReadReport(rules={"a pair a line": 1}, replaced=_replaced(counts.report)),
        Sharding(seed, setup.config.data.valid_fraction),
        ids=pair_ids(tokenizer),
    )
    known = known_words(counts.sources, tokenizer)
    setup.reporter.note(
        f"text: {manifest.splits['train'].documents:,} pairs to train on, {manifest.splits['valid'].documents:,} to "
        f"validate{_left_out(counts.report)}; {known:.1%} of the source's words, signs aside, have a vector"
    )
    if known < FEW_KNOWN:
        setup.reporter.note(
            f"only {known:.1%} of the source's words have a vector and all others are read as nothing: little can be "
            "learned; give --vectors of the source's language (of single characters where it has no spaces)"
        )


def known_words(counts: Counter[str], tokenizer: WordTokenizer) -> float:
    """The part of the words, those without a letter or a digit aside, that have a vector."""
    told = {word: count for word, count in counts.items() if any(map(str.isalnum, word))}
    known = sum(count for number, count in zip(tokenizer.lookup(told), told.values()) if number != tokenizer.unknown)
    return known / max(1, sum(told.values()))


def _replaced(report: PairReport) -> int:
    return report.source.replaced + report.target.replaced


def _left_out(report: PairReport) -> str:
    reasons = [("too long", report.overlong), ("with nothing on one side", report.blank)]
    said = " and ".join(f"{count:,} {reason}" for reason, count in reasons if count)
    return f" ({said} were left out)" if said else ""
