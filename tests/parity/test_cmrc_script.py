"""Scores of Chinese answers against CMRC 2018's script, written out here; the words between ideographs against NLTK,
which it asks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tokenize.destructive import NLTKWordTokenizer

from foretext.tasks.scores.text_metrics import chinese_match, treebank_words

SP_CHAR = [
    "-",
    ":",
    "_",
    "*",
    "^",
    "/",
    "\\",
    "~",
    "`",
    "+",
    "=",
    "，",
    "。",
    "：",
    "？",
    "！",
    "“",
    "”",
    "；",
    "’",
    "《",
]
SP_CHAR += ["》", "……", "·", "、", "「", "」", "（", "）", "－", "～", "『", "』"]


def mixed_segmentation(in_str: str) -> list[str]:
    """As it stands in CMRC 2018's script, with rm_punc; a run between ideographs is one sentence."""
    word_tokenize = NLTKWordTokenizer().tokenize
    segs_out, temp_str = [], ""
    for char in in_str.lower().strip():
        if char in SP_CHAR:
            continue
        if re.search(r"[\u4e00-\u9fa5]", char) or char in SP_CHAR:
            if temp_str != "":
                segs_out.extend(word_tokenize(temp_str))
                temp_str = ""
            segs_out.append(char)
        else:
            temp_str += char
    if temp_str != "":
        segs_out.extend(word_tokenize(temp_str))
    return segs_out


def remove_punctuation(in_str: str) -> str:
    return "".join(char for char in in_str.lower().strip() if char not in SP_CHAR)


def find_lcs(s1: list[str], s2: list[str]) -> int:
    m = [[0 for _ in range(len(s2) + 1)] for _ in range(len(s1) + 1)]
    mmax = 0
    for i in range(len(s1)):
        for j in range(len(s2)):
            if s1[i] == s2[j]:
                m[i + 1][j + 1] = m[i][j] + 1
                mmax = max(mmax, m[i + 1][j + 1])
    return mmax


def cmrc_match(gold: str, predicted: str) -> tuple[float, float]:
    """calc_em_score and calc_f1_score of one answer."""
    exact = float(remove_punctuation(gold) == remove_punctuation(predicted))
    ans_segs, prediction_segs = mixed_segmentation(gold), mixed_segmentation(predicted)
    lcs_len = find_lcs(ans_segs, prediction_segs)
    if lcs_len == 0:
        return exact, 0.0
    precision, recall = 1.0 * lcs_len / len(prediction_segs), 1.0 * lcs_len / len(ans_segs)
    return exact, (2 * precision * recall) / (precision + recall)


chinese_parts = [
    *"一二三四，。…～ 〇㐀豈𠀀％°%$.,()\"'1",
    "30°C",
    "63％",
    "NFL's",
    "can't",
    "3.5",
    "v.",
    "“A”",
    "cannot",
]
chinese_texts = st.lists(st.sampled_from(chinese_parts), max_size=9).map("".join)


@given(chinese_texts, chinese_texts)
def test_chinese_is_matched_as_in_the_script(gold: str, predicted: str) -> None:
    assert chinese_match(gold, predicted, False) == pytest.approx(cmrc_match(gold, predicted))
    assert chinese_match(gold, gold + predicted, False) == pytest.approx(cmrc_match(gold, gold + predicted))


english_parts = [
    *"ab.,:;'\"`-()[]{}<>?!*%$&@#«»“”‘’„ \n\t–—1２％°",
    "n't",
    "'s",
    "cannot",
    "gonna",
    "wanna",
    "'tis",
    "'twas",
]
english_parts += ["more'n", "d'ye", "gimme", "gotta", "lemme", "..", "--", "''", "``", "'re"]


@given(st.lists(st.sampled_from(english_parts), max_size=12).map("".join))
def test_words_are_those_of_nltk(text: str) -> None:
    assert treebank_words(text) == NLTKWordTokenizer().tokenize(text)
