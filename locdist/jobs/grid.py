"""What a selection tries: methods with values for their parameters, or a range that is searched."""

import inspect
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.jobs.request import is_number, is_whole
from locdist.local.bandwidths import Nearest
from locdist.methods.method import Method
from locdist.methods.named import METHODS
from locdist.methods.named import method as named

GRID: Mapping[str, Any] = {"k": (8, 16, 32, 64, 128, 256)}


@dataclass(frozen=True)
class Between:
    """A range in which one parameter is searched by golden section; of whole numbers if both ends are.

    Parameters
    ----------
    low, high : int or float
        0 < low < high.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (is_number(self.low) and is_number(self.high) and 0 < self.low < self.high < float("inf")):
            given = f"{self.low!r} and {self.high!r}"
            raise UsageError("0 < low < high", given, "Write ld.Between(8, 512), say.")

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are tried."""
        return is_whole(self.low) and is_whole(self.high)


def told(grid: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A grid of a file: ranges are text, "8..512"."""
    return None if grid is None else {name: _told(values) for name, values in grid.items()}


def _told(values: Any) -> Any:
    low, dots, high = values.partition("..") if isinstance(values, str) else ("", "", "")
    try:
        ends = [_number(low), _number(high)] if dots else []
    except ValueError as error:
        raise UsageError("a range of two numbers", repr(values), "Write 8..512.") from error
    return Between(*ends) if ends else values


def _number(text: str) -> int | float:
    return int(text) if text.strip().isdigit() else float(text)


@dataclass(frozen=True)
class Space:
    """Methods to try: all of them, or those of a golden section over one parameter.

    Attributes
    ----------
    methods : tuple of Method
        All, or those at both ends of the range.
    parameter : str, optional
        The one that is searched.
    searched : Between, optional
    """

    methods: tuple[Method, ...]
    parameter: str = ""
    searched: Between | None = None

    def at(self, place: float) -> Method:
        """The method with another value of the parameter that is searched."""
        assert self.searched is not None
        value = int(place) if self.searched.whole else place
        return named(self.methods[0].spec | {self.parameter: value})


def spaces(methods: Any, grid: Mapping[str, Any] | None) -> list[Space]:
    """The spaces of all methods: values are combined, and each combination with a range is a space.

    A `Method` is a setting as it is; names and specs are combined with the grid.

    Raises
    ------
    UsageError
        For a parameter that none of the methods has, without any values, or a second range.
    """
    choices = [methods] if isinstance(methods, str | Mapping | Method) else list(methods)
    values = {name: listed(each) for name, each in (GRID if grid is None else grid).items()}
    if not choices or not all(values.values()):
        raise UsageError("methods, and values to try", f"{methods!r}, {grid!r}", "Name at least one of each.")
    families = [choice for choice in choices if not isinstance(choice, Method)]
    known = {name for choice in families for name in _parameters(choice)}
    for name in values:
        if name not in known and (grid is not None or families):
            given = f"{name!r} in the grid"
            raise UsageError("a parameter of the methods", given, did_you_mean(name, known))
    fixed = [Space((choice,)) for choice in choices if isinstance(choice, Method)]
    return fixed + [space for choice in families for space in _spaces(choice, values, grid is None)]


def _spaces(choice: str | Mapping[str, Any], values: Mapping[str, list[Any]], default: bool) -> list[Space]:
    spec = {"name": choice} if isinstance(choice, str) else dict(choice)
    have = _parameters(choice)
    tried = {name: each for name, each in values.items() if name in have and not (default and name in spec)}
    ranges = [name for name, each in tried.items() if any(isinstance(value, Between) for value in each)]
    if len(ranges) > 1 or any(len(tried[name]) > 1 for name in ranges):
        told = " and ".join(ranges) + (" with other values" if len(ranges) == 1 else "")
        raise UsageError(
            "one parameter with a range, and nothing beside it", told, "Give values for the others."
        )
    others = {name: each for name, each in tried.items() if name not in ranges}
    combined = [dict(zip(others, each, strict=True)) for each in itertools.product(*others.values())]
    if not ranges:
        return [Space(tuple(named(spec | each) for each in combined))]
    (name,) = ranges
    between = tried[name][0]
    ends = [int(end) if between.whole else end for end in (between.low, between.high)]
    return [
        Space(tuple(named(spec | each | {name: end}) for end in ends), name, between) for each in combined
    ]


def _parameters(choice: str | Mapping[str, Any]) -> tuple[str, ...]:
    name = choice if isinstance(choice, str) else str(choice.get("name"))
    if name not in METHODS:
        raise UsageError("a method", repr(name), did_you_mean(name, METHODS))
    return tuple(inspect.signature(METHODS[name]).parameters)


def listed(values: Any) -> list[Any]:
    """Values to try: a bandwidth may be a mapping, and is one value."""
    single = isinstance(values, str | Mapping | Nearest | Between) or not isinstance(values, Iterable)
    return [values] if single else list(values)
