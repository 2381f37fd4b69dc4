"""The engine against an independent reference of the paper's algorithms, in plain numpy.

The reference (tests/reference.py) is handed the cohorts that the engine drew and must arrive at
the same models, ranks and multipliers, to 1e-10 in float64, after any number of rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from profiles import examples
from reference import Problem, Trajectory, simulate
from watching import Watched, watch

MODES = ["estimated", "received", "exact-participants", "exact"]
NEAR = 1e-9
"""Two losses that differ by less may be ranked either way by equally good arithmetic."""


# What varies in every run


@dataclass(frozen=True)
class Rates:
    """A learning-rate schedule, as a scenario says it and as a formula of (c, i)."""

    table: dict[str, Any]
    steps: int

    def __call__(self, c: int, i: int) -> float:
        s, t = self.table, c * self.steps + i
        return {
            "constant": lambda: s["lr"],
            "geometric": lambda: s["lr"] * s["decay"] ** c,
            "inverse": lambda: s["beta"] / (t + s["gamma"]),
            "inverse-sqrt": lambda: s["lr"] / (t + 1) ** 0.5,
        }[s["kind"]]()


rates_up_to = {  # none above 0.2, so that nothing diverges
    "constant": {"lr": st.floats(0.01, 0.2)},
    "geometric": {"lr": st.floats(0.01, 0.2), "decay": st.floats(0.5, 1.0)},
    "inverse": {"beta": st.floats(0.5, 2.0), "gamma": st.floats(10.0, 20.0)},
    "inverse-sqrt": {"lr": st.floats(0.01, 0.2)},
}


@st.composite
def recipes(draw, K: int) -> dict[str, Any]:
    """Everything of a scenario but its clients and their model; at most six rounds."""
    kind = draw(st.sampled_from(sorted(rates_up_to)))
    schedule = {"kind": kind} | {k: draw(v) for k, v in rates_up_to[kind].items()}
    scheme = draw(st.sampled_from(["p-replace", "uniform", "all"]))
    cohort = draw(st.integers(1, K if scheme == "uniform" else K + 3))
    return {
        "algorithm": "gifair-global",
        "seed": draw(st.integers(0, 2**32)),
        "work": {"steps": draw(st.integers(1, 4)), "schedule": schedule},
        "sampling": {"scheme": scheme, "cohort": cohort},
        "weighting": {
            "lambda_fraction": draw(st.sampled_from([0.0, 0.3, 0.6, 0.9]) | st.floats(0, 0.99)),
            "ranks": draw(st.sampled_from(MODES)),
            "initial": draw(st.sampled_from(["none", "bootstrap"])),
        },
        "stop": {"rounds": draw(st.integers(1, 6))},
        "evaluation": {"every": 0, "splits": ["train"]},
        "audit": {"every": 1},
    }


def cohorts_of(run: Watched) -> list[list[int]]:
    """S_c for every round, a client as often as it was drawn."""
    rounds: list[list[int]] = [[] for _ in range(run.table("rounds").num_rows)]
    for row in run.table("dispatches").to_pylist():
        rounds[row["round"] - 1] += [row["client"]] * row["slots"]
    return rounds


def reference_of(run: Watched, problem: Problem, recipe: dict[str, Any]) -> Trajectory:
    """The reference on the engine's cohorts."""
    work, weighting = recipe["work"], recipe["weighting"]
    n, groups = problem.sizes, problem.groups
    of_clients = n / n.sum() * np.array([np.sum(groups == s) for s in groups])
    d = len(set(groups.tolist()))
    bound = min(of_clients) / (d - 1) if d > 1 else 0.0
    return simulate(
        problem,
        run.models[0],
        cohorts_of(run),
        Rates(work["schedule"], work["steps"]),
        weighting["lambda_fraction"] * bound,
        recipe["sampling"]["scheme"],
        weighting["ranks"],
        "bootstrap" if weighting["initial"] == "bootstrap" else None,
        steps=work["steps"],
    )


def assume_no_hair_is_split(run: Watched, ties: bool) -> None:
    """Pass over runs whose ranks hang on a rounding error; `ties`: exact ones are no accident."""
    table = run.table("ranks")
    version, L = table["version"].to_numpy(), table["L_used"].to_numpy()
    for v in range(version.max()):  # the ranks of the last version are not used
        gaps = np.diff(np.sort(L[(version == v) & ~np.isnan(L)]))
        assume(not ((gaps < NEAR) & ~((gaps == 0) & ties)).any())


def assert_agree(run: Watched, expected: Trajectory) -> None:
    close = {"rtol": 1e-10, "atol": 1e-10}
    assert len(run.models) == len(expected.models)
    for row in run.table("dispatches").to_pylist():
        c, k = row["round"] - 1, row["client"]
        assert row["rank"] == expected.ranks[c][k], row
        assert_allclose(1 + row["tilt"], expected.multipliers[c][k], **close)
    assert_allclose(run.models, expected.models, **close)
    assert_allclose(run.outcome.theta, expected.models[-1], **close)


# Quadratics


@dataclass(frozen=True)
class Quadratics:
    """F_k(θ) = ½(θ − b_k)ᵀA_k(θ − b_k)."""

    A: np.ndarray
    b: np.ndarray
    sizes: np.ndarray
    groups: np.ndarray

    @property
    def data(self) -> dict[str, Any]:
        lists = {name: value.tolist() for name, value in vars(self).items()}
        return {"source": "quadratic", "problem": "own"} | lists

    @property
    def problem(self) -> Problem:
        return Problem(
            self.sizes,
            self.groups,
            lambda k, y: float((y - self.b[k]) @ self.A[k] @ (y - self.b[k]) / 2),
            lambda k, y: self.A[k] @ (y - self.b[k]),
        )


@st.composite
def quadratics(draw, fewest_groups: int = 1) -> Quadratics:
    """Clients of any sizes in any groups; some groups are twins of others, and tie with them."""
    d = draw(st.integers(fewest_groups, 5))
    each = draw(st.booleans())
    members = [1] * d if each else draw(st.lists(st.integers(1, 4), min_size=d, max_size=d))
    g = np.random.default_rng(draw(st.integers(0, 2**32)))
    dim = draw(st.integers(1, 3))
    clients: list[tuple[int, int, np.ndarray, np.ndarray]] = []
    for group, count in enumerate(members):
        twins = [c for c in clients if c[0] == 0]
        if group and draw(st.integers(0, 3)) == 0:
            clients += [(group, *own) for _, *own in twins]
            continue
        for _ in range(count):
            Q = np.linalg.qr(g.standard_normal((dim, dim)))[0]
            A = Q.T @ (g.uniform(0.3, 3.0, (dim, 1)) * Q)
            n = draw(st.integers(1, 50))
            clients.append((group, n, (A + A.T) / 2, g.standard_normal(dim)))
    order = draw(st.permutations(clients))
    groups, sizes, A, b = (np.array(column) for column in zip(*order, strict=True))
    return Quadratics(A, b, sizes, groups)


@examples(200)
@given(st.data())
def test_on_quadratics_the_engine_is_the_reference(data):
    clients = data.draw(quadratics())
    recipe = data.draw(recipes(len(clients.b)))
    if len(set(clients.groups.tolist())) == 1:
        recipe["weighting"]["lambda_fraction"] = 0.0
    start = data.draw(st.sampled_from([0.0, 1.5, -3.0]))
    run = watch(
        recipe | {"data": clients.data, "model": {"kind": "quadratic", "init": start}},
    )
    assume_no_hair_is_split(run, ties=True)
    assert_agree(run, reference_of(run, clients.problem, recipe))


@examples(60)
@given(st.data())
def test_personal_models_are_those_of_the_reference(data):
    clients = data.draw(quadratics(fewest_groups=2))
    recipe = data.draw(recipes(len(clients.b))) | {"algorithm": "gifair-per"}
    recipe["weighting"]["ranks"] = "estimated"
    run = watch(recipe | {"data": clients.data, "model": {"kind": "quadratic", "init": 0.5}})
    assume_no_hair_is_split(run, ties=True)
    expected = reference_of(run, clients.problem, recipe)
    assert_agree(run, expected)
    assert set(run.outcome.personal) == set(expected.personal)
    for k, theta_k in expected.personal.items():
        assert_allclose(run.outcome.personal[k], theta_k, rtol=1e-10, atol=1e-10)


# Softmax regression


def softmax_problem(run: Watched) -> Problem:
    """Cross-entropy of W and a bias, on the samples that the engine's clients hold."""
    federation = run.scenario.data.build(run.scenario.seed)
    features, classes = federation.task.input_shape[0], federation.task.classes
    population = federation.population
    samples = [federation.shard(k).train for k in range(len(population))]
    X = [np.column_stack([s.x, np.ones(len(s))]) for s in samples]
    Y = [np.eye(classes)[s.y] for s in samples]

    def probabilities(k: int, theta: np.ndarray) -> np.ndarray:
        Z = X[k] @ theta.reshape(features + 1, classes)
        Z = Z - Z.max(axis=1, keepdims=True)
        return np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)

    def loss(k: int, theta: np.ndarray) -> float:
        return float(-np.mean(np.log((probabilities(k, theta) * Y[k]).sum(axis=1))))

    def grad(k: int, theta: np.ndarray) -> np.ndarray:
        return (X[k].T @ (probabilities(k, theta) - Y[k]) / len(X[k])).reshape(-1)

    return Problem(population.train, population.groups, loss, grad)


prototypes = st.fixed_dictionaries(
    {
        "source": st.just("prototypes"),
        "majority": st.integers(1, 6),
        "minority": st.integers(1, 3),
        "classes": st.integers(2, 4),
        "features": st.integers(2, 7),
        "scale": st.floats(0.5, 3.0),
        "train": st.integers(1, 17),
        "val": st.just(0),
        "test": st.just(0),
    }
)
unequal = st.fixed_dictionaries(  # a minority with fewer samples, or more
    {
        "source": st.just("synthetic"),
        "clients": st.integers(3, 8),
        "features": st.integers(1, 7),
        "classes": st.integers(2, 4),
        "samples": st.integers(8, 30),
        "minority": st.fixed_dictionaries(
            {"share": st.sampled_from([0.2, 0.4]), "size_factor": st.sampled_from([0.3, 2.5])}
        ),
    }
)
individual = st.fixed_dictionaries(
    {
        "source": st.just("synthetic"),
        "clients": st.integers(2, 6),
        "features": st.integers(1, 7),
        "classes": st.integers(2, 4),
        "samples": st.integers(2, 20),
        "groups": st.sampled_from(["each", 2]),
    }
)


@examples(80)
@given(st.data())
def test_on_softmax_regression_the_engine_is_the_reference(data):
    clients = data.draw(prototypes | unequal | individual)
    K = clients.get("clients") or clients["majority"] + clients["minority"]
    recipe = data.draw(recipes(K))
    model = {
        "kind": "softmax",
        "dtype": "float64",
        "init": data.draw(st.sampled_from(["zeros", "random"])),
    }
    run = watch(recipe | {"data": clients, "model": model})
    assume_no_hair_is_split(run, ties=False)
    assert_agree(run, reference_of(run, softmax_problem(run), recipe))
