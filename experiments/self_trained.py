"""The rival that learns from unlabelled text too: a student on n-grams whose teacher reads T+L+W (`experiments.views`).

The teacher, a logistic regression, scores all texts. They are split where the share of the classes among the labels
says, and of each side the `KEPT` that are furthest from the split teach the student, with the labels as a tenth of what
it learns from. Two classes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import foretext as ft
from foretext.tasks.files.rows import Row
from foretext.tasks.views.base import Block, Units, units_of
from foretext.tasks.views.rows.ngrams import NGrams
from foretext.tasks.views.rows.text_knowledge import LatentSemantics, Vectors
from foretext.text.corpus.readers import ReadOptions, all_documents, find_files

STRENGTH = 7.0
KEPT = 0.6
LABELLED = 0.1
LEAST_COUNT = 5  # in how many texts a term of the student's stands
TEACHER = ("T", "L", "W")


@cache
def unlabelled(file: Path) -> list[str]:
    """The texts that the vectors were learned from."""
    return all_documents(find_files([file]), ReadOptions())


class Text:
    """Unlabelled text as the teacher and the student read it, but for the teacher's n-grams, which are of the rows."""

    def __init__(self, file: Path, cbow: ft.LanguageModel, skipgram: ft.LanguageModel) -> None:
        self.units = units_of([(text,) for text in unlabelled(file)], "classification", True)
        topics, words = cbow.knowledge, skipgram.knowledge
        assert topics is not None and topics.lsa is not None and words is not None
        vectors = Vectors(words.words, words.matrix, words.counts, {}, None)
        self.blocks: dict[str, Block] = {
            "L": LatentSemantics(topics.words, topics.lsa).read(self.units)["topics"],
            "W": vectors.read(self.units)["mean"],
        }
        self.terms = NGrams.learned(self.units, LEAST_COUNT)
        self.matrix = self.terms.matrix(self.units.side(0))


def self_trained(
    text: Text, blocks: Mapping[str, tuple[Block, Block]], train: Sequence[Row], test: Sequence[Row]
) -> list[str]:
    """`blocks`: T, L and W of both sets of rows, as `experiments.views` has them."""
    from sklearn.linear_model import LogisticRegression

    units, asked = (units_of([row.texts for row in rows], "classification", True) for rows in (train, test))
    labels = np.array([str(row.label) for row in train])
    teacher = LogisticRegression(C=STRENGTH, max_iter=2000)
    teacher.fit(_joined([blocks[name][0] for name in TEACHER]), labels)
    scores = teacher.decision_function(_joined([_of_text(text, name, units) for name in TEACHER]))
    texts, classes = split(scores, float(np.mean(labels == teacher.classes_[1])))
    share = LABELLED / (1 - LABELLED) * len(texts) / len(labels)
    student = LogisticRegression(C=STRENGTH, max_iter=300).fit(
        sp.vstack([text.matrix[texts], text.terms.matrix(units.side(0))]).tocsr(),
        np.concatenate([teacher.classes_[classes], labels]),
        sample_weight=np.concatenate([np.ones(len(texts)), np.full(len(labels), share)]),
    )
    return [str(label) for label in student.predict(text.terms.matrix(asked.side(0)))]


def split(scores: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The surest texts of both classes and their classes; `share` of all texts are of the second class."""
    order = np.argsort(scores, kind="stable")
    border = round((1 - share) * len(order))
    low, high = order[: round(KEPT * border)], order[len(order) - round(KEPT * (len(order) - border)) :]
    return np.concatenate([low, high]), np.repeat([0, 1], [len(low), len(high)])


def _of_text(text: Text, name: str, rows: Units) -> Block:
    """A block of the texts. The mean of the rows that is taken off W in theirs is a number on all scores, which says
    nothing where these are only compared."""
    return NGrams.learned(rows).matrix(text.units.side(0)) if name == "T" else text.blocks[name]


def _joined(blocks: Sequence[Block]) -> sp.csr_matrix:
    return sp.hstack([sp.csr_matrix(block) for block in blocks]).tocsr()
