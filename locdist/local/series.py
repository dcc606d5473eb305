"""Series by their own past: windows of the values before whose continuation is known are the support.

A series x is embedded by delays: the key of time t is (x_t, x_(t - lag), ..., x_(t - (order - 1) lag)), its
targets are what followed. A free run is a query loop: what is answered becomes the newest value of the query.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.layer import Layer
from locdist.local.loops import Update
from locdist.local.moments import Batch
from locdist.local.neighborhood import Neighborhood, smallest

PAIRS = 1 << 22  # of a query and a window, compared at once


@dataclass(frozen=True)
class Delays:
    """Which values before, and how far ahead.

    Parameters
    ----------
    order : int
        Values of a key.
    lag : int
        Steps from one to the next.
    ahead : tuple of int
        The steps after the key that are its targets.
    decay : float
        Over 0 and at most 1: differences count this much less from one value of a key to the next older one
        when keys are compared.
    """

    order: int = 4
    lag: int = 1
    ahead: tuple[int, ...] = (1,)
    decay: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.decay, bool) or not 0 < self.decay <= 1:
            raise UsageError("a decay over 0 and at most 1", repr(self.decay), "1 compares all values alike.")
        for name, given in (("order", self.order), ("lag", self.lag), *(("ahead", h) for h in self.ahead)):
            count: object = given  # whatever users passed
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise UsageError(f"{name} of at least 1", repr(given), "It is a whole number of steps.")

    @property
    def width(self) -> int:
        """Values from the oldest of a key to the newest."""
        return (self.order - 1) * self.lag + 1

    @property
    def far(self) -> int:
        """The last step that is a target."""
        return max(self.ahead)

    def keys(self, windows: Tensor) -> Tensor:
        """Keys [..., order], newest first, of windows [..., width] of values, oldest first."""
        return windows.flip(-1)[..., :: self.lag]

    def compared(self, keys: Tensor) -> Tensor:
        """Keys [..., order] as they are compared."""
        return keys * torch.tensor(self.decay, dtype=keys.dtype).pow(torch.arange(self.order))

    def embedded(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys [s, w, order] of series [s, n] that have their targets [s, w, p] in them, oldest first; of
        series that are too short one of nan.
        """
        width, short = self.width, max(0, self.width + self.far - values.shape[1])
        values = torch.nn.functional.pad(values, (short, 0), value=torch.nan)
        count = values.shape[1] - width - self.far + 1
        keys = self.keys(values.unfold(1, width, 1)[:, :count])
        after = [values[:, width - 1 + step : width - 1 + step + count] for step in self.ahead]
        return keys.contiguous(), torch.stack(after, 2)


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of series as an index: a query finds those of its own series.

    Parameters
    ----------
    values : Tensor [s, n] float64
        Series; nan where nothing is known. A window with nan in it, or in what followed, is nobody's
        neighbor.
    delays : Delays
    """

    values: Tensor
    delays: Delays
    metric = "l2"
    apart = True  # features are the keys as they are

    @cached_property
    def _embedded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys [s, w, d], targets [s, w, p], and which can be neighbors [s, w]."""
        keys, targets = self.delays.embedded(self.values)
        known = keys.isfinite().all(2) & targets.isfinite().all(2)
        return keys.nan_to_num(), targets.nan_to_num(), known

    @cached_property
    def _compared(self) -> Tensor:
        return self.delays.compared(self._embedded[0])

    def search(self, queries: Tensor, k: int, own: Tensor | None) -> Neighborhood:
        """The k nearest windows of each query's series; `own` is their number in all series. Queries are as
        many of each series, one series after the other.
        """
        keys, known = self._compared, self._embedded[2]
        series, count, width = keys.shape
        asked = queries.double().reshape(series, -1, width)
        mine = None if own is None else own.reshape(series, -1)
        ids = torch.arange(series * count).reshape(series, 1, count).where(known[:, None], -1)
        size = max(1, PAIRS // max(1, series * count))
        parts = []
        for start in range(0, asked.shape[1], size):
            some = slice(start, start + size)
            away = torch.cdist(asked[:, some], keys, compute_mode="donot_use_mm_for_euclid_dist").square_()
            near = ids.expand_as(away)
            if mine is not None:
                near = near.masked_fill(near == mine[:, some, None], -1)
            found = smallest(away.flatten(0, 1), near.flatten(0, 1), k)
            parts.append([each.reshape(series, -1, k) for each in found])
        distances, rows = (torch.cat(each, 1).flatten(0, 1) for each in zip(*parts, strict=True))
        return Neighborhood(distances, rows, queries)

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """What is needed of the neighbors."""
        keys, targets, _ = self._embedded
        wanted = {"keys": self._compared, "features": keys, "targets": targets}
        at = hood.ids.clamp(min=0)
        found = {name: each.flatten(0, 1)[at] for name, each in wanted.items() if name in needs}
        return replace(hood, **found)  # type: ignore[arg-type]

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """Nothing: a query has the windows of its own series, not all."""
        raise UsageError("a number of neighbors, for series", "k=None", "Choose k.")


@dataclass(frozen=True)
class Slide(Update):
    """The prediction becomes the newest value of a window, and the oldest one leaves it."""

    def __call__(self, before: Tensor, found: Tensor) -> Tensor:
        return torch.cat([before[:, 1:], found], 1)


@dataclass(frozen=True, eq=False)
class Path:
    """What follows some windows.

    Attributes
    ----------
    values : Tensor [q, h] float64
        nan where there is no answer.
    status : Tensor [q, h] int8
    """

    values: Tensor
    status: Tensor


@dataclass(frozen=True)
class Forecast:
    """A layer asked of windows for what follows them.

    Parameters
    ----------
    layer : Layer
    order, lag, decay
        As in `Delays`.
    direct : bool
        Whether every step is answered from what is known, with the same neighbors; otherwise the layer
        answers the next step, from its own answers before.
    """

    layer: Layer
    order: int = 4
    lag: int = 1
    direct: bool = False
    decay: float = 1.0

    def __post_init__(self) -> None:
        if "codes" in self.layer.needs or self.layer.k is None:
            given = f"{type(self.layer.model).__name__} with k={self.layer.k}"
            raise UsageError("a model of numbers, of k neighbors", given, "Use the local mean or plane.")
        self.delays(1)  # they are some

    def delays(self, steps: int) -> Delays:
        """The windows of its support."""
        ahead = tuple(range(1, steps + 1)) if self.direct else (1,)
        return Delays(self.order, self.lag, ahead, self.decay)

    def __call__(self, values: Tensor, steps: int, ends: Tensor | None = None) -> Path:
        """What follows the values of series [s, n].

        Parameters
        ----------
        values : Tensor [s, n] float64
        steps : int
        ends : Tensor [s] int64, optional
            The time of the newest value of the window that is asked, of each series; the last one by default.
        """
        delays = self.delays(steps)
        index = Windows(values, delays)
        ends = torch.full((len(values),), values.shape[1] - 1) if ends is None else ends
        at = ends[:, None] + torch.arange(1 - delays.width, 1)
        window = values.gather(1, at.clamp(min=0)).masked_fill(at < 0, torch.nan)
        if self.direct:
            found = self._asked(index, window)
            return Path(found.values, found.status[:, None].expand_as(found.values))
        return self._run(index, window, steps)

    def _run(self, index: Windows, window: Tensor, steps: int) -> Path:
        slide, answers = Slide(), []
        lost = torch.zeros(len(window), dtype=torch.int8)  # why a run ended
        for _ in range(steps):
            found = self._asked(index, window)
            status = found.status.where(lost == 0, lost)
            lost = status.where(status >= int(Status.EMPTY), 0)
            answers.append((found.values[:, :1], status[:, None]))
            window = slide(window, found.values[:, :1])
        values, statuses = (torch.cat(each, 1) for each in zip(*answers, strict=True))
        return Path(values, statuses)

    def _asked(self, index: Windows, window: Tensor) -> Answers:
        keys = index.delays.keys(window)
        return self.layer(index, index.delays.compared(keys), keys)
