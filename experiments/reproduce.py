"""Figures of papers by name, and how their experiments are run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import MappingProxyType
from typing import Any

from experiments.dmrs.figures import DMRS_ALL
from experiments.dmrs.history import DMRS_HISTORY
from experiments.dmrs.live_figures import DMRS_2_LIVE, DMRS_2_ON_DASK
from experiments.figure import Experiment, Figure, Measured
from experiments.flex.cluster_figures import FLEX_6
from experiments.flex.figures import FLEX_5
from experiments.flowflex.cluster_figures import FLOWFLEX_12_BOTH, FLOWFLEX_12_ON_DASK
from experiments.flowflex.figures import FLOWFLEX_RATIOS
from experiments.flowflex.stages import FLOWFLEX_STAGES
from experiments.hammr.figures import HAMMR_5, HAMMR_5_ON_DASK
from experiments.hammr.placement_figures import HAMMR_PLACEMENTS
from experiments.memory.figures import MEMORY_WAITS
from experiments.reproduction import Reproduction
from experiments.slides.figures import SLIDES, SLIDES_LOCALITY_ON_DASK
from experiments.unknown.figures import UNKNOWN_SIZES
from slotwise.core.errors import InputError

_ALL: tuple[Figure, ...] = (
    *FLEX_5,
    *FLEX_6,
    UNKNOWN_SIZES,
    MEMORY_WAITS,
    *FLOWFLEX_STAGES,
    *FLOWFLEX_RATIOS,
    *FLOWFLEX_12_BOTH,
    HAMMR_5,
    *HAMMR_PLACEMENTS,
    *SLIDES,
    *DMRS_ALL,
    DMRS_2_LIVE,
    DMRS_HISTORY,
)

FIGURES: Mapping[str, Figure] = MappingProxyType({figure.name: figure for figure in _ALL})
"""The figures by name. Add a new figure to `_ALL`."""

ON_DASK: Mapping[str, Figure] = MappingProxyType(
    {
        "flowflex-12-live": FLOWFLEX_12_ON_DASK,
        "hammr-5": HAMMR_5_ON_DASK,
        "slides-locality": SLIDES_LOCALITY_ON_DASK,
        "dmrs-2-live": DMRS_2_ON_DASK,
    }
)
"""The figures with live runs on a Dask cluster, each by the name of that on this machine."""

ProgressCallback = Callable[[int, int], None]
"""Receives the number of experiments done and their total."""


def figure_named(name: str, on_dask: bool = False) -> Figure:
    """The figure of that name. InputError with the known names if there is none."""
    if name not in FIGURES:
        raise InputError(f"unknown figure {name!r}; known: {', '.join(FIGURES)}")
    if not on_dask:
        return FIGURES[name]
    if name not in ON_DASK:
        raise InputError(
            f"{name} does not run on a Dask cluster; these do: {', '.join(ON_DASK)}"
        )
    return ON_DASK[name]


def reproduce(
    name: str,
    runs: int | None = None,
    seed: int = 0,
    processes: int = 1,
    progress: ProgressCallback | None = None,
    on_dask: bool = False,
) -> Reproduction:
    """Run the experiments of a figure, `runs` for each point; None: the figure's default.

    The results depend only on runs and seed, except for live runs and measured times.
    Several `processes` share the experiments. `progress` is called after each experiment, and
    before that, with separate counts, after each measurement from which a figure starts.
    `on_dask`: live runs use a Dask cluster of processes, which they start and end.
    InputError for an unknown figure. About 2 minutes on 2 cores; the figures of ratios take
    several times that without the extra `fast`, which speeds up the search for the best order.
    """
    figure, began = figure_named(name, on_dask), time.monotonic()
    runs = figure.runs if runs is None else runs
    if runs < 1:
        raise InputError(f"runs is {runs}; give at least 1")
    if isinstance(figure, Measured):
        figure = figure.measured(_all(figure.measurements(runs, seed), 1, progress))
    outcomes = _all(figure.experiments(runs, seed), processes, progress)
    rows = tuple(figure.rows(outcomes))
    return Reproduction(figure, runs, seed, time.monotonic() - began, rows)


def _all(
    experiments: Sequence[Experiment], processes: int, progress: ProgressCallback | None
) -> list[Any]:
    """The outcomes of all experiments; calls `progress` after each of them."""
    outcomes: list[Any] = []
    for outcome in _outcomes(experiments, min(processes, len(experiments))):
        outcomes.append(outcome)
        if progress is not None:
            progress(len(outcomes), len(experiments))
    return outcomes


def _outcomes(experiments: Sequence[Experiment], processes: int) -> Iterator[Any]:
    """All outcomes, in the order of the experiments."""
    if processes <= 1:
        yield from map(_make, experiments)
        return
    # Spawned, because threads of this process do not survive a fork.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(_make, experiments)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _make(experiment: Experiment) -> Any:
    return experiment()
