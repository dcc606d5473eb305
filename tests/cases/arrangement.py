"""How the rows of a case lie: in 1 or 3 partitions, in their order or shuffled; no answer may show it."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import locdist as ld
from locdist.data import arrays
from locdist.data.source import source
from locdist.execute.contract import Executor
from locdist.methods.method import Method
from tests.system.generated import read

Rows = pa.Table | Mapping[str, Any]


def table(rows: Rows) -> pa.Table:
    """Rows with an "id", which is their number where they have none."""
    made = arrays.table(rows)
    return made if "id" in made.column_names else made.append_column("id", pa.array(np.arange(len(made))))


@dataclass(frozen=True)
class Arrangement:
    """Files of a case below `place`: every job reads and writes `parts` partitions."""

    parts: int
    shuffled: bool
    place: Path
    executor: Executor = field(default_factory=lambda: ld.Local(2))
    _names: Iterator[int] = field(default_factory=itertools.count)

    def folder(self, name: str) -> Path:
        """A new folder."""
        return self.place / f"{name}-{next(self._names)}"

    def last(self, name: str) -> Path:
        """The newest folder of a name."""
        return max(self.place.glob(f"{name}-*"), key=lambda folder: int(folder.name.rpartition("-")[2]))

    def order(self, count: int) -> list[int]:
        """Row numbers as they are arranged."""
        given = list(range(count))
        mixed = np.random.default_rng(7).permutation(count).tolist() if self.shuffled else given
        return mixed if mixed != given or not self.shuffled else given[::-1]

    def write(self, rows: Rows) -> Path:
        """The rows as files of about the same size; small data leave some of them empty."""
        rows, folder = table(rows), self.folder("rows")
        folder.mkdir()
        rows = rows.take(pa.array(self.order(len(rows)), pa.int64()))
        cuts = np.linspace(0, len(rows), self.parts + 1).astype(int).tolist()
        for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
            pq.write_table(rows.slice(start, stop - start), folder / f"part-{number}.parquet")
        return folder

    def files(self, tables: Mapping[str, pa.Table]) -> list[Path]:
        """Files of a case that brings its own, in an order."""
        folder = self.folder("files")
        folder.mkdir()
        for name, rows in tables.items():
            pq.write_table(rows, folder / name)
        names = list(tables)
        return [folder / names[number] for number in self.order(len(names))]

    def build(self, rows: Rows | Path | Sequence[Path], bad: str = "raise", **asked: Any) -> ld.Generation:
        """An index of rows; `asked` are roles, and options of the index."""
        options = {name: asked.pop(name) for name in ("codes", "nlist", "recall") if name in asked}
        files = self.write(rows) if isinstance(rows, pa.Table | Mapping) else rows
        support = ld.dataset(files, **{"id": "id"} | asked)
        return ld.build_index(support, self.folder("index"), bad=bad, executor=self.executor, **options)

    def ask(
        self, method: Method | int, index: ld.Generation, rows: Rows | Path | Sequence[Path], **asked: Any
    ) -> pa.Table:
        """Answers by id: of a method, or for a number k the k nearest. One for each query, in their order."""
        files = self.write(rows) if isinstance(rows, pa.Table | Mapping) else rows
        out = self.folder("out")
        words = {"executor": self.executor, **asked}
        if isinstance(method, Method):
            ld.predict(method, index, files, out, **words)
        else:
            ld.neighbors(index, files, out, k=method, **words)
        answers = read(out)
        ids = [row for part in source(files).read(columns=["id"]) for row in part["id"].to_pylist()]
        assert answers["id"].to_pylist() == ids
        assert (len(list(out.glob("part-*.parquet"))) > 1) == (self.parts > 1 and len(ids) > 1)
        return answers.sort_by("id")


def found(answers: pa.Table) -> list[list[int]]:
    """The neighbors' ids of each answer."""
    return [[pair["id"] for pair in row] for row in answers["neighbors"].to_pylist()]


def quarantine(out: Path) -> list[dict[str, Any]]:
    """What an output says of its bad rows."""
    files = sorted((out / "_locdist/quarantine").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
