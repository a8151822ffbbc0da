"""Preemption for shares ends, even where shares follow the tasks and go back and forth.

Each task loses less than twice what it takes: the last of its stopped attempts is shorter than
the task, and each of them at least twice as long as those before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.loop import run
from slotwise.core.pools import Pool, Preemption
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

NAMES = ("las", "uwfq", "flex", "flowflex", "flex-on-fair", "fair", "fifo")
SECONDS = st.sampled_from([0.2, 1.0, 5.0, 20.0, 60.0, 300.0])
TURNS_MAX = 20_000
"""Far more than any of these runs needs."""


@dataclass(frozen=True)
class Case:
    """Jobs in pools that take back slots of their shares."""

    jobs: tuple[Job, ...]
    slots: int
    pools: tuple[Pool, ...]
    simulation: Simulation
    name: str


class Watch:
    """Records how long the stopped attempts of each task ran."""

    def __init__(self) -> None:
        self.lengths: defaultdict[tuple[PhaseId, int], list[float]] = defaultdict(list)
        self._begun: dict[tuple[PhaseId, int], float] = {}
        self._turns = 0

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Record a turn."""
        self._turns += 1
        assert self._turns < TURNS_MAX, "slots go back and forth"
        for event in events:
            if isinstance(event, TaskKilled):
                task = event.phase, event.task
                self.lengths[task].append(event.at - self._begun[task])
        for decision in decisions:
            if isinstance(decision, Launch):
                self._begun[decision.phase, decision.task] = now


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few slots, long tasks and short time-outs; the scheduler may know no work."""
    preemptions = st.builds(
        Preemption,
        fair_after=st.sampled_from([0.0, 0.5, 5.0]),
        fraction=st.sampled_from([0.5, 1.0]),
        grace=st.sampled_from([0.0, 0.0, 2.0]),
        jobs_after=st.sampled_from([None, 0.0, 2.0]),
    )
    names = ("a", "b", "c")[: draw(st.integers(2, 3))]
    pools = tuple(Pool(name, preemption=draw(preemptions)) for name in names)
    slots = draw(st.integers(1, 3))
    jobs = []
    for number in range(draw(st.integers(2, 7))):
        count = draw(st.integers(1, 4))
        shape = draw(st.sampled_from(["narrow", "narrow", "wide", "gang"]))
        phases = []
        for place in range(count):
            after = frozenset({f"p{place - 1}"}) if place else frozenset[str]()
            is_gang = shape == "gang"
            tasks = Tasks(draw(st.integers(1, slots if is_gang else 3)), draw(SECONDS))
            width = min(slots, 2) if shape == "wide" else 1
            phases.append(Phase(f"p{place}", tasks, after=after, slots=width, gang=is_gang))
        arrival = draw(st.sampled_from([0.0, 1.0, 30.0, 400.0]))
        pool = draw(st.sampled_from(names))
        jobs.append(Job(f"j{number}", tuple(phases), arrival=arrival, pool=pool))
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.6])),
        save_seconds=draw(st.sampled_from([None, None, 0.5])),
        hide_work=draw(st.booleans()),
    )
    return Case(tuple(jobs), slots, pools, simulation, draw(st.sampled_from(NAMES)))


@given(cases())
@settings(max_examples=examples(20, slow=3000))
def test_no_task_is_stopped_for_ever(case: Case) -> None:
    """All jobs end, and each stopped attempt is twice as long as those before it."""
    watch = Watch()
    cluster = Cluster.of_slots(case.slots)
    backend = SimulatedBackend(cluster, case.jobs, case.simulation)
    run(make_scheduler(case.name), backend, State(cluster, case.pools), watch)
    for stopped in watch.lengths.values():
        for before, after in pairwise(stopped):
            assert after >= 2 * before * (1 - 1e-9)
