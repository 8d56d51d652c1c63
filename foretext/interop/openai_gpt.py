"""GPT as OpenAI published it: `params_0.npy` … `params_9.npy`, one after the other and cut by `params_shapes.json`,
beside `encoder_bpe_40000.json` and `vocab_40000.bpe`. The first array is W_p, the second W_e, then twelve for each
block."""

from __future__ import annotations

import dataclasses
import math
import tokenize
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretext.errors import UserError, refuse_if
from foretext.interop.foreign import any_json
from foretext.interop.hub import Foreign, check_in, shapes_of
from foretext.systems.gpt import GPT
from foretext.text.tokenizers.published import tokenizer_from_published

SHAPES = "params_shapes.json"
MOST_SIDES, MOST_SIDE = 4, 1 << 40  # of an array
_HEAD_WIDTH = 64  # which the files do not say
_BLOCK = ("attention.qkv", "attention.out", "norm1", "up", "down", "norm2")  # a weight and a bias each


def is_openai_gpt(folder: Path) -> bool:
    return (folder / SHAPES).is_file()


def read_openai_gpt(folder: Path) -> Foreign:
    where = folder / SHAPES
    arrays = _arrays(folder, _shapes(where))
    refuse_if(
        len(arrays) < 14 or (len(arrays) - 2) % 12,
        f"{where}: names {len(arrays)} arrays, not two and twelve for each block; get the files again",
    )
    positions, tokens = arrays[:2]
    refuse_if(
        positions.ndim != 2 or tokens.ndim != 2,
        f"{where}: the first two arrays must be tables of positions and tokens; get the files again",
    )
    layers, width = (len(arrays) - 2) // 12, tokens.shape[1]
    refuse_if(
        width % _HEAD_WIDTH,
        f"{where}: a width of {width} is not a number of heads of {_HEAD_WIDTH}; get the files again",
    )
    tokenizer = tokenizer_from_published(folder)
    refuse_if(
        tokenizer.size != len(tokens),
        f"{folder}: {tokenizer.size:,} pieces, but the token table has {len(tokens):,} rows; this is another "
        "model's vocabulary: put the right one there",
    )
    model: Any = dataclasses.replace(
        GPT.sizes["paper"].model,
        vocabulary=len(tokens),
        layers=layers,
        width=width,
        heads=width // _HEAD_WIDTH,
        context=len(positions),
    )
    check_in(model, where)
    refuse_if(
        model.parameters() != sum(array.size for array in arrays),
        f"{where}: the arrays are not those of {model.describe()}; get the files again",
    )
    weights = {"positions.weight": positions, "tokens.weight": tokens}
    rest = iter(arrays[2:])
    for layer in range(layers):
        for part in _BLOCK:
            weight, bias = next(rest), next(rest)
            # Convolutions of width 1: [1, in, out].
            weights[f"blocks.{layer}.{part}.weight"] = weight[0].T if weight.ndim == 3 else weight
            weights[f"blocks.{layer}.{part}.bias"] = bias
    _check(weights, model, where)
    kept = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in weights.items()}
    return Foreign(GPT, model, tokenizer, {name: torch.from_numpy(array) for name, array in kept.items()})


def _check(weights: dict[str, np.ndarray], model: Any, where: Path) -> None:
    wanted = shapes_of(GPT, model)
    for number, (name, array) in enumerate(weights.items()):
        shape, own = list(array.shape), wanted[name]
        refuse_if(shape != own, f"{where}: array {number} ({name}) has shape {shape}, not {own}; get it again")
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32)).all()  # as it will be kept
        refuse_if(
            not finite, f"{where}: array {number} ({name}) holds numbers that are not finite; get the files again"
        )


def _shapes(path: Path) -> list[list[int]]:
    shapes = any_json(path)
    refuse_if(
        not isinstance(shapes, list)
        or not all(
            isinstance(shape, list)
            and len(shape) <= MOST_SIDES
            and all(isinstance(size, int) and 0 < size < MOST_SIDE for size in shape)
            for shape in shapes
        ),
        f"{path}: must be a list of shapes; get the file again",
    )
    return shapes


def _arrays(folder: Path, shapes: list[list[int]]) -> list[np.ndarray]:
    pieces: list[np.ndarray] = []
    while (folder / f"params_{len(pieces)}.npy").is_file():
        path = folder / f"params_{len(pieces)}.npy"
        try:
            piece = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError):
            raise UserError(f"{path}: not a whole array of numbers; get the file again") from None
        refuse_if(
            not isinstance(piece, np.ndarray) or piece.dtype.kind != "f",
            f"{path}: not one array of numbers with a fraction; get the file again",
        )
        pieces.append(piece.reshape(-1))
    whole = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    needed = sum(math.prod(shape) for shape in shapes)
    refuse_if(
        len(whole) != needed,
        f"{folder}: the {len(pieces)} files params_*.npy hold {len(whole):,} numbers, and {SHAPES} needs "
        f"{needed:,}; get them again",
    )
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(whole, ends[:-1]), shapes)]
