"""The loss curve of a run."""

from __future__ import annotations

from pathlib import Path

from foretext.train.resume import loss_curve_png


def test_every_kind_of_line_in_the_log_is_drawn_or_passed_over(tmp_path: Path) -> None:
    steps = [{"step": i, "tokens": 64 * i, "losses": {"masked": 5.0 - i, "next": 0.7}} for i in range(3)]
    logs = {
        "nothing": [],
        "samples": [{"step": 0, "epoch": 0, "samples": [1]}],
        "training": steps,
        "both": [*steps, {"step": 2, "tokens": 128, "validation": {"loss": 4.0, "f1": 0.5}}],
        "scores": [*steps, {"step": 2, "tokens": 128, "validation": {"f1": 0.5}}],
    }
    pictures = {}
    for name, log in logs.items():
        loss_curve_png(log, tmp_path / name)
        pictures[name] = (tmp_path / name).read_bytes()
        assert pictures[name].startswith(b"\x89PNG") and len(pictures[name]) > 1000
    assert pictures["nothing"] == pictures["samples"] != pictures["training"] == pictures["scores"]
    assert pictures["both"] != pictures["training"]
