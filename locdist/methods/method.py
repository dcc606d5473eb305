"""What a method is: a name, the parameters it was chosen with, and the layer they make."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers
from locdist.local.bandwidths import Nearest, SamplePoint
from locdist.local.kernels import bandwidth_spec, kernel, kernel_spec
from locdist.local.layer import Index, Layer
from locdist.local.loops import QueryLoop
from locdist.local.models import LocalModel

Bandwidth = float | str | Nearest | SamplePoint | Mapping[str, float]
KernelChoice = str | Mapping[str, Any]  # a name, or groups of columns with a kernel each


class ArrayLike(Protocol):
    """What `torch.as_tensor` takes: NumPy arrays, tensors, nested lists."""

    def __len__(self) -> int:
        """Rows."""
        ...


@dataclass(frozen=True)
class Method:
    """A frozen choice of kernel, model and loop under a registered name.

    Parameters
    ----------
    name : str
        The registered name ("local-linear").
    parameters : tuple of (str, value)
        JSON-able, complete: the defaults of the day are spelled out, so that a stored method means the same
        later.
    layer : Layer
        The operation.
    intervals : tuple of (level, multiple), optional
        For each level the multiple of the spread that holds that share of new targets, as `tune` measured it.
    loop : QueryLoop, optional
        How the layer is fed back to itself.
    map : str
        Fingerprint of the map of the key that the numbers were learned with, and that an index must have;
        empty for any index.

    Examples
    --------
    >>> import locdist as ld
    >>> method = ld.local_mean(k=2, kernel="uniform")
    >>> method(ld.Exact([[0.0], [1.0], [9.0]], [1.0, 2.0, 3.0]), [[0.4]]).values
    tensor([[1.5000]], dtype=torch.float64)
    """

    name: str
    parameters: tuple[tuple[str, Any], ...]
    layer: Layer
    intervals: tuple[tuple[float, float], ...] = ()
    loop: QueryLoop | None = None
    map: str = ""

    def __post_init__(self) -> None:
        told = tuple((name, plain(value)) for name, value in self.parameters)
        object.__setattr__(self, "parameters", told)
        intervals = tuple((float(level), float(multiple)) for level, multiple in self.intervals)
        if not all(0 < level < 1 and 0 <= multiple < math.inf for level, multiple in intervals):
            remedy = "Each is a share of new targets, and the multiple of the spread that holds it."
            raise UsageError("intervals as pairs (level, multiple)", repr(self.intervals), remedy)
        object.__setattr__(self, "intervals", intervals)

    def __call__(
        self,
        index: Index,
        queries: ArrayLike | Tensor,
        *,
        features: ArrayLike | Tensor | None = None,
        own: ArrayLike | Tensor | None = None,
        offsets: ArrayLike | Tensor | None = None,
        want: Iterable[str] = (),
    ) -> Answers:
        """Answers at `queries` [q, d], in memory.

        Parameters
        ----------
        index : Index
            `ld.Exact(keys, targets)`, or an opened generation (then queries are encoded keys).
        features : array [q, m], optional
            Where the local model is evaluated; the queries by default.
        own : array [q] of int, optional
            Row of the support that each query is, to be left out, or where the method counts it to tell its
            leverage.
        offsets : array [q], optional
            What is added to the linear predictor of the queries, where the index has offsets.
        want : iterable of {"effective", "spread", "coefficients", "neighbors", "neglected", "leverage"}
            What to compute besides values and status.
        """
        asked = _matrix(queries, "queries")
        at = None if features is None else _matrix(features, "features")
        mine = None if own is None else torch.as_tensor(own, dtype=torch.int64)
        more = None if offsets is None else torch.as_tensor(offsets, dtype=torch.float64)
        return self.operation(index, asked, at, own=mine, want=frozenset(want), offsets=more)

    def counting(self) -> "Method":
        """The same method with every row of the support among its own neighbors: then the weights of rows in
        their own answers are a hat matrix's diagonal, and `transform` tells its trace and what follows from
        it.
        """
        if self.loop is not None:
            raise UsageError("a method without a loop, to count rows themselves", self.name, "Leave it out.")
        layer = replace(self.layer, leave_one_out=False)
        return replace(self, parameters=(*self.parameters, ("own", True)), layer=layer)

    @property
    def operation(self) -> Layer | QueryLoop:
        """What is called: the layer, or its loop."""
        return self.loop or self.layer

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name, the parameters, and intervals and map if there are any; `method(spec)` makes it
        again.
        """
        more = {"intervals": [list(pair) for pair in self.intervals], "map": self.map}
        return {
            "name": self.name,
            **dict(self.parameters),
            **{key: each for key, each in more.items() if each},
        }


def plain(value: Any) -> Any:
    """A number of NumPy as one of Python, which JSON knows; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def local_method(
    name: str,
    k: int | None,
    chosen: KernelChoice,
    bandwidth: Bandwidth | None,
    model: LocalModel,
    parameters: Mapping[str, Any],
) -> Method:
    """A method of k neighbors (None: all the support), a kernel and a model with its `parameters`; leaves a
    query's own row out.
    """
    layer = Layer(k, kernel(chosen, bandwidth), model, leave_one_out=True)
    told = chosen if isinstance(chosen, str) else kernel_spec(layer.kernel)
    common = {"k": k, "kernel": told, "bandwidth": bandwidth_spec(layer.kernel)}
    return Method(name, tuple((common | dict(parameters)).items()), layer)


def _matrix(values: ArrayLike | Tensor, name: str) -> Tensor:
    if isinstance(values, Tensor):
        matrix = values.detach()
        _require_real(matrix.is_complex(), matrix.dtype, name)
        matrix = matrix if matrix.dtype in (torch.float32, torch.float64) else matrix.double()
    else:
        array = np.asanyarray(values)
        _require_real(array.dtype.kind not in "fiubO", array.dtype, name)
        single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        copy = array.astype(np.float32 if single else np.float64)
        matrix = torch.from_numpy(np.ma.filled(copy, np.nan))  # masked is missing, never what lies behind
    if matrix.ndim != 2:
        raise UsageError(
            f"{name} [q, d]", f"shape {list(matrix.shape)}", "Pass one row a query: queries[None] for one."
        )
    return matrix


def _require_real(other: bool, dtype: object, name: str) -> None:
    if other:
        raise UsageError(f"{name} as real numbers", f"{dtype}", "Convert them first.")


Maker = Callable[..., Method]
Registry = Mapping[str, Maker]
