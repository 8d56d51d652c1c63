"""A vocabulary of whole words, for models that read words by their characters (ELMo) or by vectors (CoVe).

It is a WordPiece vocabulary without a piece inside a word, so a word is one id or, if it is not there, `[UNK]`; all
that can be done with a tokenizer can be done with this one, and `tokenizer.json` is the same. Words and signs are split
as BERT splits them. After the specials the most frequent word comes first, as a sampled softmax needs it
(`nn/sampled_softmax.py`); of equally frequent ones the first in the order of their letters.

ELMo predicts frequent words and reads all of them: give it more words than are to be predicted, and the number of these
as `objective.targets`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from foretext.errors import UserError
from foretext.text.train_vocab import SAMPLE_CHARS, sample_stretches
from foretext.text.wordpiece import LONGEST_WORD, SPECIALS, WordPiece, basic_splitter, wordpiece_from_pieces


def train_word_vocabulary(
    documents: Iterable[str],
    size: int,
    *,
    seed: int = 0,
    sample_chars: int = SAMPLE_CHARS,
    lower: bool = False,
    least: int = 1,
    progress: Callable[[str, int, int], None] = lambda title, done, total: None,
) -> WordPiece:
    """At most `size` ids, specials included, of words that occur at least `least` times in a sample of the text (see
    `train_vocab`). `progress`: what is being done, how much is done, of how much."""
    room = size - len(SPECIALS)
    if room < 1:
        raise UserError(f"a vocabulary of words needs at least {len(SPECIALS) + 1} ids, not {size}")
    split = basic_splitter(lower)
    counts: Counter[str] = Counter()
    sample = sample_stretches(documents, sample_chars, seed)
    for number, text in enumerate(sample):
        progress("counting words", number, len(sample))
        counts.update(split(text))
    words = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    if not words:
        raise UserError(
            f"the text to learn a vocabulary from has no word of at most {LONGEST_WORD} characters that occurs "
            f"{least} times; give more text"
        )
    return wordpiece_from_pieces(words[:room], lower)
