"""Hosts that are added, drained and removed, in the state."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Reallocate
from slotwise.core.events import (
    HostAdded,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
    JobArrived,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool
from slotwise.core.state import State

MAP = PhaseId("j", "map")


def launch(task: int, host: str, attempt: int = 1, phase: PhaseId = MAP) -> Launch:
    """An attempt of a task."""
    return Launch(phase, task, attempt, host, Locality.NODE)


def lost(task: int, attempt: int = 1, phase: PhaseId = MAP) -> TaskFailed:
    """The end of an attempt whose host was removed."""
    return TaskFailed(0.1, phase, task, attempt, "host h1 was removed", lost=True)


@pytest.fixture
def state() -> State:
    """Two slots on h1, where a map runs, and one on h2, at 0; five maps wait."""
    state = State(Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 1}))))
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (Phase("map", Tasks(6, 1.0)),))))
    state.apply(Reallocate({MAP: 3.0}, until=0.5))
    state.apply(launch(0, "h1"))
    state.at(0.1)
    return state


def names(state: State) -> list[str]:
    """The hosts that are there."""
    return list(state.cluster.by_name)


def test_the_slots_of_an_added_host_are_free(state: State) -> None:
    """They count as capacity, and the slots are allocated again."""
    state.apply(HostAdded(0.1, Host("h3", {"task": 3}, speed=2.0)))
    state.check()
    assert names(state) == ["h1", "h2", "h3"]
    assert state.capacity("task") == 6
    assert state.free("task") == {"h1": 1, "h2": 1, "h3": 3}
    assert state.freed("task") == ["h3"]
    assert state.is_stale
    assert state.queues.is_outdated


def test_a_drained_host_without_tasks_leaves_at_once(state: State) -> None:
    """The cluster that policies see no longer has it."""
    state.apply(HostDrained(0.1, "h2"))
    state.check()
    assert names(state) == ["h1"]
    assert state.capacity("task") == 2
    assert state.free("task") == {"h1": 1}
    assert state.lost == set()


def test_a_drained_host_leaves_when_its_last_task_has_ended(state: State) -> None:
    """Until then nothing begins there, and its slots are no capacity."""
    state.apply(HostDrained(0.1, "h1"))
    state.check()
    assert (names(state), state.lost, state.capacity("task")) == (["h1", "h2"], {"h1"}, 1)
    assert state.free("task") == {"h2": 1}
    state.apply(TaskFinished(0.1, MAP, 0, 1, 0.1))
    state.check()
    assert (names(state), state.lost, state.capacity("task")) == (["h2"], set(), 1)
    assert state.phase(MAP).done == 1


@pytest.mark.parametrize("is_reported_first", [True, False])
def test_tasks_of_a_removed_host_wait_for_another(
    state: State, is_reported_first: bool
) -> None:
    """Its attempts are lost, in whatever order that is reported in the turn."""
    events = [lost(0), HostRemoved(0.1, "h1")]
    for event in events if is_reported_first else reversed(events):
        state.apply(event)
    state.check()
    assert names(state) == ["h2"]
    phase = state.phase(MAP)
    assert (phase.running, phase.pending) == (0, 6)
    assert not state.doomed


def test_a_removed_host_may_come_back_as_another_one(state: State) -> None:
    """By its name it has other slots, another rack and another speed."""
    for event in lost(0), HostRemoved(0.1, "h1"):
        state.apply(event)
    again = Host("h1", {"task": 1}, "far", speed=0.5)
    state.apply(HostAdded(0.1, again))
    state.check()
    assert state.cluster.by_name["h1"] == again
    assert state.free("task") == {"h2": 1, "h1": 1}
    state.apply(launch(0, "h1", attempt=2))
    state.at(2.1)
    state.apply(TaskFinished(2.1, MAP, 0, 2, 2.0))
    assert state.phase(MAP).work_left(2.1) == 5.0, "two seconds at half speed are one of work"


def test_jobs_wait_while_there_are_no_hosts(state: State) -> None:
    """The kind of slots stays known, so that they run on the next host."""
    for event in lost(0), HostRemoved(0.1, "h1"), HostRemoved(0.1, "h2"):
        state.apply(event)
    state.check()
    assert state.cluster.hosts == ()
    assert state.cluster.capacity == {"task": 0}
    state.apply(JobArrived(0.1, Job("k", (Phase("map", Tasks(1, 1.0), "map"),))))
    state.check()
    state.apply(HostAdded(0.1, Host("h3", {"task": 1})))
    state.check()
    assert state.free("task") == {"h3": 1}
    assert [phase.id.job for phase in state.ready("task")] == ["j", "k"]


def test_what_is_told_of_a_host_that_has_left_has_no_effect(state: State) -> None:
    """A backend may not know that a drained host has left."""
    state.apply(HostDrained(0.1, "h2"))
    for event in HostLost(0.1, "h2"), HostJoined(0.1, "h2"), HostRemoved(0.1, "h2"):
        state.apply(event)
        state.check()
    assert names(state) == ["h1"]
    assert state.lost == set()


def test_a_drained_host_that_is_back_still_leaves(state: State) -> None:
    """Nothing begins there when it responds again."""
    for event in HostDrained(0.1, "h1"), HostLost(0.1, "h1"), HostJoined(0.1, "h1"):
        state.apply(event)
        state.check()
    assert state.free("task") == {"h2": 1}
    state.apply(TaskFinished(0.1, MAP, 0, 1, 0.1))
    assert names(state) == ["h2"]


def test_an_unresponsive_host_may_be_removed(state: State) -> None:
    """It is neither capacity nor unresponsive afterwards, and may come back as a new one."""
    for event in HostLost(0.1, "h1"), lost(0), HostRemoved(0.1, "h1"):
        state.apply(event)
        state.check()
    assert (state.lost, state.capacity("task")) == (set(), 1)
    state.apply(HostAdded(0.1, Host("h1", {"task": 1})))
    state.check()
    assert state.free("task") == {"h2": 1, "h1": 1}


def test_a_new_kind_of_slots_serves_the_jobs_that_arrive_later(state: State) -> None:
    """Phases keep the kind of slots that they had when their job arrived."""
    maps = (Phase("map", Tasks(1, 1.0), "map"),)
    state.apply(JobArrived(0.1, Job("before", maps)))
    state.apply(HostAdded(0.1, Host("h3", {"map": 1})))
    state.apply(JobArrived(0.1, Job("after", maps)))
    state.check()
    kinds = {p.id.job: k for k in state.cluster.capacity for p in state.ready(k)}
    assert kinds == {"j": "task", "before": "task", "after": "map"}


def test_a_limit_for_all_kinds_covers_a_new_kind() -> None:
    """A pool that holds its 2 slots of the only kind gets none of the new kind."""
    host = Host("h1", {"task": 2})
    state = State(Cluster((host,)), [Pool("p", slots_max=2)])
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (Phase("map", Tasks(2, 1.0)),), pool="p")))
    state.apply(Reallocate({MAP: 2.0}, until=0.5))
    state.apply(launch(0, "h1"))
    state.apply(launch(1, "h1"))
    state.apply(HostAdded(0.0, Host("h2", {"map": 1})))
    state.apply(JobArrived(0.0, Job("k", (Phase("map", Tasks(1, 1.0), "map"),), pool="p")))
    state.check()
    (phase,) = state.ready("map")
    assert not phase.may_launch
    state.at(1.0)
    state.apply(TaskFinished(1.0, MAP, 0, 1, 1.0))
    state.check()
    assert phase.may_launch


def test_tasks_find_their_input_on_a_host_that_joins_later() -> None:
    """Its rack counts, too, and is that which it has now."""
    state = State(Cluster((Host("h1", {"task": 1}, "a"),)))
    blocks = (Block(frozenset({"h1"})), Block(frozenset({"h2"})))
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (Phase("map", Tasks(2, 1.0, blocks)),))))
    phase = state.phase(MAP)
    assert phase.next_task_on(["h2"]) is None
    assert phase.locality(1, "h1") is Locality.ANY
    state.apply(HostAdded(0.0, Host("h2", {"task": 1}, "a")))
    assert phase.next_task_on(["h2"]) == (1, 1, "h2")
    assert phase.locality(1, "h1") is Locality.RACK
    state.apply(HostRemoved(0.0, "h2"))
    state.apply(HostAdded(0.0, Host("h2", {"task": 1}, "b")))
    assert phase.locality(1, "h1") is Locality.ANY
    assert phase.next_task_in("b") == (1, 1)
    assert phase.next_task_in("a") == (0, 1)


FIRST, SECOND = PhaseId("j", "first"), PhaseId("j", "second")


@pytest.fixture
def continued() -> State:
    """Two tasks of which the second phase continues each on its host; both run, on h1."""
    state = State(Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 1}))))
    phases = (Phase("first", Tasks(2, 1.0)), Phase("second", Tasks(2, 1.0), continues="first"))
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", phases)))
    state.apply(Reallocate({FIRST: 2.0}, until=0.5))
    for task in (0, 1):
        state.apply(launch(task, "h1", phase=FIRST))
    return state


REASON = {"j": "host h1 leaves, where a task of phase second must run"}


def test_a_job_fails_if_a_task_must_continue_on_a_host_that_leaves(continued: State) -> None:
    """The first half of it is done there."""
    continued.apply(TaskFinished(0.0, FIRST, 0, 1, 1.0))
    assert not continued.doomed
    continued.apply(HostDrained(0.0, "h1"))
    continued.check()
    assert continued.doomed == REASON


def test_a_job_fails_if_the_first_half_ends_on_a_host_that_leaves(continued: State) -> None:
    """Nothing else can begin there."""
    continued.apply(HostDrained(0.0, "h1"))
    assert not continued.doomed
    continued.apply(TaskFinished(0.0, FIRST, 0, 1, 1.0))
    continued.check()
    assert continued.doomed == REASON


def test_the_first_half_runs_again_elsewhere_if_its_host_is_removed(continued: State) -> None:
    """Nothing is lost but time."""
    for event in lost(0, 1, FIRST), lost(1, 1, FIRST), HostRemoved(0.0, "h1"):
        continued.apply(event)
    continued.check()
    assert not continued.doomed
    assert continued.phase(FIRST).pending == 2


def test_a_job_fails_if_the_second_half_is_lost_with_its_host(continued: State) -> None:
    """The output of the first half is gone."""
    continued.apply(TaskFinished(0.0, FIRST, 0, 1, 1.0))
    continued.apply(launch(0, "h1", phase=SECOND))
    for event in lost(0, 1, SECOND), lost(1, 1, FIRST), HostRemoved(0.0, "h1"):
        continued.apply(event)
    continued.check()
    assert continued.doomed == REASON
