"""The figure of waits for memory: its draws, the assigner without waits, and its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from experiments.memory.experiment import (
    HOSTS,
    LARGE,
    MEMORY,
    SMALL,
    WaitsDraw,
    WithoutWaits,
    drawn,
    responses,
)
from experiments.memory.figures import MEMORY_WAITS
from slotwise.core.job import Job, Phase, Tasks
from slotwise.policy.assignment.assigner import Greedy


def test_a_draw_has_the_stated_load_at_each_load() -> None:
    """The requests, by the time for which they are held, take that part of all memory."""
    jobs, busy = drawn(0.7, (1, 2)), drawn(0.9, (1, 2))
    held = sum(job.phases[0].needs["memory"] * (job.work or 0.0) for job in jobs)
    assert held / (HOSTS * MEMORY * jobs[-1].arrival) == pytest.approx(0.7)
    assert [job.phases for job in jobs] == [job.phases for job in busy]
    assert {job.phases[0].needs["memory"] for job in jobs} == {SMALL, LARGE}


def test_without_waits_a_stream_of_small_jobs_passes_a_large_one() -> None:
    """With them no small job goes before it for longer than the running ones take."""
    rows = [(SMALL, n * 0.3) for n in range(200)] + [(LARGE, 20.0)]
    jobs = [
        Job(
            f"j{number}",
            (Phase("run", Tasks(1, 10.0), resources={"memory": request}),),
            arrival=at,
        )
        for number, (request, at) in enumerate(sorted(rows, key=lambda row: row[1]))
    ]
    large = next(job.id for job in jobs if job.phases[0].needs["memory"] == LARGE)
    assert responses("fair", Greedy(), jobs)[large] < 21.0
    assert responses("fair", WithoutWaits(), jobs)[large] > 40.0


def test_rows_are_means_of_the_draws() -> None:
    """Two draws at one load; the picture and the table have both ways."""
    figure = replace(MEMORY_WAITS, allocators=("fair",), loads=(0.9,))
    one = WaitsDraw("fair", 0.9, {"with": 10.0, "without": 30.0}, {"with": 4.0, "without": 2.0},
                    {"with": 12.0, "without": 90.0})  # fmt: skip
    rows = figure.rows([one, replace(one, large={"with": 12.0, "without": 50.0})])
    assert [(row["waits"], row["draws"], row["large"], row["small"]) for row in rows] == [
        ("with", 2, 11.0, 4.0),
        ("without", 2, 40.0, 2.0),
    ]
    console = Console(width=100)
    with console.capture() as shown:
        console.print(figure.table(rows, 2))
    assert "40.0" in shown.get()
    assert figure.draw(rows).spec()["datasets"]["large"][1]["y"] == 40.0
