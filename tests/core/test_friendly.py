"""What is meant is taken: lists where tuples stand, one name for a set of one."""

import re
from collections.abc import Callable
from typing import get_type_hints

import pytest

import slotwise
from slotwise import Calls, InputError, Job, Objective, Phase, Pool, Tasks, mapreduce
from slotwise.running import Options, RunOptions

JOB = Job("j", (Phase("a", Tasks(1, 1.0)),))


def test_lists_and_single_names_are_accepted() -> None:
    """Callers need not know which container a frozen value keeps."""
    assert Tasks(2, [1, 2]) == Tasks(2, (1, 2))
    one, other = Phase("b", Tasks(1), after="a"), Phase("b", Tasks(1), after=["a"])
    assert one == other == Phase("b", Tasks(1), after=frozenset({"a"}))
    assert Job("j", [Phase("a", Tasks(1))]).phases == (Phase("a", Tasks(1)),)
    stepped = Job("j", (Phase("a", Tasks(1)),), steps=[[60, 1], [120, 5]])
    assert stepped.steps == ((60, 1), (120, 5))
    assert hash(stepped) is not None
    assert Pool("p", slots_min=1, slots_max=2) == Pool("p", 1.0, {"task": 1}, {"task": 2})


def test_one_function_serves_every_phase() -> None:
    """A job of one phase needs no mapping."""
    job = Job("j", (Phase("a", Tasks(1)),))
    assert Calls(job, len).runner("a", "xyz") == 3


def test_a_single_job_and_the_name_of_a_penalty_are_accepted() -> None:
    """One job is a workload; the name of a penalty is an objective."""
    job = Job("j", (Phase("a", Tasks(2, 3.0)),))
    assert slotwise.plan(job, slots=2, objective="makespan").objective == Objective(
        "makespan", "max"
    )
    [result] = slotwise.compare(job, "flex", slots=2)
    assert result.scheduler == "flex"
    named = slotwise.Workload([job], objective="makespan")
    assert named.objective == Objective("makespan", "max")
    with pytest.raises(
        InputError, match="unknown penalty 'tardines'; did you mean 'tardiness'"
    ):
        slotwise.Workload([job], objective="tardines")


def test_durations_and_parts_are_accepted() -> None:
    """Descriptions of jobs take what a file takes."""
    job = slotwise.command(
        "true", id="a", work="2m", deadline="1h30m", slots_max="50%", tasks=9
    )
    assert (job.deadline, job.settings["work"]) == (5400.0, 120.0)
    limited = RunOptions(retry_delay="5s", time_limit="1h")
    assert (limited.retry_delay, limited.time_limit) == (5.0, 3600.0)
    result = slotwise.simulate(job, slots=6)
    assert result.jobs["a"]["completion"] == 3 * 120 / 9
    with pytest.raises(InputError, match="job 'a': deadline is 'soon'; expected seconds, or a"):
        slotwise.mapreduce("wordcount", "in", "out", id="a", deadline="soon")
    with pytest.raises(InputError, match="job 'a': slots_max is '0%'; expected a whole number"):
        slotwise.simulate(slotwise.command("true", id="a", work=1, slots_max="0%"))


@pytest.mark.parametrize(
    "act", [slotwise.plan, slotwise.simulate, slotwise.run, slotwise.compare]
)
@pytest.mark.parametrize(
    ("objective", "says"),
    [
        ("tardiness", "job 'j': penalty tardiness needs a deadline"),
        (Objective("sla"), "job 'j': penalty sla needs steps"),
    ],
)
def test_missing_values_of_a_job_are_reported_before_the_run(
    act: Callable[..., object], objective: Objective | str, says: str
) -> None:
    """Whatever is asked for in Python is checked as a workload file is."""
    job = Job("j", (Phase("a", Tasks(2, 1000.0)),))
    with pytest.raises(InputError, match=says):
        act([job], objective=objective)


def test_a_program_may_have_a_deadline() -> None:
    """A MapReduce job has a deadline, steps and a penalty as any job has."""
    job = mapreduce("wordcount", "in", "out", deadline=60, steps=[(60, 1)], penalty="sla")
    assert (job.deadline, job.steps, job.penalty) == (60, ((60, 1),), "sla")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": 3}, r"give simulation=Simulation\(seed="),
        ({"slot": 2}, "unknown option 'slot'; did you mean 'slots'"),
        (
            {"colour": "red"},
            "'colour'; known: schedulers?, .*slots, .*history, .*assigner, .*keep",
        ),
    ],
)
def test_unknown_options_are_refused(options: dict[str, object], says: str) -> None:
    """A misspelt option is never ignored silently."""
    job = Job("j", (Phase("a", Tasks(2, 3.0)),))
    for act in (slotwise.simulate, slotwise.run, slotwise.compare):
        with pytest.raises(InputError, match=says):
            act([job], **options)  # type: ignore[operator]


def test_an_unknown_setting_of_mapreduce_is_refused() -> None:
    """Not only when the job is run."""
    with pytest.raises(InputError, match="no setting 'reducer'; did you mean 'reducers'"):
        mapreduce("wordcount", "in", "out", reducer=3)


def test_a_scheduler_named_twice_is_refused() -> None:
    """Two equal rows would tell nothing."""
    job = Job("j", (Phase("a", Tasks(2, 3.0)),))
    with pytest.raises(InputError, match="'fifo' is named twice"):
        slotwise.compare([job], ["fifo", "fifo"])


def test_results_are_short_in_print() -> None:
    """A notebook does not show the whole log."""
    job = Job("j", (Phase("a", Tasks(200, 3.0)),))
    assert len(repr(slotwise.simulate(job, slots=2))) < 100
    assert len(repr(slotwise.plan(job, slots=2))) < 300


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: slotwise.simulate([JOB], simulation={"seed": 1}), "simulation is {'seed': 1}"),
        (lambda: slotwise.compare([JOB], []), "schedulers is []; name some"),
        (lambda: slotwise.compare([JOB], None), "schedulers is None; name some"),  # type: ignore[arg-type]
        (
            lambda: slotwise.explain(slotwise.simulate([JOB]).log, "j", "x"),  # type: ignore[call-overload]
            "at is 'x'; expected",
        ),
        (lambda: slotwise.read_log(5), "log is 5; expected a path"),  # type: ignore[arg-type]
        (lambda: slotwise.replay(5), "log is 5; expected a path"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_a_wrong_type_are_named(act: Callable[[], object], says: str) -> None:
    """Each with the value that was given."""
    with pytest.raises(InputError, match=re.escape(says)):
        act()


def test_keyword_arguments_are_the_fields_of_run_options() -> None:
    """The same names and types; only the fields have defaults and descriptions."""
    assert get_type_hints(Options) == get_type_hints(RunOptions)
    for hint in get_type_hints(RunOptions, include_extras=True).values():
        assert hint.__metadata__[0].endswith(".")
