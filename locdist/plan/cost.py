"""What a task will need, predicted from counts before anything runs: memory, distances, seconds.

The planner chooses from these numbers and records them, never from a clock at run time, so that the same job
is planned the same way twice. The constants were measured on two cores of a shared x86-64 server (1 M x 64
float32 rows, k = 32), or are marked as assumed; calibrate them where it matters. Times are right to a factor
of about two, memory is meant as an upper bound.
"""

from collections.abc import Set
from dataclasses import dataclass

TILE = 256
NEIGHBOR = 32  # bytes of one neighbor in an output: id, distance, weight, contribution
PAIR = 32  # bytes of one neighbor while it is searched: distance and id, as found and as re-ranked


@dataclass(frozen=True)
class Constants:
    """Rates of one core, and what a process holds before it does anything.

    Parameters
    ----------
    exact : float
        Components of exact distances a second: 100,000 queries x 1 M rows x 64 took 85 s on two cores.
    scan : float
        Components of distances in inverted lists a second, queries sorted by home list: nlist 2048, nprobe 8
        took 1.52 s on two cores.
    rerank : float
        Components gathered by id a second: 100,000 x 32 x 64 took 0.065 s.
    solve : float
        Multiplications of the local solves a second: 100,000 dual systems of 32 x 32 from 64 features took
        0.39 s on two cores.
    read, write : float
        Bytes of decoded columns a second; assumed.
    base : int
        Bytes of anonymous memory of a worker that has imported torch, FAISS and Arrow: 163 MiB after a first
        small solve, and room for the allocators.
    """

    exact: float = 3.8e10
    scan: float = 1.2e10
    rerank: float = 3.1e9
    solve: float = 9.8e9
    read: float = 3e8
    write: float = 1e8
    base: int = 256 << 20


MEASURED = Constants()


@dataclass(frozen=True)
class Search:
    """How neighbors are found: `rows` of support; in `nlist` lists of which `nprobe` are scanned, or exactly
    when nlist is 0.

    `resident` bytes of the index are anonymous memory of the worker (mapped shards count nothing).
    """

    rows: int
    nlist: int = 0
    nprobe: int = 0
    resident: int = 0

    def distances(self, queries: int) -> int:
        """Distances computed: q (nlist + nprobe n / nlist), or q n when exact."""
        if not self.nlist:
            return queries * self.rows
        return queries * (self.nlist + min(self.nprobe, self.nlist) * self.rows // self.nlist)


@dataclass(frozen=True)
class Solve:
    """What is solved for each query: `k` neighbors, key width `d`, `m` features (0: a mean), `p` targets, and
    what is `want`ed.
    """

    k: int
    d: int
    m: int = 0
    p: int = 1
    want: Set[str] = frozenset()

    @property
    def answer(self) -> int:
        """Bytes of one query's answer in memory."""
        extra = {
            "effective": 8,
            "spread": 8 * self.p,
            "coefficients": 16 * (1 + self.m) * self.p,
            "neighbors": NEIGHBOR * self.k,
        }
        return 8 * self.p + 1 + sum(size for name, size in extra.items() if name in self.want)

    @property
    def multiplications(self) -> int:
        """Of one query's system: the smaller of primal (k m^2 + m^3/3) and dual (k^2 m + k^3/3); 4 k p for a
        mean.
        """
        k, m = self.k, self.m
        primal, dual = k * m * m + m**3 // 3, k * k * m + k**3 // 3
        return 4 * k * self.p + (min(primal, dual) if m else 0)


@dataclass(frozen=True)
class Estimate:
    """What one task needs: bytes at its peak, distances, seconds on one core; `formula` says how the memory
    was found.
    """

    memory: int
    distances: int
    seconds: float
    formula: str


def predict_cost(
    queries: int,
    block: int,
    search: Search,
    solve: Solve,
    row_bytes: int = 0,
    constants: Constants = MEASURED,
) -> Estimate:
    """A task that answers `queries` queries, `block` at a time, with `row_bytes` of kept columns for each.

    memory = base + resident + block (8 d + 2 row_bytes + 32 k + 2 answer) + tile
    where 32 are a neighbor found and one re-ranked, and tile = 8 x 256 k (d + m + p)
    """
    block = min(block, queries)
    each = 8 * solve.d + 2 * row_bytes + PAIR * solve.k + 2 * solve.answer
    tile = 8 * TILE * solve.k * (solve.d + solve.m + solve.p)
    formula = (
        f"base {constants.base:,} + index {search.resident:,} + block {block:,} x "
        f"(8 d={solve.d} + 2 x {row_bytes} input bytes + {PAIR} x k={solve.k} "
        f"+ 2 x {solve.answer} answer bytes) + tile {tile:,}"
    )
    distances = search.distances(queries)
    seconds = distances * solve.d / (constants.scan if search.nlist else constants.exact)
    seconds += queries * (solve.k * solve.d / constants.rerank + solve.multiplications / constants.solve)
    seconds += queries * (
        (4 * solve.d + row_bytes) / constants.read + (solve.answer + row_bytes) / constants.write
    )
    return Estimate(constants.base + search.resident + block * each + tile, distances, seconds, formula)


def assign_cost(
    rows: int, d: int, nlist: int, row_bytes: int = 0, constants: Constants = MEASURED
) -> Estimate:
    """A task of an index build that assigns rows to lists and writes them sorted: both orders of the rows are
    in memory.

    memory = base + rows (2 (8 d + row_bytes) + 24), where 24 are the list, the distance and the place of a
    row
    """
    each = 2 * (8 * d + row_bytes) + 24
    formula = f"base {constants.base:,} + rows {rows:,} x (2 x (8 d={d} + {row_bytes} other bytes) + 24)"
    seconds = rows * nlist * d / constants.exact + rows * (8 * d + row_bytes) * (
        1 / constants.read + 1 / constants.write
    )
    return Estimate(constants.base + rows * each, rows * nlist, seconds, formula)


def pack_cost(
    rows: int, d: int, code_bytes: int, row_bytes: int = 0, constants: Constants = MEASURED
) -> Estimate:
    """A task of an index build that joins sorted pieces into a shard and encodes its rows.

    memory = base + rows (2 (8 d + row_bytes) + code_bytes + 8)
    """
    each = 2 * (8 * d + row_bytes) + code_bytes + 8
    formula = (
        f"base {constants.base:,} + rows {rows:,} x (2 x (8 d={d} + {row_bytes} other bytes) "
        f"+ {code_bytes} code bytes + 8)"
    )
    seconds = rows * (8 * d + row_bytes) * (1 / constants.read + 1 / constants.write)
    return Estimate(constants.base + rows * each, 0, seconds, formula)
