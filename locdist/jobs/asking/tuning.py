"""How a job searches: tuned on some of its queries, audited on others, before the first task."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.spread import Spread
from locdist.search.audit import audit, tune

TUNED, AUDITED = 300, 600  # queries: an interval of about ±.002 at a recall of .99
_WINDOWS = 32  # places of a large source that a sample is drawn from
_WINDOW_ROWS = 65_536


def tuning(question: Ask, k: int, target: float, rows: int) -> dict[str, Any]:
    """Probes that reach the recall target on a sample of the queries, and their recall audited on another."""
    index = question.index
    if index.exact or not rows:
        return {"nprobe": 0, "recall": None}
    queries, own = _sample(question, rows, TUNED + AUDITED)
    if len(queries) < 2:
        return {"nprobe": index.probes, "recall": None}
    every, tuned = Spread(index), max(1, len(queries) * TUNED // (TUNED + AUDITED))
    exact = every.exactly(queries, k, own)

    def part(rows: slice) -> tuple[Tensor, int, Tensor | None]:
        return queries[rows], k, None if own is None else own[rows]

    first, second = slice(tuned), slice(tuned, None)
    nprobe = tune(every, *part(first), exact.rows(first), target, index.layout.nlist)
    audited = audit(every, *part(second), nprobe, exact.rows(second))
    if nprobe == index.layout.nlist and audited.high < target:
        raise UsageError(
            f"a search that finds {target:g} of the neighbors",
            f"recall {audited} with all {nprobe:,} lists: the codes are too coarse for this data",
            "Build the index with codes='flat' or 'exact' (--codes), or ask for a smaller recall.",
        )
    return {"nprobe": nprobe, "recall": asdict(audited), "target": target}


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
