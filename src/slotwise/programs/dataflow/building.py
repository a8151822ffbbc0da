"""Build a checked graph from what a user declared: find inputs, count copies, choose routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path

from slotwise.model.errors import InputError
from slotwise.programs.dataflow.checking import connected
from slotwise.programs.dataflow.circles import find_circle
from slotwise.programs.dataflow.declared import Declared, StreamReading
from slotwise.programs.dataflow.nodes import Channel, Graph, Node, Route, Written


def build(
    declared: Sequence[Declared], written: Sequence[Written], base_dir: str | Path
) -> Graph:
    """The checked graph. InputError, with the names of the nodes, for one that cannot run."""
    if not declared:
        raise InputError("the dataflow has no nodes; add some with flow.read and flow.node")
    for one in declared:
        if not one.is_source:
            connected(one)
    nodes: dict[str, Node] = {}
    channels: list[Channel] = []
    for one in _topological(declared):
        source = None if one.given is None else one.given.source(base_dir)
        copies = _copies(one, nodes) if source is None else source.copies
        node = Node(
            one.name, one.function, copies, one.parameters, one.outputs, one.work, source
        )
        nodes[one.name] = node
        for place, reading in enumerate(one.reads):
            route = _route(reading, nodes[reading.writer], node)
            channels.append(
                Channel(
                    len(channels),
                    reading.writer,
                    reading.output,
                    one.name,
                    place,
                    reading.kind,
                    route,
                    reading.by,
                    reading.sort,
                )
            )
    return Graph(nodes, tuple(channels), _written(written))


def _written(written: Sequence[Written]) -> tuple[Written, ...]:
    """What is written; one output alone needs no folder."""
    if len(written) == 1:
        return (replace(written[0], folder=""),)
    for one in written:
        if one.folder.startswith("_"):  # Names of slotwise's own files, which readers skip.
            raise InputError(
                f"node {one.node!r} is written to a folder of its own, whose name must not"
                " begin with '_'; give the node another name="
            )
    return tuple(written)


def _topological(declared: Iterable[Declared]) -> list[Declared]:
    """The nodes, each after those that it reads from, otherwise as they were declared."""
    nodes = {node.name: node for node in declared}
    places = {name: place for place, name in enumerate(nodes)}
    after = {
        name: list(dict.fromkeys(reading.writer for reading in node.reads))
        for name, node in nodes.items()
    }
    if circle := find_circle(after):
        raise InputError(
            f"nodes read from each other in a circle: {' -> '.join(circle)}; leave out one of"
            " these channels, or repeat the nodes, once for each round"
        )
    waits = {name: len(writers) for name, writers in after.items()}
    behind: dict[str, list[str]] = {name: [] for name in nodes}
    for name, writers in after.items():
        for writer in writers:
            behind[writer].append(name)
    ready = [(places[name], name) for name, count in waits.items() if not count]
    heapify(ready)
    ordered = []
    while ready:
        _, name = heappop(ready)
        ordered.append(nodes[name])
        for reader in behind[name]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, (places[reader], reader))
    return ordered


def _copies(node: Declared, earlier: Mapping[str, Node]) -> int:
    """The stated number of copies, or that of what is read copy by copy, or 1."""
    if node.copies is not None:
        return node.copies
    for reading in node.reads:
        if reading.kind in ("shm", "direct") and reading.by is None and not reading.broadcast:
            return earlier[reading.writer].copies
    return 1


def _route(reading: StreamReading, writer: Node, reader: Node) -> Route:
    if reading.by is not None:
        return "hash"
    if reading.broadcast:
        return "all"
    if writer.copies == reader.copies:
        return "pairs"
    if reader.copies == 1:
        return "all"
    if reading.kind == "direct":
        ways = (
            "leave out its copies to have one for each, or give copies=1, or read by key, as"
            " with tcp(by=...)"
        )
    else:
        ways = (
            "say by=... (a function that gives the key of a record), broadcast=True (each copy"
            " gets all records), or give both the same number of copies"
        )
    raise InputError(
        f"node {reader.name!r} has {reader.copies} copies and reads {writer.name!r}, which has"
        f" {writer.copies}: which copy gets a record is not said; {ways}"
    )
