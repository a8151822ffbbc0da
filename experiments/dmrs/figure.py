"""The common parts of the DMRS figures: measured profiles, cases and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.dmrs.experiment import (
    DMRS,
    GB,
    NOISES,
    OURS,
    RIVALS,
    Case,
    DmrsTotals,
    experiment,
)
from experiments.dmrs.profiles import Profile, measure
from experiments.figure import Experiment, Row

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

RUNS = 10
"""Experiments for each case; the paper states no number."""


@dataclass(frozen=True, slots=True)
class DmrsRow:
    """The results of the experiments of one case under one scheduler.

    large_jobs           the number of jobs with 2 GB of input
    machines to ratio    of the setting; `release_seconds` is the release of the second group
    twct, bound          total weighted completion time and its bound, weight x seconds: means
    over_bound           mean of their ratios; its deviation, least and most
    gain                 mean of 1 - DMRS's ratio / this one's; the least and the most
    map_seconds_per_byte and reduce_seconds_per_byte  the measured profile
    """

    benchmark: str
    large_jobs: int
    machines: int
    fast: float
    ratio: float
    interval: float
    release_seconds: float
    scheduler: str
    experiments: int
    twct: float
    bound: float
    over_bound: float
    over_bound_deviation: float
    over_bound_least: float
    over_bound_most: float
    gain: float
    gain_least: float
    gain_most: float
    map_seconds_per_byte: float
    reduce_seconds_per_byte: float


@dataclass(frozen=True, slots=True)
class DmrsFigure:
    """Cases, each under every scheduler.

    `tabling` and `drawing` make the table and the picture from the rows. Profiles of the
    benchmarks are measured each time that the figure is reproduced, unless they are given.
    """

    name: str
    title: str
    axis: str
    cases: tuple[Case, ...]
    tabling: Callable[[Table, Sequence[DmrsRow]], None]
    drawing: Callable[[DmrsFigure, Sequence[DmrsRow]], Picture]
    schedulers: tuple[str, ...] = (OURS, DMRS, *NOISES, *RIVALS)
    runs: int = RUNS
    profiles: Mapping[str, Profile] | None = None

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks of the cases, each once."""
        return list(dict.fromkeys(case.benchmark for case in self.cases))

    def measurements(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One for each benchmark, which needs an otherwise idle machine."""
        return [partial(measure, name) for name in self.benchmarks if self.profiles is None]

    def measured(self, outcomes: Sequence[Profile]) -> DmrsFigure:
        """The figure with these profiles."""
        if self.profiles is not None:
            return self
        return replace(self, profiles=dict(zip(self.benchmarks, outcomes, strict=True)))

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """Those of the first case, then those of the next; the same draws in each."""
        assert self.profiles is not None, "profiles are measured first"
        return [
            partial(experiment, case, self.profiles[case.benchmark], self.schedulers, seed, run)
            for case in self.cases
            for run in range(runs)
        ]

    def rows(self, outcomes: Sequence[DmrsTotals]) -> Sequence[Row]:
        """A row for each case and scheduler."""
        assert self.profiles is not None, "profiles are measured first"
        runs = len(outcomes) // len(self.cases)
        return [
            asdict(row_of(case, self.profiles[case.benchmark], name, some))
            for place, case in enumerate(self.cases)
            for some in [outcomes[place * runs : (place + 1) * runs]]
            for name in self.schedulers
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The rows as a readable table."""
        table = Table(
            title=f"{self.title}: {runs} experiments a case",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        self.tabling(table, [DmrsRow(**row) for row in rows])
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """The picture, made by `drawing`."""
        return self.drawing(self, [DmrsRow(**row) for row in rows])


def row_of(
    case: Case, profile: Profile, scheduler: str, outcomes: Sequence[DmrsTotals]
) -> DmrsRow:
    """The row of a case under a scheduler."""
    values = [outcome.values[scheduler] for outcome in outcomes]
    bounds = [outcome.bounds[scheduler] for outcome in outcomes]
    ratios, dmrs = (
        [outcome.values[name] / outcome.bounds[name] for outcome in outcomes]
        for name in (scheduler, DMRS)
    )
    gains = [1 - mine / other for mine, other in zip(dmrs, ratios, strict=True)]
    setting = case.setting
    return DmrsRow(
        benchmark=case.benchmark,
        large_jobs=sum(batch.jobs for batch in case.batches if batch.input_bytes == 2 * GB),
        machines=setting.machines,
        fast=setting.fast,
        ratio=setting.ratio,
        interval=setting.interval,
        release_seconds=setting.seconds(profile),
        scheduler=scheduler,
        experiments=len(outcomes),
        twct=fmean(values),
        bound=fmean(bounds),
        over_bound=fmean(ratios),
        over_bound_deviation=stdev(ratios) if len(ratios) > 1 else 0.0,
        over_bound_least=min(ratios),
        over_bound_most=max(ratios),
        gain=fmean(gains),
        gain_least=min(gains),
        gain_most=max(gains),
        map_seconds_per_byte=profile.map_seconds,
        reduce_seconds_per_byte=profile.reduce_seconds,
    )
