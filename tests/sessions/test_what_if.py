"""What a change would do, by a session: the change that is simulated, and the answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fake_forecasts import FakeForecasts, fake_forecasts
from slotwise import Calls, Host, InputError, Job, Phase, Pool, PromiseRefused, Session, Tasks
from slotwise.forecast.situation import Change
from waiting import until

LONG = Job("long", (Phase("p", Tasks(1, 900.0)),))


@pytest.fixture
def asked() -> Iterator[tuple[Session, FakeForecasts]]:
    """A session with a running job, and its forecasts."""
    pools = [Pool("team", 1.0, slots_max=1), Pool("batch")]
    with fake_forecasts() as made, Session(2, pools=pools) as session:
        until(session.run(LONG).running)
        session.forecasts.etas()
        yield session, made[0]
        session.close(cancels=True)


def test_what_may_be_submitted_may_be_asked_about(asked: Any) -> None:
    """Nothing is submitted, and ids are not used up; a deadline counts from now."""
    session, forecasts = asked
    calls = Calls(Job("calls", (Phase("call", Tasks(3)),)), abs)
    mapping = {"id": "m", "command": ["true"], "tasks": 4, "deadline": "5m", "pool": "team"}
    for job in (LONG, ["echo", "hello"], "echo | cat", mapping, calls):
        session.what_if(job)
    jobs = [change.jobs[0] for change in forecasts.changes]
    assert [job.id for job in jobs] == ["long-new", "new", "new", "m", "calls"]
    assert jobs[3].deadline - jobs[3].arrival == pytest.approx(300.0, abs=1e-6)
    assert (jobs[3].pool, jobs[3].phases[0].tasks.count) == ("team", 4)
    assert [job.job for job in session.jobs()] == ["long"]
    assert session.run(calls).result(60) == {"call": {0: 0, 1: 1, 2: 2}}


def test_the_answer_is_on_the_clock_of_the_world(asked: Any) -> None:
    """New jobs come first, and others have both courses."""
    session, _ = asked
    found = session.what_if({"command": ["true"]})
    new, other = found.jobs
    assert (new.before, new.delay, new.late_after) == (None, None, 0.25)
    assert (other.job, other.delay, other.late_after) == ("long", pytest.approx(100), 0.5)
    assert other.before.end.median == pytest.approx(time.time() + 40, abs=10)
    assert type(found).of_plain(found.to_plain()).measures == found.measures


def test_a_change_of_a_pool_keeps_its_other_keys(asked: Any) -> None:
    """A number is a weight."""
    session, forecasts = asked
    session.what_if(pools={"team": 3}, scheduler="fair")
    session.what_if(pools={"team": {"slots_max": 2}})
    hosts = [Host("h9", {"task": 8})], {"h9": 8}, [{"name": "h9", "slots": 8}]
    for stated in hosts:
        session.what_if(hosts=stated, without_hosts=["h1"])
    weight, most, *with_hosts = forecasts.changes
    pools = [{pool.name: pool for pool in one.pools} for one in (weight, most)]
    assert [(p["team"].weight, p["team"].slots_max) for p in pools] == [
        (3.0, {"task": 1}),
        (1.0, {"task": 2}),
    ]
    assert weight.scheduler == "fair"
    assert [one.hosts for one in with_hosts] == [(Host("h9", {"task": 8}),)] * 3


WRONG = (
    ({}, "nothing would change"),
    ({"pools": {"tem": 2}}, "unknown pool 'tem'; did you mean 'team'"),
    ({"pools": {"team": {"weigth": 2}}}, "weigth"),
    ({"pools": {"team": {"slots_min": 2}}}, "above its slots_max"),
    ({"pools": ["team"]}, "pools is .*; give weights by name"),
    ({"scheduler": "easy"}, "flex cannot be replaced by easy"),
    ({"scheduler": 5}, "scheduler is 5"),
    ({"scheduler": "fare"}, "unknown scheduler 'fare'; did you mean 'fair'?"),
    ({"hosts": {"h": "x"}}, "slots is"),
    ({"hosts": {"h": 0}}, "hosts: 'h' has no slots; give it at least 1"),
    ({"hosts": {"h": 10**20}}, "hosts: 'h': the cluster has .*; give it at most"),
    ({"hosts": [{"name": "h"}]}, "is not a host"),
    ({"without_hosts": "h"}, "give a list"),
    ({"without_hosts": 3}, "without_hosts is 3; give a list"),
    ({"job": {"command": ["true"], "slots": 9}}, "9 slots"),
    ({"job": 5}, "is not a job"),
)


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[one[1] for one in WRONG])
def test_what_cannot_be_is_refused(asked: Any, given: dict[str, Any], message: str) -> None:
    """Before anything is simulated."""
    session, forecasts = asked
    with pytest.raises(InputError, match=message):
        session.what_if(**given)
    assert forecasts.changes == []


def test_a_promise_counts_in_a_question(asked: Any) -> None:
    """As in a submission: it is refused with a date, or could be given."""
    session, _ = asked
    job = {"command": ["true"], "work": 100.0}
    with pytest.raises(PromiseRefused, match="the earliest date"):
        session.what_if({**job, "promise": "5s"})
    assert session.what_if({**job, "promise": "1d"}).jobs[0].before is None


def test_explain_has_the_forecast_of_the_start(asked: Any) -> None:
    """On the clock of the explanation."""
    session, _ = asked
    session.run(Job("wide", (Phase("p", Tasks(1, 9.0), slots=2),)))
    until(lambda: session.explain("wide").phases)
    found = session.explain("wide")
    assert found.waiting.start[1] == pytest.approx(found.at + 20, abs=10)


def test_a_course_begins_now_although_nothing_has_happened_for_a_while() -> None:
    """The state is that of the last turn of the loop, some time ago."""
    with Session(1) as session:
        until(session.run(LONG).running)
        begun = session.now
        until(lambda: session.now > begun + 0.3)
        assert session.forecasts.what_if(Change(scheduler="fair")).at >= begun + 0.3
        session.close(cancels=True)
