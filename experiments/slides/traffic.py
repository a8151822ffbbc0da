"""Delay scheduling, the traffic of a sort over time, without and with waiting (the slides).

The traffic consists of the remote reads of maps. It does not include the copying from maps to
reduces of a real sort, because the simulated backend has no flows for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.slides.cluster import (
    BLOCK_BYTES,
    COPIES,
    NETWORK,
    NOISE,
    WAITS,
    JobType,
    slides_cluster,
)
from experiments.slides.figure import RUNS, WITH, WITHOUT
from slotwise import api
from slotwise.backends.simulated.backend import Simulation
from slotwise.core.events import TaskFinished
from slotwise.core.log import Log
from slotwise.insight.metrics import traffic_of
from slotwise.workload.workload import Placement, Workload

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

SORT = JobType("sort", maps=30, users=80, reduces=5)
"""Eighty sorts, all present at time 0, of the size of the medium jobs of the other figures."""

BIN = 10.0
"""Seconds of a bin of time."""

SCHEMES = {WITHOUT: None, WITH: WAITS}


@dataclass(frozen=True, slots=True)
class Passed:
    """The traffic of one run, bin by bin: bytes from the same rack and others, maps done."""

    rack: list[float]
    core: list[float]
    done: list[int]


def sort_run(
    kind: JobType, waits: tuple[float, float] | None, seed: int, number: int
) -> Passed:
    """Run the sorts and measure the network traffic. Deterministic."""
    workload = Workload(
        tuple(kind.job(job, 0.0) for job in range(kind.users)),
        slides_cluster(),
        network=NETWORK,
        placement=Placement(COPIES, block_bytes=BLOCK_BYTES),
    )
    truth = Simulation(1_000_003 * seed + number, NOISE)
    if waits:
        result = api.simulate(workload, "fair", simulation=truth, assigner="delay", waits=waits)
    else:
        result = api.simulate(workload, "fair", simulation=truth)
    return _passed(result.log)


@dataclass(frozen=True, slots=True)
class TrafficFigure:
    """Traffic of a batch of sorts over time: a row for each bin of time and scheme."""

    name: str
    title: str
    kind: JobType = SORT
    axis: str = "time (s)"
    runs: int = RUNS

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """Those without waiting, then those with; the same sorts in both."""
        return [
            partial(sort_run, self.kind, waits, seed, number)
            for waits in SCHEMES.values()
            for number in range(runs)
        ]

    def rows(self, outcomes: Sequence[Passed]) -> Sequence[Row]:
        """Means over the runs, in bytes a second and maps a second. Over means 0."""
        runs = len(outcomes) // len(SCHEMES)
        bins = max(len(outcome.done) for outcome in outcomes)
        return [
            {
                "x": number * BIN,
                "scheme": scheme,
                "rack_bytes_per_second": _mean(number, [one.rack for one in of_scheme]),
                "core_bytes_per_second": _mean(number, [one.core for one in of_scheme]),
                "maps_per_second": _mean(number, [one.done for one in of_scheme]),
            }
            for place, scheme in enumerate(SCHEMES)
            for of_scheme in [outcomes[place * runs : (place + 1) * runs]]
            for number in range(bins)
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The total traffic, and the time of the maps."""
        table = Table(
            title=f"{self.title}: mean of {runs} runs", title_justify="left", box=SIMPLE_HEAD
        )
        table.add_column("")
        for heading in ("in the rack\nGB", "through the core\nGB", "most at once\nGB/s"):
            table.add_column(heading, justify="right", vertical="bottom")
        table.add_column("nine in ten maps\ndone after (s)", justify="right")
        for scheme in SCHEMES:
            mine = [row for row in rows if row["scheme"] == scheme]
            rack = [row["rack_bytes_per_second"] for row in mine]
            core = [row["core_bytes_per_second"] for row in mine]
            most = max(map(sum, zip(rack, core, strict=True)))
            table.add_row(
                scheme,
                f"{BIN * sum(rack) / 1e9:.1f}",
                f"{BIN * sum(core) / 1e9:.1f}",
                f"{most / 1e9:.2f}",
                f"{_most_done(mine):.0f}",
            )
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Both kinds of traffic over time, without waiting above and with it below."""
        from experiments.slides.pictures import draw_traffic

        return draw_traffic(self, rows)


def _passed(log: Log) -> Passed:
    ends = [
        event.at
        for entry in log.turns
        for event in entry.events
        if isinstance(event, TaskFinished) and event.phase.phase == "map"
    ]
    bins = ceil(max(ends) / BIN)
    edges = [number * BIN for number in range(bins + 1)]
    traffic = traffic_of(log)
    done = [0] * bins
    for end in ends:
        done[min(bins - 1, int(end / BIN))] += 1
    return Passed(traffic.rack.means(edges), traffic.core.means(edges), done)


def _mean(number: int, of_runs: Sequence[Sequence[float]]) -> float:
    """The mean over the runs at a bin; runs that had ended by then count 0."""
    values = [one[number] if number < len(one) else 0.0 for one in of_runs]
    return fmean(values) if isinstance(of_runs[0][0], float) else fmean(values) / BIN


def _most_done(rows: Sequence[Row]) -> float:
    """When nine in ten maps were done: the last few take long in any case."""
    total, done = sum(row["maps_per_second"] for row in rows), 0.0
    for row in rows:
        done += row["maps_per_second"]
        if done >= 0.9 * total:
            return float(row["x"]) + BIN
    raise AssertionError("all are more than nine in ten")


SLIDES_TRAFFIC = TrafficFigure(
    "slides-traffic", "Network traffic of a sort, without and with waiting"
)
