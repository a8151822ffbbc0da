"""Random dataflows: small graphs of nodes with every kind of channel and route."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from slotwise import Dataflow, Output
from slotwise.jobs.dataflow.graph import Connection, Stream
from slotwise.jobs.dataflow.group import evaluate
from slotwise.jobs.dataflow.stages import StagedGraph


def itself(number: int) -> int:
    """The key of a record."""
    return number


def mix(*streams: Iterator[int], salt: int) -> Iterator[int]:
    """Numbers that depend on the order in which records arrive in each input."""
    state = salt
    for numbers in zip_longest(*streams, fillvalue=7):
        for number in numbers:
            state = (state * 31 + number) % 1009
            if state % 5:
                yield state


def one_by_one(*streams: Iterator[int], salt: int) -> Iterator[int]:
    """Reads its inputs one after another, and the first one only in part."""
    first, *rest = streams
    for number, _ in zip(first, range(5), strict=False):
        yield (number + salt) % 1009
    for stream in rest:
        yield sum(stream) % 1009


def fork(*streams: Iterator[int], salt: int) -> Iterator[Output]:
    """Writes to two outputs, in a varying order."""
    for stream in streams:
        for number in stream:
            yield Output("even" if (number + salt) % 2 == 0 else "odd", number)


@st.composite
def dataflows(draw: st.DrawFn, nodes_most: int = 6, copies_most: int = 3) -> Dataflow:
    """A dataflow of up to this number of nodes besides its source; all nodes are written.

    It may be refused, because a file channel lies inside a bundle or bundles wait for each
    other.
    """
    flow = Dataflow()
    copies = st.integers(1, copies_most)
    numbers = draw(st.lists(st.integers(0, 1000), max_size=12))
    parts = draw(copies)
    streams: list[tuple[Stream, int]] = [(flow.values(numbers, copies=parts), parts)]
    for place in range(draw(st.integers(1, nodes_most))):
        wanted = draw(copies)
        function = draw(st.sampled_from([mix, one_by_one, fork]))
        chosen = draw(st.lists(st.sampled_from(streams), min_size=1, max_size=3))
        reads = [draw(_readings(stream, count, wanted)) for stream, count in chosen]
        outputs = ("even", "odd") if function is fork else ()
        node = flow.node(
            function,
            *reads,
            name=f"n{place}",
            copies=wanted,
            parameters={"salt": place},
            outputs=outputs,
        )
        made = [node[output] for output in outputs] or [node]
        streams += [(stream, wanted) for stream in made]
        flow.write(*made)
    return flow


@st.composite
def _readings(draw: st.DrawFn, stream: Stream, copies: int, wanted: int) -> Connection:
    """A way to read a stream of a node with `copies` copies in a node of `wanted` copies."""
    is_source = stream.name.startswith("values")
    kind = draw(st.sampled_from(["file", "tcp", "shm", *(["direct"] if is_source else [])]))
    ways: list[dict[str, Any]] = [{"broadcast": True}]
    if copies == wanted or wanted == 1:
        ways.append({})
    if kind != "direct":
        ways.append({"by": itself})
    if kind == "file":
        ways.append({"by": itself, "sort": True})
    connection: Connection = getattr(stream, kind)(**draw(st.sampled_from(ways)))
    return connection


def written(folder: Path, suffix: str = "") -> list[str]:
    """The text of each part of an output, in order."""
    return [part.read_text() for part in sorted(folder.glob(f"part-n-*{suffix}"))]


def check(staged: StagedGraph, output: Path) -> None:
    """The parts are those of the evaluation, record by record."""
    found = evaluate(staged.graph)
    for one in staged.graph.written:
        expected = [
            "".join(f"{record}\n" for record in records)
            for records in found[one.node, one.output]
        ]
        assert written(output / one.folder) == expected
