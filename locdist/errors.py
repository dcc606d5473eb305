"""Every error that locdist raises on purpose.

An error says what was expected, what was given and what to do; its class says who has to act, and with it the
exit code of the command line. Anything else that escapes is a fault of locdist itself (exit code 1).
"""

import difflib
from collections.abc import Iterable

LONGEST = 1500  # characters of a part of a message


class LocdistError(Exception):
    """An error with a remedy.

    Parameters
    ----------
    expected : str
        What would have been right, as a noun phrase: "queries [q, 8] to match the keys".
    given : str
        What was found instead, with its name, place and value.
    remedy : str
        What to do about it, as a sentence.
    """

    exit_code = 1

    def __init__(self, expected: str, given: str, remedy: str) -> None:
        expected, given = _shortened(expected), _shortened(given)  # they may quote what somebody wrote
        super().__init__(expected, given, remedy)
        self.expected = expected
        self.given = given
        self.remedy = remedy

    def __str__(self) -> str:
        return f"expected {self.expected}; got {self.given}. {self.remedy}"


def _shortened(text: str) -> str:
    """A text with its length in the place of its end when it is long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


class UsageError(LocdistError, ValueError):
    """Wrong use or configuration: raised at construction or planning, never inside a task."""

    exit_code = 2


class DataError(LocdistError, ValueError):
    """The data is not what was promised: a file, a column or a value."""

    exit_code = 3


class MachineError(LocdistError, RuntimeError):
    """A lost worker, a failed read, a lock held by another driver: the same command may succeed later."""

    exit_code = 4


class TooManyBadRows(DataError):
    """More bad rows than `max_bad` allows; everything else was written."""

    exit_code = 5


def each_meant(names: Iterable[object], known: Iterable[str]) -> str:
    """`did_you_mean` of several names."""
    there = list(known)
    return " ".join(dict.fromkeys(did_you_mean(name, there) for name in names))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence that points to the closest of the `known` names, or lists them."""
    names = list(known)
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(str(name).casefold(), list(folded), n=1)
    if close:
        return f"Did you mean {folded[close[0]]!r}?"
    shown = ", ".join(repr(other) for other in names[:12]) + (", ..." if len(names) > 12 else "")
    return f"There are: {shown or 'no columns'}."
