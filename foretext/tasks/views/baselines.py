"""What is cheap and often good enough: the most frequent class, and TF-IDF with a logistic regression (regression: the
mean, and ridge); of tags the most frequent one of each word. Scored on the same rows as the model, so that a user sees
what the model adds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from foretext.tasks.family import TaskConfig
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.files.rows import Row
from foretext.tasks.scores.tag_metrics import are_chunk_tags, score_tags

FOLDS = 5
MOST_ROWS = 20_000  # with more rows, the baseline takes longer than it is worth
MOST_CHARACTERS = 10_000_000  # likewise, read once for each fold; on one core some 20 seconds
_LOOK = 0.2  # seconds between two looks at signals


@dataclass(frozen=True)
class Baseline:
    name: str
    value: float  # accuracy, the correlation of a regression, or the tags' own
    metric: str


def baselines(config: TaskConfig, train: Sequence[Row], valid: Sequence[Row], seed: int) -> list[Baseline]:
    """On `valid`, or by cross-validation on `train`; none for what they cannot do."""
    if config.kind in ("choice", "regression") or len(train) > MOST_ROWS:
        return []
    labels = [str(row.label) for row in train]
    frequent = Counter(labels).most_common(1)[0][0]
    gold = [str(row.label) for row in valid] if valid else labels
    majority = Baseline("majority class", float(np.mean([label == frequent for label in gold])), "accuracy")
    if sum(len(text) for row in train for text in row.texts) * (1 if valid else FOLDS) > MOST_CHARACTERS:
        return [majority]
    accuracy = _tfidf(train, labels, valid, seed)
    return [majority, *([] if accuracy is None else [Baseline("TF-IDF + logistic regression", accuracy, "accuracy")])]


def tag_baseline(
    config: TaskConfig, train: Sequence[TaggedSentence], valid: Sequence[TaggedSentence], folds: Sequence[np.ndarray]
) -> list[Baseline]:
    """On `valid`, or, of training sentences, on those of each fold, by what the others have; none where there is
    neither."""
    everything = [(train, valid)] if valid else [_parted(train, fold) for fold in folds]
    if not everything:
        return []
    gold: list[tuple[str, ...]] = []
    predicted: list[tuple[str, ...]] = []
    for learn, score in everything:
        table = _TagOfWord(learn)
        gold += [row.tags or () for row in score]
        predicted += [table.tags(row) for row in score]
    scores = score_tags(gold, predicted, chunks=are_chunk_tags(config.labels), main=config.metric)
    return [Baseline("most frequent tag of each word", scores.main_value, scores.main)]


def _parted(
    train: Sequence[TaggedSentence], fold: np.ndarray
) -> tuple[Sequence[TaggedSentence], Sequence[TaggedSentence]]:
    left_out = set(fold.tolist())
    return [row for number, row in enumerate(train) if number not in left_out], [train[number] for number in fold]


class _TagOfWord:
    """The most frequent tag of each word, and of all for a word that training did not have."""

    def __init__(self, train: Sequence[TaggedSentence]) -> None:
        counts: dict[str, Counter[str]] = {}
        every: Counter[str] = Counter()
        for row in train:
            every.update(row.tags or ())
            for word, tag in zip(row.words, row.tags or ()):
                counts.setdefault(word, Counter())[tag] += 1
        self.best = {word: _first(of_word) for word, of_word in counts.items()}
        self.usual = _first(every)

    def tags(self, row: TaggedSentence) -> tuple[str, ...]:
        return tuple(self.best.get(word, self.usual) for word in row.words)


def _first(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))


def _tfidf(train: Sequence[Row], labels: Sequence[str], valid: Sequence[Row], seed: int) -> float | None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    from foretext.tasks.views.rows.ngrams import terms_of
    from foretext.text.words.splitting import split_words

    def analyse(texts: tuple[str, ...]) -> list[str]:
        parts = [terms_of(split_words(text)) for text in texts]
        return [f"{side}:{term}" for side, terms in enumerate(parts) for term in terms]

    model = make_pipeline(TfidfVectorizer(analyzer=analyse, sublinear_tf=True), LogisticRegression(C=10, max_iter=1000))
    texts = [row.texts for row in train]
    if valid:
        if len(set(labels)) < 2:
            return None
        model.fit(texts, labels)
        return float(np.mean(model.predict([row.texts for row in valid]) == np.array([str(r.label) for r in valid])))
    folds = min(FOLDS, min(Counter(labels).values()))
    if folds < 2:
        return None
    predicted = cross_val_predict(model, texts, labels, cv=StratifiedKFold(folds, shuffle=True, random_state=seed))
    return float(np.mean(predicted == np.array(labels)))


def watched_baselines(
    config: TaskConfig, train: Sequence[Row], valid: Sequence[Row], seed: int, work: Callable[[str, int, int], None]
) -> list[Baseline]:
    """The same, in a thread beside `work`, which may raise: a signal does not wait for them."""
    measured: list[list[Baseline]] = []
    failed: list[BaseException] = []

    def measure() -> None:
        try:
            measured.append(baselines(config, train, valid, seed))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=measure, daemon=True)
    with threadpool_limits(1):  # several threads that wait for each other on a busy machine are far slower
        thread.start()
        while thread.is_alive():
            work("measuring baselines", 0, 0)
            thread.join(_LOOK)
    work("measuring baselines", 1, 1)
    if failed:
        raise failed[0]
    return measured[0]
