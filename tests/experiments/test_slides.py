"""The figures of the delay scheduling slides, with trials shorter than those of the figures."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import reproduce as reproducing
from experiments.__main__ import app
from experiments.figure import Figure
from experiments.slides.cluster import JobType, TaskTimings, Trial, observe, slides_cluster
from experiments.slides.figure import WITH, WITHOUT, SlidesFigure, SlidesRow
from experiments.slides.figures import (
    GAINS,
    SCHEMES,
    SLIDES,
    SLIDES_GAINS,
    SLIDES_LOCALITY,
    SLIDES_STICKY,
    expected_when_sticky,
)
from experiments.slides.traffic import BIN, SORT, TrafficFigure
from slotwise.core.decisions import Locality
from slotwise.policy.assignment.delay import LEVELS

STANDARD_ERRORS = 4.0


@pytest.fixture
def shorter(pytestconfig: pytest.Config) -> float:
    """The factor on the times of trials: 1 with --slow."""
    return 1.0 if pytestconfig.getoption("--slow") else 0.5


def short(
    figure: Figure, seconds: float, x: Sequence[float | str] = (), warm_up: float = 300.0
) -> Figure:
    """The same figure with shorter trials, or fewer sorts, and only at some places."""
    if isinstance(figure, TrafficFigure):
        return replace(figure, kind=replace(SORT, users=12))
    assert isinstance(figure, SlidesFigure)
    points = [point for point in figure.points if not x or point.x in x]
    trials = {
        point.trial: replace(point.trial, seconds=seconds, warm_up=warm_up) for point in points
    }
    return replace(
        figure, points=tuple(replace(point, trial=trials[point.trial]) for point in points)
    )


def rows_of(figure: Figure, runs: int = 1) -> dict[tuple[float | str, str], SlidesRow]:
    """The rows of the figure, by x and scheme."""
    made = figure.rows([experiment() for experiment in figure.experiments(runs, 0)])
    return {(row["x"], row["scheme"]): SlidesRow(**row) for row in made}


SHOWN = [
    pytest.param(
        figure,
        id=figure.name,
        marks=[] if figure.name in ("slides-sticky", "slides-traffic") else pytest.mark.slow,
    )
    for figure in SLIDES
]
"""By default a figure of points and the one over time."""


@pytest.mark.parametrize("figure", SHOWN)
def test_a_figure_is_reproduced_as_a_table_and_pictures(
    figure: Figure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    """The files are where the command says; the table and its columns have headings."""
    places: dict[str, tuple[float | str, ...]] = {
        "slides-locality": (20, 50),
        "slides-sticky": (2, 20),
        "slides-throughput": (16,),
        "slides-levels": ("small scan, together",),
    }
    x = places.get(figure.name, ())
    seconds, warm_up = (30.0, 30.0) if pytestconfig.getoption("--slow") else (20.0, 0.0)
    tiny = short(figure, seconds, x, warm_up)
    monkeypatch.setattr(reproducing, "FIGURES", {figure.name: tiny})
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app, [figure.name, "--runs", "1", "--processes", "1", "-o", "figures"]
    )
    assert done.exit_code == 0, done.stderr
    files = [Path("figures") / f"{figure.name}.{ending}" for ending in ("csv", "png", "svg")]
    assert done.stdout.splitlines()[-3:] == list(map(str, files))
    assert figure.title in " ".join(done.stdout.split())
    assert files[1].read_bytes().startswith(b"\x89PNG")
    picture = files[2].read_text(encoding="utf-8")
    assert figure.title in picture
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["scheme"] for row in rows} <= {*SCHEMES, WITH, WITHOUT, *LEVELS}
    assert all(row["x"] for row in rows)


def test_the_same_numbers_give_the_same_outcome() -> None:
    """A trial is the same for the same seed and number, and another one for others."""
    trial = Trial((JobType("job", maps=5, users=30),), seconds=30.0, warm_up=10.0)
    assert observe(trial, 1, 2) == observe(trial, 1, 2)
    assert observe(trial, 1, 2) != observe(trial, 1, 3)
    assert observe(trial, 1, 2) != observe(trial, 2, 2)


def test_every_user_has_one_job_at_a_time() -> None:
    """Ten users have jobs of one map of 16 s, which a host reports after 17.5 s on average.

    Each has one map at any time, so the observed time determines the launches.
    """
    trial = Trial((JobType("job", maps=1, users=10, reads=False),), seconds=1_000.0)
    seen = observe(trial, 0, 0)["job"]
    assert seen.launches.total() == pytest.approx(10 * 1_000 / 17.5, rel=0.03)
    assert seen.maps_per_second == pytest.approx(10 / 17.5, rel=0.03)


def test_launches_are_counted_by_locality() -> None:
    """Of four maps one ran in the rack of its input, and one outside of it."""
    seen = TaskTimings(seconds=8.0, done=4)
    seen.launches.update([Locality.NODE, Locality.NODE, Locality.RACK, Locality.ANY])
    assert (seen.node, seen.rack, seen.maps_per_second) == (0.5, 0.75, 0.5)


def test_the_cluster_is_that_of_the_slides() -> None:
    """A hundred nodes; four racks of 25 are our choice."""
    hosts = slides_cluster().hosts
    assert len(hosts) == 100
    racks = [host.rack for host in hosts]
    assert {racks.count(rack) for rack in racks} == {25}


@pytest.mark.slow
def test_locality_grows_with_the_job_as_the_analysis_says(
    shorter: float, pytestconfig: pytest.Config
) -> None:
    """Without waiting it is not above the formula, which does not include sticky slots; with
    waiting it is not below the formula. Both within the error of the sample."""
    # In a short trial jobs of 20 maps cannot be distinguished from the others.
    sizes = (5, 20, 100) if pytestconfig.getoption("--slow") else (5, 100)
    rows = rows_of(short(SLIDES_LOCALITY, 200.0 * shorter, sizes, 300.0 * shorter))
    for (maps, scheme), row in rows.items():
        assert row.expected_node is not None
        chance = row.expected_node * (1 - row.expected_node)
        error = STANDARD_ERRORS * (chance / row.launches) ** 0.5
        if scheme.endswith(WITH):
            assert row.node >= row.expected_node - error, maps
        else:
            assert row.node <= row.expected_node + error, maps
    for scheme in SCHEMES:
        if scheme != f"FIFO, {WITH}":  # In a short trial all of its few launches are local.
            assert all(rows[a, scheme].node < rows[b, scheme].node for a, b in pairwise(sizes))


@pytest.mark.slow
def test_slots_are_sticky_unless_jobs_wait(pytestconfig: pytest.Config) -> None:
    """The more jobs share the cluster, the fewer maps are local, unless jobs wait.

    Slots sometimes change jobs, so more maps are local than if slots never did.
    """
    numbers = (2, 10, 50) if pytestconfig.getoption("--slow") else (2, 50)
    rows = rows_of(short(SLIDES_STICKY, 400.0, numbers))
    without = [rows[jobs, WITHOUT].node for jobs in numbers]
    assert without == sorted(without, reverse=True)
    assert without[-1] < 0.3
    for jobs in numbers:
        assert rows[jobs, WITH].node > 0.95
    for jobs in numbers[1:]:
        assert rows[jobs, WITHOUT].node > expected_when_sticky(jobs)


def test_sticky_by_hand() -> None:
    """Of two jobs, each has slots on 3/4 of the nodes, and 63/64 of its blocks there."""
    assert expected_when_sticky(2) == pytest.approx(63 / 64)
    assert expected_when_sticky(1) == 1


def test_the_table_of_gains_agrees_with_the_slides(shorter: float) -> None:
    """With waiting, localities at the node and in the rack are within 5 points of the slides
    and the error of so short a sample; but our large scans are more local."""
    rows = rows_of(short(SLIDES_GAINS, 600.0 * shorter, warm_up=300.0 * shorter))
    for name, (_, (node, rack)) in GAINS.items():
        row = rows[name, WITH]
        assert row.slides_node == node
        for ours, theirs in ((row.node, node), (row.rack, rack)):
            error = STANDARD_ERRORS * (theirs * (1 - theirs) / row.launches) ** 0.5
            assert ours >= theirs - 0.05 - error, name
            assert ours <= theirs + 0.05 + error or name == "large scan"
        assert row.node > rows[name, WITHOUT].node


def test_traffic_over_time_adds_up_to_the_remote_reads_of_maps() -> None:
    """The bins contain all blocks read from other hosts; with waiting there are few of them."""
    figure = short(TrafficFigure("tiny", "Traffic"), 0.0)
    assert isinstance(figure, TrafficFigure)
    outcomes = [experiment() for experiment in figure.experiments(1, 0)]
    read = [sum(passed.rack + passed.core) * BIN / 256e6 for passed in outcomes]
    for blocks, passed in zip(read, outcomes, strict=True):
        assert blocks == pytest.approx(round(blocks), abs=1e-6)
        assert sum(passed.done) == 12 * 30
    assert read[1] < read[0] / 4
    rows = figure.rows(outcomes)
    assert sum(row["maps_per_second"] for row in rows) * BIN == pytest.approx(2 * 12 * 30)
