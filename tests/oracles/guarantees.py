"""What pools are guaranteed, watched from outside: by nothing but the definition of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, inf

from slotwise.model.decision import Decision, Preempt
from slotwise.model.pool_tree import ShareKey
from slotwise.model.snapshot import PhaseView, Snapshot

ROUNDING = 1e-9


@dataclass
class Guarantees:
    """Watches a run: no pool lacks slots of its least share for longer than it puts up with.

    A pool lacks a slot while it holds less than its least share, or than it can use. It may do
    so for its time-out and its grace together; a pool with pools below it, for the longest of
    its own and theirs, as they take for it. A pool that can use more than before lacks those
    slots anew. Least shares that did not fit and now do count from the next epoch on, when
    slots are allocated anew. Slots of silent hosts, and what is held there, do not count.
    """

    since: dict[tuple[str, ShareKey], tuple[float, int]] = field(default_factory=dict)
    fits_from: dict[str, float] = field(default_factory=dict)

    def look(self, snapshot: Snapshot) -> None:
        """Look when nothing more is to be decided at an instant."""
        for kind in snapshot.cluster.capacity:
            phases = [phase for phase in snapshot.ready(kind) if phase.pending or phase.running]
            owed = _owed(snapshot, kind, phases)
            held, patience = _held(snapshot, phases), _patience(snapshot, phases)
            if owed is None:
                self.fits_from[kind], owed = snapshot.epoch_ends, {}
            earliest = max(snapshot.now, self.fits_from.get(kind, snapshot.now))
            for key, slots in owed.items():
                if held[key] >= slots:
                    self.since.pop((kind, key), None)
                    continue
                begun, before = self.since.get((kind, key), (earliest, slots))
                if slots > before:
                    begun = earliest
                self.since[kind, key] = begun, slots
                due = begun + patience[key]
                assert snapshot.now < due + ROUNDING, f"{key} lacks slots since {begun}"
            for gone in [key for key in self.since if key[0] == kind and key[1] not in owed]:
                del self.since[gone]


def _held(snapshot: Snapshot, phases: Sequence[PhaseView]) -> Counter[ShareKey]:
    held: Counter[ShareKey] = Counter()
    for phase in phases:
        for key in phase.shares:
            held[key] += phase.running - _away(snapshot, phase)
    return held


def _away(snapshot: Snapshot, phase: PhaseView) -> int:
    """How many of its tasks run on silent hosts, seen from what was launched."""
    return sum(
        launch.host in snapshot.lost
        for launch in snapshot.attempts_of(phase.id.job)
        if launch.phase == phase.id
    )


def _patience(snapshot: Snapshot, phases: Sequence[PhaseView]) -> dict[ShareKey, float]:
    """For how long each pool, or one below it, puts up with less than its least share.

    The longest grace of all counts: a slot may be on its way to another pool already.
    """
    found = [snapshot.pools.preemption(name) for name in snapshot.pools]
    grace = max((preemption.grace for preemption in found if preemption), default=0.0)
    patience: dict[ShareKey, float] = {}
    for phase in phases:
        longest = 0.0
        for key in reversed(phase.shares):
            preemption = snapshot.pools.preemption(key.pool)
            own = inf if preemption is None else preemption.least_after + grace
            if own < inf:  # Who never takes does not keep others waiting.
                longest = max(longest, own)
            patience[key] = max(own, longest, patience.get(key, 0.0))
    return patience


def _owed(
    snapshot: Snapshot, kind: str, phases: Sequence[PhaseView]
) -> dict[ShareKey, int] | None:
    """Slots that each pool should hold now; None where the least shares do not all fit.

    Slots are set aside for tasks that must run on one host, too, but nothing is taken for them.
    """
    _, fits = _needs(snapshot, kind, phases, [phase.pending for phase in phases])
    anywhere = [0 if phase.is_pinned else phase.pending for phase in phases]
    return _needs(snapshot, kind, phases, anywhere)[0] if fits else None


def _needs(
    snapshot: Snapshot, kind: str, phases: Sequence[PhaseView], pending: Sequence[int]
) -> tuple[dict[ShareKey, int], bool]:
    """What each pool needs of its least share for so many waiting tasks; whether all fits."""
    away = {phase.id: _away(snapshot, phase) for phase in phases}
    usable = {
        phase.id: min(phase.most, phase.running + count) - away[phase.id]
        for phase, count in zip(phases, pending, strict=True)
    }
    elsewhere: Counter[ShareKey] = Counter()
    below: dict[ShareKey | None, set[ShareKey]] = {}
    demand: Counter[ShareKey] = Counter()
    least: Counter[ShareKey] = Counter()
    for phase in phases:
        above: ShareKey | None = None
        for key in phase.shares:
            below.setdefault(above, set()).add(key)
            elsewhere[key] += away[phase.id]
            above = key
        demand[phase.shares[-1]] += usable[phase.id]
        least[phase.shares[-1]] += min(phase.phase.slots_min, usable[phase.id])
    owed: dict[ShareKey, int] = {}
    fits = True

    def visit(key: ShareKey) -> tuple[int, int]:
        """What a pool is owed, and what it can use."""
        nonlocal fits
        pool = snapshot.pools[key.pool]
        parts = [visit(other) for other in sorted(below.get(key, ()))]
        most = pool.slots_max.get(key.kind, 10**9) - elsewhere[key]
        use = min(most, sum(part[1] for part in parts) if parts else demand[key])
        own = sum(part[0] for part in parts) if parts else least[key]
        fits = fits and own <= use
        owed[key] = min(use, max(pool.slots_min.get(key.kind, 0), own))
        return owed[key], use

    tops = [visit(key)[0] for key in sorted(below.get(None, ()))]
    return owed, fits and sum(tops) <= _capacity(snapshot, kind)


def _capacity(snapshot: Snapshot, kind: str) -> int:
    """The slots of the hosts that are not silent."""
    hosts = [host for host in snapshot.cluster.hosts if host.name not in snapshot.lost]
    return sum(host.slots.get(kind, 0) for host in hosts)


def assert_taken_rightly(snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
    """No task is told to stop twice; no pool gives so much that it is below its share.

    Its share is the whole slots of what its phases are allocated, cut to what they can use.
    """
    takes = [d for d in decisions if isinstance(d, Preempt) and d.pool is not None]
    if not takes:
        return
    told = {(d.phase, d.task) for d in takes}
    assert len(told) == len(takes)
    for kind in snapshot.cluster.capacity:
        expected: Counter[ShareKey] = Counter()
        share: Counter[ShareKey] = Counter()
        giving = set()
        for phase in snapshot.ready(kind):
            there = [one for _, one in phase.attempts() if one.host not in snapshot.lost]
            staying = {(one.phase, one.task) for one in there}
            stopping = [one for one in told if one[0] == phase.id]
            assert staying.issuperset(stopping), "only what runs on is told to stop"
            if stopping:
                giving.add(phase.shares[-1])
            expected[phase.shares[-1]] += len(staying) - len(stopping)
            can_use = phase.pending + phase.running - _away(snapshot, phase)
            share[phase.shares[-1]] += min(phase.allocated, can_use)
        for key in giving:
            assert expected[key] >= floor(share[key] + ROUNDING), f"{key} gives too much"
