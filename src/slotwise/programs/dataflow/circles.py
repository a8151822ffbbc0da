"""Circles in graphs: a directed one, and the edges that lie on undirected ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

V = TypeVar("V", bound=Hashable)


def find_circle(after: Mapping[V, Collection[V]]) -> list[V]:
    """Vertices that wait for each other, in the order of what flows; empty if there are none.

    `after` maps each vertex to those that it waits for. The first is repeated at the end.
    """
    waiting = {vertex: set(before) for vertex, before in after.items()}
    behind: dict[V, list[V]] = {vertex: [] for vertex in after}
    for vertex, before in waiting.items():
        for other in before:
            behind[other].append(vertex)
    ready = [vertex for vertex, before in waiting.items() if not before]
    while ready:
        vertex = ready.pop()
        del waiting[vertex]
        for later in behind[vertex]:
            waiting[later].discard(vertex)
            if not waiting[later]:
                ready.append(later)
    if not waiting:
        return []
    path: dict[V, None] = {}
    vertex = next(iter(waiting))
    while vertex not in path:  # Each that is left waits for another that is left.
        path[vertex] = None
        vertex = next(other for other in after[vertex] if other in waiting)
    walked = list(path)
    circle = walked[walked.index(vertex) :]
    return [vertex, *reversed(circle)]


def on_circles(edges: Sequence[tuple[Hashable, Hashable, int]]) -> set[int]:
    """The labels of the undirected edges (one end, other end, label) that lie on a circle.

    Two edges with the same ends are a circle. An edge lies on one unless it is a bridge. About
    O(edges).
    """
    at: dict[Hashable, list[int]] = {}
    for place, (one, other, _) in enumerate(edges):
        at.setdefault(one, []).append(place)
        at.setdefault(other, []).append(place)
    depth: dict[Hashable, int] = {}
    above: dict[
        Hashable, tuple[Hashable, int]
    ] = {}  # The next vertex of the tree, and the edge.
    closing: list[int] = []
    used: set[int] = set()
    for root in at:
        if root in depth:
            continue
        depth[root] = 0
        queue = deque([root])
        while queue:
            vertex = queue.popleft()
            for place in at[vertex]:
                if place in used:
                    continue
                used.add(place)
                one, other, _ = edges[place]
                reached = other if vertex == one else one
                if reached in depth:
                    closing.append(place)
                else:
                    depth[reached] = depth[vertex] + 1
                    above[reached] = (vertex, place)
                    queue.append(reached)
    return {edges[place][2] for place in _closed(edges, closing, depth, above)}


def _closed(
    edges: Sequence[tuple[Hashable, Hashable, int]],
    closing: Iterable[int],
    depth: Mapping[Hashable, int],
    above: Mapping[Hashable, tuple[Hashable, int]],
) -> set[int]:
    """The edges that close circles, with the edges of the tree that these go through."""
    found: set[int] = set()
    merged: dict[Hashable, Hashable] = {}  # Vertices whose edge towards the root is found.

    def top(vertex: Hashable) -> Hashable:
        passed = []
        while vertex in merged:
            passed.append(vertex)
            vertex = merged[vertex]
        merged.update(dict.fromkeys(passed, vertex))
        return vertex

    for place in closing:
        found.add(place)
        one, other = top(edges[place][0]), top(edges[place][1])
        while one != other:
            if depth[one] < depth[other]:
                one, other = other, one
            merged[one], edge = above[one]
            found.add(edge)
            one = top(one)
    return found
