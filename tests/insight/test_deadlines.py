"""Deadlines, SLAs and negative costs in tables and pictures."""

import pytest
from rich.console import Console

import slotwise
from slotwise import Cluster, Job, Objective, Phase, Tasks, Workload
from slotwise.insight.report.grid import is_numeric
from slotwise.insight.report.page import write_pictures, write_report
from slotwise.insight.report.pictures import comparison, jobs
from slotwise.insight.report.reported import scene_of
from slotwise.insight.report.tables import (
    comparison_table,
    jobs_table,
    metrics_in_full,
    metrics_in_short,
)

STEPS = ((5.0, 1.0), (9.0, 2.5))


def job(name, **rest):
    """A job of two tasks of 4 s."""
    return Job(name, (Phase("map", Tasks(2, 4.0)),), **rest)


def reported(*given, penalty="response", aggregate="sum"):
    """These jobs on two slots, first come, first served: done at 4, 8, 12 and so on."""
    workload = Workload(given, Cluster.of_slots(2), objective=Objective(penalty, aggregate))
    return slotwise.simulate(workload, "fifo").reported


@pytest.fixture(scope="module")
def plain():
    """Jobs without deadlines."""
    return reported(job("a"), job("b"))


@pytest.fixture(scope="module")
def due():
    """Done at 4, 8 and 12: in time, 1 s late, and with a deadline after the end."""
    return reported(job("a", deadline=4.0), job("b", deadline=7.0), job("c", deadline=99.0))


@pytest.fixture(scope="module")
def with_sla():
    """A missed deadline, and an SLA of which one step is passed."""
    return reported(job("a"), job("b", deadline=1.0), job("c", steps=STEPS, weight=3.0))


def titles(table):
    """The titles of its columns, in one line each."""
    return [str(column.header).replace("\n", " ") for column in table.columns]


def cells(table, title):
    """The cells of one of its columns."""
    column = table.columns[titles(table).index(title)]
    return [cell.plain for cell in column.cells]


def test_the_terminal_shows_metrics_of_deadlines(plain, due, with_sla):
    """In place of the stretches at the end, and only those that some job has."""
    shown = [titles(comparison_table([run]))[2:] for run in (plain, due, with_sla)]
    always = ["makespan", "value", "bound", "gap"]
    assert shown == [
        [*always, "mean stretch", "max stretch"],
        ["tardy jobs", "max tardiness", *always],
        ["tardy jobs", "SLA cost", *always],
    ]
    assert cells(comparison_table([with_sla]), "SLA cost") == ["2.50"]
    assert cells(comparison_table([plain, due]), "tardy jobs") == ["–", "1"]


def test_tables_with_deadlines_fit_a_terminal_of_80_columns(due, with_sla):
    """Nothing is cut."""
    console = Console(width=80, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(comparison_table([due, with_sla]), jobs_table(due))
    assert "…" not in captured.get()


def test_jobs_with_a_deadline_have_a_lateness(plain, due, with_sla):
    """Negative for an early job; a job without a deadline has none."""
    assert "lateness" not in titles(jobs_table(plain))
    assert cells(jobs_table(due), "lateness") == ["0 s", "1.00 s", "-87.0 s"]
    assert cells(jobs_table(with_sla), "lateness") == ["–", "7.00 s", "–"]
    assert is_numeric(["-87.0 s", "–", "3"])


def test_the_page_has_all_metrics_of_deadlines(plain, due, with_sla, tmp_path):
    """If some job has one; SLAs have a separate metric."""
    owed = {"tardy jobs", "weight of tardy jobs", "mean tardiness", "max tardiness"}
    named = [
        {metric.title for metric in metrics_in_full([run])} for run in (plain, due, with_sla)
    ]
    assert not named[0] & {*owed, "max lateness", "SLA cost"}
    assert named[1] - named[0] == {*owed, "max lateness"}
    assert named[2] - named[1] == {"SLA cost"}
    assert all(metric.title in named[2] for metric in metrics_in_short([with_sla]))
    write_report([with_sla], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<th>weight of tardy jobs</th>" in text
    assert "Lateness is completion minus deadline" in text


def test_a_deadline_is_an_arrow_in_the_row_of_its_job(due, plain):
    """It says whether it was met; deadlines after the end of the axis are omitted."""
    picture = jobs.draw(scene_of([due, plain]))
    assert [(row["job"], row["deadline"], row["met"]) for row in picture.rows["due0"]] == [
        ("a", 4.0, True),
        ("b", 7.0, False),
    ]
    assert picture.rows["due1"] == []
    assert "The triangle is its deadline" in picture.sentence
    assert "deadline" not in jobs.draw(scene_of([plain])).sentence


def test_a_failed_job_has_not_met_its_deadline():
    """Even if it failed before it."""
    simulation = slotwise.Simulation(fault=lambda launch: slotwise.Fault("no luck", after=1.0))
    given = [job("a", deadline=4.0)]
    failed = slotwise.simulate(given, "fifo", slots=2, simulation=simulation).reported
    [row] = jobs.draw(scene_of([failed])).rows["due0"]
    assert (row["met"], row["lateness"]) == (False, "–")


@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_a_value_below_0_is_shown(aggregate, tmp_path):
    """Bars of negative lateness go to the left of 0, and their number is next to 0."""
    early = (job("a", deadline=30.0), job("b", deadline=50.0))
    run = reported(*early, penalty="lateness", aggregate=aggregate)
    value = -68.0 if aggregate == "sum" else -26.0
    assert run.outcome.metrics["value"] == value
    picture = comparison.draw(scene_of([run]))
    [row] = picture.rows["value"]
    assert (row["value"], row["text_at"]) == (value, 0.0)
    assert row["text"].startswith("-")
    assert comparison_table([run]).row_count == 1
    assert len(write_pictures([run], tmp_path)) == 6


def test_a_value_of_0_is_shown(tmp_path):
    """Bars have no length, and there is a gap only if the bound is 0 as well."""
    run = reported(job("a", deadline=4.0), penalty="lateness", aggregate="max")
    assert run.outcome.metrics["value"] == 0.0
    assert cells(comparison_table([run]), "value") == ["0"]
    assert cells(comparison_table([run]), "gap") == ["0 %"]
    write_report([run], tmp_path / "page.html")


def test_several_penalties_are_named():
    """The value is not that of a single penalty for all jobs."""
    mixed = reported(
        job("a", penalty="lateness", deadline=9.0), job("b"), job("c", penalty="slowdown")
    )
    assert mixed.objective == "sum of response, lateness and slowdown, by job"
    assert mixed.penalties == ["response", "lateness", "slowdown"]
    assert comparison.bound_of(mixed, "response_mean") is None
    assert comparison.bound_of(mixed, "value") == mixed.outcome.bound
    own = reported(job("a", penalty="stretch"), penalty="makespan", aggregate="max")
    assert own.objective == "max stretch"
    assert comparison.bound_of(own, "makespan") is None
    assert "by job" in str(comparison_table([mixed]).caption)
