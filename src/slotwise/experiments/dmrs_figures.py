"""DMRS, Figs 2 and 3: total weighted completion times over the bound, and DMRS's gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from slotwise.experiments.dmrs_experiment import (
    DMRS,
    ELEPHANTS_OF,
    GB,
    MIXED,
    MORE_MIXED,
    NOISES,
    OURS,
    RIVALS,
    SAME,
    Batch,
    Case,
    Outcome,
    Setting,
    experiment,
    with_elephants,
)
from slotwise.experiments.dmrs_profiles import LABELS, Profile, measure
from slotwise.experiments.figure import Experiment, Row
from slotwise.report.numbers import number

if TYPE_CHECKING:
    from slotwise.report.pictures.picture import Picture

PAPER_MOST = 0.82
"""By how much DMRS is better than its rivals at most, by the paper's abstract."""

RUNS = 10
"""Experiments a case: the paper states no number."""


@dataclass(frozen=True, slots=True)
class DmrsRow:
    """What came out of the experiments of one case under one scheduler.

    large_jobs           of the jobs, how many have 2 GB of input
    machines to ratio    of the setting; `release_seconds` is when the second group comes
    twct, bound          total weighted completion time and its bound, weight x seconds: means
    over_bound           mean of their ratios; its deviation, least and most
    gain                 mean of 1 - DMRS's ratio / this one's; the least and the most
    map_seconds_per_byte and reduce_seconds_per_byte  the profile that was measured
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

    `tabling` and `drawing` show the rows, each in its own manner. Profiles of the benchmarks
    are measured each time that the figure is reproduced, unless they are given.
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
        """Those of the cases, each once."""
        return list(dict.fromkeys(case.benchmark for case in self.cases))

    def measurements(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One of each benchmark, which must have the machine for itself."""
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

    def rows(self, outcomes: Sequence[Outcome]) -> Sequence[Row]:
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
        """The rows for people."""
        table = Table(
            title=f"{self.title}: {runs} experiments a case",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        self.tabling(table, [DmrsRow(**row) for row in rows])
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """The picture, as the figure says."""
        return self.drawing(self, [DmrsRow(**row) for row in rows])


def row_of(
    case: Case, profile: Profile, scheduler: str, outcomes: Sequence[Outcome]
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


def _table_of_jobs(table: Table, rows: Sequence[DmrsRow]) -> None:
    """A line for each case and scheduler, and below what was measured."""
    elephants = len({row.large_jobs for row in rows}) > 1
    table.add_column("elephants" if elephants else "benchmark")
    table.add_column("scheduler")
    for heading in (
        "TWCT\nweight x s",
        "over the bound,\nmean",
        "deviation",
        "least",
        "most",
        "DMRS better\nby, mean",
        "at most",
    ):
        table.add_column(heading, justify="right")
    last = None
    for row in rows:
        name = f"{row.large_jobs} of {ELEPHANTS_OF}" if elephants else LABELS[row.benchmark]
        if last not in (None, name):
            table.add_section()
        gains = ["", ""]
        if row.scheduler != DMRS:
            gains = [_percent(row.gain), _percent(row.gain_most)]
        table.add_row(
            "" if name == last else name,
            row.scheduler,
            number(row.twct),
            *(
                f"{value:.3f}"
                for value in (
                    row.over_bound,
                    row.over_bound_deviation,
                    row.over_bound_least,
                    row.over_bound_most,
                )
            ),
            *gains,
        )
        last = name
    table.caption = f"{_setting_of(rows[0])}\n{_profiles_of(rows)}\n{PAPER}"
    table.caption_justify = "left"


def _table_of_settings(table: Table, rows: Sequence[DmrsRow]) -> None:
    """A line for each setting: DMRS's gain over each rival, over all benchmarks."""
    for heading in ("machines", "fast", "ratio", "second release\nat (part)"):
        table.add_column(heading, justify="right")
    for name in RIVALS:
        table.add_column(f"better than\n{name}", justify="right")
    for setting, some in by_setting(rows).items():
        cells = []
        for name in RIVALS:
            gain, most = gains_over(name, some)
            cells.append(f"{_percent(gain)}, at most {_percent(most)}")
        machines, fast, ratio, interval = setting
        table.add_row(f"{machines}", f"{fast:g}", f"{ratio:g}", f"{interval:g}", *cells)
    table.caption = f"Means over all benchmarks.\n{_profiles_of(rows)}\n{PAPER}"
    table.caption_justify = "left"


Place = tuple[int, float, float, float]
"""Machines, the fast part of them, the speed ratio and the interval."""


def by_setting(rows: Sequence[DmrsRow]) -> dict[Place, list[DmrsRow]]:
    """The rows of all benchmarks, setting by setting."""
    found: dict[Place, list[DmrsRow]] = {}
    for row in rows:
        place = row.machines, row.fast, row.ratio, row.interval
        found.setdefault(place, []).append(row)
    return found


def gains_over(rival: str, rows: Sequence[DmrsRow]) -> tuple[float, float]:
    """DMRS's gain over a rival: its mean in these rows, and the most in any experiment."""
    mine = [row for row in rows if row.scheduler == rival]
    return fmean(row.gain for row in mine), max(row.gain_most for row in mine)


PAPER = f"The paper: DMRS is better than its rivals by up to {100 * PAPER_MOST:.0f} %."


def _setting_of(row: DmrsRow) -> str:
    return (
        f"{row.machines} machines, {100 * row.fast:.0f} % of them {row.ratio:g} times as fast;"
        f" half of the jobs come at {row.interval:g} of the time that 20 GB take."
    )


def _profiles_of(rows: Sequence[DmrsRow]) -> str:
    """What was measured of each benchmark, map and reduce."""
    rates = {
        row.benchmark: (row.map_seconds_per_byte, row.reduce_seconds_per_byte) for row in rows
    }
    said = (
        f"{LABELS[name]} {1e9 * mapping:.1f} and {1e9 * reducing:.1f}"
        for name, (mapping, reducing) in rates.items()
    )
    return f"Measured, ns a byte of input, map and reduce: {'; '.join(said)}."


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _draw_jobs(figure: DmrsFigure, rows: Sequence[DmrsRow]) -> Picture:
    from slotwise.experiments.dmrs_pictures import draw_benchmarks

    return draw_benchmarks(figure.name, figure.title, rows)


def _draw_elephants(figure: DmrsFigure, rows: Sequence[DmrsRow]) -> Picture:
    from slotwise.experiments.dmrs_pictures import draw_elephants

    return draw_elephants(figure.name, figure.title, rows)


def _draw_settings(figure: DmrsFigure, rows: Sequence[DmrsRow]) -> Picture:
    from slotwise.experiments.dmrs_pictures import draw_settings

    return draw_settings(figure.name, figure.title, rows)


def _of_all(batches: tuple[Batch, ...]) -> tuple[Case, ...]:
    return tuple(Case(benchmark, batches) for benchmark in LABELS)


MACHINES, FAST, RATIOS, INTERVALS = (
    (10, 20, 40),
    (1 / 4, 1 / 2, 3 / 4),
    (1.5, 2.0, 3.0, 5.0),
    (0.0, 1 / 8, 1 / 4, 1 / 2, 1.0),
)
"""The sweep; in the middle are the defaults of a Setting."""

SETTINGS = tuple(
    dict.fromkeys(
        [
            *(Setting(*place) for place in product(MACHINES, FAST, RATIOS)),
            *(Setting(interval=interval) for interval in INTERVALS),
        ]
    )
)

RUNS_OF_SETTINGS = 3

DMRS_2A = DmrsFigure(
    "dmrs-2a",
    "Jobs of one size on machines of two speeds: 20 x 1 GB",
    "benchmark",
    _of_all(SAME),
    _table_of_jobs,
    _draw_jobs,
)
DMRS_2B = DmrsFigure(
    "dmrs-2b",
    "Jobs of three sizes on machines of two speeds: 12 x 1 GB, 4 x 0.5 GB, 4 x 2 GB",
    "benchmark",
    _of_all(MIXED),
    _table_of_jobs,
    _draw_jobs,
)
DMRS_2C = DmrsFigure(
    "dmrs-2c",
    "More jobs that are large or small: 6 x 1 GB, 6 x 0.5 GB, 6 x 2 GB",
    "benchmark",
    _of_all(MORE_MIXED),
    _table_of_jobs,
    _draw_jobs,
)
DMRS_3 = DmrsFigure(
    "dmrs-3",
    f"{ELEPHANTS_OF} TeraSort jobs, elephants of 2 GB and mice of 0.5 GB",
    "elephants, part of all jobs (%)",
    tuple(Case("terasort", with_elephants(n)) for n in range(0, ELEPHANTS_OF + 1, 3)),
    _table_of_jobs,
    _draw_elephants,
)
DMRS_SETTINGS = DmrsFigure(
    "dmrs-settings",
    "DMRS beside its rivals by machines, speeds and releases: the jobs of Fig. 2 (b)",
    "setting",
    tuple(replace(case, setting=setting) for setting in SETTINGS for case in _of_all(MIXED)),
    _table_of_settings,
    _draw_settings,
    schedulers=(DMRS, *RIVALS),
    runs=RUNS_OF_SETTINGS,
)

DMRS_ALL = (DMRS_2A, DMRS_2B, DMRS_2C, DMRS_3, DMRS_SETTINGS)
