"""What a user of dataflows may do wrong, and what is told about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise import Dataflow
from slotwise.core.errors import InputError, RecordError


def seven(numbers: Iterator[int]) -> int:
    """What it returns is no list of records."""
    return sum(numbers)


def same(numbers: Iterator[int]) -> Iterator[int]:
    """Each number."""
    return numbers


def listed(number: int) -> list[int]:
    """A key that has no stable hash."""
    return [number]


def wrong_records() -> Dataflow:
    """A node that returns a number."""
    flow = Dataflow()
    flow.write(flow.node(seven, flow.values([3, 4])))
    return flow


def wrong_keys() -> Dataflow:
    """A channel whose keys are lists."""
    flow = Dataflow()
    first = flow.node(same, flow.values([3]), name="first")
    flow.write(flow.node(same, first.file(by=listed), copies=2, name="last"))
    return flow


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (wrong_records, "node seven[0] returned 7; a node yields records, or returns a list"),
        (
            wrong_keys,
            "file channel from first to last: a key is [3], of type list; give strings",
        ),
    ],
)
def test_a_wrong_record_is_told_without_frames_of_slotwise(
    made: Callable[[], Dataflow], message: str, tmp_path: Path
) -> None:
    """An evaluation and a run say the same, in one line and without a traceback."""
    flow = made()
    with pytest.raises(RecordError) as raised:
        flow.evaluate()
    assert message in str(raised.value)
    result = slotwise.run([flow.job("wrong", tmp_path / "out")], slots=1, attempts_max=1)
    assert message in result.failed["wrong"]
    assert "Traceback" not in result.failed["wrong"]


def test_an_evaluation_takes_all_records_that_channels_take() -> None:
    """Plain pickle refuses functions that are defined in functions; cloudpickle takes them."""

    def adders(numbers: Iterator[int]) -> Iterator[Callable[[int], int]]:
        for number in numbers:
            yield lambda other, number=number: number + other  # type: ignore[misc]

    flow = Dataflow()
    made = flow.node(adders, flow.values([1, 2]), name="made")
    used = flow.node(lambda adders: [add(10) for add in adders], made, name="used")
    assert flow.evaluate(used) == [11, 12]


@pytest.mark.parametrize("given", [5, Dataflow(), Dataflow])
def test_what_is_no_job_is_refused(given: Any) -> None:
    """A graph becomes a job by `job`; the message says so."""
    with pytest.raises(
        InputError, match=r"is not a job; expected one of .* job\(...\) of a slotwise.Data"
    ):
        slotwise.simulate([given], slots=1)


@pytest.mark.parametrize("function", [zip, enumerate, dict])
def test_a_class_whose_objects_cannot_be_called_is_refused(function: type) -> None:
    """A class is created with the parameters of its node, and then called with the streams."""
    flow = Dataflow()
    flow.write(flow.node(function, flow.values([1]), name="joined"))
    message = rf"'joined': objects of its class {function.__name__} cannot be called"
    with pytest.raises(InputError, match=message):
        slotwise.simulate([flow.job("wrong", "nowhere")], slots=1)


def test_a_graph_is_shown_with_its_nodes() -> None:
    """The first five names, and the number of the others."""
    flow = Dataflow()
    assert repr(flow) == "<dataflow of no nodes>"
    for number in range(7):
        flow.values([1], name=f"n{number}")
    assert repr(flow) == "<dataflow of n0, n1, n2, n3, n4 and 2 more>"


def test_a_connection_is_shown_with_its_kind() -> None:
    """A message may hold it, as when it is given to `write`."""
    flow = Dataflow()
    numbers = flow.node(same, flow.values([1]), name="numbers")
    with pytest.raises(
        InputError, match="write: <tcp channel from node numbers> is not a stream"
    ):
        flow.write(numbers.tcp())  # type: ignore[arg-type]
