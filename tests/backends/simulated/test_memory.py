"""Memory in simulations: what tasks really use, apart from what they request."""

from __future__ import annotations

from math import ceil

import slotwise
from slotwise import Cluster, Fault, Host, Job, Phase, Simulation, Tasks, Workload
from slotwise.core.decisions import Launch
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished
from slotwise.core.sizing import PADDING
from slotwise.insight.replay import replay_log

GIB = 1 << 30


def simulated(*jobs: Job, memory: int = 8, **truth: object) -> slotwise.Result:
    """The jobs on one host of four slots with this many GiB; the log replays."""
    host = Host("h", {"task": 4}, resources={"memory": memory * GIB} if memory else {})
    workload = Workload(jobs, cluster=Cluster((host,)))
    result = slotwise.simulate(workload, "fifo", simulation=Simulation(**truth))
    assert replay_log(result.log).is_identical
    return result


def ends(result: slotwise.Result) -> list[tuple[float, str, int, float]]:
    """The ends of attempts: the instant, the kind, the task, and the peak in GiB."""
    return [
        (one.at, type(one).__name__, one.task, (one.peak or 0) / GIB)
        for turn in result.log.turns
        for one in turn.events
        if isinstance(one, TaskFailed | TaskFinished)
    ]


def reasons(result: slotwise.Result) -> list[tuple[str, bool]]:
    """Why attempts have failed, and whether they count as lost."""
    events = (event for turn in result.log.turns for event in turn.events)
    return [(one.reason, one.lost) for one in events if isinstance(one, TaskFailed)]


def got(result: slotwise.Result) -> list[int]:
    """The memory that each launch got beyond what its phase states."""
    decisions = (one for turn in result.log.turns for one in turn.decisions)
    return [one.memory for one in decisions if isinstance(one, Launch)]


def phase(tasks: Tasks, stated: int = 0, **more: object) -> Phase:
    """A phase whose tasks request so many GiB."""
    return Phase("p", tasks, resources={"memory": stated * GIB} if stated else {}, **more)  # type: ignore[arg-type]


def test_an_attempt_above_its_request_goes_on_while_the_host_has_room() -> None:
    """The peak is in the log, as that of a live run."""
    result = simulated(Job("j", (phase(Tasks(1, 3.0, peaks=8 * GIB), 1),)))
    assert ends(result) == [(3.0, "TaskFinished", 0, 8.0)]


def test_the_attempt_most_above_its_request_fails_where_the_host_is_short() -> None:
    """At its end, with what it could use; then it is tried again with half more."""
    tasks = Tasks(2, (3.0, 5.0), peaks=(3 * GIB, 6 * GIB))
    result = simulated(Job("j", (phase(tasks, 2),)))
    assert ends(result) == [
        (3.0, "TaskFinished", 0, 3.0),
        (5.0, "TaskFailed", 1, 5.0),
        (10.0, "TaskFinished", 1, 6.0),
    ]
    reason = "stopped because host h had no memory left: it used 5 GiB and had got 2 GiB"
    assert reasons(result) == [(reason, True)]
    assert got(result) == [0, 0, ceil(7.5 * GIB)]


def test_a_limit_fails_each_attempt_above_it() -> None:
    """Also where the host has room; it gets the same again."""
    tasks = Tasks(2, 1.0, peaks=[GIB, 3 * GIB])
    result = simulated(Job("j", (phase(tasks, 2),), memory_limit=True, attempts=2))
    assert reasons(result) == [("used 3 GiB, limit 2 GiB", False)] * 2
    assert result.failed == {"j": "used 3 GiB, limit 2 GiB"}


def test_peaks_teach_what_later_tasks_request() -> None:
    """By the rule of live runs, and schedulers get no peak before a task has ended."""
    result = simulated(Job("j", (phase(Tasks(20, 1.0, peaks=GIB)),)), memory=64)
    # Of four that run at once, twelve have ended when the next ones start.
    assert (
        got(result)
        == [0] * 12
        + [ceil(GIB * (1.02 + 1 / 10)) + PADDING] * 4
        + [ceil(GIB * (1.02 + 1 / 16)) + PADDING] * 4
    )
    (job,) = (
        one.job
        for turn in result.log.turns
        for one in turn.events
        if isinstance(one, JobArrived)
    )
    assert job.phases[0].tasks.peaks is None


def test_a_task_that_no_host_can_hold_fails_its_job() -> None:
    """After as many losses as a task may have."""
    result = simulated(Job("j", (phase(Tasks(1, 1.0, peaks=9 * GIB)),)))
    assert list(result.failed) == ["j"]


def test_a_host_that_states_no_memory_is_never_short() -> None:
    """Nothing is known of its room."""
    result = simulated(Job("j", (phase(Tasks(8, 1.0, peaks=100 * GIB)),)), memory=0)
    assert not reasons(result)


def test_a_fault_goes_before_the_end_of_memory() -> None:
    """Such an attempt has no peak, so that it raises no request."""
    first = Fault("broken")
    result = simulated(
        Job("j", (phase(Tasks(1, 4.0, peaks=8 * GIB), 1),)),
        fault=lambda launch: first if launch.attempt == 1 else None,
    )
    assert [end[:2] for end in ends(result)] == [(2.0, "TaskFailed"), (6.0, "TaskFinished")]
    assert got(result) == [0, 0]


def test_a_gang_is_broken_by_an_attempt_out_of_memory() -> None:
    """Its tasks are done again together, until the losses are too many."""
    gang = phase(Tasks(2, 1.0, peaks=(5 * GIB, 4 * GIB)), gang=True)
    result = simulated(Job("j", (gang,)))
    assert list(result.failed) == ["j"]


def test_jobs_of_a_program_learn_by_the_sizes_of_their_inputs() -> None:
    """Those that wait, too, each time that the number of ended tasks has doubled."""
    jobs = [
        Job(
            f"j{k}",
            (phase(Tasks(1, 1.0, peaks=(1 + k % 4) * GIB, sizes=1 + k % 4)),),
            program="program",
        )
        for k in range(40)
    ]
    result = simulated(*jobs, memory=64)
    last = [memory / GIB for memory in got(result)[-4:]]
    assert last == sorted(last)
    assert [k + 1 < memory < 1.2 * (k + 1) for k, memory in enumerate(last)] == [True] * 4
