"""Parallel text: two files of which line n of one is the translation of line n of the other, as Multi30k, WMT and OPUS
have it.

Read together, a megabyte at a time. A pair with nothing on one side or on both teaches nothing: it is left out and
counted, but its line counts, so that the others stay together. One file with more lines than the other is an error,
which can only be known at its end; blank lines at the end of one are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path

from foretext.errors import UserError
from foretext.text.corpus.text_files import ReadReport, TextFile, line_blocks, plain_file


@dataclass
class ParallelReport:
    """What reading found; filled while the pairs are drawn. `source` and `target` have what was replaced in each file,
    and how far it has been read."""

    pairs: int = 0
    blank: int = 0  # pairs left out because a side is blank
    source: ReadReport = field(default_factory=ReadReport)
    target: ReadReport = field(default_factory=ReadReport)


def read_parallel(
    source: str | Path, target: str | Path, report: ParallelReport, errors: str = "strict"
) -> Iterator[tuple[str, str]]:
    """Every pair of lines with text on both sides, without the space around it. `errors`: "replace" takes bytes that
    are not UTF-8, and counts them."""
    if errors not in ("strict", "replace"):
        raise UserError(f"errors must be strict or replace, not {errors!r}")
    first, second = plain_file(source), plain_file(target)
    if first.path.resolve() == second.path.resolve():
        raise UserError(f"{first.path}: both source and target; give the translation as the other one")
    for file, part in ((first, report.source), (second, report.target)):
        part.total_bytes = file.size
    here, there = _lines(first, errors, report.source), _lines(second, errors, report.target)
    for number, (one, other) in enumerate(zip_longest(here, there)):
        if one is None or other is None:
            if other is None:
                _check_rest(number, first, chain([one or ""], here), second)
            else:
                _check_rest(number, second, chain([other], there), first)
            break
        one, other = one.strip(), other.strip()
        if one and other:
            report.pairs += 1
            yield one, other
        else:
            report.blank += 1
    if not report.pairs:
        raise UserError(f"{first.path}, {second.path}: no line has text in both; give files with a sentence a line")


def _lines(file: TextFile, errors: str, report: ReadReport) -> Iterator[str]:
    for lines in line_blocks(file, errors, report):
        yield from lines


def _check_rest(number: int, longer: TextFile, rest: Iterable[str], shorter: TextFile) -> None:
    """UserError if there is text in `rest`, what follows after so many lines, where the other file has ended."""
    last = max((place for place, line in enumerate(rest, 1) if line.strip()), default=0)
    if last:
        raise UserError(
            f"{longer.path} has {number + last:,} lines and {shorter.path} has {number:,}: line n of one must be the "
            "translation of line n of the other; find where they part, or get the files again"
        )
