"""ELMo's published weights, as bilm-tf and AllenNLP have them: `options.json` and an hdf5 file.

    theirs                                     ours
    char_embed [261, E]                        words.characters, after a row of zeros for no word
    CNN/W_cnn_k [1, width, E, count], b_cnn_k  words.filters.k [count, E, width]
    CNN_high_k/W_transform, W_carry, b_…       words.highways.k.transform, .gate; transposed ("carry" gates what is new)
    CNN_proj/W_proj, b_proj                    words.project, transposed; absent where the filters are as many as it
    RNN_d/RNN/MultiRNNCell/Cellk/LSTMCell/     forwards (d = 0), backwards (d = 1) .lstms.k
      W_0 [inputs + width, 4 · cells], B         .input, .recurrent: transposed, the gates i, j, f, o as i, f, j, o,
                                                 and 1 added to f's bias, which theirs adds whenever it runs
      W_P_0 [cells, width]                       .project, transposed

A file is believed in nothing: the options say every shape, no array is made before its shape and what it takes of the
file have been compared with them, links and data that lie outside of the file are refused, and nothing is run.

ELMo as it was published (AllenNLP, bilm-tf): a folder with `…options….json`, `…weights….hdf5` and perhaps a
vocabulary, `…vocab….txt`, a word a line.

The weights read words by their characters, so any word can be read and no vocabulary is needed. The softmax was never
published: one over the words of the vocabulary, if there is one, is drawn, and knows nothing until it is trained. Words
are what stands between white space, for the texts that the model has learned from were split by another program.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
_MOST = 1 << 31  # of any number in it
_TABLES = ("lstm", "char_cnn")
_PLAIN_FILTERS = (1, 2, 3)  # of hdf5: deflate, shuffle, checksum; others are loaded from plug-ins
_CHUNK = 1 << 26  # bytes that hdf5 may have to unpack at a time


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
        f"{path}: larger than 1 MB, which no options are; get the file again",
    )
    options = read_json(path)
    refuse_if(
        options.get("bidirectional") is False,
        f"{path}: 'bidirectional' is false, a model of one direction; give one with both",
    )
    refuse_if(
        "char_cnn" not in options,
        f"{path}: no 'char_cnn': it reads word ids, not characters; give a model that reads characters",
    )
    lstm, cnn = (_field(options, name, path, lambda said: isinstance(said, dict), "an object") for name in _TABLES)
    characters = _whole(cnn, "n_characters", path)
    refuse_if(
        characters not in (CHARACTERS - 1, CHARACTERS),  # as it was trained, and as it was published
        f"{path}: 'n_characters' is {characters}; only the 261 characters of UTF-8 bytes are known here",
    )
    embedding = _field(cnn, "embedding", path, lambda said: isinstance(said, dict), "an object")
    filters = _field(cnn, "filters", path, _are_filters, "a list of [width, count]")
    words = CharEncoderConfig(
        width=_whole(lstm, "projection_dim", path),
        filter_widths=tuple(width for width, _ in filters),
        filter_counts=tuple(count for _, count in filters),
        embedding=_whole(embedding, "dim", path),
        characters=CHARACTERS,
        length=_whole(cnn, "max_characters_per_token", path),
        highways=_whole(cnn, "n_highway", path, none=0),
        activation=_field(cnn, "activation", path, lambda said: said in ("relu", "tanh"), "relu or tanh"),
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


def _field(
    options: dict[str, Any], name: str, path: Path, fits: Callable[[Any], bool], wanted: str, none: Any = None
) -> Any:
    """What the options say, if it `fits`; `none`: what it is where they say nothing."""
    said = none if options.get(name) is None else options[name]
    refuse_if(not fits(said), f"{path}: field {name!r} must be {wanted}, not {_shown(said)}; get the file again")
    return said


def _whole(options: dict[str, Any], name: str, path: Path, none: int | None = None) -> int:
    return int(_field(options, name, path, _is_whole, "a whole number", none))


def _is_bound(said: Any) -> bool:
    return isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said < _MOST


def _is_whole(said: Any) -> bool:
    return isinstance(said, int) and _is_bound(said)


def _are_filters(said: Any) -> bool:
    return isinstance(said, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(map(_is_whole, pair)) for pair in said
    )


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


# -- weights -----------------------------------------------------------------------------------------------------------


def read_bilm_weights(path: Path, config: BilmTrunkConfig) -> dict[str, Tensor]:
    """The weights of a published file by our names, checked against the options."""
    try:
        import h5py
    except ImportError:
        raise UserError(
            "reading ELMo's weights needs h5py, which is not installed; pip install 'foretext[elmo]'"
        ) from None
    refuse_if(not path.is_file(), f"{path}: missing; give the hdf5 file with the weights")
    size, numbers = path.stat().st_size, config.parameters()
    refuse_if(
        numbers > size,  # even packed, a number takes a byte
        f"{path}: {size:,} bytes cannot hold the {numbers:,} numbers that the options ask for; the two do not belong "
        "together, or the file is not whole",
    )
    try:
        with h5py.File(path, "r") as file:
            found = _renamed(_Reader(h5py, file, path), config)
            return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:  # hdf5's ways to meet a damaged file
        raise UserError(f"{path}: not a whole hdf5 file ({error}); get the file again") from None


class _Reader:
    """Arrays of an hdf5 file, each only if it is what it is expected to be."""

    def __init__(self, h5py: ModuleType, file: Any, path: Path) -> None:
        self.h5py, self.file, self.path = h5py, file, path

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        data = self._find(name)
        refuse_if(
            data.shape != shape,
            f"{self.path}: {name} has shape {_shape(data.shape)}, and the options ask for {_shape(shape)}; the two "
            "do not belong together",
        )
        refuse_if(
            data.dtype.kind != "f" or data.dtype.itemsize > 8,
            f"{self.path}: {name} holds {data.dtype}, not numbers with a fraction; get the file again",
        )
        self._check_storage(name, data)
        array = data[...].astype(np.float32)
        refuse_if(
            not np.isfinite(array).all(), f"{self.path}: {name} holds numbers that are not finite; get the file again"
        )
        return array

    def _find(self, name: str) -> Any:
        place = self.file
        for part in name.split("/"):
            link = place.get(part, getlink=True) if isinstance(place, self.h5py.Group) else None
            refuse_if(link is None, f"{self.path}: {name} is missing; these are not weights of such a model")
            refuse_if(
                not isinstance(link, self.h5py.HardLink),
                f"{self.path}: {name} is a link to somewhere else and is not followed; get the file again",
            )
            place = place[part]
        refuse_if(not isinstance(place, self.h5py.Dataset), f"{self.path}: {name} is not an array; get the file again")
        return place

    def _check_storage(self, name: str, data: Any) -> None:
        made = data.id.get_create_plist()
        filters = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
        chunk = math.prod(data.chunks or (0,)) * data.dtype.itemsize
        outside = data.external or data.is_virtual
        refuse_if(
            outside or chunk > _CHUNK or any(number not in _PLAIN_FILTERS for number in filters),
            f"{self.path}: {name} is kept in a way that is not followed here; get the file again",
        )
        refuse_if(
            data.id.get_storage_size() < data.size,
            f"{self.path}: {name} has less than its numbers in the file; get the file again",
        )


def _renamed(read: _Reader, config: BilmTrunkConfig) -> dict[str, np.ndarray]:
    words, found = config.words, {}
    table = read("char_embed", words.characters - 1, words.embedding)
    found["words.characters.weight"] = np.concatenate([np.zeros_like(table[:1]), table])
    for number, (width, count) in enumerate(words.filters):
        weight = read(f"CNN/W_cnn_{number}", 1, width, words.embedding, count)
        found[f"words.filters.{number}.weight"] = weight[0].transpose(2, 1, 0)
        found[f"words.filters.{number}.bias"] = read(f"CNN/b_cnn_{number}", count)
    size = words.features
    for number in range(words.highways):
        for theirs, ours in (("transform", "transform"), ("carry", "gate")):
            found[f"words.highways.{number}.{ours}.weight"] = read(f"CNN_high_{number}/W_{theirs}", size, size).T
            found[f"words.highways.{number}.{ours}.bias"] = read(f"CNN_high_{number}/b_{theirs}", size)
    if words.projects:
        found["words.project.weight"] = read("CNN_proj/W_proj", size, words.width).T
        found["words.project.bias"] = read("CNN_proj/b_proj", words.width)
    for direction, stack in enumerate(("forwards", "backwards")):
        for layer in range(config.layers):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            found |= {f"{stack}.lstms.{layer}.{name}": array for name, array in _lstm(read, config, place).items()}
    return found


def _lstm(read: _Reader, config: BilmTrunkConfig, place: str) -> dict[str, np.ndarray]:
    shape = config.lstm()
    both = _gates(read(f"{place}/W_0", shape.inputs + shape.width, 4 * shape.cells).T)
    bias = _gates(read(f"{place}/B", 4 * shape.cells))
    bias[shape.cells : 2 * shape.cells] += 1.0
    found = {
        "input.weight": both[:, : shape.inputs],
        "input.bias": bias,
        "recurrent.weight": both[:, shape.inputs :],
    }
    if shape.projects:
        found["project.weight"] = read(f"{place}/W_P_0", shape.cells, shape.width).T
    return found


def _gates(array: np.ndarray) -> np.ndarray:
    """The gates i, j, f, o along the first axis as i, f, j, o."""
    i, j, f, o = np.split(array, 4)
    return np.concatenate([i, f, j, o])


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else " × ".join(str(side) for side in shape) or "of one number"


_OPTIONS, _WEIGHTS, _VOCABULARY = "*options*.json", "*weights*.hdf5", "*vocab*.txt"


def read_published_elmo(folder: Path) -> Foreign:
    options, weights = _one(folder, _OPTIONS, "ELMo's options"), _one(folder, _WEIGHTS, "ELMo's weights")
    tokenizer = words_of(_words(folder), lower=False, split="spaces", names=PUBLISHED_SPECIALS)
    bilm = load_bilm(options, weights)
    model = replace(bilm.config, vocabulary=tokenizer.size)
    found = {f"bilm.{name}": tensor for name, tensor in bilm.state_dict().items()}
    split = (
        "words are what stands between spaces: set signs apart from words first, as in the texts that it was made of"
    )
    notes = (split, *about_drawn(str(weights), ["softmax"], head_drawn=True))
    return Foreign(ELMO, model, tokenizer, found | drawn(ELMO, model, tokenizer, found), head_drawn=True, notes=notes)


def _one(folder: Path, pattern: str, what: str) -> Path:
    found = sorted(folder.glob(pattern))
    names = ", ".join(path.name for path in found)
    several = f"several files could be {what} ({names}); leave one" if found else f"no {pattern} here, {what}"
    refuse_if(len(found) != 1, f"{folder}: {several}")
    return found[0]


def _words(folder: Path) -> list[str]:
    """The words of the vocabulary, each once; none where there is no file."""
    there = any(folder.glob(_VOCABULARY))
    lines = read_pieces(_one(folder, _VOCABULARY, "the vocabulary")) if there else []
    return list(dict.fromkeys(word for line in lines if (word := line.strip())))
