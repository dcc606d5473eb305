"""Methods by their names and parameters, as files and command lines spell them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from locdist.errors import UsageError, did_you_mean

Made = TypeVar("Made")


def spelled(choice: str | Mapping[str, Any], table: Mapping[str, Callable[..., Made]], what: str) -> Made:
    """What a name of a table makes, or a name and parameters: {"name": "lle", "k": 20}.

    Raises
    ------
    UsageError
        For an unknown name or parameter, with the one that was probably meant; for one that is missing.
    """
    given = {"name": choice} if isinstance(choice, str) else dict(choice)
    name = str(given.pop("name", None))
    if name not in table:
        raise UsageError(what, repr(name), did_you_mean(name, table))
    known = inspect.signature(table[name]).parameters
    for word in given:
        if word not in known:
            raise UsageError(f"a parameter of {name}", repr(word), did_you_mean(word, known))
    lost = [word for word, each in known.items() if each.default is each.empty and word not in given]
    if lost:
        remedy = f"Give it: --param {lost[0]}=VALUE in a command, {lost[0]}: VALUE beside the name in a file."
        raise UsageError(f"{name} with {', '.join(lost)}", "none", remedy)
    return table[name](**given)
