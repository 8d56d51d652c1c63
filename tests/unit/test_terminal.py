"""What the command line shows of work that takes a while."""

from __future__ import annotations

import pytest

from foretext.cli import output as module
from foretext.cli.output import Terminal, progress


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar, or a plain line, at once."""
    monkeypatch.setattr(module, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(module, "PLAIN_SECONDS", -1.0)


@pytest.mark.usefixtures("impatient")
def test_a_bar_ends_with_its_work() -> None:
    terminal = Terminal()
    terminal.live = True
    terminal.work("encoding", 1, 2)
    assert terminal._bar is not None
    terminal.work("encoding", 2, 2)
    assert terminal._bar is None
    terminal.work("learning", 0, 0)  # nobody knows how long
    assert terminal._bar is not None
    terminal.close()
    assert terminal._bar is None


@pytest.mark.usefixtures("impatient")
def test_off_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show = progress("measuring")
    for done in range(3):
        show(done, 2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["measuring: 0%", "measuring: 50%"]
