"""What the gate says of itself, without Dask: pools, computations, and why these wait."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from slotwise.core.cluster import ANY_KIND
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event, HostResized, JobArrived, TaskFinished, TasksRunnable
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.loop import initial_state, turn
from slotwise.dask.options import HOST, GateOptions, header_of
from slotwise.dask.status import (
    MAX_ROWS,
    MAX_SAMPLES,
    GateHistory,
    GateStatus,
    GateView,
    PoolShare,
    status_of,
)
from slotwise.policy.scheduler import make_scheduler


class Story:
    """The state of a gate to which events happen, one turn each second."""

    def __init__(self, slots: int = 2, **options: Any) -> None:
        self.options = GateOptions.of_mapping(options)
        header = header_of(self.options)
        self.state = initial_state(header)
        self.history = GateHistory(self.options.objective)
        self.scheduler = make_scheduler(**header.scheduler, objective=self.options.objective)
        self.now = 0.0
        self.running: list[Launch] = []
        self.turn(HostResized(0.0, HOST, {ANY_KIND: slots}))

    def perform(self, decision: Decision) -> None:
        """A task begins."""
        assert isinstance(decision, Launch)
        self.running.append(decision)

    def turn(self, *events: Event) -> None:
        """Events happen, and the scheduler decides."""
        self.now += 1.0
        turn(self.scheduler, self, self.state, self.history, events)
        self.history.sample(self.state, self.now)

    def arrive(
        self, name: str, pool: str = "default", tasks: int = 4, runnable: int = 4
    ) -> None:
        """A computation comes; so many of its tasks are runnable."""
        job = Job(
            name,
            (Phase("inc", Tasks(tasks, 1.0), gated=True),),
            arrival=self.now + 1,
            pool=pool,
        )
        ready = TasksRunnable(self.now + 1, PhaseId(name, "inc"), tuple(range(runnable)))
        self.turn(JobArrived(self.now + 1, job), *([ready] if runnable else []))

    def finish(self, seconds: float) -> None:
        """All tasks that run end."""
        ended, self.running = self.running, []
        at = self.now + 1
        self.turn(*[TaskFinished(at, o.phase, o.task, o.attempt, seconds) for o in ended])

    def status(self, parked: Sequence[str] = ()) -> GateStatus:
        """What the gate says."""
        view = GateView(
            self.options, self.state, self.history, self.now, False, 0, lambda job: 0
        )
        return status_of(view, parked)

    def reasons(self, *parked: str) -> dict[str, tuple[int, str]]:
        """The slots of each computation, and why it has no more."""
        return {one.name: (one.running, one.reason) for one in self.status(parked).computations}


def test_the_shares_of_pools() -> None:
    """Guaranteed, entitled, used; a pool without computations is entitled to nothing."""
    pools = [{"name": "a", "slots_min": 3}, {"name": "b"}, {"name": "c", "slots_min": 1}]
    format_traceback = Story(slots=4, scheduler="fair", pools=pools)
    format_traceback.arrive("one", "b")
    format_traceback.arrive("other", "a")
    status = format_traceback.status()
    assert (status.slots, status.used) == (4, 4)
    assert status.pools == {
        "a": PoolShare(3, 3, 0),
        "b": PoolShare(0, 1, 4),
        "c": PoolShare(1, 0, 0),
    }


def test_why_computations_wait() -> None:
    """Each reason that a limit, the allocation or Dask gives."""
    pools = [{"name": "narrow", "slots_max": 1}, {"name": "few", "jobs_max": 1}]
    format_traceback = Story(slots=6, scheduler="fifo", pools=pools)
    format_traceback.arrive("capped", "narrow")
    format_traceback.arrive("first", "few", tasks=9, runnable=3)
    format_traceback.arrive("second", "few")
    format_traceback.arrive("early", tasks=5, runnable=0)
    format_traceback.arrive("bound", tasks=5, runnable=0)
    format_traceback.arrive("rest", tasks=9, runnable=9)
    format_traceback.arrive("later")
    assert format_traceback.reasons("bound") == {
        "capped": (1, "pool narrow holds its max share of 1"),
        "first": (3, ""),
        "second": (0, "pool few runs 1 computations, its jobs_max"),
        "early": (0, "none of its tasks is runnable yet"),
        "bound": (0, "its tasks may run only on certain workers, which have no room"),
        "rest": (2, "it holds what it is entitled to"),
        "later": (0, "fifo gives the slots to others now"),
    }
    format_traceback.turn(HostResized(format_traceback.now + 1, HOST, {ANY_KIND: 0}))
    assert format_traceback.reasons()["later"] == (0, "no worker accepts tasks now")


def test_min_shares_take_the_slots_of_others() -> None:
    """They are met as tasks end."""
    format_traceback = Story(
        slots=3, scheduler="fair", pools=[{"name": "sure", "slots_min": 3}]
    )
    format_traceback.arrive("early")
    format_traceback.arrive("promised", "sure")
    assert format_traceback.reasons() == {
        "early": (3, "the min shares of other pools take all slots: sure"),
        "promised": (0, "others still hold 3 of its slots; running tasks are not stopped"),
    }


def test_the_objective_and_its_lower_bound() -> None:
    """Two tasks of 1 s on two slots take 3 s; alone they would have taken 1 s."""
    format_traceback = Story(objective="response")
    format_traceback.arrive("a", tasks=2, runnable=2)
    format_traceback.turn()
    format_traceback.turn()
    format_traceback.finish(1.0)
    status = format_traceback.status()
    assert (status.completed, status.value, status.lower_bound) == (1, 3.0, 1.0)
    assert status.computations == ()


def test_a_maximum_below_zero() -> None:
    """The lateness of a job that is early is negative."""
    format_traceback = Story(objective={"penalty": "lateness", "aggregate": "max"})
    job = Job("a", (Phase("inc", Tasks(1, 1.0), gated=True),), arrival=2.0, deadline=9.0)
    format_traceback.turn(JobArrived(2.0, job), TasksRunnable(2.0, PhaseId("a", "inc"), (0,)))
    format_traceback.finish(0.5)
    status = format_traceback.status()
    assert (status.value, status.lower_bound) == (-6.0, -6.5)


def test_what_is_kept_is_bounded() -> None:
    """Samples, and computations in the list."""
    format_traceback = Story()
    for number in range(MAX_ROWS + 5):
        format_traceback.arrive(f"job-{number}")
    for _ in range(MAX_SAMPLES):
        format_traceback.turn()
    status = format_traceback.status()
    assert len(status.samples) == MAX_SAMPLES
    assert status.samples[-1].at == format_traceback.now
    assert len([one for one in status.computations if one.state == "waiting"]) == MAX_ROWS
    assert len(status.computations) + status.more == MAX_ROWS + 5


def test_a_status_can_be_sent_and_printed() -> None:
    """As JSON and back; as two tables."""
    format_traceback = Story(scheduler="fair", pools=[{"name": "reports", "slots_min": 1}])
    format_traceback.arrive("reports-1", "reports")
    status = format_traceback.status()
    assert GateStatus.of_plain(json.loads(json.dumps(status.to_plain()))) == status
    assert str(status).splitlines() == [
        "gate: at work; scheduler fair, objective sum of response",
        "slots: 2 of 2 used; 0 tasks are held",
        "completed: 0 computations, value 0, lower bound 0",
        "",
        "pool     guaranteed  entitled  used",
        "reports  1           2         2",
        "",
        "computation  pool     done  slots  reason",
        "reports-1    reports  0/4   2      it holds what it is entitled to",
    ]
