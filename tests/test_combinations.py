"""Every combination of parts either runs, with one answer, or is refused with the reason.

The parts are found by their names: a new one is covered as soon as its file is there.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import pytest
from golden import NOISY

import gifair_ray
from gifair_ray.aggregators import Aggregator
from gifair_ray.errors import BadInput
from gifair_ray.policies import Policy
from gifair_ray.scenario import merge, parse
from gifair_ray.solvers import Solver
from gifair_ray.weightings import Weighting

# Options that a part cannot do without, or that make another part of it.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "gifair": [
        {"lambda_fraction": 0.5, "ranks": ranks}
        for ranks in ("estimated", "received", "exact-participants", "exact")
    ],
    "deadline": [{"quantile": 0.7}],
    "fedbuff": [{"concurrency": 4, "buffer": 3}],
    "fedasync": [{"concurrency": 4}],
    "fedmgda": [{}, {"prior": "weights"}],
}
TINY = merge(NOISY, {"data": {"clients": 5}, "stop": {"rounds": 2}, "sampling": {"cohort": 3}})


def members(family: Any) -> list[dict[str, Any]]:
    """Tables of all parts of a family."""
    return [{"kind": k} | options for k in family.names() for options in OPTIONS.get(k, [{}])]


COMBINATIONS = [
    dict(zip(("weighting", "solver", "aggregator", "policy"), parts, strict=True))
    for parts in itertools.product(*map(members, (Weighting, Solver, Aggregator, Policy)))
]


def refusal(combination: dict[str, Any]) -> str | None:
    """Why a combination is refused before anything is run, if it is."""
    try:
        parse(merge(TINY, combination))
    except BadInput as error:
        return str(error)
    return None


@functools.cache
def tried() -> list[tuple[dict[str, Any], str | None]]:
    """Every combination, and why it is refused."""
    return [(combination, refusal(combination)) for combination in COMBINATIONS]


def kinds(combination: dict[str, Any]) -> str:
    return " × ".join(str(part["kind"]) for part in combination.values())


@pytest.mark.parametrize("policy", Policy.names())
@pytest.mark.parametrize("weighting", Weighting.names())
@pytest.mark.filterwarnings("ignore:aggregator 'paper-literal'")
def test_every_combination_that_is_allowed_runs_and_has_one_answer(weighting, policy):
    ran = 0
    for combination, reason in tried():
        here = combination["weighting"]["kind"], combination["policy"]["kind"]
        if reason is None and here == (weighting, policy):
            first, again = (
                gifair_ray.run(merge(TINY, combination), backend="local") for _ in range(2)
            )
            assert first.digest == again.digest, kinds(combination)
            assert first.table("rounds").num_rows == 2, kinds(combination)
            weights = first.table("dispatches")["weight"].drop_null().to_pylist()
            assert all(w >= 0 for w in weights), kinds(combination)
            ran += 1
    allowed = not (policy == "fedasync" and weighting in ("afl", "q-ffl", "term"))
    assert bool(ran) == allowed


def test_what_is_refused_names_both_parts_and_a_way_out():
    for combination, reason in tried():
        if reason is not None:
            named = set(re.findall(r"(weighting|solver|aggregator|policy)\.kind", reason))
            assert len(named) >= 2, f"{kinds(combination)}: {reason}"
            ours = {part["kind"] for part in combination.values()}
            assert ours & set(re.findall(r"'([\w-]+)'", reason)), f"{kinds(combination)}: {reason}"
            assert re.search(r"use |try |sets both|set ", reason), reason


@pytest.mark.parametrize(
    ("combination", "words"),
    [
        ({"weighting": {"kind": "term"}, "algorithm": "fedasync"}, ["'term'", "'mixing'"]),
        ({"algorithm": "q-ffl", "aggregator": {"kind": "paper-literal"}}, ["'q-ffl'", "literal'"]),
        ({"algorithm": "afl", "aggregator": {"kind": "fedmgda"}}, ["'afl'", "'fedmgda'", "prior"]),
        (
            {"algorithm": "gifair-global", "weighting": {"lambda_fraction": 0.5},
             "aggregator": {"kind": "fedmgda"}},
            ["'gifair'", "'fedmgda'"],
        ),
        ({"policy": {"kind": "fedasync"}}, ["'fedasync'", "'mixing'"]),
        (
            {"algorithm": "fedmgda+", "policy": {"kind": "fedbuff", "server_lr": 0.5}},
            ["policy.server_lr", "'fedmgda'", "aggregator.server_lr"],
        ),
    ],
)  # fmt: skip
def test_combinations_without_sense(combination, words):
    reason = refusal(combination)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize(
    "combination",
    [
        {"algorithm": "gifair-global", "solver": {"kind": "proximal"}},
        {"algorithm": "gifair-global", "solver": {"kind": "ditto"}},
        {"algorithm": "term", "policy": {"kind": "fedbuff"}},
    ],
)
def test_combinations_that_are_one_line(combination):
    if combination["algorithm"] == "gifair-global":
        combination = merge(combination, {"weighting": {"lambda_fraction": 0.5}})
    assert refusal(combination) is None
