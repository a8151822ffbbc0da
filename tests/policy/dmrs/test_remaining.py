"""The remaining problem that is kept from launch to launch is the one that is read anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.endings import Endings
from oracles.remaining import remaining_as_read
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Fault, Outage, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision
from slotwise.core.events import HostAdded, HostRemoved, JobArrived, with_kinds
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.policy.dmrs.corrections import corrected
from slotwise.policy.dmrs.jobs import machines, remaining
from slotwise.policy.dmrs.queueing import Queueing, by_program
from tiers import examples


@dataclass
class Comparing:
    """Decides as DMRS does, and compares the remaining problem before each decision."""

    compared: int = 0

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The decisions of DMRS."""
        if not snapshot.doomed:
            self.compare(snapshot)
        return Queueing(by_program).decide(snapshot)

    def compare(self, snapshot: Snapshot) -> None:
        """Both problems are the same to the last bit, and so are the names of the tasks."""
        estimates = corrected(snapshot.seen, snapshot.cluster.speeds)
        kept = remaining(snapshot, estimates, machines(snapshot, estimates))
        read, names = remaining_as_read(snapshot, estimates)
        assert [(*phase, task) for phase, task in kept.unbegun.tasks] == names
        assert (kept.problem is None) == (read is None)
        if kept.problem is None or read is None:
            return
        assert kept.problem.speed.tolist() == read.speed.tolist()
        assert kept.problem.free.tolist() == read.free.tolist()
        here, there = kept.problem.columns, read.columns
        for name in ("release", "weight", "ready", "follows", "task_first", "work"):
            assert getattr(here, name).tolist() == getattr(there, name).tolist(), name
        assert here.largest_first.tolist() == there.largest_first.tolist()
        for name in ("first", "before_first", "before"):
            assert getattr(here.graphs, name).tolist() == getattr(there.graphs, name).tolist()
        for place, (phase, task) in enumerate(kept.unbegun.tasks):
            assert kept.place(phase, task) == place
        self.compared += 1


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    """Up to five jobs that are DAGs, some of whose tasks are equal or take almost no time."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        phases: list[Phase] = []
        for place in range(draw(st.integers(1, 4))):
            count = draw(st.integers(1, 6))
            works = st.lists(
                st.sampled_from([1e-12, 2e-12, 1.0, 2.0, 2.5]), min_size=count, max_size=count
            )
            work = draw(st.one_of(st.sampled_from([1.0, 3.0]), works.map(tuple)))
            after = draw(st.sets(st.sampled_from([p.name for p in phases]))) if phases else ()
            phases.append(Phase(f"p{place}", Tasks(count, work), after=frozenset(after)))
        arrival = draw(st.sampled_from([0.0, 0.0, 2.0, 5.5]))
        weight = float(draw(st.integers(1, 3)))
        found.append(Job(f"j{number}", tuple(phases), arrival=arrival, weight=weight))
    return found


@settings(max_examples=examples(25, slow=1000))
@given(jobs(), st.integers(0, 9), st.booleans(), st.booleans(), st.booleans())
def test_the_kept_problem_is_the_one_read_anew(
    some: list[Job], seed: int, fails: bool, changes: bool, is_cut: bool
) -> None:
    """While tasks fail, and hosts are cut off, come and go."""
    hosts = tuple(Host(f"h{n}", {"task": 1 + n % 2}, speed=1 / (1 + n)) for n in range(3))
    course = (HostRemoved(1.5, "h1"), HostAdded(3.0, Host("h3", {"task": 1}, speed=0.7)))
    course = course if changes else ()
    cluster = with_kinds(Cluster(hosts, grace=1.0), course)
    simulation = Simulation(
        seed=seed,
        noise=0.5,
        changes=course,
        outages=(Outage("h0", 1.0, 2.0),) if is_cut else (),
        fault=lambda launch: (
            Fault("broke", 0.5) if fails and launch.attempt == 1 and launch.task == 2 else None
        ),
    )
    state, comparing = State(cluster), Comparing()
    endings = Endings(state)
    run(comparing, SimulatedBackend(cluster, some, simulation), state, endings)
    assert endings.completed.keys() == {job.id for job in some}
    assert comparing.compared


def test_works_that_become_equal_are_ordered_by_number() -> None:
    """Both tasks take less than the least work, the second one more than the first."""
    state = State(Cluster.of_slots(1))
    state.apply(JobArrived(0.0, Job("a", (Phase("p", Tasks(2, (1e-30, 2e-30))),))))
    snapshot, comparing = state.at(0.0), Comparing()
    comparing.compare(snapshot)
    assert snapshot.unbegun.largest.tolist() == [1, 0]
    estimates = corrected(snapshot.seen, snapshot.cluster.speeds)
    left = remaining(snapshot, estimates, machines(snapshot, estimates))
    assert left.problem is not None
    assert left.problem.columns.largest_first.tolist() == [0, 1]
