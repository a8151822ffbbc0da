"""What users give to a session is checked when they give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotwise import InputError, Job, Phase, Pool, Session, Tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": "2"}, "slots is '2'; give a whole number >= 1"),
        ({"slots": 2.5}, "slots is 2.5; give a whole number >= 1"),
        ({"slots": {"cpu": "x"}}, "slots: the number of kind 'cpu' is 'x'"),
        ({"pools": ["a"]}, "pools: 'a' is not a pool; expected a list"),
        ({"pools": 3}, "pools: 3 is not a pool; expected a list"),
        ({"pools": {"a": -1}}, "pools.a.weight is -1; "),
        ({"preemption": True}, "preemption is True; expected a slotwise.Preemption"),
    ],
)
def test_a_session_refuses_options_of_a_wrong_type(
    options: dict[str, Any], message: str
) -> None:
    """Before it starts any process."""
    with pytest.raises(InputError) as refused:
        Session(**{"slots": 1, **options})
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ({"pool": None}, "pool is None; expected a string"),
        ({"pool": ""}, "pool is ''; expected a string"),
        ({"name": None}, "name is None; expected a string"),
        ({"weight": "2"}, "weight is '2'; give a number"),
        ({"deadline": "60"}, "deadline is '60'; expected a number, without quotes"),
        ({"slots": 1.0}, "slots is 1.0; give a whole number >= 1"),
        ({"slots_max": 1.5}, "slots_max is 1.5; give a whole number >= 1"),
        ({"ahead": -1}, "ahead is -1; give a whole number >= 1"),
    ],
)
def test_an_executor_refuses_options_of_a_wrong_type(
    session: Session, binding: dict[str, Any], message: str
) -> None:
    """At once, and the session goes on."""
    with pytest.raises(InputError) as refused:
        session.executor(**binding)
    assert str(refused.value).startswith(message)
    assert session.submit(len, "abc").result(120.0) == 3


def test_calls_without_slots_of_their_kind_are_refused() -> None:
    """Calls need slots of the kind "task"."""
    with Session({"map": 1}) as session:
        with pytest.raises(InputError, match="no host has slots for phases of kind 'task'"):
            session.submit(len, "abc")
        session.run(Job("j", (Phase("p", Tasks(1, 0.0), "map"),))).result(120.0)


@pytest.mark.session_only("a server explains jobs that are over, by their state")
def test_only_jobs_that_are_under_way_are_explained(session: Session) -> None:
    """A future that is done says so; the name of a job is checked."""
    done = session.submit(len, "abc")
    done.result(120.0)
    with session.executor(name="idle") as executor:
        executor.submit(len, "").result(120.0)
        assert session.explain("idle").job == "idle"
    assert session.explain(done).status.startswith("over: completed at ")
    with pytest.raises(InputError, match="job 'typo' is not active"):
        session.explain("typo")


@pytest.mark.session_only("the configuration of the server has the pools")
def test_pools_are_checked(session: Session) -> None:
    """Also when they are replaced."""
    with pytest.raises(InputError, match="pools: 'a' is not a pool"):
        session.set_pools(["a", Pool("b")])  # type: ignore[list-item]


def test_the_log_and_the_history_are_different_files_of_their_kinds(tmp_path: Path) -> None:
    """As for a run: neither the history nor any other file is overwritten by the log."""
    (tmp_path / "notes").write_text("milk\n")
    with pytest.raises(InputError, match="is the log, too; name another file"):
        Session(1, history=tmp_path / "h", log=tmp_path / "h")
    with pytest.raises(InputError, match="notes"):
        Session(1, log=tmp_path / "notes")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("notes", "milk\n")
    ]
