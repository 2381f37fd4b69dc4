"""Jobs and replies in columns are the jobs and replies, one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gifair_ray.protocol import Message, TrainJob, TrainJobs
from gifair_ray.replies import COPIED, Evaluated, Replies, Results, Stack, Trained


@st.composite
def jobs(draw):
    """Jobs of one version, whose numbers ascend."""
    n = draw(st.integers(1, 6))
    first = draw(st.integers(0, 100))
    made = []
    for i in range(n):
        message = Message(3, draw(st.floats(0, 9)), draw(st.floats(-1, 1)))
        own = np.full(2, float(i)) if draw(st.booleans()) else None
        steps = draw(st.none() | st.integers(1, 9))
        made.append(
            TrainJob(first + 2 * i, draw(st.integers(0, 50)), draw(st.integers(0, 9)), message,
                     steps, own)
        )  # fmt: skip
    return made


@given(jobs(), st.data())
def test_columns_are_the_jobs_one_by_one(made, data):
    columns = TrainJobs.of(made)
    assert TrainJobs.of(columns) is columns
    assert list(columns) == made
    assert [columns.job(job.id) for job in made] == made
    assert list(columns[1:]) == made[1:]
    places = data.draw(st.lists(st.integers(0, len(made) - 1), min_size=1))
    assert list(columns.take(np.array(places))) == [made[i] for i in places]
    cut = data.draw(st.integers(0, len(made)))
    parts = [TrainJobs.of(part) for part in (made[:cut], made[cut:]) if part]
    assert list(TrainJobs.joined(parts)) == made


def stacks(cuts, size):
    """Replies of jobs 0, 2, 4, … in stacks; the reply of job 2k has k in all its values."""
    found = {}
    for start, stop in zip([0, *cuts], [*cuts, 7], strict=True):
        if start == stop:
            continue
        k = np.arange(start, stop, dtype=np.float64)
        models = np.repeat(k[:, None], size, axis=1).astype(np.float32)
        stack = Stack(2 * np.arange(start, stop), Trained(models, k, -k, models + 100))
        found |= dict.fromkeys(stack.jobs.tolist(), stack)
    return found


@pytest.mark.parametrize("size", [3, COPIED // 4])  # put together, and left where they are
@pytest.mark.parametrize("cuts", [(), (3,), (1, 5)])
@pytest.mark.parametrize("wanted", [range(7), (4, 0, 6), (2,), ()])
def test_replies_of_any_jobs_in_any_order(size, cuts, wanted):
    results = Results(stacks(cuts, size))
    replies = results.replies(2 * np.array(wanted, dtype=np.int64))
    assert len(replies) == len(wanted)
    assert [model[0] for model in replies.models] == list(wanted)
    assert replies.loss_local.tolist() == list(wanted)
    assert replies.loss_received.tolist() == [-k for k in wanted]
    assert [model[-1] for model in replies.kept] == [k + 100 for k in wanted]
    for k in wanted:
        one = results[2 * k]
        assert (one.model[0], one.loss_local, one.loss_received) == (k, k, -k)
        assert one.kept[0] == k + 100


def test_a_client_without_a_model_of_its_own_keeps_its_local_one():
    models = np.eye(2)
    stack = Stack(np.array([0, 1]), Trained(models, np.zeros(2), np.zeros(2)))
    results = Results({0: stack, 1: stack, 9: Evaluated(np.zeros(1), np.zeros(1, dtype=np.int64))})
    replies = results.replies(np.array([1, 0]))
    assert [model.tolist() for model in replies.kept] == [[0.0, 1.0], [1.0, 0.0]]
    assert Replies.of([results[0]]).kept[0].tolist() == [1.0, 0.0]
    assert isinstance(results[9], Evaluated)
    assert sorted(results) == [0, 1, 9]
