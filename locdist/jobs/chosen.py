"""A method that was chosen on data, as a file: what `select` writes, and what can stand for the name of a
method.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from locdist.data.artefacts import packed, peeked, unpacked
from locdist.data.keymap import KeyMap
from locdist.data.store import Store
from locdist.errors import DataError
from locdist.methods.method import Method
from locdist.methods.named import method as named

FORMAT = 1
WHAT = "a method as `locdist select` or `locdist tune` wrote it"
REMEDY = "Choose it again."


@dataclass(frozen=True)
class Chosen:
    """A method and why it was chosen.

    Parameters
    ----------
    method : dict
        Its `spec`.
    why : dict
        JSON-able: the criterion, the rows it was computed on, and what else a reader may ask.
    map : KeyMap, optional
        Of the key, where the method was learned with one.
    """

    method: dict[str, Any]
    why: dict[str, Any] = field(default_factory=dict)
    map: KeyMap | None = None
    format: int = FORMAT


def is_file(choice: object) -> bool:
    """Whether a choice names a file and not a method."""
    return isinstance(choice, Path) or (isinstance(choice, str) and choice.endswith(".json"))


def write_method(
    method: Method, place: str | Path, why: Mapping[str, Any], map: KeyMap | None = None
) -> None:
    """Write a method, atomically, to a path or URI that ends in .json."""
    folder, name = located(place)
    folder.write(name, written(method, why, map))


def written(method: Method, why: Mapping[str, Any], map: KeyMap | None = None) -> bytes:
    """The file of a method."""
    return packed(asdict(Chosen(method.spec, dict(why), map)), indent=1)


def read_method(choice: str | Path | Mapping[str, Any] | Method) -> Method:
    """The method that a file holds; any other choice as `methods.named.method` takes it.

    Raises
    ------
    DataError
        When there is no file, or its content is not what was written.
    """
    if not isinstance(choice, str | Path) or not is_file(choice):
        return named(choice) if not isinstance(choice, Path) else named(str(choice))
    return named(_read(choice).method)


def read_map(place: str | Path) -> KeyMap:
    """The map of the key that a file holds beside its method.

    Raises
    ------
    DataError
        When there is no file, no map in it, or its content is not what was written.
    """
    found = _read(place).map
    if found is None:
        raise DataError(
            "a file with a map, as `locdist tune` writes it", f"{place} without", "Tune a method."
        )
    return found


def _read(choice: str | Path) -> Chosen:
    folder, name = located(choice)
    place = folder.path(name)
    if not folder.exists(name):
        raise DataError(WHAT, f"no file {place}", "Correct the path, or choose a method by name.")
    text = folder.read(name)
    version = peeked(text, "format")
    if type(version) is int and version != FORMAT:
        raise DataError(f"{WHAT}, of format {FORMAT}", f"{place} of format {version}", REMEDY)
    return unpacked(Chosen, text, WHAT, place, REMEDY)


def located(place: str | Path) -> tuple[Store, str]:
    """The folder of a file, and its name there."""
    parent, slash, name = str(place).rpartition("/")
    return Store.at(parent or slash or "."), name
