"""What follows series, in their own units."""

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.schema import plain
from locdist.jobs.asking.block import STATUS, statuses
from locdist.jobs.asking.present import nullable
from locdist.jobs.series.read import Columns, Gathered, following
from locdist.local.answers import Status
from locdist.local.series import Forecast, Path


def standardized(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Series [s, n] with mean 0 and variance 1 over what is known, and these means and sizes [s, 1]."""
    known = values.isfinite()
    count = known.sum(1, keepdim=True).clamp(min=1)
    small = values.masked_fill(~known, 0.0)
    peak = small.abs().amax(1, keepdim=True)
    peak = peak.where(peak > 0, 1.0)
    unit = peak / (2 * peak.frexp().mantissa)  # a power of two costs no digits
    small = small / unit  # whose squares neither overflow nor vanish
    level = small.sum(1, keepdim=True) / count
    left = (small - level).masked_fill(~known, 0.0)
    size = (left.square().sum(1, keepdim=True) / count).sqrt()
    size = size.where(size > 1e-12 * level.abs(), 1.0)
    return left.masked_fill(~known, torch.nan) / size, level * unit, size * unit


def followed(loop: Forecast, values: Tensor, steps: int, ends: Tensor | None = None) -> Path:
    """What follows series [s, n], or their values up to some `ends` [s], as [s, steps]."""
    scaled, level, size = standardized(values)
    path = loop(scaled, steps, ends)
    found = path.values * size + level
    lost = ~found.isfinite() & ~path.values.isnan()
    status = path.status.masked_fill(lost, int(Status.NOT_FINITE))
    return Path(found.masked_fill(lost, torch.nan), status)


def follow(loop: Forecast, series: Gathered, steps: int) -> Path:
    """What follows series of a table, [s, steps]."""
    count = len(series.lengths)
    values, status = (
        torch.empty(count, steps, dtype=torch.float64),
        torch.empty(count, steps, dtype=torch.int8),
    )
    for some in series.batches():
        found = followed(loop, series.padded(some), steps)
        values[some], status[some] = found.values, found.status.to(torch.int8)
    return Path(values, status)


def fields(columns: Columns, schema: pa.Schema) -> pa.Schema:
    """The columns of an output: id and time as they are, the step, the prediction, and a status."""
    names = [name for name in (columns.id, columns.time) if name is not None]
    own = [pa.field(name, plain(schema.field(name).type)) for name in names]
    more = [pa.field("step", pa.int64()), pa.field("prediction", pa.float64()), pa.field("status", STATUS)]
    return pa.schema([*own, *more])


def told(columns: Columns, schema: pa.Schema, series: Gathered, path: Path) -> pa.Table:
    """A row for each series and step."""
    count, steps = path.values.shape
    parts = []
    if series.names is not None:
        parts.append(series.names.take(pa.array(np.repeat(np.arange(count), steps))))
    if series.times is not None:
        parts.append(following(series.times, series.starts[1:] - 1, series.lengths, steps))
    number = pa.array(np.tile(np.arange(1, steps + 1), count))
    parts += [number, nullable(path.values.flatten()), statuses(path.status.flatten())]
    return pa.Table.from_arrays(parts, schema=fields(columns, schema))
