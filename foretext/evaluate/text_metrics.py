"""Scores of written answers against reference texts: ROUGE, exact match and F1 of words, BLEU.

ROUGE is as in Google's `rouge-score` without stemming: lower-cased runs of letters and digits, F-measures. Exact match
and F1 are SQuAD's: lower-cased, articles and punctuation left out, the best of several references; for scripts without
spaces every character is a word. BLEU is sacrebleu's, which names its own settings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from foretext.errors import UserError
from foretext.tasks.scores.span_metrics import f1_score, normalised, word_f1

_ROUGE_WORD = re.compile(r"[a-z0-9]+")
_UNSPACED = re.compile(r"([\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


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
    return _UNSPACED.sub(r" \1 ", normalised(text)).split()


def exact_match(predicted: str, references: Sequence[str]) -> float:
    return float(any(answer_words(predicted) == answer_words(reference) for reference in references))


def best_word_f1(predicted: str, references: Sequence[str]) -> float:
    return max(word_f1(answer_words(reference), answer_words(predicted), True) for reference in references)


def bleu_metric(language: str = "") -> Any:
    """sacrebleu's BLEU; UserError, before any work, if it is not there or cannot do it. `language` chooses how words
    are told apart: zh, ja, ko, with a region or without; others alike."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise UserError("BLEU needs sacrebleu; pip install 'foretext[translation]'") from None
    try:
        return BLEU(trg_lang=language.replace("_", "-").split("-")[0].lower())
    except (ImportError, RuntimeError):  # the splitters of ja and ko are packages of their own
        raise UserError(
            f"--language {language}: sacrebleu has no splitter for it here; pip install "
            f"'sacrebleu[{language[:2].lower()}]'"
        ) from None


def bleu(predicted: Sequence[str], references: Sequence[Sequence[str]], language: str = "") -> tuple[float, str]:
    """Corpus BLEU and its signature."""
    metric = bleu_metric(language)
    most = max(len(wanted) for wanted in references)
    # Theirs is a list of whole references; a text that has fewer than others has None there.
    streams: list[Any] = [[wanted[k] if k < len(wanted) else None for wanted in references] for k in range(most)]
    return float(metric.corpus_score(list(predicted), streams).score), str(metric.get_signature())
