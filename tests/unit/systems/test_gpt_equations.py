"""GPT's equations in the order of its paper: the model, L1, L2, L3 and the four input transformations. Each is computed
by `dense_gpt`, a token at a time in float64, and by the product as a user has it: `--plan paper` fine-tunes, on a model
of the size `tiny`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dense_gpt import dense_gpt, next_tokens, softmax, surprises
from systems_under_test import TERMS, shaken_model, windows
from tolerance import close, doubles, terms_of

from foretext.api import LanguageModel, TaskModel
from foretext.batch import Batch
from foretext.evaluate.attention_page import attention_page
from foretext.objectives.causal import CausalObjective
from foretext.runs.model import encode
from foretext.tasks.files.rows import rows_from
from foretext.tasks.layouts.base import DELIMITER, EXTRACT, START
from foretext.text.corpus.shards import TokenShards
from foretext.text.order import Windows
from foretext.train.loop import Loop

BYTES = 257
TOLD = terms_of(TERMS, BYTES)  # the model, and the softmax over all bytes


@pytest.fixture(autouse=True)
def _in_doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And nothing is trained: everything is that of the weights as drawn, which are large."""
    monkeypatch.setattr(Loop, "run", lambda self: self.position)
    with doubles():
        yield


@pytest.fixture
def trunk() -> Any:
    return shaken_model("gpt", 0.2).trunk.eval()


# -- the model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["gpt", "gpt2"])
def test_states_are_those_of_the_blocks(system: str) -> None:
    """h0 = U We + Wp, h_l = block(h_{l-1}) with masked attention alone: a longer row beside a shorter one."""
    trunk, rows = shaken_model(system, 0.2).trunk, [row.tolist() for row in windows((24, 9))]
    ids = torch.tensor([rows[0], [*rows[1], *[0] * 15]])
    mask = torch.tensor([[True] * 24, [True] * 9 + [False] * 15])
    found = trunk(Batch(ids, mask)).top.detach()
    for own, row in zip(found, rows):
        close(own[: len(row)], dense_gpt(trunk, row).top_TD, terms=TERMS)
    parts = {name.split(".")[2] for name, _ in trunk.named_parameters() if name.startswith("blocks.")}
    assert parts == {"attention", "norm1", "norm2", "up", "down"}, "no attention to another sequence"


def test_the_next_token_is_told_by_the_embeddings(trunk: Any) -> None:
    """P(u) = softmax(h We^T), the table that tokens are read by."""
    ids = windows((20,))[0].tolist()
    with torch.no_grad():
        found = trunk.output_layer().logits(trunk(Batch(torch.tensor([ids]))).top[0]).softmax(-1)
    close(found, next_tokens(trunk, ids), terms=TOLD)
    assert trunk.output_table() is trunk.tokens.weight


def test_a_token_looks_at_itself_and_those_before_it() -> None:
    """ "it" gives all of its attention to what stands before it and to itself, on the page as in the model."""
    model = shaken_model("gpt", 0.2)
    text = "so it is"
    ids = [model.tokenizer.end, *model.tokenizer.encode(text)]
    expected = dense_gpt(model.trunk, ids).attention_LHTT
    close(model.trunk.attention_weights(torch.tensor(ids)), expected, terms=TERMS)
    shown = json.loads(attention_page(model, text).split('id="data">')[1].split("</script>")[0])["weights"]
    place = 1 + text.index("t")
    for layer, heads in enumerate(shown):
        for head, rows in enumerate(heads):
            assert rows[place] == np.rint(1000 * expected[layer, head, place, : place + 1]).tolist()


# -- L1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_l1(trunk: Any, direction: Any) -> None:
    """−Σ log P(u_i | u_{i-k} … u_{i-1}); from the right, of each token by those behind it."""
    rows, objective = windows((20, 5, 12)), CausalObjective(direction)
    found = objective(trunk, objective.make(rows)).losses["lm"]
    read = [row.tolist() if direction == "forward" else row.tolist()[::-1] for row in rows]
    told = [nats for row in read for nats in surprises(trunk, row)]
    assert found.count == len(told) == 19 + 4 + 11
    close(found.total, sum(told), terms=terms_of(TOLD, len(told)))


def test_k_tokens_are_the_most_that_tell_one(trunk: Any) -> None:
    """Windows of k + 1 lie end to end: the last token of one is told by the k before it, and read first in the next."""
    text, k = np.arange(100) % 61, 8
    examples = Windows(TokenShards(Path("text"), "train", None, [text]), k, seed=1)  # type: ignore[arg-type]
    objective = CausalObjective()
    for index in range(len(examples)):
        window, begin = examples.example(0, index), examples.offset(0) + k * index
        assert window.tolist() == text[begin : begin + k + 1].tolist()
        told = surprises(trunk, window.tolist())
        assert len(told) == k
        close(objective(trunk, objective.make([window])).losses["lm"].total, sum(told), terms=terms_of(TOLD, k))


# -- L2, L3 and the transformations ----------------------------------------------------------------------------------

ROWS: dict[str, list[Any]] = {
    "classification": [("so good", "a"), ("bad", "b"), ("it is", "c")],
    "entailment": [("a man eats", "he eats", "a"), ("a dog", "two men sing", "b"), ("sun", "it is up", "c")],
    "similarity": [("a man eats", "he eats", "a"), ("a dog", "two men sing", "b")],
    "choice": [("he fell", ["it hurt", "so"], 1), ("sun", ["a", "it is up", "men"], 3)],
}


def taught(kind: str) -> TaskModel:
    """By `--plan paper`, with a head whose weights are large."""
    made = LanguageModel(shaken_model("gpt", 0.2), Path()).finetune(ROWS[kind], task=kind, plan="paper", hold_out=0.0)
    assert made.model.task is not None
    with torch.no_grad():
        for parameter in made.model.task.parameters():
            parameter.add_(torch.randn_like(parameter))
    return made


def transformed(made: TaskModel, kind: str, texts: tuple[str, ...]) -> list[list[int]]:
    """The sequences of the paper's figure 1."""
    tokenizer = made.model.tokenizer
    start, delimiter, extract = (tokenizer.specials[name] for name in (START, DELIMITER, EXTRACT))

    def joined(*parts: str) -> list[int]:
        inner = [id for part in parts for id in (delimiter, *tokenizer.encode(part))]
        return [start, *inner[1:], extract]

    if kind == "similarity":
        return [joined(*texts), joined(*texts[::-1])]
    return [joined(texts[0], choice) for choice in texts[1:]] if kind == "choice" else [joined(*texts)]


def probabilities(made: TaskModel, kind: str, texts: tuple[str, ...]) -> np.ndarray:
    """softmax(h_l^m W_y), m the extract token: of a similarity the sum of both states, of a choice over the choices."""
    head: Any = made.model.task.head  # type: ignore[union-attr]
    weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
    states = [dense_gpt(made.model.trunk, ids).top_TD[-1] for ids in transformed(made, kind, texts)]
    if kind == "choice":
        return softmax(np.array([weight[0] @ state + bias[0] for state in states]))
    return softmax(weight @ sum(states) + bias)


@pytest.mark.parametrize("kind", ROWS)
def test_each_transformation_is_the_papers(kind: str) -> None:
    made = taught(kind)
    rows = rows_from(ROWS[kind], kind)
    for row, example in zip(rows, encode(rows, made.model).examples):
        wanted = transformed(made, kind, row.texts)
        assert [list(one.ids) for one in example.sequences] == wanted
        assert [one.extract for one in example.sequences] == [len(ids) - 1 for ids in wanted]


@pytest.mark.parametrize("kind", ROWS)
def test_labels_are_told_from_the_extract_token(kind: str) -> None:
    """P(y | x), of every row beside rows of other lengths."""
    made = taught(kind)
    asked = [row[:-1] if kind == "choice" else row[0] if len(row) == 2 else row[:2] for row in ROWS[kind]]
    for row, found in zip(rows_from(ROWS[kind], kind), made.predict_proba(asked)):
        wanted = probabilities(made, kind, row.texts)
        # Scores of at most some tens are rounded to float32 on their way out.
        close(found[: len(wanted)], wanted, terms=2, size=32.0, precision=torch.float32)
        assert not found[len(wanted) :].any(), "a choice that is not there"


@pytest.mark.parametrize("kind", ROWS)
def test_l3_is_l2_and_half_of_l1_on_the_same_rows(kind: str) -> None:
    """L2 = −Σ log P(y | x); L1 over the labelled sequences, the mean of each, as the released code has it."""
    made = taught(kind)
    task, trunk, rows = made.model.task, made.model.trunk, rows_from(ROWS[kind], kind)
    assert task is not None
    batch = task.make(encode(rows, made.model).examples)
    losses = task.eval()(trunk.eval(), batch).losses
    labels = [row.label if kind == "choice" else made.labels.index(str(row.label)) for row in rows]
    l2 = -sum(float(np.log(probabilities(made, kind, row.texts)[label])) for row, label in zip(rows, labels))
    sequences = [ids for row in rows for ids in transformed(made, kind, row.texts)]
    l1 = [float(np.mean(surprises(trunk, ids))) for ids in sequences]
    close(losses["label"].total, l2, terms=TOLD)
    close(losses["lm"].total, sum(l1), terms=TOLD)
    whole = sum(task.weights[name] * loss.total / loss.count for name, loss in losses.items())
    close(whole, l2 / len(rows) + 0.5 * sum(l1) / len(l1), terms=TOLD)
