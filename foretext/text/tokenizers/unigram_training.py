"""Learns a unigram vocabulary (Kudo, 2018) with SentencePiece, as ALBERT's and XLNet's authors did: start with far too
many pieces, then drop those that matter least.

SentencePiece gets words and their counts, not the text, so its memory depends on how many words differ. From such a
list it cannot see how frequent a piece is, and misses pieces that only end words. So the first pieces are counted here.

Words are split into runs that no piece may cross: letters, digits, symbols, and stretches of a script without spaces;
the mark `▁` belongs to the first run. Everything is sorted and runs in one thread: the same text gives the same
vocabulary.
"""

import hashlib
import heapq
import io
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import regex
import sentencepiece

from foretext.text.tokenizers.base import UNSPACED

LONGEST_PIECE = 16
_LONGEST_RUN = 24  # longer runs are cut
_LETTERS = 1_000_000  # of distinct runs to learn from, most frequent first
_ALPHABET_SHARE = 2  # at most 1/this of the vocabulary goes to single characters; Chinese has thousands
_SEEDS = 8  # initial pieces, as a multiple of the final number
_EVERY = 20_000  # words or runs between two calls of `tell`
_WAIT = 0.1  # seconds between two calls of `tell` while a library works
_RESERVED = "▅"  # SentencePiece skips text with its own sign for an unknown character

_RUN = regex.compile(
    rf"▁?(?:[{UNSPACED}][{UNSPACED}\p{{M}}]*|(?:(?![{UNSPACED}])[\p{{L}}\p{{M}}])+|\p{{N}}+|[^\p{{L}}\p{{M}}\p{{N}}▁]+)|▁"
)

_Alive = tuple[str, int, Sequence[int]]  # a run, its count, and the places where a frequent stretch can begin
Tell = Callable[[], None]  # called several times a second; if it raises, the work ends


def learn_unigram(words: Mapping[str, int], size: int, tell: Tell) -> list[tuple[str, float]]:
    """At most `size` pieces with their log probabilities, most probable first, from words and their counts."""
    letters, runs = _runs(words, size // _ALPHABET_SHARE, tell)
    seeds = _seeds(runs, size * _SEEDS - len(letters), tell)
    model = io.BytesIO()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        text, first = Path(folder, "runs.tsv"), Path(folder, "seeds.tsv")
        for path, counts in ((text, runs), (first, seeds)):
            lines = (f"{piece}\t{count}\n" for piece, count in counts.items())
            path.write_text("".join(lines), encoding="utf-8", newline="\n")

        def train() -> None:
            sentencepiece.SentencePieceTrainer.train(
                input=[str(text)],  # a name by itself would be cut at commas
                input_format="tsv",
                seed_sentencepieces_file=str(first) if seeds else "",
                model_writer=model,
                model_type="unigram",
                vocab_size=size + 1,  # with its own unknown piece
                hard_vocab_limit=False,
                required_chars="".join(letters),
                character_coverage=1.0,
                max_sentencepiece_length=LONGEST_PIECE,
                normalization_rule_name="identity",
                add_dummy_prefix=False,  # the runs have their ▁
                remove_extra_whitespaces=False,
                shuffle_input_sentence=False,
                num_threads=1,
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                minloglevel=2,
            )

        watched(train, tell)
    learned = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    # Rounded, so that the last bit of a processor's logarithm cannot change the vocabulary.
    ranked = [(-round(learned.get_score(id), 6), learned.id_to_piece(id)) for id in range(1, learned.get_piece_size())]
    return [(piece, -score) for score, piece in sorted(ranked)]


def watched(work: Callable[[], None], tell: Tell, stop: Callable[[], float] = lambda: 0.0) -> None:
    """Does the work in a thread and calls `tell` meanwhile. If that raises, the work's result is discarded, and it does
    not keep the process alive; `stop` is called at the end, and says how many seconds to wait for the thread."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            tell()
            thread.join(_WAIT)
    finally:
        thread.join(stop())
    if failures:
        raise failures[0]


# -- where to begin ----------------------------------------------------------------------------------------------------


def _runs(words: Mapping[str, int], most_letters: int, tell: Tell) -> tuple[list[str], dict[str, int]]:
    """Single characters, sorted, and runs with their counts."""
    letters: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for number, (word, count) in enumerate(words.items()):
        if number % _EVERY == 0:
            tell()
        for run in _RUN.findall("▁" + word):
            for start in range(0, len(run), _LONGEST_RUN):
                cut[run[start : start + _LONGEST_RUN]] += count
    for run, count in cut.items():
        for letter in run:
            letters[letter] += count
    letters.pop(_RESERVED, None)
    common = sorted(sorted(letters), key=lambda letter: -letters[letter])[:most_letters]
    allowed = set(common)
    runs: dict[str, int] = {}
    total = 0
    for run in sorted(cut, key=lambda run: (-cut[run], _shuffled(run))):
        if total > _LETTERS:
            break
        if allowed.issuperset(run):
            runs[run] = cut[run]
            total += len(run)
    return sorted(common), runs


def _shuffled(run: str) -> bytes:
    """A key that orders runs of equal count independently of the alphabet."""
    return hashlib.blake2b(run.encode("utf-8"), digest_size=8).digest()


def _seeds(runs: Mapping[str, int], most: int, tell: Tell) -> dict[str, int]:
    """The stretches that occur at least twice and cover the most text, sorted, with their counts.

    A stretch is frequent only if it is frequent without its first and without its last character. So lengths are
    processed one by one, keeping for each run only the places where that still holds.
    """
    candidates: list[tuple[int, str]] = []
    alive: list[_Alive] = [(run, count, range(len(run))) for run, count in runs.items()]
    for length in range(2, LONGEST_PIECE + 1):
        counts: Counter[str] = Counter()
        for number, (run, count, starts) in enumerate(alive):
            if number % _EVERY == 0:
                tell()
            for start, following in pairwise(starts):
                if following == start + 1:
                    counts[run[start : start + length]] += count
        frequent = {piece: count for piece, count in counts.items() if count > 1}
        candidates += [(count * length, piece) for piece, count in frequent.items()]
        alive = _still_frequent(alive, length, frequent)
    best = heapq.nlargest(max(0, most), candidates)
    return {piece: weight // len(piece) for weight, piece in sorted(best, key=lambda entry: entry[1])}


def _still_frequent(alive: list[_Alive], length: int, frequent: Mapping[str, int]) -> list[_Alive]:
    """For each run, the places where a frequent stretch of this length begins; runs without one are dropped."""
    going: list[_Alive] = []
    for run, count, starts in alive:
        begins = (start for start, following in pairwise(starts) if following == start + 1)
        left = [start for start in begins if run[start : start + length] in frequent]
        if len(left) > 1:
            going.append((run, count, left))
    return going
