"""The common parts of the figures of the delay scheduling slides: trials, rows, table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.slides.cluster import TaskTimings, Trial, observe
from slotwise.insight.report.text import MISSING

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

RUNS = 4
"""Experiments a point; the slides do not state a number."""

WITHOUT, WITH = "without waiting", "with waiting"

GAIN = 0.70
"""The gain in throughput that the slides state."""


@dataclass(frozen=True, slots=True)
class SlidesPoint:
    """A place on the x axis under one scheme: the trial, and the type of its jobs that counts.

    expected   locality at the node by a formula, if there is one
    published  localities that the slides state, at the node and in the rack
    """

    x: float | str
    scheme: str
    trial: Trial
    type: str
    expected: float | None = None
    published: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class SlidesRow:
    """The results of a point: means over its experiments, and their standard errors.

    node, rack       fractions of the maps that ran next to their input, and in a rack with it
    maps_per_second  of this type of job
    response         mean seconds from arrival to end of the jobs that ended, if some did
    launches         maps, in all experiments
    Errors are None where there is only one experiment.
    """

    x: float | str
    scheme: str
    type: str
    node: float
    node_error: float | None
    rack: float
    rack_error: float | None
    maps_per_second: float
    maps_per_second_error: float | None
    response: float | None
    launches: int
    experiments: int
    expected_node: float | None
    slides_node: float | None
    slides_rack: float | None


@dataclass(frozen=True, slots=True)
class SlidesFigure:
    """A figure of trials. `tabling` and `drawing` make the table and the picture.

    `observing` runs a trial, with a seed and the number of the experiment.
    """

    name: str
    title: str
    axis: str
    points: tuple[SlidesPoint, ...]
    tabling: Callable[[SlidesFigure, Sequence[SlidesRow]], Table]
    drawing: Callable[[SlidesFigure, Sequence[SlidesRow]], Picture]
    runs: int = RUNS
    observing: Callable[[Trial, int, int], Mapping[str, TaskTimings]] = observe

    @property
    def trials(self) -> list[Trial]:
        """Each trial once: several points may use the same one."""
        return list(dict.fromkeys(point.trial for point in self.points))

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """Those of the first trial, then those of the next; the same draws in each."""
        return [
            partial(self.observing, trial, seed, number)
            for trial in self.trials
            for number in range(runs)
        ]

    def rows(self, outcomes: Sequence[Mapping[str, TaskTimings]]) -> Sequence[Row]:
        """A row for each point."""
        runs = len(outcomes) // len(self.trials)
        of_trial = {
            trial: outcomes[number * runs : (number + 1) * runs]
            for number, trial in enumerate(self.trials)
        }
        return [asdict(row_of(point, of_trial[point.trial])) for point in self.points]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The rows as a readable table."""
        table = self.tabling(self, [SlidesRow(**row) for row in rows])
        table.title, table.title_justify = f"{self.title}: mean of {runs} experiments", "left"
        table.box = SIMPLE_HEAD
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """The picture, made by `drawing`."""
        return self.drawing(self, [SlidesRow(**row) for row in rows])


def row_of(point: SlidesPoint, outcomes: Sequence[Mapping[str, TaskTimings]]) -> SlidesRow:
    """The results of the experiments of one point."""
    seen = [outcome[point.type] for outcome in outcomes]
    nodes, racks = [one.node for one in seen], [one.rack for one in seen]
    speeds = [one.maps_per_second for one in seen]
    responses = [seconds for one in seen for seconds in one.responses]
    slides_node, slides_rack = point.published or (None, None)
    return SlidesRow(
        x=point.x,
        scheme=point.scheme,
        type=point.type,
        node=fmean(nodes),
        node_error=_standard_error(nodes),
        rack=fmean(racks),
        rack_error=_standard_error(racks),
        maps_per_second=fmean(speeds),
        maps_per_second_error=_standard_error(speeds),
        response=fmean(responses) if responses else None,
        launches=sum(one.launches.total() for one in seen),
        experiments=len(seen),
        expected_node=point.expected,
        slides_node=slides_node,
        slides_rack=slides_rack,
    )


def percent(part: float | None) -> str:
    """A fraction in percent, for printing."""
    return MISSING if part is None else f"{100 * part:.1f} %"


def _standard_error(values: Sequence[float]) -> float | None:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
