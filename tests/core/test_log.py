"""Log files: what is written is read back, and what is no log is refused by file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import slotwise
from slotwise.core import codec
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Reallocate
from slotwise.core.errors import InputError
from slotwise.core.events import JobArrived, TaskFailed
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import FORMAT, Header, Log, LogFile, Turn, read_log
from slotwise.core.pools import Pool, Preemption

HEADER = Header(
    backend="simulated",
    scheduler={"name": "fair", "assigner": "delay", "epoch_seconds": 0.5, "waits": [1, 2]},
    objective={"penalty": "stretch", "aggregate": "max"},
    cluster=Cluster((Host("h1", {"map": 2}, "r1", 2.0), Host("h2", {"map": 1})), 3.0),
    pools=(
        Pool("all", preemption=Preemption(least_after=5.0, grace=1.0)),
        Pool("p", 2.0, {"map": 1}, {"map": 2}, "fifo", "all", jobs_max=3, job_weights="size"),
    ),
    jobs_expected=1,
    attempts_max=3,
    parameters={"seed": 7, "slowdown": [1.0, 1.5, 2.0]},
    versions={"slotwise": "0.1"},
)


def turns_of(name: str) -> list[Turn]:
    """Two turns of a job of this name."""
    phase_id = PhaseId(name, "map")
    job = Job(name, (Phase("map", Tasks(2, 1 / 3), kind="map"),), pool="p")
    return [
        Turn(
            0.1,
            [JobArrived(0.1, job)],
            [
                Reallocate({phase_id: 2 / 3}, 0.5),
                Reallocate({phase_id: 1.0}, 0.5, in_turn=True),
                Launch(phase_id, 0, 1, "h1", Locality.NODE),
            ],
        ),
        Turn(0.1 + 0.2, [TaskFailed(0.3, phase_id, 0, 1, f"no file {name}", True)], []),
    ]


def write(path: Path, name: str = "j") -> Log:
    """A log of two turns, in a file."""
    log = Log(HEADER, turns_of(name))
    with LogFile(path, HEADER) as record:
        for turn in log.turns:
            record(turn.now, turn.events, turn.decisions)
    return log


def test_each_turn_of_a_live_run_is_in_the_file_at_once(tmp_path: Path) -> None:
    """A log of a session or a gate, which run for days, can be read meanwhile."""
    path, turns = tmp_path / "run.jsonl", turns_of("j")
    with LogFile(path, replace(HEADER, backend="live")) as record:
        for count, turn in enumerate(turns, 1):
            record(turn.now, turn.events, turn.decisions)
            assert list(read_log(path).turns) == turns[:count]


def test_a_live_run_goes_on_without_a_log_that_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is told at once, and once; the end of the run raises the error."""
    record = LogFile("/dev/full", replace(HEADER, backend="live"))
    for _ in range(3):
        record(0.0, [], [])
        assert len(caplog.records) == 1
        assert "the run continues without its log" in caplog.text
    with pytest.raises(InputError, match="'/dev/full': No space left"):
        record.__exit__(None, None, None)


def test_a_simulation_ends_when_its_log_cannot_be_written() -> None:
    """Nobody waits for more of it."""
    record = LogFile("/dev/full", HEADER)
    with pytest.raises(InputError, match="'/dev/full': No space left"):
        write_turns(record, 1000)


def write_turns(record: LogFile, count: int) -> None:
    """Write this number of empty turns."""
    for _ in range(count):
        record(0.0, [], [])


@pytest.mark.parametrize(
    "name",
    [
        "j",
        "Ünïcödé 统计",
        "separators \u2028 \u2029",
        '"}{\\',
    ],
)
def test_a_log_is_read_back_equal(tmp_path: Path, name: str) -> None:
    """Whatever the names of jobs: header and turns, float for float."""
    path = tmp_path / "run.jsonl"
    log = write(path, name)
    again = read_log(path)
    assert again.header == log.header
    assert [(turn.now, list(turn.events), list(turn.decisions)) for turn in again.turns] == [
        (turn.now, list(turn.events), list(turn.decisions)) for turn in log.turns
    ]


def test_a_log_is_a_header_and_one_line_a_turn(tmp_path: Path) -> None:
    """Other tools read it line by line."""
    path = tmp_path / "run.jsonl"
    write(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["is"] == "Header"
    assert lines[0]["format"] == FORMAT
    assert [line["now"] for line in lines[1:]] == [0.1, 0.1 + 0.2]


def test_a_turn_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    """Wherever a killed run cut its last line, the turns before it are read."""
    path = tmp_path / "run.jsonl"
    log = write(path, "Ünïcödé")
    content = path.read_bytes()
    last = content.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(last, len(content)):
        path.write_bytes(content[:end])
        assert len(read_log(path).turns) == len(log.turns) - 1


def test_headers_of_older_logs_are_read(tmp_path: Path) -> None:
    """They say nothing of heartbeats, nested pools and preemption: there were none."""
    path = tmp_path / "run.jsonl"
    write(path)
    lines = path.read_text().splitlines()
    header = json.loads(lines[0])
    del header["heartbeat"]
    for pool in header["pools"]:
        for key in ("parent", "jobs_max", "job_weights", "preemption"):
            del pool[key]
    path.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    read = read_log(path).header
    assert read.cluster == Cluster(HEADER.cluster.hosts)
    assert read.pools == (Pool("all"), Pool("p", 2.0, {"map": 1}, {"map": 2}, "fifo"))


def damaged(edit: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    """Edits the lines of a log file."""

    def damage(path: Path) -> None:
        write(path)
        path.write_text("\n".join(edit(path.read_text().splitlines())) + "\n")

    return damage


def changed(line: int, **values: object) -> Callable[[Path], None]:
    """Replaces values in the object on a line."""

    def edit(lines: list[str]) -> list[str]:
        lines[line - 1] = json.dumps(json.loads(lines[line - 1]) | values)
        return lines

    return damaged(edit)


IDLE = codec.encode_job(turns_of("idle")[0].events[0].job) | {"phases": []}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_text(""), ["is empty"]),
        (lambda path: path.write_text('{"is": "Head'), ["is empty"]),
        (
            lambda path: path.write_bytes(b"\xff\xfe\x00"),
            ["name a file that --log has written"],
        ),
        (lambda path: path.mkdir(), ["name a file that --log has written"]),
        (lambda path: None, ["name a file that --log has written", "No such file"]),
        (lambda path: path.write_text("jobs: [1]\n"), ["line 1", "not JSON"]),
        (lambda path: path.write_text("[]\n"), ["line 1"]),
        (lambda path: path.write_text('{"a": 1}\n'), ["line 1", "not the header"]),
        (lambda path: path.write_text("# jobs\n\nslotwise: 1\n"), ["is a workload file"]),
        (
            lambda path: path.write_bytes(b"SQLite format 3\0\n"),
            ["this is a history, not a log"],
        ),
        (lambda path: path.write_text("<!DOCTYPE html>\n"), ["this is a report, not a log"]),
        (changed(1, format=FORMAT + 1), ["line 1", str(FORMAT + 1), "update"]),
        (changed(1, format="x"), ["line 1"]),
        (changed(1, cluster=[]), ["line 1", "no slots"]),
        (changed(1, cluster=[{"host": 1}]), ["line 1"]),
        (changed(1, heartbeat=-1.0), ["line 1", "heartbeat"]),
        (
            changed(1, pools=[codec.encode_pool(Pool("p", parent="q"))]),
            ["line 1", "unknown parent 'q'"],
        ),
        (changed(3, events=[{"is": "Nonsense"}]), ["line 3", "'Nonsense'"]),
        (changed(3, events=[{"at": 1.0}]), ["line 3", "'is' is missing"]),
        (changed(2, events=7), ["line 2"]),
        (
            changed(2, events=[{"is": "JobArrived", "at": 0.0, "job": IDLE}]),
            ["line 2", "'idle' has no phases"],
        ),
        (changed(2, decisions=[{"is": "GiveUp", "job": "j"}]), ["line 2", "reason"]),
        (damaged(lambda lines: [lines[0], lines[1][:-9], lines[2]]), ["line 2", "not JSON"]),
        (damaged(lambda lines: [lines[0], "", *lines[1:]]), ["line 2", "not JSON"]),
        (damaged(lambda lines: [*lines, "5"]), ["line 4"]),
    ],
)
def test_files_that_are_no_logs_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], words: list[str]
) -> None:
    """The message names file, line and fault, and nothing else comes through."""
    path = tmp_path / "run.jsonl"
    damage(path)
    with pytest.raises(InputError) as caught:
        read_log(path)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_a_log_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    """Before a run begins."""
    with pytest.raises(InputError, match="name another file"):
        LogFile(tmp_path / "nowhere" / "run.jsonl", HEADER)


def test_a_log_replaces_an_earlier_one_only(tmp_path: Path) -> None:
    """A file that is no log is neither emptied nor appended to; an empty one is taken."""
    path = tmp_path / "run.jsonl"
    path.touch()
    write(path, "first")
    write(path, "second")
    assert read_log(path).turns[0].events[0].job.id == "second"
    path.write_text("slotwise: 1\njobs: []\n")
    with pytest.raises(InputError, match=r"run\.jsonl' exists and was not written by slotwise"):
        LogFile(path, HEADER)
    assert path.read_text() == "slotwise: 1\njobs: []\n"


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    """A second run is refused at once, and what the first has written stays."""
    path = tmp_path / "run.jsonl"
    with LogFile(path, HEADER), pytest.raises(InputError, match="is being written by another"):
        LogFile(path, HEADER)
    assert read_log(path).header == HEADER


def test_a_device_is_a_log(tmp_path: Path) -> None:
    """The log may be written to a device."""
    for _ in range(2):
        with LogFile("/dev/null", HEADER) as record:
            record(0.0, [], [])


def test_a_refused_run_keeps_the_previous_log(tmp_path: Path) -> None:
    """A log is emptied with its first turn, or at its end."""
    path = tmp_path / "run.jsonl"
    write(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="refused"), LogFile(path, HEADER):
        raise InputError("refused")
    assert path.read_bytes() == before


def test_a_text_that_quotes_a_log_is_no_log(tmp_path: Path) -> None:
    """Only what begins like a log is one."""
    path = tmp_path / "notes"
    path.write_text('A log begins with {"is":"Header","format":1\n')
    with pytest.raises(InputError, match="was not written by slotwise"):
        LogFile(path, HEADER)


def test_numbers_of_numpy_are_written_as_numbers(tmp_path: Path) -> None:
    """They may be whole or not, in jobs and in options."""
    jobs = [Job("a", (Phase("p", Tasks(np.int64(3), 2.0)),), weight=np.float32(2))]
    log = tmp_path / "run.jsonl"
    epoch = np.float32(0.5)
    slotwise.simulate(jobs, "fair", slots=np.int64(2), epoch_seconds=epoch, log=log)
    assert read_log(log).header.scheduler["epoch_seconds"] == 0.5
