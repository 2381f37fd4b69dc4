"""The conformance suite: every built-in part passes, and every planted fault is found."""

from __future__ import annotations

import csv
import itertools
import re
from typing import Literal

import numpy as np
import pytest

from gifair_ray import draws
from gifair_ray.cli import main
from gifair_ray.conformance import FAMILIES, Conformance, find
from gifair_ray.errors import BadInput
from gifair_ray.federation import DataSource, Population, Samples, Shard, Task
from gifair_ray.scenarios.change import parse_set, together

CHECKS = ["options", "values", "runs", "twice", "alone", "fresh", "stored", "relabelled"]

NEEDED = {  # what a built-in part cannot do without in the trials
    "weighting.gifair": ["weighting.lambda_fraction=0.5"],
    "aggregator.mixing": ["policy.kind=fedasync"],
    "policy.fedbuff": ["policy.buffer=3"],
    "policy.deadline": ["policy.quantile=0.5"],
    "policy.fedasync": ["aggregator.kind=mixing"],
    "model.cnn": ["data.features=16", "model.image=[1,4,4]", "model.conv=[1,1]", "model.hidden=2"],
    "model.mlp": ["model.hidden=[3]"],
    "model.lstm": ["data.source=test_conformance:Tokens", "model.hidden=2", "model.layers=1"],
    "data.prototypes": ["data.majority=3", "data.minority=2", "data.train=9"],
    "data.table": ["data.path=mine.csv"],
    "data.pooled": ["data.path=mine.csv", "data.clients=4"],
    "data.crowd": ["data.clients=6", "data.types=2", "data.samples=12", "data.pool=30"],
    "data.glyphs": ["data.clients=4", "data.samples=12"],
    "data.dialogues": [
        "data.clients=4",
        "data.samples=12",
        "model={kind='lstm', hidden=2, layers=1}",
    ],
    "availability.trace": ["availability.path=trace.csv", "availability.period_s=100.0"],
}
APART = {"model.own"}  # it takes the name of a factory: bad_parts:net is one
BUILT_IN = [
    f"{family}.{name}"
    for family, base in FAMILIES.items()
    for name in base.names()
    if f"{family}.{name}" not in APART
]


class Tokens(DataSource):
    """Sequences of characters."""

    source: Literal["test_conformance:Tokens"] = "test_conformance:Tokens"

    def build(self, seed):
        return _Tokens(seed)


class _Tokens:
    task = Task((4,), 3, tokens=3)

    def __init__(self, seed):
        n = np.array([4, 5, 6])
        self._seed, self.population = seed, Population(np.array([0, 0, 1]), ("a", "b"), n, n, n)

    def shard(self, client):
        n = int(self.population.train[client])
        x = draws.generator(self._seed, "tokens", client).integers(0, 3, (3, n, 4))
        return Shard(*(Samples(part, part[:, 0]) for part in x))


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("mine.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["client", "group", "a", "b", "y"])
        for i in range(60):
            rows.writerow([f"c{i % 4}", f"g{i % 2}", i % 7, i % 5, i % 3 % 2])
    with open("trace.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["client", "from", "until"])
        rows.writerows([[k, start, start + 30] for k in range(7) for start in (k, 50 + k)])


def verdicts(part, sets=()):
    suite = Conformance(part, together([parse_set(change) for change in sets]))
    return {verdict.check: verdict for verdict in suite.checks()}


def faults(part, sets=()):
    return {
        check: verdict.seen
        for check, verdict in verdicts(part, sets).items()
        if verdict.passed is False
    }


@pytest.mark.parametrize("part", BUILT_IN)
def test_every_built_in_part_conforms(part):
    found = verdicts(part, NEEDED.get(part, ()))
    assert list(found) == CHECKS
    assert {v.check: v.seen for v in found.values() if v.passed is False} == {}
    applies = {check for check, verdict in found.items() if verdict.passed}
    assert {"options", "values", "runs", "twice", "alone", "fresh"} <= applies
    family = part.split(".")[0]
    assert ("stored" in applies) == (family in ("weighting", "policy"))
    numbered = family in ("weighting", "solver", "aggregator") and part != "aggregator.mixing"
    assert ("relabelled" in applies) == numbered


@pytest.mark.parametrize("part", ["bad_parts:Remembers", "bad_parts:net", "bad_parts:Good"])
def test_parts_of_a_users_own_that_are_right_conform(part):
    assert faults(part) == {}


def test_what_a_weighting_remembers_is_named():
    assert verdicts("bad_parts:Remembers")["stored"].seen.endswith("it remembers mean, seen")


FAULTS = {
    # weightings
    "Hides": ("fresh", "rounds: first difference in row .* of dispatches, column weight"),
    "Aliases": ("fresh", "column weight"),
    "Draws": ("fresh", "column weight"),
    "Gamble": ("twice", "rounds: first difference in row . of dispatches, column weight: .* or"),
    "Counts": ("twice", "column weight"),
    "Numbered": ("relabelled", "client 5 has tilt 0.05 in round 1, and 0 when it is called"),
    "First": ("relabelled", "has weight 0 in round 1, and 1 when it is called client 0"),
    "Undefined": ("values", "rounds: tilts returned nan; all must be finite"),
    "Backwards": ("values", "tilts returned -1.5: m_k = 1 \\+ tilt must be positive"),
    "ForgetsRanks": ("values", "tilts returned a ndarray of shape .*, not \\(tilts, ranks"),
    "TooFew": ("values", "weigh returned a ndarray of shape \\(1,\\), not an array of"),
    "Overwrites": ("values", "weigh changed an array that it was given"),
    "Objects": ("stored", "memory\\['seen'\\] is an array of object; only floats"),
    "Lists": ("stored", "memory\\['seen'\\] is a list; it must hold arrays"),
    "NeedsAnswers": ("runs", "raised ValueError: zero-size array.*bad_parts.py, line"),
    "Doubles": ("options", "not the same when read back as plain values"),
    "Careless": ("options", "an unknown option is accepted"),
    "Unwritable": ("options", "cannot be written down"),
    "Breaks": ("runs", "raised KeyError: 'nothing' \\(bad_parts.py, line"),
    # solvers, aggregators, policies
    "Pushes": ("values", "pull is -0.1; it must be finite and not negative"),
    "InPlace": ("runs", "read-only"),
    "Momentum": ("fresh", "column step_norm|of losses|of dispatches"),
    "Newest": ("relabelled", "θ depends on how clients are numbered"),
    "Infinite": ("values", "the model has inf in entry 0"),
    "Impatient": ("fresh", "column send_s"),
    "Clinging": ("stored", "column send_s|column time_s"),
    # models, data, availability
    "tired_net": ("alone", "samples: first difference in row"),
    "shared_net": ("twice", "first difference in row"),
    "InTurn": ("alone", "first difference in row"),
    "Boasts": ("values", "client 0, split train: inputs of shape \\(3,\\); the task says \\(2,\\)"),
    "Fickle": ("values", "online alone but not in company"),
    "Denies": ("values", "until gives a moment at which the client is online"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_the_check_that_is_about_it(name):
    check, told = FAULTS[name]
    found = faults(f"bad_parts:{name}")
    assert list(found) == [check]  # and by no other
    assert re.search(told, found[check]), found[check]


def test_after_a_failure_that_spoils_the_rest_nothing_is_claimed_of_the_rest():
    found = verdicts("bad_parts:Gamble")
    skipped = [found[check] for check in ("alone", "fresh", "stored", "relabelled")]
    assert all(v.passed is None and v.seen.startswith("not tried") for v in skipped)


def test_a_part_is_found_by_class_name_or_family():
    assert find("bad_parts:Hides") == ("weighting", "bad_parts:Hides")
    assert find("bad_parts:Impatient")[0] == "policy"
    assert find("bad_parts:net")[0] == "model"
    assert find("bad_parts:Good")[0] == "data"
    assert find("q-ffl") == ("weighting", "q-ffl")
    assert find("model.quadratic") == ("model", "quadratic")


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("quadratic", "'quadratic' may be data.quadratic or model.quadratic"),
        ("gifiar", "did you mean 'gifair'"),
        ("bad_parts:Nobody", "has no 'Nobody'"),
        ("no_such_module:X", "cannot import"),
        ("bad_parts:NOT_A_PART", "is no part: derive it from"),
        ("bad_parts:NeitherPart", "is no part: derive it from"),
        ("gifair", "fits none of the trials: .*lambda_fraction"),
        ("mixing", "fits none of the trials: .*fedasync"),
        ("trace", "availability.path"),
    ],
)
def test_what_cannot_be_verified_is_refused_with_the_reason(part, told):
    with pytest.raises(BadInput, match=told):
        Conformance(part)


def test_an_option_out_of_range_is_refused():
    with pytest.raises(BadInput, match=r"weighting.gamma = -1"):
        Conformance("afl", {"weighting": {"gamma": -1.0}})


def test_the_command_prints_a_line_per_check_and_returns_0(capsys):
    assert main(["verify", "--part", "gifair", "--set", "weighting.lambda_fraction=0.5"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "weighting gifair"
    assert [line.split()[1] for line in lines] == CHECKS
    assert {line[0] for line in lines} == {"✓"}


def test_the_command_shows_the_first_difference_and_returns_1(capsys):
    assert main(["verify", "--part", "bad_parts:Hides"]) == 1
    told = capsys.readouterr()
    (wrong,) = [line for line in told.out.splitlines() if line.startswith("✗")]
    assert "fresh" in wrong
    assert "first difference in row" in wrong
    assert told.err == "gifair: bad_parts:Hides does not conform: fresh\n"


def test_what_does_not_apply_is_marked(capsys):
    assert main(["verify", "--part", "solver.sgd"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("–")]
    assert line.split()[1:3] == ["stored", "n/a:"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "say what to verify"),
        (["quickstart", "--part", "afl"], "say what to verify"),
        (["--part", "afl", "--set", "weighting.gamma="], "nothing to take away"),
        (["--part", "afl", "--set", "weighting.gama=1"], "gama"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(arguments, told, capsys):
    assert main(["verify", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_every_family_has_a_planted_fault():
    families = {find(f"bad_parts:{name}")[0] for name in FAULTS}
    assert families == set(FAMILIES)
    assert set(itertools.chain(*FAULTS.values())) >= set(CHECKS)
