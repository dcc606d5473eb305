"""`select`: the setting that answers the support's own rows best, from one search of a sample of them."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset, checked
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.bandwidth import Sites, searched, wanted
from locdist.jobs.build_index import build_index
from locdist.jobs.grid import Space, spaces
from locdist.jobs.predict import check
from locdist.jobs.sample import Bench, Sample
from locdist.jobs.telling.selection import Selection, Trial
from locdist.local.select import check_criterion, golden
from locdist.methods.method import Method
from locdist.search.exact import Exact
from locdist.search.files import release
from locdist.search.generation import Generation, open_index

Choice = str | Mapping[str, Any] | Method
ROWS, GWR_ROWS = 2000, 20_000  # that are asked by default


def select(
    methods: Choice | Sequence[Choice],
    support: Dataset | Generation | Exact | str | Path,
    *,
    grid: Mapping[str, Any] | None = None,
    criterion: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    bad: str = "raise",
) -> Selection:
    """Choose among methods and their parameters by how well they answer rows of the support itself.

    The rows of a random sample are searched once, with the largest k; every setting reuses their neighbors.

    Parameters
    ----------
    methods : str, spec, Method, or a list of these
        "local-linear", {"name": "local-linear", "ridge": 0.1}, ld.knn(k=5).
    support : Dataset, or an index
        From `ld.dataset` (it is indexed in a temporary folder first), `ld.build_index` or `ld.Exact`.
    grid : mapping of str to values, optional
        Values to try by parameter: {"k": [16, 32, 64], "kernel": ["tricube", "gaussian"]}. All combinations
        are tried, of the parameters that a method has. `ld.Between(low, high)` in the place of the values
        searches that parameter by golden section, for every combination of the others. Default: k from 8 to
        256 by factors of 2. "gwr" without k is a search for its bandwidth: a number of neighbors, or with
        {"bandwidth": "fixed"} a distance, in a range that is found, or is given as `ld.Between`.
    criterion : {"loo", "log-likelihood", "aicc", "aic", "bic", "gcv"}, optional
        The smaller the better. "loo": mean squared leave-one-out error, for classes the log-loss.
        "log-likelihood": minus the mean log-likelihood of each row given the others. The rest are in-sample,
        with the trace of the hat matrix for the number of parameters. A method whose convention counts a row
        among its own neighbors (`gwr`) is left one out in closed form, (y − ŷ) / (1 − s_ii); others are
        asked without the row. Default: "aicc" for `gwr`, else "loo".
    sample : int, optional
        Rows that are asked; at most all of them. Default: 20,000 for `gwr`, else 2,000.
    seed : int
        Of the sample.
    bad : {"raise", "drop"}
        As in `build_index`.

    Returns
    -------
    Selection
        `best` is a Method, `table` has a row for each setting.

    Raises
    ------
    UsageError, DataError
    """
    choices = [methods] if isinstance(methods, str | Mapping | Method) else list(methods)
    searches = {number: wanted(choice, grid) for number, choice in enumerate(choices)}
    rest = [choice for number, choice in enumerate(choices) if not searches[number]]
    found = spaces(rest, grid) if rest or not choices else []
    sought = [search for each in searches.values() for search in each]
    tried = [each for space in found for each in space.methods]
    regression = not any(method.layer.leave_one_out for method in tried)
    criterion = criterion or ("aicc" if regression else "loo")
    asked = sample or (GWR_ROWS if regression else ROWS)
    with opened(support, bad) as index:
        sites = Sites(index, criterion, asked, seed)
        ends = [search.at(search.between.low if search.between else 1.0, sites.rows) for search in sought]
        _check([*tried, *ends], index, criterion)
        trials: list[Trial] = []
        if tried:
            most = max(method.layer.neighbors for method in tried)
            bench = Bench(Sample.of(index, most, asked, seed), criterion)
            trials += [trial for space in found for trial in _tried(bench, space)]
        trials += [trial for search in sought for trial in searched(sites, search)]
        return Selection(tuple(trials), criterion, len(sites.own), sites.rows)


def _check(methods: Sequence[Method], index: Exact | Generation, criterion: str) -> None:
    """UsageError for methods that cannot be compared, or not on this index."""
    for method in methods:
        check_criterion(criterion, method.layer.model)
        if method.layer.k is None:
            raise UsageError("a number of neighbors", f"{method.name} with k=None", "Give k.")
        if isinstance(index, Generation):
            check(method, index, own=True)
    if len({"codes" in method.layer.needs for method in methods}) > 1:
        given = ", ".join(dict.fromkeys(method.name for method in methods))
        raise UsageError("methods for numbers, or methods for classes", given, "Select among one kind.")


def _tried(bench: Bench, space: Space) -> list[Trial]:
    """The trials of a space: all of its methods, or those that a golden section asks for."""
    if space.searched is None:
        return bench.trials(space.methods)
    trials: dict[float, Trial] = {}

    def value(place: float) -> float:
        (trials[place],) = bench.trials([space.at(place)])
        return trials[place].score.value

    between = space.searched
    golden(value, between.low, between.high, between.whole)
    return [trials[place] for place in sorted(trials)]


@contextmanager
def opened(support: object, bad: str) -> Iterator[Exact | Generation]:
    """The index of a support, for a while."""
    if isinstance(support, Exact | Generation):
        yield support
    elif isinstance(support, str | Path):
        yield open_index(support)
    else:
        with tempfile.TemporaryDirectory(prefix="locdist-") as place:
            index = build_index(checked(support), Store.at(place).uri, bad=bad)
            yield index
            release(index.folder, index.fingerprint)
