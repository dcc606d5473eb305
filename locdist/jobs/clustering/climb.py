"""The first stage: where the climb of every row ends."""

from dataclasses import dataclass, replace

import pyarrow as pa
from torch import Tensor

from locdist.data.columns import vectors
from locdist.data.moments import Moments
from locdist.errors import UsageError
from locdist.jobs.asking.block import STATUS, Block, statuses
from locdist.jobs.asking.present import nullable
from locdist.jobs.asking.questions import Ask, block_rows
from locdist.jobs.predict import work
from locdist.jobs.request import is_number, is_whole
from locdist.local.answers import Answers
from locdist.local.lattice import Lattice
from locdist.methods.method import Method
from locdist.plan.cost import Solve
from locdist.search.exact import Exact
from locdist.search.generation import Generation

STEPS = 10  # assumed for each row, for predicting time
_MEET = 65_536  # queries on a lattice at once: the more, the more of them meet


@dataclass(frozen=True)
class Climb:
    """How rows climb to modes, and what makes modes one.

    Parameters
    ----------
    method : Method
        A mean shift.
    grain : float
        Side of the cells of the lattice that rows climb on, in bandwidths; 0 lets each climb for itself.
    sample : int
        Rows of the support, evenly spread over it, that a climb on the lattice looks at; at least 1.
    radius : float
        Modes that are no farther apart are one.

    Raises
    ------
    UsageError
    """

    method: Method
    grain: float
    sample: int
    radius: float

    @staticmethod
    def of(method: Method, grain: float, sample: int, radius: float | None) -> "Climb":
        """What was asked, checked; the radius is the bandwidth by default."""
        loop, bandwidth = method.loop, method.layer.kernel.bandwidth
        if loop is None or not loop.settles:
            raise UsageError("a method whose queries climb to modes", method.name, "Use ld.mean_shift(1.5).")
        if radius is None:
            if not isinstance(bandwidth, float):
                remedy = "Give radius=1.5, say."
                raise UsageError("a radius for a bandwidth that is no distance", str(bandwidth), remedy)
            radius = bandwidth
        if not (is_number(radius) and 0 < radius < float("inf")):
            raise UsageError("a positive radius", repr(radius), "Modes that are no farther apart are one.")
        if not (is_number(grain) and 0 <= grain <= 1):
            raise UsageError("a grain from 0 to 1, in bandwidths", repr(grain), "0 is without a lattice.")
        if not (is_whole(sample) and sample >= 1):
            raise UsageError("a sample of at least one row", repr(sample), "5_000 is the default.")
        return Climb(method, float(grain), int(sample), float(radius))

    def __call__(
        self, index: Generation | Exact, queries: Tensor, bad: Tensor | None = None, device: str = "cpu"
    ) -> Answers:
        """Where queries [q, d] end."""
        loop, want = self.method.loop, frozenset({"effective"})
        assert loop is not None
        if not self.grain:
            return loop(index, queries, bad=bad, want=want, device=device)
        bandwidth = loop.layer.kernel.bandwidth
        unit = bandwidth if isinstance(bandwidth, float) else self.radius
        lattice = Lattice(loop.layer, self.grain * unit, loop.update)
        rows = index.layout.rows if isinstance(index, Generation) else len(index.rows)
        every = max(1, -(-rows // self.sample))
        return lattice(index, every, queries, bad, want, device)

    def exactly(self, index: Generation | Exact, places: Tensor, device: str = "cpu") -> Answers:
        """Where places [q, d] end without a lattice, over all rows."""
        return replace(self, grain=0.0)(index, places, None, device)


@dataclass(frozen=True, kw_only=True)
class ClimbRows(Ask):
    """For each row the place where its climb ends, as the key is scaled, and the effective number of rows
    there.
    """

    climb: Climb

    def columns(self) -> pa.Schema:
        """Place, number and status."""
        place = pa.list_(pa.float64(), self.index.layout.width)
        return pa.schema([("place", place), ("effective", pa.float64()), ("status", STATUS)])

    @property
    def work(self) -> Solve:
        """Of one step."""
        width = self.index.layout.width
        return replace(work(self.climb.method, width, width, frozenset()), p=width)

    @property
    def block_rows(self) -> int:
        """Queries that climb together."""
        k = self.climb.method.layer.neighbors
        return _MEET if self.climb.grain and not k else block_rows(k)

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Answers of one block."""
        found = self.climb(self.index, block.queries, block.bad, block.device)
        assert found.effective is not None
        told = [vectors(found.values.numpy()), nullable(found.effective), statuses(found.status)]
        return pa.Table.from_arrays(told, schema=self.columns()), {}
