"""The graph of a dataflow job as data: nodes, channels between them, and written outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from slotwise.core.resources import NOTHING, Resources
from slotwise.jobs.formats.inputs import input_format
from slotwise.jobs.formats.splits import HeldBy, Split, bytes_on_hosts

Kind = Literal["file", "tcp", "shm", "direct"]
"""How records pass from a writer to a reader.

file    the reader starts when the writer is done
tcp     both run at the same time
shm     both run at the same time, on one host; the records are in shared memory
direct  the writer is a source, and the reader reads the input itself: the source does not run
"""

RUNNING: tuple[Kind, ...] = ("tcp", "shm")
"""The kinds of channels whose ends run at the same time."""

Route = Literal["pairs", "all", "hash"]
"""Which copies of a reader get a record.

pairs  copy i of the reader reads from copy i of the writer
all    each copy of the reader (often the only one) gets the records of all copies of the writer
hash   the copy of the reader with the number stable_hash(by(record)) % copies
"""

OUT = "out"
"""The name of the only output of a node without named outputs."""


class NodeCopy(NamedTuple):
    """One copy of a node; copies are numbered from 0."""

    node: str
    copy: int

    def __str__(self) -> str:
        return f"{self.node}[{self.copy}]"


class RecordSource(Protocol):
    """The records of a source; each copy has a part of them."""

    @property
    def copies(self) -> int:
        """The number of parts."""
        ...

    def records(self, copy: int) -> Iterator[object]:
        """Yield the records of one part in order. Raises OSError or InputChanged."""
        ...

    def bytes_of(self, copy: int) -> int:
        """Return the approximate bytes of one part, for estimates."""
        ...

    def bytes_on_hosts(self, copy: int) -> Mapping[str, int]:
        """Return how many bytes of one part each host holds, as far as known."""
        ...

    def describe(self, copy: int) -> str:
        """Return the part for messages."""
        ...


@dataclass(frozen=True, slots=True)
class SplitSource:
    """The splits of input files. A record is a line, a value of JSON, or a row (a dict).

    With `tables`, records are Arrow tables of many lines or rows. `held` has the known hosts of
    the blocks of each file.
    """

    format_name: str
    splits: tuple[Split, ...]
    tables: bool = False
    held: HeldBy = field(default_factory=dict)

    @property
    def copies(self) -> int:
        """The number of splits."""
        return len(self.splits)

    def records(self, copy: int) -> Iterator[object]:
        """Yield the records of a split."""
        found = input_format(self.format_name)
        for piece in self.splits[copy]:
            if self.tables:
                yield from found.tables(piece)
            else:
                yield from chain.from_iterable(values for _, values in found.records(piece))

    def bytes_of(self, copy: int) -> int:
        """Return the bytes of a split."""
        return sum(piece.size_bytes for piece in self.splits[copy])

    def bytes_on_hosts(self, copy: int) -> Mapping[str, int]:
        """Return the bytes of a split on each host."""
        return bytes_on_hosts(self.splits[copy], self.held)

    def describe(self, copy: int) -> str:
        """Return the piece of a split, or its first and last file."""
        split = self.splits[copy]
        return str(split[0]) if len(split) == 1 else f"{split[0].path} to {split[-1].path}"


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Records that are part of the graph; `sizes` are the bytes of the parts."""

    parts: tuple[tuple[object, ...], ...]
    sizes: tuple[int, ...]

    @property
    def copies(self) -> int:
        """The number of parts."""
        return len(self.parts)

    def records(self, copy: int) -> Iterator[object]:
        """Return the records of a part."""
        return iter(self.parts[copy])

    def bytes_of(self, copy: int) -> int:
        """Return the bytes of the pickled records."""
        return self.sizes[copy]

    def bytes_on_hosts(self, copy: int) -> Mapping[str, int]:
        """Return nothing: values are sent with the task."""
        return {}

    def describe(self, copy: int) -> str:
        """Return the number of records."""
        return f"{len(self.parts[copy])} values"


@dataclass(frozen=True)
class Node:
    """A function or class of the user that runs in `copies` copies, or a source of records.

    function    is called with an iterator for each input, then with `parameters`; a class is
                created with `parameters` and then called with the iterators. None for a source
    outputs     the names of its outputs; with OUT alone, it returns plain records
    work        estimated seconds of one copy; None if not stated
    source      the records of a source; None for other nodes
    resources   what one copy requests of its host beside a slot
    """

    name: str
    function: Callable[..., Any] | None = None
    copies: int = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = (OUT,)
    work: float | None = None
    source: RecordSource | None = None
    resources: Resources = NOTHING


@dataclass(frozen=True)
class Channel:
    """A connection from an output of a node to an input of another one.

    number  its position among the channels of the graph
    input   its position among the inputs of the reader, from 0
    by      the key of a record, for `route` "hash" and for sorting
    sort    each copy of the reader gets its records sorted by key; equal keys keep their order
    spills  records not read yet are stored in bounded memory, then on disk, and the writer
            never waits. All other running channels make the writer wait
    """

    number: int
    writer: str
    output: str
    reader: str
    input: int
    kind: Kind
    route: Route
    by: Callable[[Any], Any] | None = None
    sort: bool = False
    spills: bool = False

    def __str__(self) -> str:
        writer = self.writer if self.output == OUT else f"{self.writer}[{self.output!r}]"
        return f"{self.kind} channel from {writer} to {self.reader}"


@dataclass(frozen=True, slots=True)
class Written:
    """An output of a node that is written to the output of the job, a part for each copy.

    `folder` is the folder in the output of the job; "" if it is the only written output.
    """

    node: str
    output: str
    output_format: str
    folder: str


@dataclass(frozen=True)
class Graph:
    """A checked graph: nodes in topological order, copies counted, inputs connected."""

    nodes: Mapping[str, Node]
    channels: tuple[Channel, ...]
    written: tuple[Written, ...] = ()

    def inputs(self, node: str) -> tuple[Channel, ...]:
        """Return the channels that a node reads, in the order of its inputs."""
        return self._inputs.get(node, ())

    def outputs(self, node: str) -> tuple[Channel, ...]:
        """Return the channels that a node writes."""
        return self._outputs.get(node, ())

    def runs(self, node: str) -> bool:
        """Return whether copies of the node run. A source that is only read directly does not.

        A source that is only written to the output of the job runs, too.
        """
        if self.nodes[node].source is None:
            return True
        return any(channel.kind != "direct" for channel in self.outputs(node)) or any(
            written.node == node for written in self.written
        )

    def writers(self, channel: Channel, reader: int) -> range:
        """Return the copies of the writer that a copy of the reader reads, in this order."""
        if channel.route == "pairs":
            return range(reader, reader + 1)
        return range(self.nodes[channel.writer].copies)

    def readers(self, channel: Channel, writer: int) -> range:
        """Return the copies of the reader that read from a copy of the writer."""
        if channel.route == "pairs":
            return range(writer, writer + 1)
        return range(self.nodes[channel.reader].copies)

    @cached_property
    def _inputs(self) -> dict[str, tuple[Channel, ...]]:
        ordered = sorted(self.channels, key=lambda channel: (channel.input, channel.number))
        return _by_name((channel.reader, channel) for channel in ordered)

    @cached_property
    def _outputs(self) -> dict[str, tuple[Channel, ...]]:
        return _by_name((channel.writer, channel) for channel in self.channels)


def _by_name(named: Iterable[tuple[str, Channel]]) -> dict[str, tuple[Channel, ...]]:
    found: dict[str, list[Channel]] = {}
    for name, channel in named:
        found.setdefault(name, []).append(channel)
    return {name: tuple(channels) for name, channels in found.items()}


# Circles in graphs: a directed circle, and the edges that lie on undirected circles.

V = TypeVar("V", bound=Hashable)


def find_circle(after: Mapping[V, Collection[V]]) -> list[V]:
    """Return a circle of vertices that wait for each other, in the order of the flow, or [].

    `after` maps each vertex to those that it waits for. The first is repeated at the end.
    """
    waiting = {vertex: set(before) for vertex, before in after.items()}
    followers: dict[V, list[V]] = {vertex: [] for vertex in after}
    for vertex, before in waiting.items():
        for other in before:
            followers[other].append(vertex)
    ready = [vertex for vertex, before in waiting.items() if not before]
    while ready:
        vertex = ready.pop()
        del waiting[vertex]
        for later in followers[vertex]:
            waiting[later].discard(vertex)
            if not waiting[later]:
                ready.append(later)
    if not waiting:
        return []
    path: dict[V, None] = {}
    vertex = next(iter(waiting))
    while vertex not in path:  # Each remaining vertex waits for another one.
        path[vertex] = None
        vertex = next(other for other in after[vertex] if other in waiting)
    walked = list(path)
    circle = walked[walked.index(vertex) :]
    return [vertex, *reversed(circle)]


def on_circles(edges: Sequence[tuple[Hashable, Hashable, int]]) -> set[int]:
    """Return the labels of the undirected edges (end, other end, label) that lie on a circle.

    These are all edges except bridges. Two edges with the same ends are a circle. About
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
    """Return the edges that close circles, and the tree edges of these circles."""
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
