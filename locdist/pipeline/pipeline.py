"""A pipeline: a file, or the same content in Python, that plans and runs its steps.

Paths are relative to the working directory, as on the command line, and are made absolute when the pipeline
is read. (Relative to the file they would change their meaning when it is copied, which is what the files in
`pipelines/` are for.) The resolved content, with all defaults and absolute paths, is stored beside each
output; it is a pipeline file as well, and gives the same again from anywhere.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from locdist.data.store import Store
from locdist.errors import UsageError, did_you_mean
from locdist.execute.choose import executor as chosen_executor
from locdist.execute.contract import Executor
from locdist.execute.events import Listener
from locdist.pipeline import meaning, mistakes
from locdist.pipeline.amounts import max_bad
from locdist.pipeline.call import RESOLVED, Call, EvaluateCall
from locdist.pipeline.calls import calls
from locdist.pipeline.changes import changed
from locdist.pipeline.checking import checked
from locdist.pipeline.document import Document, document, written
from locdist.pipeline.inputs import Inputs
from locdist.pipeline.mistakes import Mistake
from locdist.pipeline.report import PipelinePlan, PipelineReport, StepReport
from locdist.pipeline.sections import File
from locdist.plan.plan import Resources

_HEADER = (
    "# What ran here, with all defaults. `locdist run` on this file does the same again, from anywhere.\n"
)
Announce = Callable[[str], None]


@dataclass(frozen=True)
class Pipeline:
    """Named steps that read and write partitions. Make one with `Pipeline.read` or `Pipeline.of`.

    Parameters
    ----------
    file : File
        The checked content.
    source : str
        Where it comes from, for errors.
    places : mapping
        The line of each key, where there are lines.

    Examples
    --------
    >>> import locdist as ld
    >>> nightly = ld.Pipeline.of({
    ...     "version": 1,
    ...     "support": {"path": "data/train/", "key": ["longitude", "latitude"], "target": "price"},
    ...     "queries": {"path": "data/new/"},
    ...     "index": {"path": "index/"},
    ...     "steps": [{"predict": {"method": {"name": "local-mean", "k": 64}, "out": "predictions/"}}],
    ... })
    >>> report = nightly.run()  # doctest: +SKIP
    """

    file: File
    source: str = "the pipeline"
    places: Mapping[mistakes.Path, str] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def read(path: str | Path, changes: Iterable[str] = ()) -> "Pipeline":
        """The pipeline of a file.

        Parameters
        ----------
        path : path or address
            A YAML file.
        changes : iterable of str
            Changed values, "run.executor=ray" or "steps.predict.k=5", as after `--set`.

        Raises
        ------
        UsageError
            With every mistake of the file: its line, its path, what was expected and probably meant.
        """
        return _pipeline(document(_text(str(path)), str(path)), str(path), changes)

    @staticmethod
    def of(content: Mapping[str, Any], changes: Iterable[str] = ()) -> "Pipeline":
        """The pipeline of a content: what a file would say, as mappings and lists."""
        return _pipeline(Document(_plain(content), {}, ()), "the pipeline", changes)

    def to_yaml(self) -> str:
        """The resolved file: all defaults written out, paths absolute."""
        return _HEADER + written(self.file.model_dump(mode="json", exclude_none=True))

    def run(
        self,
        *,
        overwrite: Sequence[str] = (),
        executor: Executor | None = None,
        listener: Listener | None = None,
        command: str = "",
    ) -> PipelineReport:
        """Run the steps in their order; what is finished is not computed again.

        Parameters
        ----------
        overwrite : sequence of str
            Names of steps ("index" is the build of the index) whose folders are emptied first.
        executor : Executor, optional
            Instead of the one that the file names.
        listener : callable, optional
            Receives events; `locdist.execute.progress.progress()` shows them.
        command : str
            The command line that continues, for `locdist status`; by default one that runs the resolved file.

        Returns
        -------
        PipelineReport

        Raises
        ------
        UsageError, DataError, MachineError, TooManyBadRows
            What a step raises; those after it do not run. Running again continues.
        """
        steps = self.each(overwrite=overwrite, executor=executor, listener=listener, command=command)
        return PipelineReport(self.file.name or "", tuple(steps))

    def each(
        self,
        *,
        overwrite: Sequence[str] = (),
        executor: Executor | None = None,
        listener: Listener | None = None,
        command: str = "",
        announce: Announce = lambda text: None,
    ) -> Iterator[StepReport]:
        """`run`, step by step: the report of each when it ends, and `announce` told before it begins."""
        steps, resolved = self._checked(overwrite), self.to_yaml()
        with (executor or self._executor()).kept() as where:
            for number, step in enumerate(steps, start=1):
                what = step.verb if step.name == step.verb else f"{step.name} ({step.verb})"
                announce(f"step {number} of {len(steps)}: {what} in {step.out}")
                running = {"executor": where, "listener": listener, "command": command}
                yield step.run(
                    resolved, self._running(step) | running | {"overwrite": step.name in overwrite}
                )

    def plan(self, *, overwrite: Sequence[str] = ()) -> PipelinePlan:
        """What `run` would do, as far as it is known before: footers are read, nothing is written."""
        planning = {"executor": self._executor(), "resources": self._resources()}
        planned = [
            step.plan(planning | {"overwrite": step.name in overwrite}, overwrite)
            for step in self._checked(overwrite)
        ]
        return PipelinePlan(self.file.name or "", tuple(planned))

    def _running(self, step: Call) -> dict[str, Any]:
        """Options of the run section that a step takes."""
        run = self.file.run
        told: dict[str, Any] = {"resources": self._resources()}
        if run.max_bad is not None and step.verb not in meaning.WHOLE:
            told["max_bad"] = max_bad(run.max_bad)
        return told

    def _resources(self) -> Resources | None:
        asked = self.file.run.resources
        return None if asked is None else Resources(asked.cpus, asked.gpus, asked.memory or 0, asked.custom)

    def _executor(self) -> Executor:
        run = self.file.run
        return chosen_executor(
            run.executor, workers=run.workers, processes=run.processes, address=run.address
        )

    def _checked(self, overwrite: Sequence[str]) -> tuple[Call, ...]:
        """The steps, when the columns that they name are there."""
        inputs = Inputs(self.file)
        steps = calls(self.file, inputs)
        names = [step.name for step in steps if not isinstance(step, EvaluateCall)]
        for name in overwrite:
            if name not in names:
                raise UsageError("a step to overwrite", repr(name), did_you_mean(name, names))
        _raise(inputs.mistakes(), self.places, self.source)
        inputs.check()
        return steps


def _pipeline(read: Document, source: str, changes: Iterable[str]) -> Pipeline:
    """Check everything, and tell all that is wrong."""
    if not isinstance(read.value, dict):
        wanted = "a pipeline: a mapping with version, steps, ..."
        raise UsageError(wanted, f"something else in {source}", "`locdist schema` prints what it can say.")
    content = changed(read, changes)
    file, wrong = checked(content.value)
    fits = [] if file is None else meaning.mistakes(file)
    _raise([*content.mistakes, *wrong, *fits], content.places, source)
    assert file is not None
    return Pipeline(file, source, content.places)


def _raise(found: Sequence[Mistake], places: Mapping[mistakes.Path, str], source: str) -> None:
    """One error for all mistakes, in the order of their lines."""
    order = {path: number for number, path in enumerate(places)}
    located = [(order.get(_nearest(each.path, places), -1), _located(each, places)) for each in found]
    if located:
        located.sort(key=lambda pair: pair[0])
        raise mistakes.error([mistake for _, mistake in located], source)


def _located(mistake: Mistake, places: Mapping[mistakes.Path, str]) -> Mistake:
    return replace(mistake, place=mistake.place or places.get(_nearest(mistake.path, places), ""))


def _nearest(path: mistakes.Path, places: Mapping[mistakes.Path, str]) -> mistakes.Path:
    """The longest beginning of a path that stands in the file."""
    return next((path[:end] for end in range(len(path), 0, -1) if path[:end] in places), ())


def _plain(content: Any) -> Any:
    """A content made in Python, with the kinds of values that a file has."""
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    return str(content) if isinstance(content, Path) else content


def _text(path: str) -> str:
    """The text of a file, on this machine or in an object store."""
    address, question, query = path.partition("?") if "://" in path else (path, "", "")
    folder, slash, name = address.rpartition("/")
    store = Store.at((folder or slash or ".") + question + query)
    if store.is_folder(name):
        remedy = f"A folder that `locdist run` wrote holds the one that it ran: {RESOLVED}"
        raise UsageError("a pipeline file", f"the folder {path}", remedy)
    if not store.exists(name):
        raise UsageError("a pipeline file", f"nothing at {path}", "Check the path.")
    try:
        return store.read(name).decode()
    except UnicodeDecodeError as error:
        raise UsageError("a text in UTF-8", f"{path}: {error.reason}", "Is it the right file?") from error
