"""`experiments.modern_parts`: each row is a run with one part changed, and a finished row is not run again."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from systems_under_test import write_text

from experiments.modern_parts import ROWS, main
from foretext.config import apply_sets
from foretext.runs.directory import RunDirectory
from foretext.runs.run_config import read_config
from foretext.systems import SYSTEMS


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name]])
def test_every_row_changes_something(name: str) -> None:
    size = SYSTEMS["modern"].sizes["tiny"]
    sections = {"model": size.model, "training": size.pretraining, "objective": size.objective}
    changed = apply_sets(sections, ROWS[name])
    assert changed != sections
    for section in changed.values():
        section.check()


def test_two_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "imdb").mkdir()
    text = write_text(tmp_path).read_bytes()
    (tmp_path / "imdb" / "unsup.txt.gz").write_bytes(gzip.compress(text * 4))
    given = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--quick", "--batch", "2"]
    main([*given, "--only", "gpt,-rotary"])
    rows = re.findall(r"^\| (\S+) +\| +([\d,]+) \| +([\d.]+) \| +([\d.]+) \|", capsys.readouterr().out, re.MULTILINE)
    assert [(row[0], row[1]) for row in rows] == [("gpt", "512"), ("-rotary", "512")]
    assert rows[0][2] != rows[1][2] and all(0 < float(row[3]) < float(row[2]) for row in rows)
    config = read_config(RunDirectory(tmp_path / "out" / "-rotary"))
    assert config.run.system == "modern" and config.model.positions == "learned"  # type: ignore[attr-defined]
    before = (tmp_path / "out" / "gpt" / "manifest.json").read_bytes()
    main([*given, "--only", "gpt"])
    assert (tmp_path / "out" / "gpt" / "manifest.json").read_bytes() == before
    with pytest.raises(SystemExit, match="no row 'cap'"):
        main([*given, "--only", "cap"])
