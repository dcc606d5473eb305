"""Localization methods over data too large for one process.

The public names of locdist, and nothing else. They are loaded when first used (PEP 562), because
`import locdist` happens in places that never compute: `locdist --help`, a driver that submits a job, an
editor that completes a name. Loading torch, FAISS and Arrow there would cost seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from locdist import errors

if TYPE_CHECKING:  # what type checkers and editors read; _HOMES says the same, and a test compares the two
    from locdist.data.dataset import dataset
    from locdist.execute.local import Local
    from locdist.jobs.build_index import build_index
    from locdist.jobs.evaluate import evaluate
    from locdist.jobs.explain import explain
    from locdist.jobs.neighbors import neighbors
    from locdist.jobs.predict import predict
    from locdist.jobs.transform import transform
    from locdist.local.answers import Answers, Status
    from locdist.local.kernels import Nearest
    from locdist.methods.named import gwr, knn, local_linear, local_mean, local_vote
    from locdist.search.exact import Exact
    from locdist.search.generation import Generation, open_index

__version__ = "0.1.0"

__all__ = [
    "Answers",
    "Exact",
    "Generation",
    "Local",
    "Nearest",
    "Status",
    "__version__",
    "build_index",
    "dataset",
    "errors",
    "evaluate",
    "explain",
    "gwr",
    "knn",
    "local_linear",
    "local_mean",
    "local_vote",
    "neighbors",
    "open_index",
    "predict",
    "transform",
]

_HOMES = {
    "Answers": "locdist.local.answers",
    "Exact": "locdist.search.exact",
    "Generation": "locdist.search.generation",
    "Local": "locdist.execute.local",
    "Nearest": "locdist.local.kernels",
    "Status": "locdist.local.answers",
    "build_index": "locdist.jobs.build_index",
    "dataset": "locdist.data.dataset",
    "evaluate": "locdist.jobs.evaluate",
    "explain": "locdist.jobs.explain",
    "gwr": "locdist.methods.named",
    "knn": "locdist.methods.named",
    "local_linear": "locdist.methods.named",
    "local_mean": "locdist.methods.named",
    "local_vote": "locdist.methods.named",
    "neighbors": "locdist.jobs.neighbors",
    "open_index": "locdist.search.generation",
    "predict": "locdist.jobs.predict",
    "transform": "locdist.jobs.transform",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'locdist' has no attribute {name!r}", name=name)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
