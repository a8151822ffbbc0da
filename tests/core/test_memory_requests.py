"""Memory that tasks request without stating it: learned in the run or before, and retries."""

from __future__ import annotations

import json
from math import ceil

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.codec import decode, encode, to_json
from slotwise.core.decisions import Launch, Locality, Reallocate
from slotwise.core.events import HostAdded, HostRemoved, JobArrived, TaskFailed, TaskFinished
from slotwise.core.job import Job, Observation, Phase, PhaseId, Tasks
from slotwise.core.rates import estimate_rates
from slotwise.core.resources import MEMORY
from slotwise.core.sizing import PADDING
from slotwise.core.state import State
from slotwise.policy.assignment.assigner import Greedy, with_resources

GIB = 1 << 30
JOB = PhaseId("j", "map")
AFTER_TEN = ceil(GIB * (1.02 + 0.1)) + PADDING
"""The estimate after ten tasks of 1 GiB."""


def host(name: str, memory: int, slots: int = 4) -> Host:
    """A host with this memory; 0 if it is not known."""
    return Host(name, {"task": slots}, resources={"memory": memory} if memory else {})


def state_of(*hosts: Host, memory: int | None = None, stated: int = 0) -> State:
    """A job of forty tasks, with an estimate of memory or a request, at time 0."""
    state = State(Cluster(hosts))
    state.at(0.0)
    arrive(state, "j", memory, stated)
    return state


def arrive(state: State, job: str, memory: int | None = None, stated: int = 0) -> None:
    """Another job of the program."""
    phase = Phase("map", Tasks(40, 1.0, memory=memory), resources={"memory": stated})
    state.apply(JobArrived(0.0, Job(job, (phase,), program="p")))
    state.apply(Reallocate({PhaseId(job, "map"): 4.0}, until=100.0))


def requested(state: State, job: str = "j") -> int:
    """The memory that the next task requests."""
    return state.phase(PhaseId(job, "map")).needs.get(MEMORY, 0)


def run(state: State, peak: int | None, failed: bool = False) -> Launch:
    """Launch the next task as the scheduler does, and let it end."""
    (launch,) = with_resources(state, Greedy().assign(state))
    assert isinstance(launch, Launch)
    state.apply(launch)
    state.check()
    of = launch.phase, launch.task, launch.attempt
    state.apply(
        TaskFailed(0.0, *of, "short of memory", lost=True, peak=peak)
        if failed
        else TaskFinished(0.0, *of, 1.0, peak)
    )
    state.check()
    return launch


def test_ten_tasks_teach_what_others_request() -> None:
    """Then each launch says what it got, and so many run at once as fit."""
    state = state_of(host("h", 3 * GIB))
    assert {run(state, GIB).memory for _ in range(10)} == {0}
    assert requested(state) == AFTER_TEN
    running = []
    while decisions := with_resources(state, Greedy().assign(state)):
        if not isinstance(decisions[0], Launch):
            break
        running.append(decisions[0])
        state.apply(decisions[0])
        state.check()
    assert [launch.memory for launch in running] == [AFTER_TEN, AFTER_TEN]
    for one in running:
        state.apply(TaskFinished(0.0, *(one.phase, one.task, one.attempt), 1.0, GIB))
        state.check()


def test_a_task_has_what_it_got_when_it_was_launched() -> None:
    """Nothing, or what was known then, whatever was learned since."""
    state = state_of(host("h", 8 * GIB))
    without = Launch(JOB, 38, 1, "h", Locality.ANY)
    state.apply(without)
    for _ in range(10):
        run(state, GIB)
    early = Launch(JOB, 39, 1, "h", Locality.ANY, memory=requested(state))
    state.apply(early)
    for _ in range(6):
        run(state, GIB)
    assert 0 < requested(state) < early.memory
    for one in (without, early):
        state.apply(TaskFinished(0.0, JOB, one.task, 1, 1.0, GIB))
        state.check()
    assert state.spare.free("h") == {"memory": 8 * GIB}


def test_a_later_job_of_the_program_knows() -> None:
    """From its first task on; one of another program does not."""
    state = state_of(host("h", 8 * GIB))
    for _ in range(10):
        run(state, GIB)
    arrive(state, "k")
    assert requested(state, "k") == AFTER_TEN
    state.apply(JobArrived(0.0, Job("other", (Phase("map", Tasks(1, 1.0)),), program="q")))
    assert requested(state, "other") == 0


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((host("h", 0),), 0),
        ((host("h", 8 * GIB), host("i", 0)), 0),
        ((host("h", 8 * GIB), host("i", 2 * GIB)), 3 * GIB),
        ((host("h", 2 * GIB), host("i", GIB)), 2 * GIB),
    ],
)
def test_no_more_is_requested_than_some_host_has(
    hosts: tuple[Host, ...], expected: int
) -> None:
    """And nothing where the memory of a host is not known, which could not be used then."""
    assert requested(state_of(*hosts, memory=3 * GIB)) == expected


def test_the_largest_host_may_change() -> None:
    """A request follows it, so that the tasks never wait for a host that has left."""
    state = state_of(host("h", 8 * GIB), host("i", 2 * GIB), memory=3 * GIB)
    state.apply(HostRemoved(0.0, "h"))
    assert requested(state) == 2 * GIB
    state.apply(HostAdded(0.0, host("h", 4 * GIB)))
    assert requested(state) == 3 * GIB
    state.check()


@pytest.mark.parametrize("stated", [0, GIB])
def test_an_attempt_that_lacked_memory_is_followed_by_one_with_more(stated: int) -> None:
    """Half more than it used, until the task is done; a stated request rises, too."""
    state = state_of(host("h", 8 * GIB), memory=GIB, stated=stated)
    failed = run(state, 2 * GIB, failed=True)
    assert requested(state) == 3 * GIB
    again = run(state, 2 * GIB + 1)
    assert (again.task, again.attempt, again.memory) == (failed.task, 2, 3 * GIB)
    assert requested(state) == GIB


@pytest.mark.parametrize("peak", [None, GIB // 2])
def test_other_failures_do_not_raise_the_request(peak: int | None) -> None:
    """As of a lost host, or of a task that did not use what it had got."""
    state = state_of(host("h", 8 * GIB), memory=GIB)
    run(state, peak, failed=True)
    assert requested(state) == GIB


def test_a_request_that_has_risen_changes_the_allocation() -> None:
    """As one that changes when a task ends."""
    state = state_of(host("h", 8 * GIB), memory=GIB)
    state.is_stale = False
    run(state, 2 * GIB, failed=True)
    assert state.is_stale


def test_tasks_that_run_on_given_hosts_request_what_one_of_these_has() -> None:
    """Although another host is larger."""
    state = State(Cluster((host("h", 8 * GIB), host("i", 2 * GIB))))
    state.at(0.0)
    phase = Phase("map", Tasks(4, 1.0, memory=3 * GIB), hosts={"i"})  # type: ignore[arg-type]
    state.apply(JobArrived(0.0, Job("j", (phase,))))
    assert requested(state) == 2 * GIB
    state.check()


def test_tasks_that_continue_others_request_what_each_host_has() -> None:
    """Since the task before may have run on the smallest one."""
    state = State(Cluster((host("h", 8 * GIB), host("i", 2 * GIB))))
    state.at(0.0)
    phases = (
        Phase("first", Tasks(4, 1.0)),
        Phase("map", Tasks(4, 1.0, memory=3 * GIB), continues="first"),
    )
    state.apply(JobArrived(0.0, Job("j", phases)))
    assert requested(state) == 2 * GIB
    state.check()


def test_other_jobs_of_the_program_request_by_the_sizes_of_their_inputs() -> None:
    """Also those that had arrived before; the neediest of their tasks counts."""
    state = State(Cluster((host("h", 64 * GIB),)))
    state.at(0.0)
    for job, sizes in {"j": tuple(range(1, 41)), "k": (2, 20), "l": 60}.items():
        phase = Phase("map", Tasks(40 if job == "j" else 2, 1.0, sizes=sizes))
        state.apply(JobArrived(0.0, Job(job, (phase,), program="p")))
    state.apply(Reallocate({JOB: 4.0}, until=100.0))
    for task in range(16):
        run(state, (task + 1) * GIB)
    of_k, of_l = requested(state, "k"), requested(state, "l")
    assert requested(state) == of_l > of_k > 20 * GIB  # Twice the largest peak at most.


def test_a_limit_is_never_raised() -> None:
    """The task gets the same again, although it used more."""
    state = State(Cluster((host("h", 8 * GIB),)))
    state.at(0.0)
    phase = Phase("map", Tasks(4, 1.0), resources={"memory": GIB})
    state.apply(JobArrived(0.0, Job("j", (phase,), memory_limit=True)))
    state.apply(Reallocate({JOB: 4.0}, until=100.0))
    run(state, 2 * GIB, failed=True)
    assert requested(state) == GIB


def test_what_is_stated_stays() -> None:
    """Whatever tasks use."""
    state = state_of(host("h", 8 * GIB), memory=GIB, stated=2 * GIB)
    assert {run(state, 100).memory for _ in range(20)} == {0}
    assert requested(state) == 2 * GIB


def test_a_history_estimates_the_memory_of_jobs() -> None:
    """By the largest of the tasks; not with fewer than ten peaks, nor for other phases."""
    seen = [Observation("p", "map", k * GIB, "h", 1.0, 1.0, k * GIB) for k in range(1, 41)]
    job = Job("j", tuple(Phase(name, Tasks(2, 1.0)) for name in ("map", "reduce")))
    sizes = {"map": (GIB, 30 * GIB), "reduce": 7}
    known = estimate_rates(seen).job(job, "p", sizes).by_name
    memory = known["map"].tasks.memory
    assert memory is not None
    assert 30 * GIB < memory < 35 * GIB
    assert known["reduce"].tasks.memory is None
    assert estimate_rates(seen[:9]).job(job, "p", sizes).by_name["map"].tasks.memory is None


def test_logs_have_learned_memory_only_where_there_is_some() -> None:
    """Of launches and of jobs."""
    launch = Launch(JOB, 1, 1, "h", Locality.ANY, memory=GIB)
    assert decode(encode(launch)) == launch
    assert f'"memory":{GIB}' in to_json(launch)
    for sizes in (None, 7, (7, 9)):
        tasks = Tasks(2, 1.0, memory=GIB, sizes=sizes)
        arrived = JobArrived(0.0, Job("j", (Phase("map", tasks),)))
        assert decode(json.loads(to_json(arrived))) == arrived
    for entry in (Launch(JOB, 1, 1, "h", Locality.ANY), JobArrived(0.0, Job("j", (PLAIN,)))):
        assert "memory" not in to_json(entry)


PLAIN = Phase("map", Tasks(2, 1.0))
