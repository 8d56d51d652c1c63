"""α of translations against the paper's equations: one sentence, step by step, in numpy, from the weights alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from complaints import refused
from systems_under_test import base_model
from tolerance import close, terms_of
from translation_under_test import EMBEDDING, TARGETS, WORDS, translating_model

from foretext.evaluate.translation import TranslationAttention
from foretext.language_model import LanguageModel
from foretext.objectives.parallel_text import TranslationSettings

TEXTS = ["the dog sees a cat.", "the dog", "A zebra eats the dog, the dog eats.", "cat"]
GIVEN = ["Der Hund sieht die Katze.", "Hund", "Ein Hund, die Katze.", "die Katze sieht, sieht, sieht die Katze."]
# At most ten words of a source and thirty steps: inputs and states of layers, query, scores, softmax, mixture, merge.
TERMS = terms_of(10 * 2 * (6 + 3), 30 * (EMBEDDING + 6 + 6 + 6 + 6 + 6 + 6 + 10 + 10 + 12))


def translating(settings: TranslationSettings | None = None) -> LanguageModel:
    return LanguageModel(translating_model(settings or TranslationSettings(embedding=EMBEDDING)), Path())


# --- the slow version: numpy, one sentence, one word after the other


@dataclass
class Slow:
    """The weights by their names, as a run's file has them."""

    trunk: dict[str, np.ndarray]
    decoder: dict[str, np.ndarray]

    @classmethod
    def of(cls, lm: LanguageModel) -> Slow:
        objective = lm.model.objective
        assert objective is not None
        trunk, decoder = (part.state_dict() for part in (lm.model.trunk, objective))
        return cls(
            {name: one.numpy() for name, one in trunk.items()}, {name: one.numpy() for name, one in decoder.items()}
        )

    def encode(self, ids: list[int]) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        words, last = [self.trunk["vectors.table_VE"][id] for id in ids], []
        for layer in range(2):
            both: list[list[np.ndarray]] = []
            ends = []
            for end in ("_l0", "_l0_reverse"):
                h = c = np.zeros(3)
                states = []
                for x in words if end == "_l0" else words[::-1]:
                    h, c = lstm(x, h, c, self.trunk, f"encoder.layers.{layer}.", end)
                    states.append(h)
                both.append(states if end == "_l0" else states[::-1])
                ends.append((h, c))
            words = [np.concatenate(pair) for pair in zip(*both)]
            last.append((np.concatenate([ends[0][0], ends[1][0]]), np.concatenate([ends[0][1], ends[1][1]])))
        return np.stack(words), last

    def read(self, source: list[int], target: list[int] | None, limit: int = 0) -> tuple[list[int], np.ndarray]:
        """α of each step, the end's included; without a target of the likeliest word each time, to the limit."""
        states, s = self.encode(source)
        fed, before, found, alphas = np.zeros(6), 0, [], []
        while len(found) < (limit if target is None else len(target)):
            x = np.concatenate([self.decoder["decoder.words.weight"][before], fed])
            for layer in range(2):
                s[layer] = lstm(x, *s[layer], self.decoder, f"decoder.cells.{layer}.", "")
                x = s[layer][0]
            scores = states @ (self.decoder["decoder.query.weight"] @ x + self.decoder["decoder.query.bias"])
            alpha = np.exp(scores) / np.exp(scores).sum()
            merged = np.concatenate([alpha @ states, x])
            fed = np.tanh(self.decoder["decoder.merge.weight"] @ merged + self.decoder["decoder.merge.bias"])
            alphas.append(alpha)
            if target is None:
                logits = self.decoder["decoder.output.weight"] @ fed + self.decoder["decoder.output.bias"]
                logits[[0, 2]] = -np.inf  # the start and the unknown word are never written
                before = int(logits.argmax())
            else:
                before = target[len(found)]
            found.append(before)
            if before == 1:
                break
        return found, np.stack(alphas)


def lstm(
    x: np.ndarray, h: np.ndarray, c: np.ndarray, weights: dict[str, np.ndarray], name: str, end: str
) -> tuple[np.ndarray, np.ndarray]:
    gates = weights[f"{name}weight_ih{end}"] @ x + weights[f"{name}bias_ih{end}"]
    gates = gates + weights[f"{name}weight_hh{end}"] @ h + weights[f"{name}bias_hh{end}"]
    i, f, g, o = np.split(gates, 4)
    c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    return np.tanh(c) / (1 + np.exp(-o)), c


def source_ids(found: TranslationAttention) -> list[int]:
    return [2 + WORDS.index(word.lower()) if word.lower() in WORDS else 0 for word in found.source]


def target_ids(found: TranslationAttention) -> list[int]:
    known = {word.removeprefix("￭"): number for number, word in enumerate(TARGETS, 3)} | {"<end>": 1}
    return [known.get(word, 2) for word in found.target]


# --- what is found


def test_a_given_translation_is_looked_at_as_the_equations_say() -> None:
    lm = translating()
    slow, together = Slow.of(lm), lm.translation_attention(TEXTS, GIVEN)
    assert [len(one.source) for one in together] == [6, 2, 10, 1]
    assert [one.text for one in together] == TEXTS and [one.translation for one in together] == GIVEN
    assert together[2].source == ("A", "zebra", "eats", "the", "dog", ",", "the", "dog", "eats", ".")
    assert together[2].target == ("Ein", "Hund", ",", "die", "Katze", ".", "<end>")
    assert together[2].unknown == ("zebra", ",", "Ein") and together[0].unknown == ()
    for found in together:
        _, expected = slow.read(source_ids(found), target_ids(found))
        close(found.weights, expected, terms=TERMS)
        close(found.weights.sum(1), np.ones(len(found.target)), terms=TERMS)
    assert together[0].weights.max() > 2 * together[0].weights.min(), "it does not look at all alike"


def test_the_likeliest_words_are_looked_at_as_they_are_written() -> None:
    lm = translating()
    slow, together = Slow.of(lm), lm.translation_attention(TEXTS, beams=1)
    ends = set()
    for found in together:
        ids, expected = slow.read(source_ids(found), None, 2 * len(found.source) + 10)
        assert target_ids(found) == ids
        close(found.weights, expected, terms=TERMS)
        ends.add(found.target[-1] == "<end>")
    assert ends == {True, False}, "one ends, and one is cut off"


@pytest.mark.parametrize("beams", [1, 2, 5])
def test_neither_beams_nor_the_other_texts_have_a_part_in_it(beams: int) -> None:
    lm = translating()
    slow, together = Slow.of(lm), lm.translation_attention([*TEXTS, ""], beams=beams)
    assert [one.translation for one in together] == lm.translate([*TEXTS, ""], beams=beams)
    for found in together[:-1]:
        (alone,) = lm.translation_attention(found.text, beams=beams)
        assert alone.target == found.target and alone.weights.shape == (len(found.target), len(found.source))
        close(alone.weights, found.weights, terms=TERMS)
        close(found.weights, slow.read(source_ids(found), target_ids(found))[1], terms=TERMS)
        close(found.weights.sum(1), np.ones(len(found.target)), terms=TERMS)
    assert together[-1].source == together[-1].target == () and together[-1].weights.shape == (0, 0)


def test_what_it_looks_at_most() -> None:
    weights = np.array([[0.2, 0.3, 0.3, 0.2], [0.7, 0.1, 0.2, 0.0]])
    found = TranslationAttention("a b c d", "x", ("a", "b", "c", "d"), ("x", "<end>"), weights, ())
    assert found.most(0) == [(1, 0.3), (2, 0.3), (0, 0.2)] and found.most(1, 1) == [(0, 0.7)]
    assert found.to_dict()["weights"] == weights.tolist()


def test_targets_are_read_as_in_training() -> None:
    lm = translating(TranslationSettings(embedding=EMBEDDING, lower=True))
    (found,) = lm.translation_attention("the dog", "DIE\nKatze")
    assert found.target == ("die", "katze", "<end>") and found.unknown == ("katze",)
    close(found.weights, Slow.of(lm).read(source_ids(found), target_ids(found))[1], terms=TERMS)


def test_mistakes() -> None:
    lm = translating()
    with refused("2 texts", "1 targets"):
        lm.translation_attention(["a dog", "a cat"], ["Hund"])
    with refused("targets[1]"):
        lm.translation_attention(["a dog", "a cat"], ["Hund", " "])
    with refused("texts[0]", "target"):
        lm.translation_attention([" "], ["Hund"])
    with refused("targets", "int"):
        lm.translation_attention("a dog", 3)  # type: ignore[arg-type]
    with refused("beams", "0"):
        lm.translation_attention("a dog", beams=0)
    with refused("gpt", "pretrain --system cove"):
        LanguageModel(base_model("gpt"), Path()).translation_attention("a dog")
    with refused("fine-tuned", "attention", "pre-trained run"):
        LanguageModel(replace(lm.model, objective=None, task=object()), Path()).translation_attention("a dog")  # type: ignore[arg-type]
