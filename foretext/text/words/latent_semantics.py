"""Latent semantic analysis: texts as points in the space of the strongest directions of a collection of documents
(Deerwester, Dumais, Furnas, Landauer, Harshman 1990).

    x_t = (1 + log tf_t) · idf_t,  idf_t = log((1 + N) / (1 + df_t)) + 1;  rows to unit length;  X ≈ U S Vᵀ
    read(text) = x V, to unit length

Terms are words and 2-grams that occur in enough documents. There is no whitening: directions keep their weight in X. An
id is a word of a vocabulary of size `vocabulary`; the pair (a, b) is a · vocabulary + b.

The decomposition is randomised (Halko, Martinsson, Tropp 2011): four rounds of products with the sparse matrix, whose
rows are distributed over threads. Each row is computed the same way in any thread, and everything else runs on one
thread, so the same documents and seed give the same result. Memory is bounded: above `most_words` words, whole
documents are sampled by the seed.

Texts as weighted means of their words' vectors:

    sif_means     Σ a / (a + p(w)) · v_w / |text|     smooth inverse frequency (Arora, Liang, Ma 2017), a = .001
    first_words   Σ e^(−i / decay) · v_i / Σ e^(−i / decay)     i: a word's place, from 0; weights the beginning

Vectors are scaled to unit length, since the length of a word's vector mostly reflects its frequency. Words without a
vector (special tokens and unknown words: a row of zeros, or no row) are left out; a text without known words is zeros.
Arora's removal of the first principal component is not done here: readers of a task's rows centre them.

A text is an array of ids. All texts are computed as one sparse product.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from foretext.text.order import sampled

LEAST_SINGLE, LEAST_PAIR = 10, 50  # documents in which a word, and a pair, must occur
MOST_WORDS = 16_000_000  # of the documents to decompose: some 10 million non-zero entries
ROUNDS = 4
SPARE = 20  # extra directions that are computed to make the wanted ones accurate
WEAKEST = 1e-4  # relative to the strongest direction; anything weaker is rounding
_BLOCK = 2_000_000  # words at a time
_ROWS = 8192

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Lsa:
    vocabulary: int
    pairs: np.ndarray  # int64 [P], increasing: first · vocabulary + second
    idf: np.ndarray  # float32 [V + P]; 0: not a term
    components: np.ndarray  # float32 [V + P, dimensions]

    @property
    def dimensions(self) -> int:
        return int(self.components.shape[1])

    def read(self, documents: Sequence[np.ndarray]) -> np.ndarray:
        """float32 [documents, dimensions], each of unit length; zeros where nothing of a document is known."""
        vectors = np.zeros((len(documents), self.dimensions), dtype=np.float32)
        for first, block in _blocks(documents):
            table = _table(block, self.vocabulary, self.idf, self.pairs)
            vectors[first : first + len(block)] = table @ self.components
        norms = np.sqrt(np.einsum("nk,nk->n", vectors, vectors))
        return vectors / np.where(norms > 0, norms, 1.0).astype(np.float32)[:, None]


def learn_lsa(
    documents: Iterable[np.ndarray],
    vocabulary: int,
    dimensions: int,
    *,
    ignored: Sequence[int] = (),
    most_words: int = MOST_WORDS,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = lambda done, total: None,
) -> Lsa | None:
    """Learns at most so many dimensions; fewer if there are fewer documents or terms; None if there is nothing to
    decompose. `ignored`: ids that are not words. `progress` gets the rounds; if it raises, the work ends."""
    progress(0, ROUNDS + 1)
    drawn: list[np.ndarray] = sampled((np.asarray(ids, dtype=np.int32) for ids in documents), most_words, seed)
    single_V, pairs, of_pairs = _document_counts(drawn, vocabulary, ignored)
    counts = np.concatenate([single_V, of_pairs])
    idf = np.where(counts > 0, np.log((1 + len(drawn)) / (1 + counts)) + 1.0, 0.0).astype(np.float32)
    terms = np.flatnonzero(idf)
    if len(terms) < 2:
        return None
    x = sparse.vstack([_table(block, vocabulary, idf, pairs)[:, terms] for _, block in _blocks(drawn)], format="csr")
    x = _unit_rows(x[np.diff(x.indptr) > 0])
    if x.shape[0] < 2:
        return None
    # on a busy machine two threads that wait for each other are 50 times slower
    with threadpool_limits(1, user_api="blas"):
        directions = _directions(x, dimensions, seed, threads, lambda done: progress(done + 1, ROUNDS + 1))
    components = np.zeros((len(idf), directions.shape[1]), dtype=np.float32)
    components[terms] = directions
    return Lsa(vocabulary, pairs, idf, components)


def _blocks(documents: Sequence[np.ndarray]) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Groups of documents with about `_BLOCK` words, and the number of the first document of each."""
    first, words = 0, 0
    for number, ids in enumerate(documents):
        words += len(ids)
        if words >= _BLOCK:
            yield first, list(documents[first : number + 1])
            first, words = number + 1, 0
    if first < len(documents):
        yield first, list(documents[first:])


# -- terms -------------------------------------------------------------------------------------------------------------


def _pairs_of(flat: np.ndarray, rows: np.ndarray, vocabulary: int, word_V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of neighbours that are both words, as numbers, and the documents that contain them."""
    here, following = flat[:-1], flat[1:]
    is_pair = word_V[here] & word_V[following] & (rows[:-1] == rows[1:])
    return here[is_pair] * vocabulary + following[is_pair], rows[:-1][is_pair]


def _document_counts(
    documents: Sequence[np.ndarray], vocabulary: int, ignored: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number of documents with each word, 0 if too few [V]; the frequent pairs, increasing, and their numbers of
    documents."""
    single_V = np.zeros(vocabulary, dtype=np.int64)
    for _, block in _blocks(documents):
        flat, rows = _flat(block)
        ones, shape = np.ones(len(flat), dtype=np.int8), (len(block), vocabulary)
        single_V += np.bincount(
            sparse.csr_matrix((ones, (rows, flat)), shape).indices, minlength=vocabulary
        )  # each pair once
    single_V[list(ignored)] = 0
    frequent_V = single_V >= LEAST_PAIR  # no pair occurs in more documents than its words
    per_block = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
    for _, block in _blocks(documents):
        codes, of = _pairs_of(*_flat(block), vocabulary, frequent_V)
        if len(codes):
            per_block.append(_documents_of(codes, of))
    single_V[single_V < LEAST_SINGLE] = 0
    codes, of_block = map(np.concatenate, zip(*per_block))
    values, numbers = np.unique(codes, return_inverse=True)
    counts = np.bincount(numbers, weights=of_block).astype(np.int64)
    enough = counts >= LEAST_PAIR
    return single_V, values[enough], counts[enough]


def _documents_of(codes: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct codes, increasing, and the number of documents with each; `rows` is increasing."""
    order = np.argsort(codes, kind="stable")
    codes, rows = codes[order], rows[order]
    another = np.append(True, codes[1:] != codes[:-1])
    firsts = np.flatnonzero(another | np.append(True, rows[1:] != rows[:-1]))  # each code once per document
    starts = np.flatnonzero(another[firsts])
    return codes[firsts[starts]], np.diff(np.append(starts, len(firsts)))


def _flat(block: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All ids, and the document number of each."""
    flat, lengths = joined(block)
    return flat, np.repeat(np.arange(len(block)), lengths)


def _table(block: Sequence[np.ndarray], vocabulary: int, idf: np.ndarray, pairs: np.ndarray) -> sparse.csr_matrix:
    """(1 + log tf) · idf, [documents, V + P]."""
    flat, rows = _flat(block)
    flat = np.where((flat >= 0) & (flat < vocabulary), flat, vocabulary)
    term_V = np.append(idf[:vocabulary] > 0, False)
    codes, of = _pairs_of(flat, rows, vocabulary, np.append(np.ones(vocabulary, dtype=bool), False))
    places = np.searchsorted(pairs, codes)
    hit = np.zeros(len(codes), dtype=bool)
    hit[places < len(pairs)] = pairs[places[places < len(pairs)]] == codes[places < len(pairs)]
    single = term_V[flat]
    columns = np.concatenate([flat[single], places[hit] + vocabulary])
    lines = np.concatenate([rows[single], of[hit]])
    shape = (len(block), vocabulary + len(pairs))
    table = sparse.csr_matrix((np.ones(len(columns), dtype=np.float32), (lines, columns)), shape=shape)
    table.sum_duplicates()
    table.data = (1.0 + np.log(table.data)) * idf[table.indices]
    return table


# -- decomposition -----------------------------------------------------------------------------------------------------


def _unit_rows(x: sparse.csr_matrix) -> sparse.csr_matrix:
    norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags((1.0 / norms).astype(np.float32)) @ x)


def _directions(
    x: sparse.csr_matrix, wanted: int, seed: int, threads: int, progress: Callable[[int], None]
) -> np.ndarray:
    """The strongest right singular vectors, [terms, at most `wanted`]."""
    sketch = min(wanted + SPARE, *x.shape)
    turned = x.T.tocsr()
    with ThreadPoolExecutor(threads) as pool:
        q = np.random.default_rng(seed).standard_normal((x.shape[1], sketch), dtype=np.float32)
        for number in range(ROUNDS):
            y = _turned(_product(x, q, pool, threads))
            q = _turned(_product(turned, y, pool, threads))
            progress(number + 1)
    return q[:, :wanted]


def _turned(a: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the columns, [rows, at most columns]: the left singular vectors, strongest first.
    Computed from the small matrix aᵀ a in double precision, which is faster than a QR and also gives the singular
    vectors."""
    small = np.zeros((a.shape[1], a.shape[1]))
    for start in range(0, len(a), _ROWS):
        part = a[start : start + _ROWS].astype(np.float64)
        small += part.T @ part
    squares, turn = np.linalg.eigh(small)
    squares, turn = squares[::-1], turn[:, ::-1]
    kept = squares > WEAKEST**2 * squares[0]
    return a @ (turn[:, kept] / np.sqrt(squares[kept])).astype(np.float32)


def _product(table: sparse.csr_matrix, dense: np.ndarray, pool: ThreadPoolExecutor, threads: int) -> np.ndarray:
    """table @ dense; its rows are distributed over threads by the work they take."""
    cuts = np.searchsorted(table.indptr, np.linspace(0, table.nnz, threads + 1)[1:-1])
    borders = [0, *cuts.tolist(), table.shape[0]]
    return np.concatenate([*pool.map(lambda ends: table[slice(*ends)] @ dense, itertools.pairwise(borders))])


# -- texts as means of their words' vectors ----------------------------------------------------------------------------


SMOOTHING = 1e-3


def sif_means(matrix_VD: np.ndarray, counts_V: np.ndarray, documents: Sequence[np.ndarray]) -> np.ndarray:
    """float32 [documents, D]. `counts_V`: the word counts of the text that the vectors were learned from."""
    texts = _Texts(matrix_VD, documents)
    weights = (SMOOTHING / (SMOOTHING + counts_V / max(1, int(counts_V.sum()))))[texts.ids]
    return texts.sums(weights) / np.maximum(texts.totals(np.ones(len(weights))), 1.0)


def first_words(matrix_VD: np.ndarray, documents: Sequence[np.ndarray], decay: float) -> np.ndarray:
    """float32 [documents, D]."""
    texts = _Texts(matrix_VD, documents)
    weights = np.exp(-texts.places / decay)
    totals = texts.totals(weights)
    return texts.sums(weights) / np.where(totals > 0, totals, np.float32(1))


def joined(documents: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All ids in one array, and the length of each document."""
    lengths = np.fromiter((len(document) for document in documents), dtype=np.int64, count=len(documents))
    flat = np.concatenate(list(documents)).astype(np.int64) if len(documents) else np.zeros(0, dtype=np.int64)
    return flat, lengths


class _Texts:
    """The words that have a vector, one document after the other."""

    def __init__(self, matrix_VD: np.ndarray, documents: Sequence[np.ndarray]) -> None:
        flat, lengths = joined(documents)
        norms_V = np.sqrt(np.einsum("vd,vd->v", matrix_VD, matrix_VD))
        inside = (flat >= 0) & (flat < len(matrix_VD))
        known = inside & (norms_V[np.where(inside, flat, 0)] > 0)
        before = np.concatenate([[0], np.cumsum(known)])
        ends = np.concatenate([[0], np.cumsum(lengths)])
        self.matrix_VD = matrix_VD
        self.ids = flat[known]
        self.places = (np.arange(len(flat)) - np.repeat(ends[:-1], lengths))[known]  # their positions in the documents
        self._starts = before[ends]  # where each document begins in `ids`
        self._scale = 1.0 / norms_V[self.ids]

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Σ weight · unit vector for each document."""
        shape = (len(self._starts) - 1, len(self.matrix_VD))
        table = sparse.csr_matrix(((weights * self._scale).astype(np.float32), self.ids, self._starts), shape=shape)
        return np.asarray(table @ self.matrix_VD, dtype=np.float32)

    def totals(self, weights: np.ndarray) -> np.ndarray:
        """Σ weight for each document, float32 [documents, 1]."""
        before = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])[self._starts]
        return np.diff(before).astype(np.float32)[:, None]
