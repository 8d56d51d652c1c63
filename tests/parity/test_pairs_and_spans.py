"""Pairs as `transformers`' tokenizers join them, and answers found again in the text by the offsets of published
vocabularies."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from foretext.systems import SYSTEMS
from foretext.tasks.files.squad import read_squad
from foretext.tasks.layouts.windows import answer_place, answer_tokens
from foretext.text.tokenizers.published import tokenizer_from_published

VOCABULARIES = {
    "bert": "bert/bert-base-uncased-vocab.txt",
    "chinese": "bert/bert-base-chinese-vocab.txt",
    "albert": "albert",
    "roberta": "roberta",
}
# Answers that no tokens have exactly: one is cut in mid-number in the file itself; byte-level pieces join signs, as in
# `),`; a stretch of ideographs is one unknown piece to ALBERT.
NOT_EXACT = {
    ("en", "bert"): 1,
    ("en", "chinese"): 1,
    ("en", "albert"): 1,
    ("en", "roberta"): 13,
    ("zh", "bert"): 0,
    ("zh", "chinese"): 0,
    ("zh", "albert"): 252,
    ("zh", "roberta"): 1,
}


def data(*parts: str) -> Path:
    if "FORETEXT_DATA" not in os.environ:
        pytest.skip("FORETEXT_DATA (a folder of real data) is not set")
    return Path(os.environ["FORETEXT_DATA"], *parts)


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_pairs_have_the_ids_and_segments_of_transformers(system: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = data("tokenizers")
    ours = tokenizer_from_published(folder / VOCABULARIES[system])
    if system == "bert":
        theirs = transformers.BertTokenizer(str(folder / VOCABULARIES[system]))
    else:
        names = [str(folder / "roberta" / name) for name in ("roberta-base-vocab.json", "vocab.bpe")]
        theirs = transformers.RobertaTokenizer(*names)
    layout = SYSTEMS[system].build_layout(dict(ours.specials), 512, "forward")
    draw = random.Random(0)
    texts = [text for one in read_squad(data("xquad", "xquad.en.json"))[:40] for text in (one.question, one.passage)]
    for _ in range(60):
        pair = draw.sample(texts, draw.choice([1, 2]))
        (made,) = layout.sequences("entailment", [ours.encode(text) for text in pair])
        expected = theirs(*pair, return_token_type_ids=True)
        if len(expected["input_ids"]) > 512:
            continue
        assert list(made.ids) == expected["input_ids"] and made.extract == 0
        assert list(made.segments) == (expected["token_type_ids"] if system == "bert" else [])


@pytest.mark.parametrize(("language", "vocabulary"), NOT_EXACT)
def test_answers_are_found_again_by_offsets(language: str, vocabulary: str) -> None:
    """Every answer of XQuAD stands within the characters of its tokens, and nearly every one is exactly these."""
    tokenizer = tokenizer_from_published(data("tokenizers", VOCABULARIES[vocabulary]))
    questions = read_squad(data("xquad", f"xquad.{language}.json"))
    offsets = {passage: tokenizer.encode_with_offsets(passage)[1] for passage in {one.passage for one in questions}}
    other = 0
    for one in questions:
        for answer in one.answers:
            tokens = answer_tokens(offsets[one.passage], answer.start, answer.start + len(answer.text))
            assert tokens is not None
            start, end = answer_place(one.passage, offsets[one.passage], *tokens)
            assert answer.text.strip() in one.passage[start:end]
            other += one.passage[start:end] != answer.text.strip()
    assert other == NOT_EXACT[language, vocabulary]
