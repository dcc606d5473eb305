"""What a task will need, predicted from counts before anything runs: memory, distances, seconds.

The planner chooses from these numbers and records them, never from a clock at run time, so that the same job
is planned the same way twice. The constants were measured on two cores of a shared x86-64 server, on jobs of
100 to 1 M rows of 2 to 64 numbers, or are marked as assumed; calibrate them where it matters. Times are right
to a factor of about three (`make bench` compares them with jobs), memory is meant as an upper bound.
"""

from collections.abc import Set
from dataclasses import dataclass, replace

TILE, _TILES, _NUMBERS = 256, 8, 1 << 20  # of `local.tiles`, which takes torch to import
NEIGHBOR = 32  # bytes of one neighbor in an output: id, distance, weight, contribution
PAIR = 112  # bytes of one neighbor while it is searched: distance and id, found, re-ranked, merged and sorted


@dataclass(frozen=True)
class Constants:
    """Rates of one core, and what a process holds before it does anything.

    Parameters
    ----------
    pair, exact : float
        Seconds of a distance whatever its width, and components a second: 100,000 queries x 1 M rows x 64
        took 85 s on two cores, narrower keys hardly less.
    listed, scan : float
        The same of distances in inverted lists, queries sorted by home list: nlist 2048, nprobe 8 took 1.52 s
        on two cores.
    query, neighbor : float
        Seconds of a query, and of each of its neighbors that is ranked, gathered and weighed.
    cluster : float
        Components of distances a second in k-means: 65,536 rows x 1024 centroids x 32 and x 64.
    rerank : float
        Components gathered by id a second: 100,000 x 32 x 64 took 0.065 s.
    solve : float
        Multiplications of the local solves a second: dual systems of 32 x 32 to 64 x 64 from 64 features.
    sums : float
        Products of terms a second that are summed over all the support: a tile of 32 queries in the cache.
    row : float
        Seconds of a row that is decoded, checked and encoded, and of one that is written.
    read, write : float
        Bytes of decoded columns a second, on a local disk; assumed, and less through a network.
    task, stage, job : float
        Seconds of a task besides its rows (files opened, written, synced, committed), of a stage in the
        driver, and of a job (footers, manifest, lock, report).
    base : int
        Bytes of anonymous memory of a worker that has imported torch, FAISS and Arrow: 163 MiB after a first
        small solve, and room for the allocators.
    """

    pair: float = 2.2e-9
    exact: float = 1.6e11
    listed: float = 3.5e-9
    scan: float = 2.5e10
    cluster: float = 2.3e10
    query: float = 4e-6
    neighbor: float = 3e-7
    rerank: float = 3.1e9
    solve: float = 6e9
    sums: float = 2e9
    row: float = 3e-7
    read: float = 3e8
    write: float = 2.5e8
    task: float = 0.015
    stage: float = 0.02
    job: float = 0.06
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
        return queries * (self.nlist + self.scanned)

    @property
    def scanned(self) -> int:
        """Rows of lists that one query meets; 0 when exact."""
        return min(self.nprobe, self.nlist) * self.rows // self.nlist if self.nlist else 0

    def seconds(self, queries: int, width: int, constants: Constants = MEASURED) -> float:
        """Seconds on one core to find the neighbors of `queries` queries of `width` numbers."""
        each = constants.pair + width / constants.exact
        listed = constants.listed + width / constants.scan
        return queries * ((self.nlist or self.rows) * each + self.scanned * listed)


@dataclass(frozen=True)
class Solve:
    """What is solved for each query: `k` neighbors (0: sums over the support), key width `d`, `m` features
    (0: a mean), `p` targets, and what is `want`ed.
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
            "neglected": 8,
            "spread": 8 * self.p,
            "coefficients": 16 * (1 + self.m) * self.p,
            "neighbors": NEIGHBOR * self.k,
        }
        return 8 * self.p + 1 + sum(size for name, size in extra.items() if name in self.want)

    @property
    def multiplications(self) -> int:
        """Of one query's system: the smaller of primal (k m^2 + m^3/3) and dual (k^2 m + k^3/3), three times
        with its spread; 4 k p for a mean.
        """
        k, m = self.k, self.m
        primal, dual = k * m * m + m**3 // 3, k * k * m + k**3 // 3
        return 4 * k * self.p + (min(primal, dual) * (3 if "spread" in self.want else 1) if m else 0)


@dataclass(frozen=True)
class Estimate:
    """What one task needs: bytes at its peak, distances, seconds on one core, bytes of columns that it reads
    and writes before compression; `formula` says how the memory was found.
    """

    memory: int
    distances: int
    seconds: float
    formula: str
    read: int = 0
    written: int = 0


def _tiled(solve: Solve) -> int:
    numbers = solve.k * (solve.d + solve.m + solve.p)
    return TILE * min(max(_NUMBERS // (TILE * numbers), 1), _TILES) * numbers


def predict_cost(
    queries: int,
    block: int,
    search: Search,
    solve: Solve,
    row_bytes: int = 0,
    constants: Constants = MEASURED,
) -> Estimate:
    """A task that answers `queries` queries, `block` at a time, with `row_bytes` of kept columns for each.

    memory = base + resident + block (8 d + 2 row_bytes + 112 k + 2 answer) + tile
    where 112 are a neighbor, found and ranked, and tile = 8 t k (d + m + p) with t queries, or what `_summed`
    says
    """
    block = min(block, queries)
    each = 8 * solve.d + 2 * row_bytes + PAIR * solve.k + 2 * solve.answer
    tile = 8 * (_tiled(solve) if solve.k else _summed(block, solve))
    formula = (
        f"base {constants.base:,} + index {search.resident:,} + block {block:,} x "
        f"(8 d={solve.d} + 2 x {row_bytes} input bytes + {PAIR} x k={solve.k} "
        f"+ 2 x {solve.answer} answer bytes) + tile {tile:,}"
    )
    if not solve.k:
        search = Search(search.rows, resident=search.resident)
    work = solve.k * (constants.neighbor + solve.d / constants.rerank)
    work += constants.query + solve.multiplications / constants.solve
    work += 0 if solve.k else search.rows * (4 + (1 + solve.m) ** 2) / constants.sums
    read, written = 4 * solve.d + row_bytes, solve.answer + row_bytes
    seconds = search.seconds(queries, solve.d, constants) + queries * work
    return Estimate(
        constants.base + search.resident + block * each + tile,
        search.distances(queries),
        seconds + _passed(queries, read, written, constants),
        formula,
        queries * read,
        queries * written,
    )


def _summed(block: int, solve: Solve) -> int:
    """Numbers that are held while all rows are summed: the sums of each query twice, and 64 MiB of keys as
    stored and as read.
    """
    terms = 1 + solve.m
    return 2 * block * terms * (2 * terms + solve.p) + (32 << 20)


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
    size = 8 * d + row_bytes
    seconds = rows * nlist * (constants.pair + d / constants.exact) + _passed(rows, size, size, constants)
    return Estimate(
        constants.base + rows * each, rows * nlist, seconds, formula, rows * size, rows * (size + 16)
    )


def train_cost(
    rows: int, d: int, nlist: int, iterations: int, row_bytes: int = 0, constants: Constants = MEASURED
) -> Estimate:
    """The task of an index build that clusters a sample of `rows` rows into `nlist` lists, on one core.

    memory as in `assign_cost`
    """
    found, distances = assign_cost(rows, d, 0, row_bytes, constants), iterations * rows * nlist
    seconds = found.seconds + distances * d / constants.cluster
    return replace(found, distances=distances, seconds=seconds, written=4 * d * nlist)


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
    size = 8 * d + row_bytes
    seconds = _passed(rows, size, size, constants)
    read, written = rows * (size + 16), rows * (size + code_bytes)
    return Estimate(constants.base + rows * each, 0, seconds, formula, read, written)


def _passed(rows: int, read: int, written: int, constants: Constants) -> float:
    """Seconds of a task to read rows of so many bytes, and to write as many."""
    return constants.task + rows * (2 * constants.row + read / constants.read + written / constants.write)
