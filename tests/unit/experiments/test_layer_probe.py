"""What the layers of a run know, on a model that knows the label in its top layer only."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from complaints import names

from experiments import layer_probe
from experiments.common import Data
from foretext.tasks.files.rows import Row


class _Told:
    """Layer 0 is noise of each text, layer 1 holds its label beside noise."""

    model = SimpleNamespace(model_config=SimpleNamespace(layers=1))

    def features(self, texts: Sequence[str], layers: Sequence[int]) -> np.ndarray:
        rows = []
        for text in texts:
            number, label = text.split()
            noise = np.random.default_rng(int(number)).normal(size=4)
            rows.append(np.append(noise, float(label == "good") if layers == (1,) else 0.0))
        return np.array(rows, dtype=np.float32)


def _rows(first: int, count: int) -> list[Row]:
    labels = ["good" if number % 2 else "bad" for number in range(count)]
    return [Row((f"{first + number} {label}",), label, f"row {number}") for number, label in enumerate(labels)]


def test_a_layer_that_holds_the_label_is_told_from_one_that_does_not() -> None:
    lm: Any = _Told()
    (noise, noise_more), (top, top_more) = layer_probe.layer_scores(lm, Data(_rows(0, 80), _rows(1000, 60)), [20, 60])
    assert top > 80 and top_more > 95  # of 20 labels some of the noise is taken for a sign
    assert 30 < noise < 70 and 30 < noise_more < 70


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data" / "sst2"
    folder.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence\tlabel\ngood\t1\nbad\t0\n", encoding="utf-8")
    assert layer_probe.main([str(tmp_path / "none"), "--data", str(tmp_path / "data")]) != 0
    assert len(names(capsys.readouterr().err, f"{tmp_path / 'none'}:").splitlines()) == 1
