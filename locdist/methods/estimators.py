"""Estimators of other libraries as files and command lines spell them: a path of a class, and parameters."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from locdist.errors import UsageError, did_you_mean
from locdist.local.parametric import Named

LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")  # whose classes a pipeline file may name
_TAKES = ("fit", "predict", "get_params")


def estimator_of(path: object, parameters: Mapping[str, Any] | None = None, own: tuple[str, ...] = ()) -> Any:
    """What the class of a path, "sklearn.tree.DecisionTreeRegressor", makes of parameters; not fitted.

    Parameters
    ----------
    path : str
    parameters : mapping, optional
        A `random_state` is 0 if none is given.
    own : tuple of str
        Other words that might have been meant.

    Raises
    ------
    UsageError
        For what cannot be imported, is no class of estimators, or does not take such parameters.
    """
    if not isinstance(path, str) or "." not in path.replace(":", "."):
        remedy = "Write estimator=sklearn.linear_model.Ridge."
        raise UsageError("an estimator as package.module.Class", repr(path), remedy)
    module, _, name = path.replace(":", ".").rpartition(".")
    kind = Named(f"{module}:{name}").value
    if not isinstance(kind, type) or not all(callable(getattr(kind, each, None)) for each in _TAKES):
        wanted = f"a class with {', '.join(_TAKES)}"
        raise UsageError(wanted, f"{path}, a {type(kind).__name__}", "Choose one as scikit-learn has them.")
    known, given = inspect.signature(kind).parameters, dict(parameters or {})
    free = any(each.kind == each.VAR_KEYWORD for each in known.values())
    for word in given:
        if word not in known and not free:
            raise UsageError(f"a parameter of {name}", repr(word), did_you_mean(word, (*known, *own)))
    try:
        found = kind(**given)
        if "random_state" not in given and found.get_params().get("random_state", 0) is None:
            found = kind(**given, random_state=0)  # the same whenever it is fitted again
        return found
    except (TypeError, ValueError) as error:
        raise UsageError(f"parameters that {name} takes", f"{given} ({error})", "Correct them.") from error


def with_parameters(choice: Mapping[str, Any], make: Callable[..., object] | None) -> dict[str, Any]:
    """A spelled choice whose words that `make` does not know are the parameters of its estimator."""
    own = () if make is None else inspect.signature(make).parameters
    others = {word: value for word, value in choice.items() if word != "name" and word not in own}
    given = {word: value for word, value in choice.items() if word not in others}
    told = given.get("parameters") or {}
    if not isinstance(told, Mapping):
        raise UsageError("parameters of the estimator by name", repr(told), "Write max_depth=4.")
    return given | ({"parameters": {**told, **others}} if others else {})


def check_estimator(estimator: Any) -> None:
    """UsageError for one whose rows cannot have weights."""
    taken = inspect.signature(estimator.fit).parameters
    if "sample_weight" not in taken:
        given = f"{type(estimator).__name__}, whose fit takes {', '.join(taken) or 'nothing'}"
        remedy = "Choose another one, or wrap it in a class whose fit does."
        raise UsageError("an estimator whose fit takes sample_weight", given, remedy)


def check_file(choice: Any) -> None:
    """UsageError for a choice of a file that names code other than the estimators of known libraries."""
    path = choice.get("estimator") if isinstance(choice, Mapping) else None
    if isinstance(path, str) and path.replace(":", ".").partition(".")[0] not in LIBRARIES:
        wanted = f"an estimator of {', '.join(LIBRARIES)} in a file"
        raise UsageError(wanted, repr(path), "Code of your own is named on the command line, or in Python.")
