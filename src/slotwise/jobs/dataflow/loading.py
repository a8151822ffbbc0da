"""Load a dataflow, and the functions of its nodes, from files and modules."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotwise.core.errors import InputError, SlotwiseError, suggestion
from slotwise.jobs.dataflow.graph import Dataflow, Stream
from slotwise.jobs.loading import imported


def load_flow(spec: str, base_dir: str | Path | None = None) -> Dataflow:
    """Return the Dataflow at "app.py:name" or "module:name"; without a name, the only one.

    A function without parameters that returns a Dataflow is called.
    """
    place, name = _place(spec)
    module = _module(place, spec, base_dir)
    flows = [key for key, value in vars(module).items() if isinstance(value, Dataflow)]
    if not name:
        if len({id(vars(module)[key]) for key in flows}) != 1:
            has = f"several dataflows: {', '.join(flows)}" if flows else "no dataflow"
            raise InputError(
                f"{spec!r} has {has}; name one, as {place}:flow, where flow ="
                " slotwise.Dataflow()"
            )
        name = flows[0]
    found = _attribute(module, name, spec, flows)
    if callable(found) and not isinstance(found, type):
        try:
            found = found()
        except SlotwiseError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{spec!r} cannot be called: {type(error).__name__}: {error}; it must take no"
                " arguments and return a slotwise.Dataflow"
            ) from error
    if not isinstance(found, Dataflow):
        known = f"; the file has {', '.join(flows)}" if flows else ""
        raise InputError(f"{spec!r} is {found!r:.80}, not a slotwise.Dataflow{known}")
    return found


def load_function(spec: str, base_dir: str | Path | None = None) -> Any:
    """Return the function or class at "file.py:name" or "module:name"."""
    place, name = _place(spec)
    if not name:
        raise InputError(f"function {spec!r}: write file.py:name or module:name")
    module = _module(place, spec, base_dir)
    known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    found = _attribute(module, name, spec, known)
    if not callable(found):
        raise InputError(f"function {spec!r} is {found!r:.80}; name a function or a class")
    return found


def _place(spec: str) -> tuple[str, str]:
    if spec.endswith(".py"):
        return spec, ""
    place, colon, name = spec.rpartition(":")
    return (place, name) if colon else (spec, "")


def _module(place: str, spec: str, base_dir: str | Path | None) -> Any:
    if place.endswith(".py"):
        return imported((Path(base_dir or ".") / place).absolute(), spec, "dataflow")
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{spec!r}: importing {place!r} failed: {type(error).__name__}: {error}; write"
            " file.py:name or module:name"
        ) from error


def _attribute(module: Any, name: str, spec: str, known: list[str]) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            has = ", ".join(known[:20]) or "nothing that fits"
            raise InputError(f"{spec!r}: {name!r} not found; found {has}")
    return found


# Dataflows of workload files, from the value of the key `dataflow`.


def flow_of(stated: Mapping[str, Any], base_dir: str | Path | None) -> Dataflow:
    """Return the dataflow of an entry: {"app": place}, or {"nodes": [...], "write": [...]}.

    The file has been validated by its schema; this resolves names. Nodes may be in any order.
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
    """Return the `input_hosts` of the sources of a dataflow; nothing for one in an app."""
    if isinstance(flow, Dataflow):
        return flow.input_hosts
    return [node.get("input_hosts") for node in flow.get("nodes", ())]


NODE_SETTINGS = ("copies", "parameters", "outputs", "work", "resources")
"""The keys of a node with a function that are arguments of `Dataflow.node`."""


def _node(flow: Dataflow, node: Mapping[str, Any], base_dir: str | Path | None) -> Stream:
    name = node["name"]
    if "inputs" in node:
        keys = ("input_format", "split_bytes", "tables", "input_hosts")
        settings = {key: node[key] for key in keys if key in node}
        return flow.read(node["inputs"], name=name, **settings)
    if "values" in node:
        return flow.values(node["values"], name=name, copies=node.get("copies", 1))
    settings = {key: node[key] for key in NODE_SETTINGS if key in node}
    return flow.node(load_function(node["function"], base_dir), name=name, **settings)


def _stream(streams: Mapping[str, Stream], given: Mapping[str, Any], what: str) -> Stream:
    if given["node"] not in streams:
        hint = suggestion(given["node"], streams)
        raise InputError(f"{what} unknown node {given['node']!r}; {hint}")
    stream = streams[given["node"]]
    return stream[given["output"]] if "output" in given else stream
