"""The order in which phases get free slots, told in advance, is the one that comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from hypothesis import assume, given, settings

from properties.test_pools import Case as PoolCase
from properties.test_pools import cases as pool_cases
from properties.test_runs import Case, cases
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, Launch, Reallocate
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.loop import Decider, run
from slotwise.core.pools import Pool
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

EXAMPLES = examples(15, slow=1000)


@dataclass
class Told:
    """A scheduler with the greedy rule, whose launches are compared with turns told before.

    `expected` has the phases of the next launches on slots of each kind.
    """

    inner: Decider
    expected: dict[str, list[PhaseId]] = field(default_factory=dict)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The decisions of the scheduler, after the comparison.

        Phases that begin nothing on a host where they failed may miss their turns, and slots
        that are reserved for a pool are given out first.
        """
        decisions = self.inner.decide(snapshot)
        phases = chain.from_iterable(snapshot.jobs_left())
        is_reserved = any(snapshot.reserved(kind) for kind in snapshot.cluster.capacity)
        if is_reserved or any(p.failures and p.avoided(snapshot.lost) for p in phases):
            self.expected.clear()
            return decisions
        if not decisions:
            assert not any(self.expected.values()), "all turns that were told came"
        if not decisions or not isinstance(decisions[0], Launch):
            self.expected.clear()
            return decisions
        (launch,) = decisions
        kind = snapshot.phase(launch.phase).pool.slot_kind
        if not self.expected.get(kind):
            turns = snapshot.turns(kind, lambda phase: phase.pending)
            assert turns.phases or turns.is_cut
            self.expected[kind] = [phase.id for phase in turns.phases]
        if self.expected[kind]:
            assert self.expected[kind].pop(0) == launch.phase
        return decisions


def compare(case: Case | PoolCase, name: str, pools: Sequence[Pool]) -> None:
    """Run a case with the greedy rule and compare all launches."""
    state = State(case.cluster, pools)
    backend = SimulatedBackend(case.cluster, case.jobs, case.simulation)
    run(Told(make_scheduler(name)), backend, state, lambda *turn: None)


@given(cases())
@settings(max_examples=EXAMPLES)
def test_turns_come_as_told(case: Case) -> None:
    """Whatever the allocation, the limits and the failures."""
    compare(case, case.name, case.pools)


@given(pool_cases())
@settings(max_examples=EXAMPLES)
def test_turns_of_nested_pools_come_as_told(case: PoolCase) -> None:
    """Pools inside pools, with guarantees, limits and preemption."""
    assume(not any(phase.continues for job in case.jobs for phase in job.phases))
    compare(case, str(case.options["name"]), case.pools)


def test_a_limit_of_a_pool_ends_its_turns() -> None:
    """Of ten slots, the pool with a max share of 2 gets two, although it has a larger claim."""
    state = State(Cluster.of_slots(10), [Pool("few", slots_max={"task": 2})])
    state.at(0.0)
    for name, pool in (("a", "few"), ("b", "default")):
        state.apply(JobArrived(0.0, Job(name, (Phase("p", Tasks(9, 1.0)),), pool=pool)))
    state.apply(Reallocate({PhaseId("a", "p"): 9.0, PhaseId("b", "p"): 1.0}, until=1e9))
    turns = state.turns("task", lambda phase: phase.pending)
    assert sorted(phase.id.job for phase in turns.phases) == ["a"] * 2 + ["b"] * 8
    assert not turns.is_cut


def test_telling_changes_nothing() -> None:
    """The same question has the same answer, and the state is as before."""
    state = State(Cluster.of_slots(4))
    state.at(0.0)
    for name in "abc":
        state.apply(JobArrived(0.0, Job(name, (Phase("p", Tasks(3, 1.0)),))))
    state.apply(Reallocate({PhaseId(name, "p"): 4 / 3 for name in "abc"}, until=1e9))
    first = state.turns("task", lambda phase: phase.pending)
    assert [phase.id.job for phase in first.phases] == ["a", "b", "c", "a"]
    assert state.turns("task", lambda phase: phase.pending) == first
    state.check()
