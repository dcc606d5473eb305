"""A source: the rows of many files as one long table that nobody holds.

It is a description (files, footers, one promoted schema), small enough to travel with every task. Rows are
numbered through the files in order, so a task is a span of row numbers, and any span can be read on its own
with no more than its row groups decoded.
"""

import functools
import hashlib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from locdist.data import arrays, memory
from locdist.data.folders import partition_values, spelled_column, unify_spelled
from locdist.data.footers import Reading, SourceFile, describe
from locdist.data.listing import PLACES, Listing, listing
from locdist.data.schema import cast, unify
from locdist.data.store import FileInfo, Store
from locdist.errors import DataError, UsageError, each_meant

Numbers = npt.NDArray[np.int64]
BATCH_BYTES = 32 << 20
_FOOTER_THREADS = 8


@dataclass(frozen=True)
class Span:
    """Rows [start, stop) of a source."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.stop - self.start


@dataclass(frozen=True)
class Source:
    """Files and what their footers say. Make one with `source`.

    Parameters
    ----------
    store : Store or None
        The folder that the paths of the files are relative to; None for data in memory.
    files : tuple of SourceFile
        The partitions, in order.
    format : str
        "parquet", "ipc" or "memory".
    schema : pa.Schema
        Promoted over all files; columns spelled by folders are strings.
    skipped : tuple of (str, str)
        Files that were left out, and why.
    damaged : tuple of str
        Those among them whose footer cannot be read.
    absent : tuple of (str, str)
        Columns that some file lacks, with the first such file.
    places : tuple of str
        What was asked for: folders, files and patterns, absolute.
    table : pa.Table or None
        The rows, for data in memory. Two such sources are compared by their one file, "memory", whose size
        and fingerprint are those of the file that `spill` writes.
    """

    store: Store | None
    files: tuple[SourceFile, ...]
    format: str
    schema: pa.Schema
    skipped: tuple[tuple[str, str], ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    places: tuple[str, ...] = ()
    table: pa.Table | None = field(default=None, compare=False, repr=False)
    damaged: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return self.starts[-1]

    @functools.cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of the first row of each file, and the number of rows at the end: one more than there
        are files.
        """
        return tuple(np.cumsum([0] + [file.rows for file in self.files]).tolist())

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash over paths, sizes and footers of all files in order: what was read, wherever its folder
        lies.
        """
        lines = [f"{file.path}\0{file.size}\0{file.rows}\0{file.fingerprint}\n" for file in self.files]
        return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()

    def without(self, paths: Sequence[str]) -> "Source":
        """The source less some of its files."""
        left = set(paths)
        kept = tuple(file for file in self.files if file.path not in left)
        return self if len(kept) == len(self.files) else replace(self, files=kept)

    def __getstate__(self) -> dict[str, Any]:
        # What is cached is computed again where it is needed: a task carries the source, and stays small.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def spill(self, folder: Store) -> "Source":
        """Data in memory as a file of a folder, named "memory": the same source, but small.

        A file that is there and has the right size is taken for the one that was written before.
        """
        if self.table is None:
            return self
        (file,) = self.files
        found = folder.info(file.path)
        if found is None or found.size != file.size:
            with folder.writer(file.path) as sink:
                memory.write(self.table, sink)
        return replace(self, store=folder, format="ipc", table=None)

    def locate(self, row: int) -> tuple[str, int]:
        """The address of a row: the path of its file, and its number in that file."""
        index = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.files[index].path, row - self.starts[index]

    def addresses(self, start: int, stop: int) -> pa.Table:
        """The addresses of rows [start, stop): columns "file" (string) and "row" (int64, in the file)."""
        numbers = np.arange(start, stop, dtype=np.int64)
        index = np.searchsorted(self.starts, numbers, side="right") - 1
        paths = pa.array([file.path for file in self.files], pa.string())
        return pa.table(
            {"file": paths.take(pa.array(index)), "row": numbers - np.asarray(self.starts, np.int64)[index]}
        )

    def check(self, columns: Sequence[str]) -> None:
        """Refuse columns that are nowhere, or missing in some file.

        Raises
        ------
        UsageError
            When no file has a column; names all of them, and what may have been meant.
        DataError
            When a file lacks the column; with the first such file.
        """
        lost = [name for name in columns if self.schema.get_field_index(name) < 0]
        if lost:
            given = ", ".join(map(repr, lost))
            raise UsageError("a column of the data", given, each_meant(lost, self.schema.names))
        for name in columns:
            file = dict(self.absent).get(name)
            if file is not None:
                remedy = "Write the file with the column, or leave one of them out."
                raise DataError(f"column {name!r} in every file", f"{file} without it", remedy)

    def read(
        self,
        start: int = 0,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int | None = None,
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[pa.Table]:
        """Rows [start, stop) in order, in tables of bounded size and of the promoted schema.

        Parameters
        ----------
        start, stop : int
            Row numbers; to the end when `stop` is None.
        columns : sequence of str, optional
            The columns wanted, in this order; all of them by default.
        batch_rows : int, optional
            At most so many rows in a table.
        batch_bytes : int
            At most about so many bytes in a table (of one row if a row is larger).

        Yields
        ------
        pa.Table
            Never empty: nothing is yielded for an empty span. Rows of several small files may share a table.
        """
        names = self.schema.names if columns is None else list(columns)
        self.check(names)
        stop = self.rows if stop is None else min(stop, self.rows)
        if batch_rows is not None and batch_rows < 1:
            raise UsageError(
                "at least one row in a batch",
                f"batch_rows={batch_rows}",
                "Leave it out for a bound in bytes.",
            )
        yield from _gathered(
            self._pieces(start, stop, names, batch_rows, batch_bytes), batch_rows, batch_bytes
        )

    def partitions(self, rows_per_task: int) -> list[Span]:
        """The rows cut into spans of about equal size, for one task each.

        A cut moves to the border of a row group when one lies within a quarter of `rows_per_task`. No span is
        empty, except the only one of a source without rows.
        """
        if rows_per_task < 1:
            raise UsageError("at least one row a task", f"{rows_per_task}", "Give a positive number of rows.")
        count = -(-self.rows // rows_per_task)
        borders = np.cumsum([0] + [rows for file in self.files for rows in file.groups])
        ideal = np.array([part * self.rows // count for part in range(1, count)], dtype=np.int64)
        edges = sorted({0, *_snapped(ideal, borders, rows_per_task / 4).tolist(), self.rows})
        return [Span(*pair) for pair in itertools.pairwise(edges)] or [Span(0, 0)]

    def _pieces(
        self, start: int, stop: int, names: list[str], rows: int | None, size: int
    ) -> Iterator[pa.Table]:
        if self.table is not None:
            yield from _slices(self.table.select(names), start, stop, rows, size)
            return
        for index in range(bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)):
            offset, end = self.starts[index : index + 2]
            first, last = max(start, offset), min(stop, end)
            if first < last:
                yield from self._file(self.files[index], first - offset, last - offset, names, rows, size)

    def _file(
        self, file: SourceFile, start: int, stop: int, names: list[str], rows: int | None, size: int
    ) -> Iterator[pa.Table]:
        assert self.store is not None
        spelled = {name: value for name, value in partition_values(file.path).items() if name in names}
        reading = Reading(self.store, file, self.format, start, stop, tuple(names), rows, size)
        for piece in reading.tables():
            yield self._promoted(piece, file, names, spelled)

    def _promoted(
        self, piece: pa.Table, file: SourceFile, names: list[str], spelled: dict[str, str | None]
    ) -> pa.Table:
        """A table of one file as a table of the source: columns by name, in the promoted types, with what the
        folders spell.
        """
        path = self.store.path(file.path) if self.store else file.path
        columns = []
        for name in names:
            values = piece.column(name) if name in piece.column_names else None
            if name in spelled:
                values = spelled_column(name, spelled[name], values, piece.num_rows, path)
            columns.append(cast(values, self.schema.field(name).type, functools.partial(_unfit, path, name)))
        return pa.table(columns, schema=pa.schema([self.schema.field(name) for name in names]))


def source(data: Any, *, bad_files: Literal["raise", "skip"] = "raise") -> Source:
    """The rows of files or of data in memory.

    Parameters
    ----------
    data : path, pattern, list of both, Store, Source, or data in memory
        A folder is read recursively. Data in memory is what `locdist.data.arrays.table` takes.
    bad_files : {"raise", "skip"}
        What happens to a file whose footer cannot be read: an error that names it, or an entry in
        `Source.skipped`. A file that cannot be reached is always an error.

    Raises
    ------
    DataError
        When there are no files, a file is damaged, or files disagree about a column.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, PLACES) or (
        isinstance(data, list | tuple) and all(isinstance(each, PLACES) for each in data)
    ):
        return _of_files(listing(data), bad_files)
    return _of_table(arrays.table(data))


def _of_table(table: pa.Table) -> Source:
    schema = unify([("the table", table.schema)]).schema
    columns = [
        cast(values, field.type, functools.partial(_unfit, "the table", field.name))
        for values, field in zip(table.columns, schema, strict=True)
    ]
    table = pa.table(columns, schema=schema).unify_dictionaries()  # a file has one dictionary a column
    file = memory.described(table)
    return Source(None, (file,), "memory", schema, table=table)


def _of_files(found: Listing, bad_files: str) -> Source:
    def footer(info: FileInfo) -> tuple[SourceFile, pa.Schema] | DataError:
        try:
            return describe(found.root, info, found.format)
        except DataError as error:
            return error

    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        described = list(pool.map(footer, found.files))
    bad = [
        (info, error)
        for info, error in zip(found.files, described, strict=True)
        if isinstance(error, DataError)
    ]
    good = [each for each in described if not isinstance(each, DataError)]
    if bad and (bad_files == "raise" or not good):
        raise bad[0][1]
    unified = unify_spelled([(file.path, schema) for file, schema in good])
    skipped = found.skipped + tuple((info.path, str(error)) for info, error in bad)
    files = tuple(file for file, _ in good)
    return Source(
        found.root, files, found.format, unified.schema, skipped, unified.absent, found.places,
        damaged=tuple(info.path for info, _ in bad),
    )  # fmt: skip


def _unfit(path: str, name: str, error: Exception) -> DataError:
    wanted = f"values of column {name!r} in {path} to fit the type that all files have in common"
    return DataError(wanted, str(error)[:300], "Write all files with one type that is wide enough.")


def _snapped(cuts: Numbers, borders: Numbers, reach: float) -> Numbers:
    """Each cut, or the nearest border [b, sorted, from 0] within reach, the earlier of two equally near."""
    above = np.minimum(np.searchsorted(borders, cuts), len(borders) - 1)
    low, high = borders[np.maximum(above - 1, 0)], borders[above]
    near = np.where(np.abs(cuts - low) <= np.abs(high - cuts), low, high)
    return np.where(np.abs(near - cuts) <= reach, near, cuts)


def _slices(table: pa.Table, start: int, stop: int, rows: int | None, size: int) -> Iterator[pa.Table]:
    step = max(1, int(size / max(1.0, table.nbytes / max(1, table.num_rows))))
    step = min(step, rows or step)
    for begin in range(start, stop, step):
        yield table.slice(begin, min(step, stop - begin))


def _gathered(pieces: Iterator[pa.Table], rows: int | None, size: int) -> Iterator[pa.Table]:
    """Small pieces joined until the next would pass a bound: a file of one row must not be a batch of one
    row.
    """
    held: list[pa.Table] = []
    count = weight = 0
    for piece in pieces:
        over = (rows is not None and count + piece.num_rows > rows) or weight + piece.nbytes > size
        if held and over:
            yield pa.concat_tables(held)
            held, count, weight = [], 0, 0
        held.append(piece)
        count, weight = count + piece.num_rows, weight + piece.nbytes
    if held:
        yield pa.concat_tables(held)
