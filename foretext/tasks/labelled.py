"""What is known about labelled rows before training: the names and order of their classes, warnings about them, and
which rows are held out. The split is seeded, repeatable, and stratified.

Rows with class names are split class by class, so that each class keeps its share; other rows (choices, scores) are
split at random. Both parts keep the order of the file. The same rows and seed give the same split on every machine.

Rows with the same texts stay on one side: a model would get the copy of a training row right, and validation would mean
nothing.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

from foretext.errors import UserError, did_you_mean, refuse_if
from foretext.tasks.files.rows import Row

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

DEFAULT_FRACTION = 0.15
FEWEST_TO_SPLIT = 10  # with fewer rows, a held-out row costs more than it is worth
FEW_TO_VALIDATE = 50
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_LISTED = 20
MANY_NUMBERS = 6  # star ratings from 1 to 5 are often meant as classes
IMBALANCE_RATIO = 4
IMBALANCE_SHARE = 0.8


# -- classes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelSet:
    """Class names; a name's position is its index. Sorted as numbers if all names are numbers, otherwise as text."""

    names: tuple[str, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "LabelSet":
        """The labels of training rows; UserError if there is only one class."""
        rows = list(rows)
        by_class = {class_name(row): row for row in rows}
        refuse_if(not by_class, "no training rows; give a file with labelled rows")
        if len(by_class) == 1:
            name, row = next(iter(by_class.items()))
            raise UserError(
                f"all {len(rows):,} rows have the label {name!r} (the last: {row.where}); give rows of at least two "
                "classes"
            )
        return cls(order_names(by_class))

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str, where: str) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise UserError(
                f"{where}: the label {name!r} does not occur in the training rows{did_you_mean(name, self.names)}; the "
                f"labels are {self.listing()}; correct it, or train with rows that have it"
            ) from None

    def listing(self) -> str:
        """The names for a message, at most twenty."""
        shown = ", ".join(repr(name) for name in self.names[:_LISTED])
        rest = len(self.names) - _LISTED
        return f"{shown} and {rest} more" if rest > 0 else shown


def class_name(row: Row) -> str:
    refuse_if(row.label is None, f"{row.where}: the label is missing; fill it in or remove the row")
    assert isinstance(row.label, str), f"{row.where}: not a class name: {row.label!r}"
    return row.label


def order_names(names: Iterable[str]) -> tuple[str, ...]:
    """Numeric order if every name is a number ("10" after "9"; "1" and "01" stay different), otherwise order of
    text."""
    names = set(names)
    if all(_NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names, key=lambda name: (Decimal(name), name)))
    return tuple(sorted(names))


def label_warnings(rows: Sequence[Row]) -> list[str]:
    """Warnings about these rows before training: rare classes, imbalance, names that look alike."""
    counts = Counter(class_name(row) for row in rows)
    warnings = []
    alike: dict[str, str] = {}
    for name in order_names(counts):
        other = alike.setdefault(" ".join(name.split()).casefold(), name)
        if other != name:
            warnings.append(f"labels {other!r} and {name!r} differ only in spaces or case but count as two classes")
    single = [name for name in order_names(counts) if counts[name] == 1]
    if single:
        shown = LabelSet(tuple(single)).listing()
        what = f"class {shown} has" if len(single) == 1 else f"classes {shown} have"
        warnings.append(f"{what} a single example: too few to learn from, and none is left to validate on")
    if imbalance := _imbalance(counts, len(rows)):
        warnings.append(imbalance)
    if _look_like_scores([*counts]):
        warnings.append(
            f"the labels are {len(counts)} numbers, but are learned as classes without an order; if they are scores, "
            "use --task regression"
        )
    return warnings


def _look_like_scores(names: Sequence[str]) -> bool:
    """Whether the labels are numbers, and are more numerous than classes usually are, or some have fractions."""
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
    whole = all(float(number).is_integer() for number in numbers)
    return len(numbers) == len(names) and (not whole or len(numbers) >= MANY_NUMBERS)


def _imbalance(counts: Counter[str], total: int) -> str | None:
    (largest, most), (smallest, least) = counts.most_common()[0], counts.most_common()[-1]
    if len(counts) < 2 or (most <= IMBALANCE_RATIO * least and most <= IMBALANCE_SHARE * total):
        return None
    return (
        f"classes are imbalanced: {largest!r} has {most:,} of {total:,} rows, {smallest!r} has {least:,}; always "
        f"answering {largest!r} would already be {most / total:.1%} accurate, so look at macro F1 too"
    )


# -- splits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split(Generic[T]):
    """Rows to train on and rows to validate on (none if there are too few); `note` says so."""

    train: list[T]
    valid: list[T]
    note: str


def hold_out(rows: Sequence[Row], *, fraction: float = DEFAULT_FRACTION, seed: int = 0) -> Split[Row]:
    """Holds out `fraction` of the rows, at least one if possible. Every class keeps at least one training row, and
    copies of a row stay together. If a text has so many copies that holding them out would miss `fraction` by more than
    keeping them, it is trained on."""
    refuse_if(not 0 <= fraction < 1, f"--hold-out {fraction}: the fraction must be at least 0 and below 1")
    rows = list(rows)
    if fraction == 0:
        return Split(rows, [], "no rows held out, as requested")
    if len(rows) < FEWEST_TO_SPLIT:
        return Split(
            rows,
            [],
            f"{len(rows)} rows are too few to hold any out: there is no validation, and the last epoch is kept",
        )
    groups = _copies(rows)
    wanted = max(1, round(len(rows) * fraction))
    sizes = [sum(map(len, group)) for group in groups]
    chosen = _pick_copies(rows, groups, _allocate(sizes, wanted), seed)
    train = [row for i, row in enumerate(rows) if i not in chosen]
    valid = [row for i, row in enumerate(rows) if i in chosen]
    if not valid:
        return Split(train, valid, "too few different texts per class to hold any out: there is no validation")
    note = f"{len(valid):,} of {len(rows):,} rows held out for validation"
    if len(valid) < FEW_TO_VALIDATE:
        note += f" (one row more or less right is {1 / len(valid):.1%}; --hold-out 0 trains on these rows too)"
    return Split(train, valid, note)


def hold_out_by(rows: Sequence[T], keys: Sequence[str], *, fraction: float, seed: int) -> Split[T]:
    """The same for other rows without classes; those with equal keys stay together."""
    stand_ins = [Row((key,), None, str(number)) for number, key in enumerate(keys)]
    split = hold_out(stand_ins, fraction=fraction, seed=seed)
    train, valid = ([rows[int(row.where)] for row in part] for part in (split.train, split.valid))
    return Split(train, valid, split.note)


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _class(row: Row) -> str:
    return row.label if isinstance(row.label, str) else ""


def _copies(rows: Sequence[Row]) -> list[list[list[int]]]:
    """Row numbers by class, classes sorted by name. Rows with the same texts are grouped, in the class of the first of
    them. There is one class if labels are not class names."""
    copies = _grouped(range(len(rows)), lambda i: tuple(text.strip() for text in rows[i].texts))
    groups = _grouped(copies.values(), lambda numbers: _class(rows[numbers[0]]))
    return [groups[name] for name in sorted(groups)]


def _allocate(sizes: list[int], total: int) -> list[int]:
    """Shares of `total` in proportion to `sizes`, each below its size: proportions rounded down, then the rest is
    handed out one by one where the share is furthest below its proportion."""
    ideal = [total * size / sum(sizes) for size in sizes]
    shares = [min(int(want), size - 1) for want, size in zip(ideal, sizes)]
    while sum(shares) < total:
        open_ = [i for i, size in enumerate(sizes) if shares[i] + 1 < size]
        if not open_:
            break
        shares[max(open_, key=lambda i: (ideal[i] - shares[i], sizes[i], -i))] += 1
    return shares


def _pick_copies(rows: Sequence[Row], groups: list[list[list[int]]], shares: list[int], seed: int) -> set[int]:
    """About a share of each group's rows, copies together, but never a whole class."""
    generator = random.Random(f"foretext-split-{seed}")
    left = Counter(map(_class, rows))
    chosen: set[int] = set()
    for group, share in zip(groups, shares):
        places = generator.sample(range(len(group)), min(share, len(group)))
        if sum(len(group[place]) for place in places) > share:  # some may not fit; others then take their place
            others = sorted(set(range(len(group))) - set(places))
            places += generator.sample(others, len(others))
        for place in places:
            numbers = group[place]
            taken = Counter(_class(rows[i]) for i in numbers)
            if len(numbers) <= 2 * share and all(left[name] > count for name, count in taken.items()):
                chosen.update(numbers)
                left -= taken
                share -= len(numbers)
    return chosen
