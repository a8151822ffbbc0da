"""Calls that run when their server is killed: one that kills its servers ends as failed."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from service.conftest import RunningServer
from sessions.small_calls import PATIENCE, wait_for_file
from slotwise import Client, SlotwiseError
from slotwise.service.engine.begins import ALONE_FROM, BEGINS_MAX, CallBegins
from slotwise.service.store.records import StoredCall, StoredJob
from slotwise.service.store.store import Store
from waiting import until

CALLS = [("c", 0), ("c", 1)]


def kill_server(pid: str) -> None:
    """A call that kills the process whose number is in a file, which may come later."""
    until(Path(pid).exists)
    os.kill(int(Path(pid).read_text()), signal.SIGKILL)
    time.sleep(PATIENCE)


def killed(server: RunningServer) -> bool:
    """Whether a server has been killed; it may need some time for that."""
    assert server.process is not None
    return server.process.wait(PATIENCE) == -signal.SIGKILL


@pytest.mark.parametrize("before", [ALONE_FROM + 2, pytest.param(0, marks=pytest.mark.slow)])
def test_a_call_that_kills_its_servers_fails(server: RunningServer, before: int) -> None:
    """After as many as allowed, with the reason; a call beside it goes on, and others too.

    The first begin may not be stored: the server is killed at once. `before` of them are in
    the store when the second server starts.
    """
    pid, go = server.folder / "pid", server.folder / "go"
    assert server.process is not None
    pid.write_text(f"{server.process.pid}")
    with Client(server.url, reconnect_seconds=PATIENCE) as client:
        guilty = client.submit(kill_server, str(pid))
        beside = client.submit(wait_for_file, str(go))
        kills = 0
        while not guilty.done():
            assert killed(server)
            kills += 1
            if kills == 1 and before:
                store = server.folder / "service" / "store.db"
                with closing(sqlite3.connect(store)) as database, database:
                    database.execute("UPDATE calls SET begins = ?", [before])
            pid.unlink()
            server.begin()
            (server.folder / "new").write_text(f"{server.process.pid}")
            (server.folder / "new").rename(pid)
            until(lambda: guilty.done() or not is_alive(server), PATIENCE)
        with pytest.raises(SlotwiseError, match=f"has begun in {BEGINS_MAX} servers"):
            guilty.result()
        go.touch()
        assert beside.result(PATIENCE) == str(go)
        assert client.submit(abs, -1).result(PATIENCE) == 1
    assert BEGINS_MAX - before <= kills <= BEGINS_MAX - before + 1


def is_alive(server: RunningServer) -> bool:
    """Whether the process of a server runs."""
    assert server.process is not None
    return server.process.poll() is None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two open calls."""
    with Store(tmp_path / "service") as made:
        job = StoredJob(made.new_id()[0], "c", "calls", stream="key")
        made.add_calls({"c": [StoredCall("c", n, (b"",), [None]) for n in (0, 1)]}, [job])
        yield made


def counts(store: Store) -> list[int]:
    """In how many servers each call has begun, when what waits is stored."""
    store.add_calls({}).result()
    return [call.begins for n in (0, 1) if (call := store.call("c", n))]


def test_a_begin_counts_once_in_a_server(store: Store) -> None:
    """A stop in order does not count, nor do later attempts."""
    begins = CallBegins(store)
    for call in (*CALLS, *CALLS):
        begins.begin(call)
    assert counts(store) == [1, 1]
    begins.over(CALLS[0])
    begins.stop()
    assert counts(store) == [1, 0]


def test_what_was_left_open_begins_when_that_is_stored(store: Store) -> None:
    """Its begin is in the store on return; that of a new call need not be."""
    begins = CallBegins(store)
    begins.restore(CALLS[0], 0, lambda: None)
    begins.begin(CALLS[0])
    call = store.call("c", 0)
    assert call is not None
    assert call.begins == 1


def test_suspects_run_one_at_a_time(store: Store) -> None:
    """From a number of kills on; the others run at once. One that is over lets the next run."""
    begins, ran = CallBegins(store), list[int]()

    def run(number: int) -> Callable[[], None]:
        return lambda: ran.append(number)

    for number, kills in enumerate([ALONE_FROM, ALONE_FROM, ALONE_FROM - 1, ALONE_FROM]):
        begins.restore(("c", number), kills, run(number))
    assert ran == [0, 2]
    begins.over(("c", 3))  # It was cancelled, so it takes no turn.
    assert ran == [0, 2, 3]
    begins.over(("c", 0))
    begins.over(("c", 2))
    assert ran == [0, 2, 3, 1]
