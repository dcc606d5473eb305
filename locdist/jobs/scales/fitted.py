"""A backfitted model: what is fitted, and what is told of each site."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes a second to import
from torch import Tensor

from locdist.errors import DataError
from locdist.jobs.telling.scales import Scales
from locdist.local.answers import Status
from locdist.local.multiscale import State
from locdist.local.neighborhood import Neighborhood
from locdist.local.select import Judged, score
from locdist.local.sites import Sites
from locdist.search.exact import Exact
from locdist.search.generation import Generation

LEVEL = 0.05
CONSTANT = 1e-12  # of a column's size: a spread below is none


@dataclass(frozen=True, eq=False)
class Standardized:
    """The rows of an index: sites whose terms, but the intercept, have mean 0 and variance 1, as the target
    has.

    Attributes
    ----------
    names : tuple of str
        Of the terms.
    sites : Sites
    target : Tensor [n]
    center, scale : Tensor [c]
        Of the target (of 0s) and the features, as the index has them.
    level : float
        Mean of the target.
    units : Tensor [c]
        What coefficients are multiplied by to have the user's units.
    """

    names: tuple[str, ...]
    sites: Sites
    target: Tensor
    center: Tensor
    scale: Tensor
    level: float
    units: Tensor

    @staticmethod
    def of(index: Exact | Generation) -> "Standardized":
        """All rows; DataError for columns that do not vary."""
        stored = index.layout.rows if isinstance(index, Generation) else len(index.rows)
        ids = torch.arange(stored)[:, None]
        hood = Neighborhood(torch.zeros(stored, 1), ids)
        hood = index.gather(hood, frozenset({"keys", "features", "targets"}))
        assert hood.keys is not None
        assert hood.features is not None
        assert hood.targets is not None
        features, target = hood.features[:, 0].double(), hood.targets[:, 0, 0].double()
        names, units = _named(index, features.shape[1])
        (level,), (size,) = (each.tolist() for each in _moments(target[:, None], ("the target",)))
        center, scale = _moments(features, names)
        terms = torch.cat([torch.ones_like(features[:, :1]), (features - center) / scale], 1)
        sites = Sites(hood.keys[:, 0], terms, index.metric)
        units = size * torch.cat([units.new_ones(1), units / scale])
        own = ("intercept", *names)
        return Standardized(own, sites, (target - level) / size, center, scale, level, units)

    def terms(self, features: Tensor) -> Tensor:
        """The terms [q, c] of other rows with features [q, m]."""
        return torch.cat([torch.ones_like(features[:, :1]), (features - self.center) / self.scale], 1)


def _named(index: Exact | Generation, count: int) -> tuple[tuple[str, ...], Tensor]:
    if isinstance(index, Exact):
        return tuple(f"feature_{number}" for number in range(count)), torch.ones(count, dtype=torch.float64)
    encoding = index.features or index.key
    return encoding.names, torch.from_numpy(encoding.units[1:])


def _moments(columns: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    center, scale = columns.mean(0), columns.std(0, correction=0)
    still = ~(scale > CONSTANT * columns.abs().amax(0))
    if still.any():
        given = ", ".join(name for name, flat in zip(names, still.tolist(), strict=True) if flat)
        raise DataError(
            "columns that vary", f"{given} without", "Leave them out: there is an intercept anyway."
        )
    return center, scale


@dataclass(frozen=True, eq=False)
class Fitted:
    """What is told of each site, in the user's units.

    Attributes
    ----------
    coefficients, errors, ratios : Tensor [n, c]
        Estimates, their standard errors, and t: the ratio of the two (of the intercept, which is the value
        where all features have their means, that of its distance from the mean of the target).
    values, residuals : Tensor [n]
    influence : Tensor [n]
        Weight of each target in its own value.
    status : Tensor [n] int8
        As `status_of` has it.
    """

    coefficients: Tensor
    errors: Tensor
    ratios: Tensor
    values: Tensor
    residuals: Tensor
    influence: Tensor
    status: Tensor


def status_of(deficient: Tensor, rests: bool) -> Tensor:
    """Statuses [n]: RANK_DEFICIENT where a coefficient is not identified, and NOT_CONVERGED everywhere if the
    parts have not settled.
    """
    status = deficient.to(torch.int8) * int(Status.RANK_DEFICIENT)
    return status if rests else torch.full_like(status, int(Status.NOT_CONVERGED))


def explained(rows: Standardized, state: State, squares: Tensor, own: Tensor) -> tuple[Fitted, Scales]:
    """What a state says of its sites, and of its terms.

    Parameters
    ----------
    rows : Standardized
    state : State
    squares : Tensor [n, c]
        Of each coefficient the squares of what makes it from the targets, summed.
    own : Tensor [n, c]
        Weight of each target in its own part.
    """
    n, error = len(state.error), state.error
    enp, rss = own.sum(0), float(error.square().sum())
    free = n - float(enp.sum())
    if not free > 2:
        raise DataError("more sites than parameters", f"{n} for {float(enp.sum()):.1f}", "Raise `low`.")
    sigma2 = rss / free
    errors = (squares * sigma2).sqrt()
    size, level = rows.units[0], torch.zeros_like(rows.units)
    level[0] = rows.level
    fitted = Fitted(
        coefficients=state.coefficients * rows.units + level,
        errors=errors * rows.units.abs(),
        ratios=state.coefficients / errors,
        values=state.parts.sum(1) * size + rows.level,
        residuals=error * size,
        influence=own.sum(1),
        status=status_of(state.deficient, state.rests),
    )
    told = Judged(error.square(), own.sum(1), own.sum(1))
    aicc, aic, bic = (score(told, error, name, n, False).value for name in ("aicc", "aic", "bic"))
    scales = Scales(
        terms=rows.names,
        bandwidths=state.widths,
        enp=tuple(enp.tolist()),
        critical=tuple(float(stdtrit(n - 1, 1 - LEVEL / each / 2)) for each in enp.tolist()),
        together=state.history[0][0],
        sweeps=state.number,
        rests=state.rests,
        change=state.change,
        n=n,
        rss=rss,
        r2=1 - rss / n,
        sigma2=sigma2,
        aicc=aicc,
        aic=aic,
        bic=bic,
    )
    return fitted, scales
