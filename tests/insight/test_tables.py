"""Tables for the terminal."""

from dataclasses import replace

import pytest
from rich.console import Console

from slotwise import Job, Phase, Tasks
from slotwise.insight.report.reported import has_differing_work
from slotwise.insight.report.tables import (
    comparison_table,
    critical_path,
    fit_columns,
    jobs_table,
    metrics_in_full,
)
from slotwise.insight.report.text import MISSING, in_states, number, percent, roughly, seconds


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
    """Below its name, so that 80 columns suffice."""
    run = three_runs[0]
    cut = replace(run, outcome=replace(run.outcome, is_over=False))
    text = printed(comparison_table([cut, *three_runs[1:]]), width=80)
    assert "…" not in text
    assert "(interrupted)" in text
    assert text.count("interrupted") == 1


def test_backends_have_a_column_if_they_differ(three_runs):
    """Each row says live or simulated."""
    runs = [three_runs[0], replace(three_runs[0], backend="live")]
    titles = [str(column.header) for column in comparison_table(runs).columns]
    assert titles[:2] == ["scheduler", "backend"]


def test_jobs_table_shows_what_users_wrote(hostile_runs, hostile_names):
    """Names are text, never markup."""
    text = "".join(printed(jobs_table(run), width=300) for run in hostile_runs)
    assert hostile_names[0] in text


def test_jobs_table_has_no_column_of_reasons(three_runs, hostile_runs, hostile_reason):
    """The command prints them as tasks fail, and before the table."""
    assert hostile_reason not in printed(jobs_table(hostile_runs[0]), width=300)
    titles = [str(column.header) for column in jobs_table(three_runs[0]).columns]
    assert titles == ["job", "status", "response", "arrival", "start", "completion"]


def with_states(run, **reasons):
    """The jobs a, b, c and d, of which some failed for these reasons, and d has not ended."""
    times = {"arrival": 0.0, "start": 0.0, "completion": 1.0, "response": 1.0}
    jobs = {name: times for name in "abc" if name not in reasons}
    jobs |= {name: times | {"completion": None, "response": None} for name in (*reasons, "d")}
    stated = {
        name: Job(name, (Phase("p", Tasks(1)),), after=("b",) if name == "c" else ())
        for name in jobs
    }
    outcome = replace(run.outcome, jobs=jobs, failed=reasons, stated=stated)
    return replace(run, outcome=outcome)


def test_jobs_have_a_status(three_runs):
    """A job whose predecessor failed was cancelled, and so was one that a user cancelled."""
    run = with_states(
        three_runs[0], b="broken", c="job 'b', for which it waits, has failed", e="cancelled"
    )
    states = {"a": "done", "b": "failed", "c": "cancelled", "d": "unfinished", "e": "cancelled"}
    assert run.outcome.states == states
    cells = [cell.plain for cell in jobs_table(run).columns[1].cells]
    assert cells == list(states.values())


def test_a_short_jobs_table_has_the_failed_jobs_first(three_runs):
    """Its caption has the numbers of the others, and names an option that shows all."""
    table = jobs_table(with_states(three_runs[0], c="broken"), most=2)
    assert [cell.plain for cell in table.columns[0].cells] == ["c", "a"]
    assert str(table.caption) == "and 2 more: 1 done, 1 unfinished; --json names all jobs"


def live_chain(run, work):
    """A live run of b, which waits for c, and of a and d, with this work in all (seconds)."""
    spans = {"b": (3.0, 7.0), "c": (0.0, 2.0), "a": (0.0, 5.0), "d": (1.0, None)}
    jobs = {
        name: {"arrival": 0.0, "start": start, "completion": end, "response": end}
        for name, (start, end) in spans.items()
    }
    stated = {
        name: Job(name, (Phase("p", Tasks(1)),), after=("c",) if name == "b" else ())
        for name in jobs
    }
    outcome = replace(run.outcome, jobs=jobs, stated=stated)
    shown = replace(run, backend="live", outcome=outcome)
    return with_outcome(shown, work_seconds=work, jobs_done=3)


def test_a_live_run_has_the_run_time_of_each_job(three_runs):
    """From its first start to its end, beside its response, in the order that is asked for."""
    table = jobs_table(live_chain(three_runs[0], 9.0), order=["b", "c", "a", "d"])
    names, response, ran = (
        [cell.plain for cell in table.columns[number].cells] for number in (0, 2, 3)
    )
    assert names == ["b", "c", "a", "d"]
    assert response == ["7.00 s", "2.00 s", "5.00 s", MISSING]
    assert ran == ["4.00 s", "2.00 s", "5.00 s", MISSING]
    assert str(table.columns[3].header) == "run\ntime"


def test_the_critical_path_of_a_run(three_runs):
    """It is the longest chain, also if others ended later; without a chain there is none."""
    run = live_chain(three_runs[0], 9.0)
    assert critical_path(run) == "critical path: c 2.00 s, b 4.00 s; 6.00 s in all"
    assert critical_path(three_runs[0]) == ""


def test_a_job_that_waits_task_by_task_counts_from_the_end_of_the_other(three_runs):
    """So that the critical path is no longer than the run."""
    run = live_chain(three_runs[0], 9.0)
    b = replace(run.outcome.stated["b"], after=frozenset(), after_each=frozenset({"a"}))
    chained = replace(run, outcome=replace(run.outcome, stated=run.outcome.stated | {"b": b}))
    assert critical_path(chained) == "critical path: a 5.00 s, b 2.00 s; 7.00 s in all"


def test_gap_and_stretch_of_live_jobs_without_much_work_are_left_out(three_runs):
    """They measure the start of processes. Value and bound stay."""
    for work, has_them in ((0.29, False), (0.31, True)):
        run = live_chain(three_runs[0], work)
        titles = {str(one.header).replace("\n", " ") for one in comparison_table([run]).columns}
        assert (titles >= {"gap", "mean stretch", "max stretch"}) == has_them
        assert ("gap" in titles) == has_them
        assert titles >= {"mean response", "makespan", "value", "bound"}


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_terminal_drops_the_last_columns_that_do_not_fit(three_runs, width):
    """What is left is whole, also below a long name."""
    name = "n" * 70
    times = {"arrival": 0.0, "start": 0.0, "completion": 1.0, "response": 1.0}
    table = jobs_table(with_outcome(three_runs[0], jobs={name: times}))
    fit_columns(table, width)
    lines = printed(table, width).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    assert "".join(line.split()[0] for line in lines if line.startswith(" n")) == name
    assert "done" in "".join(lines)
    assert "…" not in "".join(lines)
    assert ("completion" in "".join(lines)) == (width == 200)


def test_rough_numbers():
    """Estimates have no digits that are not known."""
    shown = [roughly(value) for value in (0.2, 44.6, 130.0, 5000.0, 7_300.0, 400_000.0)]
    assert shown == ["~1 s", "~45 s", "~2 min", "~83 min", "~2 h", "~111 h"]
    assert in_states({"done": 4812, "failed": 0, "waiting": 1}) == "4,812 done, 1 waiting"


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
