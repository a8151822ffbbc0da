"""What the gate says of itself, without Dask: pools, computations, and why these wait."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from slotwise.dask.header import HOST, header_of
from slotwise.dask.history import SAMPLES_MOST, GateHistory, PoolShare
from slotwise.dask.options import GateOptions
from slotwise.dask.status import ROWS_MOST, GateStatus, GateView, status_of
from slotwise.model.cluster import ANY_KIND
from slotwise.model.decision import Decision, Launch
from slotwise.model.event import Event, HostResized, JobArrived, TaskFinished, TasksRunnable
from slotwise.model.job import Job, Phase, PhaseId, Tasks
from slotwise.runtime.initial import initial_state
from slotwise.runtime.loop import turn
from slotwise.scheduler import make_scheduler


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
        self.history.look(self.state, self.now)

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
    story = Story(slots=4, scheduler="fair", pools=pools)
    story.arrive("one", "b")
    story.arrive("other", "a")
    status = story.status()
    assert (status.slots, status.used) == (4, 4)
    assert status.pools == {
        "a": PoolShare(3, 3, 0),
        "b": PoolShare(0, 1, 4),
        "c": PoolShare(1, 0, 0),
    }


def test_why_computations_wait() -> None:
    """Each reason that a limit, the allocation or Dask gives."""
    pools = [{"name": "narrow", "slots_max": 1}, {"name": "few", "jobs_max": 1}]
    story = Story(slots=6, scheduler="fifo", pools=pools)
    story.arrive("capped", "narrow")
    story.arrive("first", "few", tasks=9, runnable=3)
    story.arrive("second", "few")
    story.arrive("early", tasks=5, runnable=0)
    story.arrive("bound", tasks=5, runnable=0)
    story.arrive("rest", tasks=9, runnable=9)
    story.arrive("later")
    assert story.reasons("bound") == {
        "capped": (1, "pool narrow holds its max share of 1"),
        "first": (3, ""),
        "second": (0, "pool few runs 1 computations, its jobs_max"),
        "early": (0, "none of its tasks is runnable yet"),
        "bound": (0, "its tasks may use certain workers only, and none of these has room"),
        "rest": (2, "it holds what it is entitled to"),
        "later": (0, "fifo gives the slots to others now"),
    }
    story.turn(HostResized(story.now + 1, HOST, {ANY_KIND: 0}))
    assert story.reasons()["later"] == (0, "no worker takes tasks now")


def test_min_shares_take_the_slots_of_others() -> None:
    """They are met as tasks end."""
    story = Story(slots=3, scheduler="fair", pools=[{"name": "sure", "slots_min": 3}])
    story.arrive("early")
    story.arrive("promised", "sure")
    assert story.reasons() == {
        "early": (3, "the min shares of other pools take all slots: sure"),
        "promised": (0, "others still hold 3 of its slots; running tasks are not stopped"),
    }


def test_the_objective_and_its_lower_bound() -> None:
    """Two tasks of 1 s on two slots take 3 s; alone they would have taken 1 s."""
    story = Story(objective="response")
    story.arrive("a", tasks=2, runnable=2)
    story.turn()
    story.turn()
    story.finish(1.0)
    status = story.status()
    assert (status.completed, status.value, status.lower_bound) == (1, 3.0, 1.0)
    assert status.computations == ()


def test_a_maximum_below_zero() -> None:
    """The lateness of a job that is early is negative."""
    story = Story(objective={"penalty": "lateness", "aggregate": "max"})
    job = Job("a", (Phase("inc", Tasks(1, 1.0), gated=True),), arrival=2.0, deadline=9.0)
    story.turn(JobArrived(2.0, job), TasksRunnable(2.0, PhaseId("a", "inc"), (0,)))
    story.finish(0.5)
    status = story.status()
    assert (status.value, status.lower_bound) == (-6.0, -6.5)


def test_what_is_kept_is_bounded() -> None:
    """Samples, and computations in the list."""
    story = Story()
    for number in range(ROWS_MOST + 5):
        story.arrive(f"job-{number}")
    for _ in range(SAMPLES_MOST):
        story.turn()
    status = story.status()
    assert len(status.samples) == SAMPLES_MOST
    assert status.samples[-1].at == story.now
    assert len([one for one in status.computations if one.state == "waiting"]) == ROWS_MOST
    assert len(status.computations) + status.more == ROWS_MOST + 5


def test_a_status_can_be_sent_and_printed() -> None:
    """As JSON and back; as two tables."""
    story = Story(scheduler="fair", pools=[{"name": "reports", "slots_min": 1}])
    story.arrive("reports-1", "reports")
    status = story.status()
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
