"""What a step of training frees is kept for the next step; the search for garbage is rare."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from gifair_ray.memory import COLLECTED, rare_collections

STEPS = """
import resource, sys
import numpy as np
from gifair_ray.memory import keep_freed

if sys.argv[1] == "kept":
    keep_freed()
def step():
    pieces = [np.ones(2 << 20) for _ in range(4)]  # of 16 MB
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how, **environment):
    """Pages that five steps had to get from the system."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", STEPS, how]
    return int(subprocess.check_output(command, env=told | environment))


@pytest.mark.skipif(sys.platform != "linux", reason="of the GNU C library")
def test_a_step_uses_the_memory_of_the_last_one():
    assert 10 * pages("kept") < pages("given back")


@pytest.mark.skipif(sys.platform != "linux", reason="of the GNU C library")
def test_what_the_user_tells_the_c_library_holds():
    assert 10 * pages("kept") < pages("kept", MALLOC_MMAP_THRESHOLD_="1000000")


def test_runs_that_overlap_leave_the_search_for_garbage_as_it_was():
    usual = gc.get_threshold()
    try:
        gc.set_threshold(600, 9, 8)
        rare_collections.__enter__()
        rare_collections.__enter__()  # another thread's run begins
        assert gc.get_threshold() == (COLLECTED, 9, 8)
        rare_collections.__exit__(None, None, None)  # the first one ends before the second
        assert gc.get_threshold() == (COLLECTED, 9, 8)
        rare_collections.__exit__(None, None, None)
        assert gc.get_threshold() == (600, 9, 8)
    finally:
        gc.set_threshold(*usual)


def test_a_search_for_garbage_that_is_off_stays_off():
    usual = gc.get_threshold()
    try:
        gc.set_threshold(0)
        with rare_collections:
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*usual)
