"""From raw text and labelled rows to predictions: views against gensim and scikit-learn by themselves.

    python -m bench.view_recipe --data DIR [--reviews 20000] [--rounds 3]        DIR has imdb/ and sst2/

Both sides read the same reviews and 500 labelled sentences of SST-2, and label its 872 dev sentences. Both learn CBOW
vectors (300 dimensions, window 10, 10 epochs, 5 negatives) and 300 LSA dimensions, and fit one logistic regression.

    ours      `finetune --system views --views ngrams,lsa,vectors`: it also learns how much each view counts,
              chooses the strength by cross-validation, scores itself and two baselines, and writes a run
    default   the same without `--views`: it also learns from the reviews by self-training
    theirs    gensim's Word2Vec on a file of split lines, TfidfVectorizer, TruncatedSVD, LogisticRegression(C=7): the
              recipe R2 of `experiments.views`, without self-training

Each turn is a process of its own on all cores, and the sides take turns.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from bench.common import arguments_for, cores, draw, need_data, print_head, ratio_cell, reviews, table
from bench.word_vectors import measured
from foretext.tasks.files.rows import read_rows

LABELS = 500
OURS = """
import json, sys, time
begun = time.perf_counter()
from pathlib import Path
import foretext as ft
text, folder, epochs, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rows = json.loads((Path(text).parent / "rows.json").read_text())
pairs = [tuple(row) for row in rows["train"]]
run = Path(folder) / "run"
model = ft.finetune(pairs, task="classification", text=text, minutes=600, out=run, views=VIEWS)
said = model.predict([row[0] for row in rows["test"]])
end = time.perf_counter()
right = sum(str(a) == row[1] for a, row in zip(said, rows["test"])) / len(said)
print(json.dumps({"seconds": end - begun, "accuracy": right}))
"""
THEIRS = """
import json, sys, time
begun = time.perf_counter()
from collections import Counter
from pathlib import Path
import numpy as np, scipy.sparse as sp
from gensim.models import Word2Vec
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from foretext.text.words.splitting import split_words
text, folder, epochs, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rows = json.loads((Path(text).parent / "rows.json").read_text())
lines, documents = folder + "/lines.txt", []
with open(text, encoding="utf-8") as given, open(lines, "w", encoding="utf-8") as file:
    for line in given:
        documents.append(split_words(line))
        file.write(" ".join(documents[-1]) + "\\n")
model = Word2Vec(vector_size=300, window=10, negative=5, sample=1e-4, min_count=5, workers=threads, epochs=epochs)
model.build_vocab(corpus_file=lines)
model.train(corpus_file=lines, total_examples=model.corpus_count, total_words=model.corpus_total_words, epochs=epochs)
vectors, place = model.wv.get_normed_vectors(), model.wv.key_to_index
total = sum(len(own) for own in documents)
weights = np.array([1e-3 / (1e-3 + model.wv.get_vecattr(word, "count") / total) for word in model.wv.index_to_key])

def terms(words):
    return words + [f"{a} {b}" for a, b in zip(words, words[1:])]

topics = TfidfVectorizer(analyzer=terms, min_df=10, sublinear_tf=True)
svd = TruncatedSVD(300, n_iter=4).fit(topics.fit_transform(documents))

def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)

def mean(ids, by):
    return by @ vectors[ids] / by.sum() if len(ids) else np.zeros(vectors.shape[1])

def blocks(split):
    ids = [np.array([place[word] for word in own if word in place], dtype=int) for own in split]
    first = ([mean(i, np.exp(-np.arange(len(i)) / decay)) for i in ids] for decay in (1, 3))
    means = [[mean(i, weights[i]) for i in ids], *first]
    found = [unit(x - x.mean(0)) for x in map(np.array, means)]
    return [unit(svd.transform(topics.transform(split))), found[0], 0.7 * found[1], 0.7 * found[2]]

own, asked = ([split_words(row[0]) for row in rows[side]] for side in ("train", "test"))
words = TfidfVectorizer(analyzer=terms, sublinear_tf=True)
train = sp.hstack([words.fit_transform(own), *map(sp.csr_matrix, blocks(own))]).tocsr()
test = sp.hstack([words.transform(asked), *map(sp.csr_matrix, blocks(asked))]).tocsr()
said = LogisticRegression(C=7, max_iter=2000).fit(train, [row[1] for row in rows["train"]]).predict(test)
end = time.perf_counter()
right = sum(a == row[1] for a, row in zip(said, rows["test"])) / len(said)
print(json.dumps({"seconds": end - begun, "accuracy": right}))
"""


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--reviews", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    data = need_data(given.data)
    count, rounds = (600, 1) if given.quick else (given.reviews, given.rounds)
    print_head("Text and labels to predictions", ["gensim", "scikit-learn", "numpy"], given.quick)
    sides = {
        "ours": OURS.replace("VIEWS", '["ngrams", "lsa", "vectors"]'),
        "gensim and scikit-learn": THEIRS,
        "ours by default, with self-training": OURS.replace("VIEWS", "None"),
    }
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    rows = {
        name: read_rows(data / "sst2" / f"{name}.tsv", "classification", format="sst2") for name in ("train", "dev")
    }
    drawn = {"train": draw(rows["train"], LABELS, 0), "test": rows["dev"]}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("\n".join(" ".join(one.split()) for one in reviews(data, count)) + "\n", encoding="utf-8")
        pairs = {name: [(row.texts[0], str(row.label)) for row in own] for name, own in drawn.items()}
        (Path(folder) / "rows.json").write_text(json.dumps(pairs))
        for _ in range(rounds):
            for name, code in sides.items():
                turns[name].append(measured(code, text, 10))
    median = {name: {key: statistics.median(one[key] for one in own) for key in own[0]} for name, own in turns.items()}
    print(f"{count:,} reviews, {LABELS} labels, {rounds} rounds, {cores()} threads\n")
    cells = [[name, f"{one['seconds']:.1f}", f"{100 * one['accuracy']:.1f}"] for name, one in median.items()]
    print(table(["", "seconds", "accuracy, %"], cells) + "\n")
    ratio, verdict = ratio_cell(median["gensim and scikit-learn"]["seconds"] / median["ours"]["seconds"], 1.0)
    print(f"- theirs / ours, seconds: {ratio} ({verdict})")


if __name__ == "__main__":
    main()
