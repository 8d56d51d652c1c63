"""What a test may ask of an error that a user can cause: that it names the place, the key and the remedy.

    with refused("rows.csv row 7", "label", "--columns"):
        read_rows(…)

    names(fails("generate", run, "--prompts", "x"), "--prompts", "x")

The parts are names, not prose: a file and its row, an option or a configuration's key, a value as the user wrote it,
the command that helps, one word at most of the sentence. So a sentence can be made better without a change of its test;
a part that is prose is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from foretext.errors import UserError

_WORD = r"[a-z]+(?:'[a-z]+)?"
# Two plain words side by side, unless the second is a command's verb.
_PROSE = re.compile(rf"(?<![\w./=\-]){_WORD} {_WORD}(?![\w./=\-])")
_COMMANDS = re.compile(r"\b(?:foretext [a-z-]+|pip install|make [a-z-]+|apt install)\b")


def names(complaint: object, *parts: str) -> str:
    """The complaint, which has every part in it."""
    said = str(complaint)
    assert parts, "say which place, key or remedy the error must name"
    for part in parts:
        assert not _PROSE.search(_COMMANDS.sub("", part)), f"{part!r} is prose: ask for places, keys and commands"
        assert part in said, f"{part!r} is not named in: {said}"
    return said


@contextmanager
def refused(*parts: str, kind: type[Exception] = UserError) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """What is inside must raise an error of one line that names every part."""
    with pytest.raises(kind) as caught:
        yield caught
    assert "\n" not in names(caught.value, *parts), "one line"
