"""Learning a vocabulary from the user's own text, on a bounded sample so that memory does not grow with the corpus.

The sample is a uniform one of stretches of text, drawn while streaming: every stretch has a key that depends on the
seed and its number only, and the lowest keys that fit the budget stay. The same text and seed give the same vocabulary.

Learning merges takes up to minutes in one call of the `tokenizers` library, which does not say how far it has come. It
works in a thread of its own, so that whoever waits can be told that it goes on, and can stop waiting.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import tokenizers

from foretext.errors import UserError, refuse_if
from foretext.text.order import sampled
from foretext.text.tokenizers import unigram, word_tokenizer, word_vocabulary, wordpiece
from foretext.text.tokenizers.base import END, KINDS, Tokenizer, TokenizerConfig, encodable
from foretext.text.tokenizers.byte_bpe import ByteBPE, byte_bpe_from_merges
from foretext.text.tokenizers.char_bpe import WORD_END, CharBPE, char_bpe_from_merges
from foretext.text.tokenizers.splitters import make_splitter, spacy_installed, standardise
from foretext.text.tokenizers.unigram import Cleaning, Unigram, unigram_from_pieces
from foretext.text.tokenizers.unigram_training import learn_unigram
from foretext.text.tokenizers.wordpiece import WordPiece, basic_splitter, wordpiece_from_pieces
from foretext.text.words.word_list import WordList, counted_words

_STRETCH = 50_000  # documents are sampled in stretches of at most so many characters, so that no long one dominates
_ALPHABET_SHARE = 2  # at most 1/so much of a vocabulary of merges goes to single characters; Chinese has thousands
_FIRST_MARK = "\U000f0000"  # private characters from here on; text that has them gets the unknown piece there
_WAIT = 0.1  # seconds between two calls of `progress`

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much (0: it is not known)


def _no_progress(title: str, done: int, total: int) -> None:
    pass


def train_tokenizer(
    documents: Iterable[str],
    config: TokenizerConfig,
    *,
    seed: int = 0,
    specials: tuple[str, ...] = (),
    progress: Progress = _no_progress,
) -> Tokenizer:
    """A vocabulary of at most `config.size` ids, specials included (fewer where the text has no more pieces that occur
    twice).

    The specials are END, as the last id, for byte-bpe and char-bpe, and as the first ids BERT's for wordpiece, ALBERT's
    for unigram (or `specials`, of which one is `<unk>`), ELMo's for words, the unknown word and END for word-list.
    What is learned from is drawn by `seed`; of words with split "contractions" all documents are counted.
    `progress` is called several times a second once the sample is drawn, in the caller's thread; what it raises ends
    the work.
    """
    kind = config.kind
    refuse_if(kind not in KINDS, f"tokenizer kind {kind!r} is not known; choose one of {', '.join(KINDS)}")
    least = least_size(kind)
    refuse_if(config.size < least, f"a {kind} vocabulary needs at least {least} ids, not {config.size}")
    if kind == "words" and config.split == "contractions":
        return word_vocabulary.count_words(documents, config.size, config.least, progress)
    drawn = sample_stretches(documents, config.sample_megabytes * 1_000_000, seed)
    if all(map(str.isspace, drawn)):
        raise _empty()
    if kind == "unigram":
        return _train_unigram(drawn, config, specials or unigram.SPECIALS, progress)
    return _LEARNERS[kind](drawn, config, progress)


def least_size(kind: str) -> int:
    return {"byte-bpe": 257, "word-list": len(word_tokenizer.SPECIALS) + 1}.get(kind, 64)


def specials_of(kind: str) -> tuple[str, ...]:
    """Those that a newly trained vocabulary of this kind has."""
    own = {
        "wordpiece": wordpiece.SPECIALS,
        "unigram": unigram.SPECIALS,
        "words": word_vocabulary.SPECIALS,
        "word-list": word_tokenizer.SPECIALS,
    }
    return own.get(kind, (END,))


def _empty() -> UserError:
    return UserError("the text to learn a vocabulary from is empty; give files with text in them")


def sample_stretches(documents: Iterable[str], budget: int, seed: int) -> list[str]:
    """A uniform sample, in the order of the text, of stretches that hold at most `budget` characters together."""
    return sampled(_stretches(documents), budget, seed)


def _stretches(documents: Iterable[str]) -> Iterator[str]:
    for text in documents:
        if len(text) <= _STRETCH:
            yield text
        else:
            yield from (text[i : i + _STRETCH] for i in range(0, len(text), _STRETCH))


def _train_bytes(sample: list[str], config: TokenizerConfig, progress: Progress) -> ByteBPE:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    # The library's own GPT-2 expression; ours is the same one, and a test holds both against each other.
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=config.size - 1,
        min_frequency=2,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    _train(model, [encodable(text) for text in sample], trainer, config.size, progress)
    return byte_bpe_from_merges(_merges(model))


def _train_characters(sample: list[str], config: TokenizerConfig, progress: Progress) -> CharBPE:
    splitter, size = config.splitter, config.size
    if splitter == "auto":
        splitter = "spacy" if spacy_installed() else "rules"
    split, _ = make_splitter(splitter, None, "tokenizer training")
    texts, counts = _words(
        sample, lambda text: [word.lower() for word in split(standardise(text)) if not word.isspace()], progress
    )
    marked, letters, alphabet = _mark(counts, size, last=True)
    model = _learn_merges(texts, marked, alphabet, size - 3, size, progress)  # `<unk>`, the line break and END
    written = str.maketrans({mark: letter + WORD_END for mark, letter in letters.items()})
    merges = [(left.translate(written), right.translate(written)) for left, right in _merges(model)]
    return char_bpe_from_merges([letter.translate(written) for letter in alphabet], merges, splitter)


def _train_word_pieces(sample: list[str], config: TokenizerConfig, progress: Progress) -> WordPiece:
    """The pairs that are merged are those of BPE, which is what the library's trainer for WordPiece does too."""
    lower, size = config.lower, config.size
    texts, counts = _words(sample, basic_splitter(lower), progress)
    if not counts:  # as in Thai, which has no spaces
        raise UserError(
            f"the text to learn a vocabulary from is empty, or has no word of at most {wordpiece.LONGEST_WORD} "
            "characters, which wordpiece needs; give other text, or take --set tokenizer.kind=unigram"
        )
    marked, letters, alphabet = _mark(counts, size, last=False)
    room = size - len(wordpiece.SPECIALS)
    model = _learn_merges(texts, marked, alphabet, room, size, progress)
    products = [*alphabet, *(left + right for left, right in _merges(model))]
    pieces = [letters[text[0]] + text[1:] if text[0] in letters else wordpiece.INSIDE + text for text in products]
    # What is left goes to further characters that are words of their own, as every Chinese one is.
    rare = [word for word in counts.keys() - set(pieces) if len(word) == 1 and counts[word] > 1]
    rare.sort(key=lambda word: (-counts[word], word))
    return wordpiece_from_pieces([*pieces, *rare[: room - len(pieces)]], lower)


def _train_unigram(
    sample: list[str], config: TokenizerConfig, specials: tuple[str, ...], progress: Progress
) -> Unigram:
    cleaning = Cleaning(config.lower, strip_accents=config.lower, charmap=b"")
    normalizer = cleaning.normalizer()
    counts = counted_words(sample, lambda text: normalizer.normalize_str(encodable(text)).split(), progress)
    if not counts:
        raise _empty()
    learned = learn_unigram(
        counts, config.size - len(specials), lambda: progress(f"learning {config.size:,} pieces", 0, 0)
    )
    return unigram_from_pieces(learned, cleaning, specials)


def _words(
    sample: list[str], split: Callable[[str], list[str]], progress: Progress
) -> tuple[list[list[str]], Counter[str]]:
    """The words of each text, and how often each occurs in all."""
    texts: list[list[str]] = []
    counts: Counter[str] = Counter()
    known: dict[str, str] = {}  # a word is held once, however often it stands in the text
    for number, text in enumerate(sample):
        progress("splitting words", number, len(sample))
        texts.append([known.setdefault(word, word) for word in split(text)])
        counts.update(texts[-1])
    return texts, counts


def _mark(counts: Counter[str], size: int, last: bool) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The words with a private character in the place of their first or `last` letter, the letters that these
    characters stand for, and the alphabet, sorted.

    The library's trainer numbers symbols with a mark of their own (`</w>` behind, `##` before) in the random order of a
    hash table, and breaks ties by number. With a private character in the place of each of them it has one sorted
    alphabet, and the result is repeatable."""
    found: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in word:
            if letter < _FIRST_MARK:
                found[letter] += count
    common = sorted(found, key=lambda letter: (-found[letter], letter))[: size // _ALPHABET_SHARE // 2]
    marks = {letter: chr(ord(_FIRST_MARK) + i) for i, letter in enumerate(sorted(common))}
    if last:
        marked = {word: word[:-1] + marks.get(word[-1], word[-1]) for word in counts}
    else:
        marked = {word: marks.get(word[0], word[0]) + word[1:] for word in counts}
    alphabet = sorted({letter for word in marked.values() for letter in word} & {*common, *marks.values()})
    return marked, {mark: letter for letter, mark in marks.items()}, alphabet


def _learn_merges(
    texts: list[list[str]],
    marked: dict[str, str],
    alphabet: list[str],
    room: int,
    size: int,
    progress: Progress,
) -> tokenizers.Tokenizer:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=2,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
    )
    _train(model, [" ".join([marked[word] for word in words]) for words in texts], trainer, size, progress)
    return model


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


def _train_word_list(sample: list[str], config: TokenizerConfig, progress: Progress) -> Tokenizer:
    counts = counted_words(sample, word_tokenizer.words_of, progress)
    room = config.size - len(word_tokenizer.SPECIALS)
    return word_tokenizer.word_tokenizer(WordList.of_counts(counts, room).words)


_LEARNERS: dict[str, Callable[[list[str], TokenizerConfig, Progress], Tokenizer]] = {
    "byte-bpe": _train_bytes,
    "char-bpe": _train_characters,
    "wordpiece": _train_word_pieces,
    "word-list": _train_word_list,
    "words": word_vocabulary.learn_words,
}
