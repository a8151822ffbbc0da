"""Logs that no run can have written are refused where they are read, with the line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotwise.api import simulate
from slotwise.backends.simulated.backend import Simulation
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import read_log
from slotwise.workload.workload import Workload

Line = dict[str, Any]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The log of a run by queues in which a host becomes unresponsive and comes back."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    cluster = Cluster((Host("h1", {"task": 1}), Host("h2", {"task": 1})), grace=1.0)
    truth = Simulation(outages=(Outage("h1", 1, 3),))
    jobs = tuple(Job(id, (Phase("map", Tasks(4, 2.0)),)) for id in ("a", "b"))
    simulate(Workload(jobs, cluster), "dmrs", simulation=truth, log=path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def change(kind: str, **values: object) -> Callable[[list[Line]], int]:
    """Put these values into the first entry of a kind; the number of its line."""

    def of(lines: list[Line]) -> int:
        for number, line in enumerate(lines[1:], 2):
            for entry in (*line["events"], *line["decisions"]):
                if entry["is"] == kind:
                    entry.update(values)
                    return number
        raise AssertionError(kind)

    return of


def leave_out(kind: str, until: str) -> Callable[[list[Line]], int]:
    """Leave out all entries of a kind; the line of the first one that makes no sense then."""

    def of(lines: list[Line]) -> int:
        for line in lines[1:]:
            for key in "events", "decisions":
                line[key] = [entry for entry in line[key] if entry["is"] != kind]
        return change(until)(lines)

    return of


def turn_back(lines: list[Line]) -> int:
    """The last turn lies before the one before it."""
    lines[-1]["now"] = 0.5
    return len(lines)


DAMAGED = {
    "host 'h3' has not joined": change("HostLost", host="h3"),
    "host 7 has not joined": change("HostJoined", host=7),
    "HostJoined of 'h1' repeats its state": leave_out("HostLost", "HostJoined"),
    "HostLost of 'h1' repeats its state": lambda lines: change(
        "HostJoined", **{"is": "HostLost"}
    )(lines),
    "at is None": change("HostLost", at=None),
    "host 'h4' has not joined": change("Enqueue", queues={"h4": [["a", "map", 0]]}),
    "phase a/map has no task 4": change("Enqueue", queues={"h1": [["a", "map", 4]]}),
    "phase a/map has no task -1": change("Enqueue", queues={"h1": [["a", "map", -1]]}),
    "phase a/map has no task 0.5": change("Enqueue", queues={"h1": [["a", "map", 0.5]]}),
    "phase a/reduce has not arrived": change("Enqueue", queues={"h1": [["a", "reduce", 0]]}),
    "unhashable": change("Enqueue", queues={"h1": [["a", ["map"], 0]]}),
    "job 'c' has not arrived": change("Enqueue", jobs=["a", "c"]),
    "job 'd' has not arrived": change("Enqueue", starts=[["d", "map", 1.0]]),
    "starts has 'soon'": change("Enqueue", starts=[["a", "map", "soon"]]),
    "has no attribute": change("Enqueue", queues=[1]),
    "host 'h5' has not joined": change("Launch", host="h5"),
    "attempt is 'x'": change("Launch", attempt="x"),
    "seconds is nan": change("TaskFinished", seconds=float("nan")),
    "peak is 0.5": change("TaskFinished", peak=0.5),
    "has not arrived": leave_out("JobArrived", "Enqueue"),
    "time is 0.5 after": turn_back,
}
"""What is said of a log, and what was done to it."""


@pytest.mark.parametrize("words", DAMAGED)
def test_impossible_observations_are_refused(
    lines: list[Line], words: str, tmp_path: Path
) -> None:
    """Before anything is made of it, with the file, the line and what is wrong there."""
    damaged = json.loads(json.dumps(lines))
    number = DAMAGED[words](damaged)
    path = tmp_path / "damaged.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in damaged))
    with pytest.raises(InputError) as refused:
        read_log(path)
    assert f"log {str(path)!r}, line {number}: " in str(refused.value)
    assert words in str(refused.value)


def test_written_observations_are_accepted(lines: list[Line], tmp_path: Path) -> None:
    """The same log, unharmed."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(read_log(path).turns) == len(lines) - 1
