"""The interface to build a graph: `Dataflow`, and the streams that nodes read and write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from slotwise.core.errors import InputError
from slotwise.core.resources import requested
from slotwise.jobs.dataflow import building as check
from slotwise.jobs.dataflow.building import Declared, Files, StreamReading, Values, build
from slotwise.jobs.dataflow.group import evaluate
from slotwise.jobs.dataflow.nodes import OUT, Graph, Kind, Written
from slotwise.jobs.dataflow.stages import derive
from slotwise.jobs.formats.outputs import check_output_format
from slotwise.jobs.formats.planned import SPLIT_BYTES, InputHosts
from slotwise.jobs.loading import AnyProgram, load
from slotwise.jobs.mapreduce.program import MapReduce, Pair
from slotwise.jobs.shuffle.buffers import buffer_for
from slotwise.jobs.shuffle.pairs import PairStream
from slotwise.workload.workload import PROPERTIES, DataflowJob, properties_of

Key = Callable[[Any], Any]


class Stream:
    """The records that a node writes; pass it to the nodes that read them.

    By default it is read through a file channel; `tcp()` and `shm()` choose other kinds. The
    stream of a source is by default read directly by the reader, without a channel. A node with
    several outputs has a stream for each of them: `node["name"]`.

    by         each record goes to the copy of the reader with the hash of by(record)
    broadcast  each copy of the reader gets all records
    sort       each copy of the reader gets its records sorted by by(record)
    """

    def __init__(self, flow: Dataflow, node: Declared, output: str | None) -> None:
        self._flow = flow
        self._node = node
        self._output = output

    @property
    def name(self) -> str:
        """The name of the node."""
        return self._node.name

    def __getitem__(self, output: str) -> Stream:
        """Return the stream of one of several outputs."""
        if output not in self._node.outputs or self._node.outputs == (OUT,):
            known = ", ".join(map(repr, self._node.outputs))
            has = "one output without a name" if self._node.outputs == (OUT,) else known
            raise InputError(
                f"node {self.name!r} has no output {output!r}; it has {has}: list names in"
                " outputs=(...) of flow.node"
            )
        return Stream(self._flow, self._node, output)

    def __repr__(self) -> str:
        output = "" if self._output is None else f"[{self._output!r}]"
        return f"<stream of node {self.name}{output}>"

    # Otherwise a loop over a stream would try stream[0], stream[1], ...
    __iter__ = None

    def file(
        self, *, by: Key | None = None, broadcast: bool = False, sort: bool = False
    ) -> Connection:
        """Read it from files; the reader starts when the node is done."""
        return Connection(self, "file", by, broadcast, sort)

    def tcp(self, *, by: Key | None = None, broadcast: bool = False) -> Connection:
        """Read it over TCP; the reader and the node run at the same time."""
        return Connection(self, "tcp", by, broadcast, False)

    def shm(self, *, by: Key | None = None, broadcast: bool = False) -> Connection:
        """Read it from shared memory; reader and node run at the same time on one host.

        Without `by` and `broadcast`, the reader by default has as many copies as the node.
        """
        return Connection(self, "shm", by, broadcast, False)

    def direct(self, *, broadcast: bool = False) -> Connection:
        """Read the input of a source in the reader itself; the source takes no slot.

        By default the reader has one copy for each copy of the source.
        """
        return Connection(self, "direct", None, broadcast, False)


class Connection:
    """A stream with the kind of channel through which it is read."""

    def __init__(
        self, stream: Stream, kind: Kind, by: Key | None, broadcast: bool, sort: bool
    ) -> None:
        self.stream = stream
        node = stream._node
        output = stream._output
        if output is None:
            if node.outputs != (OUT,):
                names = " or ".join(f"{node.name}[{name!r}]" for name in node.outputs)
                raise InputError(
                    f"node {node.name!r} has several outputs; name the one to read: {names}"
                )
            output = OUT
        self.reading = StreamReading(node.name, output, kind, by, broadcast, sort)
        check.reading(self.reading, is_source=node.is_source)

    def __repr__(self) -> str:
        return f"<{self.reading.kind} channel from node {self.stream.name}>"


class Dataflow:
    """A graph of nodes that read streams of records and write streams of records.

    Nodes are functions: `flow.node(function, stream, ...)`. Streams come from `read`, `values`
    and other nodes. See docs/dataflow.md. Nothing runs while the graph is built: `evaluate`
    runs it in this process, and `job` returns a job for `slotwise.run`.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Declared] = {}
        self._written: list[Written] = []

    def read(
        self,
        inputs: str | Path | Sequence[str | Path],
        *,
        input_format: str = "text",
        split_bytes: int = SPLIT_BYTES,
        tables: bool = False,
        input_hosts: InputHosts = None,
        name: str | None = None,
    ) -> Stream:
        """Add a source: files, by paths, globs or folders, in splits as in MapReduce jobs.

        A record is a line without its end (text), the value of a line (jsonl) or a row as a
        dict (parquet). With `tables`, records are pyarrow Tables of many lines or rows.
        `input_hosts` names the hosts that hold files, by path, glob or folder; or it says where
        to ask: "auto" (the name node in a URL), "webhdfs://namenode:9870", or a function that
        returns (offset, length, hosts) of each block of the file with a path, or the place of
        the function, "path/to/file.py:name".
        """
        files = check.inputs(inputs, input_format, split_bytes, tables, input_hosts)
        return self._source(name, "input", files)

    def values(
        self, records: Iterable[object], *, copies: int = 1, name: str | None = None
    ) -> Stream:
        """Add a source: a few records from memory, in `copies` parts of equal length."""
        check.count("copies", copies)
        given = check.records(records)
        return self._source(name, "values", Values(given, copies))

    @property
    def input_hosts(self) -> list[Any]:
        """The `input_hosts` of each source that reads files."""
        given = [node.given for node in self._nodes.values()]
        return [files.hosts for files in given if isinstance(files, Files)]

    def __repr__(self) -> str:
        names = list(self._nodes)
        rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return f"<dataflow of {', '.join(names[:5]) or 'no nodes'}{rest}>"

    def node(
        self,
        function: Callable[..., Any],
        *reads: Stream | Connection,
        name: str | None = None,
        copies: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        outputs: Sequence[str] = (),
        work: float | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> Stream:
        """Add a node: `function(*iterators, **parameters)` returns or yields its records.

        It gets an iterator for each stream that it reads, in order. A class is created with
        the parameters, then called with the iterators. With `outputs`, it yields
        `slotwise.Output(name, record)`. `work` is the estimated seconds of one copy, and
        `resources` what it requests of its host: `{"memory": "4 GiB"}`. By default a node has
        one copy, or as many as a node that it reads directly or over shared memory, and the
        name of the function.
        """
        named = check.name_of(function, name)
        self._check_unused(named)
        declared = Declared(
            named,
            function=check.function(named, function),
            copies=None if copies is None else check.count("copies", copies, named),
            parameters=check.parameters(named, parameters),
            outputs=check.outputs(named, outputs) or (OUT,),
            work=check.work(named, work),
            resources=requested(f"node {named!r}: resources", resources),
            reads=[self._reading(f"node {named!r}", stream) for stream in reads],
        )
        self._nodes[named] = declared
        return Stream(self, declared, None)

    def map_reduce(
        self,
        program: str | type[AnyProgram] | AnyProgram,
        read: Stream | Connection,
        *,
        reducers: int = 2,
        name: str | None = None,
        maps: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> Stream:
        """Add a MapReduce program by records as two nodes, NAME-map and NAME.

        Returns the stream of the output pairs. `program` is as in `slotwise.mapreduce`, and
        `read` is the stream to map. Its `map` gets None as each key. `maps` is the number of
        copies that map, and `resources` what each copy requests. Each reduce has the pairs of a
        MapReduce job, in the same order.
        """
        made = checked(load(program, parameters), check.count("reducers", reducers))
        called = name or made.name
        mapped = self.node(
            MapNode,
            read,
            name=f"{called}-map",
            copies=maps,
            parameters={"program": made},
            resources=resources,
        )
        return self.node(
            ReduceNode,
            mapped.file(by=key_of, sort=True),
            name=called,
            copies=reducers,
            parameters={"program": made},
            resources=resources,
        )

    def connect(
        self,
        writer: Stream,
        reader: Stream,
        kind: Kind | None = None,
        *,
        by: Key | None = None,
        broadcast: bool = False,
        sort: bool = False,
    ) -> None:
        """Connect the stream of a node to the next input of another node, after both exist."""
        for stream, what in ((writer, "writer"), (reader, "reader")):
            if not isinstance(stream, Stream) or stream._flow is not self:
                raise InputError(
                    f"connect: {what} is {stream!r:.80}; give a stream of this Dataflow"
                )
        node = reader._node
        if node.is_source or reader._output is not None:
            raise InputError(f"connect: {reader!r} reads nothing; give a stream from flow.node")
        kind = kind or writer_kind(writer)
        node.reads.append(Connection(writer, kind, by, broadcast, sort).reading)

    def write(self, *streams: Stream, output_format: str = "text") -> None:
        """Write these streams as output of the job, with a part for each copy.

        In text, a record is one line, and the items of a tuple or list are separated by tabs.
        In the other formats, a pair is a key with its value. If several streams are written,
        each has a folder in the output with the name of the node (and of the output).
        """
        check_output_format(output_format)
        if not streams:
            raise InputError("write: no stream is given; give a stream from flow.node")
        for stream in streams:
            reading = self._reading("write", stream)
            output = reading.output
            folder = reading.writer if output == OUT else f"{reading.writer}-{output}"
            if any(one.folder == folder for one in self._written):
                raise InputError(f"write: {folder!r} is written twice; leave one out")
            self._written.append(Written(reading.writer, output, output_format, folder))

    def evaluate(self, stream: Stream | None = None, *, base_dir: str | Path = "") -> Any:
        """Return the records of a stream as a list, or of all written streams by name.

        All nodes run in this process, one after another, and all records are in memory. A job
        writes the same records in the same order, part after part.
        """
        if stream is None and not self._written:
            raise InputError("evaluate: no stream is written; give the stream to evaluate")
        read = None if stream is None else self._reading("evaluate", stream)
        found = evaluate(self.graph(base_dir))
        lists = {key: [one for part in parts for one in part] for key, parts in found.items()}
        if read is not None:
            return lists[read.writer, read.output]
        return {one.folder: lists[one.node, one.output] for one in self._written}

    def graph(self, base_dir: str | Path = "") -> Graph:
        """Return the checked graph, with input files found relative to `base_dir`.

        Raises InputError, with the names of the nodes, for a graph that cannot run.
        """
        return build(list(self._nodes.values()), self._written, base_dir)

    def job(
        self,
        id: str,
        output: str | Path,
        **options: Any,
    ) -> DataflowJob:
        """Return a job for `slotwise.run`: `slotwise.run([flow.job("words", "out")])`.

        `options` are the fields of `JobProperties` (pool, deadline, after and so on),
        `overwrite`, `memory_bytes`, `slots_min` and `slots_max`, as in the workload file, and
        `work_dir`, the folder for the files of channels. Values are checked when it runs.
        """
        stated: Any = {name: options.pop(name) for name in PROPERTIES if name in options}
        check.job(id, output, options)
        properties = properties_of("job", id, stated)
        return DataflowJob(id, self, str(output), options, **properties)

    def _repr_html_(self) -> str | None:
        """Return the picture of `slotwise show` for notebooks.

        While the graph cannot run yet, returns None; notebooks then show its `repr`.
        """
        try:
            staged = derive(self.graph())
        except InputError:
            return None
        # Pictures belong to a package above this one, which nothing that runs needs.
        html: str = import_module("slotwise.insight.report.notebook").dataflow_html(staged)
        return html

    def _source(self, name: str | None, kind: str, given: Any) -> Stream:
        if name is None:
            number = sum(node.is_source for node in self._nodes.values())
            names = (kind if not n else f"{kind}-{n + 1}" for n in range(number + 1))
            name = next(one for one in names if one not in self._nodes)
        self._check_unused(check.name(name))
        declared = Declared(name, given=given)
        self._nodes[name] = declared
        return Stream(self, declared, None)

    def _reading(self, where: str, stream: object) -> StreamReading:
        if isinstance(stream, Stream):
            stream = Connection(stream, writer_kind(stream), None, False, False)
        elif where in ("write", "evaluate"):
            raise InputError(
                f"{where}: {stream!r:.80} is not a stream; give a stream from flow.node"
            )
        if not isinstance(stream, Connection):
            raise InputError(
                f"{where}: {stream!r:.80} is not a stream; give a stream from flow.read,"
                " flow.values or flow.node"
            )
        if stream.stream._flow is not self:
            raise InputError(f"{where}: {stream.stream!r} belongs to another Dataflow")
        return stream.reading

    def _check_unused(self, name: str) -> None:
        if name in self._nodes:
            raise InputError(f"two nodes are named {name!r}; give one of them another name=")


def writer_kind(stream: Stream) -> Kind:
    """Return the kind of channel through which a stream is read by default."""
    return "direct" if stream._node.is_source else "file"


# MapReduce programs by records as two nodes of a dataflow (Hammr, section 7.2).

BUFFER_BYTES = 64 << 20
"""The memory in which a map collects and combines pairs before writing them."""

key_of = itemgetter(0)
"""The key of a pair."""


class MapNode:
    """Maps the records of a stream; pairs are combined as far as they fit in memory."""

    def __init__(self, program: MapReduce) -> None:
        self._program = program

    def __call__(self, records: Iterable[Any]) -> Iterator[Pair]:
        """Yield the pairs. The program gets None as the key of each record."""
        program = self._program
        buffer = buffer_for(program, BUFFER_BYTES)
        results = (program.map(None, record) for record in records)
        for keys, values in PairStream(results, f"map of {program.name}", BUFFER_BYTES // 32):
            buffer.add(keys, values)
            if buffer.is_full():
                yield from _pairs(buffer.drain(in_order=False))
        yield from _pairs(buffer.drain(in_order=False))


class ReduceNode:
    """Reduces pairs that are sorted by key."""

    def __init__(self, program: MapReduce) -> None:
        self._program = program

    def __call__(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Return the output pairs of all keys."""
        program = self._program
        add = getattr(program, "add", None)
        results = (
            program.reduce(key, (value for _, value in group))
            if add is None
            else program.reduce(key, iter((functools.reduce(add, (v for _, v in group)),)))
            for key, group in groupby(pairs, key_of)
        )
        return _pairs(PairStream(results, f"reduce of {program.name}", BUFFER_BYTES // 32))


def checked(program: AnyProgram, reducers: int) -> MapReduce:
    """Return the program; raise InputError for features that two nodes cannot provide."""
    name = program.name
    if not isinstance(program, MapReduce):
        raise InputError(
            f"map_reduce: {name} maps batches; write it as nodes that read and write tables, or"
            " as a job of its own (slotwise.mapreduce)"
        )
    if program.num_reducers not in (None, reducers):
        raise InputError(
            f"map_reduce: {name} has {program.num_reducers} reducers; give"
            f" reducers={program.num_reducers}"
            if program.num_reducers
            else f"map_reduce: {name} has no reduces; use its map as a node"
        )
    own = [n for n in ("partition", "sort_key") if _is_own(program, n)]
    own += [n for n in ("total_order", "descending") if getattr(program, n)]
    if own:
        raise InputError(
            f"map_reduce: {name} defines {own[0]}, which streams of a dataflow do not have; run"
            " it as a job of its own (slotwise.mapreduce)"
        )
    return program


def _is_own(program: MapReduce, method: str) -> bool:
    return getattr(type(program), method) is not getattr(MapReduce, method)


def _pairs(columns: Iterable[Any]) -> Iterator[Pair]:
    return chain.from_iterable(zip(keys, values, strict=True) for keys, values in columns)
