"""Tables for the terminal."""

from dataclasses import replace

import pytest
from rich.console import Console

from slotwise.insight.report import comparison_table, jobs_table
from slotwise.insight.report.reported import has_differing_work
from slotwise.insight.report.tables import metrics_in_full
from slotwise.insight.report.text import MISSING, number, percent, seconds


def printed(table, width=100):
    """The text on a terminal of this width."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_comparison_fits_a_terminal_of_80_columns(three_runs):
    """Names, metrics, bound and gap are complete."""
    text = printed(comparison_table(three_runs), width=80)
    assert "…" not in text
    for word in ("scheduler", "fifo", "fair", "flex", "makespan", "bound", "gap", "simulated"):
        assert word in text
    assert seconds(three_runs[0].outcome.metrics["response_mean"]) in text


def with_outcome(run, jobs=None, **metrics):
    """The same run with other metrics."""
    outcome = run.outcome
    return replace(
        run,
        outcome=replace(
            outcome,
            metrics=outcome.metrics | metrics,
            jobs=outcome.jobs if jobs is None else jobs,
        ),
    )


def best_by(title, runs):
    """Which of the runs are marked the best by the metric of that title."""
    [metric] = [one for one in metrics_in_full(runs) if one.title == title]
    return metric.best(runs)


def test_values_that_are_shown_alike_are_equally_good(three_runs):
    """Two values with the same text are both the best, or neither."""
    runs = [with_outcome(three_runs[0], utilisation=of) for of in (0.991, 0.989, 0.5)]
    assert best_by("utilisation", runs) == [True, True, False]
    assert best_by("utilisation", runs[:2]) == [False, False]


def test_each_backend_has_its_best(three_runs):
    """A simulated run is not better than a live one, whose clock includes more."""
    live = [replace(run, backend="live") for run in three_runs[:2]]
    makespans = (9.0, 8.0, 5.0, 6.0)
    runs = [
        with_outcome(run, makespan=makespan)
        for run, makespan in zip([*live, *three_runs[:2]], makespans, strict=True)
    ]
    assert best_by("makespan", runs) == [False, True, True, False]
    assert best_by("makespan", runs[1:3]) == [False, False]


def test_a_run_whose_jobs_failed_is_never_the_best(three_runs):
    """It did less work than the others, so its metrics are better."""
    times = {"arrival": 0.0, "start": 0.0, "completion": None, "response": None}
    failed = with_outcome(three_runs[0], jobs={"q1": times}, makespan=0.1, value=None)
    runs = [failed, with_outcome(three_runs[1], makespan=5.0), three_runs[2]]
    assert best_by("makespan", runs) == [False, True, False]
    assert best_by("value", [failed, *runs[1:]])[0] is False
    assert MISSING in printed(comparison_table([failed]))


def test_runs_of_the_same_name_are_distinguished(three_runs):
    """By a number; if the backends differ, by the backend."""
    names = list(comparison_table([three_runs[0]] * 2).columns[0].cells)
    assert [name.plain for name in names] == ["fifo", "fifo #2"]


def test_live_runs_of_differing_work_are_found(three_runs):
    """More than a tenth apart, live, and of the same jobs, all of which were done."""
    fast = with_outcome(three_runs[0], work_seconds=100.0)
    slow = with_outcome(three_runs[1], work_seconds=112.0)
    fast_live, slow_live = replace(fast, backend="live"), replace(slow, backend="live")
    assert has_differing_work([fast_live, slow_live])
    assert not has_differing_work([fast, slow])
    assert not has_differing_work([fast_live, with_outcome(slow_live, work_seconds=109.0)])
    assert not has_differing_work([fast_live, with_outcome(slow_live, jobs={})])


def test_an_interrupted_run_is_marked(three_runs):
    """Below its name, so that 80 columns suffice, and next to each of its jobs."""
    run = three_runs[0]
    cut = replace(run, outcome=replace(run.outcome, is_over=False))
    text = printed(comparison_table([cut, *three_runs[1:]]), width=80)
    assert "…" not in text
    assert "(interrupted)" in text
    assert text.count("interrupted") == 1
    assert "fifo (interrupted)" in printed(jobs_table([cut]))


def test_backends_have_a_column_if_they_differ(three_runs):
    """Each row says live or simulated."""
    runs = [three_runs[0], replace(three_runs[0], backend="live")]
    titles = [str(column.header) for column in comparison_table(runs).columns]
    assert titles[:2] == ["scheduler", "backend"]


def test_jobs_table_shows_what_users_wrote(hostile_runs, hostile_names):
    """Names are text, never markup."""
    assert hostile_names[0] in printed(jobs_table(hostile_runs), width=300)


def test_jobs_table_has_no_column_of_reasons(three_runs, hostile_runs, hostile_reason):
    """The command prints them as tasks fail, and in its last lines."""
    assert hostile_reason not in printed(jobs_table(hostile_runs), width=300)
    titles = [str(column.header) for column in jobs_table(three_runs).columns]
    assert titles == ["scheduler", "job", "arrival", "start", "completion", "response"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(0), "0"),
        (number(0.0123), "0.012"),
        (number(0.5), "0.50"),
        (number(12.34), "12.3"),
        (number(6.2e-05), "0.000062"),
        (number(-1e-12), "0"),
        (number(59301.2), "59,301"),
        (number(12345.6), "12,346"),
        (number(None), "–"),
        (seconds(8.949), "8.95 s"),
        (seconds(1800), "30.0 min"),
        (seconds(180_000), "50.0 h"),
        (seconds(0.5), "0.50 s"),
        (seconds(0.012), "12.0 ms"),
        (seconds(6.2e-05), "62.0 µs"),
        (seconds(0.0), "0 s"),
        (seconds(2e-16), "0 s"),
        (percent(0.123), "12 %"),
        (percent(0.0123), "1.2 %"),
        (percent(0.00012), "0.012 %"),
        (percent(1.91e-11), "0 %"),
        (percent(0.0), "0 %"),
    ],
)
def test_numbers_are_rounded_sensibly(shown, expected):
    """Three significant digits with their unit."""
    assert shown == expected
