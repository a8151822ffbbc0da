"""Make a Dataflow of what a workload file says under `dataflow`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotwise.model.errors import InputError
from slotwise.programs.dataflow.graph import Dataflow, Stream
from slotwise.programs.dataflow.loading import load_flow, load_function


def flow_of(stated: Mapping[str, Any], base_dir: str | Path | None) -> Dataflow:
    """The dataflow of an entry: {"app": place}, or {"nodes": [...], "write": [...]}.

    The file has been validated by its schema; here, names are looked up. Nodes may come in any
    order.
    """
    if "app" in stated:
        return load_flow(stated["app"], base_dir)
    flow = Dataflow()
    streams: dict[str, Stream] = {}
    for node in stated["nodes"]:
        if node["name"] in streams:
            raise InputError(f"two nodes are named {node['name']!r}; rename one")
        streams[node["name"]] = _node(flow, node, base_dir)
    for node in stated["nodes"]:
        for read in node.get("reads", ()):
            given: Mapping[str, Any] = {"node": read} if isinstance(read, str) else read
            by = given.get("by")
            flow.connect(
                _stream(streams, given, f"node {node['name']!r} reads"),
                streams[node["name"]],
                given.get("kind"),
                by=None if by is None else load_function(by, base_dir),
                broadcast=given.get("broadcast", False),
                sort=given.get("sort", False),
            )
    for write in stated["write"]:
        given = {"node": write} if isinstance(write, str) else write
        stream = _stream(streams, given, "write names")
        flow.write(stream, output_format=given.get("output_format", "text"))
    return flow


def tables_of(flow: Dataflow | Mapping[str, Any]) -> list[Any]:
    """What a dataflow states for `input_hosts` of its sources; nothing for one in an app."""
    if isinstance(flow, Dataflow):
        return flow.input_hosts
    return [node.get("input_hosts") for node in flow.get("nodes", ())]


def _node(flow: Dataflow, node: Mapping[str, Any], base_dir: str | Path | None) -> Stream:
    name = node["name"]
    if "inputs" in node:
        keys = ("input_format", "split_bytes", "tables", "input_hosts")
        settings = {key: node[key] for key in keys if key in node}
        return flow.read(node["inputs"], name=name, **settings)
    if "values" in node:
        return flow.values(node["values"], name=name, copies=node.get("copies", 1))
    settings = {
        key: node[key] for key in ("copies", "parameters", "outputs", "work") if key in node
    }
    return flow.node(load_function(node["function"], base_dir), name=name, **settings)


def _stream(streams: Mapping[str, Stream], given: Mapping[str, Any], what: str) -> Stream:
    if given["node"] not in streams:
        raise InputError(f"{what} unknown node {given['node']!r}; known: {', '.join(streams)}")
    stream = streams[given["node"]]
    return stream[given["output"]] if "output" in given else stream
