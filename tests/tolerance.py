"""How far two results may differ that were added up in another order: the one helper of all tests that compare numbers.

    close(found, expected, terms=64)                     # tensors, arrays, numbers, or dictionaries and lists of them
    close(found, expected, terms=64, size=10.0)          # terms of about 10 that mostly cancel
    close(loss, expected, terms=64, precision=torch.float32)   # Python numbers that came out of float32

A sum of n terms is off by at most (n − 1) · u · Σ|term| whatever the order (Higham 2002, section 4.2), where u is half
of the precision's epsilon. So what is allowed is `terms` · epsilon · `size`, for every element of a tensor alike:

- `terms` is the number of roundings on the longest way from the inputs to one element: the lengths of all sums on that
  way, added up. A linear layer 32 wide is 32 terms, its gradient over a batch of 100 tokens 100; two blocks of a
  Transformer are a few hundred. `terms_of(32, 100, …)` adds them and is only there to read well.
- `size` is that of the largest term. By default it is the largest absolute value of all that is expected, which is
  right unless all of it cancels; so compare the gradients of one backward pass in one call.
- `precision` is that of the coarser of the two sides, unless part of the way was coarser still.

Compare mathematics in float64, where a mistake stands out by ten digits (`doubles`, below), and float32 only where
float32 is what is tested. No processor, thread count or library is named here. A tolerance of a test's own is for what
is no sum of roundings: frequencies of draws, quotients of differences, a series that is cut off, digits in a file.

With `FORETEXT_MARGINS=FOLDER` every comparison notes how much of what is allowed it used; `make portable` shows that.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_MARGINS: dict[str, float] = {}


def terms_of(*lengths: int) -> int:
    """The lengths of the sums on the way to one element, one after the other."""
    return sum(lengths)


def close(
    found: Any,
    expected: Any,
    *,
    terms: int,
    size: float | None = None,
    precision: torch.dtype | None = None,
    what: str = "",
) -> None:
    """AssertionError unless both have the same structure and shapes, and no element is further off than rounding may
    take it. NaN equals nothing; infinities must be in the same places."""
    size = _largest(expected) if size is None else size
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping) and found.keys() == expected.keys(), f"{what}: other keys"
        assert expected, f"{what}: nothing to compare"
        for key in expected:
            close(found[key], expected[key], terms=terms, size=size, precision=precision, what=f"{what}[{key!r}]")
        return
    if _is_several(expected):
        assert len(found) == len(expected), f"{what}: {len(found)} results instead of {len(expected)}"
        for number, (ours, theirs) in enumerate(zip(found, expected)):
            close(ours, theirs, terms=terms, size=size, precision=precision, what=f"{what}[{number}]")
        return
    precision = precision or _coarser(found, expected)
    ours, theirs = _exact(found), _exact(expected)
    assert ours.shape == theirs.shape, f"{what}: shape {list(ours.shape)} instead of {list(theirs.shape)}"
    whole = theirs.isfinite()
    assert torch.equal(ours[~whole], theirs[~whole]), f"{what}: other infinities, or NaN"
    ours, theirs = ours[whole], theirs[whole]
    if not theirs.numel():
        return
    allowed = terms * torch.finfo(precision).eps * size
    off = (ours - theirs).abs()
    worst = float(off.max()) if bool(off.isfinite().all()) else float("inf")
    _note(worst / allowed if allowed else 0.0)
    if worst <= allowed:
        return
    at = int(off.argmax())
    raise AssertionError(
        f"{what or 'result'}: {float(ours[at])!r} instead of {float(theirs[at])!r} (element {at} of {off.numel()}), "
        f"{worst:.3g} off where {terms} terms of {size:.3g} in {precision} allow {allowed:.3g}"
    )


@contextmanager
def doubles() -> Iterator[None]:
    """What is built and drawn inside is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _is_several(value: Any) -> bool:
    """A list of tensors or arrays; one of numbers is a tensor itself."""
    return isinstance(value, Sequence) and any(isinstance(one, Tensor | np.ndarray | Sequence) for one in value)


def _largest(expected: Any) -> float:
    if isinstance(expected, Mapping):
        return max(map(_largest, expected.values()), default=0.0)
    if _is_several(expected):
        return max(map(_largest, expected))
    tensor = _exact(expected)
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _coarser(*values: Any) -> torch.dtype:
    kinds = [_kind(value) for value in values]
    return max(kinds, key=lambda kind: torch.finfo(kind).eps)


def _kind(value: Any) -> torch.dtype:
    """A number's precision; Python's own numbers are float64, integers are exact."""
    if isinstance(value, np.ndarray | np.generic):
        value = torch.from_numpy(np.asarray(value).reshape(-1)[:0].copy())
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.dtype
    return torch.float64


def _exact(value: Any) -> Tensor:
    tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    return tensor.to(torch.float64)


def _note(share: float) -> None:
    if "FORETEXT_MARGINS" not in os.environ:
        return
    if not _MARGINS:
        atexit.register(_write_margins)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
    _MARGINS[test] = max(share, _MARGINS.get(test, 0.0))


def _write_margins() -> None:
    folder = Path(os.environ["FORETEXT_MARGINS"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(json.dumps(_MARGINS))
