"""`gifair bench`: what is measured, and the sums done with it. Nothing here asserts a time."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from gifair_ray.analysis.speed import GOALS, LIMITS, Goal, Spread, judged, summary
from gifair_ray.bench.meter import cpu_seconds, pss_bytes
from gifair_ray.bench.run import SCHEMA, run
from gifair_ray.bench.workloads import NAMES, Arm, arms, write_characters
from gifair_ray.cli import main
from gifair_ray.errors import RunFailed
from gifair_ray.scenario import parse


def row(workload, arm, repetition, *, updates=100, rounds=10, wall_s=1.0, cpu_s=1.0, **more):
    counted = {"updates": updates, "rounds": rounds, "wall_s": wall_s, "cpu_s": cpu_s}
    rest = {"turn": 0, "workers": 2, "moved_bytes": 0, "peak_pss_bytes": 10**9, "ready_s": 2.0}
    return {"workload": workload, "arm": arm, "repetition": repetition, **counted, **rest, **more}


def table(*rows):
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


# Sums


def test_ratios_are_taken_within_a_repetition():
    """The machine is half as fast in the second repetition: both sides suffer, the ratio stays."""
    measured = table(
        row("W2", "loop ×2", 0, updates=100, wall_s=10.0, cpu_s=20.0),
        row("W2", "ray ×2", 0, updates=100, wall_s=12.5, cpu_s=21.0),
        row("W2", "loop ×2", 1, updates=100, wall_s=20.0, cpu_s=20.0),
        row("W2", "ray ×2", 1, updates=100, wall_s=25.0, cpu_s=22.0),
        row("W2", "loop ×2", 2, updates=100, wall_s=10.0, cpu_s=20.0),
        row("W2", "ray ×2", 2, updates=100, wall_s=10.0, cpu_s=23.0),
    )
    found = summary(measured)["W2", "ray ×2"]
    assert found["rate"] == Spread(8.0, 4.0, 10.0)
    assert found["rate/limit"] == Spread(0.8, 0.8, 1.0)
    assert found["cpu"] == Spread(0.22, 0.21, 0.23)
    assert found["cpu/limit"].median == pytest.approx(1.1)
    assert "rate/limit" not in summary(measured)["W2", "loop ×2"]


def test_ratios_are_taken_within_a_turn():
    """The machine is slow for one turn of three, and once for a single arm: the ratio stays."""
    times = {"loop ×2": [10.0, 40.0, 10.0], "ray ×2": [30.0, 50.0, 12.5]}
    measured = table(
        *(
            row("W2", arm, repetition, turn=turn, updates=100, wall_s=wall_s)
            for repetition in (0, 1)
            for arm, taken in times.items()
            for turn, wall_s in enumerate(taken)
        ),
        *(row("W4", "no-op learner", 0, turn=turn) for turn in range(9)),  # has more turns
    )
    assert summary(measured)["W2", "ray ×2"]["rate/limit"] == Spread(0.8, 0.8, 0.8)
    found = {goal.text: spread for goal, spread in judged(measured)}
    assert found["W2: rate, ray ×2 / loop ×2"] == Spread(0.8, 0.8, 0.8)


def test_goals_are_judged_where_all_their_arms_were_measured():
    rates = {"loop ×1": 10.0, "loop ×2": 18.0, "ray ×1": 9.0, "ray ×2": 17.1}
    rows = [row("W3", arm, 0, updates=round(10 * r), wall_s=10.0) for arm, r in rates.items()]
    found = {goal.text: (goal, spread.median) for goal, spread in judged(table(*rows))}
    goal, scaling = found["W3: scaling 1 → 2, of ray / of loop"]
    assert scaling == pytest.approx((17.1 / 9.0) / (18.0 / 10.0))
    assert goal.is_met(scaling)
    assert not goal.is_met(0.94)
    assert not goal.is_met(math.nan)
    assert not any("memory" in text for text in found)  # there was no bare pool
    pool = row("pool", "bare pool", 0, updates=0, wall_s=0.0, peak_pss_bytes=800_000_000)
    rows.append(row("W3", "ray ×2", 0, turn=1, updates=171, wall_s=10.0))  # the pool has one turn
    found = {goal.text: spread.median for goal, spread in judged(table(*rows, pool))}
    assert found["W3: memory, ray ×2 / bare pool"] == pytest.approx(1.25)


def test_a_difference_is_one():
    rows = [
        row("W5", "10³ clients", 0, peak_pss_bytes=300),
        row("W5", "10⁶ clients", 0, peak_pss_bytes=750),
    ]
    found = {goal.text: spread.median for goal, spread in judged(table(*rows))}
    assert found["W5: memory, 10⁶ less 10³ clients, bytes"] == 450


def test_every_goal_and_limit_names_arms_that_exist(tmp_path):
    known = {(arm.workload, arm.name) for arm in arms(list(NAMES), tmp_path)}
    assert {place for goal in GOALS for place in goal.over + goal.under} <= known
    assert {(workload, arm) for (workload, _), arm in LIMITS.items()} <= known
    assert set(LIMITS) <= known
    assert all((goal.at_least is None) != (goal.at_most is None) for goal in GOALS)
    assert isinstance(GOALS[0], Goal)


# Measuring


def test_every_workload_is_a_scenario_that_can_run(tmp_path):
    for small in (False, True):
        for arm in arms(list(NAMES), tmp_path, small):
            if arm.scenario:
                scenario = parse(arm.scenario)
                assert arm.per_round == getattr(scenario.policy, "buffer", None) or (
                    arm.per_round == scenario.sampling.cohort
                )


def test_the_text_has_80_characters_and_80_classes(tmp_path):
    import pyarrow.parquet as pq

    read = pq.read_table(write_characters(tmp_path, 3, 40))
    assert read.num_rows == 120
    assert set(read["y"].to_pylist()) == set(range(80))
    assert {len(x) for x in read["x"].to_pylist()} == {80}


def test_cpu_and_memory_are_those_of_the_whole_tree():
    work = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass\n"
    work += "held = bytearray(b'x' * (50 << 20)); print('ready', flush=True); input()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        assert cpu_seconds(process.pid) >= 0.3
        assert pss_bytes(process.pid) > 50 << 20
    finally:
        process.communicate("\n")
    assert cpu_seconds(os.getpid()) > 0


def stat_of(process):
    """The fields of /proc/PID/stat after the name."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def test_an_arm_stands_still_between_its_turns_and_is_counted_in_them():
    """Actors that are idle would be in the way of the arm whose turn it is; and what actors do
    while their arm tells how it went would be done for nothing.
    """
    code = "\n".join(
        [
            "import subprocess, sys, time",
            "from itertools import count",
            "from gifair_ray.bench.window import measure, say",
            "child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])",
            "say(child=child.pid)",
            "rounds = count(1)",
            "def advance(): time.sleep(0.05); return next(rounds)",
            "def moved(): time.sleep(0.05); return 7",
            "measure({'warm': 2}, advance, moved)",
            "child.kill(); child.wait()",
        ]
    )
    pipe = subprocess.PIPE
    arm = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    child = json.loads(arm.stdout.readline())["child"]
    assert "ready" in json.loads(arm.stdout.readline())

    def used():
        """CPU seconds of the child, once it stands still."""
        while (fields := stat_of(child))[0] != "T":
            time.sleep(0.01)
        return (int(fields[11]) + int(fields[12])) * tick

    tick = 1 / os.sysconf("SC_CLK_TCK")
    before, counted = used(), 0.0
    for _ in range(5):
        arm.stdin.write("0.1\n")
        arm.stdin.flush()
        told = json.loads(arm.stdout.readline())
        assert told["rounds"] >= 1
        assert told["moved_bytes"] == 0
        counted += told["cpu_s"]
    assert counted >= used() - before - 5 * tick  # each reading is short of a tick at most
    arm.communicate()  # nobody speaks to it any more: it goes on, and ends
    assert arm.returncode == 0
    assert not Path(f"/proc/{child}").exists()


def test_an_arm_that_fails_says_why():
    broken = Arm("W1", "broken", "gifair_ray.bench.here", "engine", {"data": {}})
    with pytest.raises(RunFailed, match="W1 broken ended with 1"):
        next(run([broken], 1))


def test_loops_by_hand_learn_what_the_engine_learns():
    """One full batch for everybody: no shuffling, so hand-written and engine agree to rounding."""
    import torch

    from gifair_ray.backend import build_learner
    from gifair_ray.bench.limits import Batched, Loop
    from gifair_ray.protocol import Message, TrainJob

    data = {"source": "synthetic", "clients": 3, "samples": 8, "features": 5, "classes": 3}
    data |= {"val": 0.0, "test": 0.0}
    work = {"epochs": 2, "batch_size": 8, "schedule": {"lr": 0.05}}
    scenario = parse({"data": data, "model": {"kind": "softmax"}, "work": work})
    federation, learner = build_learner(scenario)
    jobs = [TrainJob(k, k, 0, Message(0, 0.0, 0.0)) for k in range(3)]
    ours = learner.train(learner.initial(), jobs).models.reshape(3, 6, 3)
    threads = torch.get_num_threads()
    batched, loop = Batched(scenario, federation, 0), Loop(scenario, federation, 0)
    torch.set_num_threads(threads)
    stack = torch.empty(3, *batched.theta.shape)
    batched.train(batched.theta, [0, 1, 2], stack)
    np.testing.assert_allclose(stack[:, :6, :3].numpy(), ours, atol=1e-5)
    rows = torch.empty(3, 18)
    loop.train(torch.zeros(18), [0, 1, 2], rows)
    weights = np.concatenate([rows[:, :15].view(3, 3, 5).mT, rows[:, None, 15:]], axis=1)
    np.testing.assert_allclose(weights, ours, atol=1e-5)


# The command


def test_the_smallest_bench_writes_its_table_and_plot(tmp_path, capsys):
    out = tmp_path / "bench"
    assert main(["bench", "W4", "--small", "--repeat", "2", "-o", str(out)]) == 0
    told = capsys.readouterr()
    assert "W4: arrivals committed per second" in told.out
    assert "2/2.2 W4 no-op learner" in told.err
    with ipc.open_file(str(out / "bench.arrow")) as file:
        rows = file.read_all()
    assert rows.schema.equals(SCHEMA, check_metadata=True)
    assert rows["repetition"].to_pylist() == [0, 0, 1, 1]
    assert rows["turn"].to_pylist() == [0, 1, 0, 1]
    assert all(
        updates == 10 * n
        for updates, n in zip(rows["updates"].to_pylist(), rows["rounds"].to_pylist(), strict=True)
    )
    assert min(rows["peak_pss_bytes"].to_pylist()) > 10 << 20
    assert (out / "bench.png").stat().st_size > 1000
    assert main(["bench", "W4", "-o", str(out)]) == 2
    assert "choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["W9"], ["W4", "--repeat", "0"]])
def test_what_cannot_be_measured_is_refused(wrong, tmp_path, capsys):
    assert main(["bench", *wrong, "-o", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.nightly
def test_all_of_it_in_small(tmp_path):
    assert main(["bench", "--small", "--repeat", "1", "-o", str(tmp_path / "all"), "--quiet"]) == 0
    with ipc.open_file(str(tmp_path / "all" / "bench.arrow")) as file:
        assert set(file.read_all()["workload"].to_pylist()) == {*NAMES, "pool"}
