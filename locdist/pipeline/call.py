"""A step of a pipeline as the call of a job: what it waits for, what it does, and what it would do."""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from locdist.data.store import Store
from locdist.execute.events import Event, Listener, TaskFinished
from locdist.jobs.evaluate import ClassCount, Evaluation, evaluate
from locdist.jobs.status import status
from locdist.pipeline.asking import Evaluate
from locdist.pipeline.meaning import INDEX
from locdist.pipeline.report import StepPlan, StepReport, Told

RESOLVED = "_locdist/pipeline.yaml"
EVALUATIONS = "_locdist/evaluations"


@dataclass(frozen=True)
class Call(ABC):
    """One step.

    Parameters
    ----------
    name, verb, out : str
        As in `StepReport`.
    reads : tuple of (str, str, str)
        What must be finished before: what it is called, its folder, and the file there that is written last.
    """

    name: str
    verb: str
    out: str
    reads: tuple[tuple[str, str, str], ...]

    @abstractmethod
    def run(self, resolved: str, running: Mapping[str, Any]) -> StepReport:
        """Do it, and leave the resolved file beside the output. `running` are the options of a run."""

    @abstractmethod
    def planned(self, planning: Mapping[str, Any]) -> StepPlan:
        """What it would do, once everything that it reads is there."""

    def plan(self, planning: Mapping[str, Any], overwrite: Sequence[str]) -> StepPlan:
        """What it would do, as far as that is known; not of what steps to `overwrite` have left."""
        for name, folder, last in self.reads:
            if name in overwrite or not Store.at(folder).exists(last):
                why = f"Rows, tasks and memory are told when {name!r} is finished, which this step reads."
                return StepPlan(self.name, self.verb, self.out, None, why)
        return self.planned(planning)


@dataclass(frozen=True)
class JobCall(Call):
    """A step that writes a folder.

    Parameters
    ----------
    do, tell : callable
        The verb, and what plans it.
    given : callable () -> tuple
        Their arguments; the inputs are opened when it is called.
    chosen : mapping
        Their options that decide the answers.
    """

    do: Callable[..., Any]
    tell: Callable[..., Told]
    given: Callable[[], tuple[Any, ...]]
    chosen: Mapping[str, Any]

    def run(self, resolved: str, running: Mapping[str, Any]) -> StepReport:
        watch = Watch(Store.at(self.out), resolved, running["listener"])
        command = running["command"] or f"locdist run {shlex.quote(watch.folder.path(RESOLVED))}"
        result = self.do(*self.given(), **self.chosen, **{**running, "listener": watch, "command": command})
        watch.leave()
        state = "done" if watch.tasks else "finished before"
        told = status(self.out) if self.verb == INDEX else result
        return StepReport(self.name, self.verb, self.out, state, told)

    def planned(self, planning: Mapping[str, Any]) -> StepPlan:
        plan = self.tell(*self.given(), **self.chosen, **planning)
        return StepPlan(self.name, self.verb, self.out, plan)


@dataclass(frozen=True)
class EvaluateCall(Call):
    """A step that scores the output of another one; its result is kept there, and read when it is asked for
    again.
    """

    asked: Evaluate

    def run(self, resolved: str, running: Mapping[str, Any]) -> StepReport:
        folder, name = Store.at(self.out), f"{EVALUATIONS}/{self.name}.json"
        asked = self.asked.model_dump(mode="json", include={"target", "truth"})
        before = json.loads(folder.read(name)) if folder.exists(name) else {}
        # A truth of its own may have changed; the kept columns and the pinned queries have not.
        if before.get("asked") == asked and self.asked.truth is None:
            return StepReport(self.name, self.verb, self.out, "finished before", _evaluation(before["told"]))
        told = evaluate(self.out, self.asked.target, list(self.asked.truth) if self.asked.truth else None)
        content = {"asked": asked, "told": json.loads(told.to_json())}
        folder.write(name, json.dumps(content, indent=1).encode())
        return StepReport(self.name, self.verb, self.out, "done", told)

    def planned(self, planning: Mapping[str, Any]) -> StepPlan:
        why = (
            f"One pass over {self.out} and its truth; nothing is written but {EVALUATIONS}/{self.name}.json."
        )
        return StepPlan(self.name, self.verb, self.out, None, why)


@dataclass
class Watch:
    """A listener that counts finished tasks, and leaves the resolved file when the folder is ours: at the
    first event, so that it is there when the run is stopped.
    """

    folder: Store
    resolved: str
    listener: Listener | None
    tasks: int = 0
    left: bool = field(default=False, init=False)

    def __call__(self, event: Event) -> None:
        self.leave()
        self.tasks += isinstance(event, TaskFinished)
        if self.listener is not None:
            self.listener(event)

    def leave(self) -> None:
        """Write the resolved file, once; a folder that was finished before keeps its own."""
        if not self.left and (self.tasks or not self.folder.exists(RESOLVED)):
            self.left = True
            self.folder.write(RESOLVED, self.resolved.encode())


def _evaluation(told: dict[str, Any]) -> Evaluation:
    classes = {name: ClassCount(**counts) for name, counts in told["classes"].items()}
    return Evaluation(**{**told, "classes": classes})
