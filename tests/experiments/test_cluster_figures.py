"""FLEX, Fig. 6: the rows of a point, and every figure as a table and a picture."""

from __future__ import annotations

import pytest
from rich.console import Console

from experiments.flex.cluster_experiment import ClusterSetting
from experiments.flex.cluster_figures import (
    FLEX_6,
    ClusterFigure,
    ClusterPoint,
    row_of,
)


def test_a_row_has_the_gains_of_the_means_and_of_single_experiments() -> None:
    """Better by 1 - 10/15 of the means; by 1/2 and 1/4 in the two experiments."""
    outcomes = [{"fair": 10.0, "flex": 5.0}, {"fair": 20.0, "flex": 15.0}]
    row = row_of(ClusterPoint(7, ClusterSetting(), "some"), outcomes)
    assert (row.panel, row.x, row.experiments) == ("some", 7, 2)
    assert (row.fair, row.flex) == (15, 10)
    assert row.fair_deviation == row.flex_deviation == pytest.approx(50**0.5)
    assert (row.better, row.better_least, row.better_most) == pytest.approx((1 / 3, 0.25, 0.5))


@pytest.mark.parametrize("figure", FLEX_6, ids=lambda figure: figure.name)
def test_a_figure_shows_every_point_and_the_values_of_the_paper(figure: ClusterFigure) -> None:
    """Each point has a line in the table and two points in the picture.

    The table has all statements of the paper.
    """
    outcomes = [{"fair": 2.0 + n, "flex": 1.0} for n, _ in enumerate(figure.points)]
    rows = figure.rows(outcomes)
    assert [(row["panel"], row["x"]) for row in rows] == [(p.panel, p.x) for p in figure.points]
    console = Console(width=200)
    with console.capture() as captured:
        console.print(figure.table(rows, 1))
    table = captured.get()
    for said in figure.published.values():
        assert said in table
    assert set(figure.published) <= {point.x for point in figure.points}
    picture = figure.draw(rows)
    assert sum(map(len, picture.rows.values())) == 2 * len(figure.points)
    assert "(min)" in str(picture.spec())
