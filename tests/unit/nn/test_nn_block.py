"""The choices of a block against the formulas in numpy, one token and one head at a time; what each choice means."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from complaints import names
from systems_under_test import SHAPE, trunk_of
from tolerance import close, terms_of

from foretext.batch import Batch
from foretext.errors import UserError
from foretext.nn.transformer.block import TransformerConfig
from foretext.nn.transformer.queries import rotated, rotation
from foretext.nn.transformer.transformer import Transformer

THERE = terms_of(2 * (5 * 32 + 2 * 24 + 128))  # of each of two layers: norms and projections, keys, inner states
CHOICES: dict[str, dict[str, object]] = {
    "gpt": {},
    "gpt2": {"norm": "pre"},
    "rms": {"norm_kind": "rms"},
    "no bias": {"bias": False, "norm": "pre"},
    "squared relu": {"activation": "squared-relu"},
    "relu": {"activation": "relu", "inner": 40},
    "exact gelu": {"activation": "gelu-erf"},
    "swiglu": {"activation": "silu", "gated": True, "inner": 40},
    "geglu": {"gated": True},
    "rotary": {"positions": "rotary", "rotary_base": 100.0},
    "no positions": {"positions": "none"},
    "query-key norm": {"query_key_norm": True},
    "query-key norm without bias": {"query_key_norm": True, "norm_kind": "rms", "positions": "rotary"},
    "first values": {"values": "first", "layers": 3},
    "value tables": {"values": "embeddings", "layers": 3},
    "normed embeddings": {"embedding_norm": True},
    "embedding skips": {"embedding_skips": True, "layers": 3},
    "embedding skips, norm before": {"embedding_skips": True, "norm": "pre", "positions": "rotary"},
    "all": {"norm": "pre", "norm_kind": "rms", "activation": "squared-relu", "gated": True, "inner": 48, "bias": False}
    | {"positions": "rotary", "query_key_norm": True, "values": "first", "embedding_norm": True}
    | {"embedding_skips": True},
}


class Plain:
    """The trunk in numpy, from its configuration and weights."""

    def __init__(self, trunk: Transformer) -> None:
        self.config = trunk.config
        self.weights = {name: tensor.detach().numpy() for name, tensor in trunk.state_dict().items()}

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", 0.0)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        if self.config.norm_kind == "layer":
            x = x - x.mean()
        scaled = x / math.sqrt((x * x).mean() + self.config.epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights.get(f"{name}.bias", 0.0)

    def activate(self, x: np.ndarray) -> np.ndarray:
        return {
            "gelu-tanh": lambda: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            "gelu-erf": lambda: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
            "relu": lambda: np.where(x > 0, x, 0),
            "squared-relu": lambda: np.where(x > 0, x * x, 0),
            "silu": lambda: x / (1 + np.exp(-x)),
        }[self.config.activation]()

    def turned(self, x: np.ndarray, place: int) -> np.ndarray:
        """Each plane by its angle, as a product of complex numbers."""
        half = len(x) // 2
        angles = [place * self.config.rotary_base ** (-2 * i / len(x)) for i in range(half)]
        plane = (x[:half] + 1j * x[half:]) * np.exp(1j * np.array(angles))
        return np.concatenate([plane.real, plane.imag])

    def heads(self, x: np.ndarray, name: str, place: int) -> list[list[np.ndarray]]:
        """Queries, keys and values of a token, head by head."""
        parts = self.linear(x, f"{name}.qkv").reshape(3, self.config.heads, -1)
        found = [list(part) for part in parts]
        for part, norm in enumerate(("query_norm", "key_norm")):
            if self.config.query_key_norm:
                found[part] = [self.norm(head, f"{name}.{norm}") for head in found[part]]
            if self.config.positions == "rotary":
                found[part] = [self.turned(head, place) for head in found[part]]
        return found

    def attention(self, states: list[np.ndarray], ids: list[int], layer: int) -> list[np.ndarray]:
        name = f"blocks.{layer}.attention"
        made = [self.heads(x, name, place) for place, x in enumerate(states)]
        if layer == 0:
            self.first = [v for _, _, v in made]
        mixed = []
        for place, (q, _, _) in enumerate(made):
            whole = []
            for head in range(self.config.heads):
                scores = np.array([q[head] @ k[head] for _, k, _ in made[: place + 1]]) / math.sqrt(len(q[head]))
                weights = np.exp(scores - scores.max())
                values = [self.value(made[j][2][head], ids[j], j, head, layer) for j in range(place + 1)]
                whole.append(sum(w * v for w, v in zip(weights / weights.sum(), values)))
            mixed.append(self.linear(np.concatenate(whole), f"{name}.out"))
        return mixed

    def value(self, own: np.ndarray, token: int, place: int, head: int, layer: int) -> np.ndarray:
        shares = self.weights.get(f"blocks.{layer}.attention.shares")
        if shares is None:
            return own
        other = self.first[place][head]
        if self.config.values == "embeddings":
            other = self.weights[f"value_tables.{layer}.weight"][token].reshape(self.config.heads, -1)[head]
        return shares[0] * own + shares[1] * other

    def feed_forward(self, x: np.ndarray, name: str) -> np.ndarray:
        inner = self.linear(x, f"{name}.up")
        gate = self.linear(x, f"{name}.gate") if self.config.gated else inner
        return self.linear(self.activate(gate) * (inner if self.config.gated else 1.0), f"{name}.down")

    def __call__(self, ids: list[int]) -> np.ndarray:
        states = [self.weights["tokens.weight"][token] for token in ids]
        if self.config.positions == "learned":
            states = [x + self.weights["positions.weight"][place] for place, x in enumerate(states)]
        if self.config.embedding_norm:
            states = [x / math.sqrt((x * x).mean() + self.config.epsilon) for x in states]
        pre, embeddings = self.config.norm == "pre", states
        for layer in range(self.config.layers):
            name = f"blocks.{layer}"
            if self.config.embedding_skips:
                skip = self.weights[f"{name}.skip"]
                states = [skip[0] * x + skip[1] * below for x, below in zip(states, embeddings)]
            read = [self.norm(x, f"{name}.norm1") for x in states] if pre else states
            states = [x + y for x, y in zip(states, self.attention(read, ids, layer))]
            if pre:
                states = [x + self.feed_forward(self.norm(x, f"{name}.norm2"), name) for x in states]
            else:
                states = [self.norm(x, f"{name}.norm1") for x in states]
                states = [self.norm(x + self.feed_forward(x, name), f"{name}.norm2") for x in states]
        return np.stack([self.norm(x, "final_norm") if pre else x for x in states])


@pytest.mark.parametrize("choice", CHOICES)
def test_the_trunk_is_the_formulas(choice: str) -> None:
    trunk = trunk_of("gpt", **CHOICES[choice])
    ids = [5, 60, 3, 3, 17, 0, 41]
    terms = THERE * trunk.config.layers
    close(trunk(Batch(torch.tensor([ids]))).top[0], Plain(trunk)(ids), terms=terms)
    state = trunk.new_state(1)
    for place, token in enumerate(ids):
        read = trunk.eval()(Batch(torch.tensor([[token]])), state)
        close(read.top[0, 0], Plain(trunk)(ids)[place], terms=terms, what=f"place {place} from the cache")
        state = read.state


@pytest.mark.parametrize("choice", ["rotary", "query-key norm", "all", "value tables", "embedding skips"])
def test_attention_weights_are_those_of_the_pass(choice: str) -> None:
    """Mixed by them, a layer's values are what its output projection reads."""
    trunk = trunk_of("gpt", **CHOICES[choice]).eval()
    ids = torch.tensor([5, 60, 3, 3, 17, 0, 41])
    weights_LHTT = trunk.attention_weights(ids)
    close(weights_LHTT.sum(-1), torch.ones(weights_LHTT.shape[:-1]), terms=7)
    assert not bool(weights_LHTT.triu(1).any())
    read: list[torch.Tensor] = []
    block = trunk.blocks[-1].attention
    block.out.register_forward_hook(lambda module, given, made: read.append(given[0]))
    values: list[torch.Tensor] = []
    project = block._project
    block._project = lambda x, side: values.append(project(x, side)[..., 2, :, :]) or project(x, side)
    trunk(Batch(ids[None]), trunk.new_state(1))
    mixed = torch.einsum("hts,bshk->bthk", weights_LHTT[-1], values[0])
    close(mixed.flatten(2), read[0], terms=THERE)


def test_rotary_positions_tell_distances_alone() -> None:
    trunk = trunk_of("gpt", positions="rotary")
    ids = torch.tensor([[5, 60, 3, 3, 17, 0, 41]])
    places = torch.arange(7)[None]
    usual = trunk(Batch(ids)).top
    close(trunk(Batch(ids, positions_BT=places + 9)).top, usual, terms=THERE)
    assert not torch.allclose(trunk(Batch(ids, positions_BT=2 * places)).top, usual, atol=1e-3)
    assert not torch.allclose(trunk_of("gpt", positions="none")(Batch(ids)).top, usual, atol=1e-3)


def test_turning_changes_no_length() -> None:
    x = torch.randn(5, 3, 8)
    turned = rotated(x, rotation(torch.tensor([0, 1, 7, 100, 9999]), 8, 10000.0, x.dtype))
    close(turned.norm(dim=-1), x.norm(dim=-1), terms=8)
    assert torch.equal(turned[0], x[0]) and not torch.allclose(turned[1:], x[1:], atol=1e-3)


def test_values_begin_as_halves_of_both() -> None:
    trunk = Transformer(replace(SHAPE, values="first", layers=3))
    assert [block.attention.shares is None for block in trunk.blocks] == [True, False, False]
    assert trunk.blocks[1].attention.shares.tolist() == [0.5, 0.5]
    tables = Transformer(replace(SHAPE, values="embeddings", layers=4)).value_tables
    assert list(tables) == ["1", "3"], "every second block, the last among them"


@pytest.mark.parametrize(
    "changes, key",
    [
        ({"inner": -1}, "model.inner"),
        ({"positions": "rotary", "width": 15, "heads": 5}, "model.positions=rotary"),
        ({"rotary_base": 0.0}, "model.rotary_base"),
        ({"rotary_base": math.nan}, "model.rotary_base"),
    ],
    ids=str,
)
def test_shapes_that_cannot_be(changes: dict[str, object], key: str) -> None:
    with pytest.raises(UserError) as raised:
        replace(SHAPE, **changes).check()
    names(str(raised.value), key)
    TransformerConfig(7, 2, 15, 5, 9).check()  # learned positions need no pairs
