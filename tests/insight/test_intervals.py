"""What held a job from its arrival to its end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slotwise
from slotwise import (
    Cluster,
    Fault,
    InputError,
    Job,
    Phase,
    Pool,
    Preemption,
    Simulation,
    Tasks,
    Workload,
)
from slotwise.cli.main import app
from slotwise.core.decisions import Launch
from slotwise.core.log import Log, LogFile, Turn
from slotwise.insight.held_back import MAX_INTERVALS, explain_job
from slotwise.insight.intervals import JobExplained
from slotwise.insight.timeline import timeline_of
from slotwise.insight.waits import worst_waits


def job(name: str, count: int, work: float, pool: str = "default", **options: object) -> Job:
    """A job of one phase."""
    arrival = float(options.pop("arrival", 0.0))  # type: ignore[arg-type]
    phase = Phase("map", Tasks(count, work), **options)  # type: ignore[arg-type]
    return Job(name, (phase,), arrival, pool)


def log_of(
    jobs: Sequence[Job],
    slots: int = 4,
    pools: Sequence[Pool] = (),
    name: str = "fair",
    **options: object,
) -> Log:
    """The log of a simulation."""
    workload = Workload(tuple(jobs), cluster=Cluster.of_slots(slots), pools=tuple(pools))
    return slotwise.simulate(workload, name, **options).log  # type: ignore[arg-type]


def rows(found: JobExplained) -> list[tuple[float, float, str, float, int, str]]:
    """The intervals without reasons and holders."""
    return [(r.start, r.end, r.state, r.held, r.wanted, r.limit) for r in found.intervals]


def test_a_job_at_its_max_share_is_told_what_more_slots_would_do() -> None:
    """It waited for nothing, and ran slowly."""
    found = slotwise.explain(log_of([job("a1", 8, 3.0, slots_max=2)], 8), "a1")
    assert rows(found) == [(0.0, 12.0, "running", 2.0, 8, "max share")]
    assert str(found).splitlines()[0] == (
        "a1 arrived at 0 s in pool default, started at 0 s, and completed at 12.0 s: it ran"
        " 12.0 s at its max share of 2 slots; with 8 slots it would need about 3.00 s"
    )


def test_a_job_that_waits_names_the_holders_and_what_would_have_helped() -> None:
    """Then it runs below its demand, because the other has its share."""
    jobs = [job("big", 24, 4.0, "a"), job("late", 8, 4.0, "b", arrival=1.0)]
    found = slotwise.explain(log_of(jobs, pools=[Pool("a"), Pool("b")]), "late")
    assert rows(found)[:2] == [
        (1.0, 4.0, "waiting", 0.0, 8, "others hold"),
        (4.0, 16.0, "running", 2.0, 8, "shares"),
    ]
    waiting, running, *_ = found.intervals
    assert [(h.job, h.pool, h.slot_seconds) for h in waiting.holders] == [("big", "a", 12.0)]
    assert [(h.job, h.slot_seconds) for h in running.holders] == [("big", 24.0)]
    assert found.reason == (
        "for 12.0 s, it held its share, and others had theirs, behind big (pool a)"
    )
    assert list(found) == list(found.waits)
    assert str(found).splitlines()[-1].startswith("what would have helped: a min share of 1")


def test_it_names_the_job_that_fills_the_pool() -> None:
    """The second job of a pool with jobs_max 1 is not admitted."""
    log = log_of(
        [job("w1", 8, 3.0, "web"), job("w2", 4, 3.0, "web")], 4, [Pool("web", jobs_max=1)]
    )
    found = slotwise.explain(log, "w2")
    assert rows(found)[0] == (0.0, 6.0, "waiting", 0.0, 4, "not admitted")
    assert "pool web ran w1, its maximum number of jobs (jobs_max)" in found.reason
    assert found.intervals[0].holders == ()


def test_it_names_the_last_straggling_task() -> None:
    """One task takes nine times as long as the others."""
    log = log_of([Job("s", (Phase("map", Tasks(4, (1.0, 1.0, 1.0, 9.0))),))])
    found = slotwise.explain(log, "s")
    assert rows(found) == [
        (0.0, 1.0, "running", 4.0, 4, "all"),
        (1.0, 9.0, "running", 1.0, 1, "last task"),
    ]
    assert found.reason == (
        "for 8.00 s, only the last task of map ran: task 3 on cluster; it took 9.00 s, the"
        " others 1.00 s on average"
    )


def test_a_job_alone_was_held_back_by_nothing() -> None:
    """All its tasks run at once."""
    found = slotwise.explain(log_of([job("a", 4, 2.0)]), "a")
    assert (
        found.reason == "nothing held it back; for 2.00 s, all its tasks that could start ran"
    )


def test_a_job_waits_for_another() -> None:
    """The reason names it."""
    after = Job("b", (Phase("map", Tasks(1, 1.0)),), after=frozenset({"a"}))
    found = slotwise.explain(log_of([job("a", 4, 2.0), after]), "b")
    assert rows(found)[0][:3] == (0.0, 2.0, "waiting")
    assert found.reason == "for 2.00 s, it waited for job a"


def test_it_counts_attempts_that_failed_and_were_repeated() -> None:
    """Two attempts of a task fail, in the sentence and in the row."""

    def fault(launch: Launch) -> Fault | None:
        return Fault("it broke", after=0.5) if launch.attempt <= 2 else None

    found = slotwise.explain(
        log_of([job("a", 1, 2.0)], simulation=Simulation(fault=fault)), "a"
    )
    assert sum(row.failed for row in found.intervals) == 2
    assert str(found).splitlines()[0].endswith("; 2 attempts that failed")
    failed = slotwise.explain(
        log_of([job("a", 1, 2.0)], simulation=Simulation(fault=fault), attempts_max=2), "a"
    )
    assert failed.status == "failed"
    assert "and failed at" in failed.summary()


def test_it_counts_attempts_that_were_stopped() -> None:
    """A pool takes slots back."""
    pools = [Pool("a"), Pool("b", slots_min=2, preemption=Preemption(least_after=1.0))]
    log = log_of([job("x", 4, 20.0, "a"), job("y", 2, 2.0, "b", arrival=1.0)], 4, pools)
    assert sum(row.stopped for row in slotwise.explain(log, "x").intervals) == 2


def test_a_job_that_still_waits_at_the_end_of_the_log_says_so() -> None:
    """The log of an interrupted run ends before its first task."""
    log = log_of([job("a", 8, 3.0), job("b", 2, 3.0, arrival=1.0)], 2, name="fifo")
    cut = Log(log.header, [turn for turn in log.turns if turn.now <= 6.0])
    found = slotwise.explain(cut, "b")
    assert (found.status, found.start, found.end) == ("waiting", None, 6.0)
    assert ", never started, and still waits when the log ends, at 6.00 s: " in str(found)
    assert slotwise.explain(cut, "a").status == "running"


def test_an_unknown_job_is_answered_with_a_close_name() -> None:
    """As everywhere."""
    with pytest.raises(InputError, match=r"job 'traning' is not in the log; .*'training'"):
        slotwise.explain(log_of([job("training", 1, 1.0)]), "traning")


def test_a_moment_is_no_interval() -> None:
    """A task of a thousandth of the time of the others makes no row of its own."""
    log = log_of([Job("a", (Phase("map", Tasks(3, (100.0, 100.0, 0.1))),))])
    (row,) = slotwise.explain(log, "a").intervals
    assert (row.start, row.end, row.state, row.wanted, row.limit) == (
        0,
        100,
        "running",
        3,
        "all",
    )
    assert row.held * row.seconds == pytest.approx(200.1)


def test_many_short_intervals_are_joined() -> None:
    """A stream of small jobs takes slots from a large one again and again."""
    small = [job(f"s{n}", 1, 1.0, "b", arrival=1.5 * n) for n in range(60)]
    found = slotwise.explain(log_of([job("big", 40, 5.0, "a"), *small], 2), "big")
    assert len(found.intervals) == MAX_INTERVALS
    assert sum(row.held * row.seconds for row in found.intervals) == pytest.approx(200.0)


def test_the_command_prints_what_python_returns(tmp_path: Path) -> None:
    """As text, and as JSON with the waits."""
    log, path = (
        log_of([job("big", 8, 4.0), job("late", 8, 4.0, arrival=1.0)], 2),
        tmp_path / "l",
    )
    with LogFile(path, log.header) as file:
        for turn in log.turns:
            file(turn.now, turn.events, turn.decisions)
    found = slotwise.explain(log, "late")
    run = CliRunner().invoke(app, ["explain", str(path), "--job", "late"])
    assert run.stdout == str(found) + "\n"
    done = CliRunner().invoke(app, ["explain", str(path), "--job", "late", "--json"])
    plain = json.loads(done.stdout)
    assert plain == json.loads(json.dumps(found.to_plain()))
    assert [wait["seconds"] for wait in plain["waits"]] == [w.seconds for w in found.waits]


def test_notebooks_show_tables() -> None:
    """Of one job, and of all waits; names stay text."""
    log = log_of([job("<b>", 8, 4.0), job("late", 8, 4.0, arrival=1.0)], 2, name="fifo")
    assert "&lt;b&gt; (pool default)" in slotwise.explain(log, "late")._repr_html_()
    assert "&lt;b&gt; (pool default)" in slotwise.explain(log)._repr_html_()
    assert "<pre>late at 2 s" in slotwise.explain(log, "late", 2.0)._repr_html_()


class Counted(list[Turn]):
    """Turns that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[Turn]:
        self.reads += 1
        return super().__iter__()


@pytest.mark.parametrize("scheduler", ["fifo", "fair", "flex"])
def test_the_log_is_read_once_with_the_waits_of_two_readings(scheduler: str) -> None:
    """The ends of waits are not known while they are followed; all is as if they were."""
    phases = Phase("map", Tasks(6, 1.5)), Phase("end", Tasks(2, 1.0), after=frozenset({"map"}))
    jobs = [
        Job(f"j{n}", phases, 0.7 * n, pool="ab"[n % 2], weight=1.0 + n % 3) for n in range(6)
    ]
    pools = (Pool("a", slots_max={"task": 2}), Pool("b", preemption=Preemption(1.0, 2.0)))
    workload = Workload(tuple(jobs), cluster=Cluster.of_slots(3), pools=pools)
    recorded = slotwise.simulate(workload, scheduler).log
    line = timeline_of(recorded)
    for one in jobs:
        log = Log(recorded.header, turns := Counted(recorded.turns))
        explained = explain_job(log, one.id)
        assert turns.reads == 1
        assert explained.waits == worst_waits(recorded, line, job=one.id)
    assert any(worst_waits(recorded, line))
