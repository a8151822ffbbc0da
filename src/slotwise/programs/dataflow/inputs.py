"""The input that node copies read themselves: the sources, and the hosts that hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from slotwise.programs.dataflow.nodes import Graph, NodeCopy, RecordSource


def sources_read(graph: Graph, copy: NodeCopy) -> Iterator[tuple[RecordSource, int]]:
    """The sources that a copy reads, with the number of the part; a source reads itself."""
    own = graph.nodes[copy.node].source
    if own is not None:
        yield own, copy.copy
    for channel in graph.inputs(copy.node):
        source = graph.nodes[channel.writer].source
        if channel.kind == "direct" and source is not None:
            yield from ((source, number) for number in graph.writers(channel, copy.copy))


def bytes_on_hosts(graph: Graph, group: Iterable[NodeCopy]) -> Counter[str]:
    """How many bytes of the input of a group each host holds."""
    found: Counter[str] = Counter()
    for copy in group:
        for source, number in sources_read(graph, copy):
            found.update(source.bytes_on_hosts(number))
    return found
