"""Documents to token shards.

A hash of the seed and a document's text decides whether it goes to training or validation. So the split needs no
memory, does not depend on the number of workers, and keeps copies of a document on one side. The first documents are
held back until it is certain that both sides get one.
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from foretext.errors import EXIT_MACHINE, UserError, refuse_if
from foretext.text.corpus.encoding import encode_documents
from foretext.text.corpus.readers import ReadOptions, read_documents
from foretext.text.corpus.shards import FORMAT, SPLITS, Shard, ShardManifest, Split, token_dtype
from foretext.text.corpus.text_files import ReadReport, TextFile
from foretext.text.tokenizers.base import END, Tokenizer, document_batches, encodable

SHARD_BYTES = 64_000_000
_HELD_DOCUMENTS, _HELD_TOKENS = 1_000, 4_000_000
_IN_PROCESS = 2_000_000  # bytes of text; with less, starting workers takes longer than it saves


@dataclass(frozen=True)
class EncodedDocument:
    key: int
    ids: np.ndarray
    utf8_bytes: int


def encoded_document(text: str, ids: np.ndarray, seed: int) -> EncodedDocument:
    """A document as `write_documents` takes it; its text decides its side."""
    data = encodable(text).encode("utf-8")
    digest = hashlib.blake2b(data, digest_size=8, salt=(seed & (1 << 64) - 1).to_bytes(16, "little"))
    return EncodedDocument(int.from_bytes(digest.digest(), "little"), ids, len(data))


@dataclass(frozen=True)
class Sharding:
    """How documents become shards: the seed and fraction of the validation split, and the size of the files in
    bytes."""

    seed: int
    valid_fraction: float
    shard_bytes: int = SHARD_BYTES


def write_shards(
    files: Sequence[TextFile],
    options: ReadOptions,
    tokenizer: Tokenizer,
    folder: Path,
    sharding: Sharding,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    report: ReadReport | None = None,
) -> ShardManifest:
    """Encodes all documents into `folder`, which appears atomically and replaces an earlier one.

    `workers`: None is one per core (none for little text); 0 encodes in this process. `progress` gets the bytes done
    and in all, as stored on disk.
    """
    refuse_if(
        tokenizer.end is None, f"the tokenizer has no {END} to put after each document; add it with with_specials"
    )
    refuse_if(
        not 0 <= sharding.valid_fraction < 1,
        f"the validation fraction must be at least 0 and below 1, not {sharding.valid_fraction}",
    )
    report = ReadReport() if report is None else report
    if workers is None:
        workers = 0 if sum(file.size for file in files) < _IN_PROCESS else os.cpu_count() or 1

    def encoded() -> Iterator[EncodedDocument]:
        documents = read_documents(files, options, report)
        batches = (
            encode_documents(documents, tokenizer, workers)
            if workers
            else ((batch, tokenizer.encode_many(batch)) for batch in document_batches(documents))
        )
        for texts, arrays in batches:
            for text, ids in zip(texts, arrays):
                if tokenizer.unknown is not None:  # ids for unknown words are valid in one process only
                    ids = np.where(ids < tokenizer.size, ids, tokenizer.unknown).astype(ids.dtype)
                yield encoded_document(text, ids, sharding.seed)
            if progress is not None:
                progress(report.done_bytes, report.total_bytes)

    return write_documents(encoded(), tokenizer, folder, report, sharding)


def write_documents(
    documents: Iterator[EncodedDocument],
    tokenizer: Tokenizer,
    folder: Path,
    report: ReadReport,
    sharding: Sharding,
    ids: int | None = None,
) -> ShardManifest:
    """The same for encoded documents. `ids`: the number of ids, if more than the tokenizer has; `report` says, once all
    are read, how they were read."""
    dtype = token_dtype(ids or tokenizer.size)
    staging, old = (folder.with_name(f".{folder.name}.{role}") for role in ("staging", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        staging.mkdir()
        split_by, splits = _write_splits(documents, tokenizer, dtype, staging, sharding)
        manifest = ShardManifest(
            format=FORMAT,
            tokenizer=tokenizer.fingerprint(),
            dtype=dtype.name,
            seed=sharding.seed,
            valid_fraction=sharding.valid_fraction,
            split_by=split_by,
            rule=report.rule,
            replaced=report.replaced,
            cut=report.cut,
            splits=splits,
        )
        text = json.dumps(dataclasses.asdict(manifest), indent=1, sort_keys=True) + "\n"
        (staging / "manifest.json").write_text(text, encoding="utf-8")
        for path in (*staging.iterdir(), staging):
            _sync(path)
        if folder.exists():
            folder.rename(old)
        staging.rename(folder)
        _sync(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"{folder}: disk full; free some space and start again", EXIT_MACHINE) from None
        raise UserError(f"{folder}: cannot be written ({error.strerror or error})", EXIT_MACHINE) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _write_splits(
    documents: Iterator[EncodedDocument],
    tokenizer: Tokenizer,
    dtype: np.dtype,
    folder: Path,
    sharding: Sharding,
) -> tuple[str, dict[str, Split]]:
    end = np.array([tokenizer.end], dtype=dtype)
    fraction = sharding.valid_fraction
    with contextlib.ExitStack() as stack:
        writers = [_SplitWriter(folder, name, dtype, end, sharding.shard_bytes) for name in SPLITS]
        for writer in writers:
            stack.callback(writer.close)
        held = _hold(documents)
        split_by = "document"
        limit = int(fraction * 2**64)
        if fraction > 0 and len(held) == 1:
            split_by = "tokens"
            for writer, part in zip(writers, _cut_in_two(held[0], tokenizer, fraction)):
                writer.add(part)
        else:
            sides, moved = _sides(held, limit) if fraction > 0 else ([False] * len(held), set())
            for document, valid in zip(held, sides):
                writers[valid].add(document)
            held.clear()
            for document in documents:
                writers[(document.key < limit) != (document.key in moved)].add(document)
        return split_by, {writer.name: writer.finish() for writer in writers}


def _hold(documents: Iterator[EncodedDocument]) -> list[EncodedDocument]:
    """The first documents: two or more if there are two, and few enough to keep in memory."""
    held: list[EncodedDocument] = []
    tokens = 0
    for document in documents:
        held.append(document)
        tokens += len(document.ids)
        if len(held) > 1 and (len(held) >= _HELD_DOCUMENTS or tokens >= _HELD_TOKENS):
            break
    return held


def _sides(held: Sequence[EncodedDocument], limit: int) -> tuple[list[bool], set[int]]:
    """Chooses which of the held documents are for validation, and which keys change sides: neither side may be
    empty, and a book should not be held out when the rest is a note. Copies of a document have one key and stay on
    one side."""
    sizes: Counter[int] = Counter()
    for document in held:
        sizes[document.key] += len(document.ids)
    keys = sorted(sizes)
    if len(keys) == 1:  # copies of one document: it has to be on both sides
        return [place == 0 for place in range(len(held))], set()
    drawn = {key for key in keys if key < limit}
    valid, total = set(drawn), sum(sizes.values())
    most = max(0.5, 2 * limit / 2**64) * total
    for key in sorted(valid, key=lambda key: -sizes[key]):
        if len(valid) == len(keys) or sum(sizes[member] for member in valid) > most:
            valid.remove(key)
    if not valid:
        valid = {next(key for key in keys if sizes[key] <= total / len(keys))}
    return [document.key in valid for document in held], valid ^ drawn


def _cut_in_two(
    document: EncodedDocument, tokenizer: Tokenizer, fraction: float
) -> tuple[EncodedDocument, EncodedDocument]:
    """The only document's tokens: the last `fraction` of them for validation, at least one on each side."""
    ids = document.ids
    refuse_if(len(ids) < 2, "the text is a single token, too little to train and validate on; give more text")
    valid = min(max(1, round(len(ids) * fraction)), len(ids) - 1)
    last = ids[-valid:]
    if tokenizer.lossless:
        valid_bytes = sum(len(tokenizer.piece_bytes(id)) for id in last.tolist())
    else:
        valid_bytes = round(document.utf8_bytes * valid / len(ids))
    return (
        EncodedDocument(document.key, ids[:-valid], document.utf8_bytes - valid_bytes),
        EncodedDocument(document.key, last, valid_bytes),
    )


class _SplitWriter:
    """Writes documents into shard files of bounded size; a document never spans two."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype, end: np.ndarray, shard_bytes: int) -> None:
        self.name = name
        self._folder, self._dtype, self._end, self._shard_bytes = folder, dtype, end, shard_bytes
        self._shards: list[Shard] = []
        self._file: BinaryIO | None = None
        self._documents = self._utf8_bytes = 0

    def add(self, document: EncodedDocument) -> None:
        if self._file is None:
            self._file = (self._folder / self._shard_name()).open("wb", buffering=1 << 20)
            self._hash, self._tokens = hashlib.sha256(), 0
        data = np.concatenate([document.ids.astype(self._dtype), self._end]).tobytes()
        self._file.write(data)
        self._hash.update(data)
        self._tokens += len(document.ids) + 1
        self._documents += 1
        self._utf8_bytes += document.utf8_bytes
        if self._tokens * self._dtype.itemsize >= self._shard_bytes:
            self.close()

    def _shard_name(self) -> str:
        return f"{self.name}-{len(self._shards):05}.bin"

    def close(self) -> None:
        """Closes the current shard, if there is one."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            size = self._tokens * self._dtype.itemsize
            self._shards.append(Shard(self._shard_name(), self._tokens, size, self._hash.hexdigest()))

    def finish(self) -> Split:
        self.close()
        tokens = sum(shard.tokens for shard in self._shards)
        return Split(tuple(self._shards), self._documents, tokens, self._utf8_bytes)


def _sync(path: Path) -> None:
    """Syncs a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Removes what a dead process left beside `folder`. The run's lock allows one writer at a time."""
    for path in folder.parent.iterdir():
        if path.name.startswith(f".{folder.name}."):
            shutil.rmtree(path, ignore_errors=True)
