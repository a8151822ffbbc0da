"""DMRS live: the jobs, a tiny run of each, and the figure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from experiments import reproduce as reproducing
from experiments.dmrs import live, profiles
from experiments.dmrs.experiment import DMRS
from experiments.dmrs.live import (
    CLUSTER,
    FAST,
    SCHEDULERS,
    SECOND_RELEASE,
    SIZES,
    SLOW,
    LiveRun,
    draw_jobs,
)
from experiments.dmrs.live_figures import DMRS_2_LIVE, rows_of
from experiments.reproduce import reproduce
from slotwise.core.job import Observation


def test_jobs_are_of_all_benchmarks_in_two_groups() -> None:
    """Twelve jobs, two of each size of each benchmark; six come later."""
    inputs = {(name, size): f"{name}-{size}" for name in SIZES for size in SIZES[name]}
    jobs = draw_jobs(inputs, np.random.default_rng(0))
    assert Counter(job.inputs[0] for job in jobs) == dict.fromkeys(inputs.values(), 2)
    assert Counter(job.arrival for job in jobs) == {0.0: 6, SECOND_RELEASE: 6}
    assert {job.weight for job in jobs} <= {1, 2, 3, 4, 5}
    reduces = {job.program: job.settings["reducers"] for job in jobs}
    assert reduces == {"wordcount": 1, "sort": 4, "terasort": 4}
    assert [host.speed for host in CLUSTER.hosts] == [1, 0.5]


def test_gains_compare_ratios_to_the_bound_of_each_run() -> None:
    """DMRS 1.5 times its bound, FIFO 2 times another one: better by a quarter."""
    rows = rows_of(3, [LiveRun(DMRS, 15.0, 10.0, 0.5), LiveRun("fifo", 40.0, 20.0, 0.4)])
    assert [(row.experiment, row.scheduler, row.gain) for row in rows] == [
        (3, DMRS, 0),
        (3, "fifo", 0.25),
    ]
    assert [row.over_bound for row in rows] == [1.5, 2]


def test_a_tiny_figure_runs_live(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """All jobs are done under DMRS on two emulated hosts, above the bound.

    The history of the run gives the speed of the slow host. By default all jobs count words.
    """
    if not pytestconfig.getoption("--slow"):
        monkeypatch.setattr(live, "SIZES", {"wordcount": SIZES["wordcount"]})
        monkeypatch.setattr(profiles, "DRAWN", 10_000)
    seen = [
        Observation("wordcount", "map", 1000, host, speed, seconds)
        for host, speed, seconds in ((FAST, 1.0, 1.0), (SLOW, 0.5, 4.0))
    ]
    monkeypatch.setattr(
        live, "read_history", lambda path: [] if path.name == "known.db" else seen
    )
    tiny = replace(DMRS_2_LIVE, name="tiny", schedulers=(DMRS,), scale=0.01)
    monkeypatch.setattr(reproducing, "FIGURES", {"tiny": tiny})
    [row] = reproduce("tiny", runs=1).rows
    assert row["scheduler"] == DMRS
    assert row["over_bound"] >= 1
    assert row["slow_speed"] == pytest.approx(0.25)


def test_the_figure_has_a_table_and_a_picture() -> None:
    """A line for each scheduler, and a bar with its dots."""
    runs = [LiveRun(name, 10.0 + place, 10.0, 0.5) for place, name in enumerate(SCHEDULERS)]
    figure = DMRS_2_LIVE.measured([runs, runs])
    rows = figure.rows([])
    assert len(rows) == 2 * len(SCHEDULERS)
    console = Console(width=160)
    with console.capture() as captured:
        console.print(figure.table(rows, 2))
    assert all(name in captured.get() for name in SCHEDULERS)
    picture = figure.draw(rows)
    assert [len(picture.rows[name]) for name in ("means", "runs")] == [5, 10]
    assert picture.spec()["layer"]
