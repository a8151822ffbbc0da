"""Dates and times of day as seconds on the clock of arrivals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from slotwise.core.errors import InputError, SlotwiseWarning
from slotwise.workload.dates import Clock, instant
from slotwise.workload.file import parse_workload, read_job, read_workload
from slotwise.workload.writer import write_workload

HOUR = 3600.0

Zone = Callable[[str], None]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zone]:
    """Sets the time zone of this machine during a test."""

    def use(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield use
    monkeypatch.undo()
    time.tzset()


STATED = {
    "2026-11-27T17:00": 9 * HOUR,
    "2026-11-27 17:00": 9 * HOUR,
    "2026-11-27T17:00:30.5": 9 * HOUR + 30.5,
    "2026-11-28T08:00": 24 * HOUR,
    "2026-11-27T17:00Z": 10 * HOUR,
    "2026-11-27T17:00-05:00": 15 * HOUR,
    "17:00": 9 * HOUR,
    "9:30": 1.5 * HOUR,
    "07:00": 23 * HOUR,
    "09:00Z": 2 * HOUR,
    "1h30m": 1.5 * HOUR,
}


@pytest.mark.parametrize("text", STATED)
def test_an_instant(text: str, zone: Zone) -> None:
    """Without an offset it is local time; a time of day is the next one."""
    zone("Europe/Berlin")
    assert instant(text, Clock.stated("2026-11-27T08:00")) == STATED[text]


def test_a_time_of_day_at_the_beginning() -> None:
    """A job may arrive at the beginning; a deadline then is a day later."""
    clock = Clock.stated("2026-11-27T08:00")
    assert [clock.seconds("08:00", is_after) for is_after in (False, True)] == [0, 24 * HOUR]


def test_the_night_when_clocks_change(zone: Zone) -> None:
    """Seconds are those that pass: the last Sunday of October has 25 hours in Berlin."""
    zone("Europe/Berlin")
    clock = Clock.stated("2026-10-25T00:00")
    assert instant("2026-10-26T00:00", clock) == 25 * HOUR
    assert instant("12:00", clock) == 13 * HOUR


def test_an_offset_of_the_start_is_that_of_all_dates(zone: Zone) -> None:
    """Such a file means the same everywhere."""
    zone("America/New_York")
    clock = Clock.stated("2026-11-27T08:00+01:00")
    assert instant("2026-11-27T17:00", clock) == instant("17:00", clock) == 9 * HOUR


BAD = {
    "2026-11-27": "expected a time, too, as in 2026-11-27T17:00",
    "2026-11-27T07:59": "the start is 2026-11-27 08:00:00.*; expected a later date",
    "2026-02-30T10:00": "there is no such date or time",
    "25:00": "there is no such date or time",
    "17:00+30:00": "there is no such offset",
    "tomorrow": "expected seconds, or a duration .*, or a date and time .*, or a time such as",
}


@pytest.mark.parametrize("text", BAD)
def test_no_instant(text: str) -> None:
    """What is wrong is said with what is expected."""
    with pytest.raises(ValueError, match=BAD[text]):
        instant(text, Clock.stated("2026-11-27T08:00"))


FILE = """\
slotwise: 1
start: 2026-11-27T08:00
cluster:
  grace: 1m
  hosts: [{name: h, slots: 4}]
  changes: [{at: 10:00, drain: h}, {at: 2h, add: {name: i, slots: 4}}]
jobs:
  - {id: a, arrival: 08:00, deadline: 17:00, steps: [[12:30, 1], [2026-11-27 13:00, 2]],
     phases: [{name: map, work: 1h, tasks: 4, slots_max: 50%}, {name: b, tasks: [5m, 90]}]}
"""


def test_the_last_day() -> None:
    """There is no time of day after the last one that dates can state."""
    with pytest.raises(ValueError, match="there is no such date or time"):
        instant("23:59", Clock.stated("9999-12-31T23:59:30"))


def test_a_file_with_dates(tmp_path: Path) -> None:
    """Times without quotes are no numbers to base 60; what is written is resolved."""
    workload = parse_workload(FILE)
    (job,) = workload.jobs
    assert (job.arrival, job.deadline) == (0.0, 9 * HOUR)
    assert job.steps == ((4.5 * HOUR, 1), (5 * HOUR, 2))
    assert [phase.tasks.work for phase in job.phases] == [900.0, (300.0, 90)]
    assert job.phases[0].slots_max == 2
    assert [change.at for change in workload.changes] == [2 * HOUR, 2 * HOUR]
    write_workload(workload.jobs, tmp_path / "written.yaml")
    assert read_workload(tmp_path / "written.yaml").jobs == workload.jobs


LIVE = "slotwise: 1\njobs: [{id: a, deadline: %s, phases: [{name: map, work: 1}]}]\n"


def read_live(folder: Path, deadline: str) -> float | None:
    """The deadline of a file that is read for a run at noon, UTC."""
    (folder / "jobs.yaml").write_text(LIVE % deadline)
    noon = datetime(2026, 11, 27, 12, tzinfo=UTC)
    return read_workload(folder / "jobs.yaml", now=noon).jobs[0].deadline


def test_live_work_begins_now(tmp_path: Path, zone: Zone) -> None:
    """Dates count from now, and times of day are the next ones."""
    zone("UTC")
    found = [read_live(tmp_path, text) for text in ("17:00", "2026-11-28T12:00", "11:00")]
    assert found == [5 * HOUR, 24 * HOUR, 23 * HOUR]


def test_a_time_of_day_that_is_over(tmp_path: Path, zone: Zone) -> None:
    """Live work says of the first one that it is tomorrow, unless its start is stated."""
    zone("UTC")
    with pytest.warns(SlotwiseWarning) as told:
        read_live(tmp_path, "17:00, arrival: 11:00")
    (tmp_path / "jobs.yaml").write_text("start: 2026-11-27T12:00\n" + LIVE % "11:00")
    read_workload(tmp_path / "jobs.yaml", now=datetime(2026, 11, 27, 12, tzinfo=UTC))
    assert [str(one.message) for one in told] == [
        f"{tmp_path}/jobs.yaml: jobs[0].arrival (line 2) is 11:00, which means 2026-11-28"
        " 11:00; state the date for another day"
    ]


def test_a_deadline_in_the_past(tmp_path: Path, zone: Zone) -> None:
    """It is refused with the present time, unless the file states its start."""
    zone("UTC")
    with pytest.raises(
        InputError, match=r"jobs\[0\].deadline \(line 2\) is '2026-11-27T11:00'"
    ):
        read_live(tmp_path, "2026-11-27T11:00")
    with pytest.raises(InputError, match=r"past; it is now 2026-11-27 12:00:00\+00:00"):
        read_live(tmp_path, "2026-11-27T11:00")
    (tmp_path / "old.yaml").write_text("start: 2026-11-26T11:00\n" + LIVE % "2026-11-27T11:00")
    noon = datetime(2026, 11, 27, 12, tzinfo=timezone(timedelta(hours=1)))
    workload = read_workload(tmp_path / "old.yaml", now=noon)
    assert workload.jobs[0].deadline == 24 * HOUR


def test_a_job_of_a_session() -> None:
    """A mapping for a session states its deadline in any form."""
    now = datetime.now(UTC)
    stated = {"id": "a", "command": "true", "deadline": (now + timedelta(hours=2)).isoformat()}
    assert read_job(stated, 1, now=now).deadline == 2 * HOUR
    assert read_job(stated | {"deadline": "5m"}, 1, now=now).deadline == 300.0
