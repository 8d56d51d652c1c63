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

from foretext.errors import UserError
from foretext.interop.bilm_weights import load_bilm, read_bilm_options, read_bilm_weights
from foretext.text.characters import word_characters

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
    return {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


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
    features = []
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
    x = words if direction == 0 else words[::-1]
    for layer in (0, 1):
        place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        h, c, outputs = np.zeros(width), np.zeros(5), []
        for word in x:
            i, j, f, o = np.split(np.concatenate([word, h]) @ weights[f"{place}/W_0"] + weights[f"{place}/B"], 4)
            c = np.clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), -3, 3)
            h = np.clip((sigmoid(o) * np.tanh(c)) @ weights[f"{place}/W_P_0"], -2, 2)
            outputs.append(h + word if layer else h)
        x = np.stack(outputs)
    return x if direction == 0 else x[::-1]


def test_it_is_the_released_model(tmp_path: Path) -> None:
    weights = arrays()
    model = load_bilm(*write(tmp_path, options(), weights))
    assert not model.training
    ids = word_characters(["a", "horse", "of", "<S>", "unbelievable"], 10)
    with torch.no_grad():
        words = model.words(torch.from_numpy(ids))
        read = model(words[None])
    expected = np.stack([released_word(weights, row) for row in (ids - 1).tolist()])
    np.testing.assert_allclose(words.numpy(), expected, rtol=0, atol=1e-5)
    for direction, half in enumerate(np.split(read.top[0].numpy(), 2, axis=-1)):
        np.testing.assert_allclose(half, released_top(weights, expected, direction), rtol=0, atol=1e-5)
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
    ("changes", "message"),
    [
        ({"char_cnn": None}, "it reads word ids, not characters"),
        ({"lstm": 3}, "field 'lstm' must be an object"),
        ({"bidirectional": False}, "a model of one direction"),
        ({"char_cnn__n_characters": 60}, "'n_characters' is 60"),
        ({"char_cnn__activation": "gelu"}, "'activation' must be relu or tanh, not 'gelu'"),
        ({"char_cnn__filters": [[1, 2, 3]]}, "'filters' must be a list"),
        ({"char_cnn__filters": [[11, 2]]}, "2 filters over 11 characters"),
        ({"char_cnn__filters": []}, "0 filter_widths"),
        ({"char_cnn__embedding__dim": None}, "field 'dim' must be a whole number, not nothing"),
        ({"lstm__dim": True}, "field 'dim' must be a whole number, not True"),
        ({"lstm__dim": 2}, "a state of 3 cannot be projected from 2 cells"),
        ({"lstm__n_layers": 10**40}, "field 'n_layers' must be a whole number"),
        ({"lstm__proj_clip": -1}, "field 'proj_clip' must be a bound"),
        ({"lstm__proj_clip": float("nan")}, "field 'proj_clip' must be a bound"),
        ({"lstm__cell_clip": "3"}, "field 'cell_clip' must be a bound"),
    ],
)
def test_wrong_options(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options(**changes)), encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        read_bilm_options(path)
    assert str(path) in str(caught.value)


def refused(tmp_path: Path, weights: Arrays, message: str, **changes: Any) -> None:
    with pytest.raises(UserError, match=message):
        load_bilm(*write(tmp_path, options(**changes), weights))


def test_wrong_weights(tmp_path: Path) -> None:
    good = arrays()
    refused(tmp_path, {**good, f"{CELL}/W_0": good[f"{CELL}/W_0"][:, :16]}, "W_0 has shape 6 × 16, and .* 6 × 20")
    refused(tmp_path, {**good, "char_embed": good["char_embed"][:260]}, "char_embed has shape 260 × 2")
    refused(tmp_path, {**good, "CNN/b_cnn_0": np.ones((2, 1), np.float32)}, "b_cnn_0 has shape 2 × 1")
    for name in ("char_embed", "CNN_high_0/b_carry", f"{CELL}/W_P_0"):
        refused(tmp_path, {key: array for key, array in good.items() if key != name}, f"{name} is missing")
    refused(tmp_path, {**good, "CNN/b_cnn_0": np.ones(2, np.int32)}, "b_cnn_0 holds int32")
    refused(tmp_path, {**good, "CNN/b_cnn_0": np.array([1.0, np.nan], np.float32)}, "numbers that are not finite")
    without = {name: array for name, array in good.items() if not name.startswith("CNN/")}
    refused(tmp_path, {**without, "CNN": np.ones(3, np.float32)}, "CNN/W_cnn_0 is missing")
    refused(tmp_path, {**without, "CNN/W_cnn_0/x": np.ones(3, np.float32)}, "CNN/W_cnn_0 is not an array")
    refused(tmp_path, good, "CNN_high_1/W_transform is missing", char_cnn__n_highway=2)
    refused(tmp_path, good, "Cell2/LSTMCell/W_0 is missing", lstm__n_layers=3)


def test_sizes_are_compared_before_anything_is_made(tmp_path: Path) -> None:
    refused(tmp_path, arrays(), "cannot hold the [0-9,]+ numbers", lstm__dim=10**9)
    refused(tmp_path, arrays(), "cannot hold the [0-9,]+ numbers", lstm__n_layers=10**9)


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

    def changed(message: str, change: Any) -> None:
        write(tmp_path, options(), good)
        with h5py.File(path, "a") as file:
            del file[name]
            change(file)
        with pytest.raises(UserError, match=message):
            read_bilm_weights(path, config)

    changed("is kept in a way", lambda file: file.create_dataset(name, (3,), "f4", external=[(str(secret), 0, 12)]))
    changed("is kept in a way", lambda file: file.create_virtual_dataset(name, virtual))
    changed("is kept in a way", lambda file: file.create_dataset(name, data=good[name], scaleoffset=2))
    changed("link to somewhere", lambda file: file.__setitem__(name, h5py.ExternalLink(str(other), "b")))
    changed("link to somewhere", lambda file: file.__setitem__(name, h5py.SoftLink("/CNN/b_cnn_0")))
    changed("less than its numbers", lambda file: file.create_dataset(name, (3,), "f4"))
    large = {"shape": (3,), "dtype": "f4", "maxshape": (None,), "chunks": (1 << 25,)}
    changed("is kept in a way", lambda file: file.create_dataset(name, **large))


def test_damaged_files(tmp_path: Path) -> None:
    option, path = write(tmp_path, options(), arrays())
    config, whole = read_bilm_options(option), path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a whole hdf5 file"):
        read_bilm_weights(path, config)
    path.write_bytes(bytes(len(whole)))
    with pytest.raises(UserError, match="not a whole hdf5 file"):
        read_bilm_weights(path, config)
    with pytest.raises(UserError, match="missing; give the hdf5 file"):
        read_bilm_weights(tmp_path / "none", config)
    draw = np.random.default_rng(0)
    for _ in range(60):  # each is read, or refused in one line
        damaged = bytearray(whole)
        for place in draw.integers(0, 3000, size=4):
            damaged[place] = draw.integers(256)
        path.write_bytes(damaged)
        try:
            read_bilm_weights(path, config)
        except UserError as error:
            assert str(path) in str(error)


def test_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write(tmp_path, options(), arrays())
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install 'foretext\[elmo\]'"):
        load_bilm(*paths)
