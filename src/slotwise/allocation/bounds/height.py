"""The height bound: each job costs at least as much as at its height, its minimum time alone.

Heights are longer than the longest path if the phases of a job share slots (`stand`), and if
the other jobs hold their min shares (`least_times`). Proofs: docs/algorithms/bounds.md,
sections 1 and 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.objective.costs import Floats

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
    behind = np.maximum(work[:, None] - rooms, 0.0)
    # From an instant on at its max share; if it ends before the next one, at the room's slope.
    fits_next = np.concatenate([behind[:, 1:] == 0, np.ones((len(work), 1), bool)], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = behind / np.where(fits_next, pace, max_share[:, None])
    needed = np.where(behind > 0, instants + needed, 0.0)
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
    before, behind = _before(nodes) if count <= LONG else ([0] * count, [0] * count)
    areas = [node.work / capacity[node.kind] for node in nodes]
    head, tail = [0.0] * count, [0.0] * count
    for k, node in enumerate(nodes):
        area = _area(nodes, areas, head, before[k])
        head[k] = max(_path_to(nodes, head, node), area)
    for k in range(count - 1, -1, -1):
        node = nodes[k]
        tail[k] = max(tail[k], _area(nodes, areas, tail, behind[k]))
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
    behind = [0] * len(nodes)
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
            behind[other] |= 1 << k
    return before, behind


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
