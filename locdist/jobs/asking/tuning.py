"""How a job searches: tuned on some of its queries, audited on others, before the first task."""

from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.spread import Spread
from locdist.search.audit import Recall, audit, tune
from locdist.search.generation import Generation

PLAN = "_locdist/plan.json"
TUNED, AUDITED = 300, 600  # queries: an interval of about ±.002 at a recall of .99
_WINDOWS = 32  # places of a large source that a sample is drawn from
_WINDOW_ROWS = 65_536


@dataclass(frozen=True)
class Tuned:
    """How a job searches: lists of each query (0 when the search is exact), the recall that an audit found,
    and the one that was tuned for.
    """

    nprobe: int = 0
    recall: Recall | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        if self.nprobe < 0 or (self.recall is not None and self.target is None):
            raise ValueError(f"nprobe {self.nprobe}, recall {self.recall}, target {self.target}")

    def write(self, folder: Store) -> None:
        """Record it, for those who continue the job or ask what it did."""
        folder.write(PLAN, packed(asdict(self), indent=1))

    @staticmethod
    def read(folder: Store) -> "Tuned":
        """What `write` recorded."""
        remedy = "Start again with --overwrite."
        return unpacked(Tuned, folder.read(PLAN), "the plan of a job", folder.path(PLAN), remedy)


def tuning(question: Ask, k: int, target: float, rows: int) -> Tuned:
    """Probes that reach the recall target on a sample of the queries, and their recall audited on another."""
    index = question.index
    if index.exact or not rows or not k:
        return Tuned()
    queries, own = _sample(question, rows, TUNED + AUDITED)
    return tuned(index, queries, k, own, target)


def tuning_of_support(index: Generation, k: int, target: float) -> Tuned:
    """What `tuning` says when nobody has seen the queries: the support's own rows, each without itself, stand
    for them.
    """
    if index.exact or not k:
        return Tuned()
    rows = index.layout.rows
    chosen = np.random.default_rng(0).choice(rows, min(rows, TUNED + AUDITED), replace=False)
    ids = torch.from_numpy(chosen)
    return tuned(index, index.keys(ids), k, index.sources(ids), target)


def tuned(index: Generation, queries: Tensor, k: int, own: Tensor | None, target: float) -> Tuned:
    """Probes that reach the target on the first of some queries [q, d], and their recall on the rest."""
    if len(queries) < 2:
        return Tuned(index.probes)
    every, first = Spread(index), max(1, len(queries) * TUNED // (TUNED + AUDITED))
    exact = every.exactly(queries, k, own)

    def part(rows: slice) -> tuple[Tensor, int, Tensor | None]:
        return queries[rows], k, None if own is None else own[rows]

    some, others = slice(first), slice(first, None)
    nprobe = tune(every, *part(some), exact.rows(some), target, index.layout.nlist)
    audited = audit(every, *part(others), nprobe, exact.rows(others))
    if nprobe == index.layout.nlist and audited.high < target:
        raise UsageError(
            f"a search that finds {target:g} of the neighbors",
            f"recall {audited} with all {nprobe:,} lists: the codes are too coarse for this data",
            "Build the index with codes='flat' or 'exact' (--codes), or ask for a smaller recall.",
        )
    return Tuned(nprobe, audited, target)


def _sample(question: Ask, rows: int, wanted: int) -> tuple[Tensor, Tensor | None]:
    """Random good queries [<= wanted, d] out of up to 32 places of the source, in random order, and their own
    rows.
    """
    rng = np.random.default_rng(0)
    windows = [range(start, min(start + _WINDOW_ROWS, rows)) for start in range(0, rows, _WINDOW_ROWS)]
    chosen = [
        windows[place] for place in rng.choice(len(windows), min(_WINDOWS, len(windows)), replace=False)
    ]
    parts, owns = [], []
    for window in chosen:
        share = min(len(window), -(-wanted // len(chosen)))
        picked = np.sort(rng.choice(len(window), share, replace=False))
        tables = question.source.read(window.start, window.stop, question.read_columns)
        block = question.encoded(pa.concat_tables(list(tables)).take(pa.array(picked)), window.start)
        good = ~block.bad
        parts.append(block.queries[good])
        owns.append(torch.from_numpy(picked + window.start)[good])
    order = torch.from_numpy(rng.permutation(sum(len(part) for part in parts)))[:wanted]
    return torch.cat(parts)[order], torch.cat(owns)[order] if question.own else None
