"""Transformer-XL against transformers' TransfoXLLMHeadModel, with its weights and numbers
(`make_transformer_xl_reference.py` says how they came). Theirs are float32, ours are computed in float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tolerance import close, terms_of
from transformer_terms import forward_terms, gradient_terms

from foretext.batch import Batch
from foretext.nn.relative.transformer_xl import TransformerXL, TransformerXLConfig

pytestmark = pytest.mark.usefixtures("in_float64")

REFERENCE = json.loads(Path(__file__).with_name("transformer_xl_reference.json").read_text())
SAME = [name for name, case in REFERENCE["cases"].items() if case["settings"]["same_length"]]
LEARNS = [name for name, case in REFERENCE["cases"].items() if "gradients" in case]
# Two layers, six wide, eight inside, eleven tokens at most; a softmax of thirteen; 2 × 5 tokens are learned from.
LOGS = terms_of(forward_terms(2, 6, 8, 11), 13)
GRADIENTS = gradient_terms(2, 6, 8, 11, 13, 10)


def stored(found: Any, expected: Any, terms: int = LOGS) -> None:
    """As the file has it, whose numbers came out of float32."""
    close(found, expected, terms=terms, precision=torch.float32)


def model_of(case: dict[str, Any]) -> TransformerXL:
    """Their weights in ours, every one of them. What they see in all cases is what ours sees in training, but for
    `same_length`, which is how ours evaluates: each token sees itself and one less than they count."""
    shape, settings = REFERENCE["shape"], case["settings"]
    same = settings["same_length"]
    config = TransformerXLConfig(
        shape["vocab_size"],
        layers=shape["n_layer"],
        width=shape["d_model"],
        heads=shape["n_head"],
        inner=shape["d_inner"],
        memory=settings["mem_len"],
        evaluation_memory=settings["mem_len"] - 1 if same else 0,
        clamp=max(0, settings["clamp_len"]),
        dropout=0.0,
        untied=settings["untie_r"],
        cutoffs=tuple(settings["cutoffs"]),
        divisor=settings["div_val"],
    )
    config.check()
    trunk = TransformerXL(config)
    weights = case.get("weights", REFERENCE["weights"])
    trunk.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    assert config.parameters() == sum(parameter.numel() for parameter in trunk.parameters())
    return trunk.train(not same)


@pytest.mark.parametrize("name", REFERENCE["cases"])
def test_three_segments_in_a_row(name: str) -> None:
    case = REFERENCE["cases"][name]
    trunk = model_of(case)
    state = trunk.new_state(2)
    for ids, expected in zip(REFERENCE["ids"], case["logs"], strict=True):
        hidden = trunk(Batch(torch.tensor(ids)), state)
        state = hidden.state
        top, theirs = hidden.top.flatten(0, 1), torch.tensor(expected).flatten(0, 1)
        stored(torch.log_softmax(trunk.output_layer().logits(top), -1), theirs)
        targets = torch.tensor(ids).roll(-1, 1).flatten()
        losses, best = trunk.output_layer().token_losses(top, targets)
        stored(losses, -theirs.gather(1, targets[:, None]).squeeze(1))
        assert torch.equal(best, theirs.argmax(1))
        close(trunk.output_layer().loss(top, targets), losses.sum(), terms=terms_of(6, 13, len(targets)))


@pytest.mark.parametrize("name", SAME)
def test_in_evaluation_pieces_do_not_matter(name: str) -> None:
    """Theirs in three segments, ours at once, and one token at a time."""
    case = REFERENCE["cases"][name]
    trunk = model_of(case)
    ids = torch.cat([torch.tensor(ids) for ids in REFERENCE["ids"]], dim=1)
    expected = torch.cat([torch.tensor(logs) for logs in case["logs"]], dim=1)
    for pieces in ([ids], ids.split(1, dim=1)):
        state, found = trunk.new_state(2), []
        for piece in pieces:
            hidden = trunk(Batch(piece), state)
            state = hidden.state
            found.append(
                torch.log_softmax(trunk.output_layer().logits(hidden.top.flatten(0, 1)), -1).unflatten(0, (2, -1))
            )
        stored(torch.cat(found, dim=1), expected)


@pytest.mark.parametrize("name", LEARNS)
def test_gradients_of_the_last_segment(name: str) -> None:
    case = REFERENCE["cases"][name]
    trunk = model_of(case)
    state = trunk.new_state(2)
    for ids in REFERENCE["ids"]:
        before = state
        hidden = trunk(Batch(torch.tensor(ids)), before)
        state = hidden.state
    targets = torch.tensor(REFERENCE["ids"][-1]).roll(-1, 1).flatten()
    (trunk.output_layer().loss(hidden.top.flatten(0, 1), targets) / len(targets)).backward()
    ours = {name: parameter.grad for name, parameter in trunk.named_parameters()}
    stored(ours, {name: torch.tensor(expected) for name, expected in case["gradients"].items()}, GRADIENTS)
