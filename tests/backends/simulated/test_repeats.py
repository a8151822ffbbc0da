"""Repeated launches: the second one is dropped, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.simulated.test_outages import (
    MAP,
    backend_of,
    cluster,
    finished,
    launch,
    until_quiet,
)
from slotwise import simulate
from slotwise.backends.simulated.simulation import Fault, Outage, Simulation
from slotwise.core.decisions import Preempt
from slotwise.core.errors import InputError
from slotwise.core.events import (
    Event,
    HostJoined,
    HostLost,
    LaunchDropped,
    TaskFailed,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, Tasks
from slotwise.workload.workload import Workload
from tiers import examples


def dropped(at: float, task: int, reason: str, attempt: int = 1) -> LaunchDropped:
    """A launch on h1 that had come before."""
    return LaunchDropped(at, MAP, task, attempt, "h1", reason)


@pytest.mark.parametrize(
    ("after", "events"),
    [
        (0.0, [dropped(0.0, 0, "runs already"), finished(4.0, 0)]),
        (1.5, [dropped(1.5, 0, "runs already"), finished(4.0, 0)]),
        (9.0, [finished(4.0, 0), dropped(9.0, 0, "is done")]),
    ],
)
def test_a_repeated_launch_is_dropped(after: float, events: list[Event]) -> None:
    """While it runs, and when it is done."""
    backend = backend_of(repeats=lambda _: after)
    backend.perform(launch(0))
    assert until_quiet(backend) == events


def test_a_repeated_launch_of_a_killed_or_failed_attempt_is_dropped() -> None:
    """One was killed and begun again, one was killed, one failed."""
    faults = {2: Fault("it broke", 0.25)}
    backend = backend_of(repeats=lambda _: 2.0, fault=lambda launch: faults.get(launch.task))
    for task in range(3):
        backend.perform(launch(task))
    backend.perform(Preempt(MAP, 0, 1, "h1"))
    backend.perform(Preempt(MAP, 1, 1, "h1"))
    assert backend.wait(None) == [TaskKilled(0.0, MAP, 0, 1), TaskKilled(0.0, MAP, 1, 1)]
    backend.perform(launch(0, "h1", attempt=2))
    assert until_quiet(backend) == [
        TaskFailed(1.0, MAP, 2, 1, "it broke"),
        dropped(2.0, 0, "was taken back"),
        dropped(2.0, 1, "was taken back"),
        dropped(2.0, 2, "has failed"),
        dropped(2.0, 0, "runs already", attempt=2),
        finished(4.0, 0, attempt=2),
    ]


def test_performing_a_launch_twice_does_no_harm() -> None:
    """Nor a third time, when it is done, nor an older attempt, in any simulation."""
    backend = backend_of()
    backend.perform(launch(0))
    backend.perform(launch(0))
    assert backend.wait(None) == [dropped(0.0, 0, "runs already")]
    assert backend.wait(None) == [finished(4.0, 0)]
    backend.perform(launch(0))
    backend.perform(launch(1, attempt=1))
    backend.perform(Preempt(MAP, 1, 1, "h1"))
    assert backend.wait(None) == [dropped(4.0, 0, "is done"), TaskKilled(4.0, MAP, 1, 1)]
    backend.perform(launch(1, attempt=2))
    backend.perform(launch(1, attempt=1))
    assert until_quiet(backend) == [
        dropped(4.0, 1, "was taken back"),
        finished(8.0, 1, attempt=2),
    ]
    backend.perform(launch(1, attempt=2))
    assert backend.wait(None) == [dropped(1000.0, 1, "is done", attempt=2)]


def test_a_repeated_launch_waits_for_the_host_and_for_its_report() -> None:
    """Launched twice while the host is cut off: it begins once, when the host is back."""
    backend = backend_of(Outage("h1", 0.5, 2), heartbeat=2.0, repeats=lambda _: 0.25)
    assert backend.wait(1.0) == ()
    backend.perform(launch(0))
    assert until_quiet(backend) == [
        HostLost(2.0, "h1"),
        HostJoined(4.0, "h1"),
        dropped(4.0, 0, "runs already"),
        finished(8.0, 0),
    ]


def test_a_repeat_needs_a_time() -> None:
    """It may not come before the launch."""
    backend = backend_of(repeats=lambda _: -1.0)
    with pytest.raises(InputError, match=r"repeats returns -1.0 .*; expected seconds >= 0"):
        backend.perform(launch(0))


@pytest.mark.parametrize("heartbeat", [0.0, 0.7])
@pytest.mark.parametrize("name", ["fifo", "fair", "flex", "flowflex", "dmrs"])
@pytest.mark.sampled(3)
def test_repeated_launches_add_only_their_reports(
    name: str, heartbeat: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turn by turn, without the launches that were dropped, the log is the same."""
    seconds = examples(1, slow=50) * 1e-4
    monkeypatch.setattr("slotwise.policy.flowflex.allocator.BUDGET_SECONDS", seconds)
    jobs = tuple(
        Job(
            f"j{number}",
            (
                Phase("map", Tasks(5, 1.0 + number)),
                Phase("reduce", Tasks(2, 2.0), after=frozenset({"map"})),
            ),
            arrival=number / 3,
        )
        for number in range(examples(3, slow=6))
    )
    truth = Simulation(
        seed=1,
        noise=0.5,
        fault=lambda one: Fault("no") if one.task == 3 > one.attempt else None,
    )
    again = replace(truth, repeats=lambda one: 0.37 * (1 + one.task))
    workload = Workload(jobs, cluster(heartbeat))
    plain = simulate(workload, name, simulation=truth).log.turns
    repeated = simulate(workload, name, simulation=again).log.turns
    told = [event for turn in repeated for event in turn.events]
    assert sum(isinstance(event, LaunchDropped) for event in told) > 5 * len(jobs)
    stripped = [
        replace(turn, events=tuple(e for e in turn.events if not isinstance(e, LaunchDropped)))
        for turn in repeated
    ]
    expected = [(turn.now, list(turn.events), list(turn.decisions)) for turn in plain]
    found = [(turn.now, list(turn.events), list(turn.decisions)) for turn in stripped]
    assert [turn for turn in found if turn[1] or turn[2]] == expected
