"""Input locations of a phase: however they are given, the same tasks go to the same hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event, JobArrived, TaskFailed
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.loop import run
from slotwise.core.placement import place_blocks
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

CLUSTER = Cluster(tuple(Host(f"h{n}", {"task": 2}, f"r{n % 3}") for n in range(12)))
"""Neighbours in the list of hosts are in different racks."""


def third_fails(launch: Launch) -> Fault | None:
    """Every third task fails once, so that tasks come back."""
    return Fault("once") if launch.task % 3 == 2 and launch.attempt == 1 else None


def decisions(jobs: Sequence[Job], assigner: str) -> list[Decision]:
    """All decisions of a simulated run of these jobs under FAIR."""
    truth = Simulation(seed=3, noise=0.5, remote_factor=2, fault=third_fails)
    decided: list[Decision] = []

    def record(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        decided.extend(decisions)

    state = State(CLUSTER)
    run(make_scheduler("fair", assigner), SimulatedBackend(CLUSTER, jobs, truth), state, record)
    return decided


def with_blocks(jobs: Sequence[Job], blocks: Callable[[Phase], Sequence[Block]]) -> list[Job]:
    """The same jobs with the blocks of their phases given in another way."""
    return [
        replace(
            job,
            phases=tuple(
                replace(phase, tasks=replace(phase.tasks, blocks=blocks(phase)))
                for phase in job.phases
            ),
        )
        for job in jobs
    ]


def same_in_another_order(phase: Phase) -> Sequence[Block]:
    """Equal blocks, whose sets of hosts were built the other way round."""
    return [Block(frozenset(sorted(block.hosts, reverse=True))) for block in phase.tasks.blocks]


@pytest.mark.parametrize("assigner", ["greedy", "delay"])
def test_homes_in_bulk_and_one_by_one_lead_to_the_same_run(assigner: str) -> None:
    """Blocks that are drawn a phase at a time, as values, and as equal values: one run."""
    jobs = tuple(
        Job(f"job{number}", (Phase("map", Tasks(count, 5.0)),), arrival=number)
        for number, count in enumerate((1, 40, 3, 90, 2, 7))
    )
    placed = place_blocks(jobs, CLUSTER, replicas=3, seed=5)
    drawn = decisions(placed, assigner)
    assert len({d.host for d in drawn if isinstance(d, Launch)}) == len(CLUSTER.hosts)
    assert decisions(with_blocks(placed, lambda p: tuple(p.tasks.blocks)), assigner) == drawn
    assert decisions(with_blocks(placed, same_in_another_order), assigner) == drawn


def test_few_homes_are_tried_in_the_order_of_the_cluster() -> None:
    """With more hosts than homes, the first home does not depend on the order of a set."""
    names = [f"host{number}" for number in range(30)]
    state = State(Cluster(tuple(Host(name, {"task": 1}) for name in names)))
    block = Block(frozenset(names[3:15]))
    state.apply(JobArrived(0.0, Job("a", (Phase("map", Tasks(1, 1.0, (block,))),))))
    (phase,) = state.ready("task")
    assert phase.next_task_on(names) == (0, 1, "host3")
    assert phase.next_task_on(names[::-1]) == (0, 1, "host3")
    assert phase.next_task_on(["host20", "host5", "host4"]) == (0, 1, "host5")


def test_a_deferred_phase_is_offered_newly_free_slots() -> None:
    """Launches bring no other task nearer, but a task that is pending again may be near."""
    hosts = tuple(Host(name, {"task": 1}) for name in ("home", "far"))
    state = State(Cluster(hosts))
    block = Block(frozenset({"home"}))
    tasks = Tasks(3, 1.0, (block,) * 3)
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("a", (Phase("map", tasks),))))
    scheduler, id = make_scheduler("fair", "delay", waits=(50.0, 100.0)), PhaseId("a", "map")
    (phase,) = state.ready("task")
    assert not phase.has_passed
    settle(state, scheduler.decide)
    assert (phase.running, phase.has_passed) == (1, True)
    state.at(1.0)
    state.apply(TaskFailed(1.0, id, 0, 1, "a pity"))
    assert not phase.has_passed
    settle(state, scheduler.decide)
    assert (phase.running, phase.has_passed) == (1, True)


def settle(state: State, decide: Callable[[State], Sequence[Decision]]) -> None:
    """Decide and apply the decisions until there are no more."""
    while decided := decide(state):
        for decision in decided:
            state.apply(decision)
