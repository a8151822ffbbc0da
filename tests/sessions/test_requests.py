"""Calls and jobs of a session request resources of its hosts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slotwise import Cluster, Host, InputError, Job, Phase, Session, Tasks, read_log
from slotwise.core.decisions import Launch
from slotwise.core.events import TaskFinished

PATIENCE = 120.0


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session of 3 slots on a host with 4 GiB and 1 license."""
    with Session(3, resources={"memory": "4 GiB", "license": 1}) as opened:
        yield opened


def wait_for(go: str) -> None:
    """A call that ends when a file exists."""
    until = time.monotonic() + PATIENCE
    while not os.path.exists(go):
        assert time.monotonic() < until
        time.sleep(0.005)


def most_at_once(log: Path) -> int:
    """The most tasks that ran at the same time."""
    running = most = 0
    for turn in read_log(log).turns:
        running -= sum(isinstance(event, TaskFinished) for event in turn.events)
        running += sum(isinstance(one, Launch) for one in turn.decisions)
        most = max(most, running)
    return most


def meet(folder: str, number: int, count: int = 2) -> int:
    """A call that ends when so many run."""
    Path(folder, str(number)).touch()
    until = time.monotonic() + PATIENCE
    while len(os.listdir(folder)) < count:
        assert time.monotonic() < until
        time.sleep(0.005)
    return number


@pytest.mark.parametrize(
    ("resources", "most"), [({"memory": "3 GiB"}, 1), ({"memory": "2 GiB"}, 2), ({}, 3)]
)
def test_calls_run_only_where_their_requests_fit(
    resources: dict[str, Any], most: int, tmp_path: Path
) -> None:
    """They wait for others to end, although slots are free."""
    log, go = tmp_path / "log.jsonl", tmp_path / "go"
    with Session(3, resources={"memory": "4 GiB"}, log=log) as session:
        calls = session.executor(resources=resources)
        futures = [calls.submit(wait_for, str(go)) for _ in range(6)]
        go.touch()
        assert [future.result(PATIENCE) for future in futures] == [None] * 6
    assert most_at_once(log) == most


def test_a_pool_limits_what_its_calls_hold(tmp_path: Path) -> None:
    """Two of three run, and `explain` names the limit; a larger limit lets the third begin."""
    pools = {"lab": {"resources_max": {"memory": "2 GiB"}}}
    with Session(4, "fair", resources={"memory": "4 GiB"}, pools=pools) as session:
        calls = session.executor(name="j", pool="lab", resources={"memory": "1 GiB"})
        for number in range(3):
            calls.submit(meet, str(tmp_path), number, 3)
        with pytest.raises(InputError, match=r"^job 'k.*but pool 'lab' may hold at most 2 GiB"):
            session.executor(name="k", pool="lab", resources={"memory": "3 GiB"})
        until = time.monotonic() + PATIENCE
        while len(os.listdir(tmp_path)) < 2:
            assert time.monotonic() < until
            time.sleep(0.005)
        said = str(session.explain("j"))
        assert "pool 'lab' holds memory 2 GiB of at most 2 GiB (jobs j)" in said, said
        with pytest.raises(InputError, match="requests memory 1 GiB, but pool 'lab' may hold"):
            session.set_pools({"lab": {"resources_max": {"memory": "1 MiB"}}})
        session.set_pools({"lab": {"resources_max": {"memory": "3 GiB"}}})
        calls.shutdown()
    assert len(os.listdir(tmp_path)) == 3


def test_calls_of_different_requests_run_together(session: Session, tmp_path: Path) -> None:
    """The same function with two requests is two jobs, which share the host."""
    half = session.executor(resources={"memory": "2 GiB"})
    rest = session.executor(resources={"memory": "1 GiB", "license": 1})
    futures = [half.submit(meet, str(tmp_path), 1), rest.submit(meet, str(tmp_path), 2)]
    assert [future.result(PATIENCE) for future in futures] == [1, 2]


REFUSED: list[Callable[[Session], object]] = [
    lambda session: session.executor(name="j", resources={"memory": "5 GiB"}),
    lambda session: session.map(abs, [1], name="j", resources={"memory": "5 GiB"}),
    lambda session: session.command("true", id="j", resources={"memory": "5 GiB"}),
    lambda session: session.run(
        {"id": "j", "phases": [{"name": "p", "work": 1, "resources": {"memory": "5 GiB"}}]}
    ),
    lambda session: session.run(
        Job("j", (Phase("p", Tasks(1, 0.0), resources={"memory": "5 GiB"}),))
    ),
]


@pytest.mark.parametrize("submit", REFUSED)
def test_more_than_any_host_has_is_refused(
    session: Session, submit: Callable[[Session], object]
) -> None:
    """At once, with the numbers, however the call or the job is submitted."""
    with pytest.raises(InputError, match=r"^job 'j.*requests memory 5 GiB, but .* has 4 GiB"):
        submit(session)


def test_a_host_that_is_added_has_resources(session: Session) -> None:
    """A call that no host could serve before runs there."""
    session.add_host("large", 1, resources={"memory": "6 GiB"})
    calls = session.executor(resources={"memory": "5 GiB"})
    assert calls.submit(abs, -3).result(PATIENCE) == 3
    session.remove_host("large")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda _: Session(resources=3), "resources is 3; give amounts by name"),
        (lambda _: Session(resources={"gpu": 0.5}), "resources: gpu is 0.5; give a whole"),
        (
            lambda _: Session(Cluster((Host("h", {"task": 1}),)), resources={"gpu": 1}),
            "resources is for one host, and the hosts of a Cluster have resources of their own",
        ),
        (lambda one: one.executor(resources={"gpu": True}), "resources: gpu is True; give a"),
        (lambda one: one.add_host("h", 1, resources={"gpu": 0.5}), "host 'h': resources: gpu"),
    ],
)
def test_wrong_resources_are_refused(
    session: Session, act: Callable[[Session], object], said: str
) -> None:
    """Of a session, of calls and of a host."""
    with pytest.raises(InputError) as refused:
        act(session)
    assert str(refused.value).startswith(said)
