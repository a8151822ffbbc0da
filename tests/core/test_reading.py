"""The turns of a log file are read line by line, each time they are iterated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import slotwise
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log, following, open_log, read_log
from slotwise.insight.metrics import MetricsCollector

JOBS = [Job(name, (Phase("map", Tasks(3, 1.0)),)) for name in "abc"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The log of a simulation."""
    path = tmp_path / "log.jsonl"
    slotwise.simulate(JOBS, "fair", slots=2, log=path)
    return path


def test_a_line_is_not_read_before_it_is_needed(path: Path) -> None:
    """A damaged line is refused when it is reached, with its number."""
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], "damaged", *lines[3:]]) + "\n")
    turns = iter(open_log(path).turns)
    assert [next(turns).now, next(turns).now] == [0.0, 1.0]
    with pytest.raises(InputError, match="line 4: not JSON"):
        next(turns)


def test_a_whole_log_is_checked_when_it_is_read(path: Path) -> None:
    """So what is done with it afterwards is not refused half-way."""
    path.write_text(path.read_text() + "damaged\n")
    last = len(path.read_text().splitlines())
    with pytest.raises(InputError, match=f"line {last}: not JSON"):
        read_log(path)


def test_turns_are_chosen_as_from_a_list(path: Path) -> None:
    """By number, from the end, and by slice."""
    turns, kept = read_log(path).turns, list(read_log(path).turns)
    assert len(turns) == len(kept) > 4
    assert (turns[1], turns[-1]) == (kept[1], kept[-1])
    for part in (slice(1, 3), slice(None, -2), slice(-3, None, 2), slice(None, None, -1)):
        assert turns[part] == kept[part]
    with pytest.raises(IndexError):
        turns[len(kept)]


def test_turns_that_are_written_later_are_not_read(path: Path) -> None:
    """A log of a run that goes on has the same turns each time."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:9])
    log = open_log(path)
    before = list(log.turns)
    path.write_text("".join(lines))
    assert list(log.turns) == before
    assert len(before) == 3


def test_another_log_in_the_same_file_is_refused(path: Path) -> None:
    """The result of the first run is not mistaken for that of the second."""
    log = read_log(path)
    slotwise.simulate(JOBS[:1], "fair", slots=1, log=path)
    with pytest.raises(InputError, match="was replaced by another; read it again"):
        list(log.turns)


def test_a_result_has_the_turns_that_it_wrote(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the file if there is one, also from another folder; otherwise from memory."""
    monkeypatch.chdir(tmp_path)
    written = slotwise.simulate(JOBS, "fair", slots=2, log="again.jsonl")
    monkeypatch.chdir(path.root)
    kept = slotwise.simulate(JOBS, "fair", slots=2)
    assert [[turn.now, *turn.events, *turn.decisions] for turn in written.log.turns] == [
        [turn.now, *turn.events, *turn.decisions] for turn in kept.log.turns
    ]
    assert written.to_plain() == kept.to_plain()


def test_the_log_of_a_device_is_kept_in_memory() -> None:
    """It cannot be read again."""
    result = slotwise.simulate(JOBS, "fair", slots=2, log="/dev/null")
    assert MetricsCollector.of_log(result.log).outcome() == result.outcome


def test_a_pipe_is_read_once(path: Path) -> None:
    """Its turns are kept, so that several passes are possible."""
    ends = os.pipe()
    os.write(ends[1], path.read_bytes())
    os.close(ends[1])
    with following(f"/dev/fd/{ends[0]}") as log:
        assert isinstance(log, Log)
        assert list(log.turns) == list(log.turns) == list(read_log(path).turns)
    os.close(ends[0])
