"""Hosts that become unresponsive and come back, and dropped launches, in the state."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Enqueue, Launch, Locality, Reallocate
from slotwise.core.events import (
    HostJoined,
    HostLost,
    JobArrived,
    LaunchDropped,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.state import State

MAP = PhaseId("j", "map")


def launch(task: int, host: str, attempt: int = 1) -> Launch:
    """An attempt of a map."""
    return Launch(MAP, task, attempt, host, Locality.NODE)


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


def summary(state: State) -> tuple[object, ...]:
    """The view of policies."""
    phases = [(p.id, p.pending, p.running, p.done) for p in state.ready("task")]
    free, lost = dict(state.free("task")), set(state.lost)
    return phases, free, lost, state.has_changed, state.is_stale, state.queues.is_outdated


def test_no_slot_of_an_unresponsive_host_is_free(state: State) -> None:
    """Its free slot is set aside until it is back; its held slot stays held."""
    state.apply(HostLost(0.1, "h1"))
    state.check()
    assert state.free("task") == {"h2": 1}
    assert state.lost == {"h1"}
    (phase,) = state.ready("task")
    assert (phase.running, phase.pending) == (1, 5)
    state.at(0.2)
    state.apply(HostJoined(0.2, "h1"))
    state.check()
    assert state.free("task") == {"h1": 1, "h2": 1}
    assert state.freed("task") == ["h1"]
    assert state.lost == set()


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_nothing_can_be_launched_on_an_unresponsive_host(state: State, host: str) -> None:
    """That would be a bug of a scheduler."""
    state.apply(HostLost(0.1, host))
    with pytest.raises(KeyError, match=host):
        state.apply(launch(1, host))


@pytest.mark.parametrize(
    "end",
    [
        TaskFinished(0.3, MAP, 0, 1, 0.2),
        TaskFailed(0.3, MAP, 0, 1, "silent for too long", lost=True),
        TaskKilled(0.3, MAP, 0, 1),
    ],
)
def test_a_slot_freed_on_an_unresponsive_host_is_not_used(
    state: State, end: TaskFinished | TaskFailed | TaskKilled
) -> None:
    """However the attempt ended."""
    state.apply(HostLost(0.1, "h1"))
    state.at(0.3)
    state.apply(end)
    state.check()
    assert state.free("task") == {"h2": 1}
    assert state.freed("task") == []
    state.apply(HostJoined(0.3, "h1"))
    state.check()
    assert state.free("task") == {"h1": 2, "h2": 1}
    assert state.freed("task") == ["h1"]


def test_a_host_that_comes_back_full_has_nothing_free(state: State) -> None:
    """Both of its slots are held."""
    state.apply(launch(1, "h1"))
    state.apply(HostLost(0.1, "h1"))
    state.apply(HostJoined(0.1, "h1"))
    state.check()
    assert state.free("task") == {"h2": 1}
    assert state.freed("task") == []


def test_a_lost_task_runs_again_and_its_old_attempt_is_ignored(state: State) -> None:
    """The second attempt runs on h2; later events of the first one have no effect."""
    state.apply(HostLost(0.1, "h1"))
    state.apply(TaskFailed(0.1, MAP, 0, 1, "silent for too long", lost=True))
    (phase,) = state.ready("task")
    assert phase.next_task() == (0, 2)
    state.apply(launch(0, "h2", attempt=2))
    before = summary(state)
    state.apply(TaskFinished(0.1, MAP, 0, 1, 0.1))
    state.check()
    assert summary(state) == before
    state.apply(TaskFinished(0.1, MAP, 0, 2, 0.1))
    state.check()
    assert phase.done == 1


def test_all_hosts_may_be_unresponsive_at_once(state: State) -> None:
    """Then nothing is free, and when one is back, something is."""
    state.apply(HostLost(0.1, "h2"))
    state.apply(HostLost(0.1, "h1"))
    state.check()
    assert state.free("task") == {}
    state.apply(HostJoined(0.1, "h2"))
    state.check()
    assert state.free("task") == {"h2": 1}


def test_a_dropped_launch_changes_nothing(state: State) -> None:
    """Not even `has_changed` is set: nothing has to be decided again."""
    state.apply(Reallocate({MAP: 3.0}, until=0.5))
    assert not state.has_changed
    before = summary(state)
    state.apply(LaunchDropped(0.1, MAP, 0, 1, "h1", "runs already"))
    state.check()
    assert summary(state) == before
    assert state.next_wakeup() is None


def test_queues_become_outdated_when_hosts_come_and_go(state: State) -> None:
    """Tasks that wait for an unresponsive host must be planned elsewhere."""
    for event in (HostLost(0.1, "h2"), HostJoined(0.1, "h2")):
        state.apply(Enqueue({"h1": ((MAP, 1),), "h2": ((MAP, 2),)}))
        assert not state.queues.is_outdated
        state.apply(event)
        assert state.queues.is_outdated
        assert list(state.queues.by_host["h2"]) == [(MAP, 2)]
