"""Word vectors against gensim's and GloVe's on word pairs and analogies.

    python -m experiments.word_similarity --data DIR [--out runs/word_similarity] [--reviews 20000] [--seeds 2]

`pretrain --system word2vec` and gensim by itself learn from the same reviews, split into the same words, with the same
settings (`bench.word_vectors`). Word pairs (WordSim-353, SimLex-999) and analogies are those in gensim's test data, and
gensim's own code scores all three kinds of vectors. Only words that all of them have are asked for. GloVe's vectors are
published ones of 50 numbers, learned from six billion words.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from gensim.models import KeyedVectors, Word2Vec
from gensim.test.utils import datapath

import foretext as ft
from bench.common import arguments_for, cores, head_lines, need_data, reviews, table
from bench.word_vectors import SETTINGS
from foretext.text.words.splitting import split_words

PAIRS = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
ANALOGIES = "questions-words.txt"


def theirs(texts: Sequence[str], seed: int, epochs: int) -> KeyedVectors:
    """gensim's vectors of the texts."""
    words = [split_words(text) for text in texts]
    own = {"vector_size": SETTINGS["width"], "window": SETTINGS["window"], "negative": SETTINGS["negatives"]}
    given = {"sample": SETTINGS["sample"], "min_count": SETTINGS["least"], "epochs": epochs, "workers": cores()}
    return Word2Vec(words, seed=seed, **own, **given).wv


def ours(texts: Sequence[str], seed: int, epochs: int) -> KeyedVectors:
    """Our vectors of the texts."""
    sets = ["objective.lsa=0", f"objective.epochs={epochs}"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        known = ft.pretrain(documents=texts, system="word2vec", minutes=600, seed=seed, sets=sets, out=out).knowledge
    assert known is not None
    vectors = KeyedVectors(known.matrix.shape[1])
    vectors.add_vectors(list(known.words), known.matrix)
    return vectors


def published(file: Path) -> KeyedVectors:
    """GloVe's vectors, out of a gzip file."""
    with tempfile.NamedTemporaryFile() as plain, gzip.open(file) as packed:
        plain.write(packed.read())
        plain.flush()
        return KeyedVectors.load_word2vec_format(plain.name, no_header=True)


def shared(sets: Sequence[KeyedVectors]) -> list[KeyedVectors]:
    """The vectors of the words that all have, in the same order."""
    words = [word for word in sets[0].index_to_key if all(word in other for other in sets)]
    found = []
    for one in sets:
        kept = KeyedVectors(one.vector_size)
        kept.add_vectors(words, one[words])
        found.append(kept)
    return found


def scores(vectors: KeyedVectors) -> dict[str, float]:
    """Spearman's correlation with people's judgements, and the part of the analogies that is right, in per cent."""
    found = {name: 100 * vectors.evaluate_word_pairs(datapath(file))[1][0] for name, file in PAIRS.items()}
    return found | {"analogies": 100 * vectors.evaluate_word_analogies(datapath(ANALOGIES))[0]}


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(__doc__ or "")
    parser.add_argument("--out", type=Path, default=Path("runs/word_similarity"))
    parser.add_argument("--reviews", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args(words)
    if given.quick:
        given.reviews, given.epochs, given.seeds = 1500, 1, 1
    given.data = need_data(given.data)
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    given.out.mkdir(parents=True, exist_ok=True)
    lines = head_lines(["gensim"], "python -m experiments.word_similarity")
    begun, texts = time.perf_counter(), list(reviews(given.data, given.reviews))
    sides = {"Foretext": ours, "gensim": theirs}
    learned = [(name, learn(texts, seed, given.epochs)) for seed in range(given.seeds) for name, learn in sides.items()]
    learned.append(("GloVe, published", published(given.data / "glove" / "glove.6B.50d.top50k.txt.gz")))
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    common = shared([vectors for _, vectors in learned])
    for (name, _), vectors in zip(learned, common, strict=True):
        found[name].append(scores(vectors))
    lines.append(f"{len(texts):,} reviews, {given.epochs} epochs, {len(common[0]):,} words that all have")
    lines.append(f"minutes: {(time.perf_counter() - begun) / 60:.1f}")
    tests = [*PAIRS, "analogies"]
    rows = [[name, *(_listed([one[test] for one in of]) for test in tests)] for name, of in found.items()]
    text = "\n".join([*(f"- {line}" for line in lines), "", table(["vectors", *tests], rows)]) + "\n"
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _listed(values: Sequence[float]) -> str:
    """The mean, and in brackets the value of each seed."""
    each = f" ({', '.join(f'{value:.1f}' for value in values)})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{each}"


if __name__ == "__main__":
    raise SystemExit(main())
