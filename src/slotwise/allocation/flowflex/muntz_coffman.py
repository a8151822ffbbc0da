"""Slots shared by level: phases that are equally urgent get equally urgent together.

Lists give all that a phase can use before the next one gets any. Where the largest cost counts
it may be better to share: two phases of 40 seconds on 10 slots, each on 8 at most, are done at
8 if they share, and at 8.75 in a list. This is the level algorithm of Muntz and Coffman (1970)
for phases that can use several slots and for deadlines in place of one end.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from slotwise.allocation.flowflex.flows import Flows, Ints
from slotwise.allocation.mcnaughton import CLOCK, ROUNDING
from slotwise.allocation.packing.pieces import Packing
from slotwise.objective.costs import Floats

ALIKE = 1e-9
"""Of the whole schedule's length; latest starts that are closer are the same."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A schedule in which slots are shared.

    completion  of each flow, seconds
    packing     pieces (start, end, slots) of each phase, slots being any real number
    """

    completion: Floats
    packing: Packing


def share_by_level(flows: Flows, due: Floats) -> Shared:
    """Slots to the ready phases that must start soonest to meet their flows' due dates.

    A phase must start at the latest when, with its most share from then on, it is done just in
    time; as it gets slots, that instant recedes. Those with the same latest start share what
    is left for them, each the same part of its most share, so they stay together; where phases
    catch up with others, they join them. For one flow of independent phases that is the
    shortest schedule. O(N) for each of N ends and of the meetings between them.

    due  of each flow, seconds, not inf
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
        if before < now:  # Else the step is lost in rounding.
            for phase, held in zip(runs.tolist(), slots.tolist(), strict=True):
                packing[phase].append((before, now, held))
        left[runs] -= slots * (now - before)  # By the clock, as the pieces will be measured.
        ended = runs[left[runs] <= np.maximum(ROUNDING * flows.work[runs], CLOCK * now * slots)]
        if len(ended):
            end[ended] = now
            ready = np.concatenate([np.setdiff1d(ready, ended), waits.released(ended)])
    return Shared(np.maximum.reduceat(end, flows.first[:-1]), packing)


def _shares(flows: Flows, ready: Ints, starts: Floats, alike: float) -> tuple[Floats, float]:
    """The slots of each ready phase, and in how many seconds the first of them meet.

    starts  the latest start of each, in order
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
        # The latest start of phases with a part p of their most shares recedes by p a second.
        closing = part[:-1] - part[1:]
        first = starts[mine][np.concatenate([[True], apart > alike])]
        seconds = np.divide(
            np.diff(first), closing, out=np.full(len(closing), inf), where=closing > 0
        )
        meeting = min(meeting, float(seconds.min(initial=inf)))
    return slots, meeting


class _Waits:
    """Which phases wait for which."""

    def __init__(self, flows: Flows) -> None:
        self._first, self._after, waits = flows.after
        self._missing = waits.copy()

    def first(self) -> Ints:
        """The phases that wait for nothing."""
        return np.flatnonzero(self._missing == 0)

    def released(self, ended: Ints) -> Ints:
        """Those that waited for these last."""
        come = [self._after[:0]]
        for phase in ended.tolist():
            followers = self._after[self._first[phase] : self._first[phase + 1]]
            self._missing[followers] -= 1  # A follower waits for a phase once.
            come.append(followers[self._missing[followers] == 0])
        return np.concatenate(come)
