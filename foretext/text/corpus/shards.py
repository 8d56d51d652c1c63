"""Writing token shards: a corpus as files of ids, with a manifest of sizes and hashes (see `token_shards` for reading).

A document goes to training or validation by a hash of the seed and its text, so the split needs no memory, does not
depend on the number of workers, and never puts two copies of one document on different sides. The first documents are
held back until it is sure that both sides get one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from foretext.errors import EXIT_MACHINE, UserError, refuse_if
from foretext.text.corpus.encoding import encode_documents
from foretext.text.corpus.readers import ReadOptions, read_documents
from foretext.text.corpus.text_files import ReadReport, TextFile
from foretext.text.corpus.token_shards import (
    FORMAT,
    SPLITS,
    Shard,
    ShardManifest,
    Split,
    TokenShards,
    read_manifest,
    token_dtype,
)
from foretext.text.tokenizers.base import END, Tokenizer, encodable

__all__ = ["ShardManifest", "TokenShards", "read_manifest", "write_shards"]

SHARD_BYTES = 64_000_000
_HELD_DOCUMENTS, _HELD_TOKENS = 1_000, 4_000_000
_IN_PROCESS = 2_000_000  # bytes of text below which starting workers takes longer than it saves


@dataclass(frozen=True)
class EncodedDocument:
    key: int
    ids: np.ndarray
    utf8_bytes: int


def encoded_document(text: str, ids: np.ndarray, seed: int) -> EncodedDocument:
    """A document as `write_documents` takes it: its side is drawn by its text."""
    data = encodable(text).encode("utf-8")
    digest = hashlib.blake2b(data, digest_size=8, salt=(seed & (1 << 64) - 1).to_bytes(16, "little"))
    return EncodedDocument(int.from_bytes(digest.digest(), "little"), ids, len(data))


@dataclass(frozen=True)
class Sharding:
    """How documents become shards: drawn for validation by `seed`, such a part of them, in files of so many bytes."""

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
    """Encode all documents into `folder`, which appears whole or not at all and replaces an earlier one.

    `workers` None is one for each core (none for little text); 0 encodes in this process. `progress` is told bytes done
    and bytes in all, as they lie on disk.
    """
    if tokenizer.end is None:
        raise UserError(f"the tokenizer has no {END}, which stands after each document; add it by with_specials")
    refuse_if(
        not 0 <= sharding.valid_fraction < 1,
        f"the validation fraction must be at least 0 and below 1, not {sharding.valid_fraction}",
    )
    report = ReadReport() if report is None else report
    if workers is None:
        workers = 0 if sum(file.size for file in files) < _IN_PROCESS else os.cpu_count() or 1
    documents = _encoded(files, options, tokenizer, sharding.seed, workers, report, progress)
    return write_documents(documents, tokenizer, folder, report, sharding)


def write_documents(
    documents: Iterator[EncodedDocument],
    tokenizer: Tokenizer,
    folder: Path,
    report: ReadReport,
    sharding: Sharding,
    ids: int | None = None,
) -> ShardManifest:
    """The same of documents that are encoded. `ids`: how many there are, if more than the tokenizer has; `report` has,
    once all are drawn, how they were read."""
    dtype = token_dtype(ids or tokenizer.size)
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    staging = folder.with_name(_staging_name(folder, "staging"))
    try:
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
        _write_synced(staging / "manifest.json", manifest.to_json().encode())
        _put_in_place(staging, folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"{folder}: the disk is full; free some space and start again", EXIT_MACHINE) from None
        raise UserError(f"{folder}: cannot be written ({error.strerror or error})", EXIT_MACHINE) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _encoded(
    files: Sequence[TextFile],
    options: ReadOptions,
    tokenizer: Tokenizer,
    seed: int,
    workers: int,
    report: ReadReport,
    progress: Callable[[int, int], None] | None,
) -> Iterator[EncodedDocument]:
    for texts, arrays in encode_documents(read_documents(files, options, report), tokenizer, workers):
        for text, ids in zip(texts, arrays):
            if tokenizer.unknown is not None:  # a word's number past the vocabulary holds in one process only
                ids = np.where(ids < tokenizer.size, ids, tokenizer.unknown).astype(ids.dtype)
            yield encoded_document(text, ids, seed)
        if progress is not None:
            progress(report.done_bytes, report.total_bytes)


def _write_splits(
    documents: Iterator[EncodedDocument],
    tokenizer: Tokenizer,
    dtype: np.dtype,
    folder: Path,
    sharding: Sharding,
) -> tuple[str, dict[str, Split]]:
    end = np.array([tokenizer.end], dtype=dtype)
    fraction = sharding.valid_fraction
    writers = [_SplitWriter(folder, name, dtype, end, sharding.shard_bytes) for name in SPLITS]
    try:
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
    finally:
        for writer in writers:
            writer.close()


def _hold(documents: Iterator[EncodedDocument]) -> list[EncodedDocument]:
    """The first documents: at least two if there are two, and few enough to be kept in memory."""
    held: list[EncodedDocument] = []
    tokens = 0
    for document in documents:
        held.append(document)
        tokens += len(document.ids)
        if len(held) > 1 and (len(held) >= _HELD_DOCUMENTS or tokens >= _HELD_TOKENS):
            break
    return held


def _sides(held: Sequence[EncodedDocument], limit: int) -> tuple[list[bool], set[int]]:
    """Which of the held documents are for validation, and the keys whose side was changed: neither is to be empty, and
    a book is not to be held out beside a note. Copies of a document have one key and stay on one side."""
    sizes: Counter[int] = Counter()
    for document in held:
        sizes[document.key] += len(document.ids)
    keys = sorted(sizes)
    if len(keys) == 1:  # copies of one document: there is no other way than to have it on both sides
        return [place == 0 for place in range(len(held))], set()
    drawn = {key for key in keys if key < limit}
    valid, total = set(drawn), sum(sizes.values())
    most = max(0.5, 2 * limit / 2**64) * total
    for key in sorted(valid, key=lambda key: -sizes[key]):
        if len(valid) == len(keys) or sum(sizes[one] for one in valid) > most:
            valid.remove(key)
    if not valid:
        valid = {next(key for key in keys if sizes[key] <= total / len(keys))}
    return [document.key in valid for document in held], valid ^ drawn


def _cut_in_two(
    document: EncodedDocument, tokenizer: Tokenizer, fraction: float
) -> tuple[EncodedDocument, EncodedDocument]:
    """The only document's tokens: the last `fraction` of them for validation, at least one on each side."""
    ids = document.ids
    refuse_if(len(ids) < 2, "the text is one single token, too little to train on and to validate with; give more text")
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
    """Documents into shard files of bounded size; a document is never spread over two."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype, end: np.ndarray, shard_bytes: int) -> None:
        self.name = name
        self._folder, self._dtype, self._end, self._shard_bytes = folder, dtype, end, shard_bytes
        self._shards: list[Shard] = []
        self._file: BinaryIO | None = None
        self._documents = self._utf8_bytes = 0
        self._start_shard()

    def _start_shard(self) -> None:
        self._hash, self._tokens = hashlib.sha256(), 0

    def add(self, document: EncodedDocument) -> None:
        if self._file is None:
            self._file = (self._folder / self._shard_name()).open("wb", buffering=1 << 20)
        data = np.concatenate([document.ids.astype(self._dtype), self._end]).tobytes()
        self._file.write(data)
        self._hash.update(data)
        self._tokens += len(document.ids) + 1
        self._documents += 1
        self._utf8_bytes += document.utf8_bytes
        if self._tokens * self._dtype.itemsize >= self._shard_bytes:
            self._end_shard()

    def _shard_name(self) -> str:
        return f"{self.name}-{len(self._shards):05}.bin"

    def _end_shard(self) -> None:
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        size = self._tokens * self._dtype.itemsize
        self._shards.append(Shard(self._shard_name(), self._tokens, size, self._hash.hexdigest()))
        self._start_shard()

    def finish(self) -> Split:
        self._end_shard()
        tokens = sum(shard.tokens for shard in self._shards)
        return Split(tuple(self._shards), self._documents, tokens, self._utf8_bytes)

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _staging_name(folder: Path, role: str) -> str:
    return f".{folder.name}.{role}-{socket.gethostname()}-{os.getpid()}"


def _put_in_place(staging: Path, folder: Path) -> None:
    _sync_folder(staging)
    old = folder.with_name(_staging_name(folder, "old"))
    if folder.exists():
        folder.rename(old)
    staging.rename(folder)
    _sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what dead processes of this host left beside `folder`."""
    pattern = re.compile(rf"\.{re.escape(folder.name)}\.(?:staging|old)-{re.escape(socket.gethostname())}-(\d+)")
    for path in folder.parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match and not _alive(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
