"""Unknown sizes: the draws, what allocators are told, and the rows, table and picture."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from statistics import NormalDist

import pytest
from rich.console import Console

from experiments.reproduce import reproduce
from experiments.unknown import figures, workloads
from experiments.unknown.experiment import (
    FACTOR,
    RERUN,
    Knower,
    Misinforming,
    UnknownDraw,
    experiment,
    knowers,
    mean_response,
    told_of,
)
from experiments.unknown.figures import UNKNOWN_SIZES
from experiments.unknown.row import ALL, FAIR, KNOWING, rows_of
from experiments.unknown.workloads import FB_2009, JOBS, SLOTS, WORKLOADS, drawn
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, Tasks

TRACE = "\n".join(
    f"job{n}\t{20 * n}\t20\t{(n % 7) ** 9}\t{n % 3 * 10**6}\t{n * 10**5}" for n in range(160)
)
"""160 jobs in the format of FB-2009, with sizes of our own."""

UNTRACED = [name for name in WORKLOADS if name != FB_2009]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small trace in place of FB-2009."""
    path = tmp_path / workloads.FB_FILE
    path.write_text(TRACE)
    monkeypatch.setenv(workloads.FOLDER_VARIABLE, str(tmp_path))
    return path


@pytest.fixture
def no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without traces."""
    monkeypatch.setenv(workloads.FOLDER_VARIABLE, str(tmp_path))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_draw_has_the_stated_load(trace: Path, workload: str) -> None:
    """The work takes that part of all slots from the first arrival to the last."""
    jobs = drawn(workload, 0.7, (3, 1))
    assert jobs[0].arrival == 0.0
    assert sum(job.work or 0.0 for job in jobs) == pytest.approx(0.7 * SLOTS * jobs[-1].arrival)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_loads_differ_only_in_arrivals(trace: Path, workload: str) -> None:
    """At half the load the same jobs arrive after twice the time."""
    for one, other in zip(
        drawn(workload, 0.8, (3, 1)), drawn(workload, 0.4, (3, 1)), strict=True
    ):
        assert other.arrival == pytest.approx(2 * one.arrival)
        assert replace(other, arrival=one.arrival) == one


def test_the_jobs_of_the_trace_are_consecutive(trace: Path) -> None:
    """Any part of the trace, by the numbers of the draw."""
    names = [job.id for job in drawn(FB_2009, 0.5, (0, 4))]
    first = int(names[0].removeprefix("job"))
    assert names == [f"job{n}" for n in range(first, first + workloads.FB_JOBS)]


def test_equal_jobs_are_equal() -> None:
    """They differ in name and arrival."""
    assert len({job.phases for job in drawn("equal", 0.5, (0, 4))}) == 1
    assert len(drawn("equal", 0.5, (0, 4))) == JOBS


def test_wrong_work_is_ten_times_the_true_one_or_a_tenth() -> None:
    """The same factor for all phases of a job; both occur."""
    jobs = drawn("Pareto tasks", 0.5, (0, 0))
    factors = set()
    for told, job in zip(told_of("wrong", jobs, (0, 0)).values(), jobs, strict=True):
        found = {
            round(wrong.tasks.work / right.tasks.work, 9)
            for wrong, right in zip(told.phases, job.phases, strict=True)
        }
        assert len(found) == 1
        factors |= found
    assert factors == {FACTOR, 1 / FACTOR}


def test_a_history_is_as_wrong_as_those_of_published_traces() -> None:
    """A factor for each phase; about one of six is wrong by a factor of 2 or more."""
    factors = []
    for number in range(20):
        jobs = drawn("Pareto tasks", 0.5, (0, number))
        told = told_of("history", jobs, (0, number))
        for job in jobs:
            for wrong, right in zip(told[job.id].phases, job.phases, strict=True):
                factors.append(wrong.tasks.work / right.tasks.work)
    far = sum(not 0.5 < factor < 2 for factor in factors) / len(factors)
    assert far == pytest.approx(2 * NormalDist().cdf(-log(2) / RERUN), abs=0.02)
    assert 0.08 < far < 0.23
    assert told_of("stated", jobs, (0, 0)) == told_of("none", jobs, (0, 0)) == {}


def test_a_backend_can_tell_of_other_work_than_it_runs() -> None:
    """The job arrives with a tenth of its work, at its time."""
    job = Job("a", (Phase("map", Tasks(2, 30.0)),), arrival=5.0)
    told = replace(job, phases=(Phase("map", Tasks(2, 3.0)),))
    backend = Misinforming(SimulatedBackend(Cluster.of_slots(1), [job]), {"a": told})
    event, _closed = backend.wait(None)
    assert event == JobArrived(5.0, told)
    assert backend.now == 5.0


def small() -> list[Job]:
    """Twelve equal jobs of ten tasks that arrive in turn."""
    phase = Phase("map", Tasks(10, 2.0))
    return [Job(f"j{n:02}", (phase,), n / 2) for n in range(12)]


def test_allocators_that_do_not_read_the_work_are_not_affected_by_it() -> None:
    """FAIR and FIFO have the same mean response whatever they are told."""
    for name in ("fair", "fifo"):
        found = {
            mean_response(Knower(name, knowledge), small(), (0, 0))
            for knowledge in ("none", "stated", "wrong")
        }
        assert len(found) == 1


def test_every_allocator_is_compared_with_all_that_it_can_know() -> None:
    """FLEX reads the work, FAIR and FIFO do not."""
    found = knowers()
    assert {FAIR, Knower("fifo", "none"), KNOWING} <= set(found)
    assert [one.knowledge for one in found if one.allocator == "flex"] == [
        "stated",
        "history",
        "none",
        "wrong",
    ]
    assert [one.knowledge for one in found if one.allocator == "fair"] == ["none"]


@pytest.fixture
def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws of eight jobs."""
    monkeypatch.setattr(workloads, "JOBS", 8)


def test_an_experiment_is_the_same_for_the_same_numbers(few_jobs: None) -> None:
    """Another number gives other jobs."""
    one, again, other = (experiment("Pareto seconds", 0.9, 0, number) for number in (1, 1, 2))
    assert one == again
    assert one.response[FAIR] != other.response[FAIR]


def draw(workload: str, load: float, number: int, flex: float, known: float) -> UnknownDraw:
    """FAIR takes 2 s."""
    response = {FAIR: 2.0, KNOWING: known, Knower("flex", "none"): flex}
    return UnknownDraw(workload, load, number, response)


def test_rows_have_geometric_means_and_the_worst_draws() -> None:
    """For all draws, for those of a load, of a workload, and of both."""
    draws = [draw("a", 0.5, 0, 1.0, 1.0), draw("a", 0.9, 0, 4.0, 1.0)]
    draws += [draw("b", 0.9, 3, 2.0, 2.0)]
    rows = {(r.workload, r.load, r.allocator, r.knowledge): r for r in rows_of(draws)}
    assert len(rows) == 3 * (1 + 2 + 3 + 2)
    found = rows[ALL, ALL, "flex", "none"]
    assert (found.draws, found.by_fair, found.by_flex) == (
        3,
        pytest.approx((0.5 * 2 * 1) ** (1 / 3)),
        pytest.approx((1 * 4 * 1) ** (1 / 3)),
    )
    assert (found.by_fair_worst, found.by_fair_worst_draw) == (2.0, "a, load 0.9, number 0")
    assert rows["b", 0.9, "flex", "none"].by_flex_worst_draw == "b, load 0.9, number 3"
    assert rows[ALL, 0.9, "fair", "none"].by_flex == pytest.approx((2.0 * 1.0) ** 0.5)


def shown(figure: figures.UnknownFigure, draws: list[UnknownDraw]) -> str:
    """The table as text."""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(figure.table(figure.rows(draws), 1))
    return captured.get()


def test_table_and_picture_show_every_allocator_and_load() -> None:
    """A line for each load and each workload, and two panels of all loads."""
    draws = [
        draw(name, load, 0, 1.5, 1.0) for name in (FB_2009, "equal") for load in (0.5, 0.9)
    ]
    table = shown(UNKNOWN_SIZES, draws)
    assert sum("1.500" in line for line in table.splitlines()) == 1 + 2 + 2
    assert "left out" not in table
    picture = UNKNOWN_SIZES.draw(UNKNOWN_SIZES.rows(draws))
    assert {panel: len(points) for panel, points in picture.rows.items()} == {
        "fair": 2 * 3,
        "flex": 2 * 3,
    }


def test_without_the_trace_its_draws_are_left_out_and_the_message_says_so(
    no_trace: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, and below the table."""
    found = UNKNOWN_SIZES.experiments(3, 0)
    assert len(found) == len(UNTRACED) * len(UNKNOWN_SIZES.loads) * 3
    said = capsys.readouterr().err
    assert "FB-2009 is left out: there is no" in said
    assert "set SWIM_TRACES" in said
    assert "left out" in shown(UNKNOWN_SIZES, [draw("equal", 0.5, 0, 1.5, 1.0)])


def test_the_default_is_200_draws(trace: Path) -> None:
    """Ten of each of five workloads at each of four loads."""
    assert len(UNKNOWN_SIZES.experiments(UNKNOWN_SIZES.runs, 0)) == 200


def test_the_figure_is_reproduced(
    no_trace: None, few_jobs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight jobs at one load: FAIR by itself is 1, and so is FLEX that knows."""
    names = ("Pareto tasks", FB_2009, "equal")
    tiny = replace(UNKNOWN_SIZES, loads=(0.9,), workloads=names)
    monkeypatch.setattr("experiments.reproduce.FIGURES", {"unknown-sizes": tiny})
    made = reproduce("unknown-sizes", runs=1)
    first = {
        (row["allocator"], row["knowledge"]): row for row in made.rows if row["load"] == ALL
    }
    assert len(made.rows) == len(knowers()) * (1 + 2) * 2
    assert first["flex", "stated"]["by_flex"] == pytest.approx(1)
    assert first["fair", "none"]["by_fair"] == pytest.approx(1)
