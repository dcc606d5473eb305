"""What `learn_rules` found, for people, for programs, and for an index."""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from locdist.data.dataset import Dataset, dataset
from locdist.errors import UsageError
from locdist.jobs.chosen import located
from locdist.jobs.telling.text import aligned, to_json
from locdist.jobs.telling.tuned import Trial
from locdist.methods.method import Method


@dataclass(frozen=True)
class LearnedRules:
    """A table of rules, the method that infers from them, and how they were learned.

    Parameters
    ----------
    method : Method
        "fuzzy-inference", as the rules were learned for it.
    table : pa.Table
        A row for each rule: the columns of the key, the target, and the shape.
    key : tuple of str
    target : str
    shape : tuple of str
    trials : tuple of Trial
        What was tried, with the error of rows that were held back.
    error : float
        Root mean squared error of the rows that the rules are from.
    rows, sample, held : int
        Good rows of the data, those that were learned from, and those of them that judged the trials.
    """

    method: Method
    table: pa.Table
    key: tuple[str, ...]
    target: str
    shape: tuple[str, ...]
    trials: tuple[Trial, ...]
    error: float
    rows: int
    sample: int
    held: int

    @property
    def dataset(self) -> Dataset:
        """The rules as a support, for `build_index`."""
        return dataset(self.table, key=self.key, target=self.target, shape=self.shape)

    def write(self, place: str | Path) -> None:
        """Write the table, a row for each rule, to a path or URI that ends in .parquet or .csv."""
        check_place(place)
        folder, name = located(place)
        with folder.writer(name) as stream:
            if name.endswith(".csv"):
                pa.csv.write_csv(self.table, stream)
            else:
                pa.parquet.write_table(self.table, stream)

    def to_json(self) -> bytes:
        """All of it as JSON."""
        told = {
            name: getattr(self, name)
            for name in ("key", "target", "shape", "error", "rows", "sample", "held")
        }
        trials = [asdict(trial) for trial in self.trials]
        return to_json(
            {"method": self.method.spec, **told, "trials": trials, "rules": self.table.to_pylist()}
        )

    @property
    def why(self) -> dict[str, Any]:
        """What is told beside the method in its file."""
        told = {name: getattr(self, name) for name in ("error", "rows", "sample", "held")}
        trials = [{"options": dict(trial.options), "error": trial.error} for trial in self.trials]
        return told | {"criterion": "RMSE of rows that were held back", "trials": trials}

    @property
    def summary(self) -> str:
        """What was tried and found."""
        rows = [(one.told, f"{one.error:.6g}", f"{one.seconds:.1f} s") for one in self.trials]
        lines = [
            f"{self.table.num_rows} rules from {self.sample:,} of {self.rows:,} rows, RMSE {self.error:.6g}",
            f"tried, with the RMSE of {self.held:,} rows that were held back:",
            *aligned(rows),
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        asked = " ".join(f"--param {_word(name, value)}" for name, value in self._parameters.items())
        lines = [
            self.summary,
            "index them: locdist index RULES.parquet --key " + ",".join(self.key),
            f"  --target {self.target} --shape {','.join(self.shape)} --out base/",
            f"then: locdist predict base/ NEW/ --method {self.method.name} {asked} --out pred/",
        ]
        return "\n".join(lines)

    @property
    def _parameters(self) -> dict[str, object]:
        return {name: value for name, value in self.method.parameters if value is not None}


def _word(name: str, value: object) -> str:
    return shlex.quote(f"{name}={json.dumps(value) if isinstance(value, list) else value}")


def check_place(place: str | Path) -> None:
    """UsageError for a file that is no table."""
    if not str(place).endswith((".parquet", ".csv")):
        raise UsageError("a file that ends in .parquet or .csv", str(place), "Name it rules.parquet, say.")
