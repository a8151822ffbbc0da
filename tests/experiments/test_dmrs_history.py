"""Estimates compared with the truth: on a small log, and in live runs of all programs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from rich.console import Console

from experiments.dmrs import history_experiment, profiles
from experiments.dmrs.history import DMRS_HISTORY
from experiments.dmrs.history_experiment import (
    HISTORIES,
    KNOWN,
    LONG,
    SHORT,
    Left,
    Ran,
    left_of,
    live,
)
from experiments.dmrs.history_ratios import (
    first_ratios,
    later_ratios,
    mean_ratio,
    mean_wrong,
    ratio_of,
)
from experiments.figure import Row
from experiments.reproduction import Reproduction
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log, Turn

MAP, REDUCE = PhaseId("j", "map"), PhaseId("j", "reduce")
JOB = Job(
    "j",
    (Phase("map", Tasks(2, 10.0)), Phase("reduce", Tasks(1, 3.0), after=frozenset({"map"}))),
)


def launch(phase: PhaseId, task: int) -> Launch:
    """An attempt begins on the one host."""
    return Launch(phase, task, 1, "slow", Locality.NODE)


@pytest.fixture
def log() -> Log:
    """Two maps and a reduce, one after the other on a host of speed 1/2; then the job is over.

    Work was 4, 6 and 5; it had been estimated as 10, 10 and 3.
    """
    header = Header(
        backend="live",
        scheduler={"name": "fifo"},
        objective={},
        cluster=Cluster((Host("slow", {"task": 1}, speed=0.5),)),
        pools=(),
        jobs_expected=1,
    )
    turns = [
        Turn(0.0, [JobArrived(0.0, JOB)], [launch(MAP, 0)]),
        Turn(3.0, [], []),
        Turn(8.0, [TaskFinished(8.0, MAP, 0, 1, 8.0)], [launch(MAP, 1)]),
        Turn(20.0, [TaskFinished(20.0, MAP, 1, 1, 12.0)], [launch(REDUCE, 0)]),
        Turn(30.0, [TaskFinished(30.0, REDUCE, 0, 1, 10.0)], []),
    ]
    return Log(header, turns)


def test_estimates_are_compared_with_the_true_work(log: Log) -> None:
    """When the job arrives, and after the first map, by which the second one also needs 4."""
    assert left_of(log) == [
        Left(MAP, 0, 0.0, 20.0, 10.0),
        Left(REDUCE, 0, 0.0, 3.0, 5.0),
        Left(MAP, 1, 8.0, pytest.approx(4.0), 6.0),
    ]


def test_a_running_task_has_less_work_left(log: Log) -> None:
    """One map ends when the other has run for 4 of 12 s: 8 s are left, at half speed 4."""
    two = Cluster((Host("slow", {"task": 2}, speed=0.5),))
    turns = [
        Turn(0.0, [JobArrived(0.0, JOB)], [launch(MAP, 0)]),
        Turn(4.0, [], [launch(MAP, 1)]),
        Turn(8.0, [TaskFinished(8.0, MAP, 0, 1, 8.0)], []),
        Turn(16.0, [TaskFinished(16.0, MAP, 1, 1, 12.0)], [launch(REDUCE, 0)]),
        Turn(26.0, [TaskFinished(26.0, REDUCE, 0, 1, 10.0)], []),
    ]
    header = Header("live", {"name": "fifo"}, {}, two, (), 1)
    assert left_of(Log(header, turns))[2] == Left(MAP, 1, 8.0, pytest.approx(2.0), 4.0)


def rows_of(*ran: Ran) -> list[Row]:
    """The rows of one round."""
    return list(DMRS_HISTORY.rows([[ran]]))


def test_ratios_of_jobs_and_of_phases(log: Log) -> None:
    """A job's first estimate is that of all its phases; a phase's later one by its tasks."""
    rows = rows_of(Ran(LONG, left_of(log)))
    assert first_ratios(rows, LONG) == [pytest.approx(23 / 15)]
    assert first_ratios(rows, LONG, "j") == first_ratios(rows, LONG)
    assert first_ratios(rows, SHORT) == first_ratios(rows, LONG, "k") == []
    assert later_ratios(rows, LONG, "map", 0.0) == [pytest.approx(4 / 6)]
    assert later_ratios(rows, LONG, "map", 0.9) == []
    assert later_ratios(rows, LONG, "reduce", 0.0) == []


def test_too_much_and_too_little_are_equally_wrong() -> None:
    """Twice and half are right on average, and wrong by 2."""
    assert mean_ratio([2.0, 0.5]) == pytest.approx(1.0)
    assert mean_wrong([2.0, 0.5]) == pytest.approx(2.0)
    assert ratio_of({"estimate": 1e-9, "truth": 0.0}) == 1.0


@pytest.fixture(scope="module")
def reproduction(pytestconfig: pytest.Config) -> Reproduction:
    """One round with inputs of a few kilobytes; by default of few tasks, on one slot."""
    with pytest.MonkeyPatch.context() as patched:
        if not pytestconfig.getoption("--slow"):
            patched.setattr(history_experiment, "SLOTS", 1)
            patched.setattr(history_experiment, "MAPS", 2)
            patched.setattr(history_experiment, "REDUCES", 2)
            patched.setattr(profiles, "DRAWN", 10_000)
        rounds = live(1, 0, 100_000)
    return Reproduction(DMRS_HISTORY, 1, 0, 0.0, tuple(DMRS_HISTORY.rows([rounds])))


@pytest.mark.slow
def test_live_runs_use_the_estimates_of_their_histories(reproduction: Reproduction) -> None:
    """One estimate is ten times too long, another ten times too short."""
    first = {
        (row["history"], row["job"], row["phase"]): row["estimate"]
        for row in reproduction.rows
        if row["tasks"] == 0
    }
    phases = {(job, phase) for _, job, phase in first}
    assert len(first) == len(HISTORIES) * len(phases) == len(HISTORIES) * 11
    for job, phase in phases:
        known, long, short = (first[history, job, phase] for history in (KNOWN, LONG, SHORT))
        assert long == pytest.approx(10 * known)
        assert short == pytest.approx(known / 10)


def test_the_figure_is_written(reproduction: Reproduction, tmp_path: Path) -> None:
    """A table with every job and history, a CSV with every row, and the picture."""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(DMRS_HISTORY.table(reproduction.rows, 1))
    shown = captured.get()
    for word in (*HISTORIES, "wordcount", "inverted-index", "grep", "sort", "terasort"):
        assert word in shown
    with reproduction.write_table(tmp_path).open() as file:
        assert len(list(csv.DictReader(file))) == len(reproduction.rows)
    _, svg = reproduction.write_pictures(tmp_path)
    text = svg.read_text()
    for word in (LONG, SHORT, "estimate / truth", "inverted-index"):
        assert word in text
