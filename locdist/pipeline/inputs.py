"""What a pipeline reads: opened once, and its columns checked before anything runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from locdist.data.dataset import Dataset
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError, did_you_mean, each_meant
from locdist.jobs.chosen import read_map, read_method
from locdist.jobs.coupling.edges import ENDS, is_graph
from locdist.jobs.gwr import split
from locdist.jobs.learning import METHOD
from locdist.jobs.predict import check_most, check_support
from locdist.methods.atlas import Atlas
from locdist.methods.coupled import CoupledMethod, coupled_method
from locdist.methods.method import Method
from locdist.pipeline.asking import Evaluate, Forecast, Neighbors, Predict, Transform
from locdist.pipeline.choices import made
from locdist.pipeline.graphs import Label
from locdist.pipeline.learning import Build, Select
from locdist.pipeline.meaning import found as named
from locdist.pipeline.meaning import outs, scored
from locdist.pipeline.mistakes import Mistake, Path
from locdist.pipeline.networks import Couple
from locdist.pipeline.pictures import Restore
from locdist.pipeline.section import Section
from locdist.pipeline.sections import Asked, File, Own
from locdist.pipeline.supports import OfStep, Rows, Support
from locdist.plan.manifest import check_folder, check_kind


@dataclass(frozen=True)
class Inputs:
    """The sources of a file, listed when they are first asked for and then kept: the same for its steps and
    for what is checked before. What a step wrote is listed anew, by the step that reads it.
    """

    file: File
    _opened: dict[tuple[object, str], Source] = field(default_factory=dict, compare=False, repr=False)

    def opened(self, rows: Rows | Support) -> Source | None:
        """Rows in files; None for those of a step."""
        if rows.path is None:
            return None
        bad = rows.bad_files if isinstance(rows, Support) else "raise"
        if (rows.path, bad) not in self._opened:
            self._opened[rows.path, bad] = source(self.place(rows), bad_files=bad)
        return self._opened[rows.path, bad]

    def place(self, rows: Rows | Support) -> str | list[str]:
        """Where rows are."""
        if rows.path is not None:
            return rows.path[0] if len(rows.path) == 1 else list(rows.path)
        return outs(self.file)[str(rows.step)]

    def rows(self, rows: Rows | None) -> Source | str | list[str]:
        """The queries of a step, or those of the file."""
        asked = rows or self.file.queries
        assert asked is not None  # `meaning` has told a file without
        return self.opened(asked) or self.place(asked)

    def support(self, support: Support | None, map: OfStep | None = None) -> Dataset:
        """The support of a step, or that of the file; with the map of a step, where one is named."""
        asked = support or self.file.support
        assert asked is not None
        roles = asked.roles if map is None else replace(asked.roles, map=read_map(self._method(map)))
        return Dataset(self.opened(asked) or source(self.place(asked), bad_files=asked.bad_files), roles)

    def index(self, asked: Predict | Neighbors | Select) -> str:
        """The folder of the index of a step, or of the file."""
        if asked.index is None:
            assert self.file.index is not None  # `meaning` has told a file without
            return self.file.index.path
        return asked.index.path or outs(self.file)[str(asked.index.step)]

    def method(self, choice: Section) -> Method:
        """The method that a section chooses, or that a step found."""
        return read_method(self._method(choice)) if isinstance(choice, OfStep) else made(choice)

    def _method(self, by: OfStep) -> str:
        """The file of a step."""
        folder = Store.at(outs(self.file)[by.step])
        return folder.path(METHOD)

    def mistakes(self) -> list[Mistake]:
        """What does not fit the data, as far as they are there, and folders that cannot be written."""
        return self._columns() or [*self._methods(), *self._folders()]

    def _columns(self) -> list[Mistake]:
        """Columns that the file names and the data lack."""
        found = list(self._roles(("support",), self.file.support)) if self.file.support else []
        for number, step in enumerate(self.file.steps):
            path, content = ("steps", number, step.verb), step.content
            if isinstance(content, Asked):
                found += self._kept((*path, "keep"), content.keep, content.queries or self.file.queries)
            elif isinstance(content, Own):
                if isinstance(content, Couple):
                    found += self._linked(path, content)
                if content.support is not None:
                    found += self._roles((*path, "support"), content.support)
                found += self._kept((*path, "keep"), content.keep, content.support or self.file.support)
            elif isinstance(content, Label):
                found += self._labels(path, content)
            elif isinstance(content, Forecast):
                found += self._series(path, content)
            elif isinstance(content, Restore):
                found += self._kept((*path, "keep"), content.keep, content.images)
                found += self._kept((*path, "column"), (content.column,), content.images)
            elif isinstance(content, Evaluate) and content.target is not None:
                found += self._truth((*path, "target"), content, number)
        return found

    def check(self) -> None:
        """DataError for queries that lack a column of the key or of the features of the file's support."""
        for step in self.file.steps:
            if isinstance(step.content, Predict | Neighbors):
                support = self._indexed(step.content)
                self._fitting(step.content.queries or self.file.queries, support)

    def _methods(self) -> Iterator[Mistake]:
        """Methods that cannot work on the support that their index is built from."""
        for number, step in enumerate(self.file.steps):
            content, own = step.content, isinstance(step.content, Transform)
            if not isinstance(content, Predict | Neighbors | Transform):
                continue
            there = self._indexed(content)
            if there is not None and self.opened(there) is not None:
                yield from _told(
                    ("steps", number, step.verb), partial(self._fit, content, self.support(there), own)
                )

    def _indexed(self, content: Predict | Neighbors | Transform) -> Support | None:
        """The rows that the index of a step is made of, as far as the file says."""
        if isinstance(content, Transform):
            return content.support or self.file.support
        if content.index is None:
            return self.file.support
        made = [step.content for step in self.file.steps if step.content.name == content.index.step]
        built = made[0] if made and isinstance(made[0], Build) else None
        return None if built is None or built.map is not None else built.support or self.file.support

    def _fit(self, content: Predict | Neighbors | Transform, support: Dataset, own: bool) -> None:
        """UsageError when a step cannot work on a support."""
        if isinstance(content, Neighbors):
            check_most(content.k, support.rows)
        elif not isinstance(content.method, OfStep):
            check_support(made(content.method), support, (), split(content.extras)[1], content.explain, own)

    def _folders(self) -> Iterator[Mistake]:
        """Folders that hold something else, or that an input shares."""
        read = [place for rows in self._read() for place in rows.path or ()]
        if self.file.index and self.file.support:
            yield from _told(
                ("index", "path"), partial(_check_out, self.file.index.path, "build-index", read)
            )
        for number, step in enumerate(self.file.steps):
            if not isinstance(step.content, Evaluate):
                path = ("steps", number, step.verb, "out")
                kind = "build-index" if isinstance(step.content, Build) else step.verb
                yield from _told(path, partial(_check_out, step.content.out, kind, read))

    def _read(self) -> Iterator[Rows | Support]:
        """All rows that the file names."""
        yield from (rows for rows in (self.file.support, self.file.queries) if rows is not None)
        for step in self.file.steps:
            if not isinstance(step.content, Evaluate):
                yield from (rows for _, rows in named(step.content) if isinstance(rows, Rows | Support))

    def _names(self, rows: Rows | Support | None) -> list[str] | None:
        """The columns of some rows; None while they are not there."""
        there = self.opened(rows) if rows is not None else None
        return list(there.schema.names) if there is not None else None

    def _roles(self, path: Path, support: Support) -> Iterator[Mistake]:
        names = self._names(support)
        named = {
            "key": tuple(support.key),
            "features": tuple(support.features or {}),
            "target": support.target,
            "shape": support.shape,
        }
        single = {"weight": support.weight, "offset": support.offset, "id": support.id}
        named |= {role: (name,) for role, name in single.items() if name is not None}
        for role, columns in named.items() if names is not None else ():
            yield from _missing((*path, role), f"a column of the support as its {role}", columns, names or [])

    def _linked(self, path: Path, content: Couple) -> Iterator[Mistake]:
        """The columns of edges or groups, and the roles without which rows are of no node."""
        support, method = content.support or self.file.support, coupled_method(content.method)
        names = self._names(content.edges) if content.edges and not self._is_graph(content.edges) else None
        if names is not None:
            groups = isinstance(method, CoupledMethod) and method.levels
            usual = (str(support and support.id),) if groups else ENDS
            wanted, role = "a column of the groups" if groups else "a column of the edges", "ends"
            yield from _missing(
                (*path, role if content.ends else "edges"), wanted, content.ends or usual, names
            )
        charts = isinstance(method, Atlas)
        if support is not None and (len(support.target) != 1 or (support.id is None and not charts)):
            given = f"id {support.id!r}, target {list(support.target)}"
            yield Mistake((*path, "support"), "an id, and one target", given, "Name the columns.")

    def _is_graph(self, edges: Rows) -> bool:
        place = self.place(edges)
        return isinstance(place, str) and is_graph(place)

    def _kept(
        self, path: Path, keep: tuple[str, ...] | None, rows: Rows | Support | None
    ) -> Iterator[Mistake]:
        names = self._names(rows)
        if keep is not None and "*" not in keep and names is not None:
            yield from _missing(path, "an input column to keep", keep, names)

    def _labels(self, path: Path, content: Label) -> Iterator[Mistake]:
        """The columns of the labels."""
        names = self._names(content.labels)
        if names is not None:
            yield from _missing((*path, "target"), "a column of the labels", content.target, names)
        if names is not None and content.id is not None:
            yield from _missing((*path, "id"), "a column of the labels", (content.id,), names)

    def _series(self, path: Path, content: Forecast) -> Iterator[Mistake]:
        """The columns of the series."""
        names = self._names(content.series)
        roles = {"target": content.target, "time": content.time, "id": content.id}
        for role, name in roles.items() if names is not None else ():
            if name is not None:
                yield from _missing((*path, role), "a column of the series", (name,), names or [])

    def _truth(self, path: Path, content: Evaluate, number: int) -> Iterator[Mistake]:
        """The column of the truth among those given, kept or asked."""
        by = next(step.content for step in self.file.steps if step.content.name == scored(self.file, number))
        own = by.support or self.file.support if isinstance(by, Own) else None
        rows = own or getattr(by, "queries", None) or self.file.queries
        names = self._names(Rows(path=content.truth) if content.truth else rows)
        if names is not None and content.target is not None:
            yield from _missing(path, "the column of the truth", (content.target,), names)

    def _fitting(self, queries: Rows | None, support: Support | None) -> None:
        names = self._names(queries)
        if names is None or support is None:
            return
        roles = (("key", support.key), ("features", support.features or {}))
        lost = {name: role for role, columns in roles for name in columns if name not in names}
        if lost:
            wanted = ", ".join(f"{name!r} of the {role}" for name, role in lost.items())
            there = ", ".join(map(repr, names))
            columns = f"column{'s' if len(lost) > 1 else ''} {wanted} in the queries"
            raise DataError(columns, f"the columns {there}", each_meant(lost, names))


def _told(path: Path, check: Callable[[], None]) -> Iterator[Mistake]:
    """What a check refuses, as a mistake of the file."""
    try:
        check()
    except UsageError as error:
        yield Mistake(path, error.expected, error.given, error.remedy)


def _check_out(out: str, kind: str, read: Sequence[str]) -> None:
    """UsageError when a step of this kind cannot write to a folder."""
    folder = Store.at(out)
    check_folder(folder, read)
    check_kind(folder, kind)


def _missing(path: Path, wanted: str, columns: tuple[str, ...], names: list[str]) -> Iterator[Mistake]:
    for name in columns:
        if name not in names:
            yield Mistake(path, wanted, repr(name), did_you_mean(name, names))
