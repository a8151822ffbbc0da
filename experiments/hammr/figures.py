"""Hammr, Fig. 5: the stacked shares of three pools, with preemption; simulated and live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.hammr.experiment import (
    DASK_HOSTS,
    POOLS,
    Held,
    live,
    mean_held,
    simulated,
)
from slotwise.core.cluster import Cluster

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

SPEED = 5.0
"""The factor by which the live word count is faster than the paper's."""

SIMULATED, LIVE = "simulated", "live"

LONG_ENOUGH = 2.0
"""Seconds. Between two tasks of a pool, its slot is free or held by another pool for less."""


@dataclass(frozen=True, slots=True)
class FairTimeline:
    """The numbers that the paper states of its figure, for one course; times in seconds.

    before   mean slots of each pool until C arrives
    full_at  the time at which C has its share
    between  mean slots of each pool from then on
    spare_at the time at which A gets a spare slot
    after    mean slots of each pool just after that
    """

    before: dict[str, float]
    full_at: float
    between: dict[str, float]
    spare_at: float
    after: dict[str, float]


@dataclass(frozen=True, slots=True)
class SharesFigure:
    """One course simulated, and as many live ones as there are runs.

    hosts  those of a Dask cluster for the live runs; None: this machine
    """

    name: str
    title: str
    axis: str = "time (s)"
    runs: int = 2
    speed: float = SPEED
    hosts: Cluster | None = None

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """There is no randomness; live runs differ in measured times only."""
        return [simulated, *(partial(live, self.speed, self.hosts) for _ in range(runs))]

    def rows(self, outcomes: Sequence[Sequence[Held]]) -> Sequence[Row]:
        """A row for each change of the slots of a pool."""
        backends = [(SIMULATED, 0), *((LIVE, run) for run in range(len(outcomes) - 1))]
        return [
            {"world": backend, "run": run, "seconds": held.seconds, **held.slots}
            for (backend, run), course in zip(backends, outcomes, strict=True)
            for held in course
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The course that the paper describes, next to ours."""
        table = Table(
            title=f"{self.title}: slots of {', '.join(POOLS)}",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        counted = f"live, mean of {runs}" if runs > 1 else "live"
        for heading in ("", "the paper", SIMULATED, counted):
            table.add_column(heading, justify="left" if heading == "" else "right")
        [mine], others = courses(rows, SIMULATED), courses(rows, LIVE)

        def slots(what: str) -> list[str]:
            means = [
                {pool: fmean(getattr(course, what)[pool] for course in some) for pool in POOLS}
                for some in ([mine], others)
            ]
            return [", ".join(f"{mean[pool]:.1f}" for pool in POOLS) for mean in means]

        def instant(what: str) -> list[str]:
            return [
                f"{fmean(getattr(course, what) for course in some):.1f} s"
                for some in ([mine], others)
            ]

        table.add_row("until C arrives, at 5 s", "", *slots("before"))
        table.add_row("C has its share", "about 5 s", *instant("full_at"))
        table.add_row("from then on", "1, 2, 3", *slots("between"))
        table.add_row("A gets a spare slot", "55 s", *instant("spare_at"))
        table.add_row("from then on", "2, 2, 2", *slots("after"))
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Stacked areas, simulated next to live."""
        from experiments.hammr.pictures import draw_shares

        panels = {
            backend: [row for row in rows if row["world"] == backend and row["run"] == 0]
            for backend in (SIMULATED, LIVE)
        }
        return draw_shares(self.name, self.title, self.axis, panels)


def courses(rows: Sequence[Row], backend: str) -> list[FairTimeline]:
    """The numbers of each course of a backend."""
    runs = dict.fromkeys(row["run"] for row in rows if row["world"] == backend)
    return [
        course_of(
            [
                Held(row["seconds"], {pool: row[pool] for pool in POOLS})
                for row in rows
                if (row["world"], row["run"]) == (backend, run)
            ]
        )
        for run in runs
    ]


def course_of(held: Sequence[Held]) -> FairTimeline:
    """The numbers of one course: when C holds three slots, and when after that A holds two."""
    last = POOLS[-1]
    first = next(h.seconds for h in held if h.slots[last] > 0)
    full_at = next(h.seconds for h in held if h.slots[last] >= 3)
    spare_at = next(h.seconds for h in held if h.seconds > full_at and h.slots["A"] >= 2)
    return FairTimeline(
        before=mean_held(held, 0.0, min(first, 5.0)),
        full_at=full_at,
        between=mean_held(held, full_at, spare_at),
        spare_at=spare_at,
        after=mean_held(held, spare_at, spare_at + LONG_ENOUGH),
    )


HAMMR_5 = SharesFigure(
    "hammr-5", "Three pools of weight 1, 2 and 3 on 6 slots; C arrives at 5 s"
)

HAMMR_5_ON_DASK = replace(
    HAMMR_5,
    name="hammr-5-dask",
    title="Three pools of weight 1, 2 and 3 on a Dask cluster of 3 hosts with 2 slots",
    hosts=DASK_HOSTS,
)
