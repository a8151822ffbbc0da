"""Estimates of the work of nodes that state none, from the bytes of their input."""

from __future__ import annotations

from slotwise.programs.dataflow.nodes import Graph, NodeCopy

BYTES_PER_SECOND = 20e6
"""How many bytes of input a copy of a node is assumed to process in a second."""


def work_of_copies(graph: Graph) -> dict[NodeCopy, float]:
    """The seconds of each copy: what its node states, or its bytes of input at a fixed rate.

    A node is assumed to write as many bytes as it reads, to each of its outputs.
    """
    sizes: dict[str, list[float]] = {}
    work: dict[NodeCopy, float] = {}
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
        for copy, size in enumerate(sizes[name]):
            stated = node.work
            work[NodeCopy(name, copy)] = size / BYTES_PER_SECOND if stated is None else stated
    return work
