"""Makes `transformer_xl_reference.json`: what transformers' TransfoXLLMHeadModel gives for small random weights, for
`test_transformer_xl_transformers.py`.

Later versions of transformers cannot run it with the torch that the tests here run with (2.13.0; the one for the CPU
will do, and is small), so it lives in an environment of its own:

    python3.11 -m venv transfo-xl-env
    transfo-xl-env/bin/pip install torch==2.13.0
    transfo-xl-env/bin/pip install torch==2.13.0 transformers==4.35.2 'numpy<2'
    transfo-xl-env/bin/python tests/parity/make_transformer_xl_reference.py

Kept are weights (under our names), ids, and for each case the log-probabilities of every token over three segments in a
row, whose memory is carried on from an empty one; of some cases also the gradients of the last segment's mean loss.
Where no memory is passed transformers sees one full of zeros; the paper's code has an empty one, so that is passed.
"""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TransfoXLConfig, TransfoXLLMHeadModel
from transformers import __version__ as version

REFERENCE = Path(__file__).with_name("transformer_xl_reference.json")
SHAPE = {"vocab_size": 13, "d_model": 6, "d_embed": 6, "n_head": 2, "d_head": 3, "d_inner": 8, "n_layer": 2}
SEGMENTS = (4, 2, 5)  # tokens
ROWS = 2
CASES: dict[str, dict[str, Any]] = {
    "no memory": {"mem_len": 0},
    "memory": {"mem_len": 5, "gradients": True},
    "long memory": {"mem_len": 20},
    "clamped": {"mem_len": 6, "clamp_len": 3},
    "same length": {"mem_len": 4, "same_length": True},
    "same length, clamped": {"mem_len": 3, "same_length": True, "clamp_len": 2},
    "shared biases": {"mem_len": 5, "untie_r": False, "gradients": True},
    "adaptive": {"mem_len": 5, "cutoffs": [4, 9], "gradients": True},
    "adaptive, narrower": {"mem_len": 5, "cutoffs": [4, 9], "div_val": 2, "gradients": True},
}
USUAL = {"clamp_len": -1, "same_length": False, "untie_r": True, "cutoffs": [], "div_val": 1, "dropout": 0.0}


def numbers(tensor: Tensor) -> Any:
    """Nested lists, with as many digits as float32 has."""
    if tensor.dim():
        return [numbers(part) for part in tensor.detach()]
    return float(f"{float(tensor):.8g}")


def named(model: Any, gradients: bool = False) -> dict[str, Tensor]:
    """Its weights, or their gradients, under our names."""

    def of(weight: Tensor) -> Tensor:
        if not gradients:
            return weight
        return torch.zeros_like(weight) if weight.grad is None else weight.grad

    config, embeddings, softmax = model.config, model.transformer.word_emb, model.crit
    found: dict[str, Tensor] = {}
    if config.cutoffs:
        found["adaptive.tails"], found["adaptive.tails_bias"] = of(softmax.cluster_weight), of(softmax.cluster_bias)
        ends = [0, *config.cutoffs, config.vocab_size]
        tables = [of(layer.weight) for layer in embeddings.emb_layers]
        biases = [of(layer.bias) for layer in softmax.out_layers]
        for part, (start, end) in enumerate(itertools.pairwise(ends)):
            split = config.div_val == 1  # one table for all parts
            found[f"adaptive.tables.{part}"] = tables[0][start:end] if split else tables[part]
            found[f"adaptive.biases.{part}"] = biases[0][start:end] if split else biases[part]
            if not split:
                found[f"adaptive.projections.{part}"] = of(embeddings.emb_projs[part])
        if config.div_val > 1:
            found["adaptive.head_projection"] = of(softmax.out_projs[0])
    else:
        found["tokens.weight"], found["output_bias"] = (
            of(embeddings.emb_layers[0].weight),
            of(softmax.out_layers[0].bias),
        )
    if not config.untie_r:
        found["content"] = of(model.transformer.r_w_bias).flatten()
        found["position"] = of(model.transformer.r_r_bias).flatten()
    for number, layer in enumerate(model.transformer.layers):
        own, inner, name = layer.dec_attn, layer.pos_ff, f"blocks.{number}."
        for part, weight in zip(("query", "key", "value"), of(own.qkv_net.weight).chunk(3)):
            found[f"{name}attention.{part}.weight"] = weight
        found[f"{name}attention.distance.weight"] = of(own.r_net.weight)
        found[f"{name}attention.out.weight"] = of(own.o_net.weight)
        if config.untie_r:
            found[f"{name}attention.content"] = of(own.r_w_bias).flatten()
            found[f"{name}attention.position"] = of(own.r_r_bias).flatten()
        layers = {"norm1": own.layer_norm, "up": inner.CoreNet[0], "down": inner.CoreNet[3], "norm2": inner.layer_norm}
        for ours, theirs in layers.items():
            found[f"{name}{ours}.weight"], found[f"{name}{ours}.bias"] = of(theirs.weight), of(theirs.bias)
    return found


def measured(settings: dict[str, Any], ids: list[Tensor]) -> dict[str, Any]:
    settings = dict(settings)
    learns = settings.pop("gradients", False)
    torch.manual_seed(5)
    model = TransfoXLLMHeadModel(TransfoXLConfig(**(SHAPE | USUAL | settings))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape) + float("layer_norm.weight" in name))
    memory = [torch.zeros(0, ROWS, SHAPE["d_model"]) for _ in range(SHAPE["n_layer"])]
    logs = []
    for segment in ids:
        outcome = model(segment, mems=memory)
        memory = outcome.mems
        logs.append(outcome.prediction_scores)
    found = {"settings": USUAL | settings, "weights": named(model), "logs": logs}
    if learns:
        targets = ids[-1].roll(-1, 1)
        (-logs[-1].gather(2, targets[..., None]).mean()).backward()
        found["gradients"] = named(model, gradients=True)
    return found


def kept(value: Any) -> Any:
    if isinstance(value, Tensor):
        return numbers(value)
    if isinstance(value, dict):
        return {name: kept(part) for name, part in value.items()}
    return [kept(part) for part in value] if isinstance(value, list) else value


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(3)
    ids = [torch.randint(0, SHAPE["vocab_size"], (ROWS, length)) for length in SEGMENTS]
    cases = {name: kept(measured(settings, ids)) for name, settings in CASES.items()}
    shared = cases["memory"]["weights"]
    for case in cases.values():  # most have the same weights, which are kept once
        if case["weights"] == shared:
            del case["weights"]
    found = {"versions": {"transformers": version, "torch": torch.__version__}, "shape": SHAPE}
    found |= {"ids": [segment.tolist() for segment in ids], "weights": shared, "cases": cases}
    REFERENCE.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
