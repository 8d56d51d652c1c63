"""Speed of encoding with byte-level BPE on one core: ours against tiktoken and `tokenizers`, on the same reviews.

    python bench/encoding.py --data DIR        DIR has imdb/unsup.txt.gz and tokenizers/gpt2

The three take turns, round by round, so that noise of the machine hits all of them; the table has the median rates,
by processor time, so that a process beside this one counts as little as possible.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import tiktoken
import tokenizers

from foretext.text.byte_bpe import BYTE_TO_CHAR, PATTERNS, ByteBPE
from foretext.text.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.text.tokenizer import tokenizer_from_published
from foretext.text.train_vocab import train_tokenizer


def other_libraries(ours: ByteBPE) -> tuple[tiktoken.Encoding, tokenizers.Tokenizer]:
    """The same vocabulary in both libraries."""
    words = ours.size - len(ours.specials)
    ranks = {ours.piece_bytes(id): id for id in range(words)}
    theirs = tiktoken.Encoding(
        "bench", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens=dict(ours.specials)
    )
    ids = {"".join(BYTE_TO_CHAR[byte] for byte in piece): id for piece, id in ranks.items()}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=list(ours.merges)))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return theirs, model


def compare(name: str, ours: ByteBPE, texts: list[str], rounds: int) -> None:
    theirs, model = other_libraries(ours)
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: ours.encode_many(texts),
        "tiktoken encode_ordinary": lambda: [theirs.encode_ordinary(text) for text in texts],
        "tiktoken encode_ordinary_batch": lambda: theirs.encode_ordinary_batch(texts, num_threads=1),
        "tokenizers encode_batch": lambda: model.encode_batch(texts),
    }
    for text in texts[:200]:
        assert ours.encode(text) == theirs.encode_ordinary(text) == model.encode(text).ids
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            start = time.process_time()
            run()
            rates[way].append(megabytes / (time.process_time() - start))
    median = {way: statistics.median(found) for way, found in rates.items()}
    print(f"\n{name}: {ours.size:,} ids, {megabytes:.1f} MB, {rounds} rounds, one core, processor time")
    for way, rate in median.items():
        print(f"  {way:32} {rate:7.1f} MB/s   ours is {median['ours'] / rate:5.2f}×")
    best = max(rate for way, rate in median.items() if way.startswith("tiktoken"))
    print(f"  ours against the faster tiktoken {median['ours'] / best:.2f}× (target 0.9), ", end="")
    print(f"against tokenizers {median['ours'] / median['tokenizers encode_batch']:.2f}× (target 3)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    reviews = read_documents(find_files([arguments.data / "imdb" / "unsup.txt.gz"]), ReadOptions(), ReadReport())
    learn = list(islice(reviews, 4_000))
    texts: list[str] = []
    length = 0
    for text in reviews:
        texts.append(text)
        length += len(text)
        if length > arguments.megabytes * 1e6:
            break
    published = tokenizer_from_published(arguments.data / "tokenizers" / "gpt2")
    trained = train_tokenizer(learn, "byte-bpe", 8_000)
    assert isinstance(published, ByteBPE) and isinstance(trained, ByteBPE)
    compare("GPT-2's vocabulary", published, texts, arguments.rounds)
    compare("trained on reviews", trained, texts, arguments.rounds)


if __name__ == "__main__":
    main()
