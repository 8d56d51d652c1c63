"""Reading ELMo's published files, on made-up ones: names, the order of the gates, the forget bias, transposes; and
files that are not what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from complaints import refused
from tolerance import close, terms_of

from foretext.errors import UserError
from foretext.interop.bilm_weights import load_bilm, read_bilm_options, read_bilm_weights
from foretext.text.words.characters import word_characters

h5py = pytest.importorskip("h5py")

Arrays = dict[str, np.ndarray]
CELL = "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell"


def options(**changes: Any) -> dict[str, Any]:
    """Fields by `lstm__dim` and the like; None takes one away."""
    made: dict[str, Any] = {
        "lstm": {"cell_clip": 3, "proj_clip": 2, "use_skip_connections": True, "n_layers": 2, "projection_dim": 3},
        "char_cnn": {"filters": [[1, 2], [3, 4]], "n_highway": 1, "n_characters": 262, "activation": "tanh"},
    }
    made["lstm"]["dim"] = 5
    made["char_cnn"] |= {"embedding": {"dim": 2}, "max_characters_per_token": 10}
    for name, value in changes.items():
        *parents, last = name.split("__")
        place = made
        for parent in parents:
            place = place[parent]
        place[last] = value
        if value is None:
            del place[last]
    return made


def arrays(width: int = 3) -> Arrays:
    shapes = {"char_embed": (261, 2), "CNN/W_cnn_0": (1, 1, 2, 2), "CNN/W_cnn_1": (1, 3, 2, 4)}
    shapes |= {"CNN/b_cnn_0": (2,), "CNN/b_cnn_1": (4,), "CNN_proj/W_proj": (6, width), "CNN_proj/b_proj": (width,)}
    for name in ("transform", "carry"):
        shapes |= {f"CNN_high_0/W_{name}": (6, 6), f"CNN_high_0/b_{name}": (6,)}
    for direction in (0, 1):
        for layer in (0, 1):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes |= {f"{place}/W_0": (2 * width, 20), f"{place}/B": (20,), f"{place}/W_P_0": (5, width)}
    draw = np.random.default_rng(3)
    drawn = {name: draw.normal(size=shape) for name, shape in shapes.items()}
    # In steps of 1/1024, so that 1 can be added to a bias without rounding.
    return {name: ((1024 * array).round() / 1024).astype(np.float32) for name, array in drawn.items()}


def exact(weights: Arrays) -> Arrays:
    return {name: array.astype(np.float64) for name, array in weights.items()}


def write(folder: Path, given: dict[str, Any], weights: Arrays) -> tuple[Path, Path]:
    (folder / "options.json").write_text(json.dumps(given), encoding="utf-8")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in weights.items():
            file[name] = array
    return folder / "options.json", folder / "weights.hdf5"


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def released_word(weights: Arrays, characters: list[int]) -> np.ndarray:
    """The released code's equations in its own layout; character ids without the one that is added."""
    features, weights = [], exact(weights)
    for number, (width, count) in enumerate([(1, 2), (3, 4)]):
        kernel, bias = weights[f"CNN/W_cnn_{number}"][0], weights[f"CNN/b_cnn_{number}"]
        windows = []
        for start in range(len(characters) - width + 1):
            vectors = weights["char_embed"][characters[start : start + width]]
            windows.append([(vectors * kernel[:, :, one]).sum() + bias[one] for one in range(count)])
        features += np.tanh(np.max(windows, axis=0)).tolist()
    x = np.array(features)
    carry = sigmoid(x @ weights["CNN_high_0/W_carry"] + weights["CNN_high_0/b_carry"])
    new = np.maximum(x @ weights["CNN_high_0/W_transform"] + weights["CNN_high_0/b_transform"], 0)
    return (carry * new + (1 - carry) * x) @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]


def released_top(weights: Arrays, words: np.ndarray, direction: int, width: int = 3) -> np.ndarray:
    x, weights = words if direction == 0 else words[::-1], exact(weights)
    for layer in (0, 1):
        place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        h, c, outputs = np.zeros(width), np.zeros(5), []
        for word in x:
            i, j, f, o = np.split(np.concatenate([word, h]) @ weights[f"{place}/W_0"] + weights[f"{place}/B"], 4)
            c = np.clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), -3, 3)
            h = np.clip((sigmoid(o) * np.tanh(c)) @ weights[f"{place}/W_P_0"], -2, 2)
            outputs.append(h + word if layer else h)
        x = np.stack(outputs)
    return x if direction == 0 else x[::-1].copy()


def test_it_is_the_released_model(tmp_path: Path) -> None:
    weights = arrays()
    model = load_bilm(*write(tmp_path, options(), weights)).double()
    assert not model.training
    ids = word_characters(["a", "horse", "of", "<S>", "unbelievable"], 10)
    with torch.no_grad():
        words = model.words(torch.from_numpy(ids))
        read = model(words[None])
    expected = np.stack([released_word(weights, row) for row in (ids - 1).tolist()])
    spelled = terms_of(3 * 2, 2 * 6, 6)  # a filter over three characters, a highway of six features, the projection
    close(words, expected, terms=spelled)
    top = terms_of(spelled, 5 * 2 * (6 + 5))  # five words through two layers: inputs and state, cells to project
    for direction, half in enumerate(np.split(read.top[0].numpy(), 2, axis=-1)):
        close(half, released_top(weights, expected, direction), terms=top)
    assert not model.words.characters.weight[0].any()


def test_other_forms_of_the_same(tmp_path: Path) -> None:
    """As it is while training (261), packed, in half precision; with no projection where nothing is to be projected."""
    weights = {name: array.astype(np.float16) for name, array in arrays(width=6).items() if "CNN_proj" not in name}
    given = options(char_cnn__n_characters=261, lstm__projection_dim=6, lstm__dim=7, lstm__cell_clip=None)
    for name in list(weights):
        if name.endswith(("W_0", "B", "W_P_0")):
            shape = {"W_0": (12, 28), "B": (28,), "W_P_0": (7, 6)}[name.split("/")[-1]]
            weights[name] = np.random.default_rng(1).normal(size=shape).astype(np.float16)
    option, path = write(tmp_path, given, {})
    with h5py.File(path, "w") as file:
        for name, array in weights.items():
            file.create_dataset(name, data=array, compression="gzip", shuffle=True)
    model = load_bilm(option, path)
    assert model.config.cell_clip == 0.0 and model.config.state_clip == 2.0
    assert model.forwards.lstms[0].input.weight.dtype == torch.float32
    np.testing.assert_array_equal(model.backwards.lstms[0].project.weight.detach().numpy(), weights[f"{CELL}/W_P_0"].T)


def test_no_projection_where_the_cells_are_as_many(tmp_path: Path) -> None:
    weights = {name: array for name, array in arrays().items() if not name.endswith("W_P_0")}
    for name in list(weights):
        if name.endswith(("W_0", "/B")):
            weights[name] = np.ones((6, 12) if name.endswith("W_0") else 12, dtype=np.float32)
    model = load_bilm(*write(tmp_path, options(lstm__dim=3), weights))
    assert model.forwards.lstms[0].project is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"char_cnn": None}, ["'char_cnn'"]),
        ({"lstm": 3}, ["'lstm'", "object"]),
        ({"bidirectional": False}, ["'bidirectional'"]),
        ({"char_cnn__n_characters": 60}, ["'n_characters'", "60", "261"]),
        ({"char_cnn__activation": "gelu"}, ["'activation'", "relu", "tanh", "'gelu'"]),
        ({"char_cnn__filters": [[1, 2, 3]]}, ["'filters'", "[width, count]"]),
        ({"char_cnn__filters": [[11, 2]]}, ["2 filters", "11 characters", "10"]),
        ({"char_cnn__filters": []}, ["0 filter_widths", "0 filter_counts"]),
        ({"char_cnn__embedding__dim": None}, ["'dim'", "nothing"]),
        ({"lstm__dim": True}, ["'dim'", "True"]),
        ({"lstm__dim": 2}, ["state", "3", "2 cells"]),
        ({"lstm__n_layers": 10**40}, ["'n_layers'", "1" + 20 * "0"]),
        ({"lstm__proj_clip": -1}, ["'proj_clip'", "-1"]),
        ({"lstm__proj_clip": float("nan")}, ["'proj_clip'", "nan"]),
        ({"lstm__cell_clip": "3"}, ["'cell_clip'", "'3'"]),
    ],
)
def test_wrong_options(tmp_path: Path, changes: dict[str, Any], named: list[str]) -> None:
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options(**changes)), encoding="utf-8")
    with refused(str(path), *named):
        read_bilm_options(path)


def refuses(tmp_path: Path, weights: Arrays, *named: str, **changes: Any) -> None:
    paths = write(tmp_path, options(**changes), weights)
    with refused(str(paths[1]), *named):
        load_bilm(*paths)


def test_wrong_weights(tmp_path: Path) -> None:
    good = arrays()
    cut, bias = {f"{CELL}/W_0": good[f"{CELL}/W_0"][:, :16]}, "CNN/b_cnn_0"
    refuses(tmp_path, good | cut, f"{CELL}/W_0", "6 × 16", "6 × 20")
    refuses(tmp_path, {**good, "char_embed": good["char_embed"][:260]}, "char_embed", "260 × 2", "261 × 2")
    refuses(tmp_path, {**good, bias: np.ones((2, 1), np.float32)}, bias, "2 × 1")
    for name in ("char_embed", "CNN_high_0/b_carry", f"{CELL}/W_P_0"):
        refuses(tmp_path, {key: array for key, array in good.items() if key != name}, name, "missing")
    refuses(tmp_path, {**good, bias: np.ones(2, np.int32)}, bias, "int32")
    refuses(tmp_path, {**good, bias: np.array([1.0, np.nan], np.float32)}, bias, "finite")
    without = {name: array for name, array in good.items() if not name.startswith("CNN/")}
    refuses(tmp_path, {**without, "CNN": np.ones(3, np.float32)}, "CNN/W_cnn_0", "missing")
    refuses(tmp_path, {**without, "CNN/W_cnn_0/x": np.ones(3, np.float32)}, "CNN/W_cnn_0", "array")
    refuses(tmp_path, good, "CNN_high_1/W_transform", "missing", char_cnn__n_highway=2)
    refuses(tmp_path, good, "Cell2/LSTMCell/W_0", "missing", lstm__n_layers=3)


def test_sizes_are_compared_before_anything_is_made(tmp_path: Path) -> None:
    refuses(tmp_path, arrays(), "bytes", "124,000,000,663 numbers", lstm__dim=10**9)
    refuses(tmp_path, arrays(), "bytes", "310,000,000,663 numbers", lstm__n_layers=10**9)


def test_data_that_is_not_in_the_file(tmp_path: Path) -> None:
    good = arrays()
    option, path = write(tmp_path, options(), good)
    config, name = read_bilm_options(option), "CNN_proj/b_proj"
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(12))
    other = tmp_path / "other.hdf5"
    with h5py.File(other, "w") as file:
        file["b"] = good[name]
    virtual = h5py.VirtualLayout(shape=(3,), dtype="f4")
    virtual[:] = h5py.VirtualSource(str(other), "b", shape=(3,))

    def changed(word: str, change: Any) -> None:
        write(tmp_path, options(), good)
        with h5py.File(path, "a") as file:
            del file[name]
            change(file)
        with refused(str(path), name, word):
            read_bilm_weights(path, config)

    changed("stored", lambda file: file.create_dataset(name, (3,), "f4", external=[(str(secret), 0, 12)]))
    changed("stored", lambda file: file.create_virtual_dataset(name, virtual))
    changed("stored", lambda file: file.create_dataset(name, data=good[name], scaleoffset=2))
    changed("link", lambda file: file.__setitem__(name, h5py.ExternalLink(str(other), "b")))
    changed("link", lambda file: file.__setitem__(name, h5py.SoftLink("/CNN/b_cnn_0")))
    changed("part", lambda file: file.create_dataset(name, (3,), "f4"))
    large = {"shape": (3,), "dtype": "f4", "maxshape": (None,), "chunks": (1 << 25,)}
    changed("stored", lambda file: file.create_dataset(name, **large))


def test_damaged_files(tmp_path: Path) -> None:
    option, path = write(tmp_path, options(), arrays())
    config, whole = read_bilm_options(option), path.read_bytes()
    for damaged in (whole[: len(whole) // 2], bytes(len(whole))):
        path.write_bytes(damaged)
        with refused(str(path), "complete", "hdf5"):
            read_bilm_weights(path, config)
    with refused(str(tmp_path / "none"), "missing", "hdf5"):
        read_bilm_weights(tmp_path / "none", config)
    draw = np.random.default_rng(0)
    for _ in range(60):  # each is read, or refused in one line
        touched = bytearray(whole)
        for place in draw.integers(0, 3000, size=4):
            touched[place] = draw.integers(256)
        path.write_bytes(touched)
        try:
            read_bilm_weights(path, config)
        except UserError as error:
            assert str(path) in str(error)


def test_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write(tmp_path, options(), arrays())
    monkeypatch.setitem(sys.modules, "h5py", None)
    with refused("h5py", "pip install 'foretext[elmo]'"):
        load_bilm(*paths)
