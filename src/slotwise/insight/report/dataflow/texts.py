"""Dataflows as text for the terminal and as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from slotwise.jobs.dataflow.nodes import OUT, Channel, Graph, Node, SplitSource
from slotwise.jobs.dataflow.stages import DataflowStage, StagedGraph
from slotwise.jobs.loading import place_of


def dataflow_lines(staged: StagedGraph) -> Iterator[str]:
    """Yield inputs, stages with their groups and nodes, and outputs, in topological order.

    A stage is a bundle or several equal ones; a box around nodes is a group.
    """
    graph = staged.graph
    width = max(map(len, graph.nodes)) + 6
    for name, node in graph.nodes.items():
        if not graph.runs(name):
            yield f"{'input':8}{name:{width}}  {source_text(node)}"
    families: dict[str, list[DataflowStage]] = {}
    for stage in staged.stages:
        families.setdefault(_family(stage.name), []).append(stage)
    for family, stages in families.items():
        yield ""
        yield f"stage {family}: {stage_text(stages)}"
        if after := sorted({_family(name) for name in stages[0].after}):
            yield f"  waits for the files of {', '.join(after)}"
        for nodes, times in _shapes(stages[0]):
            slots = sum(nodes.values())
            yield f"  ┌─ {_counted(times, 'group')} of {_counted(slots, 'slot')}"
            for name, copies in nodes.items():
                several = f" x{copies}" if copies > 1 else ""
                texts = [read_text(channel) for channel in graph.inputs(name)]
                if graph.nodes[name].source is not None:
                    texts = [source_text(graph.nodes[name])]
                first, *rest = texts or ["reads nothing"]
                yield f"  │  {name + several:{width}}  {first}"
                yield from (f"  │  {'':{width}}  {text}" for text in rest)
            yield "  └─"
    if graph.written:
        yield ""
    for written in graph.written:
        folder = f" in {written.folder}/" if written.folder else ""
        source = written.node if written.output == OUT else f"{written.node}[{written.output}]"
        parts = _counted(graph.nodes[written.node].copies, "part")
        yield f"{'output':8}{source:{width}}  {written.output_format}, {parts}{folder}"


def dataflow_plain(staged: StagedGraph) -> dict[str, Any]:
    """The graph and its stages as data for JSON."""
    graph = staged.graph
    return {
        "nodes": [
            {
                "name": name,
                "function": function_name(node),
                "source": None if node.source is None else source_text(node),
                "copies": node.copies,
                "outputs": list(node.outputs),
                "work": node.work,
                "runs": graph.runs(name),
            }
            for name, node in graph.nodes.items()
        ],
        "channels": [
            {
                "writer": channel.writer,
                "output": channel.output,
                "reader": channel.reader,
                "input": channel.input,
                "kind": channel.kind,
                "route": channel.route,
                "by": None if channel.by is None else key_name(channel),
                "sort": channel.sort,
                "spills": channel.spills,
            }
            for channel in graph.channels
        ],
        "stages": [
            {
                "name": stage.name,
                "gang": stage.gang,
                "slots": stage.slots,
                "after": sorted(stage.after),
                "work": list(stage.work),
                "groups": [[list(copy) for copy in group] for group in stage.groups],
            }
            for stage in staged.stages
        ],
        "written": [
            {
                "node": written.node,
                "output": written.output,
                "format": written.output_format,
                "folder": written.folder,
            }
            for written in graph.written
        ],
    }


def stage_text(stages: Sequence[DataflowStage]) -> str:
    """Describe the number of groups of equal stages, and whether they start together."""
    count, slots = len(stages[0].groups), stages[0].slots
    if stages[0].gang:
        used = _counted(count * slots, "slot")
        if len(stages) > 1:
            return f"{len(stages)} bundles of {count} groups, each of which starts in {used}"
        return f"a bundle of {count} groups, which start together in {used}"
    if count == 1:
        return f"one group in {_counted(slots, 'slot')}"
    return f"{count} groups, each in {_counted(slots, 'slot')}, which start independently"


def read_text(channel: Channel) -> str:
    """Describe what a node reads from a channel, and how."""
    ways = {
        "pairs": "copy i from copy i",
        "all": "all of it",
        "hash": f"by {key_name(channel)}",
    }
    parts = [channel.kind, ways[channel.route]]
    parts += ["sorted"] if channel.sort else []
    parts += ["spills to disk"] if channel.spills else []
    output = "" if channel.output == OUT else f"[{channel.output}]"
    return f"reads {channel.writer}{output}: {', '.join(parts)}"


def source_text(node: Node) -> str:
    """Describe the input of a source."""
    source = node.source
    assert source is not None
    if isinstance(source, SplitSource):
        paths = {piece.path for split in source.splits for piece in split}
        name = min(paths).rpartition("/")[2]
        what = name if len(paths) == 1 else f"{name} and {len(paths) - 1} more"
        return f"{source.format_name} file {what}, {_counted(node.copies, 'split')}"
    return f"values, {_counted(node.copies, 'part')}"


def key_name(channel: Channel) -> str:
    """The name of the function that returns the keys of a channel."""
    by = channel.by
    name = getattr(by, "__name__", repr(by).removeprefix("operator."))
    return "key" if name.startswith("<") else str(name)


def function_name(node: Node) -> str | None:
    """The file or module of the function of a node, and its name."""
    if node.function is None:
        return None
    function = node.function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return place_of(getattr(function, "__module__", ""), name)


def _family(name: str) -> str:
    """The name that a stage has in common with equal bundles of other copies."""
    return name.partition("[")[0]


def _shapes(stage: DataflowStage) -> list[tuple[dict[str, int], int]]:
    """The nodes of each sort of group, with their copies, and the number of such groups."""
    shapes: dict[tuple[tuple[str, int], ...], int] = {}
    for group in stage.groups:
        shape = tuple(Counter(copy.node for copy in group).items())
        shapes[shape] = shapes.get(shape, 0) + 1
    return [(dict(shape), times) for shape, times in shapes.items()]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def label_of(graph: Graph, channel: Channel) -> str:
    """A short label of a channel for a picture."""
    parts = ["" if channel.output == OUT else channel.output]
    if channel.route == "hash":
        parts.append(f"by {key_name(channel)}")
    elif channel.route == "all" and graph.nodes[channel.reader].copies > 1:
        parts.append("broadcast")
    parts += ["sorted"] if channel.sort else []
    parts += ["spills"] if channel.spills else []
    return ", ".join(part for part in parts if part)
