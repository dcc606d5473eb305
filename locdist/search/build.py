"""How a generation is made: choices, the sort key of rows, runs of assigned rows, and shards packed out of
runs.

Pure steps over arrays and Arrow tables; `jobs/build_index.py` makes tasks of them. A run holds the rows of
one task sorted by list, a shard the rows of some lists out of all runs: an external merge sort, with one
barrier between.
"""

import dataclasses
import itertools
import json
import math
import numbers
from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from locdist.errors import UsageError
from locdist.search.lists import Lists

EXACT_ROWS = 50_000  # below, a pass over all rows costs less than what an index saves
SHARD_BYTES = 128 << 20
RUN_BYTES = 8 << 20  # of a batch of a run: what packing reads at once
SAMPLE_ROWS = 64  # a list, to train centroids
_FIRSTS = b"first list of each batch"
_FP16_RANGE = 32768.0  # half precision ends at 65504
_FP16_WIDTH = 16  # narrower keys lie too densely for 11 bits a coordinate
_FP16_REACH = 1024  # how many times as far out as the typical key the farthest may lie
_CODES = ("exact", "fp16", "flat")
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # splitmix64's finalizer


@dataclasses.dataclass(frozen=True)
class Choice:
    """What kind of index is built.

    Parameters
    ----------
    codes : {"exact", "fp16", "flat"}
        "exact" has no lists.
    nlist : int
        Lists, or for "exact" the number of shards.
    """

    codes: str
    nlist: int


def choose(
    rows: int, width: int, row_bytes: int, metric: str, codes: str | None = None, nlist: int | None = None
) -> Choice:
    """The kind of index for a support of `rows` keys of `width` numbers.

    Lists number about 2 √n (a power of two), so that assigning a query costs about what scanning its lists
    does.
    """
    check_lists(codes, nlist)
    if codes is None:
        codes = "exact" if rows < EXACT_ROWS or metric == "ip" else "fp16" if width >= _FP16_WIDTH else "flat"
    if metric == "ip" and codes != "exact":
        raise UsageError(
            "codes 'exact' with the inner product", repr(codes), "Leave codes out, or use cosine."
        )
    if codes == "exact":
        _refuse_lists(rows, nlist)
        return Choice(codes, max(1, math.ceil(rows * row_bytes / SHARD_BYTES)))
    usual = min(1 << round(math.log2(2 * math.sqrt(max(rows, 1)))), max(rows, 1))
    if nlist is not None and nlist > rows:
        raise UsageError(
            f"nlist between 1 and the {rows} rows", str(nlist), "Choose fewer lists, or leave it out."
        )
    return Choice(codes, nlist or usual)


def check_lists(codes: str | None, nlist: int | None) -> None:
    """UsageError for codes or a number of lists that no index has."""
    if codes is not None and codes not in _CODES:
        raise UsageError(
            "codes 'exact', 'fp16' or 'flat'", repr(codes), "Leave it out to let locdist choose."
        )
    if nlist is not None and not (_is_whole(nlist) and nlist >= 1):
        raise UsageError("nlist, a whole number of at least 1", repr(nlist), "Leave it out for about 2 √n.")


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _refuse_lists(rows: int, nlist: int | None) -> None:
    if nlist is not None:
        raise UsageError(
            "nlist with an index that has lists",
            f"nlist {nlist} for exact search over {rows:,} rows",
            "Leave nlist out, or give codes 'flat' or 'fp16' as well.",
        )


def search_space(sample: NDArray[Any], codes: str) -> tuple[str, NDArray[np.float64], float]:
    """Codes, and their center [d] and scale: (key − center) · scale. The sample [n, d] is not empty.

    Distances do not change under a common shift, and a power of two costs no digits; with them half precision
    neither overflows nor loses a large offset. Flat codes of single-precision keys are the keys themselves.

    Floating-point numbers are densest around zero. The center is the median, because one row far out drags a
    mean along, and all other rows lose their digits; and where that row lies so far out that a scale which
    fits it leaves the others too few, codes are flat instead of half precision.
    """
    center = np.array([np.median(column) for column in sample.T], np.float32).astype(np.float64)
    away = np.abs(sample - center).max(axis=1, initial=0.0)
    largest = float(away.max())
    if codes == "fp16" and largest > _FP16_REACH * float(np.median(away)):
        codes = "flat"
    if codes == "flat" and sample.dtype == np.float32:
        return codes, np.zeros(sample.shape[1]), 1.0
    if codes != "fp16" or largest == 0:
        return codes, center, 1.0
    return codes, center, 2.0 ** math.floor(math.log2(_FP16_RANGE / 8 / largest))


def sampled(rows: NDArray[np.int64], wanted: int, total: int, seed: int) -> NDArray[np.bool_]:
    """Whether each source row is in a seeded random sample of about `wanted` of `total`: a hash of its
    number, so any task can tell.
    """
    with np.errstate(over="ignore"):
        noise = _mix(rows.astype(np.uint64) + np.uint64(seed) * _MIX[0])
    return noise < np.uint64(min(1.0, wanted / max(total, 1)) * (2**64 - 2**12))


def content(matrices: list[NDArray[Any]]) -> NDArray[np.uint64]:
    """[n] hash of each row's values over all matrices [n, ·]: orders rows that have no id, whatever file they
    came from.
    """
    total = np.zeros(len(matrices[0]), np.uint64)
    with np.errstate(over="ignore"):
        for values in matrices:
            whole = np.ascontiguousarray(values + 0.0)  # −0.0 and 0.0 are one value
            bits = whole.view(f"u{whole.dtype.itemsize}").astype(np.uint64)
            odd = _mix(np.arange(1, bits.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
            total = _mix(total + (_mix(bits) * odd).sum(axis=1, dtype=np.uint64))
    return total


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return bits ^ (bits >> np.uint64(31))


def home_lists(lists: Lists, codes: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The list [n] of each row and the squared distance [n] to its centroid."""
    near, home = lists.assign(np.ascontiguousarray(codes, dtype=np.float32), 1)
    return home[:, 0].astype(np.int32), near[:, 0]


def split(ties: pa.Array, splits: pa.Array) -> NDArray[np.int32]:
    """The shard [n] of each row of an exact index, by its place among the split points."""
    values, cuts = (column.to_numpy(zero_copy_only=False) for column in (ties, splits))
    return np.asarray(np.searchsorted(cuts, values), dtype=np.int32)


def run(
    columns: dict[str, pa.Array], lists: NDArray[np.int32], nlist: int, radii: NDArray[np.float32] | None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Rows sorted by list, and their counts and radii per list."""
    order = np.argsort(lists, kind="stable")
    batch = pa.RecordBatch.from_pydict({"list": pa.array(lists)} | columns).take(pa.array(order))
    largest = np.zeros(nlist, np.float32)
    if radii is not None:
        np.maximum.at(largest, lists, radii)
    return batch, pa.RecordBatch.from_pydict(
        {"rows": np.bincount(lists, minlength=nlist).astype(np.int64), "radius": np.sqrt(largest)}
    )


def pieces(run: pa.RecordBatch) -> list[pa.RecordBatch]:
    """A run cut where lists begin, into batches of about RUN_BYTES whose schema says the first list of each.

    A shard needs few lists of every run, and reads the batches that hold them.
    """
    lists = run.column("list").to_numpy()
    begins = np.flatnonzero(np.diff(lists, prepend=-1))
    step = max(1, RUN_BYTES // max(1, run.nbytes // max(1, len(lists))))
    ideal = np.arange(step, len(lists), step)
    cuts = np.unique(begins[np.searchsorted(begins, ideal, side="right") - 1]).tolist()
    bounds = [0, *(cut for cut in cuts if cut), len(lists)]
    firsts = [int(lists[begin]) for begin in bounds[:-1]] if len(lists) else [0]
    told = run.replace_schema_metadata({_FIRSTS: json.dumps(firsts)})
    return [told.slice(begin, end - begin) for begin, end in itertools.pairwise(bounds)]


def overlapping(schema: pa.Schema, first: int, last: int) -> range:
    """Which batches of a run hold lists [first, last); at least one, for the columns."""
    firsts = json.loads(schema.metadata[_FIRSTS])
    begin = max(bisect_right(firsts, first) - 1, 0)
    return range(begin, max(bisect_left(firsts, last), begin + 1))


def shard_ranges(counts: NDArray[np.int64], row_bytes: int) -> list[tuple[int, int]]:
    """Runs of whole lists [first, last) of about SHARD_BYTES, covering all lists."""
    ranges, first, held = [], 0, 0
    for number, rows in enumerate(counts.tolist()):
        if held and (held + rows) * row_bytes > SHARD_BYTES:
            ranges.append((first, number))
            first, held = number, 0
        held += rows
    return [*ranges, (first, len(counts))]


def pack(batches: list[pa.RecordBatch], first: int, last: int) -> pa.RecordBatch:
    """The rows of lists [first, last) of batches of all runs, sorted by (list, tie, source row)."""
    parts = []
    for batch in batches:
        bounds = np.searchsorted(batch.column("list").to_numpy(), [first, last])
        parts.append(batch.slice(bounds[0], bounds[1] - bounds[0]))
    table = pa.Table.from_batches(parts).replace_schema_metadata(None)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in ("list", "tie", "row")])
    shard = table.take(order).drop_columns(["list", "tie"]).combine_chunks()
    batches = shard.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=shard.schema)
