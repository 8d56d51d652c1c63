"""Views of sentences with one tag per word: their units, how the views are learned, and the head over them. It is a
conditional random field, linear in all blocks, that chooses the tags of a sentence together.

    score(y) = starts[y_1] + Σ_t (bias + Σ_v X_v W_v)[t, y_t] + Σ_t transitions[y_{t−1}, y_t] + ends[y_n]

`field.py` fits it, with a closed-form gradient (`nn/task_models/crf.py`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from foretext.nn.task_models.crf import Allowed, Chain, LinearChainCrf, Sentences, iob2_allowed
from foretext.plan import STATES
from foretext.tasks.family import Progress, TaskConfig, family_of, silent
from foretext.tasks.files.conll import TaggedSentence
from foretext.tasks.files.predictions import Predictions
from foretext.tasks.heads.token_tasks import ChainTagger
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.scores.tag_metrics import are_chunk_tags
from foretext.tasks.views.base import FittedHead, Tensors, Units, View, ViewHead, word_units
from foretext.tasks.views.baselines import Baseline, tag_baseline
from foretext.tasks.views.explain import word_reasons
from foretext.tasks.views.field import Extra, FieldTask, FittedField, fit_field
from foretext.tasks.views.viewed import Learning, Reads, ViewTask, numbered, views_to_read
from foretext.tasks.views.words.word_views import WordNGrams, WordStates, WordVectors

if TYPE_CHECKING:
    from foretext.tasks.family import TaskHead


TAGS = FieldTask("tagging", texts=1, most_words=12_000, strengths=(0.3, 1.0, 3.0, 10.0))
CHAIN = "chain."  # before the names of the chain's tensors
CHAIN_PARTS = ("transitions", "starts", "ends")


@dataclass(frozen=True)
class Tags:
    """The class of each unit, the number of classes, and which may follow which."""

    values: np.ndarray
    classes: int
    allowed: Allowed | None = None

    def chain(self, transitions: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Chain:
        """With −∞ for forbidden tags."""
        if self.allowed is None:
            return Chain(transitions, starts, ends)
        allowed = self.allowed
        parts = zip((transitions, starts, ends), (allowed.next_CC, allowed.first_C, allowed.last_C))
        return Chain(*(np.where(may.numpy(), weights, -np.inf) for weights, may in parts))


def allowed_of(labels: Sequence[str]) -> Allowed | None:
    """Chunk tags are learned as IOB2, which restricts what follows what."""
    return iob2_allowed(labels) if are_chunk_tags(labels) else None


def tagger(chain: Chain, labels: Sequence[str]) -> ChainTagger:
    """Chooses tags from the words' scores with this chain."""
    crf = LinearChainCrf(len(labels), allowed_of(labels))
    with torch.no_grad():
        for parameter, weights in zip((crf.transitions, crf.starts, crf.ends), chain):
            parameter.copy_(torch.from_numpy(np.asarray(weights)))
    return ChainTagger(crf)


class Paths:
    """Sentences with their tags, in the form that `field.py` learns from."""

    def __init__(self, tags: Tags, units: np.ndarray, rows: np.ndarray) -> None:
        """`units`: those of these sentences; `rows`: of all units."""
        self.tags, self.values = tags, tags.values[units]
        self.sentences = Sentences.of_lengths(np.unique(rows[units], return_counts=True)[1])
        self.outputs, self.labels = tags.classes, len(units)
        self.shapes: Sequence[tuple[int, ...]] = ((tags.classes, tags.classes), (tags.classes,), (tags.classes,))

    def loss(self, scores: np.ndarray, extra: Extra) -> tuple[float, np.ndarray, Extra]:
        return self.sentences.loss(scores, self.values, self.tags.chain(*extra))


def fit_chain(
    views: Sequence[View],
    units: Units,
    tags: Tags,
    seed: int,
    groups: Sequence[int] = (),
    progress: Progress | None = None,
) -> FittedField:
    """`groups`: sentences with the same number (copies) stay together in folds; empty: each by itself."""

    def paths_of(rows: np.ndarray) -> Paths:
        return Paths(tags, units.picked(rows), units.rows)

    fitted, extra = fit_field(TAGS, views, units, paths_of, seed, groups, progress)
    fitted.head.chain = Chain(*extra)
    return fitted


class ViewedSentences(ViewTask):
    views: Mapping[str, type[View]] = {view.name: view for view in (WordNGrams, WordVectors, WordStates)}

    # -- rows ----------------------------------------------------------------------------------------------------------

    def groups(self, rows: Sequence[TaggedSentence]) -> list[int]:
        """Sentences with the same words stay together."""
        return numbered(row.words for row in rows)

    def units(
        self,
        rows: Sequence[TaggedSentence],
        kind: str,
        names: Collection[str] = (),
        trunk: Reads | None = None,
        progress: Progress | None = None,
    ) -> Units:
        units = word_units([row.words for row in rows])
        if STATES not in names:
            return units
        assert trunk is not None
        return dataclasses.replace(units, states=trunk.word_states(rows, progress))

    # -- the head ------------------------------------------------------------------------------------------------------

    def fit(self, learning: Learning, units: Units) -> tuple[FittedField, None]:
        config, rows = learning.config, learning.rows
        encoded = family_of(config.kind).whole(rows, config, True, silent)
        classes = np.array([tag for example in encoded.examples for tag in example.tags])
        tags = Tags(classes, len(config.labels), allowed_of(config.labels))
        progress = functools.partial(learning.work, "fitting the head")
        return fit_chain(_learned(learning, units), units, tags, learning.seed, self.groups(rows), progress), None

    def decoder(self, head: ViewHead, config: TaskConfig) -> TaskHead:
        assert head.chain is not None
        return cast("TaskHead", tagger(head.chain, config.labels))

    def cross_validated(
        self, fitted: FittedHead, rows: Sequence[TaggedSentence], config: TaskConfig, decoder: TaskHead
    ) -> Scores | None:
        """Without an interval. Each fold's tags are chosen by its own chain."""
        family = family_of(config.kind)
        left_out: list[TaggedSentence] = []
        predicted: list[tuple[str, ...]] = []
        for fold in cast("FittedField", fitted).chosen.folds:
            sentences = [rows[number] for number in fold.rows]
            encoded = family.whole(sentences, config, False, silent)
            chain = cast("TaskHead", tagger(Chain(*fold.extra), config.labels))
            predicted += family.predictions(encoded, fold.scores, config, chain).values
            left_out += sentences
        if not left_out:
            return None
        return family.score(left_out, Predictions(config.kind, predicted, None, config.labels), config)

    def baselines(
        self, fitted: FittedHead, train: Sequence[TaggedSentence], valid: Sequence[TaggedSentence], learning: Learning
    ) -> list[Baseline]:
        folds = [fold.rows for fold in cast("FittedField", fitted).chosen.folds]
        return tag_baseline(learning.config, train, valid, folds)

    def reasons(
        self, head: ViewHead, units: Units, rows: Sequence[TaggedSentence], config: TaskConfig
    ) -> list[list[str]]:
        assert head.chain is not None
        tagged = tagger(head.chain, config.labels).told(head.scores(units), [True] * len(rows))
        return word_reasons(head, units, [best for best, _ in tagged])

    # -- files ---------------------------------------------------------------------------------------------------------

    def extra(self, head: ViewHead) -> Tensors:
        assert head.chain is not None
        return {CHAIN + name: weights for name, weights in zip(CHAIN_PARTS, head.chain)}

    def with_extra(self, head: ViewHead, tensors: Tensors) -> ViewHead:
        chain = Chain(*(tensors[CHAIN + name] for name in CHAIN_PARTS))
        classes = len(head.bias)
        if [weights.shape for weights in chain] != [(classes, classes), (classes,), (classes,)]:
            raise ValueError("classes of the chain")
        return dataclasses.replace(head, chain=chain)

    def empty(self, kind: str, texts: int, stored: Mapping[str, Tensors]) -> Units:
        means = [mean for name, mean in stored.get(WordStates.name, {}).items() if name.startswith("mean.")]
        states = tuple(np.zeros((1, len(mean)), dtype=np.float32) for mean in means)
        return dataclasses.replace(word_units([("",)]), states=states)


def _learned(learning: Learning, units: Units) -> list[View]:
    ways: dict[str, Callable[[], View]] = {
        WordNGrams.name: lambda: WordNGrams.learned(units),
        WordVectors.name: lambda: WordVectors.learned(
            units, learning.known.words, learning.known.matrix, learning.seed
        ),
        WordStates.name: lambda: WordStates.learned(units),
    }
    return views_to_read(ways, learning.names)
