"""Parallel text and word vectors as what a translation is pre-trained on: both vocabularies, and pairs as token shards.

The vectors' file is read once, when the vocabulary is made. From the first checkpoint on, the vectors are among the
weights; a run that is gone on with before that reads them again.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

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
from foretext.runs.checks import check_vectors
from foretext.runs.directory import RunDirectory, RunWriter
from foretext.runs.machine import check_space
from foretext.runs.model import DataConfig, load_model
from foretext.text.corpus.shards import Sharding, ShardManifest, write_documents
from foretext.text.corpus.text_files import ReadReport
from foretext.text.tokenizers.word_tokenizer import WordTokenizer
from foretext.train.pretraining.run_setup import Preparing
from foretext.train.starting_over import TOKENS

BYTES_A_WORD = 4  # of a pair, in shards, at most
FEW_KNOWN = 0.5  # part of the source's words: with fewer the user is told


def prepare_pairs(work: Preparing, run: RunDirectory, writer: RunWriter) -> None:
    """Vocabularies, vectors and shards."""
    data: DataConfig = work.sections["data"]
    begun_before = work.take_up(run)
    counts: WordCounts | None = None
    if not begun_before or not work.has_shards(run):
        counts = _count(work)
    if not begun_before:
        assert counts is not None
        _make_vocabularies(work, counts)
    elif not run.has(POSITION) and data.starts_from is None:
        assert data.vectors is not None and isinstance(work.tokenizer, WordTokenizer)
        work.vectors = vectors_of(data.vectors, work.tokenizer)
    if counts is not None:
        _write(work, run, counts)
    work.keep(run, writer)


def _text(work: Preparing) -> ParallelText:
    data: DataConfig = work.sections["data"]
    assert data.source is not None and data.target is not None
    return ParallelText(data.source, data.target, work.sections["objective"], data.errors)


def _count(work: Preparing) -> WordCounts:
    data: DataConfig = work.sections["data"]
    counts = count_words(_text(work))
    if not counts.different:
        raise UserError(
            f"{data.source}, {data.target}: one pair is too little to train on and to validate with; give more"
        )
    if replaced := _replaced(counts.report):
        work.reporter.note(f"{replaced:,} bytes that are not UTF-8 were replaced")
    work.progress("reading pairs", 1, 1)
    return counts


def _make_vocabularies(work: Preparing, counts: WordCounts) -> None:
    """`model.vectors` follows from the file."""
    data: DataConfig = work.sections["data"]
    if work.request.start is not None:
        work.started_model = load_model(work.request.start)
        work.name_vocabulary(work.started_model.tokenizer)
        return
    settings: TranslationSettings = work.sections["objective"]
    assert data.vectors is not None
    tokenizer, work.vectors = vocabularies(data.vectors, counts, settings, work.sections["tokenizer"].size)
    width = work.vectors.shape[1]
    check_vectors(work.request.sets, work.sections["model"].vectors, width, data.vectors)
    work.sections["model"] = dataclasses.replace(work.sections["model"], vectors=width)
    work.name_vocabulary(tokenizer)
    work.progress("reading vectors", 1, 1)
    work.reporter.note(
        f"vocabulary: {tokenizer.size:,} words with vectors of {width}, {tokenizer.target_words.size:,} to translate "
        "into"
    )


def _write(work: Preparing, run: RunDirectory, counts: WordCounts) -> ShardManifest:
    data: DataConfig = work.sections["data"]
    tokenizer = work.tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    check_space(run.path, BYTES_A_WORD * (counts.sources.total() + counts.targets.total() + counts.pairs))
    seed = work.sections["run"].seed
    manifest = write_documents(
        pair_documents(_text(work).pairs(), tokenizer, seed),
        tokenizer,
        run.path / TOKENS,
        ReadReport(rules={"a pair a line": 1}, replaced=_replaced(counts.report)),
        Sharding(seed, data.valid_fraction),
        ids=pair_ids(tokenizer),
    )
    known = known_words(counts.sources, tokenizer)
    work.reporter.note(
        f"text: {manifest.splits['train'].documents:,} pairs to train on, {manifest.splits['valid'].documents:,} to "
        f"validate{_left_out(counts.report)}; {known:.1%} of the source's words, signs aside, have a vector"
    )
    if known < FEW_KNOWN:
        work.reporter.note(
            f"only {known:.1%} of the source's words have a vector and all others are read as nothing: little can be "
            "learned; give --vectors of the source's language (of single characters where it has no spaces)"
        )
    return manifest


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
