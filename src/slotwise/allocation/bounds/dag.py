"""The earliest and latest position in time of the phases of a job that has all slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LONG = 100
"""For jobs with more phases only paths are used: the rest takes O(n^2 log n)."""


@dataclass(frozen=True, slots=True)
class Node:
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
class Stand:
    """The earliest start and the minimum time after the end of each phase; the job's height.

    All in seconds; starts count from the arrival of the job.
    """

    head: list[float]
    tail: list[float]
    height: float


def critical_path(nodes: Sequence[Node]) -> float:
    """The longest path, seconds: the time of the job with unlimited slots. O(n + arcs)."""
    head = [0.0] * len(nodes)
    for k, node in enumerate(nodes):
        head[k] = _path_to(nodes, head, node)
    return max(at + node.length for at, node in zip(head, nodes, strict=True))


def stand(nodes: Sequence[Node], capacity: Sequence[float]) -> Stand:
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
    return Stand(head, tail, max(path, _area(nodes, areas, head, (1 << count) - 1)))


def _path_to(nodes: Sequence[Node], head: list[float], node: Node) -> float:
    at = max((head[other] + nodes[other].length for other in node.after), default=0.0)
    # Tasks that continue others need not wait for all of these.
    return at if node.continues is None else max(at, head[node.continues])


def _before(nodes: Sequence[Node]) -> tuple[list[int], list[int]]:
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


def _area(nodes: Sequence[Node], areas: list[float], starts: list[float], some: int) -> float:
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
