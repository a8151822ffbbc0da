"""A row of the figure of unknown sizes, and how rows are made of draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from experiments.unknown.experiment import Knower, Knowledge, UnknownDraw

ALL = "all"

FAIR, KNOWING = Knower("fair", "none"), Knower("flex", "stated")
"""The references: FAIR, and FLEX that knows the mean of the tasks of each phase."""


@dataclass(frozen=True, slots=True)
class UnknownRow:
    """Mean responses under one allocator with one knowledge, relative to two references.

    workload, load         of the draws; "all" for those of every workload or load
    by_fair, by_flex       the ratio to FAIR, and to FLEX that knows: geometric mean over draws
    by_fair_worst          the largest ratio to FAIR; likewise to FLEX
    by_fair_worst_draw     the draw of the largest ratio: its workload, load and number
    """

    workload: str
    load: float | str
    allocator: str
    knowledge: Knowledge
    draws: int
    by_fair: float
    by_fair_worst: float
    by_fair_worst_draw: str
    by_flex: float
    by_flex_worst: float
    by_flex_worst_draw: str


def rows_of(draws: Sequence[UnknownDraw]) -> list[UnknownRow]:
    """Rows for all draws, for each load, for each workload, and for each of both."""
    workloads = [ALL, *dict.fromkeys(draw.workload for draw in draws)]
    loads: list[float | str] = [ALL, *dict.fromkeys(draw.load for draw in draws)]
    return [
        _row(workload, load, knower, chosen)
        for workload in workloads
        for load in loads
        if (chosen := [d for d in draws if _fits(d, workload, load)])
        for knower in chosen[0].response
    ]


def _fits(draw: UnknownDraw, workload: str, load: float | str) -> bool:
    return workload in (ALL, draw.workload) and load in (ALL, draw.load)


def _row(
    workload: str, load: float | str, knower: Knower, draws: Sequence[UnknownDraw]
) -> UnknownRow:
    def ratio(reference: Knower) -> Callable[[UnknownDraw], float]:
        return lambda draw: draw.response[knower] / draw.response[reference]

    def mean(reference: Knower) -> float:
        return geometric_mean(map(ratio(reference), draws))

    worst = {one: max(draws, key=ratio(one)) for one in (FAIR, KNOWING)}
    return UnknownRow(
        workload=workload,
        load=load,
        allocator=knower.allocator,
        knowledge=knower.knowledge,
        draws=len(draws),
        by_fair=mean(FAIR),
        by_fair_worst=ratio(FAIR)(worst[FAIR]),
        by_fair_worst_draw=_name(worst[FAIR]),
        by_flex=mean(KNOWING),
        by_flex_worst=ratio(KNOWING)(worst[KNOWING]),
        by_flex_worst_draw=_name(worst[KNOWING]),
    )


def _name(draw: UnknownDraw) -> str:
    return f"{draw.workload}, load {draw.load:g}, number {draw.number}"
