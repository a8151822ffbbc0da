"""The server is killed at random moments under load, and started again: nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from service.conftest import RunningServer
from service.kill_load import WORDS
from slotwise.service.transport import SlotwiseError  # noqa
from waiting import until

TESTS = Path(__file__).parents[1]


@contextmanager
def load(server: RunningServer, *kinds: str) -> Iterator[None]:
    """Clients that submit during the block; afterwards all that they wanted is right."""
    folder, path = server.folder, filter(None, [os.environ.get("PYTHONPATH")])
    for name in "ran", "out":
        (folder / name).mkdir()
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "service.kill_load", folder, kind, str(seed)],
            env={**server.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *path])},
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed, kind in enumerate(kinds)
    ]
    try:
        until(lambda: len(list(folder.glob("*.began"))) == len(clients))
        yield
        (folder / "stop").touch()
        for client in clients:
            _, said = client.communicate(timeout=300)
            assert client.returncode == 0, said
    finally:
        for client in clients:
            client.kill()
            client.wait()


def kill_and_start(server: RunningServer, moment: random.Random) -> None:
    """Kill the server at a random moment of its life, and start another one at once."""
    server.begin()
    since = time.monotonic()
    seconds = moment.choice([moment.uniform(0, 0.1), moment.uniform(0, 2), 2])
    if seconds == 2:
        until(server.is_ready)
        since, seconds = time.monotonic(), moment.uniform(0, 1)
    time.sleep(max(0.0, since + seconds - time.monotonic()))
    server.end(signal.SIGKILL)


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_a_server_that_is_killed_loses_nothing(
    make_server: Callable[..., RunningServer], kills: int
) -> None:
    server = make_server()
    moment = random.Random(kills)
    shared = set(os.listdir("/dev/shm"))
    with load(server, "commands", "commands", "calls", "programs"):
        time.sleep(0.5)
        server.end(signal.SIGKILL)
        for _ in range(kills - 1):
            kill_and_start(server, moment)
        server.start()
    check_jobs(server)
    check_nothing_left(server)
    assert {n for n in os.listdir("/dev/shm") if n.startswith("slotwise-")} <= shared


def check_jobs(server: RunningServer) -> None:
    """Each accepted job has ended as it must, and each of its tasks has run once."""
    notes = [
        json.loads(line)
        for path in server.folder.glob("*.accepted")
        for line in path.read_text().splitlines()
    ]
    assert notes
    for note in notes:
        job = server.job(note["id"])
        assert job["state"] in note["states"], job
        if "ran" in note:
            for what in "begun", "ended":
                ran = Path(f"{note['ran']}.{what}").read_text().split()
                assert sorted(map(int, ran)) == list(range(note["tasks"])), (note, what)
            assert Path(f"{note['ran']}.after").read_text() == "0\n"
        if "output" in note:
            assert Path(note["output"], "task-00000.out").read_text() == "after\n"
        if "counts" in note:
            (part,) = Path(note["counts"]).glob("part-*")
            counts = dict(line.split("\t") for line in part.read_text().splitlines())
            assert counts == {k: str(n) for k, n in Counter(WORDS.split()).items()}
    with closing(sqlite3.connect(server.folder / "service" / "store.db")) as database:
        ask = lambda query: database.execute(query).fetchall()
        assert ask("SELECT * FROM jobs WHERE state = 'open' OR ended IS NULL") == []
        assert ask("SELECT * FROM calls WHERE state = 'open' OR ended IS NULL") == []
        assert ask("SELECT id FROM jobs WHERE state = 'failed' OR state = 'lost'") == []
        assert ask("PRAGMA integrity_check") == [("ok",)]


def check_nothing_left(server: RunningServer) -> None:
    """When all jobs are forgotten and the server has ended, nothing of them is there."""
    for job in server.get("/v1/jobs", limit=10_000)["jobs"]:
        server.post(f"/v1/jobs/{job['id']}/forget")
    service = server.folder / "service"
    assert server.end() == 0
    until(lambda: not processes(server.folder))
    left = {str(path.relative_to(service)) for path in service.rglob("*") if path.is_file()}
    print(left)
    names = {path.split("/")[0] for path in left}
    assert names <= {"store.db", "store.db-wal", "store.db-shm", "runs"}


def processes(folder: Path) -> list[str]:
    """The processes of a server and of its jobs."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if f"XDG_STATE_HOME={folder}".encode() in variables:
                found.append(Path(f"/proc/{name}/cmdline").read_text())
        except OSError:
            continue
    return found
