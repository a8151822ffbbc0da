"""Jobs that wait for others: when they begin, what they hold meanwhile, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conftest import CheckedState
from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.codec import decode_job, encode_job
from slotwise.core.dependencies import check_dependencies, check_elements, in_order
from slotwise.core.errors import InputError
from slotwise.core.events import JobCancelled, JobChanged, Request
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.pools import Pool
from slotwise.policy.scheduler import make_scheduler


def job(name: str, *after: str, tasks: int = 1, work: float = 1.0, **about: Any) -> Job:
    """A job of equal tasks in one phase."""
    return Job(name, (Phase("p", Tasks(tasks, work)),), after=frozenset(after), **about)


def played(
    jobs: Sequence[Job],
    slots: int = 2,
    pools: Sequence[Pool] = (),
    requests: Sequence[Request] = (),
    failing: str = "",
    name: str = "fifo",
) -> CheckedState:
    """The state after a run in which the job `failing` fails."""
    cluster = Cluster.of_slots(slots)
    state = CheckedState(cluster, pools)
    truth = Simulation(fault=lambda one: Fault("no") if one.phase.job == failing else None)
    backend = SimulatedBackend(cluster, jobs, truth, requests)
    run(make_scheduler(name), backend, state, lambda *turn: None)
    return state


@pytest.mark.parametrize("name", ["fifo", "fair", "flex", "flowflex", "dmrs", "las", "uwfq"])
def test_a_diamond_runs_from_top_to_bottom(name: str) -> None:
    """Two jobs run beside each other when the first is done, the last after both."""
    jobs = [job("d", "b", "c"), job("c", "a"), job("b", "a"), job("a")]
    assert played(jobs, name=name).completed == {"a": 1.0, "b": 2.0, "c": 2.0, "d": 3.0}


def test_a_job_waits_for_one_that_arrives_later_and_for_one_that_is_over() -> None:
    """`early` is there 5 s before the job that it waits for, `late` 5 s after its end."""
    jobs = [job("early", "a"), job("a", arrival=5.0), job("late", "a", arrival=11.0)]
    assert played(jobs).completed == {"a": 6.0, "early": 7.0, "late": 12.0}


def test_what_waits_takes_no_place_in_its_pool() -> None:
    """One job runs at a time; `c` begins at once, although `b` arrived before it."""
    jobs = [job("b", "a", pool="x"), job("c", pool="x"), job("a", work=3.0)]
    state = played(jobs, pools=(Pool("x", jobs_max=1),))
    assert state.completed == {"c": 1.0, "a": 3.0, "b": 4.0}


def test_a_job_whose_predecessor_failed_is_cancelled_or_runs() -> None:
    """The reason names the job; what waits for a cancelled job is cancelled, too."""
    jobs = [job("a"), job("b", "a"), job("c", "b"), job("d", "a", after_failed="run")]
    late = job("late", "a", arrival=9.0)
    state = played([*jobs, late], failing="a")
    assert state.failed == {
        "a": "no",
        "b": "job 'a', for which it waits, has failed",
        "c": "job 'b', for which it waits, has failed",
        "late": "job 'a', for which it waits, has failed",
    }
    assert state.completed.keys() == {"d"}


def test_a_waiting_job_is_cancelled_and_changed() -> None:
    """`b` never runs; `c` moves to the pool in which only one job runs."""
    jobs = [job("a", work=4.0), job("b", "a"), job("c", "a"), job("d", pool="x", work=9.0)]
    requests = [JobCancelled(1.0, "b"), JobChanged(2.0, "c", "normal", 1.0, "x", None)]
    state = played(jobs, pools=(Pool("x", jobs_max=1),), requests=requests)
    assert state.failed == {"b": "cancelled"}
    assert state.completed == {"a": 4.0, "d": 9.0, "c": 10.0}


def test_an_array_follows_another_task_by_task() -> None:
    """On two slots: tasks 0 and 1 of the first, then 2 and 3, between those of the second."""
    first = job("first", tasks=4)
    second = job("second", tasks=4, after_each="first", priority="high")
    assert played([first, second]).completed == {"first": 3.0, "second": 4.0}


def test_an_array_waits_for_each_of_several_arrays() -> None:
    """Its task 0 can begin when both tasks 0 are done, after 2 s."""
    jobs = [
        job("a", tasks=2),
        job("b", tasks=2, work=2.0),
        job("c", tasks=2, after_each=["a", "b"]),
    ]
    assert played(jobs, slots=8).completed == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_an_array_whose_predecessor_fails_is_cancelled_or_runs_at_once() -> None:
    """Also after some of its tasks have begun."""
    jobs = [
        job("a", tasks=2),
        job("b", tasks=2, after_each="a"),
        job("c", tasks=2, after_each="a", after_failed="run"),
    ]
    state = played(jobs, slots=1, failing="a")
    assert state.failed.keys() == {"a", "b"}
    assert state.completed.keys() == {"c"}


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (
            [job("a", "b")],
            "job 'a' waits for job 'b', which does not exist; there are no other jobs",
        ),
        (
            [job("a", "z"), job("b"), job("c")],
            "job 'a' waits for job 'z', which does not exist; known jobs: b, c",
        ),
        (
            [job("train", "extrct"), job("extract")],
            "job 'train' waits for job 'extrct', which does not exist; did you mean 'extract'?",
        ),
        (
            [job("a", "c"), job("b", "a"), job("c", "b")],
            "jobs 'a', 'b', 'c' wait for each other in a circle; remove one `after`",
        ),
    ],
)
def test_unknown_jobs_and_circles_are_refused(jobs: list[Job], message: str) -> None:
    """The message names the jobs."""
    with pytest.raises(InputError) as refused:
        check_dependencies(jobs)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"after": ["a"]}, "job 'a' waits for itself; remove it from `after`"),
        ({"after": 3}, "job 'a': after is 3; give a list of names"),
        ({"after_failed": "stop"}, "job 'a': after_failed is 'stop'; expected 'cancel' or"),
        ({"after": "b", "after_each": "b"}, "job 'a': after and after_each both name 'b'"),
    ],
)
def test_bad_values_are_refused(about: dict[str, Any], message: str) -> None:
    """With the job and the value."""
    with pytest.raises(InputError) as refused:
        Job("a", (Phase("p", Tasks(1)),), **about)
    assert str(refused.value).startswith(message)


def test_arrays_of_other_sizes_do_not_follow_each_other() -> None:
    """Nor does an array follow a job of several phases."""
    two = Job("two", (Phase("p", Tasks(3)), Phase("q", Tasks(3))))
    for other, message in ((job("b", tasks=2), "has 3 tasks"), (two, "not one array")):
        follower = job("a", tasks=3, after_each=other.id)
        with pytest.raises(InputError, match=message):
            check_elements([follower], {other.id: other})


def test_jobs_are_ordered_by_what_they_wait_for() -> None:
    """Otherwise they keep their order; of a long chain, too."""
    jobs = [job("d", "b", "c"), job("x"), job("c", "a"), job("b", "a"), job("a")]
    assert [one.id for one in in_order(jobs)] == ["a", "b", "c", "d", "x"]
    chain = [job(f"{number}", f"{number - 1}") for number in range(5000, 0, -1)]
    assert [one.id for one in in_order(chain)] == [f"{number}" for number in range(1, 5001)]


def test_logs_have_what_jobs_wait_for() -> None:
    """A job that waits for none is written as before."""
    one = job("a", "b", "c", after_failed="run")
    assert decode_job(encode_job(one)) == one
    assert not {"after", "after_each", "after_failed"} & encode_job(job("a")).keys()
