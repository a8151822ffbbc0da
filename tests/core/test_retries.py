"""When a failed task runs again: its delay, the state meanwhile, and the replay of a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slotwise
from slotwise import Job, Phase, Simulation, Tasks
from slotwise.backends.simulated.backend import Fault
from slotwise.cli.main import app
from slotwise.core.codec import decode_job, encode_job
from slotwise.core.decisions import GiveUp, Launch, Retry
from slotwise.core.errors import InputError
from slotwise.core.events import JobArrived
from slotwise.core.log import read_log
from slotwise.core.retries import RETRY_DELAY_MAX, delay_of
from slotwise.insight.replay import replay_log
from slotwise.workload.file import parse_workload
from slotwise.workload.writer import write_workload


def job(name: str, tasks: int = 1, gang: bool = False, **stated: object) -> Job:
    """A job of tasks of 10 s."""
    phase = Phase("work", Tasks(tasks, 10.0), gang=gang)
    return Job(name, (phase,), **stated)  # type: ignore[arg-type]


def failing(*tasks: int, times: int = 1, lost: bool = False) -> Simulation:
    """The first attempts of these tasks of job a fail after 5 s."""

    def fault(launch: Launch) -> Fault | None:
        is_bad = launch.phase.job == "a" and launch.task in tasks
        return Fault("boom", 0.5, lost) if is_bad and launch.attempt <= times else None

    return Simulation(seed=7, fault=fault)


def launches(result: slotwise.Result, name: str) -> list[tuple[float, int, int]]:
    """When each attempt of a job began: the instant, the task and the attempt."""
    return [
        (turn.now, one.task, one.attempt)
        for turn in result.log.turns
        for one in turn.decisions
        if isinstance(one, Launch) and one.phase.job == name
    ]


def test_delay_doubles_up_to_an_hour() -> None:
    """Each failure doubles the delay, and at most half of it is added as jitter."""
    for failures, least in ((1, 10.0), (2, 20.0), (4, 80.0), (60, RETRY_DELAY_MAX)):
        delay = delay_of(10.0, failures, 0, "a", "work", 3, failures)
        assert least <= delay < 1.5 * least


def test_jitter_is_drawn_from_seed_job_task_and_attempt() -> None:
    """The same names give the same delay; each other one gives another."""
    same = {delay_of(10.0, 1, 0, "a", "work", 0, 1) for _ in range(3)}
    others = [(1, "a", "work", 0, 1), (0, "b", "work", 0, 1), (0, "a", "work", 1, 1)]
    assert len(same | {delay_of(10.0, 1, *one) for one in others}) == 4


@pytest.mark.parametrize("scheduler", ["fifo", "fair", "flex", "las", "flowflex", "dmrs"])
def test_failed_task_waits_and_others_use_its_slot(scheduler: str, tmp_path: Path) -> None:
    """Meanwhile the slot is another job's, and the log is repeated decision for decision."""
    log = tmp_path / "run.jsonl"
    jobs = [job("a", retry_delay=8.0), job("b", arrival=1.0)]
    result = slotwise.simulate(jobs, scheduler, slots=1, simulation=failing(0), log=log)
    again = 5.0 + delay_of(8.0, 1, 7, "a", "work", 0, 1)
    assert launches(result, "a") == [(0.0, 0, 1), (max(again, 15.0), 0, 2)]
    assert launches(result, "b") == [(5.0, 0, 1)]
    assert replay_log(read_log(log)).difference is None


def test_end_of_a_delay_wakes_an_idle_run() -> None:
    """Without any event, the attempt begins when the delay is over."""
    result = slotwise.simulate(job("a", retry_delay=8.0), slots=1, simulation=failing(0))
    again = 5.0 + delay_of(8.0, 1, 7, "a", "work", 0, 1)
    assert launches(result, "a") == [(0.0, 0, 1), (again, 0, 2)]


def test_lost_attempt_is_repeated_at_once_and_not_counted() -> None:
    """An attempt whose slot dies takes no attempt of the task and no delay."""
    one = job("a", retry_delay=8.0, attempts=1)
    result = slotwise.simulate(one, slots=1, simulation=failing(0, times=3, lost=True))
    assert [at for at, _, _ in launches(result, "a")] == [0.0, 5.0, 10.0, 15.0]
    assert not result.failed


def test_own_attempts_win_over_those_of_the_run() -> None:
    """A job that states its attempts fails after these, others after those of the run."""
    jobs = [job("a", attempts=3), job("b")]

    def fault(launch: Launch) -> Fault:
        return Fault("boom", 0.5)

    result = slotwise.simulate(
        jobs, slots=2, simulation=Simulation(fault=fault), attempts_max=2
    )
    assert len(launches(result, "a")) == 3
    assert len(launches(result, "b")) == 2


def test_gang_runs_again_as_a_whole() -> None:
    """No task of a gang begins before the delay of the one that has failed is over."""
    one = job("a", tasks=3, gang=True, retry_delay=8.0)
    result = slotwise.simulate(one, slots=3, simulation=failing(1))
    again = 5.0 + delay_of(8.0, 1, 7, "a", "work", 1, 1)
    second = [(at, attempt) for at, _, attempt in launches(result, "a")][3:]
    assert second == [(again, 2)] * 3


def test_later_phases_of_the_job_do_not_keep_a_host_idle() -> None:
    """DMRS queues no task that waits for one in its delay before tasks of other jobs."""
    phases = (Phase("work", Tasks(1, 10.0)), Phase("more", Tasks(1, 1.0), after={"work"}))
    first = Job("a", phases, retry_delay=100.0, weight=100.0)
    result = slotwise.simulate([first, job("b")], "dmrs", slots=1, simulation=failing(0))
    assert result.jobs["b"]["completion"] == 15.0


def test_cancelled_job_does_not_run_again() -> None:
    """A job that fails with a task in its delay gets no retry."""
    one = job("a", tasks=2, retry_delay=100.0, attempts=2)

    def fault(launch: Launch) -> Fault:
        return Fault("boom", 0.5 if launch.task else 0.1)

    result = slotwise.simulate(one, slots=2, simulation=Simulation(fault=fault))
    decided = [one for turn in result.log.turns for one in turn.decisions]
    ends = [type(one) for one in decided if isinstance(one, GiveUp | Retry)]
    assert ends == [Retry, GiveUp]


def test_explain_names_the_delay() -> None:
    """The wait of a job for its next attempt has the delay as its reason."""
    result = slotwise.simulate(job("a", retry_delay=8.0), slots=1, simulation=failing(0))
    (wait,) = slotwise.explain(result.log)
    seconds = delay_of(8.0, 1, 7, "a", "work", 0, 1)
    assert wait.reason == f"waited {seconds:.3g} s for its second attempt: retry_delay"
    assert "(retry_delay)" in str(slotwise.explain(result.log, "a", 6.0))


def test_bound_stays_below_the_value() -> None:
    """The lower bound ignores delays, so it is at most what the run reached."""
    result = slotwise.simulate(job("a", retry_delay=8.0), slots=1, simulation=failing(0))
    assert result.bound is not None
    assert result.bound <= result.metrics["value"]


def test_log_has_only_what_a_job_states() -> None:
    """A job without limits is written as before they existed, and limits come back."""
    plain, limited = (
        job("a"),
        job("a", attempts=2, retry_delay=0.0, time_limit=5.0, time_requested=4),
    )
    kept = replace(limited.phases[0], resources={"memory": 7})
    limited = replace(limited, phases=(kept,), memory_limit=True)
    limits = {"attempts", "retry_delay", "time_limit", "time_requested", "memory_limit"}
    assert not limits & encode_job(plain).keys()
    assert decode_job(encode_job(plain)) == plain
    assert decode_job(encode_job(limited)) == limited


def test_file_states_limits_of_each_kind_of_job() -> None:
    """They arrive in the job, and exit codes in the settings of the command."""
    limits = "attempts: 2, retry_delay: 3, time_limit: 4.5, time_requested: 2h"
    text = f"""
slotwise: 1
jobs:
  - {{id: a, {limits}, phases: [{{name: work, work: 1}}]}}
  - {{id: b, {limits}, command: "true", no_retry: [2, 64]}}
  - {{id: c, {limits}, program: wordcount, inputs: i, output: o}}
"""
    jobs = parse_workload(text).jobs
    assert [(one.attempts, one.retry_delay, one.time_limit) for one in jobs] == [
        (2, 3, 4.5)
    ] * 3
    assert [one.time_requested for one in jobs] == [7200.0] * 3
    assert jobs[1].settings == {"no_retry": [2, 64]}  # type: ignore[union-attr]


def test_written_job_is_read_again(tmp_path: Path) -> None:
    """A written workload file has the limits that a job states."""
    one = job("a", attempts=2, retry_delay=3.0, time_limit=4.5, time_requested=4.0)
    one = replace(one, program="sort")
    write_workload([one], tmp_path / "jobs.yaml")
    assert slotwise.read_workload(tmp_path / "jobs.yaml").jobs == (one,)


def test_options_of_a_command_are_defaults_of_jobs(tmp_path: Path) -> None:
    """--retry-delay and --time-limit hold for jobs that state none of their own."""
    file, log = tmp_path / "jobs.yaml", tmp_path / "run.jsonl"
    write_workload([job("a"), job("b", time_limit=20.0)], file)
    options = ["--retry-delay", "3", "--time-limit", "15", "--log", str(log)]
    done = CliRunner().invoke(app, ["simulate", str(file), *options])
    assert done.exit_code == 0, done.output
    arrived = [
        one.job for one in next(iter(read_log(log).turns)).events if isinstance(one, JobArrived)
    ]
    assert [(one.retry_delay, one.time_limit) for one in arrived] == [(3.0, 15.0), (3.0, 20.0)]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"attempts": 0}, "attempts is 0; give a whole number >= 1"),
        ({"attempts": 1.5}, "attempts is 1.5; give a whole number >= 1"),
        ({"retry_delay": -1.0}, "retry_delay is -1.0; give seconds from 0 to 3600"),
        ({"retry_delay": float("nan")}, "retry_delay is nan; give seconds from 0 to 3600"),
        ({"time_limit": 0.0}, "time_limit is 0.0; give seconds > 0, at most 1e+10"),
        ({"time_limit": float("nan")}, "time_limit is nan; give seconds > 0, at most 1e+10"),
    ],
)
def test_wrong_value_is_refused(stated: dict[str, object], message: str) -> None:
    """One message has the job, the value and the remedy."""
    with pytest.raises(InputError) as caught:
        job("a", **stated)  # type: ignore[arg-type]
    assert str(caught.value) == f"job 'a': {message}"
