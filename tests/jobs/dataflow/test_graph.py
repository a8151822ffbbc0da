"""Building a dataflow: what is refused, and with which message."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import slotwise
from slotwise import Dataflow, InputError
from slotwise.jobs.dataflow.nodes import Channel


def words(lines: Iterator[str]) -> Iterator[str]:
    """A node with one input."""
    for line in lines:
        yield from line.split()


def join(left: Iterator[Any], right: Iterator[Any]) -> Iterator[Any]:
    """A node with two inputs."""
    yield from zip(left, right, strict=False)


def top(counts: Iterator[Any], number: int) -> Iterator[Any]:
    """A node with one input and a parameter."""
    yield from sorted(counts)[:number]


class Scaled:
    """A class with a parameter."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, numbers: Iterator[int]) -> Iterator[int]:
        """The numbers times the factor."""
        return (self.factor * number for number in numbers)


def channels(flow: Dataflow) -> list[str]:
    """The channels of a dataflow with their routes."""
    return [f"{channel}: {channel.route}" for channel in flow.graph().channels]


def test_a_node_alone_is_read_from_files_and_a_source_alone_directly() -> None:
    """Copies are counted from what is read; routes follow from copies."""
    flow = Dataflow()
    lines = flow.values(["a b", "c"], copies=2)
    split = flow.node(words, lines)
    counted = flow.node(top, split.tcp(by=len), copies=3, parameters={"number": 2})
    flow.node(top, counted, parameters={"number": 2}, name="best")
    flow.node(words, split.shm(broadcast=True), copies=2, name="all")
    assert channels(flow) == [
        "direct channel from values to words: pairs",
        "tcp channel from words to top: hash",
        "file channel from top to best: all",
        "shm channel from words to all: all",
    ]
    copies = {name: node.copies for name, node in flow.graph().nodes.items()}
    assert copies == {"values": 2, "words": 2, "top": 3, "best": 1, "all": 2}


def test_a_graph_may_be_connected_in_any_order() -> None:
    """flow.connect fills the next input; nodes of the graph are in topological order."""
    flow = Dataflow()
    joined = flow.node(join)
    one = flow.node(words, flow.values(["a"]), name="one")
    other = flow.node(words, name="other")
    flow.connect(one, joined)
    flow.connect(other, joined, "tcp")
    flow.connect(flow.values(["b"]), other)
    assert list(flow.graph().nodes) == ["values", "one", "values-2", "other", "join"]
    inputs = flow.graph().inputs("join")
    assert [(channel.writer, channel.kind) for channel in inputs] == [
        ("one", "file"),
        ("other", "tcp"),
    ]


def test_channels_say_what_they_connect() -> None:
    """Messages name both ends and the output."""
    text = str(Channel(0, "a", "bad", "b", 0, "tcp", "all"))
    assert text == "tcp channel from a['bad'] to b"


def flow_with(build: Callable[[Dataflow], object]) -> str:
    """The message with which a dataflow is refused."""
    flow = Dataflow()
    try:
        build(flow)
        flow.graph()
    except InputError as refused:
        return str(refused)
    return "nothing is refused"


def circle(flow: Dataflow) -> None:
    """Two nodes that read from each other, and one that reads from them."""
    a = flow.node(words, name="a")
    b = flow.node(words, a, name="b")
    flow.connect(b, a)
    flow.node(words, b, name="c")


REFUSED: dict[str, tuple[Callable[[Dataflow], object], str]] = {
    "a circle": (
        circle,
        "nodes read from each other in a circle: a -> b -> a; leave out one of these channels,"
        " or repeat the nodes, once for each round",
    ),
    "no nodes": (
        lambda flow: None,
        "the dataflow has no nodes; add nodes with flow.read and flow.node",
    ),
    "an unconnected input": (
        lambda flow: flow.node(join, flow.values([1])),
        "node 'join': its input 2 ('right') is not connected; give flow.node a stream for it,"
        " or use flow.connect; a value goes into parameters={...}",
    ),
    "a missing parameter": (
        lambda flow: flow.node(top, flow.values([1])),
        "node 'top': its input 2 ('number') is not connected; give flow.node a stream for it,"
        " or use flow.connect; a value goes into parameters={...}",
    ),
    "too many inputs": (
        lambda flow: flow.node(words, flow.values([1]), flow.values([2])),
        "node 'words' reads 2 streams, but its function takes 1; leave some out, or add"
        " parameters to the function",
    ),
    "an unknown parameter": (
        lambda flow: flow.node(words, flow.values([1]), parameters={"n": 1}),
        "node 'words': got an unexpected keyword argument 'n'; parameters of its function:"
        " lines",
    ),
    "a parameter that a class lacks": (
        lambda flow: flow.node(Scaled, flow.values([1])),
        "node 'Scaled': parameters do not fit: missing a required argument: 'factor'",
    ),
    "two names": (
        lambda flow: (flow.node(words, flow.values([1])), flow.node(words, flow.values([1]))),
        "two nodes are named 'words'; give one of them another name=",
    ),
    "a lambda": (
        lambda flow: flow.node(lambda numbers: numbers, flow.values([1])),
        "has no name; give the node name=...",
    ),
    "an odd name": (
        lambda flow: flow.node(words, flow.values([1]), name="a/b"),
        "the name of a node or output is 'a/b'; give at most 100 letters, digits, '_', '-' and"
        " '.', and begin with a letter, a digit or '_'",
    ),
    "a name that begins with a dot": (
        lambda flow: flow.node(words, flow.values([1]), name=".a"),
        "is '.a'; give at most 100 letters, digits, '_', '-' and '.', and begin with a letter,"
        " a digit or '_'",
    ),
    "no function": (
        lambda flow: flow.node("words", flow.values([1]), name="x"),  # type: ignore[arg-type]
        "node 'x': function is 'words'; give a function or a class first, then the streams that"
        " it reads",
    ),
    "no stream": (
        lambda flow: flow.node(words, [1, 2]),  # type: ignore[arg-type]
        "node 'words': [1, 2] is not a stream; give a stream from flow.read, flow.values or"
        " flow.node",
    ),
    "a stream of another dataflow": (
        lambda flow: flow.node(words, Dataflow().values([1])),
        "node 'words': <stream of node values> belongs to another Dataflow",
    ),
    "no copies": (
        lambda flow: flow.node(words, flow.values([1]), copies=0),
        "node 'words': copies is 0; give a whole number from 1 to 100000",
    ),
    "copies as text": (
        lambda flow: flow.values([1], copies="2"),  # type: ignore[arg-type]
        "copies is '2'; give a whole number from 1 to 100000",
    ),
    "odd parameters": (
        lambda flow: flow.node(words, flow.values([1]), parameters=[1]),  # type: ignore[arg-type]
        "node 'words': parameters is [1]; give a dict of values by name",
    ),
    "odd outputs": (
        lambda flow: flow.node(words, flow.values([1]), outputs="bad"),
        "node 'words': outputs is 'bad'; give a tuple of names",
    ),
    "outputs twice": (
        lambda flow: flow.node(words, flow.values([1]), outputs=("a", "a")),
        "node 'words': outputs is ('a', 'a'); name each one once",
    ),
    "endless work": (
        lambda flow: flow.node(words, flow.values([1]), work=math.inf),
        "node 'words': work is inf; give the seconds of one copy, >= 0",
    ),
    "several outputs": (
        lambda flow: flow.node(words, flow.node(words, name="a", outputs=("good", "bad"))),
        "node 'a' has several outputs; name the one to read: a['good'] or a['bad']",
    ),
    "an unknown output": (
        lambda flow: flow.node(words, name="a", outputs=("good", "bad"))["worse"],
        "node 'a' has no output 'worse'; it has 'good', 'bad': list names in outputs=(...) of"
        " flow.node",
    ),
    "an output without names": (
        lambda flow: flow.node(words, name="a")["bad"],
        "node 'a' has no output 'bad'; it has one output without a name: list names in"
        " outputs=(...) of flow.node",
    ),
    "no route": (
        lambda flow: flow.node(
            words, flow.node(words, flow.values([1]), name="a", copies=1), name="b", copies=2
        ),
        "node 'b' has 2 copies and reads 'a', which has 1: it is undefined which copy gets"
        " a record; give by=... (a function that returns the key of a record), broadcast=True"
        " (each copy gets all records), or give both the same number of copies",
    ),
    "no route from a source": (
        lambda flow: flow.node(words, flow.values([1], copies=3), copies=2),
        "node 'words' has 2 copies and reads 'values', which has 3: it is undefined which copy"
        " gets a record; leave out its copies to have one for each, or give copies=1, or read"
        " by key, as with tcp(by=...)",
    ),
    "by and broadcast": (
        lambda flow: flow.values([1]).tcp(by=len, broadcast=True),
        "the stream of 'values': by sends each record to one copy and broadcast to all; leave"
        " out one",
    ),
    "a key that is no function": (
        lambda flow: flow.values([1]).tcp(by="name"),  # type: ignore[arg-type]
        "the stream of 'values': by is 'name'; give a function that returns the key of a"
        " record",
    ),
    "sort without a key": (
        lambda flow: flow.values([1]).file(sort=True),
        "the stream of 'values': sort is for file channels with a key; write file(by=...,"
        " sort=True)",
    ),
    "an unknown kind": (
        lambda flow: flow.connect(
            flow.values([1]),
            flow.node(words),
            "udp",  # type: ignore[arg-type]
        ),
        "the stream of 'values': kind is 'udp'; known: file, tcp, shm",
    ),
    "a node that is read directly": (
        lambda flow: flow.node(words, name="a").direct(),
        "the stream of 'a' is read directly, but 'a' is not a source; read it by file,"
        " tcp or shm",
    ),
    "a reader that is a source": (
        lambda flow: flow.connect(flow.values([1]), flow.values([2])),
        "connect: <stream of node values-2> reads nothing; give a stream from flow.node",
    ),
    "no writer": (
        lambda flow: flow.connect(7, flow.node(words)),  # type: ignore[arg-type]
        "connect: writer is 7; give a stream of this Dataflow",
    ),
    "no inputs": (
        lambda flow: flow.read([]),
        "flow.read: inputs is []; give a path, a glob or a folder, or a list of them",
    ),
    "a missing input": (
        lambda flow: flow.read("/missing/*.txt"),
        "input '/missing/*.txt': no file matches; give a path, a directory with files, or a"
        " glob such as 'books/*.txt'",
    ),
    "an unknown format": (
        lambda flow: flow.read("x", input_format="csv"),
        "flow.read: input_format is 'csv'; known: jsonl, parquet, text",
    ),
    "no bytes": (
        lambda flow: flow.read("x", split_bytes=0),
        "flow.read: split_bytes is 0; give a whole number >= 1",
    ),
    "tables as text": (
        lambda flow: flow.read("x", tables="yes"),  # type: ignore[arg-type]
        "flow.read: tables is 'yes'; give True or False",
    ),
    "values as text": (
        lambda flow: flow.values("abc"),
        "flow.values: records is 'abc'; give a list of records",
    ),
    "values that cannot be sent": (
        lambda flow: flow.values([(number for number in (1, 2))]),
        "flow.values: a record cannot be pickled: cannot pickle 'generator' object; give plain"
        " data",
    ),
    "nothing to write": (
        lambda flow: flow.write(),
        "write: no stream is given; give a stream from flow.node",
    ),
    "a connection to write": (
        lambda flow: flow.write(flow.values([1]).tcp()),  # type: ignore[arg-type]
        "is not a stream; give a stream from flow.node",
    ),
    "written twice": (
        lambda flow: flow.write(*[flow.values([1])] * 2),
        "write: 'values' is written twice; leave one out",
    ),
    "an unknown output format": (
        lambda flow: flow.write(flow.values([1]), output_format="csv"),
        "unknown output format 'csv'; known: jsonl, parquet, text",
    ),
    "nothing to evaluate": (
        lambda flow: flow.evaluate(),
        "evaluate: no stream is written; give the stream to evaluate",
    ),
    "a folder with an underscore": (
        lambda flow: flow.write(flow.values([1], name="_a"), flow.values([1], name="b")),
        "node '_a' is written to a folder of its own, whose name must not begin with '_'; give"
        " the node another name=",
    ),
    "no output of a job": (
        lambda flow: flow.job("words", 7),  # type: ignore[arg-type]
        "job 'words': output is 7; give a path, as a string or a Path",
    ),
    "a work folder that is no path": (
        lambda flow: flow.job("words", "out", work_dir=3),
        "job 'words': work_dir is 3; give a path, as a string or a Path",
    ),
    "steps of a job that are no pairs": (
        lambda flow: flow.job("words", "out", steps=7),
        "job 'words': steps is 7; expected pairs (seconds, cost)",
    ),
    "an unknown setting of a job": (
        lambda flow: flow.job("words", "out", reducers=3),
        "job 'words': a dataflow has no setting 'reducers'; known: memory_bytes, overwrite,"
        " slots_min, slots_max, work_dir",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused(name: str) -> None:
    """One message with place, value and remedy."""
    build, message = REFUSED[name]
    assert message in flow_with(build)


def test_a_stream_is_no_iterable() -> None:
    """A loop over a stream is a mistake that ends at once."""
    stream = Dataflow().values([1])
    with pytest.raises(TypeError, match="not iterable"):
        iter(stream)  # type: ignore[call-overload]


def test_a_dataflow_is_public() -> None:
    """Users import it from slotwise."""
    assert slotwise.Dataflow is Dataflow
