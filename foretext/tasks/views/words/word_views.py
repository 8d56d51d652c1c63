"""Views of words in their sentences: n-grams, word vectors and states of single words instead of whole texts.

ngrams   own, before, after …  the word, its prefixes and suffixes, its shape; the same for two neighbours on each side
         pairs                 adjacent words: the words, and their classes (for a rare word its shape and suffix)
vectors  own, before, after …  the vectors of the word and of its neighbours, by a word2vec run
         clusters              their clusters of words with similar vectors, alone and side by side
states   layer 0, layer 1 …    the word's states in the pre-trained trunk, for each layer that is read
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp

from foretext.tasks.views.base import Block, Lookup, Tensors, Terms, Units, lines_of, text_tensor, unit_rows
from foretext.text.words.splitting import split_words

PLACES = {"own": 0, "before": -1, "after": 1, "before 2": -2, "after 2": 2}
PAIRS = ((-1, 0), (0, 1), (-1, 1), (-2, -1), (1, 2))
TRIPLES = ((-2, -1, 0), (-1, 0, 1), (0, 1, 2))
LONGEST_END = 4  # letters of a prefix or suffix
MOST_TERMS = 200_000  # of words, and of pairs; the most frequent ones are kept
_NEAR = len("> ing")  # the longest suffix of a neighbour that counts
FREQUENT = 10  # a word that occurs this often in the training rows is a class of its own
LEAST_NEAR, LEAST_PAIR = 2, 3  # how often a term of neighbours, or a pair, must occur in the training rows
GROUPS = (64, 256, 1024)  # of words with similar vectors
LEAST_WORDS = 4  # per cluster, on average
# Factor on vectors and states of unit length: the other blocks have a 1 in each of some dozen columns.
VECTORS, STATES = 2.0, 6.0
BEGIN, END = "\n<", "\n>"  # stand for the sentence's borders; no word contains a line break
_RUNS = re.compile(r"(.)\1+")
_LINE_BREAKS = str.maketrans("\n\r", "  ")


# -- words and their neighbours ----------------------------------------------------------------------------------------


class _Around:
    """The distinct keys of words, and the key of each word and of its neighbours."""

    def __init__(self, units: Units, key: Callable[[str, bool], str]) -> None:
        assert units.places is not None
        self.rows = units.rows
        numbers: dict[str, int] = {BEGIN: 0, END: 1}
        known: dict[tuple[str, bool], int] = {}
        ids = np.empty(len(units.rows), dtype=np.int64)
        for unit, ((words, *_), place) in enumerate(zip(units.words, units.places.tolist())):
            word = words[place], place == 0
            if word not in known:
                known[word] = numbers.setdefault(key(*word), len(numbers))
            ids[unit] = known[word]
        self.ids, self.keys = ids, list(numbers)

    def at(self, offset: int) -> np.ndarray:
        """For each word, the key of the word at this offset."""
        return shifted(self.ids, self.rows, offset)


def shifted(ids: np.ndarray, rows: np.ndarray, offset: int) -> np.ndarray:
    """For each word, the id of the word at this offset in its sentence; 0 before the sentence, 1 after it."""
    neighbours = np.full(len(ids), 0 if offset < 0 else 1, dtype=np.int64)
    size = len(ids) - abs(offset)
    if size > 0:
        to = slice(max(0, -offset), max(0, -offset) + size)
        source = slice(max(0, offset), max(0, offset) + size)
        neighbours[to] = np.where(rows[to] == rows[source], ids[source], neighbours[to])
    return neighbours


def _joined(ids: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Several ids of each word as one: the distinct combinations, and the combination of each word."""
    distinct, which = np.unique(np.column_stack(ids), axis=0, return_inverse=True)
    return distinct, which.reshape(-1)


def _matrix(columns: Terms, rows: Iterable[Sequence[str]]) -> sp.csr_matrix:
    """A matrix with a 1 in each row at each of its terms."""
    indices: list[int] = []
    ends = [0]
    for terms in rows:
        indices += sorted({columns[term] for term in terms if term in columns})
        ends.append(len(indices))
    values = np.ones(len(indices), dtype=np.float32)
    return sp.csr_matrix((values, indices, ends), shape=(len(ends) - 1, len(columns)))


class _Combined:
    """Terms of adjacent words: for each set of offsets, one of the combinations there."""

    def __init__(
        self, places: Sequence[tuple[int, ...]], names: Sequence[str], ids: np.ndarray, around: _Around
    ) -> None:
        """`ids`: for each key of `around`, the number of its name."""
        self.parts: list[tuple[list[str], np.ndarray]] = []
        for offsets in places:
            combinations, which = _joined([ids[around.at(offset)] for offset in offsets])
            title = ",".join(map(str, offsets))
            terms = [f"{title}:" + "\t".join(names[id] for id in together) for together in combinations.tolist()]
            self.parts.append((terms, which))

    def columns(self, terms: Terms) -> list[np.ndarray]:
        """For each set of offsets the column of each word's term, −1 if there is none."""
        return [terms.numbers(part)[which] for part, which in self.parts]


def _frequent(several: Iterable[_Combined]) -> Terms:
    """Their terms that occur often enough."""
    counts: Counter[str] = Counter()
    for terms, which in (part for combined in several for part in combined.parts):
        counts.update(dict(zip(terms, np.bincount(which, minlength=len(terms)).tolist())))
    return Terms.counted(counts, LEAST_PAIR, MOST_TERMS)


def _of_columns(columns: Sequence[np.ndarray], width: int) -> sp.csr_matrix:
    """A matrix with a 1 in each row at each of these columns."""
    table = np.column_stack(columns)
    real = table >= 0
    ends = np.concatenate([[0], np.cumsum(real.sum(1))])
    matrix = sp.csr_matrix((np.ones(int(ends[-1]), dtype=np.float32), table[real], ends), shape=(len(table), width))
    matrix.sort_indices()
    return matrix


# -- n-grams -----------------------------------------------------------------------------------------------------------


def shape_of(word: str) -> str:
    """`Vladimir-2` → `Xx-d`: letters as X and x, others as o, digits as d, runs of one as one."""
    return _RUNS.sub(r"\1", "".join(map(_sort_of, word)))


def _sort_of(letter: str) -> str:
    if letter.isdigit():
        return "d"
    if letter.isalpha():
        return "X" if letter.isupper() else "x" if letter.islower() else "o"
    return letter


def _form(word: str, first: bool) -> str:
    """What is read of a word: itself, and whether it begins its sentence."""
    return ("^" if first else "") + "\t" + word.translate(_LINE_BREAKS)


def form_terms(form: str) -> list[str]:
    """A word's terms."""
    if form in (BEGIN, END):
        return [form[1:]]
    first, _, word = form.partition("\t")
    lower, shape = word.lower(), shape_of(word)
    terms = [f"w {lower}", f"s {first}{shape}"]
    if word != lower and not first:
        terms.append(f"W {word}")
    for length in range(1, min(LONGEST_END, len(lower) - 1) + 1):
        terms += [f"< {lower[:length]}", f"> {lower[-length:]}"]
    if "-" in word[1:-1]:
        terms += ["-", f"- {lower.rpartition('-')[2]}"]
    return terms


def near_terms(form: str) -> list[str]:
    """A neighbour's terms: the word, its shape and its suffixes."""
    if form in (BEGIN, END):
        return form_terms(form)
    return [term for term in form_terms(form) if term[:2] in ("w ", "s ") or (term[0] == ">" and len(term) <= _NEAR)]


def _kind(form: str, frequent: frozenset[str]) -> str:
    """A frequent word is its own class; the class of other words is their shape and suffix."""
    if form in (BEGIN, END):
        return form[1:]
    first, _, word = form.partition("\t")
    lower = word.lower()
    return lower if lower in frequent else f"{first}{shape_of(word)} {lower[-2:]}"


class WordNGrams:
    name = "ngrams"

    def __init__(
        self, terms: Sequence[str], near: Sequence[str], pairs: Sequence[str], frequent: Sequence[str]
    ) -> None:
        """Terms of words, of neighbours and of adjacent words; and words that are their own class."""
        self.terms, self.near, self.pairs = Terms(terms), Terms(near), Terms(pairs)
        self.frequent = frozenset(frequent)

    @classmethod
    def learned(cls, units: Units) -> Self:
        around = _Around(units, _form)
        counts: Counter[str] = Counter()
        words: Counter[str] = Counter()
        for form, count in zip(around.keys, np.bincount(around.ids, minlength=len(around.keys)).tolist()):
            counts.update(dict.fromkeys(form_terms(form), max(count, 1)))
            words[form.rpartition("\t")[2].lower()] += count
        frequent = [word for word, count in words.items() if count >= FREQUENT]
        near = {BEGIN[1:]: LEAST_NEAR, END[1:]: LEAST_NEAR}
        near |= {term: counts[term] for form in around.keys[2:] for term in near_terms(form)}
        own, beside = Terms.counted(counts, most=MOST_TERMS), Terms.counted(near, LEAST_NEAR, MOST_TERMS)
        view = cls([*own], [*beside], (), frequent)
        view.pairs = _frequent(view._combined(around))
        return view

    def _combined(self, around: _Around) -> tuple[_Combined, _Combined]:
        """Adjacent words, and their classes."""
        words = [form[1:] if form in (BEGIN, END) else form.partition("\t")[2].lower() for form in around.keys]
        kinds = ["\t" + _kind(form, self.frequent) for form in around.keys]
        return (
            _Combined(PAIRS, *_merged(words), around),
            _Combined((*PAIRS, *TRIPLES), *_merged(kinds), around),
        )

    def read(self, units: Units) -> dict[str, Block]:
        around = _Around(units, _form)
        near = _matrix(self.near, map(near_terms, around.keys))
        blocks: dict[str, Block] = {name: Lookup(near, around.at(offset)) for name, offset in PLACES.items()}
        blocks["own"] = Lookup(_matrix(self.terms, map(form_terms, around.keys)), around.ids)
        columns = [column for combined in self._combined(around) for column in combined.columns(self.pairs)]
        return blocks | {"pairs": _of_columns(columns, len(self.pairs))}

    def tensors(self) -> Tensors:
        return {
            "terms": self.terms.tensor(),
            "near": self.near.tensor(),
            "pairs": self.pairs.tensor(),
            "frequent": text_tensor(sorted(self.frequent)),
        }

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        return cls(*(lines_of(tensors[name]) for name in ("terms", "near", "pairs", "frequent")))


def _merged(names: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The distinct names, and the name of each."""
    numbers: dict[str, int] = {}
    ids = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    return list(numbers), ids


# -- vectors -----------------------------------------------------------------------------------------------------------


class WordVectors:
    name = "vectors"

    def __init__(self, words: Sequence[str], matrix: np.ndarray, groups: np.ndarray, terms: Sequence[str]) -> None:
        """`matrix`: [words, width], rows of unit length. `groups`: [words, clusterings], −1 for a word without a
        vector. `terms`: of adjacent clusters."""
        self.words, self.matrix, self.groups, self.terms = Terms(words), matrix, groups, Terms(terms)
        assert len(self.words) == len(matrix) == len(groups)

    @classmethod
    def learned(cls, units: Units, words: Sequence[str], matrix: np.ndarray, seed: int = 0) -> Self:
        unit = unit_rows(matrix).astype(np.float32)
        view = cls(words, unit, grouped(unit, seed), ())
        view.terms = _frequent(view._combined(_Around(units, _lower)))
        return view

    def read(self, units: Units) -> dict[str, Block]:
        around = _Around(units, _lower)
        means = np.zeros((len(around.keys), self.matrix.shape[1]), dtype=np.float32)
        for row, key in enumerate(around.keys):
            known = self._known(key)
            if known:
                means[row] = self.matrix[known].mean(0)
        table = VECTORS * unit_rows(means)
        blocks: dict[str, Block] = {name: Lookup(table, around.at(offset)) for name, offset in PLACES.items()}
        columns = [column for combined in self._combined(around) for column in combined.columns(self.terms)]
        return blocks | {"clusters": _of_columns(columns, len(self.terms))}

    def _known(self, key: str) -> list[int]:
        """The word, or its parts, that have a vector."""
        if key in (BEGIN, END):
            return []
        parts = [key] if key in self.words else split_words(key)
        return [self.words[part] for part in parts if part in self.words and self.groups[self.words[part], 0] >= 0]

    def _combined(self, around: _Around) -> list[_Combined]:
        """For each clustering, the clusters of the word and of its neighbours, alone and side by side. A word of
        several parts has the cluster of its last part."""
        names = []
        for key in around.keys:
            known = self._known(key)
            unknown = key[1:] if key in (BEGIN, END) else "?"
            names.append(self.groups[known[-1]].tolist() if known else [unknown] * self.kinds)
        combined = []
        for kind in range(self.kinds):
            places = [(place,) for place in PLACES.values()] + [*PAIRS, *TRIPLES]
            combined.append(_Combined(places, *_merged([f"{kind} {of_key[kind]}" for of_key in names]), around))
        return combined

    @property
    def kinds(self) -> int:
        return int(self.groups.shape[1])

    def tensors(self) -> Tensors:
        words, terms = self.words.tensor(), self.terms.tensor()
        return {"words": words, "matrix": self.matrix, "groups": self.groups, "terms": terms}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        words, terms = (lines_of(tensors[name]) for name in ("words", "terms"))
        return cls(words, tensors["matrix"], tensors["groups"], terms)


def _lower(word: str, first: bool) -> str:
    return word.translate(_LINE_BREAKS).lower()


def grouped(matrix: np.ndarray, seed: int, groups: Sequence[int] = GROUPS) -> np.ndarray:
    """[words, clusterings]: k-means over the vectors; few words get few clusters."""
    from sklearn.cluster import MiniBatchKMeans

    known = np.flatnonzero(matrix.any(axis=1))
    clusters = np.full((len(matrix), len(groups)), -1, dtype=np.int32)
    for kind, wanted in enumerate(groups):
        count = min(wanted, max(1, len(known) // LEAST_WORDS))
        if len(known):
            means = MiniBatchKMeans(
                count, random_state=seed, init="random", n_init=1, batch_size=4096, max_iter=6, max_no_improvement=None
            )
            clusters[known, kind] = means.fit_predict(matrix[known].astype(np.float64))
    return clusters


# -- states ------------------------------------------------------------------------------------------------------------


class WordStates:
    name = "states"

    def __init__(self, means: Sequence[np.ndarray], deviations: Sequence[np.ndarray]) -> None:
        self.means, self.deviations = list(means), list(deviations)

    @classmethod
    def learned(cls, units: Units) -> Self:
        deviations = [np.maximum(states.std(0), 1e-3) for states in units.states]
        return cls([states.mean(0) for states in units.states], deviations)

    def read(self, units: Units) -> dict[str, Block]:
        parts = zip(units.states, self.means, self.deviations, strict=True)
        return {
            f"layer {number}": STATES * unit_rows((states - mean) / deviation)
            for number, (states, mean, deviation) in enumerate(parts)
        }

    def tensors(self) -> Tensors:
        return {f"mean.{number}": mean for number, mean in enumerate(self.means)} | {
            f"deviation.{number}": deviation for number, deviation in enumerate(self.deviations)
        }

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Self:
        names = [str(number) for number in range(len(tensors) // 2)]
        return cls([tensors[f"mean.{name}"] for name in names], [tensors[f"deviation.{name}"] for name in names])
