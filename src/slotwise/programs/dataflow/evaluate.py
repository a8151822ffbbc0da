"""Evaluate a graph in this process, one node copy after another.

It starts no process and uses no channels, so it shows what a graph means: whatever runs the
graph writes the same records in the same order. It keeps all records in memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping

from slotwise.programs.dataflow.body import in_order, reader_of, records_written
from slotwise.programs.dataflow.nodes import Channel, Graph, NodeCopy

Records = list[object]


def evaluate(graph: Graph) -> dict[tuple[str, str], list[Records]]:
    """The records that each output of each node gets, for each copy: [(node, output)][copy].

    Errors of the user's functions propagate; a note names the copy of the node.
    """
    found: dict[tuple[str, str], list[Records]] = {}
    for name, node in graph.nodes.items():
        for output in node.outputs:
            found[name, output] = [[] for _ in range(node.copies)]
        streams = [_streams(graph, channel, found) for channel in graph.inputs(name)]
        for copy in range(node.copies):
            try:
                for output, record in records_written(node, copy, [s[copy] for s in streams]):
                    found[name, output][copy].append(record)
            except Exception as error:
                error.add_note(f"in node {NodeCopy(name, copy)}")
                raise
    return found


def _streams(
    graph: Graph, channel: Channel, found: Mapping[tuple[str, str], list[Records]]
) -> list[Records]:
    """The records of a channel for each copy of its reader."""
    written = found[channel.writer, channel.output]
    copies = graph.nodes[channel.reader].copies
    streams: list[Records] = [[] for _ in range(copies)]
    for reader in range(copies):
        for writer in graph.writers(channel, reader):
            if channel.route != "hash":
                streams[reader] += written[writer]
    if channel.route == "hash":
        for records in written:
            for record in records:
                streams[reader_of(channel, record, copies)].append(record)
    # Each reader gets copies, as through a channel, so that none sees what another changes.
    return [list(in_order(channel, _copied(channel, records))) for records in streams]


def _copied(channel: Channel, records: Records) -> Records:
    try:
        try:
            body = pickle.dumps(records, protocol=5)
        except Exception:  # As in channels.
            from slotwise.by_value.pickling import pickled_by_value

            body = pickled_by_value(records)
        copies: Records = pickle.loads(body)
    except Exception as error:
        error.add_note(f"in the {channel}; records must be objects that pickle can copy")
        raise
    return copies
