"""Estimates of the bytes that copies of nodes read, and of their work."""

from __future__ import annotations

from collections.abc import Mapping

from slotwise.programs.dataflow.nodes import Graph, NodeCopy

BYTES_PER_SECOND = 20e6
"""How many bytes of input a copy of a node is assumed to process in a second."""


def bytes_of_copies(graph: Graph) -> dict[NodeCopy, float]:
    """The bytes that each copy reads, from sources or channels; for a source, its own.

    A node is assumed to write as many bytes as it reads, to each of its outputs.
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
    """The seconds of each copy: what its node states, or its bytes of input at a fixed rate."""
    stated = {name: node.work for name, node in graph.nodes.items()}
    return {
        copy: size / BYTES_PER_SECOND if (work := stated[copy.node]) is None else work
        for copy, size in sizes.items()
    }
