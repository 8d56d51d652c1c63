"""Learning in context by a model that reads from right to left: log P(context, answer | what stands behind), and of it
the channel's log P(context | answer, …). Recomputed from texts that are written out here and turned round by hand: for
GPT by `dense_gpt` in numpy, for the other systems by one plain reading of everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from complaints import refused
from dense_gpt import surprises
from systems_under_test import CAUSAL, TERMS, logits_of, shaken_model
from tolerance import close, doubles, terms_of

from foretext.batch import Batch
from foretext.evaluate import in_context
from foretext.evaluate.in_context import Template, answer_rows, check_prompted
from foretext.evaluate.likelihood import channel_query
from foretext.evaluate.untaught import referents, sentence_scores
from foretext.runs.model import SavedModel
from foretext.tasks.files.rows import Row
from foretext.text.tokenizers.base import TokenizerConfig
from foretext.text.tokenizers.training import train_tokenizer

LABELS = ("no", "maybe")
TEMPLATE = Template("classification", "{text}: {label}", LABELS)
ASKED = [Row(("a dog",), "no", "row 1"), Row(("two cats",), "maybe", "row 2"), Row(("it",), "no", "row 3")]
KNOWN = [Row(("a hen",), "maybe", "row 4"), Row(("an ox",), "no", "row 5")]
# An LSTM reads up to fifty tokens one after the other, through two layers of 32 inputs and cells.
TOLD = terms_of(TERMS, 50 * 2 * (32 + 32), 257, 50)


@pytest.fixture(autouse=True)
def _in_doubles() -> Iterator[None]:
    with doubles():
        yield


def backward(system: str) -> SavedModel:
    """Large random weights, which read from right to left."""
    made = shaken_model(system, 0.2)
    return replace(made, config=replace(made.config, run=replace(made.info, direction="backward")))


def nats_of(model: SavedModel, text: str, ends: bool) -> list[float]:
    """log P of each character of `text`, in the order of the text, by those behind it; the last follows end-of-text
    only where the text `ends` there, and is else not told."""
    read = [*([model.tokenizer.end] if ends else []), *text.encode()[::-1]]
    if model.system.name == "gpt":
        told = [-nats for nats in surprises(model.trunk, read)]
    else:
        with torch.no_grad():
            top = model.trunk.eval()(Batch(torch.tensor([read[:-1]]))).top[0]
        logs = torch.log_softmax(logits_of(model.trunk, top), dim=-1)
        told = logs[torch.arange(len(read) - 1), torch.tensor(read[1:])].tolist()
    return told[::-1]


@pytest.mark.parametrize("system", CAUSAL)
def test_zero_examples(system: str) -> None:
    model = backward(system)
    (found,) = answer_rows(model, TEMPLATE, ASKED, KNOWN, 0, [0])
    assert found.normalisations == ("sum", "channel") and found.cut == 0
    for row, answered in zip(ASKED, found.answers, strict=True):
        context = f"{row.texts[0]}:"
        for label, total, channel in zip(LABELS, answered.scores("sum"), answered.scores("channel"), strict=True):
            told = nats_of(model, f"{context} {label}", ends=True)
            close(total, sum(told), terms=TOLD)
            close(channel, sum(told[: len(context)]), terms=TOLD)
        best = max(range(2), key=answered.scores("channel").__getitem__)
        assert answered.best("channel") == best
    hits = [one.best("channel") == LABELS.index(str(row.label)) for row, one in zip(ASKED, found.answers)]
    assert found.accuracy("channel") == sum(hits) / 3


@pytest.mark.parametrize("system", CAUSAL)
def test_examples_stand_behind_the_row(system: str) -> None:
    """They are given, so that none of their characters is told, and what each row reads first is the same."""
    model = backward(system)
    for found in answer_rows(model, TEMPLATE, ASKED, KNOWN, 1, [0, 1]):
        behinds = {answered.prompt.behind for answered in found.answers}
        assert behinds < {"\n\na hen: maybe", "\n\nan ox: no"} and len(behinds) == 1
        behind = behinds.pop()
        for row, answered in zip(ASKED, found.answers, strict=True):
            assert answered.prompt.whole == f"{row.texts[0]}:"
            for label, one in zip(LABELS, answered.likelihoods, strict=True):
                text = f"{row.texts[0]}: {label}"
                told = nats_of(model, text + behind, ends=False)[: len(text)]
                close(one.total, sum(told), terms=TOLD)
                close(one.total - one.part, sum(told[: len(row.texts[0]) + 1]), terms=TOLD)
                assert (one.tokens, one.cut) == (len(text), 0)


def test_the_example_that_is_read_last_stands_next_to_the_row() -> None:
    ahead = in_context.prompts_of(TEMPLATE, ASKED[:1], KNOWN, 2, 0)[0].examples.removesuffix("\n\n").split("\n\n")
    behind = in_context.prompts_of(TEMPLATE, ASKED[:1], KNOWN, 2, 0, backward=True)[0].behind.split("\n\n")
    assert behind == ["", *ahead[::-1]] and len(ahead) == 2


@pytest.mark.parametrize("system", ["gpt", "gpt2"])
def test_what_does_not_fit_is_left_out_at_the_far_end(system: str) -> None:
    """The context is 48: of the examples so much is read as fits behind the row, which is never cut itself."""
    model, known = backward(system), [Row(("x" * 40,), "no", "row 9")]
    (found,) = answer_rows(model, TEMPLATE, ASKED, known, 1, [0])
    assert found.cut == 3
    for row, answered in zip(ASKED, found.answers, strict=True):
        for label, one in zip(LABELS, answered.likelihoods, strict=True):
            text = f"{row.texts[0]}: {label}"
            whole = text + answered.prompt.behind
            told = nats_of(model, whole[:49], ends=False)[: len(text)]  # the last one is read, not told
            close(one.total, sum(told), terms=TOLD)
            assert (one.tokens, one.cut) == (len(text), len(whole) - 49)
    with refused("row 7", "48"):
        answer_rows(model, TEMPLATE, [Row(("y" * 60,), "no", "row 7")], known, 1, [0])


@pytest.mark.parametrize("system", CAUSAL)
def test_sentences_are_told_from_their_end(system: str) -> None:
    model, texts = backward(system), ["a dog", "it is so"]
    found = sentence_scores(model, [Row((text,), "1", "row") for text in texts])
    for score, text in zip(found, texts, strict=True):
        told = nats_of(model, text, ends=True)
        close(score, sum(told) / len(text), terms=TOLD)


@pytest.mark.parametrize("system", ["gpt", "ulmfit"])
def test_what_stands_before_a_blank_is_told_in_front_of_each_choice(system: str) -> None:
    model, row = backward(system), Row(("so he saw _ go", "him", "nobody"), 1, "row 1")
    (found,) = referents(model, [row])
    for choice, total, channel in zip(row.texts[1:], found.scores("sum"), found.scores("channel"), strict=True):
        told = nats_of(model, f"so he saw {choice} go", ends=False)[: len("so he saw ") + len(choice)]
        close(total, sum(told), terms=TOLD)
        close(channel, sum(told[: len("so he saw")]), terms=TOLD)
    assert found.prompt.right == 1
    with refused("row 2", "_", "before"):
        referents(model, [Row(("_ saw him", "he", "she"), 0, "row 2")])


@pytest.mark.parametrize("kind", ["byte-bpe", "char-bpe"])
def test_tokens_across_a_border(kind: str) -> None:
    """Whatever a vocabulary joins, the ids are those of the whole text, what is given is the same for all answers, and
    so is what the channel scores."""
    texts = ["the answer is no", "the answers are yes", "an anthem: so it is", "notary"] * 5
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind, 300, splitter="auto" if kind == "byte-bpe" else "rules"))
    for context, answers, behind in [
        ("the", (" answer", " notary"), ""),
        ("the ans", ("wer", "wers are", "o"), "\n\nthe answer is no"),  # "answer" is one token: it crosses
        ("so an", (" no", " the"), "tary is it"),  # "notary" is one too
        ("so an", ("swer", " no"), "tary is it"),
    ]:
        query = channel_query(tokenizer, context, answers, behind, "here")
        rests = set()
        for answer, completion, part in zip(answers, query.completions, query.parts, strict=True):
            whole = (*query.context, *completion)
            assert [*whole[::-1]] == tokenizer.encode(context + answer + behind)
            rests.add(completion[part:])
        (rest,) = rests
        assert tokenizer.encode(behind)[::-1][: len(query.context)] == [*query.context]
        assert tokenizer.encode(context)[: len(rest)] == [*rest[::-1]] and query.where == "here"
    crossing = channel_query(tokenizer, "the ans", ("wer", "o"), "")
    assert crossing.completions[0][crossing.parts[0] :] == (*tokenizer.encode("the"),)[::-1]


def test_tasks_that_are_told_from_the_left() -> None:
    model = backward("gpt")
    for task in ("last-word", "summary", "translation", "answer"):
        with refused(task, "forward", "classification, entailment"):
            check_prompted(model, task)
        check_prompted(shaken_model("gpt", 0.2), task)
    for task in in_context.FROM_THE_RIGHT:
        check_prompted(model, task)
