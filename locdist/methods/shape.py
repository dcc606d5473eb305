"""The shape of the support around every query: tangent planes, barycentric weights."""

from locdist.errors import UsageError
from locdist.local.models import LocalModel
from locdist.local.tangent import Barycenter, OfFeatures, Tangent
from locdist.methods.method import Bandwidth, KernelChoice, Method, local_method


def local_pca(
    k: int = 64, kernel: KernelChoice = "tricube", bandwidth: Bandwidth | None = None, components: int = 1
) -> Method:
    """Local principal components: the tangent plane at every query, its place on the plane, the projection.

    It needs no target. Columns are "coordinate_1", ..., "variance_1", ..., in units of the scaled features,
    and "projection_FEATURE" in the user's.

    Parameters
    ----------
    k : int
        Neighbors, at least 1; several times the number of components.
    kernel, bandwidth
        As in `local_mean`.
    components : int
        Dimensions of the plane, at least 1, at most those of the features.

    Returns
    -------
    Method
    """
    model = Tangent(components)
    return local_method("local-pca", k, kernel, bandwidth, model, {"components": components})


def barycenter(
    k: int = 12,
    kernel: KernelChoice = "uniform",
    bandwidth: Bandwidth | None = None,
    reg: float = 1e-3,
    of: str = "target",
) -> Method:
    """The query as a mean of its neighbors, with the weights of locally linear embedding: Σ s_j y_j.

    Parameters
    ----------
    k : int
        Neighbors, at least 1.
    kernel, bandwidth
        As in `local_mean`: a neighbor of a smaller weight is used less. Uniform is the classical form.
    reg : float
        Positive; relative to the trace of the neighbors' products.
    of : {"target", "features"}
        What is averaged: the targets, or the features themselves, which reconstructs the query in columns
        "reconstruction_FEATURE" and needs no target.

    Returns
    -------
    Method
    """
    model: LocalModel = Barycenter(reg)
    if of == "features":
        model = OfFeatures(model, "reconstruction")
    elif of != "target":
        raise UsageError("barycenters of 'target' or 'features'", repr(of), "Correct the word.")
    return local_method("barycenter", k, kernel, bandwidth, model, {"reg": float(reg), "of": of})
