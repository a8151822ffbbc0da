"""MapReduce programs as nodes of a dataflow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise import MapReduce
from slotwise.core.errors import InputError

TEXT = "to be or not to be\nthat is the question\n" * 20


class Lengths(MapReduce):
    """The words of each length, in the order of the text; without a combine."""

    def map(self, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        """Each word with its length."""
        return ((len(word), word) for word in value.split())

    def reduce(self, key: Any, values: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        """All words, in order."""
        yield key, " ".join(values)


class Sorted(Lengths):
    """Decides how keys are sorted."""

    descending = True


class Narrow(Lengths):
    """Decides on its reduces."""

    num_reducers = 3


def largest(pairs: Iterator[tuple[str, int]]) -> list[tuple[str, int]]:
    """The pair with the largest value."""
    return [max(pairs, key=lambda pair: (pair[1], pair[0]))]


def unchanged(lines: Iterator[str]) -> Iterator[str]:
    """What is read."""
    return lines


def by_value(program: type[MapReduce]) -> type[MapReduce]:
    """The same program, which worker processes need not import."""
    program.__module__ = "__main__"
    return program


@pytest.mark.parametrize("program", ["wordcount", Lengths])
def test_the_parts_are_those_of_a_mapreduce_job(program: Any, tmp_path: Path) -> None:
    """Two jobs of one run: the same program, as a job of its own and as two nodes."""
    text = tmp_path / "text"
    text.write_text(TEXT)
    if not isinstance(program, str):
        program = by_value(program)
    flow = slotwise.Dataflow()
    flow.write(flow.map_reduce(program, flow.read(text, split_bytes=200), reducers=3))
    jobs = [
        flow.job("flow", tmp_path / "flow"),
        slotwise.mapreduce(
            program, text, tmp_path / "job", id="job", reducers=3, split_bytes=200
        ),
    ]
    assert not slotwise.run(jobs, slots=2).failed
    parts = {
        name: [part.read_text() for part in sorted((tmp_path / name).glob("part-*"))]
        for name in ("flow", "job")
    }
    assert len(parts["job"]) == 3
    assert parts["flow"] == parts["job"]


def test_its_output_is_a_stream_for_further_nodes() -> None:
    """And its input may be what a node writes."""
    flow = slotwise.Dataflow()
    lines = flow.node(unchanged, flow.values(TEXT.splitlines()))
    counts = flow.map_reduce("wordcount", lines, name="count")
    assert flow.evaluate(flow.node(largest, counts)) == [("to", 40)]
    assert list(flow.graph().nodes)[-3:] == ["count-map", "count", "largest"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (Sorted, "Sorted defines descending, which streams of a dataflow do not have; run it"),
        (Narrow, "Narrow has 3 reducers; give reducers=3"),
    ],
)
def test_what_two_nodes_cannot_do_is_refused(program: Any, reason: str) -> None:
    """With what to do instead."""
    flow = slotwise.Dataflow()
    with pytest.raises(InputError, match=reason):
        flow.map_reduce(program, flow.values(["a"]))
