"""The algorithms beside GIFAIR: golden cases, and what they reduce to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from golden import (
    LOSSES,
    NOISY,
    SOFTMAX,
    STEPS,
    THETA,
    fedmgda,
    golden,
    quadratics,
    run,
    weighting,
    weights,
)
from numpy.testing import assert_allclose

from gifair_ray.min_norm import min_norm_weights
from gifair_ray.scenario import merge
from gifair_ray.weightings.afl import onto_simplex
from gifair_ray.weightings.term import tilted_objective

SIX = {"rtol": 0, "atol": 5.1e-7}

# Golden cases


def test_the_golden_clients_are_what_they_should_be():
    done = run(golden(), {"algorithm": "q-ffl", "solver": {"keep": True}})
    assert done.table("dispatches")["loss_received"].to_pylist() == pytest.approx(LOSSES)
    for k, w in enumerate(([0.8, -1], [1, -0.7], [0.9, -0.9])):
        assert_allclose(done.model(k)["theta"], w, rtol=1e-12)


@pytest.mark.parametrize(
    ("q", "theta", "h"),
    [(0, (0.9, -0.866667), (10, 10, 10)), (1, (0.9, -0.95), (24, 14, 12))],
)
def test_a1_q_fedavg(q, theta, h):
    done = run(golden(), weighting("q-ffl", q=q))
    assert_allclose(done.outcome.theta, theta, **SIX)
    assert_allclose(weights(done), 10 * np.array(LOSSES) ** q / sum(h), rtol=1e-9)


@pytest.mark.parametrize(("q", "theta"), [(0.5, (0.999995, -0.999984)), (0.001, (1.0, -1.0))])
def test_a1c_a_client_without_loss_that_moves_holds_all_others_back(q, theta):
    scenario = golden()
    # F = xy has no value where x = 0, and yet a slope: client 0 moves by (2, 0) as before.
    scenario["data"]["A"][0], scenario["data"]["b"][0] = [[0.0, 1.0], [1.0, 0.0]], [1.0, -3.0]
    done = run(scenario, weighting("q-ffl", q=q))
    assert done.table("dispatches")["loss_received"].to_pylist() == pytest.approx([0, 0.5, 1])
    assert_allclose(done.outcome.theta, theta, **SIX)
    if q == 0.001:
        h = [q * F ** (q - 1) * s + 10 * F**q for F, s in ((0.5, 9.0), (1.0, 2.0))]
        h_1 = 10 * 0.5**q / weights(done)[1] - sum(h)
        assert h_1 == pytest.approx(3.909e7, rel=2e-4)


@pytest.mark.parametrize(
    ("t", "sizes", "expected"),
    [
        (1, [1, 1, 1], (0.628532, 0.140244, 0.231224)),
        (2, [1, 1, 1], (0.843795, 0.042010, 0.114195)),
        (1, [1, 2, 1], (0.551225, 0.245990, 0.202785)),
    ],
)
def test_a2_term(t, sizes, expected):
    done = run(golden(sizes=sizes), weighting("term", t=t))
    assert_allclose(weights(done), expected, **SIX)
    if (t, sizes) == (1, [1, 1, 1]):
        assert_allclose(done.outcome.theta, (0.851171, -0.934804), **SIX)


@pytest.mark.parametrize(("t", "first"), [(1.0, 0.268941), (-1.0, 0.731059)])
def test_a2_term_with_losses_of_a_thousand(t, first):
    large = quadratics([[[1.0]], [[1.0]]], [[math.sqrt(2000)], [math.sqrt(2002)]], 0.0)
    assert_allclose(weights(run(large, weighting("term", t=t))), (first, 1 - first), **SIX)


@pytest.mark.parametrize(
    ("options", "sizes", "d"),
    [
        ({"epsilon": 0.0}, [1, 1, 1], (0.569036, -0.569036)),
        ({"epsilon": 0.1}, [1, 1, 1], (0.548325, -0.548325)),
        ({"epsilon": 1.0}, [1, 1, 1], (0.5, -0.5)),
        ({"epsilon": 0.1, "prior": "weights"}, [1, 2, 1], (0.456066, -0.606066)),
    ],
)
def test_a3_fedmgda(options, sizes, d):
    done = run(golden(sizes=sizes), fedmgda(server_lr=0.1, **options))
    assert_allclose((THETA - done.outcome.theta) / 0.1, d, **SIX)
    # No step is longer than η_g, which falls as the learning rate does.
    falling = {"work": {"schedule": {"kind": "geometric", "lr": 0.1, "decay": 0.5}}}
    once_more = run(golden(sizes=sizes), fedmgda(**options), falling, {"stop": {"rounds": 3}})
    norms = once_more.table("rounds")["step_norm"].to_numpy()
    assert (norms <= 0.5 ** np.arange(3) + 1e-12).all()
    assert norms[0] == pytest.approx(np.linalg.norm(d), abs=1e-6)


def test_a3_the_weights_of_the_shortest_combination():
    unit = STEPS / np.linalg.norm(STEPS, axis=1, keepdims=True)
    M, third = unit @ unit.T, np.full(3, 1 / 3)
    boxed = min_norm_weights(M, third - 0.1, third + 0.1)
    assert_allclose(boxed, (0.383333, 0.383333, 0.233333), **SIX)
    assert_allclose(min_norm_weights(M, np.zeros(3), np.ones(3)), (0.5, 0.5, 0.0), atol=1e-9)
    p = np.array([0.25, 0.5, 0.25])
    assert_allclose(min_norm_weights(M, p - 0.1, p + 0.1), (0.35, 0.5, 0.15), atol=1e-9)
    two = min_norm_weights(np.diag([4.0, 1.0]), np.zeros(2), np.ones(2))
    assert_allclose(two, (0.2, 0.8), atol=1e-9)


def test_a4_afl():
    done = run(golden(), weighting("afl", gamma=0.1), {"stop": {"rounds": 2}})
    assert_allclose(weights(done), np.full(3, 1 / 3), rtol=1e-12)
    assert_allclose(weights(done, 2), (0.416667, 0.266667, 0.316667), **SIX)


@pytest.mark.parametrize(
    ("v", "nearest"),
    [
        ((1.2, 0.3, -0.1), (0.95, 0.05, 0)),
        ((2, 0.1, 0.1), (1, 0, 0)),
        ((0.9, 0.9, -0.5), (0.5, 0.5, 0)),
        ((0.8, 0.5, 0.12), (0.65, 0.35, 0)),
        ((1e17, 1e17), (0.5, 0.5)),
        ((-1e300, 0.0, 1e300), (0, 0, 1)),
        ((7.0,), (1,)),
    ],
)
def test_a4_projections(v, nearest):
    assert_allclose(onto_simplex(np.array(v, dtype=float)), nearest, atol=1e-12)


@pytest.mark.parametrize(("steps", "v"), [(1, 2.05), (2, 2.0925), (3, 2.128625), (300, 7 / 3)])
def test_a5_ditto(steps, v):
    # Client 1 brings θ from 2 to 1 in a round of its own; client 0 is drawn next, with v = 2.
    left = 0.9**steps
    centre = (1 - 2 * left) / (1 - left)
    scenario = quadratics([[[1.0]], [[1.0]]], [[3.0], [centre]], 2.0)
    scenario |= {"algorithm": "ditto", "solver": {"lambda_value": 0.5}, "stop": {"rounds": 2}}
    scenario |= {"sampling": {"scheme": "p-replace", "cohort": 1}, "seed": 4}
    scenario["work"]["steps"] = steps
    done = run(scenario)
    assert done.table("dispatches")["client"].to_pylist() == [1, 0]
    assert_allclose(done.model(0)["theta"], [v], **SIX)


@pytest.mark.parametrize(("steps", "y"), [(1, 1.2), (2, 1.37), (3, 1.5145)])
def test_a5_fedprox(steps, y):
    scenario = quadratics([[[1.0]]], [[3.0]], 1.0)
    scenario["work"]["steps"] = steps
    done = run(scenario, {"algorithm": "fedprox", "solver": {"mu": 0.5}})
    assert_allclose(done.outcome.theta, [y], **SIX)


# Reductions

POLICIES: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync", "failures": "corrected"},
    "deadline": {"kind": "deadline", "quantile": 0.7, "late": "carry"},
    "overselect": {"kind": "overselect"},
    "fedbuff": {"kind": "fedbuff", "concurrency": 4, "buffer": 3, "rates": "empirical"},
    "tiers": {"kind": "tiers", "tiers": 2},
}
NOTHING: dict[str, dict[str, Any]] = {
    "q = 0": weighting("q-ffl", q=0.0),
    "t = 0": weighting("term", t=0.0),
    "t = 1e-13": weighting("term", t=-1e-13),
    "mu = 0": {"algorithm": "fedprox", "solver": {"mu": 0.0}},
    "lambda = 0": {"algorithm": "gifair-global", "weighting": {"lambda_fraction": 0.0}},
    "ditto": {"algorithm": "ditto"},
}


@pytest.mark.parametrize("scheme", ["p-replace", "uniform", "all"])
@pytest.mark.parametrize("policy", list(POLICIES))
def test_with_nothing_of_its_own_every_algorithm_is_fedavg_bit_for_bit(policy, scheme):
    world = {"policy": POLICIES[policy], "sampling": {"scheme": scheme, "cohort": 4}}
    fedavg = run(NOISY, world)
    columns = ["client", "slots", "outcome", "version", "weight"]
    for name, algorithm in NOTHING.items():
        if name == "ditto":  # its second model takes as long as the first
            algorithm = merge(algorithm, {"devices": {"sample_s": {"median": 0.005}}})
        done = run(NOISY, world, algorithm)
        assert done.outcome.theta.tobytes() == fedavg.outcome.theta.tobytes(), name
        assert (
            done.table("dispatches")
            .select(columns)
            .equals(fedavg.table("dispatches").select(columns))
        ), name


@pytest.mark.parametrize("name", list(NOTHING))
def test_on_samples_as_well(name):
    done, fedavg = run(NOISY | SOFTMAX, NOTHING[name]), run(NOISY | SOFTMAX)
    assert done.outcome.theta.tobytes() == fedavg.outcome.theta.tobytes()


@pytest.mark.parametrize("kind", ["q-ffl", "term", "afl"])
def test_with_something_of_its_own_it_is_not(kind):
    assert (
        run(NOISY, {"algorithm": kind}).outcome.theta.tolist() != run(NOISY).outcome.theta.tolist()
    )


def test_fedmgda_without_room_is_a_mean_of_normalised_changes():
    kept = {"solver": {"keep": True}, "stop": {"rounds": 1}, "sampling": {"scheme": "all"}}
    done = run(NOISY, kept, fedmgda(epsilon=0.0))
    start = np.ones(3)
    moved = [start - done.outcome.personal[k] for k in sorted(done.outcome.personal)]
    mean = np.mean([g / np.linalg.norm(g) for g in moved], axis=0)
    assert len(moved) > 3
    assert_allclose(done.outcome.theta, start - mean, rtol=1e-12)


@pytest.mark.parametrize(
    ("losses", "p", "t", "value"),
    [
        ((2.0, 0.5, 1.0), (1 / 3, 1 / 3, 1 / 3), 1.0, 1.365756),
        ((2.0, 0.5, 1.0), (1 / 3, 1 / 3, 1 / 3), 2.0, 1.535617),
        ((2.0, 0.5, 1.0), (0.25, 0.5, 0.25), 1.0, 1.209317),
        ((2.0, 0.5, 1.0), (0.25, 0.5, 0.25), 0.0, 1.0),
        ((1000.0, 1001.0), (0.5, 0.5), 1.0, 1001.0 + np.log((1 + np.exp(-1.0)) / 2)),
    ],
)
def test_terms_objective_is_that_of_golden_case_a2(losses, p, t, value):
    assert tilted_objective(np.array(losses), np.array(p), t) == pytest.approx(value, abs=5e-7)
