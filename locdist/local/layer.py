"""The one operation: retrieve neighbors, weigh them, solve a local model for every query.

The layer searches once and then works in tiles, each a multiple of a fixed number of queries, that fit the
cache. An answer depends on the queries that came with it by rounding at most: small matrices are multiplied
differently in different places.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import LEVERAGE, NEGLECTED, WANTS, Answers, Status
from locdist.local.heap import keep_memory
from locdist.local.kernels import DotProduct, Kernel, weigh
from locdist.local.models import LocalModel
from locdist.local.moments import Asked, Batch, sums
from locdist.local.neglected import neglected, sample_of
from locdist.local.neighborhood import Neighborhood
from locdist.local.summed import is_summable, names, summed, targeted, terms_of
from locdist.local.tiles import tiles, together

_NARROW = frozenset({"targets", "codes", "density"})  # gathered for all queries at once; vectors tile by tile
_UNDERFLOW = math.log(torch.finfo(torch.float64).tiny)


class Index(Protocol):
    """A support that can be searched."""

    @property
    def metric(self) -> str:
        """What distances are: squared ("l2", and "cosine" of unit rows) or minus an inner product ("ip")."""

    @property
    def apart(self) -> bool:
        """Whether rows have features apart from their keys."""

    def search(self, queries: Tensor, k: int, own: Tensor | None) -> Neighborhood:
        """Distances and ids of the k nearest rows of finite queries [q, d], never a query's row `own` [q].

        The rows may come in any order; `order` of the result then says which query each one is.
        """

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """All rows of the support, with the columns that `needs` names, in any order."""

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """The same neighborhoods with `needs` filled in beside what is: "keys", "targets", "codes",
        "features", "shapes".

        Row weights are filled in whenever the support has them. "codes" are targets with their number of
        classes; for "density" `support` is filled in. Missing neighbors (id -1) may be filled with anything.
        The layer has filled in `queries` and `query_features`.
        """


@runtime_checkable
class Numbered(Protocol):
    """An index whose ids are not the numbers by which `own` knows its rows."""

    def sources(self, ids: Tensor) -> Tensor:
        """These numbers of rows `ids` [q, k]; -1 where missing."""


@dataclass(frozen=True)
class Layer:
    """A kernel and a local model over k neighbors, or over all the support.

    Parameters
    ----------
    k : int or None
        Neighbors of a query, at least 1; None is every row of the support, with a kernel of a bandwidth of
        its own and a model that sums suffice for (`local.summed`).
    kernel : Kernel
    model : LocalModel
    leave_one_out : bool
        Whether a query that is a row of the support, known by its id, must not explain itself.

    Raises
    ------
    UsageError
        If k is not a positive whole number, or kernel or model do not go with all the support.
    """

    k: int | None
    kernel: Kernel
    model: LocalModel
    leave_one_out: bool = False

    def __post_init__(self) -> None:
        if self.k is None:
            return _check_everything(self.kernel, self.model)
        try:
            k = 0 if isinstance(self.k, bool) else operator.index(self.k)
        except TypeError:
            k = 0
        if k < 1:
            raise UsageError(
                "k, a whole number of at least 1", repr(self.k), "Choose how many neighbors count."
            )
        object.__setattr__(self, "k", k)

    @property
    def neighbors(self) -> int:
        """k, and 0 where every row counts."""
        return self.k or 0

    @property
    def needs(self) -> frozenset[str]:
        """What an index must gather for this layer."""
        return self.kernel.needs | self.model.needs

    def shape(self, key: Sequence[str], targets: Sequence[str]) -> tuple[str, ...]:
        """Names of the numbers that each row has for kernel and model."""
        return (*self.kernel.shape(key), *self.model.shape(key, targets))

    def check(self, metric: str) -> None:
        """UsageError unless kernel and model go with the metric of an index: scores are no distances, and
        unit vectors fill no space.
        """
        if isinstance(self.kernel, DotProduct) != (metric == "ip"):
            raise UsageError(
                "the dot-product kernel with the metric 'ip', and any other kernel with a distance",
                f"kernel {self.kernel.name!r} on an index of metric {metric!r}",
                "Choose another kernel, or index with another metric.",
            )
        if "density" in self.model.needs and metric != "l2":
            raise UsageError("metric 'l2' for a density", repr(metric), "Index with metric='l2'.")

    def solve(self, hood: Neighborhood, want: frozenset[str] = frozenset()) -> Answers:
        """Answers of one tile whose neighborhoods hold what the layer `needs`."""
        weights = weigh(self.kernel, hood)
        if "density" in self.model.needs:
            hood = replace(hood, mass=weights.total - self.kernel.log_volume(hood))
        answers = self.model.predict(hood, weights.weights, want)
        _check_count(self.model, hood, answers)
        k = hood.ids.shape[1] if self.k is None else self.k
        status = (hood.absent.sum(1) > hood.ids.shape[1] - k).to(torch.int8) * int(Status.FEW)
        return self._supported(replace(answers, status=torch.maximum(answers.status, status)), weights.peak)

    def _supported(self, answers: Answers, peak: Tensor) -> Answers:
        """The answers, with LOW_SUPPORT where the largest log weight [q] says that everybody is far away."""
        if not self.kernel.absolute:
            return answers
        low = (peak < _UNDERFLOW).to(torch.int8) * int(Status.LOW_SUPPORT)
        return replace(answers, status=torch.maximum(answers.status, low))

    def __call__(
        self,
        index: Index,
        queries: Tensor,
        query_features: Tensor | None = None,
        own: Tensor | None = None,
        bad: Tensor | None = None,
        want: frozenset[str] = frozenset(),
        device: str = "cpu",
        offsets: Tensor | None = None,
    ) -> Answers:
        """Answers to all queries, in their order.

        Parameters
        ----------
        index : Index
        queries : Tensor [q, d]
        query_features : Tensor [q, m], optional
            What the local model is evaluated at; the queries themselves by default.
        own : Tensor [q] int64, optional
            The support's row that each query is, -1 for none; without `leave_one_out` for leverages alone.
        bad : Tensor [q] bool, optional
            Queries known to be bad. Those that are not finite are bad too; they get the status BAD_QUERY.
        want : frozenset of str
            Of "effective", "spread", "coefficients", "neighbors", "neglected", "leverage".
        device : str
            The torch device on which the models are solved; the search and the answers stay where the queries
            are.
        offsets : Tensor [q], optional
            What is added to the linear predictor of the queries; 0 by default.

        Raises
        ------
        UsageError
            If shapes or kernel and metric do not fit, or something unknown is wanted.
        """
        keep_memory(by_name=False)
        features = queries if query_features is None else query_features
        self.check(index.metric)
        if index.apart and query_features is None and "features" in self.needs:
            raise UsageError(
                "features of the queries, as the support has features apart from its keys",
                "queries alone",
                "Pass features=[q, m] beside the queries.",
            )
        _check(queries, features, own, bad, want, offsets)
        left = own if self.leave_one_out else None
        refused = _refused(queries, query_features, bad)
        if refused.any():
            queries, features = (tensor.masked_fill(refused[:, None], 0.0) for tensor in (queries, features))
        if not len(queries):  # one query that is not asked gives the answer its shapes
            nobody = torch.full((1,), -1, device=queries.device)
            alone = (queries.new_zeros(1, queries.shape[1]), features.new_zeros(1, features.shape[1]))
            return self(index, *alone, own=nobody, want=want, device=device).rows(slice(0))
        if self.k is None:
            answers = self._everywhere(index, Asked(queries, features, left).to(device), want, device)
            return answers.refuse(refused, Status.BAD_QUERY) if refused.any() else answers
        hood = index.search(queries, self.k, left)
        order = hood.order
        hood = replace(hood, queries=_placed(queries, order), query_features=_placed(features, order))
        hood = hood if own is None else replace(hood, own=_placed(own, order))
        hood = hood if offsets is None else replace(hood, query_offsets=_placed(offsets, order))
        hood = hood if left is None or hood.own is None else replace(hood, alone=hood.own >= 0)
        hood = index.gather(hood, self.needs & _NARROW)
        parted = tiles(hood, self._together(hood))
        parts = [self._tile(index, tile, want, device).rows(slice(count)) for tile, count in parted]
        answers = Answers.concatenate(parts)
        answers = answers if order is None else answers.reorder(order)
        return answers.refuse(refused, Status.BAD_QUERY) if refused.any() else answers

    def _together(self, hood: Neighborhood) -> int:
        """Queries of a tile: many, where there is little to do for each, since operations of a few
        microseconds keep threads waiting for each other.
        """
        assert hood.queries is not None
        assert hood.query_features is not None
        columns = self.model.columns(self.neighbors, hood.query_features.shape[1])
        columns += hood.queries.shape[1] if "keys" in self.needs else 0
        columns += 1 if hood.targets is None else hood.targets.shape[2]
        return together(max(self.neighbors * columns, (hood.classes * columns) ** 2))

    def _everywhere(self, index: Index, asked: Asked, want: frozenset[str], device: str) -> Answers:
        if want & {"neighbors", LEVERAGE}:
            given = "k=None, where every row is one"
            remedy = "Leave out `neighbors` (--explain) and `leverage`, or choose k."
            raise UsageError("k neighbors to list", given, remedy)
        batches = (targeted(self.model, batch.to(device)) for batch in index.batches(self.needs))
        terms = terms_of(self.model)
        errors = bool(want) or terms is None  # of a constant they cost nothing, and a variance needs them
        found = sums(self.kernel, terms, asked, batches, index.metric, errors)
        if "density" in self.model.needs:
            here = Neighborhood(found.peak[:, None], torch.zeros_like(found.peak[:, None]), asked.queries)
            found = replace(found, volume=self.kernel.log_volume(here))
        answers = self._supported(summed(self.model, found, want), found.peak).to("cpu")
        nothing = torch.zeros_like(answers.values[:, 0]) if NEGLECTED in want else None
        return replace(answers, neglected=nothing)

    def _tile(self, index: Index, tile: Neighborhood, want: frozenset[str], device: str) -> Answers:
        wide, home = self.needs - _NARROW, str(tile.ids.device)
        tile = index.gather(tile, wide) if wide else tile
        rows = want | {"neighbors"} if LEVERAGE in want else want
        answers = self.solve(tile.to(device), rows).to(home)
        if LEVERAGE in want:
            answers = _counted(answers, tile, index, want)
        if NEGLECTED not in want:
            return answers
        return replace(
            answers, neglected=neglected(self.kernel, tile, sample_of(index, self.kernel), index.metric)
        )


def _placed(values: Tensor, order: Tensor | None) -> Tensor:
    return values if order is None else values[order]


def _counted(answers: Answers, tile: Neighborhood, index: Index, want: frozenset[str]) -> Answers:
    """The answers with leverages, and with neighbors only where these are wanted too."""
    assert tile.own is not None
    if answers.smoother is None:
        raise UsageError("a model that lists its smoother, for leverages", "none", "Leave `leverage` out.")
    rows = index.sources(tile.ids) if isinstance(index, Numbered) else tile.ids
    answers = replace(answers, leverage=answers.smoother.masked_fill(rows != tile.own[:, None], 0.0).sum(1))
    return answers if "neighbors" in want else answers.unlisted()


def _check_everything(kernel: Kernel, model: LocalModel) -> None:
    """UsageError unless kernel and model work without neighbors."""
    if not is_summable(model):
        raise UsageError(
            f"a model of sums for k=None ({', '.join(sorted(names()))})",
            type(model).__name__,
            "Choose how many neighbors count, k.",
        )
    if kernel.adaptive:
        raise UsageError(
            "a distance as the bandwidth, for k=None (all the support)",
            f"kernel {kernel.name!r} with a bandwidth that the k-th or an own neighbor sets",
            "Give the distance: bandwidth=0.5, --bandwidth 0.5 say.",
        )


def _check_count(model: LocalModel, hood: Neighborhood, answers: Answers) -> None:
    """UsageError for a model that answers more or fewer queries than it was asked: nothing is repeated."""
    asked, given = len(hood.ids), {len(answers.values), len(answers.status)}
    if given != {asked}:
        raise UsageError(
            f"{asked} answers of {type(model).__name__}, one for each query",
            " and ".join(map(str, sorted(given))),
            "Its `predict` returns values and a status for each row of the neighborhood.",
        )


def _refused(queries: Tensor, query_features: Tensor | None, bad: Tensor | None) -> Tensor:
    refused = torch.zeros(len(queries), dtype=torch.bool, device=queries.device) if bad is None else bad
    for values in (queries,) if query_features is None else (queries, query_features):
        if not values.sum().isfinite():  # one pass tells that all are; a sum may overflow where none is not
            refused = refused | ~values.isfinite().all(1)
    return refused


def _check(
    queries: Tensor,
    features: Tensor,
    own: Tensor | None,
    bad: Tensor | None,
    want: frozenset[str],
    offsets: Tensor | None,
) -> None:
    if queries.ndim != 2 or features.ndim != 2:
        raise UsageError(
            "queries [q, d] and query features [q, m]",
            f"{list(queries.shape)} and {list(features.shape)}",
            "Give a matrix with one row for each query; a single query is [1, d].",
        )
    lengths = {len(tensor) for tensor in (queries, features, own, bad, offsets) if tensor is not None}
    if len(lengths) > 1:
        expected = "as many features, own, bad and offsets as queries"
        raise UsageError(expected, f"{sorted(lengths)} rows", "Align them.")
    if LEVERAGE in want and own is None:
        remedy = "Pass own=[q] beside the queries."
        raise UsageError("the row of the support that each query is, for leverages", "queries alone", remedy)
    known = WANTS | {NEGLECTED, LEVERAGE}
    if want - known:
        raise UsageError(f"want of {sorted(known)}", repr(sorted(want - known)), "Correct the name.")
