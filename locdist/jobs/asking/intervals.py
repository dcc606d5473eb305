"""Intervals that hold a share of new targets: "interval" (nine in ten) or "interval=0.8" among the extras."""

from collections.abc import Sequence

import pyarrow as pa
from torch import Tensor

from locdist.errors import UsageError

INTERVAL = "interval"
USUAL = 0.9
Multiples = Sequence[tuple[float, float]]


def is_interval(extra: str) -> bool:
    """Whether an extra names an interval."""
    return extra == INTERVAL or extra.startswith(f"{INTERVAL}=")


def reaches(extras: Sequence[str], known: Multiples) -> list[tuple[str, float]]:
    """For each interval among the extras the ending of its columns, and the multiple of the spread.

    Parameters
    ----------
    extras : sequence of str
    known : sequence of (level, multiple)
        Of the method.

    Raises
    ------
    UsageError
        When the method has none of that level.
    """
    found = []
    for extra in filter(is_interval, extras):
        _, named, text = extra.partition("=")
        level, multiples = _level(text) if named else USUAL, dict(known)
        if level not in multiples:
            levels = ", ".join(f"{each:g}" for each in multiples) or "none"
            wanted = f"an interval that the method was tuned for ({levels})"
            raise UsageError(wanted, extra, "`locdist tune` writes methods with intervals.")
        found.append((f"_{level:g}" if named else "", multiples[level]))
    return found


def fields(reach: Sequence[tuple[str, float]], endings: Sequence[str]) -> list[pa.Field]:
    """The columns of intervals of values with these endings."""
    return [
        pa.field(f"{side}{suffix}{ending}", pa.float64())
        for suffix, _ in reach
        for ending in endings
        for side in ("lower", "upper")
    ]


def bounds(reach: Sequence[tuple[str, float]], values: Tensor, spread: Tensor) -> list[Tensor]:
    """Lower and upper bounds [q] in the order of `fields`, of values and spreads [q, p]."""
    return [
        values[:, place] + sign * multiple * spread[:, place]
        for _, multiple in reach
        for place in range(values.shape[1])
        for sign in (-1, 1)
    ]


def _level(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UsageError("interval=LEVEL with a number", repr(text), "Write interval=0.8.") from error
