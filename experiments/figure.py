"""The protocol of a figure: its experiments, and its results as rows, a table and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.table import Table

    from slotwise.insight.report.pictures.picture import Picture

Experiment = Callable[[], Any]
"""One unit of work. It and its outcome are pickled, so that worker processes can run it."""

Row = Mapping[str, Any]
"""A line of the CSV: numbers, texts or None by column. All rows of a figure have the same
columns."""


class Figure(Protocol):
    """A figure of a paper, or one of ours in the same style.

    Only its experiments take long; table and picture depend on the rows alone.
    """

    @property
    def name(self) -> str:
        """The name on the command line, and the stem of its files."""
        ...

    @property
    def title(self) -> str:
        """The content of the figure, in a sentence."""
        ...

    @property
    def axis(self) -> str:
        """The quantity on the x axis, with its unit."""
        ...

    @property
    def runs(self) -> int:
        """The default number of experiments for each point."""
        ...

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """All experiments. Their outcomes are the same for the same runs and seed."""
        ...

    def rows(self, outcomes: Sequence[Any]) -> Sequence[Row]:
        """The results, from the outcomes in the order of the experiments."""
        ...

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The rows as a readable table, with the numbers that the paper states."""
        ...

    def draw(self, rows: Sequence[Row]) -> Picture:
        """The picture; it needs the extra `plots`."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A figure that starts from measurements on this machine."""

    def measurements(self, runs: int, seed: int) -> Sequence[Experiment]:
        """The measurements: run one after another, while nothing else of the figure runs."""
        ...

    def measured(self, outcomes: Sequence[Any]) -> Figure:
        """The figure that starts from these outcomes, in the order of the measurements."""
        ...
