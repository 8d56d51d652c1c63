"""Metrics of texts: answers that are spans of a passage, and written answers.

Answers that are spans are scored as the official scripts count them: exact match and F1, the best over a question's
gold answers, averaged over the questions. Values are from 0 to 1.

- **SQuAD 1.1**: both texts are lower-cased, ASCII punctuation and the words a, an, the are removed, white space is
  normalised; F1 is over the multisets of the remaining words.
- **SQuAD 2.0**, where questions may have no answer: gold answers of which nothing remains are dropped; if none is left,
  the right answer is "". If either side is empty, F1 is 1 if both are, otherwise 0. The values over questions with and
  without an answer are given too.
- **Chinese**: CMRC 2018's script. Texts are lower-cased and its list of signs is removed; each ideograph (U+4E00 to
  U+9FA5) is a token, and the text between them is tokenised as in NLTK (`treebank_words`); F1 is over the *longest
  common run* of tokens. If questions may have no answer, SQuAD 2.0's rules decide about empty sides.

A question is scored as Chinese if it and its passage have at least as many ideographs as words of other letters.

`treebank_words` splits English text like NLTK's `word_tokenize`, which CMRC 2018's script uses on the text between
ideographs. NLTK is not needed: these are the rules of its `NLTKWordTokenizer`, in order, after the Penn Treebank's. A
text is treated as one sentence; NLTK would first split sentences with a model that it downloads.

Written answers are scored against reference texts: ROUGE, exact match and F1 of words, BLEU.

ROUGE is as in Google's `rouge-score` without stemming: lower-cased runs of letters and digits, F-measures. Exact match
and F1 are SQuAD's: lower-cased, without articles and punctuation, the best over several references; Thai, Lao, kana and
ideographs count as one word each. BLEU is sacrebleu's, which reports its own settings.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

from foretext.errors import UserError, refuse_if
from foretext.tasks.files.squad import Question
from foretext.tasks.scores.metrics import Scores, with_main

SPAN_METRICS = ("f1", "exact_match")  # the metrics that can be the main one
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_HAN_BLOCKS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # of the basic plane
_IDEOGRAPH = f"[{_HAN_BLOCKS}\U00020000-\U0003134f]"
_IDEOGRAPHS = re.compile(_IDEOGRAPH)
_OTHER_WORD = re.compile(rf"(?:(?!{_IDEOGRAPH})[^\W\d_])+")
_CMRC_RUNS = re.compile("([\u4e00-\u9fa5])|([^\u4e00-\u9fa5]+)")
_CMRC_SIGNS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


def is_chinese(text: str) -> bool:
    """Whether a text has at least as many ideographs as words of other letters."""
    ideographs = len(_IDEOGRAPHS.findall(text))
    return ideographs > 0 and ideographs >= len(_OTHER_WORD.findall(text))


def score_answers(
    questions: Sequence[Question],
    predicted: Sequence[str],
    *,
    unanswerable: bool | None = None,
    main: str | None = None,
) -> Scores:
    """Scores of the predicted texts ("": no answer). `unanswerable`: whether SQuAD 2.0's rules apply; None: if some
    question is impossible."""
    refuse_if(not questions, "no questions to score; give a file with questions and answers")
    if unanswerable is None:
        unanswerable = any(question.impossible for question in questions)
    pairs = [answer_score(q, text, unanswerable) for q, text in zip(questions, predicted, strict=True)]
    values = _means(pairs)
    if unanswerable:
        for name, wanted in (("has_answer", True), ("no_answer", False)):
            part = [pair for question, pair in zip(questions, pairs) if bool(question.answers) == wanted]
            if part:
                values |= {f"{name}_{metric}": value for metric, value in _means(part).items()}
    silent = [] if any(predicted) else ['every question was answered by "no answer": the model finds nothing']
    scores = Scores("f1", values, len(questions), warnings=silent)
    return with_main(scores, main) if main is not None else scores


def _means(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {
        "f1": sum(f1 for _, f1 in pairs) / len(pairs),
        "exact_match": sum(exact for exact, _ in pairs) / len(pairs),
    }


def answer_score(question: Question, predicted: str, unanswerable: bool) -> tuple[float, float]:
    """Exact match and F1 of one answer; the best of each over the gold answers."""
    chinese = is_chinese(f"{question.question} {question.passage}")
    gold = [answer.text for answer in question.answers]
    if unanswerable:
        gold = [text for text in gold if (without_signs(text) if chinese else normalised(text))] or [""]
    refuse_if(not gold, f"{question.where}: no gold answers to score with; add them, or leave the question out")
    match = chinese_match if chinese else word_match
    exacts, f1s = zip(*(match(text, predicted, unanswerable) for text in gold))
    return max(exacts), max(f1s)


def normalised(text: str) -> str:
    """SQuAD's normal form of a text, for comparing answers."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_match(gold: str, predicted: str, unanswerable: bool) -> tuple[float, float]:
    """Exact match and F1 by SQuAD's rules."""
    left, right = normalised(gold), normalised(predicted)
    return float(left == right), word_f1(left.split(), right.split(), unanswerable)


def word_f1(words: list[str], guesses: list[str], unanswerable: bool) -> float:
    """SQuAD's F1 over the multisets of words; `unanswerable`: two empty sides match."""
    if unanswerable and not (words and guesses):
        return float(words == guesses)
    return f1_score((Counter(words) & Counter(guesses)).total(), len(words), len(guesses))


def without_signs(text: str) -> str:
    """CMRC's normal form of a text, for comparing answers."""
    return text.lower().strip().translate(_CMRC_SIGNS)


def _cmrc_tokens(text: str) -> list[str]:
    runs = _CMRC_RUNS.findall(text)
    return [token for ideograph, other in runs for token in ([ideograph] if ideograph else treebank_words(other))]


def chinese_match(gold: str, predicted: str, unanswerable: bool) -> tuple[float, float]:
    """Exact match and F1 by CMRC's rules."""
    left, right = without_signs(gold), without_signs(predicted)
    words, guesses = _cmrc_tokens(left), _cmrc_tokens(right)
    if unanswerable and not (words and guesses):
        return float(left == right), float(words == guesses)
    run = SequenceMatcher(None, words, guesses, autojunk=False).find_longest_match()
    return float(left == right), f1_score(run.size, len(words), len(guesses))


def f1_score(same: int, gold: int, predicted: int) -> float:
    """F1 of precision and recall; 0 if nothing matches."""
    if not same:
        return 0.0
    precision, recall = same / predicted, same / gold
    return 2 * precision * recall / (precision + recall)


def best_threshold(questions: Sequence[Question], predicted: Sequence[str], margins: Iterable[float]) -> float:
    """The threshold for "no answer" with the highest F1 on these questions: the margin by which it must outscore the
    best span. Found as in the official script: questions are answered one after another, smallest `margins` first,
    except that those with equal margins go together, since no threshold can separate them. `predicted`: the best span
    of each question."""
    order = sorted(zip(margins, questions, predicted), key=lambda item: item[0])
    refuse_if(not order, "no questions to choose a threshold with; give a file with questions and answers")
    total = best = float(sum(not question.answers for question in questions))
    threshold = order[0][0] - 1.0  # no question is answered
    for number, (margin, question, text) in enumerate(order, 1):
        if question.answers:
            total += answer_score(question, text, True)[1]
        elif text:
            total -= 1.0
        if total > best and (number == len(order) or order[number][0] > margin):
            best, threshold = total, margin
    return threshold


_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # opening quotes
        (r"([«“‘„]|[`]+)", r" \1 "),
        (r"^\"", r"``"),
        (r"(``)", r" \1 "),
        (r"([ \(\[{<])(\"|\'{2})", r"\1 `` "),
        (r"(?i)(?<!\w)(\')(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"\1 "),
        # punctuation
        (r"([^\.])(\.)([\]\)}>\"\'»”’ ]*+)\s*$", r"\1 \2 \3 "),
        (r"([:,])([^\d])", r" \1 \2"),
        (r"([:,])$", r" \1 "),
        (r"\.{2,}", r" \g<0> "),
        (r"[;@#$%&]", r" \g<0> "),
        (r"[\u2012-\u2015]", r" \g<0> "),
        (r"([^\.])(\.)([\]\)}>\"\']*)\s*$", r"\1 \2\3 "),
        (r"[?!]", r" \g<0> "),
        (r"([^'])' ", r"\1 ' "),
        (r"[*]", r" \g<0> "),
        (r"[\]\[\(\)\{\}\<\>]", r" \g<0> "),
        (r"--", r" -- "),
        (r"^|$", " "),
        # closing quotes, and endings after an apostrophe
        (r"([»”’])", r" \1 "),
        (r"''", " '' "),
        (r'"', " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        # contractions that are two words
        (r"(?i)\b(can)(not)\b", r" \1 \2 "),
        (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
        (r"(?i)\b(gim)(me)\b", r" \1 \2 "),
        (r"(?i)\b(gon)(na)\b", r" \1 \2 "),
        (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
        (r"(?i)\b(lem)(me)\b", r" \1 \2 "),
        (r"(?i)\b(more)('n)\b", r" \1 \2 "),
        (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r"(?i) ('t)(is)\b", r" \1 \2 "),
        (r"(?i) ('t)(was)\b", r" \1 \2 "),
    )
]


def treebank_words(text: str) -> list[str]:
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.split()


_ROUGE_WORD = re.compile(r"[a-z0-9]+")
# Thai, Lao, kana and ideographs: each character is compared as a word. These are fixed blocks and not the scripts of
# the tokenizers (`UNSPACED` in `text/tokenizers/base.py`), because scores that are on record depend on them: they
# include the digits of Thai, and leave out Khmer, Burmese and Tibetan.
_COMPARED_ALONE = re.compile(f"([\u0e00-\u0eff\u3040-\u30ff{_HAN_BLOCKS}])")


def has_rouge_words(text: str) -> bool:
    return bool(_ROUGE_WORD.search(text.lower()))


def rouge(predicted: str, reference: str) -> dict[str, float]:
    """F-measures of single words, pairs and the longest common subsequence."""
    a, b = _ROUGE_WORD.findall(predicted.lower()), _ROUGE_WORD.findall(reference.lower())
    scores = {}
    for n in (1, 2):
        grams_a, grams_b = (Counter(zip(*(words[i:] for i in range(n)))) for words in (a, b))
        scores[f"rouge{n}"] = f1_score((grams_a & grams_b).total(), grams_a.total(), grams_b.total())
    scores["rougeL"] = f1_score(_common_subsequence(a, b), len(a), len(b))
    return scores


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    row = [0] * (len(b) + 1)
    for word in a:
        diagonal = 0
        for place, other in enumerate(b, start=1):
            diagonal, row[place] = row[place], diagonal + 1 if word == other else max(row[place], row[place - 1])
    return row[-1]


def answer_words(text: str) -> list[str]:
    """The words of an answer as SQuAD's script compares them."""
    return _COMPARED_ALONE.sub(r" \1 ", normalised(text)).split()


def exact_match(predicted: str, references: Sequence[str]) -> float:
    return float(any(answer_words(predicted) == answer_words(reference) for reference in references))


def best_word_f1(predicted: str, references: Sequence[str]) -> float:
    return max(word_f1(answer_words(reference), answer_words(predicted), True) for reference in references)


def bleu_metric(language: str = "") -> Any:
    """sacrebleu's BLEU; UserError, before any work, if it is missing or lacks the language. `language` chooses the word
    segmentation: zh, ja, ko, with or without a region; all others are treated alike."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise UserError("BLEU needs sacrebleu; pip install 'foretext[translation]'") from None
    try:
        return BLEU(trg_lang=language.replace("_", "-").split("-")[0].lower())
    except (ImportError, RuntimeError):  # the segmenters of ja and ko are separate packages
        raise UserError(
            f"--language {language}: sacrebleu has no word segmenter for it here; pip install "
            f"'sacrebleu[{language[:2].lower()}]'"
        ) from None


def bleu(predicted: Sequence[str], references: Sequence[Sequence[str]], language: str = "") -> tuple[float, str]:
    """Corpus BLEU and its signature."""
    metric = bleu_metric(language)
    most = max(len(wanted) for wanted in references)
    # sacrebleu takes lists of whole references; a text with fewer references has None there.
    streams: list[Any] = [[wanted[k] if k < len(wanted) else None for wanted in references] for k in range(most)]
    return float(metric.corpus_score(list(predicted), streams).score), str(metric.get_signature())
