"""The tables of geographically weighted regression: what `transform` with the extra "listwise" writes of
every site besides its prediction.

A site's local R² is made of the residuals of its neighbors, and standard errors of the variance of all
residuals. So the model is fitted twice: a first job, below the output, gives the residuals; the second one
lists.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.columns import numbers
from locdist.data.encoding import Encoding
from locdist.data.moments import Moments
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.jobs.asking.ask import Request, Running, ask
from locdist.jobs.asking.block import Block
from locdist.jobs.asking.diagnostics import Diagnostics, residuals
from locdist.jobs.asking.present import nullable
from locdist.jobs.asking.questions import Ask
from locdist.jobs.predict import PredictRows
from locdist.local.answers import LEVERAGE, Answers, Status
from locdist.local.families import Poisson
from locdist.local.glm import GeneralizedLinear
from locdist.local.layer import Layer
from locdist.local.listwise import Listwise
from locdist.local.models import Linear, LocalModel
from locdist.local.neighborhood import Neighborhood
from locdist.methods.method import Method
from locdist.plan.cost import Solve

LISTWISE = "listwise"
FIT = "_locdist/fit"  # below the output: the first job


def split(extras: Sequence[str]) -> tuple[bool, tuple[str, ...]]:
    """Whether the tables are asked for, and the other extras."""
    return LISTWISE in extras, tuple(name for name in extras if name != LISTWISE)


def check_listed(method: Method, targets: Sequence[str]) -> None:
    """UsageError for a method that has no such tables."""
    layer = method.layer
    linear = isinstance(layer.model, Linear | GeneralizedLinear) and not layer.leave_one_out
    if not linear or layer.k is None or len(targets) != 1:
        given = f"{method.name} with k={layer.k} and targets {', '.join(targets) or 'none'}"
        raise UsageError("gwr with k neighbors and one target, for listwise results", given, "Leave it out.")


@dataclass(frozen=True)
class Fit:
    """The first job: where its predictions are, and what its diagnostics say.

    Parameters
    ----------
    folder : str
    sigma2 : float
        The variance of a target, RSS / (n - ENP); 1 where the family knows it.
    enp : float
    """

    folder: str
    sigma2: float
    enp: float

    @staticmethod
    def of(folder: str, told: Diagnostics | None, model: LocalModel) -> "Fit":
        """What a first job found; DataError where nothing was fitted."""
        if told is None or told.enp is None:
            raise DataError("sites with a fit, for listwise results", "none", "Use a larger k.")
        free = told.n - told.enp
        sigma2 = 1.0 if isinstance(model, GeneralizedLinear) else told.rss / free if free > 0 else math.nan
        return Fit(folder, sigma2, told.enp)


@dataclass(frozen=True, kw_only=True)
class ListRows(Ask):
    """What `PredictRows` answers, and the tables, for each row of the support."""

    predict: PredictRows
    fit: Fit

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """The target."""
        return self.predict.extra_columns

    @property
    def work(self) -> Solve:
        """As with all extras."""
        return replace(self.predict.work, want=frozenset({"spread", "coefficients", "neighbors"}))

    def columns(self) -> pa.Schema:
        """Predictions, then the tables."""
        added = [pa.field(name, pa.float64()) for name in columns_of(self._matrix.names)]
        return pa.schema([*self.predict.columns(), *added])

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Answers of one block."""
        layer, shown = self.predict.method.layer, self.predict.presentation
        model = Listwise(_linear(layer), tuple(self._matrix.origin.tolist()))
        want = shown.want | {"neighbors", LEVERAGE}
        asked = (block.queries, block.features, block.rows, block.bad, want, block.device, block.offsets)
        both = replace(layer, model=model)(self.index, *asked)
        answers = replace(both, values=both.values[:, :1])
        told = [*self._coefficients(both), *self._site(block, answers), *self._collinearity(both)]
        known = answers.status < int(Status.EMPTY)
        columns = [nullable(column.where(known, math.nan)) for column in told]
        table = shown.table(answers, self.index)
        sums = residuals(block, answers, self.extra_columns[0], layer.model)
        return pa.Table.from_arrays([*table.columns, *columns], schema=self.columns()), sums

    @property
    def _matrix(self) -> Encoding:
        return self.index.features or self.index.key

    def _coefficients(self, both: Answers) -> list[Tensor]:
        """Estimate, standard error and their ratio of each coefficient, in the user's units."""
        units, count = torch.from_numpy(self._matrix.units), len(self._matrix.units)
        estimates = both.values[:, 1 : 1 + count] * units
        errors = (both.values[:, 1 + count : 1 + 2 * count] * self.fit.sigma2).sqrt() * units
        each = zip(estimates.T, errors.T, strict=True)
        return [column for one, error in each for column in (one, error, one / error)]

    def _site(self, block: Block, answers: Answers) -> list[Tensor]:
        """Residual, standardized residual, influence, Cook's distance and local R² of each site."""
        truth = torch.from_numpy(numbers(block.table.column(self.extra_columns[0]))[0])
        influence = answers.leverage
        assert influence is not None
        residual = truth - answers.values[:, 0]
        standard = residual / (self.fit.sigma2 * (1 - influence)).sqrt()
        cook = standard.square() * influence / (self.fit.enp * (1 - influence))
        return [residual, standard, influence, cook, self._explained(answers)]

    def _explained(self, answers: Answers) -> Tensor:
        """One less the local deviance of the neighbors' own fits over that of a local constant [q]."""
        assert answers.ids is not None
        assert answers.weights is not None
        hood = Neighborhood(torch.zeros_like(answers.ids, dtype=torch.float64), answers.ids)
        hood = self.index.gather(hood, frozenset({"targets"}))
        assert hood.targets is not None
        truth, weights = hood.targets[:, :, 0], answers.weights
        own = torch.from_numpy(_fitted(self.fit.folder))[self.index.sources(answers.ids).clamp(min=0)]
        scale = torch.ones_like(weights)
        model = _linear(self.predict.method.layer)
        family = model.family if isinstance(model, GeneralizedLinear) else None
        if isinstance(family, Poisson) and hood.offsets is not None:
            scale = hood.offsets.exp()
        constant = (weights * truth).sum(1, keepdim=True) / (weights * scale).sum(1, keepdim=True) * scale

        def lost(mean: Tensor) -> Tensor:
            losses = (truth - mean).square() if family is None else family.deviance(mean, truth)
            return (weights * losses).masked_fill(weights == 0, 0.0).sum(1)

        return 1 - lost(own) / lost(constant)

    def _collinearity(self, both: Answers) -> list[Tensor]:
        """Condition number, then variance inflation factors by feature."""
        return list(both.values[:, 1 + 2 * len(self._matrix.units) :].T)


def columns_of(features: Sequence[str]) -> list[str]:
    """The columns of the tables, for features with these names."""
    terms = [f"{kind}_{name}" for name in ("intercept", *features) for kind in ("estimate", "error", "t")]
    site = ["residual", "standardized_residual", "influence", "cooks_d", "local_r2", "condition"]
    return [*terms, *site, *(f"vif_{name}" for name in features)]


def listing(question: PredictRows, request: Request, place: Store, running: Running) -> ListRows:
    """The question of the second job, after the first one, which writes to `place`."""
    plain = replace(question.presentation, extras=(), explain=0)
    first = replace(question, presentation=plain, keep=())
    choices = {"method": question.method.spec, "index": question.index.fingerprint}
    asked = replace(request, choices=choices, folders=())
    quiet = replace(running, overwrite=False, limit=None, max_bad=None)
    report = ask(asked, lambda folder, source: replace(first, source=source), place.uri, quiet)
    fit = Fit.of(place.uri, report.diagnostics, question.method.layer.model)
    return ListRows(
        source=question.source, index=question.index, keep=question.keep, own=True, predict=question, fit=fit
    )


def _linear(layer: Layer) -> Linear | GeneralizedLinear:
    model = layer.model
    assert isinstance(model, Linear | GeneralizedLinear)
    return model


@functools.lru_cache(maxsize=4)
def _fitted(folder: str) -> NDArray[np.float64]:
    """The predictions of a finished job [n], in the order of the rows; nan where there is none."""
    rows = source(folder)
    tables = rows.read(0, rows.rows, ["prediction"])
    return np.concatenate([numbers(table.column("prediction"))[0] for table in tables])
