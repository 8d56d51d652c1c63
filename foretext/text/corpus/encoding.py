"""Encodes documents on all cores, in order, with bounded memory.

Each worker is a plain `python -m foretext.text.corpus.encoding`. Its standard input gets JSON lines: first the
tokenizer, then lists of documents, and it answers each list with a line of ids. Unlike `multiprocessing` this never
imports the caller's main module, so a user's script needs no guard, and no worker loads torch. One thread per worker
waits for its answers; a bounded queue keeps the reader from running ahead.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np

from foretext.errors import EXIT_MACHINE, UserError
from foretext.text.tokenizers.base import Tokenizer, document_batches, tokenizer_from_json


def encode_documents(
    documents: Iterable[str], tokenizer: Tokenizer, workers: int
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
    """Batches of documents with their ids (uint32), in the given order."""
    with contextlib.ExitStack() as stack:
        pool = []
        for _ in range(workers):
            worker = stack.enter_context(_Worker(tokenizer))
            pool.append((worker, stack.enter_context(ThreadPoolExecutor(1))))
        waiting: deque[tuple[list[str], Future[list[np.ndarray]]]] = deque()
        try:
            for (worker, thread), batch in zip(itertools.cycle(pool), document_batches(documents)):
                waiting.append((batch, thread.submit(worker.encode, batch)))
                if len(waiting) > 2 * workers:
                    done, answer = waiting.popleft()
                    yield done, answer.result()
            while waiting:
                done, answer = waiting.popleft()
                yield done, answer.result()
        finally:
            for _, answer in waiting:
                answer.cancel()


class _Worker:
    """One encoding process, used by one thread at a time."""

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
        with contextlib.suppress(BrokenPipeError):  # if the worker died at once, the first batch reports it
            _send(self._input, tokenizer.to_json())

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
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            _send(self._input, batch)
            answer = self._output.readline()
        if not answer.endswith(b"\n"):
            raise UserError(
                f"an encoding process ended early (exit code {self._process.wait()}), perhaps because memory ran out; "
                "free some and try again",
                EXIT_MACHINE,
            )
        return [np.frombuffer(base64.b64decode(ids), dtype=np.uint32) for ids in json.loads(answer)]


def _send(stream: IO[bytes], message: str | list[str]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def _serve() -> None:
    """The worker's main loop: the tokenizer, then batches until its input ends (as it does if the parent dies)."""
    for number in (signal.SIGINT, signal.SIGTERM):  # signals go to the whole group; the parent ends its workers
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps anything that a library prints out of the answers
    messages = map(json.loads, sys.stdin.buffer)
    if (text := next(messages, None)) is not None:
        tokenizer = tokenizer_from_json(text, "the tokenizer given to an encoding process")
        for batch in messages:
            _send(answers, [base64.b64encode(ids.tobytes()).decode() for ids in tokenizer.encode_many(batch)])


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        _serve()
