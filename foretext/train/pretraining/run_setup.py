"""Setting up a pre-training run: its vocabulary and its token shards, both saved before training.

`prepare_text` makes one vocabulary from text. `prepare_pairs` is for translation, which trains on parallel text and
word vectors: it makes both vocabularies, and shards of sentence pairs. The vectors' file or run is read once, when the
vocabulary is made. From the first checkpoint on, the vectors are among the weights; a run that is resumed before that
reads them again.
"""

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foretext.errors import Interrupted, counted, refuse_if
from foretext.runs.commit import RunWriter
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import check_space
from foretext.runs.model import SavedModel, load_model, load_tokenizer
from foretext.runs.reading import given_vectors
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import POSITION, DataConfig, PretrainConfig, read_config
from foretext.systems import system_named
from foretext.systems.base import System, TokenizerConfig
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.text.corpus.shard_writing import Sharding, write_documents, write_shards
from foretext.text.corpus.shards import ShardManifest, read_manifest
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.training import least_size, specials_of, train_tokenizer
from foretext.text.tokenizers.unigram import UNKNOWN
from foretext.train.pretraining.pretrain_request import PretrainRequest, completed, published_tokenizer
from foretext.train.resume import TOKENS, check_vectors

LITTLE_TEXT = 100_000  # bytes
MORE_TEXT = "give more text, or a shorter context: --set model.context=…"


@dataclass
class RunSetup:
    """The request, and what has been made of it so far."""

    request: PretrainRequest
    run: RunDirectory
    config: PretrainConfig
    reporter: Reporter
    stopping: StopRequest
    sized: str = ""  # the plan's line about the size, if the size follows from minutes and machine
    tokenizer: Tokenizer = field(init=False)  # set by `take_up` or `name_vocabulary`
    vectors: np.ndarray | None = None  # of the vocabulary's words, if a trunk starts with vectors

    @functools.cached_property
    def started_model(self) -> SavedModel:
        """The model to continue from."""
        assert self.config.data.starts_from is not None
        return load_model(self.config.data.starts_from)

    def progress(self, title: str, done: int, total: int) -> None:
        """Before training a signal ends the work at once: there is nothing to save yet."""
        self.reporter.work(title, done, total)
        if self.stopping.requested is not None:
            raise Interrupted(self.stopping.requested, str(self.run.path) if self.run.exists() else None)

    def take_up(self) -> bool:
        """Takes the vocabulary of a run that was started before; False if there is none."""
        if not (self.run.has("tokenizer.json") and self.run.has("config.toml")):
            return False
        kept = read_config(self.run)
        self._set_vocabulary(kept.run.tokenizer, kept.model.vocabulary)
        self.tokenizer = load_tokenizer(self.run, self.config.run)
        return True

    def name_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Sets a new vocabulary. UserError if no trunk can have this shape with so many pieces, which is known only
        now."""
        self.tokenizer = tokenizer
        self._set_vocabulary(tokenizer.fingerprint(), tokenizer.size)
        self.config.model.check()

    def _set_vocabulary(self, fingerprint: str, size: int) -> None:
        self.config = replace(
            self.config,
            run=replace(self.config.run, tokenizer=fingerprint),
            model=replace(self.config.model, vocabulary=size),
        )

    def has_shards(self) -> bool:
        """Whether there are shards to use. Shards without a configuration are of unknown text; with a checkpoint they
        must not change."""
        return (self.run.path / TOKENS / "manifest.json").exists() or self.run.has(POSITION)

    def keep(self, writer: RunWriter) -> None:
        """Saves configuration and vocabulary, so that resuming need not make them again."""
        folder = self.run.path / TOKENS
        refuse_if(
            read_manifest(folder).tokenizer != self.tokenizer.fingerprint(),
            f"{folder}: made with another tokenizer; put the right folder back, or start a new run",
        )
        files_now = {"config.toml": self.config.text().encode()}
        if not self.run.has("tokenizer.json"):
            files_now["tokenizer.json"] = self.tokenizer.to_json().encode()
        writer.commit(files_now)


def prepare_text(setup: RunSetup, writer: RunWriter) -> None:
    """Makes vocabulary and shards and saves both, so that resuming need not make them again."""
    begun_before = setup.take_up()
    if not begun_before:
        _check_length(setup.config)
        setup.name_vocabulary(_make_tokenizer(setup))
    if not begun_before or not setup.has_shards():
        _write_shards(setup)
    setup.keep(writer)


# -- vocabulary --------------------------------------------------------------------------------------------------------


def _make_tokenizer(setup: RunSetup) -> Tokenizer:
    request, config = setup.request, setup.config
    if config.start is not None:
        known = setup.started_model.tokenizer  # loaded in any case, so that a damaged run is refused before any work
        if config.start.vocabulary == "kept":
            return completed(known)
    if request.vocabulary is not None:
        return published_tokenizer(request.vocabulary, config.run.system)
    report = ReadReport()
    documents = read_documents(find_files(config.data.inputs), _read_options(config.data), report)
    system = system_named(config.run.system)
    watched = _watched(documents, report, setup.progress)
    tokenizer = new_tokenizer(system, watched, config.tokenizer, config.run.seed, setup.progress)
    setup.reporter.note(f"vocabulary: {tokenizer.size:,} pieces of {config.tokenizer.kind}")
    return tokenizer


def new_tokenizer(
    system: System,
    texts: Iterable[str],
    config: TokenizerConfig,
    seed: int,
    progress: Callable[[str, int, int], None],
) -> Tokenizer:
    """The vocabulary of a new model, learned from `texts`, of its system's kind and with its special tokens;
    `config.size` includes these."""
    specials = system.vocabulary if config.kind == "unigram" and UNKNOWN in system.vocabulary else ()
    added = [name for name in system.vocabulary if name not in (specials or specials_of(config.kind))]
    least = least_size(config.kind) + len(added)
    refuse_if(
        config.size < least, f"tokenizer.size={config.size}: {config.kind} for {system.name} needs at least {least} ids"
    )
    tokenizer = train_tokenizer(
        texts,
        replace(config, size=config.size - len(added)),
        seed=seed,
        specials=specials,  # already includes a piece for unknown characters
        progress=progress,
    )
    return tokenizer.with_specials(added) if added else tokenizer


def _watched(documents: Iterable[str], report: ReadReport, progress: Callable[[str, int, int], None]) -> Iterator[str]:
    """The documents. Checks for signals and shows progress every 256 documents and every million characters."""
    characters = 0
    for number, document in enumerate(documents):
        if number % 256 == 0 or characters > 1_000_000:
            progress("reading for the vocabulary", report.done_bytes, report.total_bytes)
            characters = 0
        characters += len(document)
        yield document
    progress("reading for the vocabulary", 1, 1)


# -- token shards ------------------------------------------------------------------------------------------------------


def _read_options(data: DataConfig) -> ReadOptions:
    return ReadOptions(data.column, data.documents, data.errors)


def _write_shards(setup: RunSetup) -> None:
    config, note = setup.config, setup.reporter.note
    files = find_files(config.data.inputs)
    check_space(setup.run.path, sum(file.size * (2 if file.packed else 1) for file in files))
    begun = time.perf_counter()
    manifest = write_shards(
        files,
        _read_options(config.data),
        setup.tokenizer,
        setup.run.path / TOKENS,
        Sharding(config.run.seed, config.data.valid_fraction),
        progress=lambda done, total: setup.progress("encoding", done, total),
    )
    took = time.perf_counter() - begun
    train, valid = manifest.splits["train"], manifest.splits["valid"]
    documents = 1 if manifest.split_by == "tokens" else train.documents + valid.documents
    note(
        f"text: {counted(documents, 'document')} ({manifest.rule}), "
        f"{train.tokens:,} tokens to train on, {valid.tokens:,} to validate; encoded in {took:.1f} s"
    )
    if lopsided := _lopsided(manifest, config.data.valid_fraction):
        note(lopsided)
    if manifest.replaced:
        note(f"{manifest.replaced:,} bytes that are not UTF-8 were replaced")
    _check_tokens(manifest, config)


def _lopsided(manifest: ShardManifest, fraction: float) -> str | None:
    """A note if a long document fell to validation. Documents are never cut to avoid this."""
    train, valid = manifest.splits["train"].tokens, manifest.splits["valid"].tokens
    share = valid / (train + valid)
    if share <= max(0.25, 2 * fraction):
        return None
    return (
        f"{share:.0%} of the text is used for validation (wanted: {fraction:.0%}), because it includes a long "
        "document; use another --seed, or cut long documents into several"
    )


def _check_length(config: PretrainConfig) -> None:
    """Refuses too little text before a vocabulary is made. Each token is at least one byte and one more ends each
    document; only short texts, which are read in no time, are checked."""
    data, context = config.data, config.model.context
    files = find_files(data.inputs)
    if sum(file.size for file in files) > LITTLE_TEXT:
        return
    report = ReadReport()
    for _ in read_documents(files, _read_options(data), report):
        if report.bytes > context:
            return
    most = report.bytes + report.documents
    refuse_if(
        most <= context,
        f"{', '.join(data.inputs)}: {report.bytes} bytes of text give at most {most} tokens, fewer than one context "
        f"of {context} and its target; {MORE_TEXT}",
    )


def _check_tokens(manifest: ShardManifest, config: PretrainConfig) -> None:
    """The text must fill one context, and leave something to validate on."""
    where, context = ", ".join(config.data.inputs), config.model.context
    train, valid = manifest.splits["train"].tokens, manifest.splits["valid"].tokens
    refuse_if(
        train <= context,
        f"{where}: only {train:,} tokens to train on, fewer than one context of {context} and its target; {MORE_TEXT}",
    )
    refuse_if(
        valid < 2, f"{where}: only {valid} tokens to validate on; give more text, or --set data.valid_fraction=0.5"
    )


def prepare_pairs(setup: RunSetup, writer: RunWriter) -> None:
    """Makes vocabularies, vectors and shards, as the system's [objective] defines them."""
    data = setup.config.data
    settings: Any = setup.config.objective  # a system that reads pairs makes its own corpus
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
    """Makes the vocabularies. `model.vectors` follows from the file."""
    data = setup.config.data
    if setup.request.start is not None:
        setup.name_vocabulary(setup.started_model.tokenizer)
        return
    assert data.vectors is not None
    tokenizer, setup.vectors, remark = counts.vocabularies(given_vectors(data.vectors), setup.config.tokenizer.size)
    width = setup.vectors.shape[1]
    model: Any = setup.config.model  # of a system that translates: it holds the width of its word vectors
    check_vectors(setup.request.sets, model.vectors, width, data.vectors)
    setup.config = replace(setup.config, model=replace(model, vectors=width))
    setup.name_vocabulary(tokenizer)
    setup.progress("reading vectors", 1, 1)
    setup.reporter.note(remark)


def _write(setup: RunSetup, counts: Any) -> None:
    tokenizer, seed = setup.tokenizer, setup.config.run.seed
    check_space(setup.run.path, counts.octets)
    manifest = write_documents(
        counts.documents(tokenizer, seed),
        tokenizer,
        setup.run.path / TOKENS,
        ReadReport(rules={"one pair per line": 1}, replaced=counts.replaced),
        Sharding(seed, setup.config.data.valid_fraction),
        ids=counts.ids(tokenizer),
    )
    train, valid = (manifest.splits[name].documents for name in ("train", "valid"))
    for remark in counts.remarks(train, valid, tokenizer):
        setup.reporter.note(remark)
