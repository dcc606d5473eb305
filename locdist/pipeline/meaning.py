"""What the sections of a pipeline file mean together: who reads what, and which folders are written."""

from collections.abc import Iterator

from locdist.errors import did_you_mean
from locdist.pipeline.mistakes import Mistake, Path
from locdist.pipeline.networks import Apply
from locdist.pipeline.sections import Evaluate, File, Forecast, Label, Neighbors, Own, Predict, Transform
from locdist.plan.manifest import overlap

INDEX = "index"  # what the build of the index is called among the steps
WHOLE = (INDEX, "graph", "label", "embed", "forecast", "couple")  # verbs in which no single row is bad
_WRITING = Predict | Neighbors | Own | Label | Forecast | Apply
READ = ("support", "queries", "series", "edges", "models")  # sections about rows
_SCORED = Predict | Transform


def mistakes(file: File) -> list[Mistake]:
    """What does not fit together, in the order of the file."""
    return [*_sources(file), *_names(file), *_needs(file), *_references(file), *_folders(file), *_run(file)]


def scored(file: File, number: int) -> str | None:
    """The step whose predictions the evaluation at a place scores; None without one."""
    content = file.steps[number].content
    if isinstance(content, Evaluate) and content.step is not None:
        return content.step
    above = [step.content.name for step in file.steps[:number] if isinstance(step.content, _SCORED)]
    return above[-1] if above else None


def outs(file: File) -> dict[str, str]:
    """The folders that steps write, by the names of the steps."""
    return {step.content.name: step.content.out for step in file.steps if isinstance(step.content, _WRITING)}


def _sources(file: File) -> Iterator[Mistake]:
    """What the whole file reads is there before its first step."""
    for name, rows in (("support", file.support), ("queries", file.queries)):
        if rows is not None and rows.step is not None:
            remedy = f"Give the {name} of a single step a step, inside it."
            yield Mistake((name, "step"), f"the path of the {name}", repr(rows.step), remedy)


def _names(file: File) -> Iterator[Mistake]:
    taken = {INDEX}
    for number, step in enumerate(file.steps):
        if step.content.name in taken:
            wanted, given = "a name of its own for each step", f"{step.content.name!r} again"
            yield Mistake(("steps", number, step.verb), wanted, given, "Add a line `name: ...` to the step.")
        taken.add(step.content.name)


def _needs(file: File) -> Iterator[Mistake]:
    """What steps need besides their own section."""
    for number, step in enumerate(file.steps):
        content, path = step.content, ("steps", number, step.verb)
        if isinstance(content, Predict | Neighbors):
            if file.index is None:
                remedy = "Add it; with a support in the file it is built there."
                yield Mistake(path, "a file with `index: {path: ...}`", "none", remedy)
            if (content.queries or file.queries) is None:
                yield Mistake(path, "`queries: {path: ...}` in the step or in the file", "none", "Add them.")
        elif isinstance(content, Apply) and (content.queries or file.queries) is None:
            yield Mistake(path, "`queries: {path: ...}` in the step or in the file", "none", "Add them.")
        elif isinstance(content, Own) and (content.support or file.support) is None:
            wanted = "`support: {path: ..., key: ...}` in the step or in the file"
            yield Mistake(path, wanted, "none", "Add it.")
        elif isinstance(content, Evaluate) and scored(file, number) is None:
            yield Mistake(path, "a predict or transform step above", "none", "Name it: step: predict")


def _references(file: File) -> Iterator[Mistake]:
    """Steps that are read must stand above, and write what is wanted."""
    for number, step in enumerate(file.steps):
        content, kinds = step.content, _SCORED if step.verb == "evaluate" else _WRITING
        above = [each.content.name for each in file.steps[:number] if isinstance(each.content, kinds)]
        for path, name in _named(content):
            if name not in above:
                wanted = f"a step above that {'predicts' if step.verb == 'evaluate' else 'writes rows'}"
                remedy = did_you_mean(name, above) if above else "There is none above."
                yield Mistake(("steps", number, step.verb, *path), wanted, repr(name), remedy)


def _named(content: _WRITING | Evaluate) -> Iterator[tuple[Path, str]]:
    """The step that a step names, and where."""
    if isinstance(content, Evaluate):
        if content.step is not None:
            yield ("step",), content.step
        return
    roles = ("graph", "labels") if isinstance(content, Label) else READ
    for role in roles:
        rows = getattr(content, role, None)
        if rows is not None and rows.step is not None:
            yield (role, "step"), rows.step


def _folders(file: File) -> Iterator[Mistake]:
    """No two write to one folder, or one below that of another."""
    taken = {file.index.path: "the index"} if file.index else {}
    for number, step in enumerate(file.steps):
        if isinstance(step.content, Evaluate):
            continue
        name, out = step.content.name, step.content.out
        for other, what in taken.items():
            if relation := overlap(out, other):
                where = f"where {what} lies" if relation == "is" else f"which {relation} {other}, {what}"
                path = ("steps", number, step.verb, "out")
                yield Mistake(
                    path, "a folder of its own for each step", f"{out}, {where}", "Write to another folder."
                )
        taken[out] = f"the output of {name!r}"


def _run(file: File) -> Iterator[Mistake]:
    """Options of executors that do not go together."""
    run = file.run
    if run.executor == "local" and run.address is not None:
        yield Mistake(("run", "address"), "no address with executor 'local'", "one", "Leave it out.")
    if run.executor != "local" and run.processes:
        wanted = f"no processes with executor {run.executor!r}"
        yield Mistake(("run", "processes"), wanted, "true", "Leave it out: its workers are processes.")
