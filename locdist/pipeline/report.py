"""What a pipeline did, and what it would do: step by step, for people and as JSON."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

from locdist.jobs.telling.text import to_json


class Told(Protocol):
    """What a job tells of itself: a Report, an Evaluation, a JobPlan, the status of an index."""

    def to_json(self) -> bytes:
        """The same as JSON."""
        ...


@dataclass(frozen=True)
class StepReport:
    """What one step did.

    Parameters
    ----------
    name, verb : str
    out : str
        The folder that it wrote, or that it scored.
    state : {"done", "finished before"}
        "finished before": everything was there, and nothing was computed.
    result : Report, Evaluation or the status of an index
    """

    name: str
    verb: str
    out: str
    state: str
    result: Told

    def to_json(self) -> dict[str, Any]:
        """The step as plain values."""
        told = {"name": self.name, "verb": self.verb, "out": self.out, "state": self.state}
        return {**told, "result": json.loads(self.result.to_json())}

    def __str__(self) -> str:
        return f"{self.name}: {self.state}\n{_indented(str(self.result))}"


@dataclass(frozen=True)
class PipelineReport:
    """What a run of a pipeline did."""

    name: str
    steps: tuple[StepReport, ...]

    def to_json(self) -> bytes:
        """The report as JSON."""
        return to_json({"name": self.name, "steps": [step.to_json() for step in self.steps]})

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


@dataclass(frozen=True)
class StepPlan:
    """What one step would do.

    Parameters
    ----------
    name, verb, out : str
        As in `StepReport`.
    plan : JobPlan or None
        None while it cannot be known, or where nothing is planned.
    why : str
        Why there is no plan.
    """

    name: str
    verb: str
    out: str
    plan: Told | None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """The step as plain values."""
        told = {"name": self.name, "verb": self.verb, "out": self.out, "why": self.why}
        return {**told, "plan": json.loads(self.plan.to_json()) if self.plan else None}

    def __str__(self) -> str:
        return f"{self.name}\n{_indented(str(self.plan) if self.plan else self.why)}"


@dataclass(frozen=True)
class PipelinePlan:
    """What a run of a pipeline would do."""

    name: str
    steps: tuple[StepPlan, ...]

    def to_json(self) -> bytes:
        """The plan as JSON."""
        return to_json({"name": self.name, "steps": [step.to_json() for step in self.steps]})

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
