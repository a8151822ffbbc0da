"""Slots shared by level: equally urgent phases share slots, so that they stay equally urgent.

In a list schedule a phase gets all the slots that it can use before the next one gets any.
Sharing may be better for a maximum of costs: two phases of 40 seconds on 10 slots, each on 8 at
most, are done at 8 if they share, and at 8.75 in a list. This is the level algorithm of Muntz
and Coffman (1970), extended to phases that can use several slots and to one deadline per flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from slotwise.allocation.flowflex.flows import FlowProblem
from slotwise.allocation.packing.pieces import Packing
from slotwise.allocation.tolerances import CLOCK, ROUNDING
from slotwise.objective.costs import Floats, Ints

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
    until, left = due[flows.flow] - flows.tail, flows.work.copy()
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
