"""Views, a fine-tuned GPT and both, on eight more tasks with 500 labels, each beside the strongest cheap rival we
could build.

    python -m experiments.view_tasks --data DIR [--out runs/view_tasks] [--base RUN] [--only rte,sts] [--methods views]

RTE and SICK (entailment), SICK and STS-B (scores of pairs), COPA (choice), CoLA (acceptability, Matthews correlation),
XQuAD in English and in Chinese (answers, F1; the test is the quarter of the paragraphs of `experiments.token_tasks`).
Word vectors and topics are learned from IMDb's unlabelled reviews, and GPT is pre-trained on them, or given by --base.

The rival sees the same vectors. Of pairs: some thirty counts of what both texts share, cosines of their mean vectors,
of their topics and of their TF-IDF, and how well each word has a likeness in the other; of COPA the same of context and
choice, as differences of the two choices; of CoLA words and characters as n-grams. The model over them is the better of
a linear one and of boosted trees, by cross-validation on the 500 rows. The rival for answers is in `span_rival.py`;
in Chinese, for which there are neither vectors nor a GPT here, views are n-grams alone. Nothing is chosen on test rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

import foretext as ft
from bench.common import arguments_for, commit, draw, head_lines, need_data
from experiments.common import TEST_SEED, Data, Log, check_settings, drawn_rows
from experiments.results import Cell, Results, result_table
from experiments.span_rival import rival_answers
from experiments.token_tasks import TEST_PART, parted
from foretext.api import load_language_model
from foretext.tasks.files.rows import Row, read_rows
from foretext.tasks.files.squad import read_squad
from foretext.tasks.scores.text_metrics import answer_score
from foretext.text.words.latent_semantics import sif_means
from foretext.text.words.splitting import split_words
from foretext.text.words.word_list import TextKnowledge

LABELS = 500
DRAWS = 3
METHODS = {"rival": "the cheap rival", "views": "views", "gpt": "GPT", "default": "the default: views and GPT"}


@dataclass(frozen=True)
class Task:
    title: str
    kind: str
    format: str
    train: str  # below the data folder
    test: str
    metric: str
    test_rows: int | None = None
    views: tuple[str, ...] | None = None  # None: all there are


TASKS = {
    "rte": Task("RTE, accuracy", "entailment", "rte", "rte/train.tsv", "rte/dev.tsv", "accuracy"),
    "sick-e": Task(
        *("SICK, accuracy", "entailment", "sick", "sick/SICK_train.txt", "sick/SICK_test_annotated.txt", "accuracy"),
        2000,
    ),
    "sick-r": Task(
        *("SICK, Pearson", "regression", "sick-r", "sick/SICK_train.txt", "sick/SICK_test_annotated.txt", "pearson"),
        2000,
    ),
    "sts": Task("STS-B, Pearson", "regression", "stsb", "sts-b/sts-train.csv", "sts-b/sts-test.csv", "pearson"),
    "copa": Task("COPA, accuracy", "choice", "copa", "copa/copa-dev.xml", "copa/copa-test.xml", "accuracy"),
    "cola": Task(
        *("CoLA, Matthews", "classification", "cola", "cola/in_domain_train.tsv", "cola/in_domain_dev.tsv", "matthews")
    ),
    "xquad-en": Task("XQuAD in English, F1", "span", "squad", "xquad/xquad.en.json", "", "f1"),
    "xquad-zh": Task("XQuAD in Chinese, F1", "span", "squad", "xquad/xquad.zh.json", "", "f1", None, ("ngrams",)),
}


def read(task: Task, folder: Path) -> Data:
    if task.kind == "span":
        questions: list[Any] = read_squad(folder / task.train)
        return Data(*parted(questions, [one.passage for one in questions], TEST_PART, "xquad"))
    train, test = (read_rows(folder / path, task.kind, format=task.format) for path in (task.train, task.test))
    return Data(train, draw(test, task.test_rows, TEST_SEED) if task.test_rows else test)


# -- the rival ---------------------------------------------------------------------------------------------------------


def pair_numbers(pairs: Sequence[tuple[str, str]], known: TextKnowledge) -> np.ndarray:
    """[pairs, numbers]: written for this page, with nothing of the package's own views but the vectors."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    place = {word: number for number, word in enumerate(known.words)}
    lengths = np.linalg.norm(known.matrix, axis=1, keepdims=True)
    unit = known.matrix / np.maximum(lengths, 1e-9)
    sides = [[split_words(pair[side]) for pair in pairs] for side in (0, 1)]
    ids = [[np.array([place[w] for w in words if w in place], dtype=np.int64) for words in side] for side in sides]
    means = [sif_means(unit, known.counts, side) for side in ids]
    numbers = [_cosine(*means)]
    if known.lsa is not None:
        topics = [known.lsa.read(side) for side in ids]
        numbers.append(_cosine(*topics))
    for analyzer, span in (("word", (1, 2)), ("char_wb", (2, 4))):
        tfidf = TfidfVectorizer(analyzer=analyzer, ngram_range=span, sublinear_tf=True)
        tfidf.fit([text for pair in pairs for text in pair])
        a, b = (tfidf.transform([pair[side] for pair in pairs]) for side in (0, 1))
        numbers.append(np.asarray(a.multiply(b).sum(1)).ravel())
    counted = [_counts(a, b, unit[x], unit[y]) for a, b, x, y in zip(*sides, *ids)]
    return np.column_stack([*numbers, np.array(counted)])


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray((a * b).sum(1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-9))


def _counts(a: list[str], b: list[str], x: np.ndarray, y: np.ndarray) -> list[float]:
    first, second = set(a), set(b)
    shared = len(first & second)
    found = [float(len(a)), float(len(b)), float(len(a) - len(b)), float(abs(len(a) - len(b))), float(shared)]
    found += [shared / max(len(own), 1) for own in (first, second, first | second)]
    for length in (2, 3):
        runs = [{tuple(words[i : i + length]) for i in range(len(words) - length + 1)} for words in (a, b)]
        found += [len(runs[0] & runs[1]) / max(len(own), 1) for own in runs]
    for words in (("not", "no", "n't", "never", "nobody", "nothing", "without"), ("is", "are", "was", "were")):
        found += [float(sum(word in words for word in a)), float(sum(word in words for word in b))]
    digits = [{word for word in own if any(sign.isdigit() for sign in word)} for own in (first, second)]
    found += [float(len(digits[0] ^ digits[1])), float(len(digits[1] - digits[0]))]
    if len(x) and len(y):
        likeness = x @ y.T
        for best in (likeness.max(1), likeness.max(0)):
            found += [float(best.mean()), float(best.min()), float((best > 0.7).mean())]
    else:
        found += [0.0] * 6
    return found


def chosen(models: Sequence[Any], numbers: Any, labels: np.ndarray, scoring: str) -> Any:
    """The model with the best cross-validated score, fitted on all rows."""
    from sklearn.model_selection import cross_val_score

    best = max(models, key=lambda model: float(cross_val_score(model, numbers, labels, cv=5, scoring=scoring).mean()))
    return best.fit(numbers, labels)


def rival(task: Task, train: Sequence[Row], test: Sequence[Row], known: TextKnowledge) -> list[Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import StandardScaler

    if task.kind == "span":
        return rival_answers(cast("Any", train), cast("Any", test))
    strengths = (0.01, 0.1, 1.0, 10.0)
    trees = {"max_iter": 100, "learning_rate": 0.05, "max_leaf_nodes": 8}
    linear = [make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=2000)) for c in strengths]
    if task.kind == "classification":
        words = TfidfVectorizer(ngram_range=(1, 3), token_pattern=r"\S+", sublinear_tf=True)
        signs = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
        named = [
            make_pipeline(make_union(words, signs), LogisticRegression(C=c, class_weight=w, max_iter=2000))
            for c in (1.0, 10.0, 100.0)
            for w in (None, "balanced")
        ]
        texts, labels = [row.texts[0] for row in train], np.array([str(row.label) for row in train])
        model = chosen(named, texts, labels, "matthews_corrcoef")
        return [str(said) for said in model.predict([row.texts[0] for row in test])]
    if task.kind == "choice":
        return _choices(train, test, known, linear)
    own, other = (pair_numbers([(row.texts[0], row.texts[1]) for row in rows], known) for rows in (train, test))
    if task.kind == "regression":
        scores = np.array([float(row.label or 0) for row in train])
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 4, 11)))
        model = chosen([ridge, HistGradientBoostingRegressor(**trees)], own, scores, "r2")
        return [float(said) for said in model.predict(other)]
    labels = np.array([str(row.label) for row in train])
    model = chosen([*linear, HistGradientBoostingClassifier(**trees)], own, labels, "accuracy")
    return [str(said) for said in model.predict(other)]


def _choices(train: Sequence[Row], test: Sequence[Row], known: TextKnowledge, linear: Sequence[Any]) -> list[int]:
    """The numbers of the second choice less those of the first; the label: whether the second is right."""

    def differences(rows: Sequence[Row]) -> np.ndarray:
        first, second = (pair_numbers([(row.texts[0], row.texts[n]) for row in rows], known) for n in (1, 2))
        return second - first

    model = chosen(linear, differences(train), np.array([int(row.label or 0) for row in train]), "accuracy")
    return [int(said) + 1 for said in model.predict(differences(test))]


# -- ours --------------------------------------------------------------------------------------------------------------


def ours(method: str, task: Task, train: Sequence[Row], test: Sequence[Row], bases: Bases, seed: int) -> list[Any]:
    rows: Any = list(train)
    metric = task.metric if task.kind == "classification" else None
    if method == "views":
        model = bases.vectors.finetune(rows, task=task.kind, views=task.views, metric=metric, seed=seed)
    else:
        views = () if method == "gpt" else None
        vectors = None if method == "gpt" else bases.vectors.path
        model = bases.gpt().finetune(rows, task=task.kind, views=views, vectors=vectors, metric=metric, seed=seed)
    return model.predict(list(test))


@dataclass
class Bases:
    vectors: ft.LanguageModel
    gpt: Callable[[], ft.LanguageModel]


def figure(task: Task, said: Sequence[Any], rows: Sequence[Row]) -> float:
    """By scipy and scikit-learn; of answers as SQuAD's script has it."""
    if task.kind == "span":
        return float(np.mean([answer_score(cast("Any", row), one, False)[1] for row, one in zip(rows, said)]))
    from scipy.stats import pearsonr
    from sklearn.metrics import matthews_corrcoef

    if task.metric == "pearson":
        return float(pearsonr(np.array(said, dtype=float), np.array([float(row.label or 0) for row in rows]))[0])
    if task.metric == "matthews":
        return float(matthews_corrcoef([str(row.label) for row in rows], [str(one) for one in said]))
    if task.kind == "choice":
        return float(np.mean([int(one) == int(row.label or 0) + 1 for one, row in zip(said, rows, strict=True)]))
    return float(np.mean([str(one) == str(row.label) for one, row in zip(said, rows, strict=True)]))


# -- the run -----------------------------------------------------------------------------------------------------------


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(__doc__ or "")
    parser.add_argument("--out", type=Path, default=Path("runs/view_tasks"))
    parser.add_argument("--base", type=Path, help="a pre-trained GPT to use instead of pre-training one")
    parser.add_argument("--vectors", type=Path, help="a word2vec run to use instead of learning one")
    parser.add_argument("--minutes", type=float, default=20.0, help="of GPT's pre-training; word vectors take 5")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--only", help="tasks, separated by commas")
    parser.add_argument("--methods", help="methods, separated by commas")
    parser.add_argument("--draws", type=int, default=DRAWS)
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    given.tasks = {name: TASKS[name] for name in (given.only.split(",") if given.only else TASKS)}
    given.methods = {name: METHODS[name] for name in (given.methods.split(",") if given.methods else METHODS)}
    return given


def learned(system: str, given: argparse.Namespace, log: Log, results: Results) -> ft.LanguageModel:
    """The word vectors or the GPT; a run that was stopped goes on."""
    named = given.vectors if system == "word2vec" else given.base
    if named is not None:
        return load_language_model(named)
    since, quick = time.perf_counter(), given.quick
    minutes = 0.1 if quick else 5.0 if system == "word2vec" else given.minutes
    sets = (
        ["model.layers=1", "model.width=32", "model.heads=2", "tokenizer.size=400"] if quick and system == "gpt" else []
    )
    text = given.data / "imdb" / "unsup.txt.gz"
    model = ft.pretrain(
        text,
        system=system,
        minutes=minutes,
        vectors=None if system == "word2vec" else "none",
        out=given.out / system,
        sets=sets,
        resume=True,
        reporter=log,
    )
    results.add_part(system, time.perf_counter() - since, commit())
    return model


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    given.out.mkdir(parents=True, exist_ok=True)
    check_settings(given, given.out, ("minutes", "quick", "base", "vectors"))
    log, results = Log(given.out / "log.txt"), Results(given.out / "results.jsonl")
    for line in head_lines(["torch", "scikit-learn", "gensim"], "python -m experiments.view_tasks"):
        log.note(line)
    vectors, loaded = learned("word2vec", given, log, results), {}

    def gpt() -> ft.LanguageModel:
        if "gpt" not in loaded:
            loaded["gpt"] = learned("gpt", given, log, results)
        return loaded["gpt"]

    bases, known, labels = Bases(vectors, gpt), vectors.knowledge, 40 if given.quick else LABELS
    assert known is not None
    data = {name: read(task, given.data) for name, task in given.tasks.items()}
    for method in given.methods:
        for number in range(given.draws):
            for name, task in given.tasks.items():
                cell = Cell(name, labels, number, method)
                if cell in results.accuracies() or results.seconds() > 60 * given.limit:
                    continue
                if task.kind == "span" and (method == "stacked" or (method == "gpt" and task.views)):
                    continue  # a view of what the trunk says is of rows with one label; no GPT here has read Chinese
                since = time.perf_counter()
                train = drawn_rows(data[name].train, min(labels, len(data[name].train)), number)
                test = data[name].test[:60] if given.quick else data[name].test
                said = (
                    rival(task, train, test, known)
                    if method == "rival"
                    else ours(method, task, train, test, bases, number)
                )
                results.add_cell(cell, figure(task, said, test), time.perf_counter() - since, commit())
                log.note(f"{name}, draw {number}, {method}: {100 * results.accuracies()[cell]:.1f}")
    titles = {name: task.title for name, task in given.tasks.items()}
    found = {cell: value for cell, value in results.accuracies().items() if cell.task in titles}
    text = f"minutes: {results.seconds() / 60:.1f}; commits: {', '.join(results.commits())}\n\n"
    measured = {cell.method for cell in found}
    text += result_table(found, titles, {name: title for name, title in METHODS.items() if name in measured}) + "\n"
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
