"""Speed of encoding with byte-level BPE on one core: ours against tiktoken and `tokenizers`, on the same reviews.

    python -m bench.encoding --data DIR        DIR has imdb/unsup.txt.gz and tokenizers/gpt2

The three take turns, round by round, so that noise of the machine hits all of them; the table has the median rates,
by processor time, so that a process beside this one counts as little as possible.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import time
from collections.abc import Callable
from itertools import islice

import tiktoken
import tokenizers

from bench.common import arguments_for, medians, need_data, print_head, ratio_cell, reviews, table
from foretext.text.tokenizers.base import TokenizerConfig
from foretext.text.tokenizers.byte_bpe import BYTE_TO_CHAR, PATTERNS, ByteBPE
from foretext.text.tokenizers.published import tokenizer_from_published
from foretext.text.tokenizers.training import train_tokenizer


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
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            start = time.process_time()
            run()
            seconds[way].append(time.process_time() - start)
    median = medians(seconds)
    faster = min((way for way in ways if way.startswith("tiktoken")), key=lambda way: median[way])
    targets = {faster: 0.9, "tokenizers encode_batch": 3.0}
    rows = []
    for way, took in median.items():
        ratio, verdict = ratio_cell(took / median["ours"], targets.get(way, 0.0))
        rows.append([way, f"{megabytes / took:.1f}", ratio, verdict if way in targets else ""])
    print(f"{name}: {ours.size:,} ids, {megabytes:.1f} MB, {rounds} rounds, one core, processor time\n")
    print(table(["", "MB/s", "ours / it", "target"], rows) + "\n", flush=True)


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    data = need_data(given.data)
    megabytes, rounds = (0.2, 2) if given.quick else (given.megabytes, given.rounds)
    print_head("Encoding with byte-level BPE", ["tiktoken", "tokenizers"], given.quick)
    documents = reviews(data)
    learn = list(islice(documents, 300 if given.quick else 4_000))
    texts: list[str] = []
    length = 0
    for text in documents:
        texts.append(text)
        length += len(text)
        if length > megabytes * 1e6:
            break
    published = tokenizer_from_published(data / "tokenizers" / "gpt2")
    trained = train_tokenizer(learn, TokenizerConfig("byte-bpe", 8_000))
    assert isinstance(published, ByteBPE) and isinstance(trained, ByteBPE)
    compare("GPT-2's vocabulary", published, texts, rounds)
    compare("trained on reviews", trained, texts, rounds)


if __name__ == "__main__":
    main()
