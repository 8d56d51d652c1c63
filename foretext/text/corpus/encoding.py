"""Encoding documents on all cores, in order, with bounded memory.

Each worker is a plain `python -m foretext.text.corpus.encoding` that reads documents from its standard input and
answers with ids. Unlike `multiprocessing` this never imports the caller's main module, so a user's script needs no
guard, and no worker loads torch. A thread for each worker waits for its answers; a bounded queue keeps the reader from
running ahead.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import numpy as np

from foretext.errors import EXIT_MACHINE, UserError
from foretext.text.tokenizers.base import Tokenizer, encodable, tokenizer_from_json

_BATCH_CHARS = 400_000
_BATCH_DOCUMENTS = 2_000
_SIZE = struct.Struct("<Q")


def encode_documents(
    documents: Iterable[str], tokenizer: Tokenizer, workers: int
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
    """Batches of documents with their ids (uint32), in the order given; with no workers, in this process."""
    batches = _batches(documents)
    if workers == 0:
        for batch in batches:
            yield batch, tokenizer.encode_many(batch)
        return
    with contextlib.ExitStack() as stack:
        pool = [stack.enter_context(_Worker(tokenizer)) for _ in range(workers)]
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in pool:
            idle.put(worker)
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        waiting: deque[tuple[list[str], Future[list[np.ndarray]]]] = deque()
        try:
            for batch in batches:
                waiting.append((batch, threads.submit(_encode_on, idle, batch)))
                if len(waiting) > 2 * workers:
                    done, answer = waiting.popleft()
                    yield done, answer.result()
            while waiting:
                done, answer = waiting.popleft()
                yield done, answer.result()
        finally:
            for _, answer in waiting:
                answer.cancel()


def encode_texts(
    texts: Sequence[str], tokenizer: Tokenizer, progress: Callable[[int, int], None] | None = None
) -> list[np.ndarray]:
    """The ids of texts that are all in memory, in this process; `progress` hears how many of them are done."""
    encoded: list[np.ndarray] = []
    for _, ids in itertools.chain([([], [])], encode_documents(texts, tokenizer, workers=0)):
        encoded += ids
        if progress is not None:
            progress(len(encoded), len(texts))
    return encoded


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    length = 0
    for text in documents:
        batch.append(text)
        length += len(text)
        if length >= _BATCH_CHARS or len(batch) >= _BATCH_DOCUMENTS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _encode_on(idle: SimpleQueue[_Worker], batch: list[str]) -> list[np.ndarray]:
    worker = idle.get()
    try:
        return worker.encode(batch)
    finally:
        idle.put(worker)


class _Worker:
    """One encoding process, for one thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "foretext.text.corpus.encoding"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # a worker that died at once is noticed at the first batch
            _send(self._input, tokenizer.to_json().encode("utf-8"))

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self._output.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def encode(self, batch: list[str]) -> list[np.ndarray]:
        try:
            _send(self._input, _pack([encodable(text).encode("utf-8") for text in batch]))
            answer = _receive(self._output)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise UserError(
                f"an encoding process ended early (exit code {self._process.wait()}), perhaps for want of memory; "
                "free some and try again",
                EXIT_MACHINE,
            )
        return [np.frombuffer(ids, dtype=np.uint32) for ids in _unpack(answer)]


def _pack(parts: list[bytes]) -> bytes:
    return np.array([len(parts), *map(len, parts)], dtype="<u8").tobytes() + b"".join(parts)


def _unpack(message: bytes) -> list[bytes]:
    count = _SIZE.unpack_from(message)[0]
    sizes = np.frombuffer(message, dtype="<u8", count=count, offset=8)
    ends = 8 * (count + 1) + np.cumsum(sizes, dtype=np.int64)
    return [message[end - size : end] for size, end in zip(sizes.tolist(), ends.tolist())]


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(_SIZE.pack(len(message)))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    size = _SIZE.unpack(head)[0]
    message = stream.read(size)
    return message if len(message) == size else None


def _serve() -> None:
    """A worker's life: the tokenizer, then batches until the input ends (which it also does if the parent dies)."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the parent ends its workers
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that a library prints may reach the answers
    requests = sys.stdin.buffer
    text = _receive(requests)
    if text is None:
        return
    tokenizer = tokenizer_from_json(text.decode("utf-8"), "the tokenizer given to an encoding process")
    while (message := _receive(requests)) is not None:
        batch = [part.decode("utf-8") for part in _unpack(message)]
        _send(answers, _pack([ids.tobytes() for ids in tokenizer.encode_many(batch)]))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        _serve()
