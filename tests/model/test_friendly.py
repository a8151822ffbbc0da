"""What is meant is taken: lists where tuples stand, one name for a set of one."""

import pytest

import slotwise
from slotwise import Calls, InputError, Job, Objective, Phase, Pool, Tasks, mapreduce


def test_lists_and_single_names_are_taken() -> None:
    """Callers need not know which container a frozen value keeps."""
    assert Tasks(2, [1, 2]) == Tasks(2, (1, 2))
    one, other = Phase("b", Tasks(1), after="a"), Phase("b", Tasks(1), after=["a"])
    assert one == other == Phase("b", Tasks(1), after=frozenset({"a"}))
    assert Job("j", [Phase("a", Tasks(1))]).phases == (Phase("a", Tasks(1)),)
    assert Pool("p", slots_min=1, slots_max=2) == Pool("p", 1.0, {"task": 1}, {"task": 2})


def test_one_function_serves_every_phase() -> None:
    """A job of one phase needs no mapping."""
    job = Job("j", (Phase("a", Tasks(1)),))
    assert Calls(job, len).runner("a", "xyz") == 3


def test_a_job_alone_and_a_penalty_by_name_are_taken() -> None:
    """One job is a workload; the name of a penalty is an objective."""
    job = Job("j", (Phase("a", Tasks(2, 3.0)),))
    assert slotwise.plan(job, slots=2, objective="makespan").objective == Objective(
        "makespan", "max"
    )
    [result] = slotwise.compare(job, "flex", slots=2)
    assert result.scheduler == "flex"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": 3}, r"give simulation=Simulation\(seed="),
        ({"colour": "red"}, "unknown option 'colour'; known: assigner"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, object], says: str) -> None:
    """A misspelt option is never ignored in silence."""
    job = Job("j", (Phase("a", Tasks(2, 3.0)),))
    for act in (slotwise.simulate, slotwise.run, slotwise.compare):
        with pytest.raises(InputError, match=says):
            act([job], **options)  # type: ignore[operator]


def test_a_setting_that_mapreduce_lacks_is_refused_at_once() -> None:
    """Not only when the job is run."""
    with pytest.raises(InputError, match="no setting 'reducer'; known: reducers"):
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
