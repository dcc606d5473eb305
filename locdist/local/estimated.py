"""Estimators of other libraries around every query: one fit at a time, the slow path of localization."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from locdist.local.answers import Answers
from locdist.local.models import LocalModel, answered, valued
from locdist.local.neighborhood import Neighborhood
from locdist.local.parametric import Named, called


@dataclass(frozen=True)
class Estimated(LocalModel):
    """An estimator as scikit-learn has them, fitted with the weights as `sample_weight`.

    Queries are fitted one by one: hundreds a second at best, on as many cores as there are workers. The
    features are as they are, not less those of the query. A query whose fit raises an error is NOT_FINITE.
    Where all neighbors are of one class it has the probability 1.

    Parameters
    ----------
    kind : Named or type
        Its class, with `fit(X, y, sample_weight)` and `predict(X)`; with `predict_proba(X)` it predicts
        classes.
    choices : tuple of (str, value)
        What it is made with. An estimator that draws wants a `random_state` among them.
    """

    kind: Any
    choices: tuple[tuple[str, Any], ...] = ()
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})

    @staticmethod
    def of(estimator: Any) -> "Estimated":
        """The model of an estimator, which is not fitted itself."""
        kind = type(estimator)
        path = f"{kind.__module__}:{kind.__qualname__}"
        found = kind if path.startswith("__main__") or "<" in path else Named(path)
        return Estimated(found, tuple(sorted(estimator.get_params(deep=False).items())))

    @property
    def classifies(self) -> bool:
        """Whether it predicts classes."""
        return hasattr(self.fresh(), "predict_proba")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"codes" if self.classifies else "targets", "features"})

    def fresh(self) -> Any:
        """An estimator that is not fitted yet."""
        return called(self.kind)(**dict(self.choices))

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.targets is not None
        classes = hood.classes if self.classifies else 0
        width = classes or hood.targets.shape[2]
        values = weights.new_full((len(weights), width), float("nan"))
        again = _repeated(hood, weights)
        for row in range(len(weights)):
            one = hood.rows(slice(row, row + 1))
            values[row] = (
                values[row - 1] if again[row] else self._answer(one, weights[row], values[row], classes)
            )
        certain = torch.zeros(len(weights), dtype=torch.int8, device=weights.device)
        return valued(answered(values, weights, certain, hood, weights, want))

    def _answer(self, hood: Neighborhood, weights: Tensor, nothing: Tensor, classes: int) -> Tensor:
        assert hood.features is not None
        assert hood.query_features is not None
        assert hood.targets is not None
        there = weights > 0
        features, targets = hood.features[0, there].double(), hood.targets[0, there]
        usable = len(targets) and features.isfinite().all() and targets.isfinite().all()
        if not usable:
            return nothing
        if classes and (targets == targets[0]).all():
            return torch.zeros_like(nothing).index_fill_(0, targets[0], 1.0)
        each = targets[:, 0] if targets.shape[1] == 1 else targets
        try:
            fitted = self.fresh()
            fitted.fit(features.cpu().numpy(), each.cpu().numpy(), sample_weight=weights[there].cpu().numpy())
            ask = fitted.predict_proba if classes else fitted.predict
            told = torch.as_tensor(ask(hood.query_features.double().cpu().numpy())).reshape(-1).to(nothing)
        except (ValueError, ArithmeticError):
            return nothing
        if not classes:
            return told
        return torch.zeros_like(nothing).index_copy_(0, torch.as_tensor(fitted.classes_).to(targets), told)


def _repeated(hood: Neighborhood, weights: Tensor) -> list[bool]:
    # which queries are the one before: a tile that is not full repeats its last
    assert hood.query_features is not None
    parts = (hood.query_features, hood.ids, weights)
    same = torch.stack([(part[1:] == part[:-1]).all(1) for part in parts]).all(0)
    return [False, *same.tolist()]
