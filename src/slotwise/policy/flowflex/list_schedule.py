"""List scheduling of flows: at every instant, slots go to ready phases in order of rank.

No slot idles while a ready phase could use it. If phases are ranked flow by flow, this is the
greedy scheme of FlowFlex Fig. 5 for all flows at once: the slots of a flow at an instant depend
only on the flows before it, so time can be the outer loop. It needs no chains: each flow j is
complete by (work of the flows up to j) / P + (critical path of j). Until then, either flows up
to j hold all slots, or every ready phase of j has its max share and the longest remaining path
of j shrinks as fast as time passes.

One source, two implementations: Python runs `run_list` directly, on lists; numba compiles the
same function for large problems and long searches (`compiled.py`). The results are identical to
the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from slotwise.core.costs import Floats, Ints
from slotwise.core.tolerances import CLOCK, ROUNDING
from slotwise.policy.compiled import FLOATS, INTS, Numbers, compiled, has_numba, is_loaded
from slotwise.policy.flowflex.flows import FlowProblem
from slotwise.policy.packing import Packing

Ranking = Sequence[int] | Ints
"""All phases, the most urgent first."""

COMPILED_FROM = 200_000
"""Phases times schedules; below this, loading machine code takes longer than it saves."""

RUNS_BY_CLOCK = 200
"""The approximate number of schedules in a search that a clock ends, not a number of steps."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A schedule as changes of slots in order of time: `phase` has `slots` from `since` on.

    ready  when each phase waits for no other, seconds
    start  when each gets its first slots
    end    of each
    """

    ready: Floats
    start: Floats
    end: Floats
    phase: Ints
    since: Floats
    slots: Floats

    def pieces(self) -> list[list[tuple[float, float, int]]]:
        """(start, end, slots) of each phase, in order of time, slots > 0. O(changes)."""
        pieces: list[list[tuple[float, float, int]]] = [[] for _ in range(len(self.end))]
        held: dict[int, tuple[float, float]] = {}
        changes = zip(
            self.phase.tolist(), self.since.tolist(), self.slots.tolist(), strict=True
        )
        for phase, since, slots in changes:
            start, had = held.get(phase, (0.0, 0.0))
            if had > 0 and since > start:
                pieces[phase].append((start, since, int(had)))
            held[phase] = (since, slots)
        return pieces


class PhaseLister:
    """Computes list schedules of one problem; create it once for many rankings.

    runs     the approximate number of schedules to compute; machine code pays off for many
    is_fast  whether to use machine code; None uses it as soon as it pays off, for these
             schedules or for all that this process has computed. The schedules are the same
    """

    def __init__(
        self, flows: FlowProblem, runs: float = 1, is_fast: bool | None = None
    ) -> None:
        self._flows = flows
        expected = len(flows.work) * (RUNS_BY_CLOCK if runs == inf else runs)
        self._chooses = is_fast is None
        self._is_fast = _PLAIN.pays(expected) if is_fast is None else is_fast
        self._numbers = (
            flows.capacity.astype(float), flows.kind, flows.work, flows.max_share, *flows.after,
        )  # fmt: skip
        if not self._is_fast:
            self._lists: list[Any] = [numbers.tolist() for numbers in self._numbers]

    def instants(self, ranking: Ranking) -> Listed:
        """When each phase is ready, starts and ends; without the changes of slots."""
        return self._run(ranking, 0)[0]

    def ends(self, ranking: Ranking) -> Floats:
        """When each phase is done, seconds."""
        return self.instants(ranking).end

    def completions(self, ranking: Ranking) -> Floats:
        """When each flow is done, seconds."""
        return self._flows.completion(self.ends(ranking))

    def schedule(self, ranking: Ranking) -> Listed:
        """The whole schedule."""
        room = 4 * len(self._flows.work)
        listed, changes = self._run(ranking, room)
        return listed if changes <= room else self._run(ranking, changes)[0]

    def _run(self, ranking: Ranking, room: int) -> tuple[Listed, int]:
        count = len(self._flows.work)
        order = np.ascontiguousarray(ranking, dtype=np.int64)
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count)
        if self._chooses and not self._is_fast:
            self._is_fast = _PLAIN.pays(count)
        if self._is_fast:
            ready, start, end = np.zeros(count), np.zeros(count), np.zeros(count)
            phase, since, slots = np.zeros(room, np.int64), np.zeros(room), np.zeros(room)
            run = compiled(run_list, RUN_LIST)
            changes = run(*self._numbers, order, rank, ready, start, end, phase, since, slots)
            kept = min(changes, room)
            return Listed(ready, start, end, phase[:kept], since[:kept], slots[:kept]), changes
        _PLAIN.phases += count
        instants, traced = (
            [[0.0] * count for _ in range(3)],
            ([0] * room, [0.0] * room, [0.0] * room),
        )
        numbers = [*self._lists, order.tolist(), rank.tolist(), *instants, *traced]
        changes = run_list(*numbers)
        kept = min(changes, room)
        ready, start, end = map(np.array, instants)
        phases, times, held = traced
        listed = Listed(
            ready,
            start,
            end,
            np.array(phases[:kept], dtype=np.int64),
            np.array(times[:kept]),
            np.array(held[:kept]),
        )
        return listed, changes


@dataclass(slots=True)
class _Plain:
    """The number of phases that this process has scheduled in Python.

    A scheduler computes few schedules at a time, but many times. Machine code is loaded once
    Python has taken as long as loading takes. So the total is less than twice the time of the
    better alternative, and nothing but time depends on the choice.
    """

    phases: float = 0

    def pays(self, expected: float) -> bool:
        """Whether machine code is available and worth loading for `expected` more phases."""
        return (is_loaded() or self.phases + expected >= COMPILED_FROM) and has_numba()


_PLAIN = _Plain()


def run_list(
    capacity: Numbers,
    kind: Numbers,
    work: Numbers,
    max_share: Numbers,
    after_first: Numbers,
    after: Numbers,
    waits: Numbers,
    order: Numbers,
    rank: Numbers,
    readied: Numbers,
    begun: Numbers,
    end: Numbers,
    changed: Numbers,
    since: Numbers,
    slots: Numbers,
) -> int:
    """Fill in the instants of each phase and the changes of slots; returns the number of these.

    order, rank            all phases by rank, and the rank of each
    readied, begun, end    when each is ready, starts and ends: zeros
    changed, since, slots  buffers for the changes; changes beyond their length are only counted

    Each end of a phase costs O(phases that hold slots then). Each phase that becomes ready
    costs O(ready phases before it in rank).
    """
    count, kinds, room = len(work), len(capacity), len(changed)
    left, holds = [0.0] * count, [0.0] * count
    missing, turn = [0] * count, [0] * count
    # The ready phases of each kind are a stretch of one list, the most urgent last. Most
    # insertions and removals happen at the end, where they move few others.
    ready, size, begin = [0] * count, [0] * kinds, [0] * (kinds + 1)
    for phase in range(count):
        left[phase], missing[phase], begun[phase] = work[phase], waits[phase], -1.0
        begin[kind[phase] + 1] += 1
    for k in range(kinds):
        begin[k + 1] += begin[k]
    for place in range(count - 1, -1, -1):
        phase = order[place]
        if missing[phase] == 0:
            k = kind[phase]
            ready[begin[k] + size[k]] = phase
            size[k] += 1
    running, were_running = [0] * count, [0] * count
    runs, ran = 0, 0
    now, changes, turns, done = 0.0, 0, 0, 0
    while done < count:
        running, were_running = were_running, running
        runs, ran = 0, runs
        turns += 1
        step = inf
        for k in range(kinds):
            free, place = capacity[k], begin[k] + size[k] - 1
            while free > 0.0 and place >= begin[k]:
                phase = ready[place]
                share = max_share[phase]
                if share > free:
                    share = free
                free -= share
                place -= 1
                turn[phase] = turns
                running[runs] = phase
                runs += 1
                lasts = left[phase] / share
                if lasts < step:
                    step = lasts
                if holds[phase] != share:
                    if begun[phase] < 0.0:
                        begun[phase] = now
                    holds[phase] = share
                    if changes < room:
                        changed[changes], since[changes], slots[changes] = phase, now, share
                    changes += 1
        for place in range(ran):
            phase = were_running[place]
            if turn[phase] != turns and holds[phase] > 0.0:  # It has lost its slots.
                holds[phase] = 0.0
                if changes < room:
                    changed[changes], since[changes], slots[changes] = phase, now, 0.0
                changes += 1
        assert step < inf, "a phase is ready while some are not done"
        # Work is counted from rounded instants. Otherwise pieces that last over many ends would
        # be too short or too long by the sum of the rounding errors.
        then = now + step
        step, now = then - now, then
        tick = CLOCK * now
        for place in range(runs):
            phase = running[place]
            left[phase] -= holds[phase] * step
            if left[phase] > ROUNDING * work[phase] and left[phase] > tick * holds[phase]:
                continue
            end[phase], holds[phase] = now, 0.0
            done += 1
            if changes < room:
                changed[changes], since[changes], slots[changes] = phase, now, 0.0
            changes += 1
            k = kind[phase]
            spot = begin[k] + size[k] - 1
            while ready[spot] != phase:
                spot -= 1
            size[k] -= 1
            for other in range(spot, begin[k] + size[k]):
                ready[other] = ready[other + 1]
            for arc in range(after_first[phase], after_first[phase + 1]):
                follower = after[arc]
                missing[follower] -= 1
                if missing[follower] == 0:
                    readied[follower] = now
                    k = kind[follower]
                    spot = begin[k] + size[k]
                    size[k] += 1
                    while spot > begin[k] and rank[ready[spot - 1]] < rank[follower]:
                        ready[spot] = ready[spot - 1]
                        spot -= 1
                    ready[spot] = follower
    return changes


RUN_LIST = (
    f"int64({FLOATS}, {INTS}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, {INTS}, {INTS}, {INTS},"
    f" {FLOATS}, {FLOATS}, {FLOATS}, {INTS}, {FLOATS}, {FLOATS})"
)
"""The types of the arguments of `run_list`, in order."""


# Slots shared by level: equally urgent phases share slots, so that they stay equally urgent.
#
# In a list schedule a phase gets all the slots that it can use before the next one gets any.
# Sharing may be better for a maximum of costs: two phases of 40 seconds on 10 slots, each on 8
# at most, are done at 8 if they share, and at 8.75 in a list. This is the level algorithm of
# Muntz and Coffman (1970), extended to phases that can use several slots and to one deadline
# per flow.

ALIKE = 1e-9
"""Part of the schedule's length; latest starts that are closer count as equal."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A schedule in which slots are shared.

    completion  of each flow, seconds
    packing     pieces (start, end, slots) of each phase, slots being any real number
    """

    completion: Floats
    packing: Packing


def share_by_level(flows: FlowProblem, due: Floats) -> Shared:
    """The schedule that gives slots to the ready phases with the earliest latest starts.

    The latest start of a phase is the instant from which on its max share completes it just in
    time for its flow's due date. It moves later while the phase gets slots. Phases with the
    same latest start share the slots left for them, each the same part of its max share, so
    they stay equal. Phases that catch up with others join them. For one flow of independent
    phases this is the shortest schedule. O(N) for each of N completions and of the instants at
    which phases join.

    due  of each flow, seconds, finite
    """
    until, left = flows.inherited(due)[flows.flow] - flows.tail, flows.work.copy()
    waits = _Waits(flows)
    ready = waits.first()
    alike = ALIKE * float(flows.volume.sum() / flows.capacity.sum() + flows.critical_path.max())
    packing: Packing = [[] for _ in left]
    end, now = np.zeros(len(left)), 0.0
    while len(ready):
        starts = until[ready] - left[ready] / flows.max_share[ready]
        ready = ready[np.argsort(starts, kind="stable")]
        starts.sort()
        slots, step = _shares(flows, ready, starts, alike)
        runs, slots = ready[slots > 0], slots[slots > 0]
        step = min(step, float((left[runs] / slots).min()))
        before, now = now, now + step
        if before < now:  # Otherwise rounding loses the step.
            for phase, held in zip(runs.tolist(), slots.tolist(), strict=True):
                packing[phase].append((before, now, held))
        left[runs] -= slots * (now - before)  # From rounded instants, as pieces are measured.
        ended = runs[left[runs] <= np.maximum(ROUNDING * flows.work[runs], CLOCK * now * slots)]
        if len(ended):
            end[ended] = now
            ready = np.concatenate([np.setdiff1d(ready, ended), waits.released(ended)])
    return Shared(np.maximum.reduceat(end, flows.first[:-1]), packing)


def _shares(
    flows: FlowProblem, ready: Ints, starts: Floats, alike: float
) -> tuple[Floats, float]:
    """The slots of each ready phase, and the seconds until the first latest starts meet.

    starts  the latest start of each, in ascending order
    """
    slots, meeting = np.zeros(len(ready)), inf
    for kind, capacity in enumerate(flows.capacity.tolist()):
        mine = np.flatnonzero(flows.kind[ready] == kind)
        if not len(mine):
            continue
        max_share, apart = flows.max_share[ready[mine]], np.diff(starts[mine])
        group = np.concatenate([[0], np.cumsum(apart > alike)])
        needs = np.bincount(group, max_share)
        part = np.diff(np.minimum(np.cumsum(needs), capacity), prepend=0.0) / needs
        slots[mine] = part[group] * max_share
        # With a part p of its max share, the latest start of a phase moves by p per second.
        closing = part[:-1] - part[1:]
        first = starts[mine][np.concatenate([[True], apart > alike])]
        seconds = np.divide(
            np.diff(first), closing, out=np.full(len(closing), inf), where=closing > 0
        )
        meeting = min(meeting, float(seconds.min(initial=inf)))
    return slots, meeting


class _Waits:
    """The precedence between phases that are not done."""

    def __init__(self, flows: FlowProblem) -> None:
        self._first, self._after, waits = flows.after
        self._missing = waits.copy()

    def first(self) -> Ints:
        """The phases that wait for nothing."""
        return np.flatnonzero(self._missing == 0)

    def released(self, ended: Ints) -> Ints:
        """The phases whose last predecessors are among these."""
        come = [self._after[:0]]
        for phase in ended.tolist():
            followers = self._after[self._first[phase] : self._first[phase + 1]]
            self._missing[followers] -= 1  # A follower waits for a phase once.
            come.append(followers[self._missing[followers] == 0])
        return np.concatenate(come)
