"""A table in memory as the file it would be: an Arrow file of batches that can be read on their own.

Its content is hashed as it would be written, so what was pinned as data in memory and the file that is
written for the workers of a job are one and the same source.
"""

import hashlib

import pyarrow as pa

from locdist.data.footers import SourceFile

PATH = "memory"  # of the one file
BATCH_ROWS = 1 << 16


def described(table: pa.Table) -> SourceFile:
    """The file that `write` would write of a table whose dictionaries are unified, without writing it."""
    hashed = _Hashed()
    with pa.PythonFile(hashed, "w") as sink:
        write(table, sink)
    groups = tuple(min(BATCH_ROWS, table.num_rows - begin) for begin in _begins(table))
    return SourceFile(PATH, table.num_rows, hashed.size, 0, hashed.digest.hexdigest(), groups)


def write(table: pa.Table, sink: pa.NativeFile) -> None:
    """Write a table as an Arrow file; the same bytes however its columns are chunked."""
    with pa.ipc.new_file(sink, table.schema) as writer:
        for begin in _begins(table):
            writer.write_table(table.slice(begin, BATCH_ROWS).combine_chunks())


def _begins(table: pa.Table) -> range:
    return range(0, table.num_rows, BATCH_ROWS)


class _Hashed:
    """A file of which only the size and the hash are kept."""

    closed = False

    def __init__(self) -> None:
        self.size, self.digest = 0, hashlib.blake2b(digest_size=16)

    def write(self, data: bytes) -> int:
        """Count and hash."""
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        """Where the next bytes go."""
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is held open."""
