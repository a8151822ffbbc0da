"""Gated phases, whose tasks become runnable one by one, and hosts that change their size."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest

from slotwise.core.cluster import ANY_KIND, Cluster
from slotwise.core.codec import decode, encode
from slotwise.core.decisions import GiveUp, Launch, Locality, Preempt
from slotwise.core.errors import InputError
from slotwise.core.events import (
    Event,
    HostResized,
    JobArrived,
    JobCancelled,
    JobsClosed,
    OutputLost,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksBlocked,
    TasksDropped,
    TasksRunnable,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log
from slotwise.core.log_validation import LogValidator
from slotwise.core.loop import initial_state, turn
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

PHASE = PhaseId("j", "p")
JOB = Job("j", (Phase("p", Tasks(3), gated=True),))


def state_of(*events: Event, slots: int = 2) -> State:
    """A state after these events in one turn."""
    state = State(Cluster.of_slots(slots))
    state.at(0.0)
    for event in events:
        state.apply(event)
        state.check()
    return state


def launch(task: int, attempt: int = 1) -> Launch:
    """The launch of a task."""
    return Launch(PHASE, task, attempt, "cluster", Locality.NODE)


def test_tasks_are_offered_when_they_are_runnable() -> None:
    """None is at first; the lowest runnable task is launched first."""
    state = state_of(JobArrived(0.0, JOB))
    assert not state.phase(PHASE).is_ready
    state.apply(TasksRunnable(0.0, PHASE, (2,)))
    state.apply(TasksRunnable(0.0, PHASE, (1,)))
    assert state.phase(PHASE).is_ready
    assert state.phase(PHASE).next_task() == (1, 1)
    state.check()


def test_a_blocked_task_is_not_offered() -> None:
    """A runnable task is blocked again, and later released."""
    state = state_of(JobArrived(0.0, JOB), TasksRunnable(0.0, PHASE, (0,)))
    state.apply(TasksBlocked(0.0, PHASE, (0, 1)))
    assert not state.phase(PHASE).is_ready
    state.apply(TasksRunnable(0.0, PHASE, (0,)))
    assert state.phase(PHASE).next_task() == (0, 1)
    state.check()


def test_a_job_is_done_when_each_task_is_done_or_dropped() -> None:
    """One task runs, one is dropped while pending, one while blocked."""
    state = state_of(JobArrived(0.0, JOB), TasksRunnable(0.0, PHASE, (0, 1)))
    state.apply(launch(0))
    state.apply(TasksDropped(0.0, PHASE, (0, 1, 2)))
    assert not state.completed
    state.apply(TaskFinished(0.0, PHASE, 0, 1, 1.0))
    state.check()
    assert state.completed == {"j": 0.0}


def test_dropped_tasks_leave_no_work() -> None:
    """Two of three tasks of 5 s are dropped."""
    job = Job("j", (Phase("p", Tasks(3, 5.0), gated=True),))
    state = state_of(JobArrived(0.0, job), TasksDropped(0.0, PHASE, (0, 2)))
    assert state.phase(PHASE).work_left(0.0) == pytest.approx(5.0)


def test_lost_output_blocks_its_task() -> None:
    """It is runnable again when the backend says so, with the next attempt."""
    state = state_of(JobArrived(0.0, JOB), TasksRunnable(0.0, PHASE, (0,)))
    state.apply(launch(0))
    state.apply(TaskFinished(0.0, PHASE, 0, 1, 1.0))
    state.apply(OutputLost(0.0, PHASE, (0,)))
    state.check()
    assert not state.phase(PHASE).is_ready
    state.apply(TasksRunnable(0.0, PHASE, (0,)))
    assert state.phase(PHASE).next_task() == (0, 2)


def test_a_job_that_awaits_admission_is_not_offered_slots() -> None:
    """Its pool runs one job at once: the other begins with what became runnable meanwhile."""
    pools = [Pool("default", jobs_max=1)]
    state = State(Cluster.of_slots(2), pools)
    other = PhaseId("k", "p")
    for name in ("j", "k"):
        state.apply(JobArrived(0.0, Job(name, JOB.phases)))
        state.apply(TasksRunnable(0.0, PhaseId(name, "p"), (0, 1, 2)))
    state.check()
    assert not state.phase(other).is_ready
    state.apply(TasksDropped(0.0, PHASE, (0, 1, 2)))
    state.check()
    assert state.phase(other).is_ready


@pytest.mark.parametrize(
    "wrong", [{"after": "q"}, {"gang": True}, {"grows": True}, {"continues": "q"}]
)
def test_a_gated_phase_is_nothing_else(wrong: dict[str, object]) -> None:
    """Its tasks are blocked for one reason only."""
    with pytest.raises(InputError, match="is gated; leave out"):
        Phase("p", Tasks(3), gated=True, **wrong)  # type: ignore[arg-type]


def test_a_host_that_shrinks_keeps_what_runs() -> None:
    """Three slots are held of what becomes one: two ends leave no slot free, the third does."""
    state = state_of(JobArrived(0.0, JOB), TasksRunnable(0.0, PHASE, (0, 1, 2)), slots=3)
    for task in range(3):
        state.apply(launch(task))
    state.apply(HostResized(0.0, "cluster", {ANY_KIND: 1}))
    state.check()
    assert state.capacity(ANY_KIND) == 1
    for task, free in ((0, 0), (1, 0)):
        state.apply(TaskFinished(0.0, PHASE, task, 1, 1.0))
        state.check()
        assert sum(state.free(ANY_KIND).values()) == free
    state.apply(HostResized(0.0, "cluster", {ANY_KIND: 4}))
    state.check()
    assert dict(state.free(ANY_KIND)) == {"cluster": 3}


class Driver:
    """A backend whose random events change gated tasks; it knows what each task is."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.running: dict[tuple[PhaseId, int], int] = {}
        self.status: dict[tuple[PhaseId, int], str] = {}
        self.over: set[str] = set()
        self.arrived = 0

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Only runnable tasks of jobs that are not over are launched."""
        if isinstance(decision, Launch):
            key = (decision.phase, decision.task)
            assert self.status[key] == "runnable"
            assert decision.phase.job not in self.over
            self.running[key], self.status[key] = decision.attempt, "running"
        elif isinstance(decision, GiveUp):
            self.over.add(decision.job)
        else:
            assert decision.pool is None, "only tasks of jobs that were given up are stopped"

    def events(self) -> list[Event]:
        """What happens next."""
        self.now += self.random.choice((0.0, 0.1, 1.0))
        if not self.status or (self.arrived < 8 and self.random.random() < 0.1):
            return [self._job()]
        choose = self.random.random()
        if choose < 0.1:
            count = self.random.randint(1, 5)
            return [HostResized(self.now, "dask", {ANY_KIND: count})]
        if choose < 0.12:
            job = f"j{self.random.randrange(self.arrived)}"
            return [JobCancelled(self.now, job)]
        if choose < 0.6 and self.running:
            return self._end(*self.random.choice(sorted(self.running.items())))
        keys = sorted(key for key in self.status if key[0].job not in self.over)
        return self._change(self.random.choice(keys)) if keys else []

    def ends(self) -> list[Event]:
        """Everything ends: no task is needed any more."""
        found: list[Event] = []
        for key in sorted(self.running):
            found += self._finish(key)
        for phase, task in sorted(self.status):
            found.append(TasksDropped(self.now, phase, (task,)))
        return [*found, JobsClosed(self.now)]

    def _job(self) -> Event:
        name = f"j{self.arrived}"
        self.arrived += 1
        phases = []
        for number in range(self.random.randint(1, 3)):
            count = self.random.randint(1, 5)
            work = self.random.choice((None, 2.0, tuple(float(n) for n in range(count))))
            phases.append(Phase(f"p{number}", Tasks(count, work), gated=True))
            for task in range(count):
                self.status[PhaseId(name, f"p{number}"), task] = "blocked"
        pool = self.random.choice(("a", "b"))
        return JobArrived(self.now, Job(name, tuple(phases), arrival=self.now, pool=pool))

    def _finish(self, key: tuple[PhaseId, int]) -> list[Event]:
        phase, task = key
        attempt, self.status[key] = self.running.pop(key), "done"
        return [TaskFinished(self.now, phase, task, attempt, self.random.random())]

    def _end(self, key: tuple[PhaseId, int], attempt: int) -> list[Event]:
        phase, task = key
        choose = self.random.random()
        if choose < 0.6:
            return self._finish(key)
        del self.running[key]
        if choose < 0.8:
            self.status[key] = "dropped"
            end: Event = TaskKilled(self.now, phase, task, attempt)
            return [end, TasksDropped(self.now, phase, (task,))]
        self.status[key] = "blocked"
        end = TaskFailed(self.now, phase, task, attempt, "lost", lost=True)
        return [end, TasksBlocked(self.now, phase, (task,))]

    def _change(self, key: tuple[PhaseId, int]) -> list[Event]:
        phase, task = key
        status = self.status[key]
        if status == "blocked":
            if self.random.random() < 0.15:
                self.status[key] = "dropped"
                return [TasksDropped(self.now, phase, (task,))]
            self.status[key] = "runnable"
            return [TasksRunnable(self.now, phase, (task,))]
        if status == "runnable" and self.random.random() < 0.2:
            self.status[key] = "blocked"
            return [TasksBlocked(self.now, phase, (task,))]
        is_alive = any(self.status[k] not in ("done", "dropped") for k in self._of(phase.job))
        if status == "done" and is_alive and self.random.random() < 0.2:
            self.status[key] = "blocked"
            return [OutputLost(self.now, phase, (task,))]
        return []

    def _of(self, job: str) -> list[tuple[PhaseId, int]]:
        return [key for key in self.status if key[0].job == job]


@pytest.mark.parametrize("name", ["fifo", "fair", "flex", "uwfq", "flowflex"])
@pytest.mark.parametrize("seed", range(examples(1, slow=200)))
def test_random_gates(name: str, seed: int) -> None:
    """Only runnable tasks are launched, all jobs end, and the log is replayed and measured."""
    pools = (Pool("a", slots_min={ANY_KIND: 1}), Pool("b", slots_max={ANY_KIND: 2}, jobs_max=2))
    header = Header(
        "live",
        {"name": name, "assigner": "greedy", "epoch_seconds": 0.5, "waits": None},
        asdict(Objective()),
        Cluster.of_slots(3, "dask"),
        pools,
        None,
        10**9,
        10**9,
    )
    state, log = initial_state(header), Log(header)
    plausible, meter = LogValidator(header.cluster), MetricsCollector(header)
    scheduler = make_scheduler(name)
    driver = Driver(seed)

    def step(events: list[Event]) -> None:
        for event in events:
            assert decode(encode(event)) == event
        turn(scheduler, driver, state, log, events)
        state.check()
        for phases in state.jobs_left():
            for phase in phases:
                statuses = [driver.status[phase.id, n] for n in range(phase.phase.tasks.count)]
                assert phase.pending == statuses.count("runnable")
        if state.free(ANY_KIND):
            assert not any(phase.may_launch for phase in state.backlogged(ANY_KIND))

    for _ in range(150):
        step(driver.events())
    driver.now += 1.0
    step(driver.ends())
    assert state.is_done
    for one in log.turns:
        plausible.check_turn(one.now, one.events, one.decisions)
        meter(one.now, one.events, one.decisions)
    outcome = meter.outcome()
    assert outcome.is_over
    value = outcome.metrics["value"]
    assert value is None or outcome.bound <= value * (1 + 1e-9)
    assert replay_log(log).is_identical
