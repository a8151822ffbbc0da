"""Figures of papers by name, and how their experiments are run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from operator import attrgetter
from types import MappingProxyType

from slotwise.experiments.figure import (
    BEST_ORDER,
    BOUND,
    SCHEMES,
    YARDSTICKS,
    Figure,
    Point,
    Row,
)
from slotwise.experiments.flex_experiment import Outcome, Setting, experiment
from slotwise.experiments.flex_figures import FLEX_5A, FLEX_5B, FLEX_5C, FLEX_TASKS
from slotwise.experiments.reproduction import Reproduction
from slotwise.model.errors import InputError

FIGURES: Mapping[str, Figure] = MappingProxyType(
    {figure.name: figure for figure in (FLEX_5A, FLEX_5B, FLEX_5C, FLEX_TASKS)}
)
"""The figures by name; a further one is added here."""

RUNS = 100
"""Experiments a point, as in the FLEX paper."""

NOTHING = 1e-9
"""A yardstick that is not above this makes no sensible ratio."""

Told = Callable[[int, int], None]
"""Is told how many experiments are done, of how many."""


def figure_named(name: str) -> Figure:
    """The figure of that name. InputError, which names the known ones, if there is none."""
    if name not in FIGURES:
        raise InputError(f"unknown figure {name!r}; known: {', '.join(FIGURES)}")
    return FIGURES[name]


def reproduce(
    name: str, runs: int = RUNS, seed: int = 0, processes: int = 1, told: Told | None = None
) -> Reproduction:
    """Repeat the experiments of a figure. The same for the same runs and seed.

    Spread over worker processes if there are to be several; `told` hears of each experiment
    that is done. InputError for an unknown figure. About 2 minutes for 100 runs on 2 cores,
    several times that without the extra `fast`, by which the best order is found sooner.
    """
    figure, began = figure_named(name), time.monotonic()
    if runs < 1:
        raise InputError(f"runs is {runs}; give at least 1")
    total = runs * len(figure.points)
    outcomes: list[Outcome] = []
    for outcome in _outcomes(figure, runs, seed, min(processes, total)):
        outcomes.append(outcome)
        if told is not None:
            told(len(outcomes), total)
    rows: list[Row] = []
    for number, point in enumerate(figure.points):
        rows += rows_of(point, outcomes[number * runs : (number + 1) * runs])
    return Reproduction(figure, runs, seed, time.monotonic() - began, tuple(rows))


def rows_of(point: Point, outcomes: Sequence[Outcome]) -> list[Row]:
    """The rows of a point: each scheme by each yardstick."""
    return [
        _row(point, scheme, yardstick, outcomes)
        for yardstick in YARDSTICKS
        for scheme in SCHEMES
    ]


def _outcomes(figure: Figure, runs: int, seed: int, processes: int) -> Iterator[Outcome]:
    """All outcomes, point by point and in the order of the runs."""
    settings = [point.setting for point in figure.points for _ in range(runs)]
    numbers = list(range(runs)) * len(figure.points)
    one = partial(_experiment, seed)
    if processes == 1:
        yield from map(one, settings, numbers)
        return
    # Threads of this process do not live on in a spawned one.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(one, settings, numbers, chunksize=5)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _experiment(seed: int, setting: Setting, run: int) -> Outcome:
    return experiment(setting, seed, run)


def _row(point: Point, scheme: str, yardstick: str, outcomes: Sequence[Outcome]) -> Row:
    of_yardstick = attrgetter(yardstick.replace(" ", "_"))
    sensible = [outcome for outcome in outcomes if of_yardstick(outcome) > NOTHING]
    ratios = [getattr(outcome, scheme) / of_yardstick(outcome) for outcome in sensible]
    return Row(
        x=point.x,
        scheme=scheme,
        yardstick=yardstick,
        mean=statistics.fmean(ratios) if ratios else None,
        worst=max(ratios, default=None),
        least=min(ratios, default=None),
        deviation=statistics.stdev(ratios) if len(ratios) > 1 else 0.0 if ratios else None,
        counted=len(ratios),
        ignored=len(outcomes) - len(ratios),
        proven=sum(map(_is_tight[yardstick], sensible)),
    )


_is_tight: dict[str, Callable[[Outcome], bool]] = {
    BEST_ORDER: lambda outcome: outcome.is_optimal(outcome.best_order),
    BOUND: lambda outcome: outcome.is_optimal(min(outcome.flex, outcome.best_order)),
}
"""Whether a yardstick is known to be the optimum itself."""
