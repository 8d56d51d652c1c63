"""Errors that a user can cause.

Every user mistake ends in a `UserError`: one line that says what is wrong, where (file, row, field) and what to do. The
command line prints that line and exits with `code`; nothing else in the package catches it. Broken invariants are
`assert`s, not user errors.

Exit codes: 0 done; 1 a bug in foretext; 2 a mistake in the input or the arguments; 3 training stopped because the loss
was not finite; 4 a limit of the machine (disk full, out of memory); 130 after Ctrl-C and 143 after SIGTERM, with a
checkpoint if training had begun; 141 if the reader closed standard output.
"""

import difflib
import math
import operator
from collections.abc import Iterable, Mapping

EXIT_BUG = 1
EXIT_USER = 2
EXIT_NOT_FINITE = 3
EXIT_MACHINE = 4
_BOUNDS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}


class UserError(Exception):
    """One line for the user: what is wrong, where, and what to do."""

    def __init__(self, message: str, code: int = EXIT_USER) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code


def refuse_if(wrong: object, message: str, code: int = EXIT_USER) -> None:
    """UserError with this message if `wrong` is true."""
    if wrong:
        raise UserError(message, code)


def check_range(section: str, config: object, limits: str, *names: str) -> None:
    """UserError unless these numbers are finite and within the bounds `limits`, such as "at least 0 and below 1".
    `section` is named in the message ("": none)."""
    bounds = [part.rsplit(" ", 1) for part in limits.split(" and ")]
    for name in names:
        value = getattr(config, name)
        within = (_BOUNDS[word](value, float(bound.replace(",", ""))) for word, bound in bounds)
        refuse_if(
            not (all(within) and -math.inf < value < math.inf),
            f"{section}.{name}".removeprefix(".") + f" must be {limits}, not {value}",
        )


class Interrupted(Exception):
    """Work ended early on a signal; `code` is the exit code (130 or 143).

    `where` is the run that holds the work so far; None if nothing was kept because training had not begun or has no
    directory.
    """

    def __init__(self, code: int, where: str | None, then: str = "continue with --resume") -> None:
        kept = f"everything so far is in {where}; {then}" if where else "nothing was saved; run the same command again"
        super().__init__(f"stopped by a signal; {kept}")
        self.code = code


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, ignoring case; None if none is similar."""
    folded = {candidate.strip().casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name[:200].strip().casefold(), list(folded), n=1, cutoff=0.5)
    return folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The hint after a misspelt name in a message."""
    near = closest(name, known)
    return f" (did you mean {near!r}?)" if near else ""


def counted(number: int, noun: str) -> str:
    """`1 step`, `2,000 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def refuse(given: Mapping[str, object], why: str) -> None:
    """UserError for the first of these options that was given: it would be ignored."""
    for option, value in given.items():
        refuse_if(value is not None, f"{option} {why}")
