"""Wrong types and values that users give to a session are refused in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from slotwise import (
    Calls,
    Host,
    InputError,
    Job,
    Phase,
    Pool,
    Session,
    Tasks,
    mapreduce,
    plan,
    simulate,
)
from slotwise.core.job import Shuffle
from slotwise.core.objective import Objective
from slotwise.policy.assignment.delay import Delay

PATIENCE = 120.0

UNEXPECTED = r"^(Session|Client)\.{}\(\) got an unexpected keyword argument"

JOB = Job("j", (Phase("p", Tasks(1, 0.0)),))


def refuses(call: Callable[[], object], message: str) -> None:
    """The call raises an InputError that begins with this message."""
    with pytest.raises(InputError) as refused:
        call()
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (None, "None is not a job; expected one of slotwise.mapreduce(...)"),
        ("echo hello", "'echo hello' is not a job"),
        (Job, "<class 'slotwise.core.job.Job'> is not a job"),
        ({"id": "a", "work": 1, "pool": 3}, "jobs[0].pool is 3: expected a string"),
        (
            mapreduce("wordcount", "a", "b", pool=""),
            "job 'wordcount': pool is ''; expected a string",
        ),
        (mapreduce("wordcount", "a", "b", weight="2"), "job 'wordcount': weight is '2'"),
        (
            mapreduce("wordcount", "a", "b", deadline=math.inf),
            "job 'wordcount': deadline is inf",
        ),
        (mapreduce("wordcount", "a", "b", steps=[3]), "job 'wordcount': step 3 is not a pair"),
    ],
)
def test_run_refuses_what_is_no_job(session: Session, entry: Any, message: str) -> None:
    """And jobs with texts or numbers of a wrong type."""
    refuses(lambda: session.run(entry), message)


def test_run_refuses_what_is_no_folder(session: Session) -> None:
    """Before it looks at the job."""
    refuses(lambda: session.run(JOB, folder=None), "folder is None; expected a path")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": None}, "job 'command': pool is None; expected a string"),
        ({"weight": "x"}, "job 'command': weight is 'x'; give a number"),
        ({"deadline": math.inf}, "job 'command': deadline is inf; give a finite number"),
        ({"deadline": math.nan}, "job 'command': deadline is nan; give a finite number"),
        ({"deadline": -3}, "job 'command': deadline is -3; give seconds >= 0"),
        ({"steps": 3}, "job 'command': steps is 3; expected pairs"),
        ({"output": 3}, "job 'command': output is 3; expected a path"),
        ({"id": None}, "the id of a job is None; expected a string"),
        ({"id": "t", "tasks": "2"}, "job 't': tasks is '2'; give a whole number >= 1"),
        ({"id": "e", "env": {"A": 3}}, "job 'e': env: A is 3; expected a string"),
        ({"id": "n", "env": {"A=B": ""}}, "job 'n': env has the name 'A=B'; expected"),
        ({"id": "u", "env": {"A": "\ud800"}}, "job 'u': env is 'A=\\ud800'; remove the char"),
        ({"id": "v", "cwd": "\ud800"}, "job 'v': cwd is '\\ud800'; remove the characters"),
        ({"id": "u", "output": "\ud800"}, "job 'u': output is '\\ud800'; remove the char"),
        ({"id": "a\nb"}, "the id of a job is 'a\\nb'; remove the control characters"),
        ({"id": "l", "env": ["A"]}, "job 'l': env is ['A']; give a mapping"),
        ({"id": "c", "cwd": 3}, "job 'c': cwd is 3; expected a path"),
        ({"id": "m", "resources": {"memory": -1}}, "job 'm': resources: memory is -1; give"),
        ({"id": "r", "resources": 4}, "job 'r': resources is 4; give amounts by name"),
        ({"id": "w", "work": "x"}, "job 'w': work is 'x'; expected seconds, or"),
        (
            {"overwrite": True},
            "job 'command': overwrite is for a command with an output; remove",
        ),
        (
            {"id": "s", "slots_max": "x"},
            "job 's': slots_max is 'x'; expected a whole number of",
        ),
    ],
)
def test_command_refuses_options_of_a_wrong_type(
    session: Session, options: dict[str, Any], message: str
) -> None:
    """At once, and the session goes on."""
    refuses(lambda: session.command("true", **options), message)
    assert session.submit(len, "abc").result(PATIENCE) == 3


def test_command_refuses_what_no_program_can_get(session: Session) -> None:
    """A word with a lone surrogate."""
    for id, command in ("list", ["echo", "\ud800"]), ("text", "\ud800"):
        message = f"job '{id}': the command is '\\ud800'; remove the characters that are not"
        refuses(lambda: session.command(command, id=id), message)  # noqa: B023


@pytest.mark.parametrize("command", [None, 3, len])
def test_command_refuses_what_is_no_command(session: Session, command: Any) -> None:
    """A command is a string or a list of strings."""
    message = f"job 'command': command is {command!r}; expected a string"
    refuses(lambda: session.command(command), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": "x"}, "weight is 'x'; give a number"),
        ({"weight": math.nan}, "weight is nan; give a finite number"),
        ({"pool": ""}, "pool is ''; expected a string"),
        ({"pool": []}, "pool is []; expected a string"),
        ({"priority": []}, "priority is []; expected a string"),
        ({"deadline": "x"}, "deadline is 'x'; expected seconds, or a duration"),
        ({"deadline": math.inf}, "deadline is inf; give a finite number"),
        ({"deadline": -1}, "deadline is -1; give seconds >= 0"),
    ],
)
def test_change_refuses_values_that_no_job_can_have(
    session: Session, changes: dict[str, Any], message: str
) -> None:
    """Also for a job that is over."""
    done = session.submit(len, "abc")
    refuses(lambda: session.change(done, **changes), message)


def test_change_and_explain_take_only_futures_of_the_session(session: Session) -> None:
    """The id of a job is not enough: a future of another session may have the same one."""
    with Session(1) as other:
        foreign = other.submit(len, "abc")
        refuses(lambda: session.change(foreign, weight=2.0), "<Future of job call")
        refuses(lambda: session.explain(foreign), "this future is of another session")
    refuses(lambda: session.change("call"), "'call' is not a future of this session")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3, [1]), {}, "fn is 3; expected a function"),
        ((abs,), {}, "map has no iterables"),
        ((abs, 3), {}, "3 is not an iterable; expected a list"),
        ((abs, [1]), {"chunksize": 1.5}, "chunksize is 1.5; give a whole number >= 1"),
        ((abs, [1]), {"ahead": 0}, "ahead is 0; give a whole number >= 1"),
        ((abs, [1]), {"ahead": 10**400}, "ahead is 1000"),
        ((abs, [1]), {"chunksize": 10**400}, "chunksize is 1000"),
        ((abs, [1]), {"weight": 10**400}, "weight is 1000"),
        ((abs, [1]), {"deadline": math.inf}, "deadline is inf; give a finite number"),
    ],
)
def test_map_refuses_values_of_a_wrong_type(
    session: Session, arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    """Before it submits a task."""
    refuses(lambda: session.map(*arguments, **options), message)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda session: session.map(abs, [1], deadlin=1), "map"),
        (lambda session: session.change(None, slots=1), "change"),
        pytest.param(
            lambda session: session.add_host("a", 1, spede=1),
            "add_host",
            marks=pytest.mark.session_only("the server has the hosts"),
        ),
    ],
)
def test_an_unknown_option_is_a_type_error_with_the_public_function(
    session: Session, call: Callable[[Session], object], name: str
) -> None:
    """As Python raises it."""
    with pytest.raises(
        TypeError, match=rf"^(Session|Client)\.{name}\(\) got an unexpected keyword argument"
    ):
        call(session)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Session(1, objective=3), "objective is 3; give the name of a penalty"),
        (lambda: Session(1, log=3), "log is 3; expected a path"),
        (lambda: Session(1, shuffle=Shuffle()), "shuffle is not an option of a session"),
        (lambda: Session(1, history=3), "history is 3; expected a path"),
    ],
)
def test_a_session_refuses_options_of_a_wrong_type(
    make: Callable[[], Session], message: str
) -> None:
    """Before it starts any process."""
    refuses(make, message)


FLOW: dict[str, Any] = {"assigner": "flow"}
DELAY: dict[str, Any] = {"assigner": "delay"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FLOW | {"core_cost": "x"}, "core_cost is 'x'; give a number from 1 to 1000"),
        (FLOW | {"core_cost": []}, "core_cost is []; give a number from 1 to 1000"),
        (FLOW | {"core_cost": True}, "core_cost is True; give a number from 1 to 1000"),
        *(
            (assigner | {"waits": waits}, f"waits is {waits!r}; give two numbers of seconds")
            for assigner in (FLOW, DELAY)
            for waits in ("x", "xy", 3, (1,), (1, 2, 3), {1: 2, 3: 4})
        ),
        (FLOW | {"waits": ("a", "b")}, "flow: the waits are 'a' and 'b' seconds; they must"),
        (DELAY | {"waits": ("a", "b")}, "delay: the waits are 'a' and 'b' seconds; they must"),
        (DELAY | {"waits": (True, 2)}, "delay: the waits are True and 2 seconds; they must"),
        ({"epoch_seconds": "x"}, "epoch_seconds is 'x'; give a finite number >= 1e-06"),
        ({"epoch_seconds": True}, "epoch_seconds is True; give a finite number >= 1e-06"),
        ({"budget_seconds": "x"}, "budget_seconds is 'x'; give a number of seconds >= 0"),
        ({"attempts_max": "x"}, "attempts_max is 'x'; expected a whole number >= 1"),
        ({"attempts_max": 2.5}, "attempts_max is 2.5; expected a whole number >= 1"),
        ({"attempts_max": None}, "attempts_max is None; expected a whole number >= 1"),
        ({"attempts_max": 0}, "attempts_max is 0; expected a whole number >= 1"),
        ({"progress": 3}, "progress is 3; expected a function of an instant"),
        ({"assigner": []}, "unknown assigner []; known: greedy, delay, flow"),
        ({"objective": 3}, "objective is 3; give the name of a penalty"),
        ({"preemption": 3}, "preemption is 3; expected a slotwise.Preemption"),
        ({"log": 3}, "log is 3; expected a path"),
    ],
)
def test_runs_and_sessions_refuse_options_of_a_wrong_type(
    options: dict[str, Any], message: str
) -> None:
    """With the same sentence."""
    if options.get("assigner") == "flow":
        pytest.importorskip("ortools")
    refuses(lambda: simulate([JOB], "flex", **options), message)
    refuses(lambda: Session(1, **options), message)


@pytest.mark.parametrize("name", ["dmrs", "dmrs-best"])
@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("epoch_seconds", "give a finite number >= 1e-06"),
        ("budget_seconds", "give a number of seconds >= 0"),
    ],
)
def test_schedulers_with_queues_refuse_options_of_a_wrong_type(
    name: str, option: str, remedy: str
) -> None:
    """They have no epochs; the options are checked nevertheless."""
    wrong: dict[str, Any] = {option: "x"}
    refuses(lambda: simulate([JOB], name, **wrong), f"{option} is 'x'; {remedy}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: simulate([JOB], shuffle=3), "shuffle is 3; expected a slotwise.Shuffle"),
        (lambda: simulate([JOB], history=3), "history is 3; expected a path"),
        (lambda: plan([JOB], []), "unknown allocator []; known: fifo"),
        (lambda: plan([JOB], budget_seconds="x"), "budget_seconds is 'x'; give"),
        (lambda: plan([JOB], budget_steps="x"), "budget_steps is 'x'; expected a number"),
        (lambda: Delay("a", "b"), "delay: the waits are 'a' and 'b' seconds"),
    ],
)
def test_other_functions_refuse_options_of_a_wrong_type(
    make: Callable[[], object], message: str
) -> None:
    """Before they start anything."""
    refuses(make, message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Job("k", (), weight="3"), "job 'k': weight is '3'; give a number"),
        (lambda: Job("k", (), pool=3), "job 'k': pool is 3; expected a string"),
        (lambda: Job("k", JOB.phases[0]), "job 'k': phases is Phase("),
        (lambda: Job("k", (3,)), "job 'k': phases is (3,); give a list of Phase"),
        (lambda: Job("k", JOB.phases, steps=3), "job 'k': steps is 3; give pairs"),
        (
            lambda: Job("k", JOB.phases, deadline=math.inf),
            "job 'k': deadline is inf; give seconds",
        ),
        (lambda: Phase("p", 3), "phase 'p': tasks is 3; give Tasks"),
        (lambda: Phase("p", Tasks(1), slots="2"), "phase 'p': slots is '2'; give a whole"),
        (lambda: Tasks("1"), "the number of tasks is '1'; give a whole number"),
        (lambda: Tasks(1, ["x"]), "the work of a task is a number from 0 to 1e+100, not 'x'"),
        (
            lambda: Tasks(1, 1e308),
            "the work of a task is a number from 0 to 1e+100, not 1e+308",
        ),
        (lambda: Objective([]), "objective: unknown penalty []"),
        (lambda: Pool(3), "the name of a pool is 3; expected a string"),
        (lambda: Pool("a", weight="x"), "pool 'a': weight is 'x'; give a number"),
        (lambda: Pool("a", slots_max="x"), "pool 'a': slots_max is 'x'; expected a whole"),
        (lambda: Host("a", 3), "host 'a': slots is 3; give whole numbers by kind, such as"),
        (lambda: Host("a", {"task": 1}, speed="1"), "host 'a': speed is '1'; give a number"),
        (lambda: Calls(JOB, 3), "job 'j': functions is 3; give a function"),
        (lambda: Calls(JOB, {"p": 3}), "job 'j': the function of phase 'p' is 3; give"),
        (lambda: Calls(3, len), "Calls: job is 3; give a slotwise.Job"),
    ],
)
def test_the_parts_of_a_job_refuse_values_of_a_wrong_type(
    make: Callable[[], object], message: str
) -> None:
    """When they are made, so that the traceback ends at the line of the user."""
    refuses(make, message)


@pytest.mark.parametrize(
    "job",
    [
        *(None, 5, []),
        pytest.param("nobody", marks=pytest.mark.session_only("it names the list of jobs")),
    ],
)
def test_a_session_explains_no_other_things_than_jobs(session: Session, job: Any) -> None:
    """What is no text is named as such."""
    says = (
        "job 'nobody' is not active"
        if job == "nobody"
        else f"job is {job!r}; expected a string"
    )
    refuses(lambda: session.explain(job), says)
