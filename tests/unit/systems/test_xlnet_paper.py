"""XLNet as a system: what its file says, and what a run of it can be asked for."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from complaints import refused
from systems_under_test import TERMS, pretrain_request, write_text
from tolerance import close, doubles, terms_of
from torch import Tensor

from foretext.api import LanguageModel, load_language_model
from foretext.batch import Batch
from foretext.evaluate.attention_page import attention_page
from foretext.evaluate.fill import fill
from foretext.evaluate.likelihood import Query, query_of, score_queries
from foretext.generate.sampling import Decoder
from foretext.nn.relative.sights import OrderedBatch
from foretext.nn.relative.xlnet import XLNet
from foretext.objectives.base import Draw
from foretext.objectives.permutation import PermutationObjective, left_to_right
from foretext.runs.directory import RunDirectory
from foretext.systems import SYSTEMS
from foretext.text.order import Stretch, TwoWayOrder
from foretext.text.tokenizers.unigram import XLNET_SPECIALS, Unigram
from foretext.train.loop import Loop
from foretext.train.pretraining.pretrain import pretrain

TOLD = terms_of(TERMS, 32 + 300)  # a minute model, and the softmax over its vocabulary


@pytest.fixture(scope="module", autouse=True)
def _float64() -> Iterator[None]:
    """What is given out (logits, vectors) is rounded to float32 in the end."""
    with doubles():
        yield


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """Twelve steps on a little text, then shaken, so that what is read matters."""
    folder = tmp_path_factory.mktemp("xlnet")
    sets = ("model.memory=8", "training.log_samples=true")
    run = pretrain(pretrain_request("xlnet", write_text(folder), folder / "run", 12, *sets))
    found = load_language_model(run)
    assert found.model.objective is not None
    with torch.no_grad():
        for parameter in [*found.model.trunk.parameters(), *found.model.objective.parameters()]:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return found


def test_the_papers_size() -> None:
    size = SYSTEMS["xlnet"].sizes["paper"]
    model, objective = size.model, size.objective
    assert (model.layers, model.width, model.heads, model.context) == (12, 768, 12, 512)  # type: ignore[attr-defined]
    assert model.memory == 384 and size.tokenizer.size == 32_000 and not size.tokenizer.lower  # type: ignore[attr-defined]
    assert (objective.predicted, objective.longest, objective.pairs, objective.both_ways) == (6, 5, True, True)  # type: ignore[attr-defined]
    training = size.pretraining
    assert (training.rate, training.batch_size, training.warmup_steps, training.epsilon) == (4e-4, 8192, 40_000, 1e-6)
    assert size.transfer.head == "hidden" and size.transfer.pooling == "extract"


def test_a_run_has_its_own_vocabulary_and_reads_both_ways(lm: LanguageModel) -> None:
    tokenizer, objective = lm.model.tokenizer, lm.model.objective
    assert isinstance(tokenizer, Unigram) and tuple(tokenizer.pieces[:9]) == XLNET_SPECIALS
    assert tokenizer.end == tokenizer.specials["<sep>"]
    assert isinstance(objective, PermutationObjective)
    assert objective.lengths(256) == [(1.0, 64)], "a quarter of a context at a time, after a memory of as much"
    assert isinstance(objective.order([0] * 8, 4, 0), TwoWayOrder)  # type: ignore[arg-type]
    ids = tokenizer.encode("The cat sees fish.")
    layout = lm.model.system.build_layout(dict(tokenizer.specials), 16, "forward")
    frame = layout.frame(ids, ids)
    assert frame.ids == (*ids, 4, *ids, 4, 3) and frame.extract == len(frame.ids) - 1
    assert frame.segments == (*[0] * (len(ids) + 1), *[1] * (len(ids) + 1), 2)
    assert frame.parts == ((0, len(ids)), (len(ids) + 1, len(ids))) and layout.overhead(2) == 3
    (cut,) = layout.sequences("entailment", [ids * 9, ids * 9])
    assert len(cut.ids) == 16 and cut.ids[-2:] == (4, 3) and cut.extract == 15 and cut.cut == 18 * len(ids) - 13


@torch.no_grad()
def prefix_nats(lm: LanguageModel, ids: list[int], context: int) -> list[float]:
    """Each token by itself: what stands before it is read, and one query is asked."""
    trunk, objective = lm.model.trunk, lm.model.objective
    assert isinstance(objective, PermutationObjective)
    nats = []
    for place in range(1, len(ids)):
        row = ids[max(0, place - context) : place + 1]
        state = trunk(left_to_right([row], [1])).top[:, -1]
        scores = objective.output_layer(trunk).logits(state)[0]  # type: ignore[arg-type]
        nats.append(float(-scores.log_softmax(-1)[ids[place]]))
    return nats


def test_perplexity_is_that_of_the_left_to_right_order(lm: LanguageModel) -> None:
    texts = ["The cat sees fish.", "The old man likes the sun.", ""]
    encoded = [lm.model.tokenizer.encode(text) for text in texts]
    assert max(map(len, encoded)) <= 16, "a window each"
    nats = [value for ids in encoded for value in prefix_nats(lm, [4, *ids], 16)]
    found = lm.perplexity(texts)
    assert found.order == "left to right" and not found.pseudo and found.tokens == len(nats) and found.stride == 8
    terms = terms_of(TOLD, len(nats))
    close(math.log(found.per_token) * len(nats), sum(nats), terms=terms)
    close(found.bits_per_byte, sum(nats) / math.log(2) / found.bytes, terms=terms)
    assert found.to_dict()["order"] == "left to right" and not found.comparable
    every = lm.perplexity(["The old man likes the sun. " * 8], stride=1)
    ids = [4, *lm.model.tokenizer.encode("The old man likes the sun. " * 8)]
    assert len(ids) > 3 * 16
    nats = prefix_nats(lm, ids, 16)
    close(math.log(every.per_token) * len(nats), sum(nats), terms=terms_of(TOLD, len(nats)))


def test_logits_are_of_each_token_by_those_before_it(lm: LanguageModel) -> None:
    ids = lm.model.tokenizer.encode("The cat sees fish.")
    logits = torch.from_numpy(lm.logits([4, *ids])).double()
    assert logits.shape == (1 + len(ids), lm.model.tokenizer.size)
    found = [float(-logits[place].log_softmax(-1)[id]) for place, id in enumerate(ids, start=1)]
    # A logit, and those that it is compared with, are rounded to float32.
    close(found, prefix_nats(lm, [4, *ids], 16), terms=2, precision=torch.float32)


def test_a_blank_is_told_by_the_query_stream(lm: LanguageModel) -> None:
    """From all the rest, on both sides, the special tokens at the end too, of which `<cls>` is a segment of its own."""
    found = fill(lm.model, "The <mask> sees fish.", top=3)
    before, after = lm.model.tokenizer.encode("The"), lm.model.tokenizer.encode("sees fish.")
    place = len(before)
    ids = torch.tensor([[*before, 6, *after, 4, 3]])
    ranks = torch.zeros_like(ids)
    ranks[0, place] = 1
    targets = torch.full_like(ids, -100)
    targets[0, place] = 6
    segments = torch.zeros_like(ids)
    segments[0, -1] = 2
    objective, trunk = lm.model.objective, lm.model.trunk
    assert isinstance(objective, PermutationObjective)
    with torch.no_grad():
        asked = OrderedBatch(ids, segments_BT=segments, targets_BT=targets, ranks_BT=ranks)
        scores, plain = (
            objective.output_layer(trunk).logits(trunk(one).top[0, [place]])[0]  # type: ignore[arg-type]
            for one in (asked, replace(asked, segments_BT=None))
        )
    scores[:9] = plain[:9] = -torch.inf
    best, ids_of_best = scores.log_softmax(-1).topk(3)
    assert [one.id for one in found.blanks[0]] == ids_of_best.tolist()
    close([math.log(one.probability) for one in found.blanks[0]], best, terms=TOLD)
    assert float((plain.log_softmax(-1)[ids_of_best] - best).abs().max()) > 1e-3, "segments matter"
    assert len(fill(lm.model, "<mask> <mask>", top=2).blanks) == 2
    with refused("<mask>"):
        fill(lm.model, "no blank")


def test_vectors_and_the_page_are_of_the_segments_that_a_task_reads(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`<cls>` is one of its own; rows of unlike length side by side, a fine-tuned model's page too."""
    trunk, texts = lm.model.trunk, ["The cat sees fish.", "The old man likes the sun."]
    framed = []
    for text, vector in zip(texts, lm.features(texts)):
        ids = lm.model.tokenizer.encode(text)
        framed.append([[*ids, 4, 3], [0] * (len(ids) + 1) + [2]])
        read, parts = (torch.tensor([part]) for part in framed[-1])
        with torch.no_grad():
            own = trunk(Batch(read, segments_BT=parts)).top[0, : len(ids)].mean(0)
            plain = trunk(Batch(read)).top[0, : len(ids)].mean(0)
        close(vector, own, terms=terms_of(1, len(ids)))  # rounded to float32, and the mean over so many tokens
        assert float((own - plain).abs().max()) > 1e-3
    assert len(framed[0][0]) < len(framed[1][0]) <= 16
    given: list[list[list[int]]] = []
    real = XLNet.attention_weights

    def noted(trunk: XLNet, *parts: Tensor) -> Tensor:
        given.append([part.tolist() for part in parts])
        return real(trunk, *parts)

    monkeypatch.setattr(XLNet, "attention_weights", noted)
    attention_page(lm.model, texts[0])
    rows = [(texts[0], "one"), (texts[1], "other")] * 4
    attention_page(lm.finetune(rows, task="classification", epochs=1, hold_out=0.0).model, texts[0])
    assert given == [framed[0], framed[0]]


def test_what_else_it_does_and_does_not(lm: LanguageModel) -> None:
    texts = ["The cat sees fish.", "The child eats a red ball."]
    assert lm.features(texts).shape == (2, 32)
    assert len(lm.word_features(texts)[0].words) == len(lm.word_features(texts)[0].vectors) > 3
    page = attention_page(lm.model, "The cat sees fish.")
    assert "cls" in page.split('id="data"')[1].split("<script>")[0], "with the special tokens"


def test_it_is_prompted_in_the_order_of_the_text(lm: LanguageModel) -> None:
    """Completions of unlike length, contexts that share their beginning, and one that does not fit whole."""
    tokenizer = lm.model.tokenizer
    contexts = ["The cat", "The cat sees", "The old man likes the sun and the cat sees fish and"]
    queries = [query_of(tokenizer, context, ["sees the sun", "eats", "likes fish."]) for context in contexts]
    queries.append(Query((), (tuple(tokenizer.encode("The sun")),)))
    for query, found in zip(queries, score_queries(lm.model, queries), strict=True):
        for completion, one in zip(query.completions, found, strict=True):
            ids = [*(query.context or (tokenizer.end,)), *completion]
            nats = prefix_nats(lm, ids[-17:], 16)[-len(completion) :]
            close(one.total, -sum(nats), terms=terms_of(TOLD, len(nats)))
            assert one.cut == max(0, len(ids) - 17) and one.tokens == len(completion)
    assert any(one.cut for one in score_queries(lm.model, queries)[2])


@torch.no_grad()
def test_it_writes_in_the_order_of_the_text(lm: LanguageModel) -> None:
    """Token by token with a memory as by reading all anew each time; prompts of unlike length side by side."""
    objective, trunk, tokenizer = lm.model.objective, lm.model.trunk, lm.model.tokenizer
    assert isinstance(objective, PermutationObjective)
    prompts = [tokenizer.encode("The cat sees"), [4], tokenizer.encode("The old man likes the")]
    assert len({len(prompt) for prompt in prompts}) == 3
    decoder = Decoder(lm.model, prompts)
    for _ in range(6):
        found = decoder.logits()
        for row, own in zip(found, decoder.rows):
            state = trunk(left_to_right([[*own, 0]], [1])).top[:, -1]
            close(row, objective.output_layer(trunk).logits(state)[0], terms=1)  # type: ignore[arg-type]
        decoder.append(decoder.allowed(found).argmax(-1).tolist())
    kept = [list(decoder.rows[2]), list(decoder.rows[0])]
    decoder.keep([2, 0])
    state = trunk(left_to_right([[*kept[1], 0]], [1])).top[:, -1]
    close(decoder.logits()[1], objective.output_layer(trunk).logits(state)[0], terms=1)  # type: ignore[arg-type]
    text = lm.generate("The cat", max_tokens=5, temperature=0.0)
    assert text == lm.generate("The cat", max_tokens=5, temperature=0.0) and "<" not in text


@torch.no_grad()
def test_past_its_context_it_goes_on_from_the_newest_half(lm: LanguageModel) -> None:
    """A row that has outgrown 16 tokens is its last eight, read from nothing, and grows again; others stay whole."""
    objective, trunk = lm.model.objective, lm.model.trunk
    assert isinstance(objective, PermutationObjective)

    def read_anew(ids: list[int]) -> Tensor:
        state = trunk(left_to_right([[*ids, 0]], [1])).top[:, -1]
        return objective.output_layer(trunk).logits(state)[0]  # type: ignore[arg-type]

    draw, ordinary = random.Random(3), range(9, lm.model.tokenizer.size)
    decoder = Decoder(lm.model, [draw.choices(ordinary, k=length) for length in (12, 5)])
    starts, begun_again = [0, 0], 0
    for _ in range(30):
        decoder.append(draw.choices(ordinary, k=2))
        for number, row in enumerate(decoder.rows):
            if len(row) - starts[number] > 16:
                starts[number], begun_again = len(row) - 8, begun_again + 1
        for row, start, found in zip(decoder.rows, starts, decoder.logits()):
            close(found, read_anew(row[start:]), terms=1)
    assert begun_again > 4 and min(starts) > 16
    longer = read_anew(decoder.rows[0])
    assert float((decoder.logits()[0] - longer).abs().max()) > 1e-3, "what stands before it is forgotten"


@pytest.mark.parametrize("pairs", ["true", "false"])
def test_pairs_are_learned_from_too(pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to segments moves; without pairs it stays as it was drawn."""
    begun: dict[str, Tensor] = {}
    real = Loop._step

    def noted(loop: Loop) -> dict[str, float]:
        if not begun:
            begun.update({name: p.detach().clone() for name, p in loop.job.trunk.named_parameters()})
        return real(loop)

    monkeypatch.setattr(Loop, "_step", noted)
    sets = ("model.memory=8", f"objective.pairs={pairs}", "model.context=24", "objective.length=1.0")
    run = pretrain(pretrain_request("xlnet", write_text(tmp_path), tmp_path / "run", 4, *sets))
    ended = dict(load_language_model(run).model.trunk.named_parameters())
    names = [name for name in ended if name.endswith((".attention.segment", ".attention.segments"))]
    assert len(names) == 4
    for name in names:
        moved = float((ended[name].detach() - begun[name]).abs().max())
        assert 1e-4 < moved < 1 if pairs == "true" else moved == 0, name


@pytest.mark.parametrize("pairs", ["true", "false"])
def test_one_way_is_read_from_the_left_alone(pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every row, in validation too, each going on where it ended."""
    made: list[Batch] = []
    real = PermutationObjective.make

    def noted(objective: PermutationObjective, examples: Sequence[Stretch], draw: Draw | None = None) -> Batch:
        made.append(real(objective, examples, draw))
        return made[-1]

    monkeypatch.setattr(PermutationObjective, "make", noted)
    sets = ("objective.both_ways=false", f"objective.pairs={pairs}", "model.context=24", "objective.length=1.0")
    request = pretrain_request("xlnet", write_text(tmp_path), tmp_path / "run", 3, *sets, "training.log_samples=true")
    run = pretrain(request)
    assert made and all(isinstance(batch, OrderedBatch) and batch.backward_B is None for batch in made)
    assert all((batch.segments_BT is not None) == (pairs == "true") for batch in made)
    steps = [row["samples"] for row in RunDirectory(run).metrics() if "samples" in row]
    assert len(steps) == 3 and len(steps[0]) == 4
    assert steps[1:] == [[index + step for index in steps[0]] for step in (1, 2)]
    objective = load_language_model(run).model.objective
    assert isinstance(objective, PermutationObjective) and not objective.settings.both_ways
