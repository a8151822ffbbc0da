"""The sequential evaluation of dataflows: what each node gets and in what order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from random_dataflows import dataflows, itself
from slotwise import Dataflow, Output
from slotwise.jobs.dataflow.group import evaluate
from slotwise.jobs.dataflow.nodes import OUT
from slotwise.jobs.mapreduce.program import stable_hash
from tiers import examples


def same(numbers: Iterator[int]) -> Iterator[int]:
    """The records as they come."""
    return numbers


def listed(*streams: Iterator[int]) -> Iterator[list[list[int]]]:
    """What each input holds."""
    yield [list(stream) for stream in streams]


def split(numbers: Iterator[int]) -> Iterator[Output]:
    """Numbers to the outputs odd and even."""
    for number in numbers:
        yield Output("odd" if number % 2 else "even", number)


class Scaled:
    """A node with a state."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, numbers: Iterator[int]) -> Iterator[int]:
        """The numbers times the factor."""
        return (self.factor * number for number in numbers)


def held(flow: Dataflow, node: str) -> list[Any]:
    """What a node wrote, for each copy."""
    return evaluate(flow.graph())[node, OUT]


def test_copies_read_what_routes_say() -> None:
    """Copy by copy, all in order of the writers' numbers, everywhere, or by hash of a key."""
    flow = Dataflow()
    four = flow.values(range(8), copies=4)
    two = flow.node(same, four.tcp(by=itself), copies=2)
    flow.node(listed, four, name="pairs")
    flow.node(listed, four, name="one", copies=1)
    flow.node(listed, four.direct(broadcast=True), name="all", copies=2)
    flow.node(listed, four.file(by=itself), two.shm(), name="hashed", copies=2)
    expected: list[list[int]] = [[], []]
    for number in range(8):
        expected[stable_hash(number) % 2].append(number)
    assert held(flow, "pairs") == [[[[0, 1]]], [[[2, 3]]], [[[4, 5]]], [[[6, 7]]]]
    assert held(flow, "one") == [[[list(range(8))]]]
    assert held(flow, "all") == [[[list(range(8))]]] * 2
    assert held(flow, "hashed") == [[[part, part]] for part in expected]
    assert all(expected)


def test_a_sorted_input_keeps_the_order_of_equal_keys() -> None:
    """Records with equal keys come in the order of the writers' numbers."""
    flow = Dataflow()
    pairs = flow.values([("b", 1), ("a", 2), ("b", 3), ("a", 4)], copies=2)
    best = flow.node(same, pairs.file(by=lambda pair: pair[0], sort=True))
    assert flow.evaluate(best) == [("a", 2), ("a", 4), ("b", 1), ("b", 3)]


def test_named_outputs_are_read_one_by_one() -> None:
    """A node with outputs yields slotwise.Output; what is written is listed by name."""
    flow = Dataflow()
    numbers = flow.node(split, flow.values(range(5)), outputs=("odd", "even"))
    doubled = flow.node(Scaled, numbers["odd"], parameters={"factor": 2})
    flow.write(numbers["even"], doubled)
    assert flow.evaluate() == {"split-even": [0, 2, 4], "Scaled": [2, 6]}
    assert flow.evaluate(numbers["odd"]) == [1, 3]


def test_text_lines_json_values_and_tables_are_records(tmp_path: Path) -> None:
    """Lines lose their ends; a line of JSON is its value; a table holds many rows."""
    (tmp_path / "a.txt").write_text("to be\r\nor not\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"n": 1}) + "\n" + json.dumps([2]) + "\n")
    flow = Dataflow()
    lines = flow.read("a.txt", split_bytes=4)
    values = flow.read(tmp_path / "b.jsonl", input_format="jsonl")
    tables = flow.read(tmp_path / "a.txt", tables=True)
    assert flow.evaluate(lines, base_dir=tmp_path) == ["to be", "or not"]
    assert flow.evaluate(values, base_dir=tmp_path) == [{"n": 1}, [2]]
    (table,) = flow.evaluate(tables, base_dir=tmp_path)
    assert table.to_pydict() == {"offset": [0, 7], "line": ["to be", "or not"]}
    assert flow.graph(tmp_path).nodes["input"].copies == 4


def test_a_reader_may_change_its_records() -> None:
    """As through a channel, each reader has records of its own."""

    def emptied(lists: Iterator[list[int]]) -> Iterator[list[int]]:
        for numbers in lists:
            numbers.clear()
            yield numbers

    flow = Dataflow()
    numbers = flow.node(same, flow.values([[1], [2]]), name="numbers")
    flow.write(flow.node(emptied, numbers), flow.node(same, numbers, name="kept"))
    assert flow.evaluate() == {"emptied": [[], []], "kept": [[1], [2]]}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda numbers: 7, "node f[0] returned 7; a node yields records, or returns a list"),
        (lambda numbers: "abc", "node f[0] returned 'abc'; a node yields records"),
        (lambda numbers: [Output("x", 1)], "f[0] yielded Output(name='x', record=1); yield"),
    ],
)
def test_what_is_no_record_is_an_error(function: Callable[..., Any], message: str) -> None:
    """The message names the copy of the node."""
    flow = Dataflow()
    node = flow.node(function, flow.values([1]), name="f")
    with pytest.raises(TypeError) as raised:
        flow.evaluate(node)
    assert message in str(raised.value)


def test_plain_records_need_a_node_without_named_outputs() -> None:
    """A node that lists outputs must say for which one a record is."""
    flow = Dataflow()
    node = flow.node(same, flow.values([1]), outputs=("good", "bad"))
    with pytest.raises(TypeError, match=r"one of its outputs \('good', 'bad'\)"):
        flow.evaluate(node["good"])


def test_errors_of_functions_name_the_copy() -> None:
    """The error is that of the function, with a note."""

    def divided(numbers: Iterator[int]) -> Iterator[float]:
        for number in numbers:
            yield 1 / number

    flow = Dataflow()
    node = flow.node(divided, flow.values([1, 0], copies=2))
    with pytest.raises(ZeroDivisionError) as raised:
        flow.evaluate(node)
    assert raised.value.__notes__ == ["in node divided[1]"]


def test_records_must_be_picklable() -> None:
    """What could not pass a channel is refused here, too."""
    flow = Dataflow()
    bad = flow.node(lambda numbers: [(n for n in numbers)], flow.values([1]), name="bad")
    last = flow.node(same, bad, name="last")
    with pytest.raises(TypeError, match="cannot pickle") as raised:
        flow.evaluate(last)
    # Since Python 3.14, pickle adds a note of its own.
    notes = [n for n in raised.value.__notes__ if not n.startswith("when serializing ")]
    assert notes == [
        "in the file channel from bad to last; records must be objects that pickle can copy"
    ]


@given(flow=dataflows())
@hypothesis_settings(max_examples=examples(30, slow=2000), deadline=None)
def test_routes_neither_lose_nor_double_records(flow: Dataflow) -> None:
    """All copies of a reader together get each record once, or once each if all get all."""
    graph = flow.graph()
    found = evaluate(graph)
    again = evaluate(flow.graph())
    assert found == again
    for channel in graph.channels:
        copies = graph.nodes[channel.reader].copies
        read = Dataflow()
        parts = found[channel.writer, channel.output]
        values = read.values([n for part in parts for n in part])
        times = copies if channel.route == "all" else 1
        if channel.route == "hash":
            node = read.node(same, values.file(by=itself), copies=copies)
        else:
            node = read.node(same, values.direct(broadcast=True), copies=times)
        total = Counter(n for part in parts for n in part)
        got = Counter(read.evaluate(node))
        assert got == Counter({n: count * times for n, count in total.items()})
