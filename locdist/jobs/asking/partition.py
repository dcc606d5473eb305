"""One output partition: tables of answers as a task writes them, and what is counted of them."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from locdist.errors import DataError
from locdist.jobs.asking.tally import Tally
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record

GROUP_BYTES = 2 << 20  # of a row group of the output, in memory
QUARANTINE = "_locdist/quarantine"


def write_partition(
    schema: pa.Schema, tables: Iterable[tuple[pa.Table, Tally]], task: Task, attempt: Attempt
) -> Record:
    """Write the one output of a task, atomically; rows out are checked against rows in, which are the task's
    inputs [start, stop). Bad rows are listed in a file of the quarantine.
    """
    start, stop = task.inputs
    (name,) = task.outputs
    tally = Tally()
    quarantine, group = list[pa.Table](), list[pa.Table]()
    with (
        attempt.writer(name) as sink,
        pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table, counted in tables:
            tally = tally.add(counted)
            quarantine += counted.quarantine
            group.append(_owned(table))
            if sum(part.nbytes for part in group) >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(group))
                group = []
        writer.write_table(pa.concat_tables([schema.empty_table(), *group]))
        if tally.rows != stop - start:
            wanted = f"{stop - start} rows [{start}, {stop}) of the queries"
            raise DataError(wanted, f"{tally.rows}", "The input changed while it was read.")
    if quarantine:
        with attempt.folder.writer(f"{QUARANTINE}/{task.name}.parquet") as sink:
            pq.write_table(pa.concat_tables(quarantine), sink)
    return Record(rows=tally.rows, bad_rows=tally.bad, data=tally.data)


def _owned(table: pa.Table) -> pa.Table:
    """A copy in Arrow's own memory: small tensors that stay would hold the allocator's large blocks."""
    return pa.concat_tables([table.slice(0, 0), table]).combine_chunks()
