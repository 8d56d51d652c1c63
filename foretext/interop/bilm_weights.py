"""Reads ELMo's published weights in the format of bilm-tf and AllenNLP: `options.json` and an hdf5 file.

    theirs                                     ours
    char_embed [261, E]                        words.characters, after a row of zeros for no word
    CNN/W_cnn_k [1, width, E, count], b_cnn_k  words.filters.k [count, E, width]
    CNN_high_k/W_transform, W_carry, b_…       words.highways.k.transform, .gate; transposed ("carry" gates what is new)
    CNN_proj/W_proj, b_proj                    words.project, transposed; absent if there are as many filters
    RNN_d/RNN/MultiRNNCell/Cellk/LSTMCell/     forwards (d = 0), backwards (d = 1) .lstms.k
      W_0 [inputs + width, 4 · cells], B         .input, .recurrent: transposed, the gates i, j, f, o as i, f, j, o,
                                                 and 1 added to f's bias, which their code adds at run time
      W_P_0 [cells, width]                       .project, transposed

The file is not trusted. The options determine every shape; no array is created before its shape and its size in the
file have been checked against them; links and data outside the file are refused; and nothing is run.

The published folder (AllenNLP, bilm-tf) has `…options….json`, `…weights….hdf5` and optionally a vocabulary,
`…vocab….txt`, with one word per line.

The model reads words by their characters, so it can read any word and needs no vocabulary. The softmax was never
published. With a vocabulary, a new softmax over its words is drawn, which is useless until it is trained. Words are
separated by white space, since another program had split the texts that the model was trained on.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretext.config import Json
from foretext.errors import UserError, refuse_if
from foretext.interop.hub import Foreign, about_drawn, check_in, drawn
from foretext.interop.hub_tensors import read_json
from foretext.nn.recurrent.bilm import Bilm, BilmTrunkConfig
from foretext.nn.recurrent.char_cnn import CharEncoderConfig
from foretext.nn.trunk import check_tensors
from foretext.systems.elmo import ELMO
from foretext.text.tokenizers.published import read_pieces
from foretext.text.tokenizers.word_vocabulary import PUBLISHED_SPECIALS, words_of
from foretext.text.words.characters import CHARACTERS

_MOST_OPTIONS = 1_000_000  # bytes of options.json
_MOST = 1 << 31  # upper limit for any number in it
_TABLES = ("lstm", "char_cnn")
_PLAIN_FILTERS = (1, 2, 3)  # of hdf5: deflate, shuffle, checksum; others would be loaded from plug-ins
_CHUNK = 1 << 26  # bytes that hdf5 may have to decompress at once


def load_bilm(options: Path, weights: Path) -> Bilm:
    """The published model, in evaluation mode."""
    config = read_bilm_options(options)
    tensors = read_bilm_weights(weights, config)
    with torch.device("meta"):
        model = Bilm(config)
    check_tensors(tensors, model.state_dict(), str(weights))
    model.load_state_dict(tensors, assign=True)
    return model.eval()


# -- options -----------------------------------------------------------------------------------------------------------


def read_bilm_options(path: Path) -> BilmTrunkConfig:
    refuse_if(
        path.is_file() and path.stat().st_size > _MOST_OPTIONS,
        f"{path}: larger than 1 MB, too large for an options file; get the file again",
    )
    options = read_json(path)
    refuse_if(
        options.get("bidirectional") is False,
        f"{path}: 'bidirectional' is false, so the model has one direction; give one with both",
    )
    refuse_if(
        "char_cnn" not in options,
        f"{path}: no 'char_cnn': the model reads word ids, not characters; give one that reads characters",
    )
    lstm, cnn = (_field(options, name, path, lambda value: isinstance(value, dict), "an object") for name in _TABLES)
    characters = _whole(cnn, "n_characters", path)
    refuse_if(
        characters not in (CHARACTERS - 1, CHARACTERS),  # as it was trained, and as it was published
        f"{path}: 'n_characters' is {characters}; only the 261 characters of UTF-8 bytes are supported",
    )
    embedding = _field(cnn, "embedding", path, lambda value: isinstance(value, dict), "an object")
    filters = _field(cnn, "filters", path, _are_filters, "a list of [width, count]")
    words = CharEncoderConfig(
        width=_whole(lstm, "projection_dim", path),
        filter_widths=tuple(width for width, _ in filters),
        filter_counts=tuple(count for _, count in filters),
        embedding=_whole(embedding, "dim", path),
        characters=CHARACTERS,
        length=_whole(cnn, "max_characters_per_token", path),
        highways=_whole(cnn, "n_highway", path, none=0),
        activation=_field(cnn, "activation", path, lambda value: value in ("relu", "tanh"), "relu or tanh"),
    )
    config = BilmTrunkConfig(
        vocabulary=0,
        layers=_whole(lstm, "n_layers", path, none=1),
        cells=_whole(lstm, "dim", path),
        cell_clip=float(_field(lstm, "cell_clip", path, _is_bound, "a bound", none=0.0)),
        state_clip=float(_field(lstm, "proj_clip", path, _is_bound, "a bound", none=0.0)),
        residual=bool(lstm.get("use_skip_connections", False)),
        words=words,
    )
    check_in(config, path)
    return config


def _field(options: Json, name: str, path: Path, fits: Callable[[Any], bool], wanted: str, none: Any = None) -> Any:
    """The value of an option, if it `fits`; `none`: its value if it is missing."""
    value = none if options.get(name) is None else options[name]
    refuse_if(not fits(value), f"{path}: field {name!r} must be {wanted}, not {_shown(value)}; get the file again")
    return value


def _whole(options: Json, name: str, path: Path, none: int | None = None) -> int:
    return int(_field(options, name, path, _is_whole, "a whole number", none))


def _is_bound(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and _is_bound(value)


def _are_filters(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(map(_is_whole, pair)) for pair in value
    )


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


# -- weights -----------------------------------------------------------------------------------------------------------


def read_bilm_weights(path: Path, config: BilmTrunkConfig) -> dict[str, Tensor]:
    """The weights of a published file, under our names, checked against the options."""
    try:
        import h5py
    except ImportError:
        raise UserError(
            "reading ELMo's weights needs h5py, which is not installed; pip install 'foretext[elmo]'"
        ) from None
    refuse_if(not path.is_file(), f"{path}: missing; give the hdf5 file with the weights")
    size, numbers = path.stat().st_size, config.parameters()
    refuse_if(
        numbers > size,  # even compressed, a number takes at least a byte
        f"{path}: {size:,} bytes cannot hold the {numbers:,} numbers that the options ask for; the files do not "
        "belong together, or this one is incomplete",
    )
    try:
        with h5py.File(path, "r") as file:
            arrays = _renamed(_Reader(h5py, file, path), config)
            return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:  # hdf5's errors for a damaged file
        raise UserError(f"{path}: not a complete hdf5 file ({error}); get the file again") from None


class _Reader:
    """Arrays of an hdf5 file; each must be as expected."""

    def __init__(self, h5py: ModuleType, file: Any, path: Path) -> None:
        self.h5py, self.file, self.path = h5py, file, path

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        data = self._find(name)
        refuse_if(
            data.shape != shape,
            f"{self.path}: {name} has shape {_shape(data.shape)}, but the options ask for {_shape(shape)}; the files "
            "do not belong together",
        )
        refuse_if(
            data.dtype.kind != "f" or data.dtype.itemsize > 8,
            f"{self.path}: {name} holds {data.dtype}, not floating-point numbers; get the file again",
        )
        self._check_storage(name, data)
        array = data[...].astype(np.float32)
        refuse_if(not np.isfinite(array).all(), f"{self.path}: {name} holds non-finite numbers; get the file again")
        return array

    def _find(self, name: str) -> Any:
        place = self.file
        for part in name.split("/"):
            link = place.get(part, getlink=True) if isinstance(place, self.h5py.Group) else None
            refuse_if(link is None, f"{self.path}: {name} is missing; these are not weights of an ELMo model")
            refuse_if(
                not isinstance(link, self.h5py.HardLink),
                f"{self.path}: {name} is a link to another place and is not followed; get the file again",
            )
            place = place[part]
        refuse_if(not isinstance(place, self.h5py.Dataset), f"{self.path}: {name} is not an array; get the file again")
        return place

    def _check_storage(self, name: str, data: Any) -> None:
        properties = data.id.get_create_plist()
        filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
        chunk = math.prod(data.chunks or (0,)) * data.dtype.itemsize
        outside = data.external or data.is_virtual
        refuse_if(
            outside or chunk > _CHUNK or any(number not in _PLAIN_FILTERS for number in filters),
            f"{self.path}: {name} is stored in a way that is not supported; get the file again",
        )
        refuse_if(
            data.id.get_storage_size() < data.size,
            f"{self.path}: the file has only a part of {name}; get the file again",
        )


def _renamed(read: _Reader, config: BilmTrunkConfig) -> dict[str, np.ndarray]:
    words, arrays = config.words, {}
    table = read("char_embed", words.characters - 1, words.embedding)
    arrays["words.characters.weight"] = np.concatenate([np.zeros_like(table[:1]), table])
    for number, (width, count) in enumerate(words.filters):
        weight = read(f"CNN/W_cnn_{number}", 1, width, words.embedding, count)
        arrays[f"words.filters.{number}.weight"] = weight[0].transpose(2, 1, 0)
        arrays[f"words.filters.{number}.bias"] = read(f"CNN/b_cnn_{number}", count)
    size = words.features
    for number in range(words.highways):
        for theirs, ours in (("transform", "transform"), ("carry", "gate")):
            arrays[f"words.highways.{number}.{ours}.weight"] = read(f"CNN_high_{number}/W_{theirs}", size, size).T
            arrays[f"words.highways.{number}.{ours}.bias"] = read(f"CNN_high_{number}/b_{theirs}", size)
    if words.projects:
        arrays["words.project.weight"] = read("CNN_proj/W_proj", size, words.width).T
        arrays["words.project.bias"] = read("CNN_proj/b_proj", words.width)
    for direction, stack in enumerate(("forwards", "backwards")):
        for layer in range(config.layers):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            arrays |= {f"{stack}.lstms.{layer}.{name}": array for name, array in _lstm(read, config, place).items()}
    return arrays


def _lstm(read: _Reader, config: BilmTrunkConfig, place: str) -> dict[str, np.ndarray]:
    shape = config.lstm()
    both = _gates(read(f"{place}/W_0", shape.inputs + shape.width, 4 * shape.cells).T)
    bias = _gates(read(f"{place}/B", 4 * shape.cells))
    bias[shape.cells : 2 * shape.cells] += 1.0
    arrays = {
        "input.weight": both[:, : shape.inputs],
        "input.bias": bias,
        "recurrent.weight": both[:, shape.inputs :],
    }
    if shape.projects:
        arrays["project.weight"] = read(f"{place}/W_P_0", shape.cells, shape.width).T
    return arrays


def _gates(array: np.ndarray) -> np.ndarray:
    """Reorders the gates i, j, f, o along the first axis to i, f, j, o."""
    i, j, f, o = np.split(array, 4)
    return np.concatenate([i, f, j, o])


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else " × ".join(str(side) for side in shape) or "of one number"


_OPTIONS, _WEIGHTS, _VOCABULARY = "*options*.json", "*weights*.hdf5", "*vocab*.txt"


def read_published_elmo(folder: Path) -> Foreign:
    options, weights = (
        _single_file(folder, _OPTIONS, "ELMo's options"),
        _single_file(folder, _WEIGHTS, "ELMo's weights"),
    )
    tokenizer = words_of(_words(folder), lower=False, split="spaces", names=PUBLISHED_SPECIALS)
    bilm = load_bilm(options, weights)
    model = replace(bilm.config, vocabulary=tokenizer.size)
    tensors = {f"bilm.{name}": tensor for name, tensor in bilm.state_dict().items()}
    split = (
        "words are separated by spaces: separate punctuation from words first, as in the texts that the model was "
        "trained on"
    )
    notes = (split, *about_drawn(str(weights), ["softmax"], head_drawn=True))
    return Foreign(
        ELMO, model, tokenizer, tensors | drawn(ELMO, model, tokenizer, tensors), head_drawn=True, notes=notes
    )


def _single_file(folder: Path, pattern: str, what: str) -> Path:
    paths = sorted(folder.glob(pattern))
    names = ", ".join(path.name for path in paths)
    several = (
        f"several files could be {what} ({names}); leave only one"
        if paths
        else (f"no {pattern} here, which would be {what}")
    )
    refuse_if(len(paths) != 1, f"{folder}: {several}")
    return paths[0]


def _words(folder: Path) -> list[str]:
    """The words of the vocabulary, each once; empty if there is no file."""
    exists = any(folder.glob(_VOCABULARY))
    lines = read_pieces(_single_file(folder, _VOCABULARY, "the vocabulary")) if exists else []
    return list(dict.fromkeys(word for line in lines if (word := line.strip())))
