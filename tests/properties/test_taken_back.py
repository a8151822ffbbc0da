"""Random pools and jobs of narrow tasks: exactly the slots that a pool lacks are taken back.

The shares are those of the definition, found by code of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import floor

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt
from slotwise.core.events import TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.replay import replay_log
from tiers import examples

AFTER, GRACE, LENGTH = 5.0, 3.0, 1000.0


@dataclass(frozen=True)
class Case:
    """Pools that hold all slots before others come at 1 s, of which some take slots back."""

    wants: dict[str, int]
    takers: frozenset[str]
    hosts: tuple[int, ...]
    first: dict[str, int]
    assigner: str

    @property
    def cluster(self) -> Cluster:
        """Hosts of these numbers of slots."""
        sizes = enumerate(self.hosts)
        return Cluster(tuple(Host(f"h{number}", {"task": size}) for number, size in sizes))

    @property
    def pools(self) -> list[Pool]:
        """All pools, of equal weights."""
        takes = Preemption(fair_after=AFTER, fraction=1.0, grace=GRACE)
        names = (*self.first, *self.wants)
        return [Pool(name, preemption=takes if name in self.takers else None) for name in names]

    @property
    def jobs(self) -> list[Job]:
        """A job in each pool."""
        found = []
        for arrival, pools in ((0.0, self.first), (1.0, self.wants)):
            for name, count in pools.items():
                found.append(Job(name, (Phase("p", Tasks(count, LENGTH)),), arrival, name))
        return found

    def shares(self) -> dict[str, float]:
        """The fair share of each pool: the slots divided equally among those that want more."""
        left = {**self.first, **self.wants}
        slots, found = float(sum(self.hosts)), {}
        while left:
            level = slots / len(left)
            small = [name for name, count in left.items() if count <= level]
            if not small:
                return found | dict.fromkeys(left, level)
            for name in small:
                found[name] = float(left.pop(name))
                slots -= found[name]
        return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """One or two pools that hold all slots, and up to twelve others."""
    hosts = tuple(draw(st.lists(st.integers(1, 8), min_size=1, max_size=3)))
    count = draw(st.integers(1, 12))
    wants = {f"p{number}": draw(st.integers(1, 6)) for number in range(count)}
    takers = draw(st.frozensets(st.sampled_from([*wants]), min_size=1))
    first = {name: sum(hosts) for name in ("big", "large")[: draw(st.integers(1, 2))]}
    assigner = draw(st.sampled_from(["greedy", "delay", "flow"]))
    return Case(wants, takers, hosts, first, assigner)


def held(log: Log) -> Counter[str]:
    """What each job holds when the first tasks have been stopped and replaced."""
    slots: Counter[str] = Counter()
    for turn in log.turns:
        if turn.now > 1.0 + AFTER + GRACE:
            break
        slots.update(d.phase.job for d in turn.decisions if isinstance(d, Launch))
        ends = [e for e in turn.events if isinstance(e, TaskKilled | TaskFinished)]
        slots.subtract(end.phase.job for end in ends)
    return slots


@given(cases())
@settings(max_examples=examples(40, slow=2000))
def test_exactly_what_the_takers_lack_is_taken(
    simulated: Callable[..., object], case: Case
) -> None:
    """All takers hold the whole slots of their shares at 9 s, and others not one more."""
    log = simulated(case.jobs, case.cluster, case.pools, assigner=case.assigner).log
    shares = case.shares()
    expected = {name: floor(shares[name] + 1e-9) for name in case.takers}
    stops = Counter(
        decision.pool
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Preempt) and turn.now <= 1.0 + AFTER + GRACE
    )
    assert stops == Counter(expected)
    slots = held(log)
    for name in case.wants:
        assert slots[name] == expected.get(name, 0)
    before = [sum(case.hosts) // len(case.first), -(-sum(case.hosts) // len(case.first))]
    given_by = [min(before) - slots[name] for name in case.first]
    assert max(given_by) - min(given_by) <= max(before) - min(before) + 1, "evenly"
    for name in case.first:
        assert slots[name] >= floor(shares[name] + 1e-9), "none gives below its share"
    assert replay_log(log).is_identical
