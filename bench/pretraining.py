"""Pre-training tokens/s: ours against a plain `transformers` GPT-2 loop, and against bare matrix products.

    python -m bench.pretraining [--layers 4 --width 256 --heads 4 --context 256 --vocabulary 8000 --batch 16]

Ours is a step of the product's loop (batch, forward, backward, clipping, AdamW); the plain loop (`bench.models`) has
`GPT2LMHeadModel` with `labels=input_ids`. Both see batches of random ids (no data is needed); a token is a position of
the input. Three lines: without dropout (target 1.0); dropout .1 at all the paper's places, embeddings, attention
weights and residuals, on both sides (target 1.5); and, a deviation, everywhere but on the attention weights.

The matrix-product line is (time of the bare products of one step) / (time of our whole step without dropout), target
.80. Counted, as torch.mm and torch.bmm into outputs that exist already: for each block the projections qkv, out, up
and down, and for the logits the tied output layer, each forward, gradient of the input and gradient of the weight (the
faster way round, with the narrow side first);
and for each block's attention QKᵀ and PV forward and their four products backward, as full squares [T, T]. Not counted:
anything that is no matrix product (norms, GELU, softmax, losses, biases, embeddings, optimiser, clipping), nor what
the fused attention computes a second time in its backward pass. Causal attention needs little over half of the
squares, so a second figure counts the attention products by half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import torch
from transformers import GPT2LMHeadModel

from bench.common import Turns, alternate, medians, print_head, ratio_cell, repeat, table
from bench.models import RATE, Asked, Line, PlainLoop, Specification, asked_for, compare, run_ours


def windows_of(spec: Specification) -> np.ndarray:
    size = (spec.rows, spec.shape.context + 1)
    return np.random.default_rng(0).integers(0, spec.shape.vocabulary, size)


def ours(spec: Specification, turns: Turns) -> None:
    run_ours("gpt", spec, list(windows_of(spec)), turns)


def plain(spec: Specification, turns: Turns) -> None:
    batches = cycle(torch.from_numpy(windows_of(spec)[:, :-1].copy()).split(spec.batch))
    config = spec.shape.gpt2(spec.dropout, spec.in_attention, spec.attention)
    loop = PlainLoop(GPT2LMHeadModel, config, RATE)

    def step() -> None:
        ids = next(batches)
        loop.step({"input_ids": ids, "labels": ids})

    repeat(turns, step)


Product = Callable[[], Any]


def layer_products(rows: int, inputs: int, outputs: int) -> list[Product]:
    """y = x Wᵀ, dx = dy W, dW = dyᵀ x or its transpose xᵀ dy."""
    x, y, weight = torch.randn(rows, inputs), torch.randn(rows, outputs), torch.randn(outputs, inputs)
    to_y, to_x = torch.empty_like(y), torch.empty_like(x)
    narrow, wide = (x, y) if inputs < outputs else (y, x)
    to_weight = torch.empty(narrow.shape[1], wide.shape[1])
    return [
        lambda: torch.mm(x, weight.t(), out=to_y),
        lambda: torch.mm(y, weight, out=to_x),
        lambda: torch.mm(narrow.t(), wide, out=to_weight),
    ]


def attention_products(batch: int, length: int, width: int) -> list[Product]:
    """S = Q Kᵀ, O = P V; dP = dO Vᵀ, dV = Pᵀ dO, dQ = dS K, dK = dSᵀ Q."""
    q, k, v, o = (torch.randn(batch, length, width) for _ in range(4))
    p = torch.rand(batch, length, length)
    square, flat = torch.empty_like(p), torch.empty_like(q)
    return [
        lambda: torch.bmm(q, k.transpose(1, 2), out=square),
        lambda: torch.bmm(p, v, out=flat),
        lambda: torch.bmm(o, v.transpose(1, 2), out=square),
        lambda: torch.bmm(p.transpose(1, 2), o, out=flat),
        lambda: torch.bmm(p, k, out=flat),
        lambda: torch.bmm(p.transpose(1, 2), q, out=flat),
    ]


def linear(spec: Specification, turns: Turns) -> None:
    shape = spec.shape
    sizes = [(1, 3), (1, 1), (1, 4), (4, 1)]  # qkv, out, up, down, in widths
    block = [p for i, o in sizes for p in layer_products(spec.tokens, i * shape.width, o * shape.width)]
    run_products(block * shape.layers + layer_products(spec.tokens, shape.width, shape.vocabulary), turns)


def attention(spec: Specification, turns: Turns) -> None:
    shape = spec.shape
    block = attention_products(spec.batch * shape.heads, shape.context, shape.width // shape.heads)
    run_products(block * shape.layers, turns)


def run_products(products: list[Product], turns: Turns) -> None:
    def once() -> None:
        for product in products:
            product()

    with torch.no_grad():
        repeat(turns, once)


def linear_operations(spec: Specification) -> int:
    shape = spec.shape
    weights = shape.layers * 12 * shape.width**2 + shape.width * shape.vocabulary
    return 3 * 2 * spec.tokens * weights


def attention_operations(spec: Specification) -> int:
    return 6 * 2 * spec.shape.layers * spec.tokens * spec.shape.context * spec.shape.width


def lines_of(spec: Specification) -> list[Line]:
    return [
        Line("without dropout", spec, 1.0),
        Line("dropout .1 everywhere", replace(spec, dropout=0.1), 1.5),
        Line("dropout .1, not in attention (deviation)", replace(spec, dropout=0.1, in_attention=False), None),
    ]


def against_products(spec: Specification, asked: Asked) -> None:
    sides = {"ours": (ours, spec), "linear": (linear, spec), "attention": (attention, spec)}
    turns = alternate(sides, asked.rounds, asked.steps)
    found = {name: seconds / asked.steps for name, seconds in medians(turns).items()}
    flat, squares = linear_operations(spec), attention_operations(spec)
    full, half = found["linear"] + found["attention"], found["linear"] + found["attention"] / 2

    def row(name: str, seconds: float, operations: float, ratio: str = "", verdict: str = "") -> list[str]:
        return [name, f"{1e3 * seconds:.1f}", f"{operations / seconds / 1e9:.0f}", ratio, verdict]

    rows = [
        row("linear layers and logits, bare", found["linear"], flat),
        row("attention products, bare, full squares", found["attention"], squares),
        row("all bare products / our step", full, flat + squares, *ratio_cell(full / found["ours"], 0.80)),
        row("with attention by half / our step", half, flat + squares / 2, *ratio_cell(half / found["ours"], 0.80)),
        row("our whole step, without dropout", found["ours"], flat + squares),
    ]
    print(table(["of one step", "ms", "GFLOP/s", "ratio", "target"], rows) + "\n", flush=True)


def main() -> None:
    asked = asked_for(__doc__, "GPT-2")
    print_head("Pre-training", ["torch", "transformers"], asked.quick)
    for spec in asked.specifications:
        norm = spec.shape.ours("gpt", 0.0).norm
        compare(ours, plain, "GPT-2", lines_of(spec), asked, f"ours {norm}-norm")
        against_products(spec, asked)


if __name__ == "__main__":
    main()
