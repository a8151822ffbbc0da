"""Derive stages from a graph: which node copies run together, on one host, or in order.

Node copies joined by shared memory form a group, which runs on one host. Groups joined by TCP
form a bundle, which starts together (Hammr, section 3). A stage becomes one phase of the job:
either equal bundles of one group each, or one bundle of several groups, which is a gang. File
channels order stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from slotwise.core.errors import InputError
from slotwise.core.resources import GPU, NOTHING, UNIT, Resources
from slotwise.jobs.dataflow.nodes import (
    RUNNING,
    Channel,
    Graph,
    NodeCopy,
    RecordSource,
    find_circle,
    on_circles,
)

Copies = tuple[NodeCopy, ...]
Item = TypeVar("Item", str, NodeCopy)


@dataclass(frozen=True)
class DataflowStage:
    """A stage becomes one phase; its groups are the tasks, in this order.

    gang   all groups start together, because TCP channels join them
    after  the names of the stages whose files it reads
    work   estimated seconds of each group: those of its longest copy
    needs  what each task requests beside slots: that of all copies of a group together, of
           each resource as much as any group
    """

    name: str
    groups: tuple[Copies, ...]
    gang: bool
    after: frozenset[str]
    work: tuple[float, ...]
    needs: Resources = NOTHING

    @property
    def slots(self) -> int:
        """The slots of each task: a slot for each copy of the largest group."""
        return max(map(len, self.groups))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the stage."""
        return tuple(dict.fromkeys(copy.node for group in self.groups for copy in group))


@dataclass(frozen=True)
class StagedGraph:
    """A graph with its stages. Its channels state whether they spill."""

    graph: Graph
    stages: tuple[DataflowStage, ...]

    @cached_property
    def by_name(self) -> dict[str, DataflowStage]:
        """The stages by name."""
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def tasks(self) -> dict[NodeCopy, tuple[str, int]]:
        """The stage of each node copy that runs, and the number of its group in it."""
        return {
            copy: (stage.name, number)
            for stage in self.stages
            for number, group in enumerate(stage.groups)
            for copy in group
        }


def derive(graph: Graph) -> StagedGraph:
    """Derive the stages, each after those that it waits for.

    O(copies + pairs of copies in channels copy to copy). Raises InputError, with the names of
    the nodes, for a file channel, even indirect, between nodes that run at the same time.
    """
    running = [name for name in graph.nodes if graph.runs(name)]
    joined = _joined(
        running, ((c.writer, c.reader) for c in graph.channels if c.kind in RUNNING)
    )
    _check_files(graph, joined)
    parts = list(_ordered(graph, joined))
    graph = _with_spills(graph)
    work = work_of_copies(graph, bytes_of_copies(graph))
    stages: list[DataflowStage] = []
    bundles_of: dict[str, list[str]] = {}
    for nodes in parts:
        made = list(_stages_of(graph, nodes, work, bundles_of))
        bundles_of |= {node: [stage.name for stage in made] for node in nodes}
        stages += made
    return StagedGraph(graph, tuple(stages))


def _stages_of(
    graph: Graph,
    nodes: Sequence[str],
    work: Mapping[NodeCopy, float],
    earlier: Mapping[str, list[str]],
) -> Iterator[DataflowStage]:
    """Yield the stages of nodes that are joined by running channels."""
    name = "+".join(nodes)
    copies = [NodeCopy(node, i) for node in nodes for i in range(graph.nodes[node].copies)]
    inside = [
        channel for node in nodes for channel in graph.outputs(node) if channel.kind in RUNNING
    ]
    hosts = _joined(copies, _pairs(graph, (c for c in inside if c.kind == "shm")))
    together = _joined(copies, _pairs(graph, inside))
    bundles: dict[int, dict[int, list[NodeCopy]]] = {}
    for copy in copies:
        bundles.setdefault(together[copy], {}).setdefault(hosts[copy], []).append(copy)
    found = [tuple(tuple(group) for group in one.values()) for one in bundles.values()]
    if all(len(groups) == 1 for groups in found):
        found = [tuple(groups[0] for groups in found)]
        is_gang = False
    else:
        is_gang = True
    for number, groups in enumerate(found):
        yield DataflowStage(
            name if len(found) == 1 else f"{name}[{number}]",
            groups,
            is_gang,
            frozenset(_after(graph, nodes, earlier, number, len(found))),
            tuple(max(work[copy] for copy in group) for group in groups),
            _needs(graph, groups),
        )


def _needs(graph: Graph, groups: Sequence[Copies]) -> Resources:
    """What each group requests: the largest sum over its copies, of each resource."""
    most: Counter[str] = Counter()
    for group in groups:
        total: Counter[str] = Counter()
        for copy in group:
            total.update(graph.nodes[copy.node].resources)
        most |= total
    if most[GPU] > UNIT:  # A task gets a part of one device, or whole ones.
        most[GPU] = -(-most[GPU] // UNIT) * UNIT
    return Resources(most)


def _after(
    graph: Graph,
    nodes: Sequence[str],
    earlier: Mapping[str, list[str]],
    number: int,
    count: int,
) -> Iterator[str]:
    """Yield the stages that the bundle with this number waits for."""
    for node in nodes:
        for channel in graph.inputs(node):
            if channel.kind != "file":
                continue
            stages = earlier[channel.writer]
            # A bundle needs only the bundle with the same number if the channel has pairs.
            is_paired = channel.route == "pairs" and len(stages) == count
            yield from stages[number : number + 1] if is_paired else stages


def _with_spills(graph: Graph) -> Graph:
    """Return the graph in which channels on circles of running channels spill.

    If a process waits for another only along the edges of a tree, some process can proceed.
    Around a circle, bounded channels that make writers wait could deadlock (Kahn networks).
    """
    edges: list[tuple[object, object, int]] = []
    for channel in graph.channels:
        if channel.kind not in RUNNING:
            continue
        if channel.route == "pairs" or not _many(graph, channel):
            pairs = _pairs(graph, (channel,))
            edges += [(one, other, channel.number) for one, other in pairs]
            continue
        # With n x m edges between 2 or more copies at both ends, each edge lies on a circle and
        # all copies are joined. The same is true of a vertex with two edges to each copy.
        for node in (channel.writer, channel.reader):
            for copy in range(graph.nodes[node].copies):
                edge = (NodeCopy(node, copy), channel.number, channel.number)
                edges += [edge, edge]
    spilling = on_circles(edges)
    channels = tuple(replace(c, spills=c.number in spilling) for c in graph.channels)
    return replace(graph, channels=channels)


def _many(graph: Graph, channel: Channel) -> bool:
    return min(graph.nodes[channel.writer].copies, graph.nodes[channel.reader].copies) > 1


def _pairs(graph: Graph, channels: Iterable[Channel]) -> Iterator[tuple[NodeCopy, NodeCopy]]:
    """Yield pairs of copies that join the same copies as the channels; few of n x m."""
    for channel in channels:
        for writer in range(graph.nodes[channel.writer].copies):
            found = graph.readers(channel, writer)
            for reader in found if channel.route == "pairs" or writer == 0 else found[:1]:
                yield NodeCopy(channel.writer, writer), NodeCopy(channel.reader, reader)


def _joined(items: Sequence[Item], pairs: Iterable[tuple[Item, Item]]) -> dict[Item, int]:
    """Return for each item the number of the first item that it is joined with."""
    number = {item: place for place, item in enumerate(items)}
    above = list(range(len(items)))

    def top(place: int) -> int:
        while above[place] != place:
            above[place] = above[above[place]]
            place = above[place]
        return place

    for one, other in pairs:
        first, second = sorted((top(number[one]), top(number[other])))
        above[second] = first
    return {item: top(place) for item, place in number.items()}


def _check_files(graph: Graph, joined: Mapping[str, int]) -> None:
    for channel in graph.channels:
        if channel.kind == "file" and joined[channel.writer] == joined[channel.reader]:
            names = [name for name in joined if joined[name] == joined[channel.writer]]
            raise InputError(
                f"the {channel} lies inside a bundle: {', '.join(names)} run at the same time,"
                f" because tcp or shm channels join them, but {channel.reader} would start only"
                f" when {channel.writer} is done; make this channel tcp or shm too, or one of"
                " the others file"
            )


def _ordered(graph: Graph, joined: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the joined nodes, each part after the parts whose files it reads."""
    parts: dict[int, list[str]] = {}
    for name, number in joined.items():
        parts.setdefault(number, []).append(name)
    after = {
        number: {
            joined[channel.writer]
            for node in nodes
            for channel in graph.inputs(node)
            if channel.kind == "file"
        }
        for number, nodes in parts.items()
    }
    if circle := find_circle(after):
        names = " -> ".join("+".join(parts[number]) for number in circle)
        raise InputError(
            f"bundles wait for each other's files in a circle: {names}; nodes joined by + run"
            " at the same time, because tcp or shm channels join them; make one of these"
            " channels file"
        )
    left = dict(parts)
    while left:
        number = next(n for n in left if not after[n] & left.keys())
        yield left.pop(number)


# Estimates of the bytes that copies of nodes read, and of their work.

BYTES_PER_SECOND = 20e6
"""The assumed bytes of input that a copy of a node processes in a second."""


def bytes_of_copies(graph: Graph) -> dict[NodeCopy, float]:
    """Return the bytes that each copy reads, from sources or channels; for a source, its own.

    A node is assumed to write as many bytes as it reads to each of its outputs.
    """
    sizes: dict[str, list[float]] = {}
    for name, node in graph.nodes.items():
        if node.source is not None:
            sizes[name] = [float(node.source.bytes_of(copy)) for copy in range(node.copies)]
        else:
            sizes[name] = [0.0] * node.copies
        for channel in graph.inputs(name):
            written = sizes[channel.writer]
            if channel.route == "pairs":
                read = written
            else:
                shared = node.copies if channel.route == "hash" else 1
                read = [sum(written) / shared] * node.copies
            sizes[name] = [one + other for one, other in zip(sizes[name], read, strict=True)]
    return {
        NodeCopy(name, n): one for name, read in sizes.items() for n, one in enumerate(read)
    }


def work_of_copies(graph: Graph, sizes: Mapping[NodeCopy, float]) -> dict[NodeCopy, float]:
    """Return the seconds of each copy: as stated, or its bytes of input at a fixed rate."""
    stated = {name: node.work for name, node in graph.nodes.items()}
    return {
        copy: size / BYTES_PER_SECOND if (work := stated[copy.node]) is None else work
        for copy, size in sizes.items()
    }


# The input that node copies read directly: its sources, and the hosts that hold it.


def sources_read(graph: Graph, copy: NodeCopy) -> Iterator[tuple[RecordSource, int]]:
    """Yield the sources that a copy reads, with the part number; a source reads itself."""
    own = graph.nodes[copy.node].source
    if own is not None:
        yield own, copy.copy
    for channel in graph.inputs(copy.node):
        source = graph.nodes[channel.writer].source
        if channel.kind == "direct" and source is not None:
            yield from ((source, number) for number in graph.writers(channel, copy.copy))


def bytes_on_hosts(graph: Graph, group: Iterable[NodeCopy]) -> Counter[str]:
    """Return how many bytes of the input of a group each host holds."""

    found: Counter[str] = Counter()
    for copy in group:
        for source, number in sources_read(graph, copy):
            found.update(source.bytes_on_hosts(number))
    return found
