"""A pool that the session was not given is created, with a warning if others were given."""

from __future__ import annotations

import warnings

import pytest

from slotwise import InputError, Job, Phase, Pool, Session, Tasks, command
from slotwise.core.errors import SlotwiseWarning

PATIENCE = 120.0


def test_an_unknown_pool_is_warned_of_once_at_the_line_that_names_it() -> None:
    """With the nearest pool that the session was given."""
    with Session(1, pools=[Pool("all"), Pool("reports", parent="all")]) as session:
        with pytest.warns(UserWarning, match="reprots") as warned:
            session.executor(pool="reprots")
        assert [str(one.message) for one in warned] == [
            "pool 'reprots' is not among the pools of the session (reports, default);"
            " did you mean 'reports'?"
        ]
        assert warned[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert list(session.map(abs, [-1], pool="reprots")) == [1]
            session.executor(pool="reports")
            session.executor(pool="default")


def test_a_job_and_a_change_are_warned_of_too() -> None:
    """Without a pool of a similar name, the warning says what happens."""
    with Session(1, pools=[Pool("reports")]) as session:
        with pytest.warns(UserWarning, match="'x' is not .*; it is created with weight 1"):
            job = session.run(Job("a", (Phase("p", Tasks(1, 1000.0)),), pool="x"))
        with pytest.warns(UserWarning, match="'y' is not .*; it is created with weight 1"):
            session.change(job, pool="y")
        assert job.cancel()


def test_a_limit_of_an_unknown_resource_is_warned_of() -> None:
    """At the line that states it, and no longer where the session has such a limit."""
    said = "pool 'lab': resources_max has 'memry', which no host has and no phase requests"
    stated = {"lab": {"resources_max": {"memry": 1, "license": 1, "memory": "1 GiB"}}}
    with pytest.warns(SlotwiseWarning) as warned:
        session = Session(1, resources={"license": 1}, pools=stated)
    assert [str(one.message) for one in warned] == [f"{said}; did you mean 'memory'?"]
    assert warned[0].filename == __file__
    with session:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.set_pools(stated)
            session.set_pools({"lab": {"resources_max": {"license": 2}}})
        with pytest.warns(SlotwiseWarning, match=said) as warned:
            session.set_pools(stated)
        assert warned[0].filename == __file__


def test_a_refused_job_leaves_its_id() -> None:
    """The one that is submitted instead has it; later ones get a number."""
    with Session(1, resources={"memory": "1 GiB"}) as session:
        for needs in ({"memory": "2 GiB"}, {"memroy": 1}, {"memory": -1}):
            with pytest.raises(InputError, match="job 'c'"):
                session.run(command("true", id="c", resources=needs))
        jobs = [session.run(command("true", id="c")) for _ in range(2)]
        assert [job.job for job in jobs] == ["c", "c-2"]


def test_without_given_pools_any_may_be_named() -> None:
    """Nothing is warned of then."""
    with Session(1) as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        with session.executor(pool="anything") as executor:
            assert executor.submit(len, "abc").result(PATIENCE) == 3
