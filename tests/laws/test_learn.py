"""Learned maps: objectives that are what they say, gradients, structure that is found, calibration."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from torch import Tensor

import locdist as ld
from locdist.errors import UsageError
from locdist.execute.threads import process_limited
from locdist.local.calibration import LEVELS, calibrated, conformal
from locdist.local.learn import Learned, learn, neighbors
from locdist.local.likeness import Likeness
from locdist.local.objectives import FLOOR, Kriging, LinearError, MeanError, Objective, VoteLoss
from locdist.methods.learned import LEARNABLE, Standard


@pytest.fixture(autouse=True)
def alone():
    with process_limited(1):  # as `tune` computes: small steps wait for each other on more threads
        yield


GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


KEYS = normal(40, 3)
TARGETS = torch.sin(2 * KEYS[:, :1]) + KEYS[:, 1:2] + 0.1 * normal(40, 1)
OBJECTIVES: dict[str, Objective] = {
    "matern32": Kriging(),
    "mix": Kriging("mix"),
    "mean": MeanError(),
    "linear": LinearError(),
    "vote": VoteLoss(),
}


def parameters(objective: Objective, **changed: float) -> dict[str, Tensor]:
    values = objective.start() | changed
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def others(values: Tensor) -> Tensor:
    """For each of n rows the other n - 1."""
    n = len(values)
    return torch.stack([values[torch.arange(n) != row] for row in range(n)])


def near() -> Tensor:
    return others(KEYS) - KEYS[:, None]


def closed_form(covariance: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Leave-one-out means and variances from one inverse (Rasmussen and Williams, 5.12)."""
    inverse = torch.linalg.inv(covariance)
    variance = 1 / inverse.diagonal()
    return targets - (inverse @ targets) * variance, variance


def refitted(covariance: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The same by a fit without each row."""
    means, variances = [], []
    for row in range(len(targets)):
        rest = torch.arange(len(targets)) != row
        cross = covariance[rest, row]
        solved = torch.linalg.solve(covariance[rest][:, rest], torch.stack([targets[rest], cross], 1))
        means.append(cross @ solved[:, 0])
        variances.append(covariance[row, row] - cross @ solved[:, 1])
    return torch.stack(means), torch.stack(variances)


def test_leaving_one_out_in_closed_form_by_refits_and_as_objective_are_the_same() -> None:
    objective, at = Kriging("mix"), parameters(Kriging("mix"), linear=-1e3)
    likeness = Likeness("mix", 1.0, 0.5, math.exp(-1))
    noise = at["nugget"].exp() + FLOOR
    covariance = likeness(torch.cdist(KEYS, KEYS)) + 1 + noise * torch.eye(40, dtype=torch.float64)
    closed, brute = closed_form(covariance, TARGETS[:, 0]), refitted(covariance, TARGETS[:, 0])
    torch.testing.assert_close(closed, brute, rtol=1e-9, atol=1e-9)
    mean, variance = closed
    expected = 0.5 * ((TARGETS[:, 0] - mean) ** 2 / variance + (2 * math.pi * variance).log())
    found = objective.loss(at, near(), others(TARGETS), TARGETS)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["local-gp", "local-linear", "local-mean"])
def test_an_objective_is_the_leave_one_out_loss_of_its_method(name: str) -> None:
    kind = LEARNABLE[name]
    options = {"covariance": "mix"}
    objective = kind.objective(options)
    at = parameters(objective)
    told = objective.told({name: value.item() for name, value in at.items()})
    method = kind.made(39, options, Learned(((1.0,),), told, 0.0), Standard())
    answers = method(ld.Exact(KEYS, TARGETS), KEYS, own=torch.arange(40), want=["spread"])
    loss = (TARGETS - answers.values).square()[:, 0]
    if name == "local-gp":
        assert answers.spread is not None
        variance = answers.spread[:, 0].square()
        loss = 0.5 * (loss / variance + (2 * math.pi * variance).log())
    found = objective.loss(at, near(), others(TARGETS), TARGETS)
    torch.testing.assert_close(found, loss, rtol=1e-6, atol=1e-7)


def test_the_loss_of_a_vote_is_that_of_neighborhood_components_analysis() -> None:
    labels = (KEYS[:, 0] > 0).long()[:, None]
    linear = normal(2, 3)
    away = near() @ linear.T * math.sqrt(2)  # NCA has exp(-d^2), a kernel of bandwidth 1 exp(-d^2 / 2)
    chances = (-VoteLoss().loss({}, away, others(labels), labels)).exp() - FLOOR
    peer = NeighborhoodComponentsAnalysis()
    peer.n_iter_ = 0
    same = labels.numpy() == labels.numpy().T
    loss, _ = peer._loss_grad_lbfgs(linear.numpy().ravel(), KEYS.numpy(), same, -1.0)
    assert chances.sum().item() == pytest.approx(-loss, rel=1e-10)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_those_of_differences(name: str) -> None:
    objective = OBJECTIVES[name]
    at = parameters(objective)
    names, values = list(at), [value.requires_grad_() for value in at.values()]
    targets = (others(TARGETS) > 0).long() if name == "vote" else others(TARGETS)
    own = (TARGETS > 0).long() if name == "vote" else TARGETS
    metric = (torch.eye(3, dtype=torch.float64) + 0.1 * normal(3, 3)).requires_grad_()

    def loss(linear: Tensor, *parts: Tensor) -> Tensor:
        moved = near()[:6] @ linear.T
        return objective.loss(dict(zip(names, parts, strict=True)), moved, targets[:6], own[:6])

    assert torch.autograd.gradcheck(loss, (metric, *values), atol=1e-5)


@pytest.mark.parametrize("compared", [1, 1 << 20])
def test_the_nearest_under_a_map_are_exact_and_a_row_is_known_by_its_number(
    monkeypatch: pytest.MonkeyPatch, compared: int
) -> None:
    monkeypatch.setattr("locdist.local.learn._COMPARED", compared)  # row by row, or all together
    keys = torch.cat([KEYS, KEYS])  # every row twice: the other one counts
    linear = normal(4, 3)
    rows = torch.tensor([3, 41, 70])
    found = neighbors(keys, linear, rows, 5)
    distances = torch.cdist(keys[rows] @ linear.T, keys @ linear.T)
    distances[torch.arange(3), rows] = torch.inf
    expected = distances.topk(5, largest=False).indices
    assert [set(ids) for ids in found.tolist()] == [set(ids) for ids in expected.tolist()]
    assert [twin in ids for twin, ids in zip([43, 1, 30], found.tolist(), strict=True)] == [True] * 3


def planted(seed: int, rows: int = 900) -> tuple[Tensor, Tensor]:
    """Keys [n, 6], of which a direction within the first three columns decides."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(rows, 6, generator=generator, dtype=torch.float64)
    return keys, 0.1 * torch.randn(rows, 1, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", ["matern32", "mean", "linear"])
def test_scales_find_the_column_that_counts(name: str) -> None:
    keys, noise = planted(1)
    learned = learn(keys, torch.sin(2 * keys[:, 2:3]) + noise, OBJECTIVES[name], steps=120)
    scales = torch.tensor(learned.rows).diagonal()
    assert scales.argmax() == 2
    assert scales[2] > 4 * scales[torch.arange(6) != 2].max()


def test_a_direction_is_found_where_no_column_alone_counts() -> None:
    keys, noise = planted(2)
    axis = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64) / math.sqrt(3)
    targets = torch.sin(3 * keys @ axis)[:, None] + noise
    learned = learn(keys, targets, Kriging(), rank=1, steps=200)
    direction = torch.tensor(learned.rows[-1], dtype=torch.float64)
    assert (direction @ axis).abs() / direction.norm() > 0.95
    assert learned.loss < learn(keys, targets, Kriging(), steps=200).loss - 0.1


def test_a_vote_learns_which_column_decides() -> None:
    keys, _ = planted(3)
    learned = learn(keys, (keys[:, 4:5] > 0).long(), VoteLoss(), steps=100)
    scales = torch.tensor(learned.rows).diagonal()
    assert scales.argmax() == 4
    assert scales[4] > 3 * scales[torch.arange(6) != 4].max()


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, same, other = (learn(KEYS, TARGETS, Kriging(), rank=2, steps=20, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert all(type(number) is float for row in one.rows for number in row)
    assert all(type(number) is float for number in one.parameters.values())


def test_equal_rows_and_constant_targets_are_learned_from_all_the_same() -> None:
    keys = torch.cat([KEYS, KEYS, torch.zeros(20, 3, dtype=torch.float64)])
    learned = learn(keys, torch.zeros(100, 1, dtype=torch.float64), Kriging(), steps=40)
    assert math.isfinite(learned.loss)
    assert all(map(math.isfinite, learned.parameters.values()))


def test_too_few_rows_are_refused() -> None:
    for given in ({"keys": KEYS[:1], "targets": TARGETS[:1]}, {"rank": -1}, {"steps": 0}):
        arguments = {"keys": KEYS, "targets": TARGETS} | given
        with pytest.raises(UsageError, match="at least two rows"):
            learn(objective=Kriging(), **arguments)


# calibration


def test_a_calibration_finds_the_scale_the_tails_and_whose_variance_counts() -> None:
    rng = np.random.default_rng(0)
    said, local = np.full(20_000, 2.0), rng.gamma(2, 1, 20_000)
    errors = np.sqrt(3 * (0.25 * said + 0.75 * local)) * stats.t.rvs(6, size=20_000, random_state=rng)
    found = calibrated(*map(torch.from_numpy, (errors, said, local)))
    assert found.scale == pytest.approx(3, rel=0.1)
    assert found.share == pytest.approx(0.75, abs=0.08)
    assert found.df == pytest.approx(6, rel=0.15)
    one, other = found.multiples
    assert np.mean(errors**2 / (one * said + other * local)) == pytest.approx(1, abs=0.1)


def test_gaussian_errors_and_errors_of_zero_are_calibrated() -> None:
    errors = normal(4000)
    found = calibrated(errors, torch.ones_like(errors), torch.zeros_like(errors))
    assert found.df > 20
    assert sum(found.multiples[:1]) == pytest.approx(1, rel=0.1)
    still = calibrated(torch.zeros(50, dtype=torch.float64), torch.ones(50).double(), torch.ones(50).double())
    assert all(math.isfinite(part) and part >= 0 for part in still.multiples)


def test_conformal_multiples_are_order_statistics() -> None:
    errors, spreads = torch.arange(1.0, 20.0), torch.ones(19)
    assert conformal(errors, spreads, (0.5, 0.9, 0.95)) == {0.5: 10.0, 0.9: 18.0, 0.95: 19.0}
    assert conformal(errors, spreads, (0.99,)) == {0.99: 19.0}  # there are too few for more
    lost = torch.tensor([float("nan")])
    assert conformal(torch.cat([errors, lost]), torch.ones(20), (0.9,)) == {0.9: 18.0}
    assert conformal(lost, lost) == {}
    assert set(conformal(errors, spreads)) == set(LEVELS)
