"""The server is killed at random moments under load, and started again: nothing is lost."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from service.conftest import RunningServer, end_processes
from service.kill_load import PATIENCE, WORDS, mark_of
from sessions.small_calls import fail, wait_for_file
from slotwise import Client
from slotwise.service.clients.transport import ServerRefusedError
from waiting import until

TESTS = Path(__file__).parents[1]


@contextmanager
def load(server: RunningServer, *kinds: str) -> Iterator[None]:
    """Clients that submit during the block; afterwards all that they wanted is right."""
    folder, path = server.folder, [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    for name in "ran", "out":
        (folder / name).mkdir()
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "service.kill_load", folder, kind, str(seed)],
            env={**server.environ, "PYTHONPATH": os.pathsep.join(path)},
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
    """Kill the server at a random moment of its life, and start another one at once.

    Some are ready for longer than a program takes to be planned: else none would be accepted.
    """
    server.begin()
    since = time.monotonic()
    seconds = moment.choice([moment.uniform(0, 0.1), moment.uniform(0, 2), 2])
    if seconds == 2:
        until(server.is_ready)
        since, seconds = time.monotonic(), moment.uniform(0, 4)
    time.sleep(max(0.0, since + seconds - time.monotonic()))
    server.end(signal.SIGKILL)


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_a_server_that_is_killed_loses_nothing(
    make_server: Callable[..., RunningServer], kills: int
) -> None:
    """Each accepted job ends once, with the right result, and nothing of it is left."""
    server = make_server()
    moment = random.Random(kills)
    with load(server, "commands", "commands", "calls", "programs"):
        time.sleep(0.5)
        server.end(signal.SIGKILL)
        for _ in range(kills - 1):
            kill_and_start(server, moment)
        server.start()
    check_jobs(server)
    check_nothing_left(server)


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
    with closing(sqlite3.connect(store_of(server))) as database:
        bad = "state IN ('open', 'failed', 'lost') OR ended IS NULL"
        for table in "jobs", "calls":
            assert database.execute(f"SELECT * FROM {table} WHERE {bad}").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def check_nothing_left(server: RunningServer) -> None:
    """When all jobs are forgotten and the server has ended, nothing of them is there."""
    for job in server.get("/v1/jobs", limit=10_000)["jobs"]:
        server.post(f"/v1/jobs/{job['id']}/forget")
    service = server.folder / "service"
    assert server.end() == 0
    until(lambda: not processes(server.folder) and not work_folders(server.folder))
    left = {str(path.relative_to(service)) for path in service.rglob("*") if path.is_file()}
    names = {path.split("/")[0] for path in left}
    assert names <= {
        "store.db",
        "store.db-wal",
        "store.db-shm",
        "runs",
        "audit.jsonl",
        "forecasts.json",
    }


def work_folders(folder: Path) -> list[Path]:
    """The folders for intermediate files of the programs of a load."""
    roots = Path("/dev/shm"), Path(tempfile.gettempdir())
    found = []
    for lock in (path for root in roots for path in root.glob("slotwise-*/lock")):
        with suppress(OSError):
            found += [lock.parent] if mark_of(folder) in lock.read_text() else []
    return found


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


def forget_end(server: RunningServer, job: str, *, tasks: bool) -> None:
    """Kill the server; the store is then as if that had been before the job's end was there.

    With `tasks`, also as before the ends of its tasks.
    """
    server.end(signal.SIGKILL)
    with closing(sqlite3.connect(store_of(server))) as database:
        number = database.execute("SELECT number FROM jobs WHERE id = ?", [job]).fetchone()
        if tasks:
            database.execute("DELETE FROM tasks WHERE job = ?", number)
        undone = "state = 'open', ended = NULL, code = NULL, result = NULL"
        database.execute(f"UPDATE jobs SET {undone} WHERE number = ?", number)
        database.commit()


@pytest.mark.parametrize("tasks", [False, True])
def test_a_kill_at_the_end_of_a_command(server: RunningServer, tasks: bool) -> None:
    """Its output is there already; it is done, and does not run again."""
    ran, out = server.folder / "ran", server.folder / "out"
    command = f"echo $SLOTWISE_TASK >> {ran}; echo $SLOTWISE_TASK"
    (job,) = server.submit({"command": command, "tasks": 2, "output": str(out)})
    server.wait(job)
    forget_end(server, job, tasks=tasks)
    server.start()
    ended = server.wait(job)
    assert (ended["state"], ended["code"], ended["output"]) == ("done", 0, str(out))
    assert sorted(ran.read_text().split()) == ["0", "1"]
    assert [(out / f"task-0000{n}.out").read_text() for n in (0, 1)] == ["0\n", "1\n"]


@pytest.mark.parametrize("as_phase", [False, True])
@pytest.mark.slow
def test_a_kill_at_the_end_of_a_program(server: RunningServer, as_phase: bool) -> None:
    """It runs again and replaces its own output; that of others is never replaced."""
    words, out = server.folder / "words", server.folder / "out"
    words.write_text(WORDS)
    program = {"program": "wordcount", "inputs": str(words), "output": str(out)}
    entry = {"phases": [{"name": "count", **program}]} if as_phase else program
    (job,) = server.submit({"id": "count", **entry})
    assert server.wait(job)["state"] == "done"
    before = contents(out)
    forget_end(server, job, tasks=True)
    server.start()
    assert (server.wait(job)["state"], contents(out)) == ("done", before)
    forget_end(server, job, tasks=True)
    success = out / "_SUCCESS"
    success.write_text(success.read_text().replace('"count"', '"another"'))
    server.start()
    ended = server.wait(job)
    assert (ended["state"], contents(out).keys()) == ("failed", before.keys())
    assert "exists" in ended["reason"]


def test_a_kill_at_the_end_of_calls(server: RunningServer) -> None:
    """Their jobs end as their calls have ended."""
    with Client(server.url) as client:
        value, error = client.submit(abs, -1), client.submit(fail, "why")
        stuck = client.submit(wait_for_file, "/no/such/file")
        with client.executor(name="two") as executor:
            executor.submit(abs, -1), executor.submit(abs, -2)
        client.flush()
        client.cancel(stuck)
        jobs = [value.job, error.job, stuck.job, "two"]
        states = [client.wait(job) for job in jobs]
        assert states == ["done", "failed", "cancelled", "done"]
        for job in jobs:
            forget_end(server, job, tasks=False)
        server.start()
        assert [client.wait(job, PATIENCE) for job in jobs] == states


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_jobs_and_calls_are_restored_after_those_they_wait_for(server: RunningServer) -> None:
    """Also if their numbers are lower."""
    gate = server.folder / "gate"
    with Client(server.url) as client:
        one, two = client.executor(name="one"), client.executor(name="two")
        assert one.submit(abs, -1).result(PATIENCE) == 1
        first = two.submit(wait_for_file, str(gate))
        last = one.submit(len, first)
        client.flush()
        third, _ = server.submit(
            {"command": "true", "after": ["second"]},
            {"id": "second", "command": ["sleep", "1"]},
        )
        server.restart()
        gate.touch()
        assert last.result(PATIENCE) == len(str(gate))
    assert server.wait(third)["state"] == "done"


def test_a_cancelled_job_stays_cancelled(server: RunningServer) -> None:
    """Also if the server is killed before its tasks have stopped."""
    stuck = "trap '' TERM; while true; do sleep 0.05; done"
    (job,) = server.submit({"command": stuck})
    until(lambda: server.job(job)["tasks_running"])
    server.post(f"/v1/jobs/{job}/cancel")
    server.restart()
    assert server.wait(job)["state"] == "cancelled"
    assert server.job(job)["restarts"] == 0


@contextmanager
def full_disk(server: RunningServer) -> Iterator[None]:
    """The disk of a server is full during the block."""
    ballast = server.folder / "service" / "ballast"
    if os.path.ismount(ballast.parent):
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            for size in 1 << 16, 1 << 12, 1:
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
        yield
        ballast.unlink()
        return
    assert server.process is not None
    limit = partial(resource.prlimit, server.process.pid, resource.RLIMIT_FSIZE)
    before = limit((1, resource.RLIM_INFINITY))
    yield
    limit(before)


@pytest.fixture
def small_disk(make_server: Callable[..., RunningServer]) -> Iterator[RunningServer]:
    """A server whose folder is a file system of 6 MB, where that may be mounted."""
    server = make_server()
    place = server.folder / "service"
    server.end()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", place]
    is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    yield server.start()
    if server.process is not None and server.process.poll() is None:
        server.end(signal.SIGKILL)
    end_processes(server.folder)
    if is_mounted:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_is_full_for_some_time(small_disk: RunningServer) -> None:
    """Submissions are refused; what was accepted ends, once there is room also after a kill."""
    server, gate = small_disk, small_disk.folder / "gate"
    begun = server.folder / "begun"
    wait = f"touch {begun}; until [ -e {gate} ]; do sleep 0.02; done"
    queued = {"command": "echo x >> ran", "tasks": 3}
    first, *jobs = server.submit({"command": wait}, queued, {**queued, "restart": False})
    with Client(server.url) as client:
        call = client.submit(wait_for_file, str(gate))
        client.flush()
        until(begun.exists)
        with full_disk(server):
            for path, body in ("/v1/jobs", {"jobs": [queued]}), (f"/v1/jobs/{first}/hold", {}):
                with pytest.raises(ServerRefusedError, match="cannot be written") as caught:
                    server.post(path, {"environ": {"A": "b" * 100_000}, **body})
                assert caught.value.kind == "full"
            with pytest.raises(ServerRefusedError, match="free space"):
                client.submit(abs, -1).result(PATIENCE)
            gate.touch()
            until(lambda: server.job(first)["tasks_running"] == 0)
            server.end(signal.SIGKILL)
        server.start()
        *states, once = (server.wait(job)["state"] for job in (first, *jobs))
        assert states == ["done"] * 2
        assert call.result(PATIENCE) == str(gate)
        ran = (server.folder / "ran").read_text()
        # The kill may come after the begin of the last job is stored, and before it begins.
        assert (once, ran) == ("done", "x\n" * 6) or (once == "lost" and len(ran) < 2 * 6)


def test_a_store_that_is_locked_for_some_time(server: RunningServer) -> None:
    """A submission waits; what ends meanwhile is stored later."""
    (first,) = server.submit({"command": ["sleep", "0.1"]})
    with closing(sqlite3.connect(store_of(server), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(server.submit, {"command": "true"})
            until(lambda: server.job(first)["tasks_running"] == 0)
            other.execute("ROLLBACK")
            (second,) = asked.result(PATIENCE)
    assert [server.wait(job)["state"] for job in (first, second)] == ["done", "done"]


def store_of(server: RunningServer) -> Path:
    """The database of a server."""
    return server.folder / "service" / "store.db"


def test_a_damaged_store_is_refused_and_stays_as_it_is(server: RunningServer) -> None:
    """With one message and code 2; commands that run are not touched."""
    gate = server.folder / "gate"
    (job,) = server.submit({"command": f"until [ -e {gate} ]; do sleep 0.02; done"})
    until(lambda: server.job(job)["tasks_running"])
    server.end()
    kept = contents(server.folder / "service")
    with store_of(server).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    damaged = store_of(server).read_bytes()
    size = (server.folder / "server.log").stat().st_size
    server.begin()
    assert server.process is not None
    assert server.process.wait(60) == 2
    said = (server.folder / "server.log").read_text()[size:].splitlines()
    assert len(said) == 1
    assert "store.db is damaged" in said[0]
    assert store_of(server).read_bytes() == damaged
    store_of(server).write_bytes(kept["store.db"])
    gate.touch()
    server.start()
    assert server.wait(job)["state"] == "done"
