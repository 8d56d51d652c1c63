"""What a word of Chinese is, for vectors, topics and n-grams: a character, jieba's word, or a learned piece.

    python -m experiments.chinese_words --data DIR [--ways characters,jieba,unigram-8000]

ChnSentiCorp's training rows alone. Those that `experiments.chnsenticorp` draws labels from are left out of labels and
of scoring; 2,000 others are scored, and are no unlabelled text either. Views alone, three draws, one thread. A way is
told by how the text is written: each word of Chinese as a word of Latin letters, so that all else is the product as it
is.
jieba (`pip install jieba`, which Foretext does without) keeps its dictionary in a folder of ours.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import regex
import torch

import foretext as ft
from bench.common import arguments_for, head_lines, need_data, table
from experiments.chnsenticorp import TASK
from experiments.common import drawn_rows, texts_of
from foretext.tasks.files.rows import read_rows
from foretext.text.tokenizers.base import TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer
from foretext.text.words.splitting import split_words

WAYS = ("characters", "jieba", "unigram-8000", "unigram-4000")
LABELS, DRAWS, SCORED = (100, 500), 3, 2000
SHUFFLE = 7
_CHINESE = regex.compile(r"\p{Han}")
_RUNS = regex.compile(r"(\p{Han}+)")
_LETTERS = "abcdefghijklmopq"  # no n, which has a rule of its own

Splitter = Callable[[str], list[str]]


def splitter(way: str, texts: Sequence[str], folder: Path) -> Splitter:
    """How a text becomes words. `texts`: what pieces are learned from."""
    if way == "characters":
        return split_words
    if way == "jieba":
        import jieba

        jieba.dt.tmp_dir = str(folder)
        jieba.setLogLevel(60)
        return lambda text: [part for one in jieba.lcut(text) for part in _parts(one)]
    kind, size = way.split("-")
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind=kind, size=int(size)))  # type: ignore[arg-type]

    def pieces(text: str) -> list[str]:
        words: list[str] = []
        for run in _RUNS.split(text.lower()):
            if _CHINESE.search(run):
                words += [piece for id in tokenizer.encode(run) if (piece := tokenizer.piece(id).strip("▁"))]
            else:
                words += split_words(run)
        return words

    return pieces


def _parts(word: str) -> list[str]:
    return [word] if _CHINESE.search(word) else split_words(word)


def written(words: Sequence[str]) -> str:
    """A text that is split into these words."""
    return " ".join(_latin(word) if _CHINESE.search(word) else word for word in words)


def _latin(word: str) -> str:
    return "".join(_LETTERS[int(digit, 16)] for letter in word for digit in f"{ord(letter):05x}")


def main() -> int:
    parser = arguments_for(__doc__)
    parser.add_argument("--ways", default=",".join(WAYS[:3]))
    options = parser.parse_args()
    data = need_data(options.data)
    torch.set_num_threads(1)
    print("\n".join(head_lines(("torch", "numpy"), "python -m experiments.chinese_words")), flush=True)
    rows = read_rows(data / TASK.train, "classification", format=TASK.format)
    left_out = {id(row) for number in range(TASK.draws) for row in drawn_rows(rows, 500, number)}
    rest = [number for number, row in enumerate(rows) if id(row) not in left_out]
    random.Random(SHUFFLE).shuffle(rest)
    scored, pool = rest[:SCORED], rest[SCORED:]
    texts, hidden = texts_of(rows), set(scored)
    lines = []
    for way in options.ways.split(","):
        with tempfile.TemporaryDirectory(prefix="foretext-") as name:
            split = splitter(way, [text for number, text in enumerate(texts) if number not in hidden], Path(name))
            own = [written(split(text)) for text in texts]
            documents = [text for number, text in enumerate(own) if number not in hidden]
            lm = ft.pretrain(
                documents=documents, system="word2vec", minutes=3, out=f"{name}/vectors", threads=1
            )  # through with its passes in seconds
            cells = [way]
            for labels in LABELS:
                found = []
                for number in range(DRAWS):
                    picked = random.Random(100 + number).sample(pool, labels)
                    clf = lm.finetune([(own[one], rows[one].label) for one in picked], task="classification")
                    said = clf.predict([own[one] for one in scored])
                    found.append(100 * np.mean([a == rows[one].label for a, one in zip(said, scored)]))
                cells.append(f"{np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}")
            lines.append(cells)
            print(*cells, flush=True)
    print(table(("words are", *(f"{labels} labels" for labels in LABELS)), lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
