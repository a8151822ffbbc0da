"""What pools are guaranteed, watched from outside: by nothing but the definition of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, inf

from slotwise.core.decisions import Decision, Preempt
from slotwise.core.phase_state import PhaseState
from slotwise.core.pools import ShareKey
from slotwise.core.snapshot import Snapshot

ROUNDING = 1e-9


Node = tuple[str, ShareKey]
"""A share of a pool: the kind of slots, and its key. The kind is `ALL` where numbers of the
pool are for several kinds of slots together."""

ALL = "all"


@dataclass
class Guarantees:
    """Watches a run: no pool lacks slots of its min share for longer than it tolerates.

    A pool lacks a slot while it holds less than its min share, or than it can use. It may do
    so for its time-out and its grace together; a pool with pools below it, for the longest of
    its own and theirs, as they take for it. A pool that can use more than before lacks those
    slots again. Min shares that did not fit and now do count from the next epoch on, when
    slots are allocated again. A min share of several kinds together is one of their sum; of
    which kinds is decided again with each epoch, and then tasks have their grace.
    Slots of unresponsive hosts, and what is held there, do not count.
    """

    since: dict[Node, tuple[float, int]] = field(default_factory=dict)
    fits_from: dict[str, float] = field(default_factory=dict)

    def look(self, snapshot: Snapshot, epoch_seconds: float = 0.5) -> None:
        """Look when nothing more is to be decided at an instant."""
        phases = _phases(snapshot)
        anywhere = _Needs(snapshot, [(p, 0 if p.is_pinned else p.pending) for p in phases])
        # Slots are set aside for tasks that must run on one host, too, but none is taken for
        # them.
        fits = _Needs(snapshot, [(p, p.pending) for p in phases]).fits
        patience, grace = _patience(snapshot, phases)
        held: Counter[Node] = Counter()
        for phase in (*phases, *_waiting_again(snapshot)):
            for node in _nodes(snapshot, phase):
                held[node] += phase.running - _away(snapshot, phase)
        for kind in snapshot.cluster.capacity:
            if kind not in fits:
                self.fits_from[kind] = snapshot.epoch_ends
        for node, slots in anywhere.owed.items():
            kinds = [node[0]] if node[0] != ALL else list(snapshot.cluster.capacity)
            if held[node] >= slots or not fits.issuperset(kinds):
                self.since.pop(node, None)
                continue
            now = snapshot.now
            earliest = max(now, *(self.fits_from.get(kind, now) for kind in kinds))
            begun, before = self.since.get(node, (earliest, slots))
            if slots > before:
                begun = earliest
            self.since[node] = begun, slots
            due = begun + patience[node]
            if node[0] == ALL:
                due += epoch_seconds + grace
            assert now < due + ROUNDING, f"{node} lacks slots since {begun}"
        for gone in self.since.keys() - anywhere.owed.keys():
            del self.since[gone]


def assert_no_pool_holds_too_much(snapshot: Snapshot) -> None:
    """No pool exceeds its max share, of a kind or of several kinds together."""
    held: Counter[Node] = Counter()
    for phase in _phases(snapshot):
        for node in _nodes(snapshot, phase):
            held[node] += phase.running
    for (_, key), slots in held.items():
        assert slots <= snapshot.pools[key.pool].slots_max.get(key.kind, inf)


def _phases(snapshot: Snapshot) -> list[PhaseState]:
    return [
        phase
        for kind in snapshot.cluster.capacity
        for phase in snapshot.ready(kind)
        if phase.pending or phase.running
    ]


def _waiting_again(snapshot: Snapshot) -> list[PhaseState]:
    """Phases that are not ready, because input was lost, but whose running tasks go on."""
    ready = {phase.id for phase in _phases(snapshot)}
    return [
        phase
        for phases in snapshot.jobs_left()
        for phase in phases
        if phase.running and phase.id not in ready
    ]


def _nodes(snapshot: Snapshot, phase: PhaseState) -> list[Node]:
    """The shares that a phase counts against, from the top down."""
    kind, nodes = phase.slot_kind, []
    for key in phase.shares:
        pool = snapshot.pools[key.pool]
        has_number = "task" in pool.slots_min or "task" in pool.slots_max
        is_of_all = has_number and key.kind == "task" and len(snapshot.cluster.capacity) > 1
        nodes.append((ALL if is_of_all else kind, key))
    return nodes


def _away(snapshot: Snapshot, phase: PhaseState) -> int:
    """How many of its tasks run on unresponsive hosts, counted from the launches."""
    return sum(
        launch.host in snapshot.lost
        for launch in snapshot.attempts_of(phase.id.job)
        if launch.phase == phase.id
    )


def _patience(
    snapshot: Snapshot, phases: Sequence[PhaseState]
) -> tuple[dict[Node, float], float]:
    """For how long each pool, or one below it, tolerates less than its min share.

    The longest grace of all counts: a slot may be on its way to another pool already.
    """
    found = [snapshot.pools.preemption(name) for name in snapshot.pools]
    grace = max((preemption.grace for preemption in found if preemption), default=0.0)
    patience: dict[Node, float] = {}
    for phase in phases:
        longest = 0.0
        for node in reversed(_nodes(snapshot, phase)):
            preemption = snapshot.pools.preemption(node[1].pool)
            own = inf if preemption is None else preemption.least_after + grace
            if own < inf:  # A pool that never preempts does not delay others.
                longest = max(longest, own)
            patience[node] = max(own, longest, patience.get(node, 0.0))
    return patience, grace


@dataclass
class _Need:
    """What a share is owed and can use, and by kind of slot: can use, and may be owed."""

    owed: int
    use: int
    uses: Counter[str]
    loads: Counter[str]


class _Needs:
    """What each pool needs of its min share for the given waiting tasks of each phase.

    owed  slots that it should hold now
    fits  the kinds of slots on which the min shares fit, however those of several kinds
          together are divided
    """

    def __init__(self, snapshot: Snapshot, waiting: Sequence[tuple[PhaseState, int]]) -> None:
        self._pools = snapshot.pools
        self._below: dict[Node | None, set[Node]] = {}
        self._elsewhere: Counter[Node] = Counter()
        self._own: dict[Node, list[tuple[str, int, int]]] = {}
        for phase, pending in waiting:
            slots_on_lost_hosts = _away(snapshot, phase)
            usable = min(phase.max_share, phase.running + pending) - slots_on_lost_hosts
            above: Node | None = None
            for node in _nodes(snapshot, phase):
                self._below.setdefault(above, set()).add(node)
                self._elsewhere[node] += slots_on_lost_hosts
                above = node
            assert above is not None
            kind = phase.slot_kind
            row = (kind, usable, min(phase.phase.slots_min, usable))
            self._own.setdefault(above, []).append(row)
        self._found: dict[Node, _Need] = {}
        self.fits = set(snapshot.cluster.capacity)
        tops = [self._visit(node) for node in sorted(self._below.get(None, ()))]
        for kind in snapshot.cluster.capacity:
            if sum(top.loads[kind] for top in tops) > _capacity(snapshot, kind):
                self.fits.discard(kind)
        self.owed = {node: need.owed for node, need in self._found.items()}

    def _visit(self, node: Node) -> _Need:
        if node not in self._found:
            self._found[node] = self._need(node)
        return self._found[node]

    def _need(self, node: Node) -> _Need:
        of_kind, key = node
        pool = self._pools[key.pool]
        max_share = pool.slots_max.get(key.kind, 10**9) - self._elsewhere[node]
        parts = [self._visit(other) for other in sorted(self._below.get(node, ()))]
        for kind, usable, min_share in self._own.get(node, ()):
            parts.append(
                _Need(min_share, usable, Counter({kind: usable}), Counter({kind: min_share}))
            )
        uses: Counter[str] = Counter()
        loads: Counter[str] = Counter()
        for part in parts:
            uses.update(part.uses)
            loads.update(part.loads)
        uses = Counter({kind: min(max_share, use) for kind, use in uses.items()})
        min_share = pool.slots_min.get(key.kind, 0)
        if of_kind == ALL:
            use, own = (
                min(max_share, sum(part.use for part in parts)),
                sum(p.owed for p in parts),
            )
            owed = min(use, max(min_share, own))
            if own > use:
                self.fits.clear()
            return _Need(owed, use, uses, Counter({k: min(owed, n) for k, n in uses.items()}))
        # Of what is below it, that which may be of several kinds need not be of this one.
        own = sum(part.owed for part in parts if part.uses.keys() <= {of_kind})
        if loads[of_kind] > uses[of_kind]:
            self.fits.discard(of_kind)
        load = min(uses[of_kind], max(min_share, loads[of_kind]))
        owed = min(uses[of_kind], max(min_share, own))
        only = Counter({of_kind: uses[of_kind]})
        return _Need(owed, uses[of_kind], only, Counter({of_kind: load}))


def _capacity(snapshot: Snapshot, kind: str) -> int:
    """The slots of the responsive hosts."""
    hosts = [host for host in snapshot.cluster.hosts if host.name not in snapshot.lost]
    return sum(host.slots.get(kind, 0) for host in hosts)


def assert_nothing_is_reserved_in_vain(snapshot: Snapshot) -> None:
    """Slots stay reserved for a pool only if it lacks them and will launch in them.

    It has narrow tasks that wait for room in a pool until tasks stop there, or wide ones or a
    gang that need more slots than there are. To be asked when nothing is left to decide.
    """
    for kind in snapshot.cluster.capacity:
        slots_of: Counter[ShareKey] = Counter()
        for host, there in snapshot.reserved(kind).items():
            assert host not in snapshot.lost
            for pool, slots in there.items():
                slots_of[pool.key] += slots
                assert slots_of[pool.key] <= pool.lacks, f"{pool.key} needs fewer slots"
                below = [p for p in snapshot.ready(kind) if pool.key in p.shares and p.pending]
                assert any(_waits_for_more(snapshot, phase, host) for phase in below)


def _waits_for_more(snapshot: Snapshot, phase: PhaseState, host: str) -> bool:
    """Whether a phase may hold one more task, or its gang, but could not begin it now."""
    if phase.is_pinned or phase.running + phase.unit > phase.max_share:
        return False
    if phase.unit > 1 or phase.needs:
        return snapshot.cluster.by_name[host].amounts.holds(phase.request)
    return not phase.may_launch and any(
        phase_below.stopping and set(phase_below.shares) & set(phase.shares)
        for phase_below in _phases(snapshot)
    )


def assert_taken_rightly(snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
    """No task is asked to stop twice; no pool falls below its share by preemption.

    Its share is the whole slots of what its phases are allocated, cut to what they can use.
    """
    takes = [d for d in decisions if isinstance(d, Preempt) and d.pool is not None]
    if not takes:
        return
    asked = {(d.phase, d.task) for d in takes}
    assert len(asked) == len(takes)
    for kind in snapshot.cluster.capacity:
        expected: Counter[ShareKey] = Counter()
        share: Counter[ShareKey] = Counter()
        giving = set()
        ready = list(snapshot.ready(kind))
        again = [phase for phase in _waiting_again(snapshot) if phase.slot_kind == kind]
        for phase in (*ready, *again):
            there = [one for _, one in phase.attempts() if one.host not in snapshot.lost]
            staying = {(one.phase, one.task) for one in there}
            stopping = [one for one in asked if one[0] == phase.id]
            assert staying.issuperset(stopping), "only running tasks are asked to stop"
            if stopping:
                giving.add(phase.shares[-1])
            expected[phase.shares[-1]] += (len(staying) - len(stopping)) * phase.width
        for phase in ready:
            can_use = phase.pending * phase.width + phase.running - _away(snapshot, phase)
            share[phase.shares[-1]] += min(phase.allocated, can_use)
        for key in giving:
            if key.pool in {d.pool for d in takes}:
                continue  # What a pool takes from its own jobs it gives to others of them.
            assert expected[key] >= floor(share[key] + ROUNDING), f"{key} gives too much"
