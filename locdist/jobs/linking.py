"""What `graph` is asked: whom edges lead to, what they weigh, and what that costs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from locdist.data.source import Span
from locdist.errors import UsageError, did_you_mean
from locdist.jobs.asking.questions import block_rows
from locdist.jobs.chosen import read_method
from locdist.jobs.request import rows_per_task
from locdist.local.bandwidths import spec
from locdist.local.graph import SYMMETRIES
from locdist.local.kernels import Product, kernel_spec
from locdist.local.kernels import kernel as chosen_kernel
from locdist.local.links import FIRST, Links
from locdist.methods.embedded import smoother_of
from locdist.methods.method import Bandwidth, KernelChoice, Method
from locdist.plan.cost import MEASURED, NEIGHBOR, Estimate, Search, Solve, predict_cost

NEIGHBORS = 15
EDGE = 64  # bytes of an edge in memory: as pairs, and as they are written
NODE = 40  # bytes of a node while all are looked at
SORTED, LOOKED_AT = 1e-6, 3e-6  # seconds of an edge that is made to lead both ways, of a node in the summary


@dataclass(frozen=True)
class Linking:
    """Edges as they are asked for.

    Parameters
    ----------
    links : Links
    symmetrize : str or None
    told : mapping
        All of it, JSON-able.
    words : str
        What an edge weighs.
    """

    links: Links
    symmetrize: str | None
    told: Mapping[str, Any]
    words: str

    @property
    def usual(self) -> int:
        """Edges of a node, for predicting memory and time; with a radius nobody knows."""
        return self.links.k or FIRST

    def check(self, metric: str, rows: int) -> None:
        """UsageError for links that an index of a metric with so many rows cannot have."""
        self.links.check(metric)
        if rows < 2 or (self.links.k or 1) > rows - 1:
            given = f"k={self.links.k} of {rows:,} rows"
            raise UsageError(
                f"k of at most {max(rows - 1, 0):,}, the other rows", given, "Choose a smaller k."
            )


def linking(
    k: int | None,
    radius: float | None,
    kernel: KernelChoice | None,
    bandwidth: Bandwidth | None,
    method: Method | str | Mapping[str, Any] | None,
    symmetrize: str | None,
) -> Linking:
    """What the arguments of `graph` ask for."""
    if symmetrize is not None and symmetrize not in SYMMETRIES:
        wanted = f"one of {', '.join(SYMMETRIES)}"
        raise UsageError(wanted, repr(symmetrize), did_you_mean(symmetrize, SYMMETRIES))
    told: dict[str, Any] = {"symmetrize": symmetrize}
    if method is not None:
        if (k, radius, kernel, bandwidth) != (None,) * 4:
            raise UsageError("a method, or k, radius and kernel", "both", "A method has its own.")
        chosen = read_method(method)
        layer, model = chosen.layer, smoother_of(chosen)
        links = Links(layer.k, None, layer.kernel, model)
        return Linking(links, symmetrize, told | {"method": chosen.spec}, f"smoother of {chosen.name}")
    k = NEIGHBORS if k is None and radius is None else k
    if kernel is None and bandwidth is not None:
        raise UsageError("a kernel for the bandwidth", "none", "Name one, gaussian say.")
    shape = None if kernel is None else chosen_kernel(kernel, bandwidth)
    links = Links(None if k is None else int(k), radius, shape)
    told |= {"k": links.k, "radius": radius}
    if shape is None:
        return Linking(links, symmetrize, told | {"kernel": None}, "1")
    width = None if isinstance(shape, Product) else spec(shape.bandwidth)
    told |= {"kernel": kernel_spec(shape), "bandwidth": width}
    return Linking(links, symmetrize, told, f"{shape.name}, bandwidth {width}")


def spans_of(rows: int, asked: Linking) -> list[Span]:
    """The nodes of each partition."""
    size = rows_per_task(rows, EDGE * asked.usual)
    return [Span(start, min(start + size, rows)) for start in range(0, rows, size)]


def edges_cost(rows: int, width: int, search: Search, asked: Linking) -> Estimate:
    """A task over a partition of `rows` nodes.

    memory = that of answering its rows + rows k 4 x 64, their edges there and back
    """
    k = asked.usual
    solve = Solve(k, width, width if asked.links.model else 0, want=frozenset({"neighbors"}))
    found = predict_cost(rows, block_rows(k), search, solve, 24)
    edges = 4 * EDGE * rows * k
    return replace(found, memory=found.memory + edges, formula=f"{found.formula} + edges {edges:,}")


def both_cost(rows: int, asked: Linking) -> Estimate:
    """A task that makes the edges of `rows` nodes lead both ways.

    memory = base + rows k 6 x 64, edges there, back, together and as they are written
    """
    edges = rows * asked.usual
    memory = MEASURED.base + 6 * EDGE * edges
    formula = f"base {MEASURED.base:,} + 6 x {EDGE} x {edges:,} edges"
    return Estimate(memory, 0, MEASURED.task + edges * SORTED, formula, 64 * edges, NEIGHBOR * edges)


def summary_cost(rows: int) -> Estimate:
    """The task that looks at all edges, a partition at a time.

    memory = base + 40 for each node + edges of a partition
    """
    memory = MEASURED.base + NODE * rows + (512 << 20)
    formula = f"base {MEASURED.base:,} + {NODE} x {rows:,} nodes + edges of a partition {512 << 20:,}"
    return Estimate(memory, 0, MEASURED.task + rows * LOOKED_AT, formula, 8 * rows, 0)
