"""The process that schedules does not unpickle what tasks of programs and commands return."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise import Job, MapReduce, Phase, Tasks
from slotwise.backends.local.workers import Reply
from slotwise.jobs.execution import TaskResult, packed_report, read_report


class Sorted(MapReduce):
    """Lines in total order: a sample divides the keys among the reduces."""

    total_order = True

    def map(self, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        """Each line as a key."""
        yield value, 1

    def reduce(self, key: Any, values: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        """The line."""
        yield key, sum(values)


Sorted.__module__ = "__main__"  # So that workers need not import this module.


def upper(lines: Iterator[str]) -> Iterator[str]:
    """The lines in capitals."""
    return (line.upper() for line in lines)


upper.__module__ = "__main__"


def counted_unpickling(monkeypatch: pytest.MonkeyPatch) -> list[Reply]:
    """The replies whose results are unpickled from now on."""
    opened: list[Reply] = []
    real = Reply.opened

    def record(reply: Reply, *, unpickles: bool) -> Reply:
        if unpickles:
            opened.append(reply)
        return real(reply, unpickles=unpickles)

    monkeypatch.setattr(Reply, "opened", record)
    return opened


def test_no_result_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program with a sample, a dataflow, a command and tasks that sleep."""
    opened = counted_unpickling(monkeypatch)
    text = tmp_path / "text"
    text.write_text("".join(f"line {n * 7919 % 1000}\n" for n in range(1000)))
    flow = slotwise.Dataflow()
    flow.write(flow.node(upper, flow.read(text)))
    jobs = [
        slotwise.mapreduce(Sorted, text, tmp_path / "sort", id="sort", reducers=3),
        flow.job("flow", tmp_path / "flow"),
        slotwise.command("echo hello", tmp_path / "command", id="command"),
        Job("sleep", (Phase("rest", Tasks(2, 0.0)),)),
    ]
    result = slotwise.run(jobs, "fair", slots=2)
    assert not result.failed
    assert not opened


def test_the_results_of_calls_are_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are unpickled when they come."""
    opened = counted_unpickling(monkeypatch)
    calls = slotwise.Calls(Job("calls", (Phase("p", Tasks(2, 1.0)),)), lambda task: [task])
    slotwise.run(calls, "fair", slots=1)
    assert calls.results["p"] == {0: [0], 1: [1]}
    assert [reply.status for reply in opened] == ["done", "done"]


def test_a_report_passes_without_code() -> None:
    """Other bytes, and other values, are refused."""
    report = TaskResult(3, 40, 0.5, "tcp://host:1")
    assert read_report(packed_report(report)) == report
    for other in (b"", b"[1, 2]", b'[1, 2, 3.0, "", 5]', b"null", b'["a", 2, 3.0, ""]', report):
        with pytest.raises(ValueError, match="it is not the report of a task"):
            read_report(other)
