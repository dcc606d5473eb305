"""Single files: what their footers say, and their rows in batches of bounded size.

A footer is read with one request and hashed: with the size it is the fingerprint that pins a file. Rows are
decoded a batch at a time also inside one huge row group, because a file of 4 MB may hold 200 MB of vectors.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from locdist.data.schema import plain
from locdist.data.store import FileInfo, Store
from locdist.errors import DataError, LocdistError, MachineError

_TAIL = 64 << 10
_BUFFER = 1 << 20
_SAMPLE = 256  # rows that tell how large the others are
_POINTER = b"version https://git-lfs"
POINTER = "the pointer that Git-LFS leaves in place of the file"
FETCH = "Fetch the file itself: git lfs pull."
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
        Hash of its size, its footer and the rows before it, 64 KiB in all (of its content for data in
        memory).
    groups : tuple of int
        The rows of each of its row groups or record batches: what can be decoded on its own.
    """

    path: str
    rows: int
    size: int
    modified: int
    fingerprint: str
    groups: tuple[int, ...]


def is_pointer(start: bytes) -> bool:
    """Whether a file begins as those that Git-LFS leaves in the place of large ones."""
    return start.startswith(_POINTER)


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
            if is_pointer(bytes(stream.read_at(min(info.size, len(_POINTER)), 0))):
                raise DataError(f"a {kind} file at {path}", POINTER, FETCH) from None
            raise blame(path, error) from error


def _parquet(stream: pa.NativeFile, info: FileInfo) -> tuple[SourceFile, pa.Schema]:
    footer, seen = _footer(stream, info.size, b"PAR1", 8)
    metadata = pq.read_metadata(pa.BufferReader(footer))
    groups = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    return _file(info, seen, groups), metadata.schema.to_arrow_schema().remove_metadata()


def _ipc(stream: pa.NativeFile, info: FileInfo) -> tuple[SourceFile, pa.Schema]:
    _, seen = _footer(stream, info.size, b"ARROW1", 10)
    schema = pa.ipc.open_file(stream).schema
    # The rows of a batch stand in its own header; reading its narrowest column is the cheapest way there.
    narrow = min(range(len(schema)), key=lambda index: _width(schema.field(index).type), default=None)
    options = pa.ipc.IpcReadOptions(included_fields=None if narrow is None else [narrow])
    reader = pa.ipc.open_file(stream, options=options)
    groups = tuple(reader.get_batch(batch).num_rows for batch in range(reader.num_record_batches))
    return _file(info, seen, groups), schema.remove_metadata()


def _footer(stream: pa.NativeFile, size: int, magic: bytes, end: int) -> tuple[bytes, bytes]:
    """The bytes of a footer with its length and magic word, in one request unless the footer is large; and
    all that was read, which tells apart files whose footers are alike: rows in another order, Arrow files.
    """
    tail = bytes(stream.read_at(min(size, _TAIL), max(0, size - _TAIL)))
    if not tail.endswith(magic) or size < end:
        raise ValueError(f"the file does not end with {magic.decode()!r}, it is truncated or of another kind")
    length = int.from_bytes(tail[-end : -end + 4], "little") + end
    if length > size:
        raise ValueError(f"its footer says {length} bytes, the file has {size}")
    if length <= len(tail):
        return tail[-length:], tail
    footer = bytes(stream.read_at(length, size - length))
    return footer, footer


def _file(info: FileInfo, seen: bytes, groups: tuple[int, ...]) -> SourceFile:
    digest = hashlib.blake2b(seen + info.size.to_bytes(8, "little"), digest_size=16).hexdigest()
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
                batch.validate(full=True)  # Arrow trusts what it reads: offsets, and text that is no UTF-8
            except StopIteration:
                raise DataError(
                    f"{self.file.rows} rows in {path}", "fewer", "The file is damaged: write it again."
                ) from None
            except (pa.ArrowException, OSError, ValueError) as error:
                raise blame(path, error) from error
            piece = batch.slice(min(skip, batch.num_rows), wanted)
            skip -= min(skip, batch.num_rows)
            wanted -= piece.num_rows
            if piece.num_rows:
                yield pa.Table.from_batches([piece])

    def _parquet(self, stream: pa.NativeFile, groups: list[int]) -> Iterator[pa.RecordBatch]:
        buffer = _BUFFER if self.store.local else 8 * _BUFFER
        file = pq.ParquetFile(  # pages have checksums where their writer wrote them, as we do
            stream, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True
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
        """Decoded bytes of a row, of which the compressed size says nothing: by the types where they are of
        fixed width, else by the first rows of the group. (The number of values stands in the footer, but
        pyarrow ends the process where it is asked for that of a damaged one.)
        """
        schema = file.schema_arrow
        fields = [schema.field(name) for name in self.columns if name in schema.names]
        known = sum(_width(field.type) * 9 / 8 for field in fields)  # a bit of validity to each byte at most
        if known < float("inf"):
            return float(known)
        names = [field.name for field in fields]
        few = min(_SAMPLE, self.batch_rows or _SAMPLE)  # a row may be large: no more than asked for
        batches = file.iter_batches(few, row_groups=[group], columns=names, use_threads=False)
        first = next(batches, None)
        if first is None:
            return 1.0
        lists = (column for column in first.columns if pa.types.is_nested(column.type))
        metadata = file.metadata.row_group(group)
        unseen = metadata.total_byte_size if any(not len(pc.list_flatten(each)) for each in lists) else 0
        return float(max(first.nbytes / first.num_rows, unseen / metadata.num_rows))
