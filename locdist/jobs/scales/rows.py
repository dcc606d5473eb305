"""The last stage of `backfit`: what the model says of each row."""

import math
from dataclasses import dataclass

import pyarrow as pa
import torch

from locdist.data.columns import numbers
from locdist.data.moments import Moments
from locdist.jobs.asking.block import STATUS, Block, statuses
from locdist.jobs.asking.present import nullable
from locdist.jobs.asking.questions import Ask
from locdist.jobs.scales.fit import columns_of, read_fit
from locdist.jobs.stored import places
from locdist.local.answers import Status
from locdist.local.models import FREE
from locdist.plan.cost import Solve


@dataclass(frozen=True, kw_only=True)
class TellRows(Ask):
    """Prediction, coefficients and status of each row of the support.

    Parameters
    ----------
    fit : str
        The folder of the job that fitted the model.
    """

    fit: str

    def columns(self) -> pa.Schema:
        """Prediction, the coefficients with errors and t, residual, influence, status."""
        names = ("intercept", *(self.index.features or self.index.key).names)
        fields = [pa.field(name, pa.float64()) for name in columns_of(names)]
        return pa.schema([*fields, pa.field("status", STATUS)])

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """The target."""
        return self.index.layout.roles.target

    @property
    def work(self) -> Solve:
        """Nothing is solved any more."""
        return Solve(1, self.index.layout.width)

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """What was fitted, of one block."""
        found = read_fit(self.fit, self.index.fingerprint)
        stored = places(self.index, block.first, block.first + len(block.bad))
        there = stored >= 0
        at = stored.clamp(min=0)
        triples = torch.stack([found.coefficients, found.errors, found.ratios], 2)[at].flatten(1)
        told = [found.values[at], *triples.T, found.residuals[at], found.influence[at]]
        status = found.status[at].masked_fill(~there, int(Status.BAD_QUERY))
        columns = [*(nullable(each.where(there, math.nan)) for each in told), statuses(status)]
        truth, lost = (torch.from_numpy(part) for part in numbers(block.table.column(self.extra_columns[0])))
        good, own = there & ~lost, found.influence[at]
        square, free = found.residuals[at].square(), good & (1 - own > FREE)
        sums = {"target": truth[good], "square": square[good], "leverage": own[good]}
        sums["missed"] = (square / (1 - own).square())[free]
        moments = {name: Moments.of(part[:, None].numpy()) for name, part in sums.items()}
        return pa.Table.from_arrays(columns, schema=self.columns()), moments
