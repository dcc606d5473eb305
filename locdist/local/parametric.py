"""Functions with parameters, and losses, for `localized`: a few that have names, and those of users."""

import copy
import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locdist.errors import UsageError, did_you_mean
from locdist.local.families import Bernoulli, Family, Gamma, Poisson


@dataclass(frozen=True)
class Named:
    """Something that every process can import, as data: "package.module:name".

    Parameters
    ----------
    path : str

    Raises
    ------
    UsageError
        When it is no such path, or there is nothing.
    """

    path: str

    def __post_init__(self) -> None:
        _ = self.value

    @property
    def value(self) -> Any:
        """What has that name."""
        module, _, name = self.path.partition(":")
        try:
            found = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            told = "Write it as package.module:name; workers have to find it too."
            raise UsageError("something to import", f"{self.path!r} ({error})", told) from error
        return found

    @staticmethod
    def of(given: Any) -> Any:
        """The path of a function that can be imported, else what was given."""
        path = f"{getattr(given, '__module__', None)}:{getattr(given, '__qualname__', None)}"
        if not isinstance(given, type) and not path.startswith("__main__") and "<" not in path:
            try:
                return Named(path) if Named(path).value is given else given
            except UsageError:
                pass  # it has no such name: fine in memory
        return given


def called(given: Any) -> Any:
    """What a name stands for, else what was given."""
    return given.value if isinstance(given, Named) else given


class Parametric(ABC):
    """A number that depends on features and parameters."""

    @abstractmethod
    def start(self, m: int) -> Tensor:
        """Parameters [c] to begin with, for m features, float64."""

    @abstractmethod
    def fresh(self, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        """The function of features [k, m] and parameters [c] to numbers [k], all there; for one thread."""

    def free(self, m: int) -> int:
        """How many of the first parameters a ridge leaves alone."""
        return 0

    @property
    def polynomial(self) -> bool:
        """Whether the first parameter is the number at the query, and those after it slopes by feature."""
        return False


@dataclass(frozen=True)
class Polynomials(Parametric):
    """A constant (degree 0), or a plane (degree 1)."""

    degree: int = 1

    def start(self, m: int) -> Tensor:
        return torch.zeros(1 + m * self.degree, dtype=torch.float64)

    def fresh(self, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        if self.degree == 0:
            return lambda x, theta: theta[:1].expand(len(x))
        return lambda x, theta: theta[0] + x @ theta[1:]

    def free(self, m: int) -> int:
        return 1

    @property
    def polynomial(self) -> bool:
        return True


@dataclass(frozen=True)
class Function(Parametric):
    """A function f(x [m], theta [c]) to one number, in torch.

    Parameters
    ----------
    function : Named or callable
    parameters : tuple of float
        Where it begins.
    """

    function: Named | Callable[[Tensor, Tensor], Tensor]
    parameters: tuple[float, ...]

    def start(self, m: int) -> Tensor:
        return torch.tensor(self.parameters, dtype=torch.float64)

    def fresh(self, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        single: Callable[..., Tensor] = called(self.function)
        each = torch.func.vmap(lambda x, theta: single(x, theta).reshape(()), in_dims=(0, None))
        return lambda x, theta: each(x, theta)


@dataclass(frozen=True)
class Network(Parametric):
    """A `torch.nn.Module` of features [k, m] to one number each; it begins with the parameters that it has.

    A ridge draws towards them: what a network knows of all the data is the prior of what it learns here.
    """

    module: Named | torch.nn.Module

    def start(self, m: int) -> Tensor:
        parts = [part.detach().reshape(-1).double() for part in called(self.module).parameters()]
        return torch.cat(parts)

    def fresh(self, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        module = copy.deepcopy(called(self.module))  # a call borrows the module's parameters
        module = module.to(device).double().eval()
        shapes = {name: part.shape for name, part in module.named_parameters()}
        sizes = [math.prod(shape) for shape in shapes.values()]

        def function(x: Tensor, theta: Tensor) -> Tensor:
            parts = zip(shapes.items(), torch.split(theta, sizes), strict=True)
            own = {name: part.reshape(shape) for (name, shape), part in parts}
            found: Tensor = torch.func.functional_call(module, own, (x,))
            return found.reshape(len(x))

        return function


FUNCTIONS: dict[str, Parametric] = {"constant": Polynomials(0), "linear": Polynomials(1)}


class Loss(ABC):
    """How bad a number is for a target; smooth in the number."""

    @abstractmethod
    def fresh(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of numbers [k] and targets [k], each alone: [k]."""

    def mean(self, number: Tensor) -> Tensor:
        """The prediction that a number stands for."""
        return number

    def inside(self, targets: Tensor) -> Tensor:
        """Which targets there can be."""
        return targets.isfinite()


@dataclass(frozen=True)
class Squared(Loss):
    """Half of the squared difference."""

    def fresh(self) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda number, target: (number - target).square() / 2


@dataclass(frozen=True)
class Huber(Loss):
    """Half of the squared difference up to delta, beyond it linear (Huber, Annals of Mathematical Statistics
    35, 1964): far targets pull no more than those at delta.
    """

    delta: float = 1.345

    def __post_init__(self) -> None:
        delta: object = self.delta  # whatever users passed
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < math.inf:
            raise UsageError("a positive delta, in units of the target", repr(delta), '{"huber": 2.0}')

    def fresh(self) -> Callable[[Tensor, Tensor], Tensor]:
        delta = float(self.delta)

        def loss(number: Tensor, target: Tensor) -> Tensor:
            size = (number - target).abs()
            return torch.where(size <= delta, size.square() / 2, delta * (size - delta / 2))

        return loss


@dataclass(frozen=True)
class Likelihood(Loss):
    """The negative log-likelihood of a family: of its linear predictor; the prediction is its mean."""

    family: Family

    def fresh(self) -> Callable[[Tensor, Tensor], Tensor]:
        return self.family.loss

    def mean(self, number: Tensor) -> Tensor:
        return self.family.mean(number)

    def inside(self, targets: Tensor) -> Tensor:
        return self.family.inside(targets)


@dataclass(frozen=True)
class Written(Loss):
    """A loss(number, target) of scalars, in torch."""

    function: Named | Callable[[Tensor, Tensor], Tensor]

    def fresh(self) -> Callable[[Tensor, Tensor], Tensor]:
        single: Callable[..., Tensor] = called(self.function)
        each = torch.func.vmap(lambda number, target: single(number, target).reshape(()))
        return lambda number, target: each(number, target)


LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(),
    "logistic": Likelihood(Bernoulli()),
    "poisson": Likelihood(Poisson()),
    "gamma": Likelihood(Gamma()),
}


def loss_of(choice: Any) -> Loss:
    """The loss of a name, {"huber": delta}, "package.module:name" or a callable."""
    if isinstance(choice, Mapping) and set(choice) == {"huber"}:
        return Huber(choice["huber"])
    if isinstance(choice, str) and ":" in choice:
        return Written(Named(choice))
    if isinstance(choice, str):
        if choice not in LOSSES:
            raise UsageError("a loss", repr(choice), did_you_mean(choice, LOSSES))
        return LOSSES[choice]
    if not callable(choice):
        raise UsageError("a loss: a name, a path, or a function", repr(choice), "'squared' is one.")
    return Written(Named.of(choice))


def function_of(choice: Any, parameters: int | Sequence[float] | None) -> Parametric:
    """The function of a name, "package.module:name", a module, or a callable with so many parameters."""
    named = Named(choice) if isinstance(choice, str) and ":" in choice else Named.of(choice)
    found = called(named)
    if isinstance(found, str):
        if found not in FUNCTIONS:
            raise UsageError("a model", repr(found), did_you_mean(found, FUNCTIONS))
        return FUNCTIONS[found]
    if isinstance(found, torch.nn.Module):
        return Network(named)
    if not callable(found) or parameters is None:
        remedy = "Give f(x, theta) in torch with parameters=3, or where they begin; or an nn.Module."
        raise UsageError("a model of torch and its parameters", repr(choice), remedy)
    begin = [0.0] * parameters if isinstance(parameters, int) else parameters
    return Function(named, tuple(map(float, begin)))
