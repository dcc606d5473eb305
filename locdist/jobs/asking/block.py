"""Encoded queries of one table, and the names of their statuses."""

from dataclasses import dataclass

import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.encoding import Rejected
from locdist.local.answers import Status

STATUSES = pa.array([status.name.lower() for status in Status])
STATUS = pa.dictionary(pa.int8(), pa.string())


@dataclass(frozen=True)
class Block:
    """Encoded queries of one table: rows [first, first + q) of the source."""

    table: pa.Table
    first: int
    queries: Tensor  # [q, d]
    features: Tensor | None  # [q, m]
    bad: Tensor  # [q] bool
    rejected: tuple[Rejected, ...]
    offsets: Tensor | None = None  # [q]
    device: str = "cpu"  # where models are solved

    @property
    def rows(self) -> Tensor:
        """[q] source row of each query."""
        return torch.arange(self.first, self.first + self.table.num_rows)


def statuses(status: Tensor) -> pa.DictionaryArray:
    """Statuses [q] as an Arrow column of their names."""
    return pa.DictionaryArray.from_arrays(pa.array(status.to(torch.int8).numpy()), STATUSES)
