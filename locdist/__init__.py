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
    from locdist.jobs.apply import apply
    from locdist.jobs.assign import assign
    from locdist.jobs.backfit import backfit, scales
    from locdist.jobs.backtest import backtest
    from locdist.jobs.build_index import build_index
    from locdist.jobs.cluster import cluster, clusters
    from locdist.jobs.clustering.bandwidth import estimate_bandwidth
    from locdist.jobs.couple import couple
    from locdist.jobs.delays import delays
    from locdist.jobs.embed import embed, place
    from locdist.jobs.evaluate import evaluate
    from locdist.jobs.explain import explain
    from locdist.jobs.forecast import forecast
    from locdist.jobs.graph import graph
    from locdist.jobs.grid import Between
    from locdist.jobs.label import label
    from locdist.jobs.lazy import lazy_autoencoder, lazy_map
    from locdist.jobs.mixing import mix_kernels
    from locdist.jobs.move import move
    from locdist.jobs.neighbors import neighbors
    from locdist.jobs.predict import predict
    from locdist.jobs.restore import restore
    from locdist.jobs.rules import learn_rules, rule_base
    from locdist.jobs.segment import segment
    from locdist.jobs.select import select
    from locdist.jobs.telling.selection import Selection
    from locdist.jobs.transform import transform
    from locdist.jobs.tune import tune
    from locdist.local.answers import Answers, Status
    from locdist.local.bandwidths import Nearest
    from locdist.local.graph import Graph
    from locdist.methods.atlas import atlas
    from locdist.methods.charts import logifold
    from locdist.methods.coupled import dem_learn, gtvmin
    from locdist.methods.covariance import kernel_ridge, local_gp
    from locdist.methods.distribution import kde, local_quantile, local_variance
    from locdist.methods.embedded import lazy_codes, lazy_coordinates, lle, spectral
    from locdist.methods.federated import fed_relax
    from locdist.methods.fuzzy import fuzzy_inference
    from locdist.methods.generalized import local_gamma, local_logistic, local_poisson
    from locdist.methods.gwr import gwr
    from locdist.methods.images import bilateral, nonlocal_bayes, nonlocal_means, nonlocal_model, patches
    from locdist.methods.labels import (
        label_propagation,
        label_spreading,
        poisson_learning,
        relaxation_labeling,
    )
    from locdist.methods.layered import blurring_mean_shift, denoise_manifold, stack
    from locdist.methods.localized import localize
    from locdist.methods.moving import denoise, hopfield, mean_shift
    from locdist.methods.multiscale import mgwr
    from locdist.methods.named import boosted, knn, local_linear, local_mean, local_polynomial, local_vote
    from locdist.methods.series import local_ar
    from locdist.methods.shape import barycenter, local_pca
    from locdist.methods.shrinking import local_bayes
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
    "Graph",
    "Local",
    "Nearest",
    "Pipeline",
    "Ray",
    "Resources",
    "Selection",
    "Status",
    "__version__",
    "apply",
    "assign",
    "atlas",
    "backfit",
    "backtest",
    "barycenter",
    "bilateral",
    "blurring_mean_shift",
    "boosted",
    "build_index",
    "cluster",
    "clusters",
    "couple",
    "dask",
    "dataset",
    "delays",
    "dem_learn",
    "denoise",
    "denoise_manifold",
    "embed",
    "errors",
    "estimate_bandwidth",
    "evaluate",
    "explain",
    "fed_relax",
    "forecast",
    "fuzzy_inference",
    "graph",
    "gtvmin",
    "gwr",
    "hopfield",
    "kde",
    "kernel_ridge",
    "knn",
    "label",
    "label_propagation",
    "label_spreading",
    "lazy_autoencoder",
    "lazy_codes",
    "lazy_coordinates",
    "lazy_map",
    "learn_rules",
    "lle",
    "local_ar",
    "local_bayes",
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
    "logifold",
    "mean_shift",
    "mgwr",
    "mix_kernels",
    "move",
    "neighbors",
    "nonlocal_bayes",
    "nonlocal_means",
    "nonlocal_model",
    "open_index",
    "patches",
    "place",
    "poisson_learning",
    "predict",
    "ray",
    "relaxation_labeling",
    "restore",
    "rule_base",
    "scales",
    "segment",
    "select",
    "sklearn",
    "spectral",
    "stack",
    "transform",
    "tune",
]

_HOMES = {
    "Answers": "locdist.local.answers",
    "Between": "locdist.jobs.grid",
    "Dask": "locdist.execute.dask",
    "Exact": "locdist.search.exact",
    "Generation": "locdist.search.generation",
    "Graph": "locdist.local.graph",
    "Local": "locdist.execute.local",
    "Nearest": "locdist.local.bandwidths",
    "Pipeline": "locdist.pipeline.pipeline",
    "Ray": "locdist.execute.ray",
    "Resources": "locdist.plan.plan",
    "Selection": "locdist.jobs.telling.selection",
    "Status": "locdist.local.answers",
    "apply": "locdist.jobs.apply",
    "assign": "locdist.jobs.assign",
    "atlas": "locdist.methods.atlas",
    "backfit": "locdist.jobs.backfit",
    "backtest": "locdist.jobs.backtest",
    "barycenter": "locdist.methods.shape",
    "bilateral": "locdist.methods.images",
    "blurring_mean_shift": "locdist.methods.layered",
    "boosted": "locdist.methods.named",
    "build_index": "locdist.jobs.build_index",
    "cluster": "locdist.jobs.cluster",
    "clusters": "locdist.jobs.cluster",
    "couple": "locdist.jobs.couple",
    "dask": "locdist",
    "dataset": "locdist.data.dataset",
    "dem_learn": "locdist.methods.coupled",
    "delays": "locdist.jobs.delays",
    "denoise": "locdist.methods.moving",
    "denoise_manifold": "locdist.methods.layered",
    "embed": "locdist.jobs.embed",
    "estimate_bandwidth": "locdist.jobs.clustering.bandwidth",
    "evaluate": "locdist.jobs.evaluate",
    "explain": "locdist.jobs.explain",
    "forecast": "locdist.jobs.forecast",
    "fed_relax": "locdist.methods.federated",
    "fuzzy_inference": "locdist.methods.fuzzy",
    "graph": "locdist.jobs.graph",
    "gtvmin": "locdist.methods.coupled",
    "gwr": "locdist.methods.gwr",
    "hopfield": "locdist.methods.moving",
    "kde": "locdist.methods.distribution",
    "kernel_ridge": "locdist.methods.covariance",
    "knn": "locdist.methods.named",
    "label": "locdist.jobs.label",
    "label_propagation": "locdist.methods.labels",
    "label_spreading": "locdist.methods.labels",
    "lazy_autoencoder": "locdist.jobs.lazy",
    "lazy_codes": "locdist.methods.embedded",
    "lazy_coordinates": "locdist.methods.embedded",
    "lazy_map": "locdist.jobs.lazy",
    "learn_rules": "locdist.jobs.rules",
    "lle": "locdist.methods.embedded",
    "local_ar": "locdist.methods.series",
    "local_bayes": "locdist.methods.shrinking",
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
    "logifold": "locdist.methods.charts",
    "mean_shift": "locdist.methods.moving",
    "mgwr": "locdist.methods.multiscale",
    "mix_kernels": "locdist.jobs.mixing",
    "move": "locdist.jobs.move",
    "neighbors": "locdist.jobs.neighbors",
    "nonlocal_bayes": "locdist.methods.images",
    "nonlocal_means": "locdist.methods.images",
    "nonlocal_model": "locdist.methods.images",
    "open_index": "locdist.search.generation",
    "patches": "locdist.methods.images",
    "place": "locdist.jobs.embed",
    "poisson_learning": "locdist.methods.labels",
    "predict": "locdist.jobs.predict",
    "ray": "locdist",
    "relaxation_labeling": "locdist.methods.labels",
    "restore": "locdist.jobs.restore",
    "rule_base": "locdist.jobs.rules",
    "scales": "locdist.jobs.backfit",
    "segment": "locdist.jobs.segment",
    "select": "locdist.jobs.select",
    "sklearn": "locdist",
    "spectral": "locdist.methods.embedded",
    "stack": "locdist.methods.layered",
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
