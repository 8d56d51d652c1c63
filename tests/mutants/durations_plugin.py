"""For `run.py map`: how long each test took that passed, set-up included."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_SECONDS: dict[str, float] = {}
_FAILED: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _FAILED.add(report.nodeid)
    _SECONDS[report.nodeid] = round(_SECONDS.get(report.nodeid, 0.0) + report.duration, 3)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        passed = {test: seconds for test, seconds in _SECONDS.items() if test not in _FAILED}
        Path(os.environ["MUTANTS_DURATIONS"]).write_text(json.dumps(passed))
