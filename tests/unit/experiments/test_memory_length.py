"""The experiment on the length of memory: the text that it cuts, what it says, and its picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from complaints import refused

from experiments.memory_length import (
    MEMORIES,
    QUICK,
    TEXTS,
    Cell,
    parse,
    parts_of,
    picture,
    result_table,
    seen_before,
    stretches,
    training_file,
)
from foretext.config import apply_sets
from foretext.systems import SYSTEMS


def test_stretches_are_spread_and_cut_no_character() -> None:
    text = ("é" * 50 + "a").encode() * 20
    found = stretches(text, 33)
    assert len(found) == len(text) // 33 and all(31 <= len(one.encode()) <= 33 for one in found)
    few = stretches(text, 33, 5)
    assert len(few) == 5 and few[0] == found[0]
    assert stretches(b"ab", 33) == ["ab"]
    spread = stretches(bytes(range(100)), 10, 4)
    assert [one.encode()[0] for one in spread] == [0, 30, 60, 90]


def test_what_is_trained_on_and_what_is_scored(tmp_path: Path) -> None:
    folder = tmp_path / "tinyshakespeare"
    folder.mkdir()
    (folder / "input.txt").write_bytes(b"".join(b"%d\n" % number for number in range(1000)))
    given = parse(["--data", str(tmp_path), "--text", "shakespeare"])
    train, test = parts_of(given)
    whole = (folder / "input.txt").read_bytes()
    assert train + test == whole and len(test) == pytest.approx(0.05 * len(whole), abs=1)
    path = training_file(train, tmp_path)
    before = path.stat().st_mtime_ns
    assert path.read_text().count("\n") == 1 and training_file(train, tmp_path).stat().st_mtime_ns == before
    missing = parse(["--data", str(tmp_path)])
    with refused(str(tmp_path / TEXTS[missing.text]), "--data DIR"):
        parts_of(missing)
    quick = parse(["--data", str(tmp_path), "--quick", "--set", "training.rate=1"])
    assert quick.minutes < 1 and quick.set == [*QUICK, "training.rate=1"]
    apply_sets({"model": SYSTEMS["transformer_xl"].sizes["tiny"].model}, QUICK)["model"].check()


def test_the_table_and_the_picture() -> None:
    scores = [{"scores": {"bits": 3.0 - 0.1 * place}, "seconds": 2.0} for place in range(len(MEMORIES))]
    found = {Cell(memory): record for memory, record in zip(MEMORIES, scores)}
    lines = result_table(dict(reversed(found.items())), 128).splitlines()
    named = [line.split("|")[1].split()[0].replace(",", "") for line in lines[2:]]
    assert named == [str(memory) for memory in MEMORIES]
    assert "128 (as trained)" in lines[6] and "| -0.1000 |" in lines[3] and "|  |" in lines[2]
    assert seen_before(0, 1024) == 0 and seen_before(1, 4) == 0.75 and seen_before(9, 4) == 1.5
    assert picture(found, 128).startswith(b"\x89PNG")
