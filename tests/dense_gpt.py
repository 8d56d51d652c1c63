"""GPT and GPT-2 written out in numpy, a head and a place at a time. It shares nothing with the code but the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Dense:
    top_TD: np.ndarray  # the state of every token after the last block
    attention_LHTT: np.ndarray  # what each token gives to each; 0 to those behind it


def dense_gpt(trunk: Any, ids: Sequence[int]) -> Dense:
    """h0 = U We + Wp, and blocks. GPT has a norm after each addition, GPT-2 before each part and at the end."""
    w = {name: tensor.numpy() for name, tensor in trunk.state_dict().items()}
    before, heads = trunk.config.norm == "pre", trunk.config.heads
    length, width = len(ids), w["tokens.weight"].shape[1]
    attention = np.zeros((trunk.config.layers, heads, length, length))

    def norm(x: np.ndarray, part: str, here: bool) -> np.ndarray:
        if not here:
            return x
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return centred / scale * w[f"{part}.weight"] + w[f"{part}.bias"]

    def linear(x: np.ndarray, part: str) -> np.ndarray:
        return x @ w[f"{part}.weight"].T + w[f"{part}.bias"]

    one_hot = np.eye(len(w["tokens.weight"]))[list(ids)]
    h = one_hot @ w["tokens.weight"] + w["positions.weight"][:length]
    for layer in range(trunk.config.layers):
        name = f"blocks.{layer}"
        q, k, v = np.split(linear(norm(h, f"{name}.norm1", before), f"{name}.attention.qkv"), 3, axis=-1)
        mixed = np.zeros_like(h)
        for head in range(heads):
            own = slice(head * width // heads, (head + 1) * width // heads)
            for place in range(length):
                scores = k[: place + 1, own] @ q[place, own] / np.sqrt(width // heads)
                weights = softmax(scores)
                mixed[place, own] = weights @ v[: place + 1, own]
                attention[layer, head, place, : place + 1] = weights
        h = norm(h + linear(mixed, f"{name}.attention.out"), f"{name}.norm1", not before)
        inner = linear(norm(h, f"{name}.norm2", before), f"{name}.up")
        inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        h = norm(h + linear(inner, f"{name}.down"), f"{name}.norm2", not before)
    return Dense(norm(h, "final_norm", before), attention)


def softmax(scores: np.ndarray) -> np.ndarray:
    found = np.exp(scores - scores.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def next_tokens(trunk: Any, ids: Sequence[int]) -> np.ndarray:
    """P(u) = softmax(h We^T) at every place: [T, V]."""
    return softmax(dense_gpt(trunk, ids).top_TD @ trunk.state_dict()["tokens.weight"].numpy().T)


def surprises(trunk: Any, ids: Sequence[int]) -> list[float]:
    """−log P(u_i | u_1 … u_{i−1}) of every token but the first, each read off a reading of its own."""
    return [-float(np.log(next_tokens(trunk, ids[:place])[-1, ids[place]])) for place in range(1, len(ids))]
