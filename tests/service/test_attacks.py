"""Requests that no client should make, and many at once: none harms the server or its jobs."""

from __future__ import annotations

import math
import os
import resource
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from service.conftest import RunningServer
from slotwise.core.errors import InputError
from slotwise.service.clients.transport import (
    NoServerError,
    ServerClosedError,
    ServerRefusedError,
    Transport,
    job_path,
)
from slotwise.service.wire import frame
from waiting import until

OPEN = {"op": "open", "binding": {"name": "c"}, "grows": True}
"""The first frame of a stream."""


def stream(key: str, *calls: tuple[int, Any]) -> bytes:
    """Frames that open a stream with calls, and close it."""
    found = [frame({**OPEN, "stream": key})]
    for number, inputs in calls:
        call = {"op": "call", "stream": key, "number": number, "inputs": inputs}
        found.append(frame(call, [b"no pickle"]))
    return b"".join([*found, frame({"op": "close", "stream": key})])


def test_a_body_that_is_not_what_was_expected_is_bad_input(server: RunningServer) -> None:
    """It is not a failure of the server, for which a client would send it again."""
    bodies = [
        ("/v1/jobs", b"[" * 200_000, "nested"),
        ("/v1/calls", b"\x05\0", "ends within a frame"),
        ("/v1/calls", frame({"sizes": [1 << 31]}), "ends within a frame"),
        ("/v1/calls", frame({**OPEN, "stream": "k", "binding": "x"}), "binding"),
        ("/v1/objects", b"", "one frame"),
        ("/v1/objects", frame({"entry": {}}, [b"x"]) * 2, "one frame"),
        ("/v1/results", b'{"client": "c", "calls": {"k": "x"}}', "list of numbers"),
    ]
    for path, body, text in bodies:
        with pytest.raises(InputError, match=text):
            server.transport.post_frames(path, body)
    for query in ({"limit": "9" * 5000}, {"before": 10**30}):
        with pytest.raises(InputError, match="whole number"):
            server.get("/v1/jobs", **query)


def test_a_call_waits_only_for_calls_that_were_sent_before(server: RunningServer) -> None:
    """Otherwise calls could wait for each other, also when the server is to stop."""
    wrong = [[None, 5], [None, ["k"]], [None, ["k", "y"]], [None, {"a": 1, "b": 2}]]
    for inputs in [*wrong, [None, ["k", 0]], [None, ["k", 1]], [None, ["k", 10**40]]]:
        with pytest.raises(InputError, match="inputs of call 0"):
            server.transport.post_frames("/v1/calls", stream("k", (0, inputs)))
    assert server.get("/v1/jobs")["jobs"] == []
    answer = server.transport.post_frames("/v1/calls", stream("k", (0, [None, ["gone", 0]])))
    assert server.wait(answer["jobs"]["k"])["state"] == "cancelled"
    assert server.end() == 0


def test_values_that_no_job_can_have_are_refused(server: RunningServer) -> None:
    """None is in a list that others could not read then."""
    command = {"command": ["true"]}
    entries: Sequence[tuple[dict[str, Any], str]] = [
        ({"deadline": {"at": math.nan}}, "deadline"),
        ({"deadline": {"at": 10**400}}, "deadline"),
        ({"deadline": math.nan}, "deadline"),
        ({"after": 5}, "after"),
        ({"after": True}, "after"),
        ({"after_each": 0}, "after_each"),
        ({"after": None, "pool": "held"}, "hold the job"),
        ({"id": "9" * 5000}, "id"),
        ({"array_index": 0, "env": "A"}, "env"),
        ({"pool": "held"}, "hold the job"),
    ]
    for entry, text in entries:
        with pytest.raises(InputError, match=text):
            server.submit({**command, **entry})
    more: Sequence[tuple[dict[str, Any], str]] = [
        ({"user": "\ud800"}, "user"),
        ({"user": "x" * 1000}, "user"),
        ({"environ": {"A": "\ud800"}}, "environ"),
        ({"folder": "here"}, "absolute"),
    ]
    for given, text in more:
        with pytest.raises(InputError, match=text):
            server.submit(command, **given)
    assert server.get("/v1/jobs")["jobs"] == []


def test_ids_that_look_like_paths_stay_in_the_folder(server: RunningServer) -> None:
    """Their output is found, and forgotten with them."""
    jobs = [".", "..", "/", "../../evil", "%2e", "a/b", "*", "é" * 200]
    assert server.submit(*({"id": job, "command": "echo hi"} for job in jobs)) == jobs
    commands = server.folder / "service" / "commands"
    for job in jobs:
        assert server.wait(job)["state"] == "done"
        assert server.printed(job) == "hi\n"
    assert len(os.listdir(commands)) == len(jobs)
    for job in jobs:
        server.post(job_path(job, "forget"))
    assert os.listdir(commands) == []
    assert not list(server.folder.rglob("*evil*"))


def test_a_reader_that_reads_nothing_takes_no_memory(server: RunningServer) -> None:
    """What it is sent stays in the files."""
    (job,) = server.submit({"command": "head -c 200000000 /dev/zero"})
    assert server.wait(job)["state"] == "done"
    before = memory(server)
    readers = [server.transport.stream(job_path(job, "logs")) for _ in range(3)]
    for one in readers:
        next(one)
    assert server.job(job)["state"] == "done"
    assert memory(server) - before < 100 << 20
    for one in readers:
        one.close()


def memory(server: RunningServer) -> int:
    """The most bytes that a server had in memory."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def test_a_job_that_was_just_stored_can_be_cancelled(server: RunningServer) -> None:
    """Also before the session has it, as in a submission of many."""
    names = [f"j{number}" for number in range(150)]
    sleeps = [{"id": name, "command": ["sleep", "60"]} for name in names]
    accepted = threading.Thread(target=lambda: server.submit(*sleeps))
    accepted.start()
    until(lambda: server.get("/v1/jobs", ids=names[-1])["jobs"])
    own = Transport(server.url)
    own.post(job_path(names[-1], "cancel"))
    assert own.get(job_path(names[-1], "wait"), timeout=60)["state"] == "cancelled"
    accepted.join()
    for name in names:
        own.post(job_path(name, "cancel"))
    own.close()


def test_a_job_is_held_or_released_not_both(server: RunningServer) -> None:
    """Also if both are asked at the same time."""
    server.submit({"id": "full", "command": ["sleep", "60"], "tasks": 2})
    server.submit({"id": "j", "command": ["true"]})

    def ask(action: str) -> None:
        own = Transport(server.url)
        for _ in range(3):
            own.post(job_path("j", action))
        own.close()

    threads = [threading.Thread(target=ask, args=(one,)) for one in ("hold", "release") * 2]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert _held_in_session(server) == server.job("j")["held"]
    server.post(job_path("full", "cancel"))
    server.post(job_path("j", "release"))
    assert server.wait("j")["state"] == "done"


def _held_in_session(server: RunningServer) -> int:
    """The number of jobs that the session has on hold."""
    found: int = server.get("/v1")["jobs"]["held"]
    return found


def test_calls_that_come_after_hold_wait_for_release(server: RunningServer) -> None:
    """Also the first one."""
    post = server.transport.post_frames
    (job,) = post("/v1/calls", frame({**OPEN, "stream": "k"}))["jobs"].values()
    server.post(job_path(job, "hold"))
    post("/v1/calls", stream("k", (0, [None])))
    until(lambda: _held_in_session(server))
    server.post(job_path(job, "release"))
    assert server.wait(job)["state"] == "failed"  # It is no pickle.


def test_a_reload_that_is_refused_changes_nothing(
    make_server: Callable[..., RunningServer],
) -> None:
    """Also at many signals, and for a file that is not text."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "team.toml")
        config.write_text('scheduler = "fair"\n')
        server = make_server("--config", str(config))
        server.submit({"command": ["sleep", "60"]})
        config.write_text('scheduler = "flex"\nobjective = "lateness"\n')  # It has no deadline.
        with pytest.raises((InputError, ServerRefusedError), match="deadline"):
            server.post("/v1/reload")
        config.write_bytes(b"\xff\xfe\0")
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)  # So that all come before it handles one.
        for _ in range(200):
            os.kill(server.process.pid, signal.SIGHUP)
        os.kill(server.process.pid, signal.SIGCONT)
        until(lambda: "was not changed" in server.log)
        config.write_text('scheduler = "fair"\n')
        assert server.post("/v1/reload")["changes"] == []
        assert server.log.count("was not changed") < 100


def test_connections_do_not_use_up_the_descriptors(server: RunningServer) -> None:
    """Those that are open continue, and jobs run; with the others gone there are new ones."""
    assert server.process is not None
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    idle = [socket.socket(socket.AF_UNIX) for _ in range(250)]
    for one in idle:
        one.connect(str(server.folder / "service" / "socket"))
    (job,) = server.submit({"command": ["true"]})
    assert server.wait(job)["state"] == "done"
    other = Transport(server.url)
    with pytest.raises((ServerClosedError, NoServerError)):
        other.get("/v1")
    for one in idle:
        one.close()
    until(lambda: answers(other))
    assert "AttributeError" not in server.log
    other.close()


def answers(transport: Transport) -> bool:
    """Whether the server answers."""
    with suppress(ServerClosedError, NoServerError):
        return bool(transport.get("/v1"))
    return False
