"""All kinds of task, by name."""

from __future__ import annotations

from foretext.errors import UserError, did_you_mean
from foretext.tasks.family import Family
from foretext.tasks.row_family import RowFamily
from foretext.tasks.span_family import SpanFamily
from foretext.tasks.tag_family import TagFamily

_ALL: tuple[Family, ...] = (RowFamily(), TagFamily(), SpanFamily())
FAMILIES: dict[str, Family] = {kind: family for family in _ALL for kind in family.kinds}
KINDS = tuple(FAMILIES)


def family_of(kind: str) -> Family:
    if kind not in FAMILIES:
        raise UserError(f"no task {kind!r}{did_you_mean(kind, KINDS)}; the tasks are {', '.join(KINDS)}")
    return FAMILIES[kind]
