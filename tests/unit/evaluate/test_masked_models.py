"""Blanks, pseudo-perplexity and vectors of masked models, each against a literal computation."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from complaints import names, refused
from stirred_models import stirred
from systems_under_test import (
    BY_GRADIENTS,
    CAUSAL,
    CONTEXTUAL,
    FRAMED,
    MASKING,
    TERMS,
    TINY,
    base_model,
    shaken_model,
)
from tolerance import close, terms_of

from foretext.api import LanguageModel
from foretext.batch import BATCH_TOKENS, Batch, length_batches
from foretext.evaluate import perplexity
from foretext.evaluate.features import LayerMix, text_vectors, word_vectors
from foretext.evaluate.fill import fill
from foretext.evaluate.perplexity import pseudo_perplexity
from foretext.objectives.permutation import PermutationConfig
from foretext.runs.report import Reporter
from foretext.systems import SYSTEMS
from foretext.text.tokenizers.base import END

TOLD = terms_of(TERMS, 32, 32 + 300)  # a minute model, its head, the softmax over 300 pieces
MEAN = terms_of(1, 32)  # vectors are rounded to float32, and then the mean of at most 32 pieces is taken


@pytest.fixture(scope="module", params=MASKING)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return stirred(request.param, tmp_path_factory.mktemp("masked"))


def mask_of(lm: LanguageModel) -> tuple[str, int]:
    return next((name, id) for name, id in lm.model.tokenizer.specials.items() if name in ("[MASK]", "<mask>"))


def scores_of(lm: LanguageModel, ids: list[int]) -> torch.Tensor:
    """What the head says of each place, not rounded."""
    trunk, objective = lm.model.trunk.eval(), lm.model.objective
    assert objective is not None
    with torch.no_grad():
        return objective.eval().output_layer(trunk).logits(trunk(Batch(torch.tensor([ids]))).top[0])  # type: ignore[operator]


def framed(lm: LanguageModel, ids: list[int]) -> tuple[list[int], int]:
    """Between the first special and the last, and where the text begins: written out, not asked of the layout."""
    specials = lm.model.tokenizer.specials
    pairs = (("<s>", "</s>"), ("[CLS]", "[SEP]"), (END, END))
    first, last = next(pair for pair in pairs if set(pair) <= specials.keys())
    return [specials[first], *ids, specials[last]], 1


# -- blanks ----------------------------------------------------------------------------------------------------------


def test_probabilities_are_those_of_the_head_over_real_pieces(lm: LanguageModel) -> None:
    name, mask = mask_of(lm)
    before, after = lm.model.tokenizer.encode("The cat"), lm.model.tokenizer.encode(" fish.")
    ids, _ = framed(lm, [*before, mask, *after])
    scores = scores_of(lm, ids)
    close(lm.logits(ids), scores, terms=1)  # rounded to float32 once
    told = scores[ids.index(mask)]
    told[list(lm.model.tokenizer.specials.values())] = -math.inf
    expected = told.log_softmax(-1)
    found = lm.fill(f"The cat {name} fish.", top=7)
    assert len(found.blanks) == 1 and len(found.blanks[0]) == 7
    close([math.log(one.probability) for one in found.blanks[0]], expected.topk(7).values, terms=TOLD)
    for one in found.blanks[0]:
        assert one.piece == lm.model.tokenizer.piece(one.id) and one.id not in lm.model.tokenizer.specials.values()
    chances = [one.probability for one in found.blanks[0]]
    assert chances == sorted(chances, reverse=True)
    assert [one.id for one in found.blanks[0]] == expected.topk(7).indices.tolist()
    best = lm.model.tokenizer.decode([*before, found.blanks[0][0].id, *after]).strip()
    assert found.text.lower() == best.lower()


def answering(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, id: int) -> list[list[int]]:
    """The model made to put `id` into every blank; what it reads is noted."""
    read: list[list[int]] = []
    trunk, objective = lm.model.trunk, lm.model.objective

    def reads(batch: Batch) -> object:
        read.append(batch.ids_BT[0].tolist())
        return real(batch)

    def logits(states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.full((len(states),), id), lm.model.model_config.vocabulary).float()

    real = trunk.forward
    monkeypatch.setattr(trunk, "forward", reads)
    monkeypatch.setattr(objective, "output_layer", lambda trunk: SimpleNamespace(logits=logits))
    return read


def test_the_text_round_a_blank_stays_as_it_was_given(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capitals, double spaces and words that the vocabulary does not have too."""
    name, _ = mask_of(lm)
    tokenizer = lm.model.tokenizer
    (id, *_), after = tokenizer.encode(" cat"), "The  Ω"
    answering(lm, monkeypatch, id)
    begun = tokenizer.decode([id]).strip()
    assert lm.fill(f"{after} {name}.").text == f"{after} {begun}."
    assert lm.fill(f"{name} Ω").text == f"{begun} Ω"
    (inner,) = (
        id for id in range(tokenizer.size) if tokenizer.piece(id) == ("##s" if tokenizer.kind == "wordpiece" else "s")
    )
    answering(lm, monkeypatch, inner)
    assert lm.fill(f"A Cat {name}, {name}!").text == "A Cats,s!"


def test_what_touches_a_blank_begins_no_word(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full stop after a blank is the one that stands after a word."""
    name, mask = mask_of(lm)
    tokenizer = lm.model.tokenizer
    *words, stop = tokenizer.encode("The cat sees fish.")
    read = answering(lm, monkeypatch, words[-1])
    lm.fill(f"The cat sees {name}.")
    assert read[0][-2:-1] == [stop] and read[0][-3] == mask


def test_several_blanks_and_one_at_each_end(lm: LanguageModel) -> None:
    name, _ = mask_of(lm)
    found = lm.fill(f"{name} old man sees {name}", top=2)
    assert [len(blank) for blank in found.blanks] == [2, 2] and name not in found.text
    everything = lm.fill(name, top=10**6).blanks[0]
    close(sum(one.probability for one in everything), 1.0, terms=2 * len(everything))
    assert not {one.id for one in everything} & set(lm.model.tokenizer.specials.values()), "no piece that cannot be"
    assert len(everything) == lm.model.tokenizer.size - len(lm.model.tokenizer.specials)


def test_what_cannot_be_filled(lm: LanguageModel, tmp_path: Path) -> None:
    name, _ = mask_of(lm)
    long = f"{name} " + "the old man " * 20
    for text, top, named in (
        ("no blank", 5, [name]),
        (f"a {name}", 0, ["top", "0"]),
        (long, 5, ["context", "14"]),
    ):
        with refused(*named):
            lm.fill(text, top)
    with refused("text", "list"):
        lm.fill([name])  # type: ignore[arg-type]


@pytest.mark.parametrize("system", [name for name in TINY if name not in MASKING])
def test_a_model_that_is_not_masked_fills_no_blanks(system: str) -> None:
    for what, ask in (
        ("fill", lambda model: fill(model, "a [MASK]")),
        ("pseudo-", lambda model: pseudo_perplexity(model, ["a"])),
    ):
        with refused(system, what, ", ".join(MASKING), " xlnet") as raised:
            ask(base_model(system))
        assert ("foretext generate" in str(raised.value)) == (
            system in BY_GRADIENTS and SYSTEMS[system].learns_from == "text"
        )


# -- pseudo-perplexity -----------------------------------------------------------------------------------------------


def literal_nats(lm: LanguageModel, ids: list[int], room: int) -> list[float]:
    """Each token masked alone in the window that shows the most of its shorter side, the first of equal ones."""
    _, mask = mask_of(lm)
    starts = [0]
    while starts[-1] + room < len(ids):
        starts.append(min(starts[-1] + room // 2, len(ids) - room))
    nats = []
    for place in range(len(ids)):
        inside = [s for s in starts if s <= place < s + room]
        start = max(inside, key=lambda s: min(place - s, min(s + room, len(ids)) - 1 - place))
        window, first = framed(lm, ids[start : start + room])
        window[first + place - start] = mask
        scores = scores_of(lm, window)[first + place - start]
        nats.append(float(-scores.log_softmax(-1)[ids[place]]))
    return nats


def test_pseudo_perplexity_masks_each_token_alone(lm: LanguageModel) -> None:
    texts = ["The cat sees fish.", "x", "The old man likes the sun. " * 5, ""]
    encoded = [lm.model.tokenizer.encode(text) for text in texts]
    room = lm.model.model_config.context - 2
    nats = [value for ids in encoded for value in literal_nats(lm, ids, room)]
    assert len(encoded[2]) > 2 * room, "several windows"
    heard: list[tuple[int, int]] = []
    found = lm.perplexity(texts, progress=lambda done, of: heard.append((done, of)))
    assert found.pseudo and not found.comparable and found.tokens == len(nats) and found.documents == 4
    terms = terms_of(TOLD, len(nats))
    close(math.log(found.per_token) * len(nats), sum(nats), terms=terms)
    close(found.bits_per_byte, sum(nats) / math.log(2) / found.bytes, terms=terms)
    assert heard[-1] == (len(nats), len(nats))


def test_windows_of_a_long_text_are_sought_nearby(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work grows with the text, not with its square; and each window is framed once, not for each token."""
    framed_windows, compared = [], []
    real = perplexity.read_as
    monkeypatch.setattr(perplexity, "read_as", lambda model, ids: framed_windows.append(1) or real(model, ids))
    asked = perplexity._context
    monkeypatch.setattr(perplexity, "_context", lambda *place: compared.append(1) or asked(*place))
    for room in (1, 2, 3, 14):
        framed_windows.clear(), compared.clear()
        found = list(perplexity._questions(lm.model, [7] * 1000, room))
        assert len(found) == 1000 and len(compared) <= 4000
        assert len(framed_windows) <= 2 + 1000 // max(1, room // 2)


def test_a_batch_is_bounded_by_its_longest_row() -> None:
    lengths = [4, 200, *(4,) * 5000, 300, 4]
    groups = list(length_batches(lengths))
    assert sorted(number for group in groups for number in group) == list(range(len(lengths)))
    assert all(len(group) * max(lengths[number] for number in group) <= BATCH_TOKENS for group in groups)


def test_what_has_no_pseudo_perplexity(lm: LanguageModel) -> None:
    with refused("stride", lm.model.system.name):
        lm.perplexity("a text", stride=4)
    with refused("empty"):
        lm.perplexity([""])


# -- vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", CONTEXTUAL)
def test_a_mix_of_layers_is_their_weighted_sum(system: str) -> None:
    found = LanguageModel(shaken_model(system, 0.1) if system == "modern" else base_model(system), Path())
    texts = ["one text", "and another, longer one"]
    widths = found.model.model_config.layer_widths
    wide = [layer for layer, width in enumerate(widths) if width == 32]  # only layers of one width go together
    below, top = wide[-2:]
    layers = {layer: found.features(texts, layers=[layer]) for layer in wide}
    assert layers[0].dtype == np.float32 and not np.allclose(layers[below], layers[top], atol=1e-3)
    close(found.features(texts, layers=[0, top]), (layers[0] + layers[top]) / 2, terms=MEAN)
    weighted = found.features(texts, layers=[top, below], weights=[0.25, 3.0])
    close(weighted, 0.25 * layers[top] + 3 * layers[below], terms=MEAN, size=float(3 * np.abs(layers[below]).max()))
    pair = found.features(texts, layers=[top, 0], each=True)
    np.testing.assert_array_equal(pair, np.stack([layers[top], layers[0]], 1))
    if len(wide) == len(widths):
        np.testing.assert_array_equal(found.features(texts, each=True), np.stack([*layers.values()], 1))
    else:
        with refused("layer 0", "layer 1", *map(str, widths), "--each", "each=True"):
            found.features(texts, layers=range(len(widths)))
    words, single = (found.word_features(texts, layers=some, each=len(some) > 1)[0] for some in (wide, [below]))
    assert words.words == single.words and words.vectors.shape == (len(words.words), len(wide), 32)
    np.testing.assert_array_equal(words.vectors[:, -2], single.vectors)
    if found.model.system.name not in ("gpt2", "modern"):  # whose top is behind a norm of its own
        close(found.features(texts), layers[top], terms=MEAN)
    for changes, named in (
        ({"layers": [3]}, ["layer 3", "0", "2"]),
        ({"layers": [-1]}, ["layer -1", "0", "2"]),
        ({"layers": [0, 1], "weights": [1.0]}, ["1 weights", "2 layers"]),
        ({"weights": [1.0]}, ["1 weights", "0 layers"]),
        ({"layers": [1], "weights": [1.0], "each": True}, ["weights", "each"]),
        ({"layers": [1], "weights": [math.nan]}, ["layer", "nan"]),
        ({"layers": 1}, ["layers=[0, 4]", "weights=[.5, .5]", " 1 "]),
        ({"layers": [1.5]}, ["layers=[0, 4]", "weights=[.5, .5]", "[1.5]"]),
        ({"layers": [1], "weights": ["much"]}, ["layers=[0, 4]", "weights=[.5, .5]", "['much']"]),
    ):
        for ask in (found.features, found.word_features):
            with refused(*named):
                ask(texts, **changes)  # type: ignore[operator]


@pytest.mark.parametrize("system", CONTEXTUAL)
def test_a_words_vector_is_the_mean_of_its_pieces(system: str) -> None:
    model = base_model(system)
    text = "The old 酒店, it's 42!"
    (found,) = word_vectors(model, [text], mix=LayerMix((1,)))
    assert [text[start:end] for start, end in found.places] == found.words
    assert found.words[:2] == ["The", "old"] and "42" in found.words and "".join(found.words) == text.replace(" ", "")
    ids = model.tokenizer.encode(text)
    read, first, segments = [model.tokenizer.end, *ids], 1, None
    if system in FRAMED:
        read, first = framed(LanguageModel(model, Path()), ids)
    elif SYSTEMS[system].objective_config is PermutationConfig:
        read, first = [*ids, model.tokenizer.specials["<sep>"], model.tokenizer.specials["<cls>"]], 0
        segments = torch.tensor([[0] * (len(ids) + 1) + [2]])
    elif system not in CAUSAL:  # between two ends, or as it is
        frames = model.system.build_layout(dict(model.tokenizer.specials), 48, "forward").overhead(1) == 2
        read, first = ([*read, model.tokenizer.end], 1) if frames else (ids, 0)
    with torch.no_grad():
        batch = Batch(torch.tensor([read]), segments_BT=segments)
        states = model.trunk.eval()(batch, keep_layers=True).layers[1][0, first:]
    spelled = text.encode()
    for word, (first, last), vector in zip(found.words, found.places, found.vectors):
        head = len(text[:first].encode())
        pieces = states[head - (spelled[head - 1 : head] == b" ") : len(text[:last].encode())]  # bytes: a piece each
        candidates = [pieces.mean(0), states[head : len(text[:last].encode())].mean(0)]
        nearest = min(candidates, key=lambda one: float((one - torch.from_numpy(vector)).abs().max()))
        close(vector, nearest, terms=MEAN, what=word)


def test_word_vectors_of_empty_and_over_long_texts() -> None:
    """A text beyond the context is said to be cut, and a word that it is cut in has no vector of its beginning."""
    model = base_model("bert")
    heard: list[str] = []

    class Notes(Reporter):
        def note(self, text: str) -> None:
            heard.append(text)

    found = word_vectors(model, ["", "word " * 40], reporter=Notes())
    assert found[0].words == [] and found[0].vectors.shape == (0, 32)
    assert 5 < len(found[1].words) < 40 and found[1].vectors.shape == (len(found[1].words), 32)
    assert set(found[1].words) == {"word"}
    text_vectors(model, ["", "word " * 40, "a"], reporter=Notes())
    for note, count in zip(heard, (2, 3), strict=True):
        names(note, f"1 of {count}", "48 tokens")
    with pytest.warns(UserWarning) as warned:
        LanguageModel(model, Path()).features("word " * 40)
    (warning,) = warned
    names(warning.message, "1 of 1", "48 tokens")
