"""The trunk and the fine-tuning loss against `transformers` with the same random weights: GPT (post-norm), and GPT-2
(pre-norm), which shares the trunk."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from systems_under_test import examples, task_of, windows
from tolerance import close
from torch import Tensor, nn
from transformer_terms import forward_terms, gradient_terms

from foretext.batch import Batch
from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.transformer.transformer import Transformer
from foretext.objectives.causal import CausalObjective
from foretext.tasks.heads.supervised import SupervisedTask

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("in_float64")

SHAPES = [(61, 2, 32, 4, 24), (17, 1, 8, 1, 24), (101, 3, 48, 3, 40)]
LENGTHS = (9, 3, 14, 1, 14, 6)


def logit_terms(shape: tuple[int, ...], tokens: int) -> int:
    _, layers, width, _, _ = shape
    return forward_terms(layers, width, 4 * width, tokens)


def loss_terms(shape: tuple[int, ...], tokens: int, batch: int) -> int:
    vocabulary, layers, width, _, _ = shape
    return gradient_terms(layers, width, 4 * width, tokens, vocabulary, batch)


def reference_of(norm: str, shape: tuple[int, ...]) -> nn.Module:
    """A random reference in eval mode, all its weights (biases and norms too) far from their initial values."""
    vocabulary, layers, width, heads, context = shape
    sizes = {"vocab_size": vocabulary, "n_positions": context, "n_embd": width, "n_layer": layers, "n_head": heads}
    if norm == "post":
        model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes))
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def names_of(norm: str, layers: int) -> dict[str, str]:
    """Our name → theirs. Theirs are Conv1D: matrices inside the blocks are transposed."""
    token, position = ("tokens_embed", "positions_embed") if norm == "post" else ("wte", "wpe")
    names = {"tokens.weight": f"{token}.weight", "positions.weight": f"{position}.weight"}
    parts = {"attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj", "norm1": "ln_1", "norm2": "ln_2"}
    parts |= {"up": "mlp.c_fc", "down": "mlp.c_proj"}
    for layer in range(layers):
        for ours, theirs in parts.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{layer}.{ours}.{kind}"] = f"h.{layer}.{theirs}.{kind}"
    if norm == "pre":
        names |= {f"final_norm.{kind}": f"ln_f.{kind}" for kind in ("weight", "bias")}
    return {ours: f"transformer.{theirs}" for ours, theirs in names.items()}


def as_ours(name: str, tensor: Tensor) -> Tensor:
    return tensor.t() if name.startswith("blocks.") and tensor.dim() == 2 else tensor


def copy_of(reference: nn.Module, norm: str, shape: tuple[int, ...]) -> Transformer:
    vocabulary, layers, width, heads, context = shape
    trunk = Transformer(TransformerConfig(vocabulary, layers, width, heads, context, dropout=0.1, norm=norm))
    theirs = reference.state_dict()
    names = names_of(norm, layers)
    trunk.load_state_dict({ours: as_ours(ours, theirs[names[ours]]) for ours in trunk.state_dict()})
    return trunk.eval()


def logits_of(trunk: Transformer, batch: Batch) -> Tensor:
    return trunk(batch).top @ trunk.output_table().t()


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits(norm: str, shape: tuple[int, ...]) -> None:
    reference = reference_of(norm, shape)
    trunk = copy_of(reference, norm, shape)
    ids = torch.randint(shape[0], (3, shape[4]))
    with torch.no_grad():
        expected = reference(input_ids=ids).logits
        assert expected.std() > 0.1
        close(logits_of(trunk, Batch(ids)), expected, terms=logit_terms(shape, shape[4]))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_logits_with_padding(norm: str, side: str) -> None:
    shape = SHAPES[0]
    reference = reference_of(norm, shape)
    trunk = copy_of(reference, norm, shape)
    rows = windows(LENGTHS, shape[0])
    ids, mask = torch.full((len(rows), 20), 5), torch.zeros(len(rows), 20, dtype=torch.bool)
    for number, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(20 - len(row), 20)
        ids[number, place], mask[number, place] = torch.from_numpy(row), True
    with torch.no_grad():
        ours = logits_of(trunk, Batch(ids, mask))
        for number, row in enumerate(rows):
            alone = reference(input_ids=torch.from_numpy(row)[None]).logits[0]
            close(ours[number, mask[number]], alone, terms=logit_terms(shape, 14))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_of_the_language_model_loss(norm: str, shape: tuple[int, ...]) -> None:
    reference = reference_of(norm, shape)
    trunk = copy_of(reference, norm, shape)
    objective = CausalObjective()
    rows = windows((9, 4, 14, 14), shape[0])
    loss = objective(trunk, objective.make(rows)).losses["lm"]
    (loss.total / loss.count).backward()
    total = torch.zeros(())
    for row in rows:
        ids = torch.from_numpy(row)
        total = total + F.cross_entropy(reference(input_ids=ids[None]).logits[0, :-1], ids[1:], reduction="sum")
    expected = total / sum(len(row) - 1 for row in rows)
    assert loss.count == sum(len(row) - 1 for row in rows)
    expected.backward()
    terms = loss_terms(shape, 14, batch=loss.count)
    close(loss.total / loss.count, expected, terms=terms)
    theirs = dict(reference.named_parameters())
    names = names_of(norm, shape[1])
    wanted = {ours: as_ours(ours, theirs[name].grad) for ours, name in names.items()}
    close({ours: trunk.get_parameter(ours).grad for ours in names}, wanted, terms=terms)


# -- L3 = L2 + λ·L1 --------------------------------------------------------------------------------------------------


def literal_loss(reference: nn.Module, task: SupervisedTask, kind: str, rows: list, lm_weight: float) -> Tensor:
    """L3 as the paper writes it (L1 as the released code has it), one sequence at a time, from the reference."""
    weight, bias = task.head.weight, task.head.bias
    label_losses, language_losses = [], []
    for row in rows:
        states = []
        for sequence in row.sequences:
            ids = torch.tensor(sequence.ids)
            hidden = reference.transformer(input_ids=ids[None]).last_hidden_state[0]
            states.append(hidden[sequence.extract])
            logits = hidden @ reference.transformer.tokens_embed.weight.t()
            log_p = logits - logits.logsumexp(1, keepdim=True)
            language_losses.append(-log_p[torch.arange(len(ids) - 1), ids[1:]].sum() / (len(ids) - 1))
        if kind == "choice":
            scores = torch.stack([weight[0] @ state + bias[0] for state in states])
        elif kind == "similarity":
            scores = weight @ (states[0] + states[1]) + bias
        else:
            scores = weight @ states[0] + bias
        if kind == "regression":
            label_losses.append((scores[0] - row.label) ** 2)
        else:
            label_losses.append(scores.logsumexp(0) - scores[row.label])
    label = torch.stack(label_losses).mean()
    return label + lm_weight * torch.stack(language_losses).mean()


@pytest.mark.parametrize("kind", ["classification", "entailment", "similarity", "choice", "regression"])
@pytest.mark.parametrize("lm_weight", [0.5, 0.0])
def test_fine_tuning_loss(kind: str, lm_weight: float) -> None:
    shape = SHAPES[0]
    reference = reference_of("post", shape)
    trunk = copy_of(reference, "post", shape)
    task = task_of(kind, lm_weight, p=0.1, width=shape[2]).eval()
    with torch.no_grad():
        task.head.bias.normal_()
    rows = examples(kind, 7)
    if kind == "regression":
        rows = [replace(row, label=round(row.label * 1024) / 1024) for row in rows]  # which a batch holds in float32
    # The extract token is found by its index, not by being the last.
    early = replace(rows[0].sequences[0], extract=1)
    rows[0] = replace(rows[0], sequences=(early, *rows[0].sequences[1:]))
    if kind == "choice":
        assert len({len(row.sequences) for row in rows}) > 1
    losses = task(trunk, task.make(rows)).losses
    ours = sum(task.weights[name] * loss.total / loss.count for name, loss in losses.items())
    head_gradient, trunk_gradient = torch.autograd.grad(ours, [task.head.weight, trunk.tokens.weight])
    expected = literal_loss(reference, task, kind, rows, lm_weight)
    terms = loss_terms(shape, 20, batch=sum(len(one.ids) for row in rows for one in row.sequences))
    close(ours, expected, terms=terms)
    wanted = torch.autograd.grad(expected, [task.head.weight, reference.transformer.tokens_embed.weight])
    close([head_gradient, trunk_gradient], list(wanted), terms=terms)
