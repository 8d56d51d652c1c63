"""The trunk with the choices of later decoders against `transformers` with the same random weights: Llama (RMSNorm,
rotary positions, SwiGLU, no bias) and Qwen3, which norms queries and keys too.

Their angles are computed in float32 whatever the model's precision, so the two agree to 1e-5 and not to all digits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foretext.batch import Batch
from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.transformer.transformer import Transformer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("in_float64")

OFF = 1e-5
SHAPES = [(61, 2, 32, 4, 24, 88, 10000.0), (17, 1, 8, 1, 24, 5, 500.0), (101, 3, 48, 3, 40, 128, 1e6)]
PARTS = {"attention.out": "self_attn.o_proj", "norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
PARTS |= {"up": "mlp.up_proj", "gate": "mlp.gate_proj", "down": "mlp.down_proj"}
PARTS |= {"attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm"}


def reference_of(name: str, shape: tuple[float, ...]) -> nn.Module:
    """A random reference in eval mode, all its weights far from their initial values."""
    vocabulary, layers, width, heads, context, inner, base = shape
    sizes = {"vocab_size": vocabulary, "num_hidden_layers": layers, "hidden_size": width, "head_dim": width // heads}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": heads, "intermediate_size": inner}
    sizes |= {"max_position_embeddings": context, "rms_norm_eps": 1e-6, "rope_theta": base}
    config = getattr(transformers, f"{name}Config")(**sizes)
    config.rope_parameters = {"rope_type": "default", "rope_theta": base}
    model = getattr(transformers, f"{name}Model")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def copy_of(reference: nn.Module, name: str, shape: tuple[float, ...]) -> Transformer:
    vocabulary, layers, width, heads, context, inner, base = shape
    config = TransformerConfig(
        *(int(number) for number in (vocabulary, layers, width, heads, context)),
        norm="pre",
        epsilon=1e-6,
        norm_kind="rms",
        activation="silu",
        gated=True,
        inner=int(inner),
        bias=False,
        positions="rotary",
        rotary_base=base,
        query_key_norm=name == "Qwen3",
    )
    config.check()
    trunk, theirs = Transformer(config), reference.state_dict()
    found = {"tokens.weight": theirs["embed_tokens.weight"], "final_norm.weight": theirs["norm.weight"]}
    for layer in range(config.layers):
        for ours, part in PARTS.items():
            if f"layers.{layer}.{part}.weight" in theirs:
                found[f"blocks.{layer}.{ours}.weight"] = theirs[f"layers.{layer}.{part}.weight"]
        split = [theirs[f"layers.{layer}.self_attn.{part}_proj.weight"] for part in "qkv"]
        found[f"blocks.{layer}.attention.qkv.weight"] = torch.cat(split)
    assert sum(tensor.numel() for tensor in found.values()) == sum(p.numel() for p in reference.parameters())
    trunk.load_state_dict(found)
    return trunk.eval()


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape and float(expected.std()) > 0.05
    assert float((found - expected).abs().max()) < OFF


@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_states(name: str, shape: tuple[float, ...]) -> None:
    reference = reference_of(name, shape)
    trunk = copy_of(reference, name, shape)
    ids = torch.randint(int(shape[0]), (3, int(shape[4])))
    with torch.no_grad():
        expected = reference(input_ids=ids, output_hidden_states=True)
        found = trunk(Batch(ids), keep_layers=True)
        assert_near(found.top, expected.last_hidden_state)
        for ours, theirs in zip(found.layers[:-1], expected.hidden_states[:-1], strict=True):
            assert_near(ours, theirs)
        assert not torch.allclose(trunk(Batch(ids, positions_BT=torch.zeros_like(ids))).top, found.top, atol=1e-3)


@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_from_a_cache_behind_padding(name: str) -> None:
    """Rows of unequal length, padded on the left, and then a token at a time: as each row alone."""
    shape = SHAPES[0]
    reference = reference_of(name, shape)
    trunk = copy_of(reference, name, shape)
    rows = [torch.randint(61, (length,)) for length in (9, 5, 14)]
    ids, mask = torch.zeros(3, 10, dtype=torch.long), torch.zeros(3, 10, dtype=torch.bool)
    firsts = [row[: len(row) - 4] for row in rows]
    for number, first in enumerate(firsts):
        ids[number, 10 - len(first) :], mask[number, 10 - len(first) :] = first, True
    with torch.no_grad():
        alone = [reference(input_ids=row[None]).last_hidden_state[0] for row in rows]
        read = trunk(Batch(ids, mask), trunk.new_state(3))
        for number, first in enumerate(firsts):
            assert_near(read.top[number, 10 - len(first) :], alone[number][: len(first)])
            assert_near(trunk(Batch(ids, mask)).top[number][mask[number]], alone[number][: len(first)])
        for step in range(4):
            read = trunk(Batch(torch.stack([row[len(row) - 4 + step] for row in rows])[:, None]), read.state)
            assert_near(read.top[:, 0], torch.stack([states[len(states) - 4 + step] for states in alone]))


@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_gradients(name: str) -> None:
    shape = SHAPES[0]
    reference = reference_of(name, shape)
    trunk = copy_of(reference, name, shape)
    ids = torch.randint(61, (2, 20))
    weights = torch.randn(2, 20, 32)
    (reference(input_ids=ids).last_hidden_state * weights).sum().backward()
    (trunk(Batch(ids)).top * weights).sum().backward()
    theirs = dict(reference.named_parameters())
    pairs = [("tokens", "embed_tokens"), ("final_norm", "norm")]
    pairs += [(f"blocks.1.{ours}", f"layers.1.{part}") for ours, part in PARTS.items()]
    ours = dict(trunk.named_parameters())
    for mine, other in pairs:
        if f"{mine}.weight" in ours:
            expected = theirs[f"{other}.weight"].grad
            found = ours[f"{mine}.weight"].grad
            assert float((found - expected).abs().max()) < OFF * float(expected.abs().max()), mine
