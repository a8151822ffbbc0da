"""DMRS, Figs 2 and 3: total weighted completion times over the bound, and DMRS's gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.dmrs.experiment import (
    DMRS,
    ELEPHANTS_OF,
    MIXED,
    MORE_MIXED,
    RIVALS,
    SAME,
    Batch,
    Case,
    with_elephants,
)
from experiments.dmrs.figure import DmrsFigure, DmrsRow
from experiments.dmrs.profiles import LABELS
from experiments.dmrs.settings import SETTINGS
from experiments.dmrs.tables import table_of_jobs, table_of_settings

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture


def _draw_jobs(figure: DmrsFigure, rows: Sequence[DmrsRow]) -> Picture:
    from experiments.dmrs.pictures import draw_benchmarks

    return draw_benchmarks(figure.name, figure.title, rows)


def _draw_elephants(figure: DmrsFigure, rows: Sequence[DmrsRow]) -> Picture:
    from experiments.dmrs.pictures import draw_elephants

    return draw_elephants(figure.name, figure.title, rows)


def _draw_settings(figure: DmrsFigure, rows: Sequence[DmrsRow]) -> Picture:
    from experiments.dmrs.settings_pictures import draw_settings

    return draw_settings(figure.name, figure.title, rows)


def _of_all(batches: tuple[Batch, ...]) -> tuple[Case, ...]:
    return tuple(Case(benchmark, batches) for benchmark in LABELS)


RUNS_OF_SETTINGS = 3

DMRS_2A = DmrsFigure(
    "dmrs-2a",
    "Jobs of one size on machines of two speeds: 20 x 1 GB",
    "benchmark",
    _of_all(SAME),
    table_of_jobs,
    _draw_jobs,
)
DMRS_2B = DmrsFigure(
    "dmrs-2b",
    "Jobs of three sizes on machines of two speeds: 12 x 1 GB, 4 x 0.5 GB, 4 x 2 GB",
    "benchmark",
    _of_all(MIXED),
    table_of_jobs,
    _draw_jobs,
)
DMRS_2C = DmrsFigure(
    "dmrs-2c",
    "More jobs that are large or small: 6 x 1 GB, 6 x 0.5 GB, 6 x 2 GB",
    "benchmark",
    _of_all(MORE_MIXED),
    table_of_jobs,
    _draw_jobs,
)
DMRS_3 = DmrsFigure(
    "dmrs-3",
    f"{ELEPHANTS_OF} TeraSort jobs, elephants of 2 GB and mice of 0.5 GB",
    "elephants, part of all jobs (%)",
    tuple(Case("terasort", with_elephants(n)) for n in range(0, ELEPHANTS_OF + 1, 3)),
    table_of_jobs,
    _draw_elephants,
)
DMRS_SETTINGS = DmrsFigure(
    "dmrs-settings",
    "DMRS and its rivals by machines, speeds and releases: the jobs of Fig. 2 (b)",
    "setting",
    tuple(replace(case, setting=setting) for setting in SETTINGS for case in _of_all(MIXED)),
    table_of_settings,
    _draw_settings,
    schedulers=(DMRS, *RIVALS),
    runs=RUNS_OF_SETTINGS,
)

DMRS_ALL = (DMRS_2A, DMRS_2B, DMRS_2C, DMRS_3, DMRS_SETTINGS)
