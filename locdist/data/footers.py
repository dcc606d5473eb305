"""Single files: what their footers say, and their rows in batches of bounded size.

A footer is read with one request and hashed: with the size it is the fingerprint that pins a file. Rows are
decoded a batch at a time also inside one huge row group, because a file of 4 MB may hold 200 MB of vectors.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from locdist.data.schema import plain
from locdist.data.store import FileInfo, Store
from locdist.errors import DataError, LocdistError, MachineError

_TAIL = 64 << 10
_BUFFER = 1 << 20
_REMOTE = ("AWS Error", "GOOGLE", "Azure", "curl", "timed out", "Connection")


@dataclass(frozen=True)
class SourceFile:
    """A partition as it was when it was pinned.

    Parameters
    ----------
    path : str
        Relative to the root of its source.
    rows, size, modified : int
        Rows; bytes; nanoseconds since 1970.
    fingerprint : str
        Hash of its footer and size (of its content for data in memory).
    groups : tuple of int
        The rows of each of its row groups or record batches: what can be decoded on its own.
    """

    path: str
    rows: int
    size: int
    modified: int
    fingerprint: str
    groups: tuple[int, ...]


def blame(path: str, error: Exception) -> LocdistError:
    """What a failed read of a file means: broken content is the data's fault, anything with an operating
    system behind it is not.
    """
    told = f"{type(error).__name__}: {str(error)[:300]}"
    system = isinstance(error, OSError) and not isinstance(error, pa.ArrowInvalid)
    if system and (getattr(error, "errno", None) is not None or any(word in str(error) for word in _REMOTE)):
        return MachineError(f"access to {path}", told, "Check permissions, space and network.")
    return DataError(
        f"readable content in {path}",
        told,
        "The file is damaged or of another kind: write it again or leave it out.",
    )


def describe(store: Store, info: FileInfo, kind: str) -> tuple[SourceFile, pa.Schema]:
    """A file and its schema, from its footer.

    Raises
    ------
    DataError
        When the file is empty, truncated or not of its kind; the message names it.
    MachineError
        When it cannot be reached.
    """
    path = store.path(info.path)
    if info.size == 0:
        raise DataError(
            f"a {kind} file at {path}",
            "a file of zero bytes",
            "It is not an empty table: write it again or remove it.",
        )
    with store.open(info.path) as stream:
        try:
            return (_parquet if kind == "parquet" else _ipc)(stream, info)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise blame(path, error) from error


def _parquet(stream: pa.NativeFile, info: FileInfo) -> tuple[SourceFile, pa.Schema]:
    footer = _footer(stream, info.size, b"PAR1", 8)
    metadata = pq.read_metadata(pa.BufferReader(footer))
    groups = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    return _file(info, footer, groups), metadata.schema.to_arrow_schema().remove_metadata()


def _ipc(stream: pa.NativeFile, info: FileInfo) -> tuple[SourceFile, pa.Schema]:
    footer = _footer(stream, info.size, b"ARROW1", 10)
    schema = pa.ipc.open_file(stream).schema
    # The rows of a batch stand in its own header; reading its narrowest column is the cheapest way there.
    narrow = min(range(len(schema)), key=lambda index: _width(schema.field(index).type), default=None)
    options = pa.ipc.IpcReadOptions(included_fields=None if narrow is None else [narrow])
    reader = pa.ipc.open_file(stream, options=options)
    groups = tuple(reader.get_batch(batch).num_rows for batch in range(reader.num_record_batches))
    return _file(info, footer, groups), schema.remove_metadata()


def _footer(stream: pa.NativeFile, size: int, magic: bytes, end: int) -> bytes:
    """The bytes of a footer with its length and magic word, in one request unless the footer is large."""
    tail = bytes(stream.read_at(min(size, _TAIL), max(0, size - _TAIL)))
    if not tail.endswith(magic) or size < end:
        raise ValueError(f"the file does not end with {magic.decode()!r}, it is truncated or of another kind")
    length = int.from_bytes(tail[-end : -end + 4], "little") + end
    if length > size:
        raise ValueError(f"its footer says {length} bytes, the file has {size}")
    return tail[-length:] if length <= len(tail) else bytes(stream.read_at(length, size - length))


def _file(info: FileInfo, footer: bytes, groups: tuple[int, ...]) -> SourceFile:
    digest = hashlib.blake2b(footer + info.size.to_bytes(8, "little"), digest_size=16).hexdigest()
    return SourceFile(info.path, sum(groups), info.size, info.modified, digest, groups)


def _width(kind: pa.DataType) -> float:
    """Bytes of a value of a fixed width; infinite where values differ in size."""
    kind = plain(kind)
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size) * _width(kind.value_type)
    try:
        return float(max(1, kind.bit_width)) / 8
    except ValueError:
        return 0.0 if pa.types.is_null(kind) else float("inf")


@dataclass(frozen=True)
class Reading:
    """Rows [start, stop) of one file, as batches.

    Parameters
    ----------
    columns : sequence of str
        Columns wanted; those that the file does not hold are left out.
    batch_rows : int or None
        At most so many rows in a batch.
    batch_bytes : int
        At most about so many decoded bytes in a batch; a single row may be larger.
    """

    store: Store
    file: SourceFile
    kind: str
    start: int
    stop: int
    columns: Sequence[str]
    batch_rows: int | None
    batch_bytes: int

    def tables(self) -> Iterator[pa.Table]:
        """The rows in order. Only the row groups that overlap them are decoded."""
        groups, skip = self._overlapping()
        with self.store.open(self.file.path, mmap=self.kind == "ipc") as stream:
            self._check_unchanged(stream)
            rows = self._parquet(stream, groups) if self.kind == "parquet" else self._ipc(stream, groups)
            yield from self._cut(rows, skip, self.stop - self.start)

    def _overlapping(self) -> tuple[list[int], int]:
        """The row groups that hold the rows, and how many rows of the first come before them."""
        groups: list[int] = []
        first = begin = 0
        for group, rows in enumerate(self.file.groups):
            if begin < self.stop and begin + rows > self.start:
                first = first if groups else begin
                groups.append(group)
            begin += rows
        return groups, self.start - first

    def _check_unchanged(self, stream: pa.NativeFile) -> None:
        if stream.size() != self.file.size:
            given = f"{stream.size()} bytes where there were {self.file.size}"
            path = self.store.path(self.file.path)
            raise DataError(
                f"{path} as it was when it was listed",
                given,
                "Leave inputs alone during a run, or start a new one.",
            )

    def _cut(self, batches: Iterator[pa.RecordBatch], skip: int, wanted: int) -> Iterator[pa.Table]:
        path = self.store.path(self.file.path)
        while wanted > 0:
            try:
                batch = next(batches)
            except StopIteration:
                raise DataError(
                    f"{self.file.rows} rows in {path}", "fewer", "The file is damaged: write it again."
                ) from None
            except (pa.ArrowException, OSError) as error:
                raise blame(path, error) from error
            piece = batch.slice(min(skip, batch.num_rows), wanted)
            skip -= min(skip, batch.num_rows)
            wanted -= piece.num_rows
            if piece.num_rows:
                yield pa.Table.from_batches([piece])

    def _parquet(self, stream: pa.NativeFile, groups: list[int]) -> Iterator[pa.RecordBatch]:
        file = pq.ParquetFile(
            stream, pre_buffer=False, buffer_size=_BUFFER if self.store.local else 8 * _BUFFER
        )
        widest = max((self._row_bytes(file, group) for group in groups), default=1.0)
        yield from file.iter_batches(
            self._rows(widest), row_groups=groups, columns=list(self.columns), use_threads=False
        )

    def _ipc(self, stream: pa.NativeFile, groups: list[int]) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.open_file(stream).schema
        names = [name for name in self.columns if name in schema.names]
        fields = [schema.get_field_index(name) for name in names] or [0]
        reader = pa.ipc.open_file(stream, options=pa.ipc.IpcReadOptions(included_fields=fields))
        for group in groups:
            batch = reader.get_batch(group)
            rows = self._rows(batch.nbytes / max(1, batch.num_rows))
            for begin in range(0, batch.num_rows, rows):
                yield batch.slice(begin, rows)

    def _rows(self, row_bytes: float) -> int:
        rows = max(1, int(self.batch_bytes / max(row_bytes, 1.0)))
        return min(rows, self.batch_rows or rows, 1 << 20)

    def _row_bytes(self, file: pq.ParquetFile, group: int) -> float:
        """Decoded bytes of a row: values times their width. The compressed size says nothing about it."""
        metadata = file.metadata.row_group(group)
        tops = set(self.columns)
        total = 0.0
        for index in range(metadata.num_columns):
            chunk = metadata.column(index)
            if chunk.path_in_schema in tops or chunk.path_in_schema.split(".")[0] in tops:
                width = _PHYSICAL.get(chunk.physical_type, 0.0)
                total += chunk.num_values * (width or 8.0) + (0.0 if width else chunk.total_uncompressed_size)
                total += chunk.num_values / 8  # validity
        return float(total / max(1, metadata.num_rows))


_PHYSICAL = {"BOOLEAN": 1.0, "INT32": 4.0, "INT64": 8.0, "INT96": 8.0, "FLOAT": 4.0, "DOUBLE": 8.0}
