"""Coordinates of rows in files, as `embed` writes them."""

import functools

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.columns import numbers
from locdist.data.source import source
from locdist.jobs.asking.block import STATUS


def coordinate_fields(count: int) -> list[pa.Field]:
    """The columns of coordinates, and the status."""
    names = [f"coordinate_{number}" for number in range(1, count + 1)]
    return [*(pa.field(name, pa.float64()) for name in names), pa.field("status", STATUS)]


@functools.lru_cache(maxsize=2)
def read_coordinates(folder: str, fingerprint: str) -> Tensor:
    """Coordinates [n, q] of a finished embedding; the fingerprint tells it from others in the same place."""
    rows = source(folder)
    names = [name for name in rows.schema.names if name.startswith("coordinate_")]
    table = pa.concat_tables(rows.read(columns=names))
    values, bad = zip(*(numbers(column) for column in table.columns), strict=True)
    found = np.column_stack(values)
    found[np.column_stack(bad)] = np.nan
    return torch.from_numpy(found)
