"""Build a checked graph from declarations: find inputs, count copies, choose routes."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any

from slotwise.core.errors import NUMBER, WHOLE, InputError, suggestion
from slotwise.core.resources import NOTHING, Resources
from slotwise.jobs.dataflow.nodes import (
    OUT,
    Channel,
    Graph,
    Kind,
    Node,
    RecordSource,
    Route,
    SplitSource,
    ValueSource,
    Written,
    find_circle,
)
from slotwise.jobs.formats import planned
from slotwise.jobs.formats.inputs import INPUT_FORMATS, NUMBERS
from slotwise.jobs.formats.planned import PlannedInput, held_by
from slotwise.jobs.transfer import pickled
from slotwise.workload.workload import DATAFLOW_SETTINGS


def build(
    declared: Sequence[Declared], written: Sequence[Written], base_dir: str | Path
) -> Graph:
    """Return the checked graph. Raises InputError, naming the nodes, if it cannot run."""
    if not declared:
        raise InputError("the dataflow has no nodes; add nodes with flow.read and flow.node")
    for one in declared:
        if not one.is_source:
            connected(one)
    nodes: dict[str, Node] = {}
    channels: list[Channel] = []
    for one in _topological(declared):
        source = None if one.given is None else one.given.source(base_dir)
        copies = _copies(one, nodes) if source is None else source.copies
        node = Node(
            one.name,
            one.function,
            copies,
            one.parameters,
            one.outputs,
            one.work,
            source,
            one.resources,
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
    """Return the written outputs. A single one needs no folder."""
    if len(written) == 1:
        return (replace(written[0], folder=""),)
    for one in written:
        if one.folder.startswith("_"):  # Readers skip such names, which slotwise's files have.
            raise InputError(
                f"node {one.node!r} is written to a folder of its own, whose name must not"
                " begin with '_'; give the node another name="
            )
    return tuple(written)


def _topological(declared: Iterable[Declared]) -> list[Declared]:
    """Return the nodes, each after those that it reads from, else in order of declaration."""
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
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    for name, writers in after.items():
        for writer in writers:
            readers[writer].append(name)
    ready = [(places[name], name) for name, count in waits.items() if not count]
    heapify(ready)
    ordered = []
    while ready:
        _, name = heappop(ready)
        ordered.append(nodes[name])
        for reader in readers[name]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, (places[reader], reader))
    return ordered


def _copies(node: Declared, earlier: Mapping[str, Node]) -> int:
    """Return the stated number of copies, or that of a node that is read in pairs, or 1."""
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
            "give by=... (a function that returns the key of a record), broadcast=True (each"
            " copy gets all records), or give both the same number of copies"
        )
    raise InputError(
        f"node {reader.name!r} has {reader.copies} copies and reads {writer.name!r}, which has"
        f" {writer.copies}: it is undefined which copy gets a record; {ways}"
    )


# Checks of the arguments of a Dataflow. Each InputError has place, value and remedy.

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
MAX_COPIES = 100_000
KINDS = ("file", "tcp", "shm")


def name(given: object) -> str:
    """Return the valid name of a node or an output, which is used in names of files."""
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise InputError(
            f"the name of a node or output is {given!r:.80}; give at most 100 letters, digits,"
            " '_', '-' and '.', and begin with a letter, a digit or '_'"
        )
    return given


def name_of(function: object, given: str | None) -> str:
    """Return the name of a node: the given one, or that of its function."""
    found = getattr(function, "__name__", "") if given is None else given
    if given is None and (found == "<lambda>" or not found):
        raise InputError(f"flow.node: {function!r:.80} has no name; give the node name=...")
    return name(found)


def function(node: str, given: object) -> Callable[..., Any]:
    """Return a function or a class."""
    if not callable(given):
        raise InputError(
            f"node {node!r}: function is {given!r:.80}; give a function or a class first, then"
            " the streams that it reads"
        )
    return given


def count(what: str, given: object, node: str = "") -> int:
    """Return a number of copies."""
    if not isinstance(given, WHOLE) or not 1 <= int(given) <= MAX_COPIES:
        where = f"node {node!r}: " if node else ""
        raise InputError(
            f"{where}{what} is {given!r:.80}; give a whole number from 1 to {MAX_COPIES}"
        )
    return int(given)


def parameters(node: str, given: object) -> Mapping[str, Any]:
    """Return the parameters of a function by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InputError(
            f"node {node!r}: parameters is {given!r:.80}; give a dict of values by name"
        )
    return dict(given)


def outputs(node: str, given: object) -> tuple[str, ...]:
    """Return the names of several outputs."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"node {node!r}: outputs is {given!r:.80}; give a tuple of names")
    names = tuple(map(name, given))
    if len(set(names)) < len(names):
        raise InputError(f"node {node!r}: outputs is {names!r}; name each one once")
    return names


def work(node: str, given: object) -> float | None:
    """Return seconds of work, or None."""
    if given is None:
        return None
    if not isinstance(given, NUMBER) or not 0 <= float(given) < float("inf"):
        raise InputError(
            f"node {node!r}: work is {given!r:.80}; give the seconds of one copy, >= 0"
        )
    return float(given)


def inputs(
    given: object,
    input_format: object,
    split_bytes: object,
    tables: object,
    input_hosts: object,
) -> Files:
    """Return the input files of a source."""
    one = isinstance(given, str | os.PathLike)
    paths = [given] if one else list(given) if isinstance(given, Iterable) else []
    if not paths or not all(
        isinstance(path, str | os.PathLike) and str(path) for path in paths
    ):
        raise InputError(
            f"flow.read: inputs is {given!r:.80}; give a path, a glob or a folder, or"
            " a list of them"
        )
    known = sorted(INPUT_FORMATS.keys() - {NUMBERS})
    if input_format not in known:
        raise InputError(
            f"flow.read: input_format is {input_format!r:.80};"
            f" {suggestion(input_format, known)}"
        )
    if not isinstance(split_bytes, WHOLE) or split_bytes < 1:
        raise InputError(
            f"flow.read: split_bytes is {split_bytes!r:.80}; give a whole number >= 1"
        )
    if not isinstance(tables, bool):
        raise InputError(f"flow.read: tables is {tables!r:.80}; give True or False")
    try:
        hosts = planned.checked(input_hosts)
    except InputError as error:
        raise InputError(f"flow.read: {error}") from None
    return Files(tuple(map(str, paths)), str(input_format), int(split_bytes), tables, hosts)


def records(given: object) -> tuple[object, ...]:
    """Return the records of a source in memory."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InputError(f"flow.values: records is {given!r:.80}; give a list of records")
    return tuple(given)


def reading(given: StreamReading, is_source: bool) -> None:
    """Check how a stream is read."""
    where = f"the stream of {given.writer!r}"
    if given.kind not in (*KINDS, "direct"):
        raise InputError(
            f"{where}: kind is {given.kind!r:.80}; {suggestion(given.kind, KINDS)}"
        )
    if given.kind == "direct" and not is_source:
        raise InputError(
            f"{where} is read directly, but {given.writer!r} is not a source; read it by file,"
            " tcp or shm"
        )
    if given.by is not None and not callable(given.by):
        raise InputError(
            f"{where}: by is {given.by!r:.80}; give a function that returns the key of a record"
        )
    for what, value in (("broadcast", given.broadcast), ("sort", given.sort)):
        if not isinstance(value, bool):
            raise InputError(f"{where}: {what} is {value!r:.80}; give True or False")
    if given.by is not None and given.broadcast:
        raise InputError(
            f"{where}: by sends each record to one copy and broadcast to all; leave out one"
        )
    if given.kind == "direct" and given.by is not None:
        raise InputError(
            f"{where} is read directly and in parts by key; name a kind, such as tcp(by=...)"
        )
    if given.sort and (given.by is None or given.kind != "file"):
        raise InputError(
            f"{where}: sort is for file channels with a key; write file(by=..., sort=True)"
        )


def job(id: object, output: object, settings: Mapping[str, Any]) -> None:
    """Check the arguments of flow.job that no other code checks."""
    known = (*DATAFLOW_SETTINGS, "work_dir")
    if unknown := sorted(settings.keys() - set(known)):
        raise InputError(
            f"job {id!r}: a dataflow has no setting {unknown[0]!r};"
            f" {suggestion(unknown[0], known)}"
        )
    for what, path in (("output", output), ("work_dir", settings.get("work_dir") or "")):
        if not isinstance(path, str | os.PathLike):
            raise InputError(
                f"job {id!r}: {what} is {path!r:.80}; give a path, as a string or a Path"
            )


def connected(node: Declared) -> None:
    """Raise InputError if the function of a node cannot take its inputs and parameters.

    The signature of a class is not enough: some classes in native code have none, and all have
    the `__call__` of their type.
    """
    assert node.function is not None
    given = node.function
    if isinstance(given, type) and not any("__call__" in vars(one) for one in given.__mro__):
        name = given.__name__
        raise InputError(
            f"node {node.name!r}: objects of its class {name} cannot be called with streams;"
            f" give a function, such as lambda *streams: {name}(*streams)"
        )
    try:
        if isinstance(given, type):
            inspect.signature(given).bind(**node.parameters)
            called = inspect.signature(given.__call__)
            wanted = list(called.parameters.values())[1:]
            passed: Mapping[str, Any] = {}
        else:
            wanted = list(inspect.signature(given).parameters.values())
            passed = node.parameters
    except ValueError:
        return  # A function in native code may have no signature.
    except TypeError as error:
        raise InputError(f"node {node.name!r}: parameters do not fit: {error}") from None
    _check_inputs(node, wanted, passed)


def _check_inputs(
    node: Declared, wanted: Sequence[inspect.Parameter], passed: Mapping[str, Any]
) -> None:
    given = len(node.reads)
    ordinary = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = [one for one in wanted if one.kind in ordinary and one.name not in passed]
    needed = [one for one in takes if one.default is inspect.Parameter.empty]
    if given < len(needed):
        raise InputError(
            f"node {node.name!r}: its input {given + 1} ({needed[given].name!r}) is not"
            " connected; give flow.node a stream for it, or use flow.connect; a value goes into"
            " parameters={...}"
        )
    is_open = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in wanted)
    if given > len(takes) and not is_open:
        raise InputError(
            f"node {node.name!r} reads {given} streams, but its function takes {len(takes)};"
            " leave some out, or add parameters to the function"
        )
    try:
        inspect.Signature(wanted).bind(*[None] * given, **passed)
    except TypeError as error:
        names = ", ".join(one.name for one in wanted)
        raise InputError(
            f"node {node.name!r}: {error}; parameters of its function: {names}"
        ) from None


# Declarations of a user: nodes, how they read, and the records of sources.


@dataclass(frozen=True, slots=True)
class StreamReading:
    """How a node reads an output of another node, as declared."""

    writer: str
    output: str
    kind: Kind
    by: Callable[[Any], Any] | None = None
    broadcast: bool = False
    sort: bool = False


@dataclass(frozen=True, slots=True)
class Files:
    """Patterns of input files, which are not resolved yet; `hosts` is as for `held_by`."""

    patterns: tuple[str, ...]
    format_name: str
    split_bytes: int
    tables: bool
    hosts: Any = None

    def source(self, base_dir: str | Path) -> RecordSource:
        """Return the splits of the files. Raises InputError if there are no files."""
        planned = PlannedInput.of_files(self.patterns, self.format_name, base_dir or None)
        return SplitSource(
            self.format_name,
            tuple(planned.splits(self.split_bytes)),
            self.tables,
            held_by(self.hosts, planned.files, base_dir or None),
        )


@dataclass(frozen=True, slots=True)
class Values:
    """Records in memory, in `copies` parts."""

    records: tuple[object, ...]
    copies: int

    def source(self, base_dir: str | Path) -> RecordSource:
        """Return the records in parts. Raises InputError if a record cannot be pickled."""
        each, more = divmod(len(self.records), self.copies)
        ends = [each * n + min(n, more) for n in range(self.copies + 1)]
        parts = tuple(self.records[one:other] for one, other in pairwise(ends))
        try:
            sizes = tuple(len(pickled(part, None, [])) if part else 0 for part in parts)
        except Exception as error:
            raise InputError(
                f"flow.values: a record cannot be pickled: {error}; give plain data"
            ) from None
        return ValueSource(parts, sizes)


@dataclass
class Declared:
    """A declared node. `flow.connect` adds to `reads`."""

    name: str
    function: Callable[..., Any] | None = None
    copies: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = (OUT,)
    work: float | None = None
    reads: list[StreamReading] = field(default_factory=list)
    given: Files | Values | None = None
    resources: Resources = NOTHING

    @property
    def is_source(self) -> bool:
        """Whether it is a source of records."""
        return self.given is not None
