"""The classes of a task: their names, their order, and what a user should know about them before training."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from foretext.errors import UserError, did_you_mean
from foretext.tasks.files.rows import Row

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_LISTED = 20
IMBALANCE_RATIO = 4
IMBALANCE_SHARE = 0.8


@dataclass(frozen=True)
class LabelSet:
    """Class names; the position of a name is its index. Ordered by number if all names are numbers, else as text."""

    names: tuple[str, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "LabelSet":
        """The labels of training rows; one class alone cannot be learnt."""
        rows = list(rows)
        found = {class_name(row): row for row in rows}
        if not found:
            raise UserError("no training rows; give a file with labelled rows")
        if len(found) == 1:
            name, row = next(iter(found.items()))
            raise UserError(
                f"all {len(rows):,} rows have the label {name!r} (the last: {row.where}); "
                "give rows of at least two classes"
            )
        return cls(order_names(found))

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str, where: str) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise UserError(
                f"{where}: the label {name!r} is not one that was trained on{did_you_mean(name, self.names)}; "
                f"the labels are {self.listing()}; correct it, or train with rows that have it"
            ) from None

    def indices(self, rows: Iterable[Row]) -> list[int]:
        """The class index of each row; an unknown or missing label is an error that names the row."""
        known = {name: index for index, name in enumerate(self.names)}
        found = []
        for row in rows:
            name = class_name(row)
            at = known.get(name)
            found.append(self.index(name, row.where) if at is None else at)
        return found

    def listing(self) -> str:
        """The names for a message, at most twenty of them."""
        shown = ", ".join(repr(name) for name in self.names[:_LISTED])
        rest = len(self.names) - _LISTED
        return f"{shown} and {rest} more" if rest > 0 else shown


def class_name(row: Row) -> str:
    if row.label is None:
        raise UserError(f"{row.where}: the label is missing; fill it in or remove the row")
    assert isinstance(row.label, str), f"{row.where}: not a class name: {row.label!r}"
    return row.label


def order_names(names: Iterable[str]) -> tuple[str, ...]:
    """Numeric order if every name is a number ("10" after "9"; "1" and "01" stay two names), else order of text."""
    names = set(names)
    if all(_NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names, key=lambda name: (Decimal(name), name)))
    return tuple(sorted(names))


def label_warnings(rows: Sequence[Row]) -> list[str]:
    """What deserves a sentence before training on these rows: rare classes, imbalance, names that look alike."""
    counts = Counter(class_name(row) for row in rows)
    warnings = []
    alike: dict[str, str] = {}
    for name in order_names(counts):
        other = alike.setdefault(" ".join(name.split()).casefold(), name)
        if other != name:
            warnings.append(f"labels {other!r} and {name!r} differ only in spaces or case and count as two classes")
    single = [name for name in order_names(counts) if counts[name] == 1]
    if single:
        shown = LabelSet(tuple(single)).listing()
        what = f"class {shown} has" if len(single) == 1 else f"classes {shown} have"
        warnings.append(f"{what} a single example: too few to learn from, and none is left to validate on")
    if imbalance := _imbalance(counts, len(rows)):
        warnings.append(imbalance)
    return warnings


def _imbalance(counts: Counter[str], total: int) -> str | None:
    (largest, most), (smallest, least) = counts.most_common()[0], counts.most_common()[-1]
    if len(counts) < 2 or (most <= IMBALANCE_RATIO * least and most <= IMBALANCE_SHARE * total):
        return None
    return (
        f"classes are unequal: {largest!r} has {most:,} of {total:,} rows, {smallest!r} has {least:,}; "
        f"always answering {largest!r} would already be {most / total:.1%} accurate, so look at macro F1 too"
    )
