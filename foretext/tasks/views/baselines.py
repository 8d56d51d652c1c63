"""What is cheap and often good enough: the most frequent class, and TF-IDF with a logistic regression (regression: the
mean, and ridge). Scored on the same rows as the model, so that a user sees what the model adds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretext.tasks.family import TaskConfig
from foretext.tasks.files.rows import Row

FOLDS = 5
MOST_ROWS = 20_000  # beyond them the baseline would take longer than it is worth
MOST_CHARACTERS = 10_000_000  # likewise, read once for each fold; on one core some 20 seconds
_LOOK = 0.2  # seconds between two looks at signals


@dataclass(frozen=True)
class Baseline:
    name: str
    value: float  # accuracy, or the correlation of a regression
    metric: str


def baselines(config: TaskConfig, train: Sequence[Row], valid: Sequence[Row], seed: int) -> list[Baseline]:
    """On `valid`, or by cross-validation on `train`; none for what they cannot do."""
    if config.kind in ("choice", "regression") or len(train) > MOST_ROWS:
        return []
    labels = [str(row.label) for row in train]
    frequent = Counter(labels).most_common(1)[0][0]
    scored = [str(row.label) for row in valid] if valid else labels
    majority = float(np.mean([label == frequent for label in scored]))
    found = [Baseline("majority class", majority, "accuracy")]
    if sum(len(text) for row in train for text in row.texts) * (1 if valid else FOLDS) > MOST_CHARACTERS:
        return found
    accuracy = _tfidf(train, labels, valid, seed)
    return found if accuracy is None else [*found, Baseline("TF-IDF + logistic regression", accuracy, "accuracy")]


def _tfidf(train: Sequence[Row], labels: Sequence[str], valid: Sequence[Row], seed: int) -> float | None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    from foretext.tasks.views.ngrams import terms_of
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
    said = cross_val_predict(model, texts, labels, cv=StratifiedKFold(folds, shuffle=True, random_state=seed))
    return float(np.mean(said == np.array(labels)))


def watched_baselines(
    config: TaskConfig, train: Sequence[Row], valid: Sequence[Row], seed: int, work: Callable[[str, int, int], None]
) -> list[Baseline]:
    """The same, in a thread beside `work`, which may raise: a signal does not wait for them."""
    found: list[list[Baseline]] = []
    failed: list[BaseException] = []

    def measure() -> None:
        try:
            found.append(baselines(config, train, valid, seed))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    while thread.is_alive():
        work("measuring baselines", 0, 0)
        thread.join(_LOOK)
    work("measuring baselines", 1, 1)
    if failed:
        raise failed[0]
    return found[0]
