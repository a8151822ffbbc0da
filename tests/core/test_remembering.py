"""What a run remembers: tasks of programs that ended well, within seconds, and no others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from slotwise.core import history
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.errors import InputError
from slotwise.core.events import Event, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.history import HistoryWriter, append_history, read_history
from slotwise.core.job import Observation, PhaseId, Sizes

CLUSTER = Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 2}, speed=0.5)))


class Runs(NamedTuple):
    """The program of a job, and the bytes of its tasks."""

    program: str
    sizes: Mapping[str, Sizes]

    def known_as(self, phase: str) -> tuple[str, str]:
        """The names of a phase in histories."""
        return self.program, phase


PROGRAMS = {"j": Runs("wc", {"map": (100, 200), "reduce": 50})}
MAP, REDUCE, COPY = (PhaseId("j", name) for name in ("map", "reduce", "reduce-copy"))


def launch(phase: PhaseId, task: int, host: str, attempt: int = 1) -> Launch:
    """An attempt begins."""
    return Launch(phase, task, attempt, host, Locality.NODE)


def done(
    phase: PhaseId, task: int, seconds: float, attempt: int = 1, peak: int | None = None
) -> TaskFinished:
    """It ends well."""
    return TaskFinished(9.0, phase, task, attempt, seconds, peak)


def remembered(path: Path, *turns: tuple[list[Event], list[Launch]]) -> list[Observation]:
    """What is in the history after these turns, the oldest first by host and phase."""
    with HistoryWriter(path, PROGRAMS, CLUSTER) as record:
        for now, (events, decisions) in enumerate(turns):
            record(float(now), events, decisions)
    return read_history(path) if path.exists() else []


def test_finished_tasks_are_remembered(tmp_path: Path) -> None:
    """With their bytes, host, the speed that was stated for it, seconds and peak memory."""
    begun = [launch(MAP, 1, "h2"), launch(REDUCE, 7, "h1")]
    ended: list[Event] = [done(MAP, 1, 3.0, peak=9), done(REDUCE, 7, 2.0)]
    assert remembered(tmp_path / "h.db", ([], begun), (ended, [])) == [
        Observation("wc", "map", 200, "h2", 0.5, 3.0, 9),
        Observation("wc", "reduce", 50, "h1", 1.0, 2.0),
    ]


def test_other_events_are_not_remembered(tmp_path: Path) -> None:
    """Failed ones, sleeping jobs, copying, news that comes twice, and tasks that went on."""
    other = PhaseId("sleeping", "map")
    begun = [launch(MAP, 0, "h1"), launch(MAP, 1, "h1"), launch(other, 0, "h1")]
    first: list[Event] = [
        TaskFailed(1.0, MAP, 0, 1, "broken"),
        TaskKilled(1.0, MAP, 1, 1, kept=4.0),
        done(other, 0, 1.0),
    ]
    again = [launch(MAP, 0, "h2", 2), launch(MAP, 1, "h2", 2), launch(COPY, 0, "h1")]
    last: list[Event] = [
        done(MAP, 0, 5.0, attempt=2),
        done(MAP, 0, 5.0, attempt=2),
        done(MAP, 1, 1.0, attempt=2),
        done(COPY, 0, 1.0),
    ]
    found = remembered(tmp_path / "h.db", ([], begun), (first, again), (last, []))
    assert found == [Observation("wc", "map", 100, "h2", 0.5, 5.0)]


def test_batches_are_written_during_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if no other turn comes for long, so that a kill loses a few seconds only."""
    monkeypatch.setattr(history, "WRITE_SECONDS", 0.02)
    path = tmp_path / "h.db"
    with HistoryWriter(path, PROGRAMS, CLUSTER) as record:
        record(0.0, [], [launch(MAP, 0, "h1")])
        record(1.0, [done(MAP, 0, 1.0)], [])
        until = time.monotonic() + 120
        while not path.exists() or not read_history(path):
            assert time.monotonic() < until
            time.sleep(0.01)
        record(2.0, [], [launch(MAP, 1, "h1")])
        record(3.0, [done(MAP, 1, 2.0)], [])
    assert sorted(o.seconds for o in read_history(path)) == [1.0, 2.0]


def test_failed_writes_are_retried_and_reported_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that comes back in time loses nothing; one that does not is an error.

    So is one that is not there at the start.
    """
    monkeypatch.setattr(history, "WRITE_SECONDS", 0.02)
    path, away = tmp_path / "here" / "h.db", tmp_path / "away"
    tried = threading.Event()

    def append(path: Path, batch: Sequence[Observation]) -> None:
        tried.set()
        append_history(path, batch)

    monkeypatch.setattr(history, "append_history", append)
    with pytest.raises(InputError, match=r"h\.db"):
        remembered(path)
    path.parent.mkdir()

    def turns_with_it_away() -> Iterator[None]:
        with HistoryWriter(path, PROGRAMS, CLUSTER) as record:
            path.parent.rename(away)
            record(0.0, [], [launch(MAP, 0, "h1")])
            tried.clear()
            record(1.0, [done(MAP, 0, 1.0)], [])
            assert tried.wait(120)
            yield

    with pytest.raises(InputError, match=r"h\.db"):
        list(turns_with_it_away())
    away.rename(path.parent)
    for _ in turns_with_it_away():
        away.rename(path.parent)
    assert [o.seconds for o in read_history(path)] == [1.0]
