"""The instance that FlowFlex's stages are shown on: every stage does the same work."""

from __future__ import annotations

import pytest

from experiments.figure import Row
from experiments.flowflex.stages import (
    FLOWFLEX_STAGES,
    FLOWS,
    LISTED,
    PSEUDO,
    SHIFTED,
    SLOTS,
    StageFigure,
    Stages,
    completions,
    first_stage,
    later_stages,
    network,
    stacked,
)
from slotwise.core.cluster import Cluster
from slotwise.core.job import PhaseId
from slotwise.core.schedule import Piece, Schedule

NEAR = 1e-6
WORK = {"A": 27.0, "B": 18.0, "C": 20.0}


def area(row: Row) -> float:
    """Slots times seconds."""
    return (row["high"] - row["low"]) * (row["end"] - row["start"])


def test_pseudo_jobs_do_the_work_of_the_flow_within_its_critical_path() -> None:
    """The critical path a1, a3, a5, a6 takes 10 s; all phases have 27 s of work."""
    rows = first_stage()
    phases = [row for row in rows if row["part"] == "phase"]
    jobs = [row for row in rows if row["part"] != "phase"]
    assert sum(map(area, phases)) == sum(map(area, jobs)) == WORK["A"]
    assert max(row["end"] for row in jobs) == 10
    tops = {row["part"]: row["high"] for row in jobs}
    assert list(tops.values()) == [3, 4, 5, 3, 1, 2]


def test_the_network_counts_the_work_of_the_flows() -> None:
    """None of it before the minimum time; half of it by the deadline."""
    rows = network()
    for flow, work in WORK.items():
        mine = [row for row in rows if row["flow"] == flow]
        assert sum(row["counted"] for row in mine) == pytest.approx(work, rel=NEAR)
        due = mine[0]["deadline"]
        assert due >= mine[0]["soonest"]
        by_then = sum(row["counted"] for row in mine if row["end"] <= due)
        before = sum(row["counted"] for row in mine if row["end"] < due)
        assert before < work / 2 <= by_then


def test_each_schedule_does_all_work_within_the_slots() -> None:
    """Those of phases are schedules of the flows; shape shifting changes no completion."""
    rows = later_stages()
    for title in (PSEUDO, SHIFTED, LISTED):
        mine = [row for row in rows if row["schedule"] == title]
        assert max(row["high"] for row in mine) <= SLOTS
        for flow, work in WORK.items():
            done = sum(area(row) for row in mine if row["flow"] == flow)
            assert done == pytest.approx(work, rel=NEAR)
    pieces = Stages().pieces
    for title in (SHIFTED, LISTED):
        Schedule(tuple(pieces[title])).check(FLOWS, Cluster.of_slots(SLOTS))
    ends = {t: completions([r for r in rows if r["schedule"] == t]) for t in (PSEUDO, SHIFTED)}
    assert ends[PSEUDO] == pytest.approx(ends[SHIFTED])


def test_areas_are_stacked_and_joined() -> None:
    """B is below A; two adjacent pieces of A are one rectangle."""
    a, b = PhaseId("A", "a1"), PhaseId("B", "b1")
    rows = stacked([Piece(a, 0, 2, 1), Piece(a, 2, 3, 1), Piece(b, 0, 2, 2)], ["B", "A"])
    drawn = {(row["name"], row["start"], row["end"], row["low"], row["high"]) for row in rows}
    assert drawn == {("b1", 0, 2, 0, 2), ("a1", 0, 2, 2, 3), ("a1", 2, 3, 0, 1)}
    rows = stacked([Piece(a, 0, 2, 1), Piece(a, 2, 3, 1)], ["A"])
    assert [(row["start"], row["end"]) for row in rows] == [(0, 3)]


@pytest.mark.parametrize("figure", FLOWFLEX_STAGES, ids=lambda figure: figure.name)
def test_a_stage_is_drawn_from_its_rows_alone(figure: StageFigure) -> None:
    """Rows with the same keys, a table, and a picture without URLs."""
    pytest.importorskip("altair", reason="needs slotwise[plots]")
    rows = figure.rows([experiment() for experiment in figure.experiments(1, 0)])
    assert len({tuple(row) for row in rows}) == 1
    assert figure.table(rows, 1).row_count > 1
    spec = figure.draw(rows).spec()
    assert "http" not in str(spec)
    assert all(spec["datasets"].values())
