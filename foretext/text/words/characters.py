"""Words as rows of character ids, as ELMo's character encoder reads them (Peters et al., 2018).

A character is a byte of a word's UTF-8 form. With five more ids for non-text there are 261. Each id is one higher than
in the released code's tables, so that 0 is free for positions without a word:

    0                 no word (a whole row of it)
    1 … 256           the bytes 0 … 255
    257, 258          begin, end of a sentence
    259, 260          begin, end of a word
    261               the rest of a row after the end of its word

A row is `begin of word, bytes, end of word, rest`, 50 ids long. The borders of a sentence are words of their own, of
one character each; as in the released code, the texts `<S>` and `</S>` stand for them too. Words are cut after 48
bytes, even inside a letter. An empty word is a begin and an end. Unpaired surrogates, which have no UTF-8 form, are
left out.
"""

from collections.abc import Sequence

import numpy as np

NO_WORD = 0
FIRST_BYTE = 1
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, REST = range(257, 262)
CHARACTERS = 262  # ids, including that of no word
WORD_LENGTH = 50
BEGIN, END = "<S>", "</S>"  # texts that stand for the borders of a sentence


def word_characters(words: Sequence[str], length: int = WORD_LENGTH, borders: bool = True) -> np.ndarray:
    """The character ids of many words, [words, length]. Without `borders`, `<S>` and `</S>` are ordinary words."""
    assert length >= 3, "begin of word, one character, end of word"
    encoded = [_bytes_of(word, length - 2) for word in words]
    sizes = np.fromiter((len(text) for text in encoded), dtype=np.int64, count=len(encoded))
    ids = np.full((len(encoded), length), REST, dtype=np.int64)
    ids[:, 0] = BEGIN_WORD
    rows = np.repeat(np.arange(len(encoded)), sizes)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    ids[rows, columns] = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int64) + FIRST_BYTE
    ids[np.arange(len(encoded)), sizes + 1] = END_WORD
    for text, character in ((BEGIN, BEGIN_SENTENCE), (END, END_SENTENCE)):
        border_rows = [row for row, word in enumerate(words) if borders and word == text]
        if border_rows:
            ids[border_rows] = border_characters(character, length)
    return ids


def border_characters(character: int, length: int = WORD_LENGTH) -> np.ndarray:
    """The row of a sentence's begin or end, a word of one character."""
    assert character in (BEGIN_SENTENCE, END_SENTENCE) and length >= 3
    ids = np.full(length, REST, dtype=np.int64)
    ids[:3] = BEGIN_WORD, character, END_WORD
    return ids


def _bytes_of(word: str, most: int) -> bytes:
    # Slice first: a word of a megabyte need not be encoded in full, and a character is at least one byte unless it is
    # left out.
    text = word[:most].encode("utf-8", "ignore")
    if len(text) < most < len(word):
        text = word.encode("utf-8", "ignore")
    return text[:most]
