"""What a figure is: settings to experiment with, and what came out as rows and a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotwise.experiments.flex_experiment import Setting

if TYPE_CHECKING:
    from slotwise.report.pictures.picture import Picture

SCHEMES = ("fifo", "fair", "flex")
BEST_ORDER, BOUND = YARDSTICKS = ("best order", "bound")


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the x axis, by its value or its name, and the setting to experiment with."""

    x: float | str
    setting: Setting


@dataclass(frozen=True, slots=True)
class Row:
    """What came out of the experiments of one point, for one scheme by one yardstick.

    mean, worst, least  of the ratios of the scheme's value to that of the yardstick; None
                        where all experiments were ignored
    deviation           of that sample of ratios, 0 for a single experiment
    counted, ignored    experiments; one is ignored where the yardstick is not above 0
    proven              experiments in which the yardstick is proven to be the optimum
    """

    x: float | str
    scheme: str
    yardstick: str
    mean: float | None
    worst: float | None
    least: float | None
    deviation: float | None
    counted: int
    ignored: int
    proven: int


@dataclass(frozen=True, slots=True)
class Published:
    """Numbers that the text of a paper states for a point: ratios of a scheme."""

    x: float
    scheme: str
    mean: float
    worst: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: what to vary, and how to draw what came out.

    axis       what the x of its points are
    draw       makes the picture; it needs the extra `plots`
    published  what the paper states, to be shown beside
    is_log     whether the axis is logarithmic
    """

    name: str
    title: str
    axis: str
    points: tuple[Point, ...]
    draw: Callable[[Figure, Sequence[Row]], Picture]
    published: tuple[Published, ...] = ()
    is_log: bool = False
