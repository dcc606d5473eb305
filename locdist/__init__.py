"""Localization methods over data too large for one process.

The public names of locdist, and nothing else. They are loaded when first used (PEP 562), because
`import locdist` happens in places that never compute: `locdist --help`, a driver that submits a job, an
editor that completes a name. Loading torch, FAISS and Arrow there would cost seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from locdist import errors

if TYPE_CHECKING:  # what type checkers and editors read; _HOMES says the same, and a test compares the two
    from locdist import dask, ray, sklearn
    from locdist.data.dataset import dataset
    from locdist.execute.dask import Dask
    from locdist.execute.local import Local
    from locdist.execute.ray import Ray
    from locdist.jobs.build_index import build_index
    from locdist.jobs.evaluate import evaluate
    from locdist.jobs.explain import explain
    from locdist.jobs.grid import Between
    from locdist.jobs.neighbors import neighbors
    from locdist.jobs.predict import predict
    from locdist.jobs.select import select
    from locdist.jobs.telling.selection import Selection
    from locdist.jobs.transform import transform
    from locdist.jobs.tune import tune
    from locdist.local.answers import Answers, Status
    from locdist.local.bandwidths import Nearest
    from locdist.methods.covariance import kernel_ridge, local_gp
    from locdist.methods.distribution import kde, local_quantile, local_variance
    from locdist.methods.generalized import local_gamma, local_logistic, local_poisson
    from locdist.methods.gwr import gwr
    from locdist.methods.localized import localize
    from locdist.methods.moving import denoise, hopfield, mean_shift
    from locdist.methods.named import boosted, knn, local_linear, local_mean, local_polynomial, local_vote
    from locdist.methods.shape import barycenter, local_pca
    from locdist.pipeline.pipeline import Pipeline
    from locdist.plan.plan import Resources
    from locdist.search.exact import Exact
    from locdist.search.generation import Generation, open_index

__version__ = "0.1.0"

__all__ = [
    "Answers",
    "Between",
    "Dask",
    "Exact",
    "Generation",
    "Local",
    "Nearest",
    "Pipeline",
    "Ray",
    "Resources",
    "Selection",
    "Status",
    "__version__",
    "barycenter",
    "boosted",
    "build_index",
    "dask",
    "dataset",
    "denoise",
    "errors",
    "evaluate",
    "explain",
    "gwr",
    "hopfield",
    "kde",
    "kernel_ridge",
    "knn",
    "local_gamma",
    "local_gp",
    "local_linear",
    "local_logistic",
    "local_mean",
    "local_pca",
    "local_poisson",
    "local_polynomial",
    "local_quantile",
    "local_variance",
    "local_vote",
    "localize",
    "mean_shift",
    "neighbors",
    "open_index",
    "predict",
    "ray",
    "select",
    "sklearn",
    "transform",
    "tune",
]

_HOMES = {
    "Answers": "locdist.local.answers",
    "Between": "locdist.jobs.grid",
    "Dask": "locdist.execute.dask",
    "Exact": "locdist.search.exact",
    "Generation": "locdist.search.generation",
    "Local": "locdist.execute.local",
    "Nearest": "locdist.local.bandwidths",
    "Pipeline": "locdist.pipeline.pipeline",
    "Ray": "locdist.execute.ray",
    "Resources": "locdist.plan.plan",
    "Selection": "locdist.jobs.telling.selection",
    "Status": "locdist.local.answers",
    "barycenter": "locdist.methods.shape",
    "boosted": "locdist.methods.named",
    "build_index": "locdist.jobs.build_index",
    "dask": "locdist",
    "dataset": "locdist.data.dataset",
    "denoise": "locdist.methods.moving",
    "evaluate": "locdist.jobs.evaluate",
    "explain": "locdist.jobs.explain",
    "gwr": "locdist.methods.gwr",
    "hopfield": "locdist.methods.moving",
    "kde": "locdist.methods.distribution",
    "kernel_ridge": "locdist.methods.covariance",
    "knn": "locdist.methods.named",
    "local_gamma": "locdist.methods.generalized",
    "local_gp": "locdist.methods.covariance",
    "local_linear": "locdist.methods.named",
    "local_logistic": "locdist.methods.generalized",
    "local_mean": "locdist.methods.named",
    "local_pca": "locdist.methods.shape",
    "local_poisson": "locdist.methods.generalized",
    "local_polynomial": "locdist.methods.named",
    "local_quantile": "locdist.methods.distribution",
    "local_variance": "locdist.methods.distribution",
    "local_vote": "locdist.methods.named",
    "localize": "locdist.methods.localized",
    "mean_shift": "locdist.methods.moving",
    "neighbors": "locdist.jobs.neighbors",
    "open_index": "locdist.search.generation",
    "predict": "locdist.jobs.predict",
    "ray": "locdist",
    "select": "locdist.jobs.select",
    "sklearn": "locdist",
    "transform": "locdist.jobs.transform",
    "tune": "locdist.jobs.tune",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'locdist' has no attribute {name!r}", name=name)
    home = _HOMES[name]
    # a module of ours is no attribute of the package before it is imported
    value = import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
