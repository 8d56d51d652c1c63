"""Learning a vocabulary from the user's own text, on a bounded sample so that memory does not grow with the corpus.

The sample is a uniform one of stretches of text, drawn while streaming: every stretch has a key that depends on the
seed and its number only, and the lowest keys that fit the budget stay. The same text and seed give the same vocabulary.

Learning takes up to minutes in one call of the `tokenizers` library, which does not say how far it has come. It works
in a thread of its own, so that whoever waits can be told that it goes on, and can stop waiting.
"""

from __future__ import annotations

import heapq
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import tokenizers

from foretext.errors import UserError
from foretext.text.byte_bpe import ByteBPE, byte_bpe_from_merges
from foretext.text.char_bpe import WORD_END, CharBPE, char_bpe_from_merges
from foretext.text.order import mix64
from foretext.text.splitters import make_splitter, spacy_installed, standardise
from foretext.text.tokenizer import KINDS, Tokenizer, encodable

SAMPLE_CHARS = 20_000_000
_STRETCH = 50_000  # documents are sampled in stretches of at most so many characters, so that no long one dominates
_ALPHABET_SHARE = 2  # at most 1/so much of a character vocabulary goes to single characters; Chinese has thousands
_FIRST_FINAL = "\U000f0000"  # private characters from here on; text that has them gets `<unk>` there
_WAIT = 0.1  # seconds between two calls of `progress`

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much (0: it is not known)


def _no_progress(title: str, done: int, total: int) -> None:
    pass


def train_tokenizer(
    documents: Iterable[str],
    kind: str,
    size: int,
    *,
    seed: int = 0,
    sample_chars: int = SAMPLE_CHARS,
    splitter: str | None = None,
    progress: Progress = _no_progress,
) -> Tokenizer:
    """A vocabulary of at most `size` ids, END included (fewer where the text has no more pairs that occur twice).

    `splitter` is for char-bpe: "spacy" or "rules"; None takes spaCy's where it is installed. `progress` is called
    several times a second once the sample is drawn, in the caller's thread; what it raises ends the work.
    """
    if kind not in KINDS:
        raise UserError(f"tokenizer kind {kind!r} is not known; choose one of {', '.join(KINDS)}")
    least = 257 if kind == "byte-bpe" else 64
    if size < least:
        raise UserError(f"a {kind} vocabulary needs at least {least} ids, not {size}")
    sample = sample_stretches(documents, sample_chars, seed)
    if not any(not text.isspace() for text in sample):
        raise UserError("the text to learn a vocabulary from is empty; give files with text in them")
    if kind == "byte-bpe":
        return _train_bytes(sample, size, progress)
    return _train_characters(sample, size, splitter or ("spacy" if spacy_installed() else "rules"), progress)


def sample_stretches(documents: Iterable[str], budget: int, seed: int) -> list[str]:
    """A uniform sample, in the order of the text, of stretches that hold at most `budget` characters together."""
    kept: list[tuple[int, int, str]] = []  # a heap with the largest key on top
    total = 0
    for number, text in enumerate(_stretches(documents)):
        key = mix64(seed, number)
        if total + len(text) > budget and kept and key > -kept[0][0]:
            continue
        heapq.heappush(kept, (-key, number, text))
        total += len(text)
        while total > budget and len(kept) > 1:
            total -= len(heapq.heappop(kept)[2])
    return [text for _, _, text in sorted(kept, key=lambda entry: entry[1])]


def _stretches(documents: Iterable[str]) -> Iterator[str]:
    for text in documents:
        if len(text) <= _STRETCH:
            yield text
        else:
            yield from (text[i : i + _STRETCH] for i in range(0, len(text), _STRETCH))


def _train_bytes(sample: list[str], size: int, progress: Progress) -> ByteBPE:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    # The library's own GPT-2 expression; ours is the same one, and a test holds both against each other.
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size - 1,
        min_frequency=2,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    _train(model, [encodable(text) for text in sample], trainer, size, progress)
    return byte_bpe_from_merges(_merges(model))


def _train_characters(sample: list[str], size: int, splitter: str, progress: Progress) -> CharBPE:
    split, _ = make_splitter(splitter, None, "tokenizer training")
    texts: list[list[str]] = []
    counts: Counter[str] = Counter()
    known: dict[str, str] = {}  # a word is held once, however often it stands in the text
    for number, text in enumerate(sample):
        progress("splitting words", number, len(sample))
        lowered = (word.lower() for word in split(standardise(text)) if not word.isspace())
        texts.append([known.setdefault(word, word) for word in lowered])
        counts.update(texts[-1])
    letters: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in word:
            if letter < _FIRST_FINAL:
                letters[letter] += count
    common = sorted(letters, key=lambda letter: (-letters[letter], letter))[: size // _ALPHABET_SHARE // 2]
    # The trainer numbers the symbols with a word end in the random order of a hash table, and breaks ties by number.
    # With a private character in the place of each of them it has one sorted alphabet, and the result is repeatable.
    final = {letter: chr(ord(_FIRST_FINAL) + i) for i, letter in enumerate(sorted(common))}
    marked = {word: word[:-1] + final.get(word[-1], word[-1]) for word in counts}
    alphabet = sorted({letter for word in marked.values() for letter in word} & {*common, *final.values()})
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size - 3,  # `<unk>`, the line break and END
        min_frequency=2,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
    )
    _train(model, [" ".join([marked[word] for word in words]) for words in texts], trainer, size, progress)
    written = str.maketrans({mark: letter + WORD_END for letter, mark in final.items()})
    merges = [(left.translate(written), right.translate(written)) for left, right in _merges(model)]
    return char_bpe_from_merges([letter.translate(written) for letter in alphabet], merges, splitter)


class _Stopped(Exception):
    """Ends the library's reading from within; nobody is there to see it."""


def _train(
    model: tokenizers.Tokenizer,
    texts: list[str],
    trainer: tokenizers.trainers.BpeTrainer,
    size: int,
    progress: Progress,
) -> None:
    """`train_from_iterator` in a thread. If `progress` raises while words are counted, that ends; the learning after it
    cannot be ended, but its result is thrown away, and it does not keep the process from ending."""
    given, stopped = 0, False
    failures: list[BaseException] = []

    def feed() -> Iterator[str]:
        nonlocal given
        for text in texts:
            if stopped:
                raise _Stopped
            given += 1
            yield text

    def work() -> None:
        try:
            model.train_from_iterator(feed(), trainer)
        except BaseException as error:
            failures.append(error)

    progress("counting words", 0, len(texts))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            if given < len(texts):
                progress("counting words", given, len(texts))
            else:
                progress(f"learning {size:,} pieces", 0, 0)
            thread.join(_WAIT)
    finally:
        stopped = True
        if given < len(texts):
            thread.join(1.0)
    if failures:
        raise failures[0]


def _merges(model: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    merges = json.loads(model.to_str())["model"]["merges"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]  # older versions write texts
    return [(left, right) for left, right in pairs]
