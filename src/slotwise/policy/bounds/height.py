"""The height bound: each job costs at least as much as at its height, its minimum time alone.

Heights are longer than the longest path if the phases of a job share slots (`stand`), and if
the other jobs hold their min shares (`least_times`). Proofs: docs/algorithms/bounds.md,
sections 1 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, nextafter

import numpy as np

from slotwise.core.costs import Floats
from slotwise.core.objective import Steps
from slotwise.core.tolerances import LEVEL, SAFE
from slotwise.policy.bounds.jobs import BoundJobs, Room, latest_parts
from slotwise.policy.due_dates import fits, needs

MAX_INSTANTS = 128
"""The maximum number of instants considered; fewer make the times shorter, not wrong."""

LONG = 100
"""For jobs with more phases only paths are used: the rest takes O(n^2 log n)."""


def height_bound_sum(jobs: BoundJobs) -> float:
    """A lower bound on the sum: each job costs at least as much as alone. O(J)."""
    return float(jobs.costs.at(jobs.soonest).sum())


def height_bound_max(jobs: BoundJobs) -> float:
    """A lower bound on the maximum: the most expensive job, each alone. O(J)."""
    return float(jobs.costs.at(jobs.soonest).max())


def fitted(jobs: BoundJobs, capacity: float) -> BoundJobs:
    """The same jobs, with rates and heights limited by the capacity and min shares."""
    rate = np.minimum(jobs.rate, capacity)
    min_share = np.minimum(jobs.min_share, rate)
    height = np.maximum(jobs.height, jobs.work / rate)
    if np.all(jobs.arrival == jobs.arrival[:1]):
        height = np.maximum(height, least_times(capacity, jobs.work, min_share, rate))
    parts = jobs.parts.fitted(capacity)
    return replace(jobs, rate=rate, height=height, min_share=min_share, parts=parts)


def least_times(capacity: float, work: Floats, min_share: Floats, max_share: Floats) -> Floats:
    """Minimum seconds from 0 to the completion of each job, if all are present at 0.

    By any instant the others have had their min shares. Work that does not fit in the rest must
    be done later, at the max share of the job. O(J) for each instant considered.
    """
    heights: Floats = work / max_share
    held = np.where(min_share > 0, min_share, 1.0)
    ends = np.unique((work / held)[(min_share > 0) & (work > 0)])
    if not len(ends):
        return heights
    if len(ends) > MAX_INSTANTS:
        ends = ends[np.linspace(0, len(ends) - 1, MAX_INSTANTS).astype(int)]
    instants = np.concatenate([[0.0], ends])
    own = np.minimum(work[:, None], min_share[:, None] * instants)
    rooms = capacity * instants - own.sum(axis=0) + own
    # Room is convex, so between two instants it is at most the linear interpolation.
    grown = np.diff(rooms, axis=1) / np.diff(instants)
    last = np.full((len(work), 1), capacity)
    pace = np.minimum(np.concatenate([grown, last], axis=1), max_share[:, None])
    excess = np.maximum(work[:, None] - rooms, 0.0)
    # From an instant on at its max share; if it ends before the next one, at the room's slope.
    fits_next = np.concatenate([excess[:, 1:] == 0, np.ones((len(work), 1), bool)], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = excess / np.where(fits_next, pace, max_share[:, None])
    needed = np.where(excess > 0, instants + needed, 0.0)
    times: Floats = np.maximum(heights, needed.max(axis=1))
    return times


@dataclass(frozen=True, slots=True)
class DagPhase:
    """A phase of a job. It refers to other phases by index, all lower than its own.

    work       seconds at speed 1
    length     its minimum duration, seconds
    kind       of slots: an index
    after      phases that are done before it begins
    continues  a phase that begins before it begins and is done before it is done, or None
    """

    work: float
    length: float
    kind: int = 0
    after: Sequence[int] = ()
    continues: int | None = None


@dataclass(frozen=True, slots=True)
class CriticalPathTimes:
    """The earliest start and the minimum time after the end of each phase; the job's height.

    All in seconds; starts count from the arrival of the job.
    """

    head: list[float]
    tail: list[float]
    height: float


def critical_path(nodes: Sequence[DagPhase]) -> float:
    """The longest path, seconds: the time of the job with unlimited slots. O(n + arcs)."""
    head = [0.0] * len(nodes)
    for k, node in enumerate(nodes):
        head[k] = _path_to(nodes, head, node)
    return max(at + node.length for at, node in zip(head, nodes, strict=True))


def stand(nodes: Sequence[DagPhase], capacity: Sequence[float]) -> CriticalPathTimes:
    """Bounds for a job alone on a capacity of each kind, in work per second.

    Heads and tails are longest paths, raised by areas. All work before a phase must fit: of the
    phases before it, those that begin at a or later take their work over the capacity of their
    kind from a on. The same holds, in reverse, for the phases that begin after its end.
    """
    count = len(nodes)
    before, later = _before(nodes) if count <= LONG else ([0] * count, [0] * count)
    areas = [node.work / capacity[node.kind] for node in nodes]
    head, tail = [0.0] * count, [0.0] * count
    for k, node in enumerate(nodes):
        area = _area(nodes, areas, head, before[k])
        head[k] = max(_path_to(nodes, head, node), area)
    for k in range(count - 1, -1, -1):
        node = nodes[k]
        tail[k] = max(tail[k], _area(nodes, areas, tail, later[k]))
        for other in node.after:
            tail[other] = max(tail[other], tail[k] + node.length)
        if node.continues is not None:
            tail[node.continues] = max(tail[node.continues], tail[k])
    path = max(at + node.length + end for at, node, end in zip(head, nodes, tail, strict=True))
    return CriticalPathTimes(head, tail, max(path, _area(nodes, areas, head, (1 << count) - 1)))


def _path_to(nodes: Sequence[DagPhase], head: list[float], node: DagPhase) -> float:
    at = max((head[other] + nodes[other].length for other in node.after), default=0.0)
    # Tasks that continue others need not wait for all of these.
    return at if node.continues is None else max(at, head[node.continues])


def _before(nodes: Sequence[DagPhase]) -> tuple[list[int], list[int]]:
    """For each phase, as bits, those that are done when it begins, and the reverse relation."""
    before: list[int] = []
    done: list[int] = []  # When it is done itself.
    later = [0] * len(nodes)
    for k, node in enumerate(nodes):
        ahead = 0
        for other in node.after:
            ahead |= done[other]
        own = 1 << k
        if node.continues is not None:
            ahead |= before[node.continues]
            own |= done[node.continues]
        before.append(ahead)
        done.append(ahead | own)
        for other in _bits(ahead):
            later[other] |= 1 << k
    return before, later


def _area(
    nodes: Sequence[DagPhase], areas: list[float], starts: list[float], some: int
) -> float:
    """The maximum of a + (work of one kind that starts at a or later) / its capacity."""
    shortest = 0.0
    sums: dict[int, float] = {}
    for k in sorted(_bits(some), key=starts.__getitem__, reverse=True):
        kind = nodes[k].kind
        sums[kind] = sums.get(kind, 0.0) + areas[k]
        shortest = max(shortest, starts[k] + sums[kind])
    return shortest


def _bits(some: int) -> Iterable[int]:
    while some:
        low = some & -some
        yield low.bit_length() - 1
        some ^= low


# The due date bound of a maximum: the least level at which all jobs can complete in time.

MAX_STARTS = 64
"""The maximum number of starts that are tested; fewer make the bound weaker, not wrong."""


HALVINGS = 100


def due_date_bound(jobs: BoundJobs, capacity: float) -> float:
    """A lower bound on the largest cost; the optimum if all jobs arrive at one instant.

    If no job costs more than a level L, each is complete by the latest instant at which it
    costs L, and each of its parts by its minimum tail before that. From any instant on, the
    work that must be done by each later instant must fit. The returned value is at most a level
    that was shown not to fit, whatever the precision of the bisection. About 50 tests of
    O(N log N) for N parts; about 300 for jobs that arrive one by one or have several parts.
    """
    jumps = _jumps(jobs)
    level = height_bound_max(jobs)
    begins = jobs.arrival[jobs.parts.job] + jobs.parts.head
    first = float(jobs.arrival.min())
    for start in _starts(np.concatenate([[first], begins])):
        if start == first and not jobs.parts.are_whole and jobs.work.any():
            level = _least_level(_from_the_first(jobs, capacity), level, jumps)
        else:
            level = _least_level(_within(jobs, capacity, start), level, jumps)
    return level


def _from_the_first(jobs: BoundJobs, capacity: float) -> Callable[[float], bool]:
    """A test of a level: whether the work that must be done by each instant fits.

    The demand has the parts of each job as late as possible for the job alone, the room has
    them as early as possible.
    """
    parts, first = latest_parts(jobs.parts, capacity), float(jobs.arrival.min())
    min_share, heights = jobs.least_of(parts), parts.work / parts.rate
    room = Room.of(jobs, capacity)
    grace = 1 + SAFE

    def are_in_time(level: float) -> bool:
        due = np.maximum(jobs.costs.latest(level), jobs.soonest)[parts.job] - parts.tail - first
        if np.any(due * grace < heights):
            return False
        instants, needed = needs(parts.work, min_share, parts.rate, np.maximum(due, heights))
        # What is needed has the rounding of instants, which may be much larger than the work.
        rounded = SAFE * capacity * instants
        # When all work can be done, the needed work can be done, whatever the rounding.
        available = np.where(
            instants < room.full, room.after(instants * grace) * grace + rounded, np.inf
        )
        return bool(np.all(needed <= available))

    return are_in_time


def _within(jobs: BoundJobs, capacity: float, start: float) -> Callable[[float], bool]:
    """A test of a level: whether the work that must be done from `start` on fits."""
    parts = jobs.parts
    begin = jobs.arrival[parts.job] + parts.head
    work = np.maximum(parts.work - parts.rate * np.maximum(start - begin, 0.0), 0.0)
    # A job holds its min share from the start on only if it has arrived by then.
    min_share = np.where(begin <= start, jobs.least_of(parts), 0.0)

    def are_in_time(level: float) -> bool:
        due = jobs.costs.latest(level)
        due = np.maximum(due, jobs.soonest)  # Levels start at the heights, up to rounding.
        # Some may be complete before the start.
        due = np.where(work > 0, due[parts.job] - parts.tail - start, inf)
        return fits(capacity, work, min_share, parts.rate, due)

    return are_in_time


def _least_level(fits_at: Callable[[float], bool], level: float, jumps: Floats) -> float:
    """The least level >= `level` that fits, approached from below; fitting is monotonic."""
    if fits_at(level):
        return level
    low, high = level, inf
    # The first cost of a step that fits: between two of these costs no cost jumps.
    above = jumps[jumps > level]
    first, last = 0, len(above)
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if fits_at(above[middle]) else (middle + 1, last)
    if first > 0:
        low = float(above[first - 1])
    if first < len(above):
        step = float(above[first])
        high = nextafter(step, -inf)
        if high <= low or not fits_at(high):
            return step
    else:
        reach = max(abs(low), 1e-9)
        while (high := low + reach) < inf and not fits_at(high):
            low, reach = high, 2 * reach
    return _bisected(fits_at, low, high)


def _bisected(fits_at: Callable[[float], bool], low: float, high: float) -> float:
    """A level that does not fit, slightly below one that does; `low` does not, `high` does."""
    for _ in range(HALVINGS):
        if high - low <= LEVEL * max(abs(low), abs(high)):
            break
        middle = low + (high - low) / 2
        low, high = (low, middle) if fits_at(middle) else (middle, high)
    return low


def _jumps(jobs: BoundJobs) -> Floats:
    costs = [cost for job in jobs.costs if isinstance(job, Steps) for _, cost in job.steps]
    return np.unique(np.array(costs, dtype=float))


def _starts(begins: Floats) -> Floats:
    starts = np.unique(begins)
    if len(starts) > MAX_STARTS:
        starts = starts[np.linspace(0, len(starts) - 1, MAX_STARTS).astype(int)]
    return starts
