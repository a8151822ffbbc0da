"""What is kept is bounded by what is alive: after many jobs as much is left as after few."""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event, JobCancelled
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log_validation import LogValidator
from slotwise.core.loop import Record, run
from slotwise.core.pools import Pool, Preemption
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

CLUSTER = Cluster.of_slots(3)
POOLS = (Pool("a", preemption=Preemption(least_after=1.0)), Pool("b", slots_min={"task": 1}))


def jobs(count: int) -> list[Job]:
    """Jobs of two phases that come one after the other, in two pools."""
    return [
        Job(
            f"j{number}",
            (
                Phase("map", Tasks(4, (1.0, 2.0, 0.5, 1.0))),
                Phase("reduce", Tasks(1, 1.0), after=frozenset({"map"})),
            ),
            arrival=3.0 * number,
            pool="ab"[number % 2],
        )
        for number in range(count)
    ]


def fault(launch: Launch) -> Fault | None:
    """Each tenth job fails for good, and a task of each job fails once."""
    if launch.phase.job.endswith("7") or (launch.task, launch.attempt) == (1, 1):
        return Fault("it broke")
    return None


class Cancelling(SimulatedBackend):
    """Cancels each tenth job when it arrives."""

    def wait(self, until: float | None) -> Sequence[Event]:
        """Also the cancellations."""
        events = super().wait(until)
        return [
            *events,
            *(
                JobCancelled(self.now, event.job.id)
                for event in events
                if getattr(getattr(event, "job", None), "id", "").endswith("3")
            ),
        ]


def play(count: int, name: str, record: Callable[[State], Record]) -> State:
    """Run this number of jobs to their ends."""
    state = State(CLUSTER, POOLS, over_most=10)
    backend = Cancelling(CLUSTER, jobs(count), Simulation(fault=fault))
    run(make_scheduler(name), backend, state, record(state))
    return state


def size_of(root: object) -> int:
    """The number of entries in all containers that can be reached from an object."""
    seen, found, size = {id(root)}, [root], 0
    while found:
        one = found.pop()
        if isinstance(one, dict | list | tuple | set | frozenset | deque | array | bytearray):
            size += len(one)
        for other in gc.get_referents(one):
            if id(other) not in seen and not isinstance(
                other, type | ModuleType | FunctionType | BuiltinFunctionType
            ):
                seen.add(id(other))
                found.append(other)
    return size


@pytest.mark.parametrize("name", ["fair", "flex", "dmrs"])
def test_a_state_keeps_nothing_of_jobs_that_are_over(name: str) -> None:
    """They were done, have failed, or were cancelled."""
    few, many = (size_of(play(n, name, lambda _: lambda *_: None)) for n in (40, 160))
    assert many == few


def test_a_state_tells_how_jobs_ended_in_a_turn_only() -> None:
    """Whoever needs the ends of all jobs collects them."""
    known: list[set[str]] = []

    def watch(state: State) -> Record:
        def record(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
            known.append({*state.completed, *state.failed})

        return record

    play(20, "fair", watch)
    assert sorted(name for names in known for name in names) == sorted(
        job.id for job in jobs(20)
    )


def test_a_check_of_a_log_keeps_little_of_jobs_that_are_over() -> None:
    """It knows the last few of them, since late messages may refer to them."""

    def kept(count: int) -> int:
        plausible = LogValidator(CLUSTER, over_most=5)
        play(count, "fair", lambda _: plausible.check_turn)
        return size_of(plausible)

    assert kept(100) == kept(10)
