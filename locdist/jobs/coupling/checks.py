"""What `couple` refuses before any work: rows and roles that a method of nodes cannot use."""

from typing import Any

from locdist.data.columns import is_class
from locdist.data.dataset import Dataset
from locdist.data.source import Source, source
from locdist.errors import UsageError
from locdist.jobs.support import numeric
from locdist.local.estimated import Estimated
from locdist.methods.atlas import Atlas
from locdist.methods.coupled import OfNodes
from locdist.methods.federated import FedRelax

TAKEN = ("rows", "intercept", "held_out", "accuracy", "threshold", "status")  # columns of the output


def check_roles(rows: Dataset, method: OfNodes) -> None:
    """UsageError for rows without the roles that a method needs, or with others."""
    roles, schema, folded = rows.roles, rows.source.schema, isinstance(method, Atlas)
    if roles.id is None and not folded:
        raise UsageError("a column that names the node of each row", "none", "Name it, as the id (--node).")
    if roles.id in TAKEN or (roles.id or "").startswith("coefficient_"):
        wanted = "a column of names that the output has no other use for"
        raise UsageError(wanted, repr(roles.id), "Rename it.")
    allowed = is_class if folded else numeric
    if len(roles.target) != 1 or not allowed(schema.field(roles.target[0]).type):
        given = ", ".join(f"{name} of type {schema.field(name).type}" for name in roles.target) or "none"
        wanted = "one column of classes as the target" if folded else "one column of numbers as the target"
        raise UsageError(wanted, given, "Name it.")
    if roles.features or roles.map is not None or roles.offset is not None or roles.metric != "l2":
        given = "features, a map, an offset, or another metric"
        raise UsageError("features as the key, with metric 'l2' and no map or offset", given, "Leave it out.")


def check_charts(method: Atlas, rows: Dataset, *others: Any) -> None:
    """UsageError for charts that are told twice, or never the same, and for what they do not read."""
    if any(each is not None for each in others):
        raise UsageError("charts without edges, ends and shared rows", "some", "Leave them out.")
    if method.charts is not None and rows.roles.id is not None:
        given = f"charts={method.charts}, and column {rows.roles.id!r}"
        remedy = "Leave out one: rows are drawn, or a column names their chart."
        raise UsageError("how many charts, or the column that names them", given, remedy)
    if isinstance(method.holdout, str):
        rows.source.check([method.holdout])
        if not numeric(kind := rows.source.schema.field(method.holdout).type):
            remedy = "Write true and false, or 1 and 0."
            raise UsageError(f"{method.holdout!r} as a column of 0 and 1", f"type {kind}", remedy)
    check_drawn(method.model)


def shared_rows(method: FedRelax, rows: Dataset, shared: Any) -> Source:
    """The rows that nodes agree on; UsageError without any, and for estimators that cannot be told again."""
    common, model = None if shared is None else source(shared), method.refit.model
    if common is None or not common.rows or model.classifies:
        given = "a classifier" if model.classifies else "no shared rows"
        remedy = "Call it in memory, or give some (--shared)."
        raise UsageError("an estimator of numbers, and shared rows", given, remedy)
    check_drawn(model)
    common.check([name for name, _ in rows.roles.key])
    return common


def check_drawn(model: Estimated) -> None:
    """UsageError for an estimator that draws, and not the same again."""
    drawn = dict(model.choices).get("random_state", 0)
    if not isinstance(drawn, int):
        wanted, given = "an estimator that is the same when it is fitted again", f"random_state={drawn!r}"
        raise UsageError(wanted, given, "Give it a number: random_state=0.")
