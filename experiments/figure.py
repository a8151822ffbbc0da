"""What a figure is: experiments to make, and what came out as rows, a table and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.table import Table

    from slotwise.report.pictures.picture import Picture

Experiment = Callable[[], Any]
"""One unit of work. It and its outcome are pickled, so that worker processes can make it."""

Row = Mapping[str, Any]
"""A line of the CSV: numbers, texts or None by column; all rows of a figure have the same."""


class Figure(Protocol):
    """A figure of a paper, or one of ours in its manner.

    Nothing but its experiments takes long, and all that it shows follows from the rows.
    """

    @property
    def name(self) -> str:
        """By which users call it, and the stem of its files."""
        ...

    @property
    def title(self) -> str:
        """What it shows, in a sentence."""
        ...

    @property
    def axis(self) -> str:
        """What its x axis is, with the unit."""
        ...

    @property
    def runs(self) -> int:
        """Experiments a point unless told otherwise."""
        ...

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """All experiments. Their outcomes are the same for the same runs and seed."""
        ...

    def rows(self, outcomes: Sequence[Any]) -> Sequence[Row]:
        """What came out, from the outcomes in the order of the experiments."""
        ...

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The rows for people, beside what the paper states."""
        ...

    def draw(self, rows: Sequence[Row]) -> Picture:
        """The picture; it needs the extra `plots`."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A figure that begins from what is measured on this machine."""

    def measurements(self, runs: int, seed: int) -> Sequence[Experiment]:
        """What to measure: one after another, while nothing else of the figure runs."""
        ...

    def measured(self, outcomes: Sequence[Any]) -> Figure:
        """The figure that begins from these outcomes, in the order of the measurements."""
        ...
