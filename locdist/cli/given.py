"""What the options of a command say: the dataset, the method."""

from typing import Any

from locdist.cli import options as opt
from locdist.errors import UsageError


def dataset_of(
    support: str,
    key: list[str],
    features: list[str] | None,
    target: list[str] | None,
    id: str | None,
    weight: str | None,
    scaling: str | None,
    metric: str,
    map: str | None = None,
    offset: str | None = None,
    shape: list[str] | None = None,
) -> Any:
    """The support with its roles."""
    from locdist.data.dataset import dataset
    from locdist.jobs.chosen import read_map

    return dataset(
        support,
        key=opt.columns(key),
        features=opt.columns(features) or None,
        target=opt.names(target),
        id=id,
        weight=weight,
        offset=offset,
        shape=opt.names(shape),
        scaling=_scaling(scaling),
        metric=metric,
        map=None if map is None else read_map(map),
    )


def method_of(
    name: str,
    k: str | None,
    kernel: str | None,
    bandwidth: str | None,
    ridge: float | None,
    param: list[str] | None,
) -> dict[str, Any]:
    """The method as a spec, from its name or the file that holds it, with the parameters that were given."""
    from locdist.jobs.chosen import is_file, read_method

    chosen = read_method(name).spec if is_file(name) else {"name": name}
    spec = {**chosen, **parameters_of(k, kernel, bandwidth, ridge, param)}
    if k == "all" and read_method(spec).layer.k is not None:
        raise UsageError("a method of sums for -k all", spec["name"], "Say how many neighbors count, -k 64.")
    return spec


def parameters_of(
    k: str | None,
    kernel: str | None,
    bandwidth: str | None,
    ridge: float | None,
    param: list[str] | None,
) -> dict[str, Any]:
    """The parameters of a method that were given, by their names."""
    width = None if bandwidth is None else opt.bandwidth(bandwidth)
    shape = None if kernel is None else opt.value_of(kernel)
    given = {"kernel": shape, "bandwidth": width, "ridge": ridge}
    named = {name: value for name, value in given.items() if value is not None}
    return named | ({} if k is None else {"k": opt.neighbors(k)}) | opt.parameters(param)


def _scaling(text: str | None) -> str | dict[str, str] | None:
    """`none`, or by role: `key=none,features=standard`."""
    if text is None or "=" not in text:
        return text
    return {role: scaling for role, _, scaling in (part.partition("=") for part in text.split(","))}
