"""What the sections of a pipeline file mean together: who reads what, and which folders are written."""

from collections.abc import Iterator

from locdist.errors import did_you_mean
from locdist.pipeline.asking import Evaluate, Neighbors, Predict
from locdist.pipeline.learning import Build, Select, Tune
from locdist.pipeline.mistakes import Mistake, Path
from locdist.pipeline.sections import VERBS, Asked, File, Own, Writing
from locdist.pipeline.supports import OfStep, Opened, Rows, Support
from locdist.plan.manifest import overlap

INDEX = "index"  # what the build of the file's index is called among the steps
WHOLE = (INDEX, "graph", "label", "embed", "forecast", "couple", "rules", "tune", "select")
"""Verbs in which no single row is bad."""
Found = Rows | Support | Opened | OfStep  # what a section says of something that may be of a step
_SCORED = ("predict", "transform", "apply")
_ROWS = tuple(verb for verb in VERBS if verb not in ("index", "tune", "select", "evaluate"))
_MAKERS: dict[str, tuple[str, ...]] = {  # by what a step says of another one: the verbs that make it
    "graph": ("graph",), "models": ("couple",), "clusters": ("cluster",), "embedding": ("embed",),
    "index": ("index",), "map": ("tune",), "method": ("tune", "select", "rules"),
}  # fmt: skip


def mistakes(file: File) -> list[Mistake]:
    """What does not fit together, in the order of the file."""
    return [*_sources(file), *_names(file), *_needs(file), *_references(file), *_folders(file), *_run(file)]


def scored(file: File, number: int) -> str | None:
    """The step whose predictions the evaluation at a place scores; None without one."""
    content = file.steps[number].content
    if isinstance(content, Evaluate) and content.step is not None:
        return content.step
    above = [step.content.name for step in file.steps[:number] if step.verb in _SCORED]
    return above[-1] if above else None


def outs(file: File) -> dict[str, str]:
    """The folders that steps write, by the names of the steps."""
    return {step.content.name: step.content.out for step in file.steps if isinstance(step.content, Writing)}


def found(content: Writing) -> Iterator[tuple[str, Found]]:
    """What a step reads, by what it says of it."""
    for role in type(content).model_fields:
        value = getattr(content, role)
        if isinstance(value, Found):
            yield role, value


def steps_of(content: Writing) -> Iterator[tuple[str, str]]:
    """The steps that a step reads, by what it says of them."""
    return ((role, value.step) for role, value in found(content) if value.step is not None)


def _sources(file: File) -> Iterator[Mistake]:
    """What the whole file reads is there before its first step."""
    for name, rows in (("support", file.support), ("queries", file.queries)):
        if rows is not None and rows.step is not None:
            remedy = f"Give the {name} of a single step a step, inside it."
            yield Mistake((name, "step"), f"the path of the {name}", repr(rows.step), remedy)


def _names(file: File) -> Iterator[Mistake]:
    taken = {INDEX} if file.index and file.support else set()
    for number, step in enumerate(file.steps):
        if step.content.name in taken:
            wanted, given = "a name of its own for each step", f"{step.content.name!r} again"
            yield Mistake(("steps", number, step.verb), wanted, given, "Add a line `name: ...` to the step.")
        taken.add(step.content.name)


def _needs(file: File) -> Iterator[Mistake]:
    """What steps need besides their own section."""
    for number, step in enumerate(file.steps):
        content, path = step.content, ("steps", number, step.verb)
        if isinstance(content, Asked) and (content.queries or file.queries) is None:
            yield Mistake(path, "`queries: {path: ...}` in the step or in the file", "none", "Add them.")
        if isinstance(content, Predict | Neighbors | Select) and (content.index or file.index) is None:
            remedy = "Add it; with a support in the file it is built there."
            yield Mistake(path, "a file with `index: {path: ...}`", "none", remedy)
        elif isinstance(content, Predict) and (tuned := _elsewhere(file, content)):
            wanted = f"an index under the map that {tuned!r} learns its method with"
            remedy = f"Add a step `index: {{map: {{step: {tuned}}}, out: ...}}`, and name it here."
            yield Mistake((*path, "index"), wanted, "one without it", remedy)
        elif isinstance(content, Own) and (content.support or file.support) is None:
            wanted = "`support: {path: ..., key: ...}` in the step or in the file"
            yield Mistake(path, wanted, "none", "Add it.")
        elif isinstance(content, Evaluate) and scored(file, number) is None:
            yield Mistake(path, "a predict, transform or apply step above", "none", "Name it: step: predict")


def _elsewhere(file: File, content: Predict) -> str | None:
    """The step that tunes the method, when the index is made here without its map."""
    made, index = {step.content.name: step.content for step in file.steps}, content.index
    if not (isinstance(content.method, OfStep) and isinstance(made.get(content.method.step), Tune)):
        return None
    built = made.get(index.step) if index is not None and index.step is not None else None
    if isinstance(built, Build) and built.map is not None:
        return None if built.map.step == content.method.step else content.method.step
    by = file.support if index is None else None
    by = built.support or file.support if isinstance(built, Build) else by
    return content.method.step if by is not None and by.map is None else None


def _references(file: File) -> Iterator[Mistake]:
    """Steps that are read must stand above, and make what is wanted."""
    for number, step in enumerate(file.steps):
        for path, name, verbs in _named(step.content):
            above = [each.content.name for each in file.steps[:number] if each.verb in verbs]
            if name not in above:
                wanted = f"a step above ({'that writes rows' if verbs is _ROWS else ' or '.join(verbs)})"
                remedy = did_you_mean(name, above) if above else "There is none above."
                place = ("steps", number, step.verb, *path)
                yield Mistake(place, wanted, repr(name), remedy)


def _named(content: Writing | Evaluate) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """The steps that a step names: where, and the verbs that they may have."""
    if not isinstance(content, Evaluate):
        yield from (((role, "step"), name, _MAKERS.get(role, _ROWS)) for role, name in steps_of(content))
    elif content.step is not None:
        yield ("step",), content.step, _SCORED


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
