"""`foretext import` and `foretext export`: between run directories and other formats.

GPT as OpenAI published it: `params_0.npy` … `params_9.npy`, concatenated and then cut by `params_shapes.json`, beside
`encoder_bpe_40000.json` and `vocab_40000.bpe`. The first array is W_p, the second W_e, then come twelve per block.

Word vectors as files: word2vec's text format, GloVe's, and word2vec's binary format for gensim.

    word2vec   a first line `words width`, then a word and its numbers in each line
    glove      the same without the first line
    gensim     word2vec's binary format: `KeyedVectors.load_word2vec_format(file, binary=True)`

gensim's own `save` writes a pickle, which can run code when loaded, so it is not used. Words are sorted by frequency,
as these libraries expect. Numbers have nine digits, from which a float32 is restored exactly.
"""

import dataclasses
import json
import math
import tokenize
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretext.errors import UserError, counted, refuse_if
from foretext.interop.bilm_weights import read_published_elmo
from foretext.interop.hub import Foreign, check_in, export_hub, read_hub, shapes_of
from foretext.interop.hub_names import HEAD
from foretext.interop.hub_tensors import any_json
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import check_space, write_error
from foretext.runs.model import SavedModel, load_model
from foretext.runs.reading import words_of
from foretext.runs.run_config import POSITION, Budget, DataConfig, Position, PretrainConfig, RunConfig
from foretext.systems.base import System, TokenizerConfig
from foretext.systems.gpt import GPT
from foretext.text.corpus.text_files import written_aside
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.published import tokenizer_from_published
from foretext.text.tokenizers.unigram import Unigram

FORMATS = ("hf",)
VECTOR_FORMATS = ("word2vec", "glove", "gensim")
_DIGITS = 14  # bytes per number as text, at most
SHAPES = "params_shapes.json"
MOST_SIDES, MOST_SIDE = 4, 1 << 40  # limits for an array
_HEAD_WIDTH = 64  # not stored in the files
_BLOCK = ("attention.qkv", "attention.out", "norm1", "up", "down", "norm2")  # a weight and a bias each


def import_model(
    source: str | Path, out: str | Path, allow_pickle: bool = False, notes: list[str] | None = None
) -> Path:
    """Makes a run directory from a folder in one of the known layouts; no code in it is run. `notes` collects what the
    user must know."""
    folder, run = Path(source), RunDirectory(out)
    refuse_if(
        not folder.is_dir(),
        f"{folder}: no such folder; give the folder that holds config.json, GPT's params_shapes.json, or ELMo's "
        "options.json and hdf5 weights",
    )
    refuse_if(
        run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())),
        f"{run.path} is not an empty folder; choose another --out",
    )
    if (folder / SHAPES).is_file():
        foreign = read_openai_gpt(folder)
    elif any(folder.glob("*.hdf5")) and not (folder / "config.json").exists():
        foreign = read_published_elmo(folder)
    else:
        foreign = read_hub(folder, allow_pickle)
    _write(foreign, run, folder)
    if notes is not None:
        notes += foreign.notes
    return run.path


def _write(foreign: Foreign, run: RunDirectory, source: Path) -> None:
    size = _size_of(foreign.system, foreign)
    tokenizer = foreign.tokenizer
    config = PretrainConfig(
        RunConfig("pretrain", foreign.system.name, size, tokenizer=tokenizer.fingerprint()),
        foreign.model,
        tokenizer=_described(tokenizer),
        objective=foreign.system.sizes[size].objective,
        training=foreign.system.sizes[size].pretraining,
        budget=Budget(steps=1),
        data=DataConfig(imported_from=str(source), head_drawn=foreign.head_drawn),
    )
    weights = {name if name.startswith(HEAD) else f"trunk.{name}": weight for name, weight in foreign.weights.items()}
    with run.writer() as writer:
        writer.commit(
            {
                "config.toml": config.text().encode(),
                "tokenizer.json": tokenizer.to_json().encode(),
                "model.safetensors": weights,
                POSITION: (json.dumps(asdict(Position(finished=True)), indent=1) + "\n").encode(),
            }
        )


def _described(tokenizer: Tokenizer) -> TokenizerConfig:
    kind: Any = tokenizer.kind
    cleaned = tokenizer.cleaning if isinstance(tokenizer, Unigram) else tokenizer
    return TokenizerConfig(kind, tokenizer.size, lower=getattr(cleaned, "lower", TokenizerConfig.lower))


def _size_of(system: System, foreign: Foreign) -> str:
    """The named size with this shape; otherwise `paper`, whose settings suit models that others trained."""
    for name, size in system.sizes.items():
        known = dataclasses.replace(size.model, vocabulary=foreign.model.vocabulary, dropout=foreign.model.dropout)
        if known == foreign.model and size.tokenizer.kind == foreign.tokenizer.kind:
            return name
    return "paper"


def export_model(run: str | Path, out: str | Path, to: str = "hf") -> list[str]:
    """Writes a run's model for other libraries; returns notes for the user."""
    if to in VECTOR_FORMATS:
        return export_vectors(load_model(run), Path(out), to)
    refuse_if(to not in FORMATS, f"cannot export to {to!r}; choose one of {', '.join(FORMATS + VECTOR_FORMATS)}")
    return export_hub(load_model(run), Path(out))


# -- GPT as OpenAI published it ----------------------------------------------------------------------------------------


def read_openai_gpt(folder: Path) -> Foreign:
    where = folder / SHAPES
    arrays = _arrays(folder, _shapes(where))
    refuse_if(
        len(arrays) < 14 or (len(arrays) - 2) % 12,
        f"{where}: names {len(arrays)} arrays, instead of two plus twelve for each block; get the files again",
    )
    positions, tokens = arrays[:2]
    refuse_if(
        positions.ndim != 2 or tokens.ndim != 2,
        f"{where}: the first two arrays must be tables of positions and tokens; get the files again",
    )
    layers, width = (len(arrays) - 2) // 12, tokens.shape[1]
    refuse_if(
        width % _HEAD_WIDTH,
        f"{where}: a width of {width} is not a multiple of the head width {_HEAD_WIDTH}; get the files again",
    )
    tokenizer = tokenizer_from_published(folder)
    refuse_if(
        tokenizer.size != len(tokens),
        f"{folder}: {tokenizer.size:,} pieces, but the token table has {len(tokens):,} rows; the vocabulary is "
        "another model's: put the right one there",
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
        f"{where}: the arrays do not fit a model of {model.describe()}; get the files again",
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
        shape, expected = list(array.shape), wanted[name]
        refuse_if(
            shape != expected, f"{where}: array {number} ({name}) has shape {shape}, not {expected}; get it again"
        )
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32)).all()  # in the precision that is kept
        refuse_if(not finite, f"{where}: array {number} ({name}) holds non-finite numbers; get the files again")


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
            raise UserError(f"{path}: not a complete array of numbers; get the file again") from None
        refuse_if(
            not isinstance(piece, np.ndarray) or piece.dtype.kind != "f",
            f"{path}: not a single array of floating-point numbers; get the file again",
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


# -- word vectors ------------------------------------------------------------------------------------------------------


def export_vectors(model: SavedModel, out: Path, to: str) -> list[str]:
    """Writes a run's vectors to a file; returns notes for the user."""
    words, matrix = words_of(model, model.where)
    refuse_if(
        out.is_dir(), f"{out} is a folder, but vectors are one file: give --out a name such as {out / 'vectors.txt'}"
    )
    check_space(out, len(words) * (_DIGITS * matrix.shape[1] if to != "gensim" else 4 * matrix.shape[1]))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(out) as file:
            if to != "glove":
                file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
            for word, row in zip(words, matrix):
                if to == "gensim":
                    file.write(word.encode() + b" " + row.astype("<f4").tobytes() + b"\n")
                else:
                    file.write(f"{word} {' '.join(f'{number:.9g}' for number in row.tolist())}\n".encode())
    except OSError as error:
        raise write_error(out, error, 0) from None
    read = {
        "word2vec": "gensim's KeyedVectors.load_word2vec_format can read it, and --vectors here",
        "glove": "gensim's KeyedVectors.load_word2vec_format(…, no_header=True) can read it, and --vectors here",
        "gensim": "KeyedVectors.load_word2vec_format(…, binary=True) can read it (gensim's own save is a pickle)",
    }
    return [f"{counted(len(words), 'vector')} of {matrix.shape[1]} dimensions; {read[to]}"]
