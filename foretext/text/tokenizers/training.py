"""Learns a vocabulary from the user's text, on a bounded sample, so that memory does not grow with the corpus.

The sample is uniform over stretches of text and is drawn while streaming: every stretch has a key that depends only on
the seed and its number, and the lowest keys that fit the budget are kept. The same text and seed give the same
vocabulary.

Learning can take minutes in one call of a library, which reports no progress. It runs in its own thread, so that the
caller can show that work goes on, and can cancel.
"""

import json
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
from foretext.text.tokenizers.unigram_training import learn_unigram, watched
from foretext.text.tokenizers.wordpiece import WordPiece, basic_splitter, wordpiece_from_pieces
from foretext.text.words.word_list import WordList, counted_words

_STRETCH = 50_000  # characters per stretch at most, so that no long document dominates the sample
_ALPHABET_SHARE = 2  # at most 1/this of a merge vocabulary goes to single characters; Chinese has thousands
_FIRST_MARK = "\U000f0000"  # private characters from here on; text that contains them gets the unknown piece

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, and of how much (0: unknown)


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
    """A vocabulary of at most `config.size` ids, special tokens included (fewer if the text has no more pieces that
    occur twice).

    The special tokens are END, as the last id, for byte-bpe and char-bpe; as the first ids, BERT's for wordpiece,
    ALBERT's for unigram (or `specials`, one of which is `<unk>`), ELMo's for words, and the unknown word and END for
    word-list. `seed` draws the sample; words with split "contractions" are counted in all documents. Once the sample is
    drawn, `progress` is called several times a second in the caller's thread; if it raises, the work ends.
    """
    kind = config.kind
    refuse_if(kind not in KINDS, f"unknown tokenizer kind {kind!r}; choose one of {', '.join(KINDS)}")
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
    """The special tokens of a newly trained vocabulary of this kind."""
    by_kind = {
        "wordpiece": wordpiece.SPECIALS,
        "unigram": unigram.SPECIALS,
        "words": word_vocabulary.SPECIALS,
        "word-list": word_tokenizer.SPECIALS,
    }
    return by_kind.get(kind, (END,))


def _empty() -> UserError:
    return UserError("the text to learn a vocabulary from is empty; give files that contain text")


def sample_stretches(documents: Iterable[str], budget: int, seed: int) -> list[str]:
    """A uniform sample, in text order, of stretches with at most `budget` characters together."""
    return sampled(_stretches(documents), budget, seed)


def _stretches(documents: Iterable[str]) -> Iterator[str]:
    for text in documents:
        if len(text) <= _STRETCH:
            yield text
        else:
            yield from (text[i : i + _STRETCH] for i in range(0, len(text), _STRETCH))


def _train_bytes(sample: list[str], config: TokenizerConfig, progress: Progress) -> ByteBPE:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    # The library's own GPT-2 expression; it equals ours, and a test compares the two.
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
    model = _learn_merges(texts, marked, alphabet, size - 3, size, progress)  # 3 for `<unk>`, the line break and END
    written = str.maketrans({mark: letter + WORD_END for mark, letter in letters.items()})
    merges = [(left.translate(written), right.translate(written)) for left, right in _merges(model)]
    return char_bpe_from_merges([letter.translate(written) for letter in alphabet], merges, splitter)


def _train_word_pieces(sample: list[str], config: TokenizerConfig, progress: Progress) -> WordPiece:
    """Merges the pairs that BPE would merge, as the library's own WordPiece trainer does."""
    lower, size = config.lower, config.size
    texts, counts = _words(sample, basic_splitter(lower), progress)
    if not counts:  # for example Thai, which has no spaces
        raise UserError(
            f"the text to learn a vocabulary from is empty, or has no word of at most {wordpiece.LONGEST_WORD} "
            "characters, which wordpiece needs; give other text, or use --set tokenizer.kind=unigram"
        )
    marked, letters, alphabet = _mark(counts, size, last=False)
    room = size - len(wordpiece.SPECIALS)
    model = _learn_merges(texts, marked, alphabet, room, size, progress)
    products = [*alphabet, *(left + right for left, right in _merges(model))]
    pieces = [letters[text[0]] + text[1:] if text[0] in letters else wordpiece.INSIDE + text for text in products]
    # The rest goes to more characters that are words of their own, as every Chinese one is.
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
    """The words of each text, and how often each occurs in all texts."""
    texts: list[list[str]] = []
    counts: Counter[str] = Counter()
    known: dict[str, str] = {}  # holds each word once, however often it occurs
    for number, text in enumerate(sample):
        progress("splitting words", number, len(sample))
        texts.append([known.setdefault(word, word) for word in split(text)])
        counts.update(texts[-1])
    return texts, counts


def _mark(counts: Counter[str], size: int, last: bool) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The words with their first or `last` letter replaced by a private character, the letters behind these characters,
    and the sorted alphabet.

    The library's trainer numbers marked symbols (`</w>` after, `##` before) in the random order of a hash table, and
    breaks ties by number. With a private character instead, it has one sorted alphabet, and the result is reproducible.
    """
    letters: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in word:
            if letter < _FIRST_MARK:
                letters[letter] += count
    common = sorted(letters, key=lambda letter: (-letters[letter], letter))[: size // _ALPHABET_SHARE // 2]
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
    """Ends the library's reading from within; it is always caught."""


def _train(
    model: tokenizers.Tokenizer,
    texts: list[str],
    trainer: tokenizers.trainers.BpeTrainer,
    size: int,
    progress: Progress,
) -> None:
    """`train_from_iterator` in a thread. If `progress` raises while words are counted, the counting stops. Learning
    merges cannot be stopped, but its result is discarded, and it does not keep the process alive."""
    given, stopped = 0, False

    def feed() -> Iterator[str]:
        nonlocal given
        for text in texts:
            if stopped:
                raise _Stopped
            given += 1
            yield text

    def tell() -> None:
        if given < len(texts):
            progress("counting words", given, len(texts))
        else:
            progress(f"learning {size:,} pieces", 0, 0)

    def stop() -> float:
        nonlocal stopped
        stopped = True
        return 1.0 if given < len(texts) else 0.0

    progress("counting words", 0, len(texts))
    watched(lambda: model.train_from_iterator(feed(), trainer), tell, stop)


def _merges(model: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    merges = json.loads(model.to_str())["model"]["merges"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]  # older versions write strings
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
