"""A host on which all tasks fail does not fail jobs that other hosts can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import Fault, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import TaskFailed
from slotwise.core.job import Block, Job, Phase, Tasks
from slotwise.core.phase_state import SUSPECT
from slotwise.insight.replay import replay_log
from tiers import examples

BROKEN = "h0"


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Two to four hosts with one to three slots each."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    return Cluster(tuple(Host(f"h{n}", {"task": size}) for n, size in enumerate(sizes)))


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    """One to four jobs of a map and perhaps a reduce, some with input on the broken host."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        count, work = draw(st.integers(1, 12)), draw(st.sampled_from([0.5, 1.0, 4.0]))
        homes = [Block(frozenset({BROKEN}))] * count if draw(st.booleans()) else ()
        phases = [Phase("map", Tasks(count, work, tuple(homes)))]
        if draw(st.booleans()):
            phases.append(Phase("reduce", Tasks(2, work), after=frozenset({"map"})))
        made.append(Job(f"j{number}", tuple(phases), arrival=draw(st.sampled_from([0.0, 2.0]))))
    return made


def fault(launch: Launch) -> Fault | None:
    """All tasks on the broken host fail soon."""
    return Fault("broken", 0.1) if launch.host == BROKEN else None


@pytest.mark.parametrize("name", ["fifo", "fair", "flex"])
@pytest.mark.parametrize("assigner", ["greedy", "delay"])
@given(clusters(), jobs())
@settings(max_examples=examples(10, slow=500), deadline=None)
@pytest.mark.sampled(3)
def test_jobs_are_done_beside_a_broken_host(
    simulated: Callable[..., Any], assigner: str, name: str, cluster: Cluster, jobs: list[Job]
) -> None:
    """Few tasks of each phase fail there; then the phase begins nothing there any more."""
    watch = simulated(jobs, cluster, (), name, Simulation(fault=fault), assigner=assigner)
    assert watch.state.completed.keys() == {job.id for job in jobs}
    assert replay_log(watch.log).is_identical
    failed = Counter(
        event.phase
        for turn in watch.log.turns
        for event in turn.events
        if isinstance(event, TaskFailed)
    )
    most = SUSPECT - 1 + cluster.by_name[BROKEN].slots["task"]
    assert max(failed.values(), default=0) <= most
