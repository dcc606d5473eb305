"""What is wrong in a pipeline file: each mistake with its place, all of them told at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from locdist.errors import UsageError

Path = tuple[str | int, ...]
CHANGE = "--set "  # begins the places of changed values


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong.

    Parameters
    ----------
    path : tuple of str and int
        Where in the content: ("steps", 0, "predict", "k").
    expected, given, remedy : str
        As in every error of locdist.
    place : str
        Where it was written: "nightly.yaml:12", "--set run.workers"; empty for content made in Python.
    """

    path: Path
    expected: str
    given: str
    remedy: str
    place: str = ""

    @property
    def where(self) -> str:
        """The place and the path, as far as they are known; a change says its path itself."""
        path = "" if self.place.startswith(CHANGE) else dotted(self.path)
        return ", ".join(part for part in (self.place, path) if part)

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}expected {self.expected}; got {self.given}. {self.remedy}".rstrip()


def error(mistakes: Sequence[Mistake], name: str) -> UsageError:
    """All mistakes of the file `name` as one error; a single one in the form of every other error."""
    if len(mistakes) == 1:
        (one,) = mistakes
        given = f"{one.given} ({one.where})" if one.where else one.given
        return UsageError(one.expected, given, one.remedy or _SCHEMA)
    told = "\n".join(f"  {mistake}" for mistake in mistakes)
    return UsageError("a pipeline without mistakes", f"{len(mistakes)} in {name}", f"Correct them:\n{told}")


def dotted(path: Path) -> str:
    """A path as it is written behind --set."""
    return ".".join(map(str, path))


_SCHEMA = "`locdist schema` prints what a pipeline file can say, for editors and for you."
