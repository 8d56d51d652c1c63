"""Speed and memory of learning word vectors: `pretrain --system word2vec` against gensim by itself, from the same text.

    python -m bench.word_vectors --data DIR [--reviews 20000] [--epochs 5] [--rounds 3]

Each side starts from the reviews as they are written and ends with vectors, in a process of its own, on all cores, with
the same settings and the same splitting into words; gensim is given its quick way, a file of split lines. The two take
turns. `learning` is without splitting, counting, shards and checkpoints. LSA, which gensim's side does not do, is off.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.common import ROOT, arguments_for, cores, need_data, print_head, ratio_cell, reviews, table

SETTINGS = {"width": 300, "window": 10, "negatives": 5, "sample": 1e-4, "least": 5}
THEIRS = """
import json, resource, sys, time
begun = time.perf_counter()
from gensim.models import Word2Vec
from foretext.text.words.splitting import split_words
text, folder, epochs, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
lines, words = folder + "/lines.txt", 0
with open(text, encoding="utf-8") as given, open(lines, "w", encoding="utf-8") as file:
    for line in given:
        split = split_words(line)
        words += len(split)
        file.write(" ".join(split) + "\\n")
model = Word2Vec(vector_size=300, window=10, negative=5, sample=1e-4, min_count=5, workers=threads, epochs=epochs)
model.build_vocab(corpus_file=lines)
start = time.perf_counter()
model.train(corpus_file=lines, total_examples=model.corpus_count, total_words=model.corpus_total_words, epochs=epochs)
end = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(json.dumps({"words": words * epochs, "whole": end - begun, "learning": end - start, "peak": peak}))
"""
OURS = """
import json, resource, sys, time
begun = time.perf_counter()
from pathlib import Path
from foretext.runs.run_config import Budget
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest
text, folder, epochs, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sets = ("objective.lsa=0", f"objective.epochs={epochs}")
out = Path(folder) / "run"
given = {"sets": sets, "documents": "line", "threads": threads}
request = PretrainRequest((text,), out, "word2vec", "tiny", Budget(minutes=600), **given)
pretrain(request)
end = time.perf_counter()
position = json.loads((out / "training" / "position.json").read_text())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(json.dumps({"words": position["tokens"], "whole": end - begun, "learning": position["seconds"], "peak": peak}))
"""


def measured(code: str, text: Path, epochs: int) -> dict[str, float]:
    """One turn of a side."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, str(text), folder, str(epochs), str(cores())]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"a side failed:\n{done.stderr}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def main() -> None:
    parser = arguments_for(__doc__)
    parser.add_argument("--reviews", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    data = need_data(given.data)
    count, epochs, rounds = (300, 2, 1) if given.quick else (given.reviews, given.epochs, given.rounds)
    print_head("Learning word vectors", ["gensim", "numpy"], given.quick)
    sides = {"ours": OURS, "gensim": THEIRS}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("\n".join(" ".join(one.split()) for one in reviews(data, count)) + "\n", encoding="utf-8")
        for _ in range(rounds):
            for name, code in sides.items():
                turns[name].append(measured(code, text, epochs))
    median = {name: {key: statistics.median(one[key] for one in own) for key in own[0]} for name, own in turns.items()}
    rows = []
    for name, one in median.items():
        speeds = [f"{one['words'] / one[key]:,.0f}" for key in ("whole", "learning")]
        rows.append([name, *speeds, f"{one['peak']:,.0f}"])
    print(f"{count:,} reviews, {epochs} epochs, {rounds} rounds, {cores()} threads; CBOW, {SETTINGS}\n")
    print(table(["", "words/s, from text", "words/s, learning", "peak memory, MB"], rows) + "\n")
    ours, theirs = median["ours"], median["gensim"]
    for name, key in (("from text", "whole"), ("learning", "learning")):
        ratio, verdict = ratio_cell(ours["words"] / ours[key] / (theirs["words"] / theirs[key]), 1.0)
        print(f"- ours / gensim, {name}: {ratio} ({verdict})")


if __name__ == "__main__":
    main()
