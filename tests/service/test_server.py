"""The server by its HTTP interface: submissions, changes of jobs, and the end of the server."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from service.conftest import RunningServer
from slotwise.core.errors import InputError
from slotwise.service.clients.transport import (
    MissingJobError,
    NoServerError,
    ServerClosedError,
    ServerRefusedError,
    Transport,
)
from waiting import until


def test_a_command_runs_and_its_output_is_kept(server: RunningServer) -> None:
    """Its times are in order, too."""
    (job,) = server.submit({"command": ["sh", "-c", "echo out; echo err >&2"]})
    ended = server.wait(job)
    assert (job, ended["state"], ended["tasks_done"]) == ("1", "done", 1)
    assert [one["id"] for one in server.get("/v1/jobs", user=getpass.getuser())["jobs"]] == [
        job
    ]
    assert ended["submitted"] <= ended["begun"] <= ended["ended"] <= time.time()
    assert sorted(server.printed(job).split()) == ["err", "out"]


def test_a_command_has_the_environment_and_the_folder_of_its_client(
    server: RunningServer,
) -> None:
    """Those of the server do not matter."""
    jobs = [
        {"command": "echo $COLOUR; pwd", "env": {"COLOUR": "red"}},
        {"command": "echo $HUE"},
    ]
    environ = {**os.environ, "HUE": "blue"}
    first, second = server.submit(*jobs, environ=environ, folder="/usr")
    server.wait(first), server.wait(second)
    assert server.printed(first).split() == ["red", "/usr"]
    assert server.printed(second).split() == ["blue"]


def test_the_tasks_of_an_array_have_the_stated_numbers(server: RunningServer) -> None:
    """Both of a list and of a string."""
    as_list = {"command": ["echo", "{task}"], "tasks": 3, "first_task": 7}
    as_string = {"command": "echo $SLOTWISE_TASK", "tasks": 3, "first_task": 7}
    for job in server.submit(as_list, as_string):
        assert server.wait(job)["state"] == "done"
        assert sorted(server.printed(job).split()) == ["7", "8", "9"]


def test_tasks_of_phases_are_told_apart(server: RunningServer) -> None:
    """Also those with equal numbers, and when those that run began."""
    phases = [
        {"name": "a", "work": 0.01, "tasks": 2},
        {"name": "b", "work": 60, "tasks": 1, "after": ["a"]},
    ]
    (job,) = server.submit({"phases": phases})
    until(lambda: server.job(job)["tasks_running"] == 1 and server.job(job)["tasks_done"] == 2)
    until(lambda: len(server.job(job)["tasks_listed"]) == 3)
    listed = server.job(job)["tasks_listed"]
    found = [(one["phase"], one["task"], one["state"]) for one in listed]
    assert found == [("b", 0, "running"), ("a", 0, "done"), ("a", 1, "done")]
    assert all(abs(time.time() - one["begun"]) < 60 for one in listed)


def test_ids_are_stated_numbered_and_never_given_twice(server: RunningServer) -> None:
    """Also not after a restart."""
    command = {"command": ["true"]}
    assert server.submit({**command, "id": "a"}, command, {**command, "id": "a"}) == [
        "a",
        "2",
        "a-2",
    ]
    for job in ("a", "2", "a-2"):
        server.wait(job)
    server.restart()
    assert server.submit({**command, "id": "a"}, command) == ["a-3", "5"]


def test_an_id_does_not_end_like_the_path_of_a_request(server: RunningServer) -> None:
    """Otherwise two paths would be the same."""
    with pytest.raises(InputError, match="name of a request"):
        server.submit({"command": ["true"], "id": "a/wait"})
    assert server.submit(
        {"command": ["true"], "id": "wait"}, {"command": ["true"], "id": "a/b"}
    )
    assert server.wait("a/b")["state"] == server.wait("wait")["state"] == "done"


def test_the_same_key_gives_the_same_jobs(server: RunningServer) -> None:
    """A client that does not know whether it was heard asks again."""
    command = {"command": ["true"]}
    first = server.submit(command, command, key="k")
    assert server.submit(command, command, key="k") == first
    server.restart()
    assert server.submit(command, command, key="k") == first
    assert server.submit(command, key="other") != first[:1]


def test_all_jobs_of_a_submission_are_accepted_or_none(server: RunningServer) -> None:
    """Each message names what is wrong."""
    wrong = [
        ({"command": ["no-such-program"]}, "no-such-program"),
        ({"command": ["true"], "after": ["nobody"]}, "nobody"),
        ({"command": ["true"], "slots_max": -1}, "slots_max"),
        ({"command": ["true"], "resources": {"memory": "900 TiB"}}, "memory"),
        ({"command": ["true"], "restart": "no"}, "restart"),
        ({"command": ["true"], "name": "red\x1b[31m"}, "control character"),
        ({"command": ["true"], "name": 5}, "name"),
        ({"command": ["true"], "colour": 1}, "colour"),
        ({}, "job"),
    ]
    for job, text in wrong:
        with pytest.raises(InputError, match=text):
            server.submit({"command": ["true"]}, job), text
    assert server.get("/v1/jobs")["jobs"] == []
    with pytest.raises(InputError, match="colour"):
        server.submit({"command": ["true"], "array_index": 0}, wrong[-2][0])
    assert server.submit({"command": ["true"]}) == ["1"]  # No number is used up.


def test_jobs_wait_for_others_also_for_earlier_ones(server: RunningServer) -> None:
    """A job whose predecessor has failed is cancelled, unless it runs all the same."""
    gate = server.folder / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    (first,) = server.submit({"id": "first", "command": wait})
    second, third = server.submit(
        {"id": "third", "command": "echo 3", "after": ["second"]},
        {"id": "second", "command": "echo 2", "after": ["first"]},
    )
    (failed,) = server.submit({"id": "bad", "command": "exit 3", "after": "first"})
    after, anyway = server.submit(
        {"id": "after", "command": "true", "after": ["bad"]},
        {"id": "anyway", "command": "true", "after": ["bad"], "after_failed": "run"},
    )
    assert server.job("second")["state"] == "waiting"
    with pytest.raises(InputError, match="circle"):
        server.submit(
            {"id": "x", "command": "true", "after": ["y"]},
            {"id": "y", "command": "true", "after": ["x"]},
        )
    gate.touch()
    ends = {job: server.wait(job) for job in (first, second, third, failed, after, anyway)}
    states = {job: one["state"] for job, one in ends.items()}
    assert states == {
        **dict.fromkeys(("first", "second", "third", "anyway"), "done"),
        "bad": "failed",
        "after": "cancelled",
    }
    assert ends["second"]["ended"] <= ends["third"]["begun"]
    assert "bad" in ends["after"]["reason"]
    (late,) = server.submit({"command": "true", "after": ["bad"]})
    assert server.job(late)["state"] == "cancelled"
    (fine,) = server.submit({"command": "true", "after": ["second"]})
    assert server.wait(fine)["state"] == "done"


def test_a_job_is_held_released_moved_and_cancelled(server: RunningServer) -> None:
    """A change is kept over a restart."""
    blocks = server.submit(*[{"command": ["sleep", "60"]}] * 2)
    (job,) = server.submit({"id": "job", "command": "true"})
    assert server.post("/v1/jobs/job/hold")["state"] == "held"
    changed = {"priority": "high", "weight": 3, "pool": "team", "deadline": "1h"}
    found = server.post("/v1/jobs/job/change", changed)
    assert (found["priority"], found["weight"], found["pool"]) == ("high", 3, "team")
    assert found["deadline"] == pytest.approx(time.time() + 3600, abs=60)
    for block in blocks:
        server.post(f"/v1/jobs/{block}/cancel")
        assert server.wait(block)["state"] == "cancelled"
    server.restart()
    found = server.job(job)
    assert (found["state"], found["pool"], found["priority"]) == ("held", "team", "high")
    server.post("/v1/jobs/job/release")
    assert server.wait(job)["state"] == "done"
    with pytest.raises(ServerRefusedError, match="is over"):
        server.post("/v1/jobs/job/change", {"weight": 2})
    with pytest.raises(MissingJobError, match="nobody"):
        server.post("/v1/jobs/nobody/cancel")
    with pytest.raises(InputError, match="priority"):
        server.submit({"command": "true", "priority": "urgent"})


def test_why_a_job_waits_is_explained(server: RunningServer) -> None:
    """The numbers of pools, workers and status agree."""
    block, _ = server.submit(*[{"command": ["sleep", "60"]}] * 2)
    (job,) = server.submit({"command": "true"})
    until(lambda: server.job(job)["reason"])
    until(lambda: server.job(block)["tasks_listed"])
    (task,) = server.job(block)["tasks_listed"]
    assert task["begun"] == pytest.approx(time.time(), abs=60)
    found = server.get(f"/v1/jobs/{job}/explain")
    assert "slot" in found["text"]
    assert found["waiting"]["position"] == found["waiting"]["waiting"] == 1
    server.post(f"/v1/jobs/{job}/hold")
    held = server.get(f"/v1/jobs/{job}/explain")["waiting"]
    assert (held["reason"], held["remedy"]) == ("held", f"`slotwise release {job}`")
    counts = server.get("/v1")["jobs"]
    assert (counts["running"], counts["queued"], counts["held"]) == (2, 0, 1)
    assert [one["name"] for one in server.get("/v1/pools")["pools"]] == ["default"]
    server.post(f"/v1/jobs/{job}/release")
    (pool,) = server.get("/v1/pools")["pools"]
    assert (pool["held"], pool["running"], pool["queued"]) == (2, 2, 1)
    (worker,) = server.get("/v1/workers")["workers"]
    assert (worker["slots"], worker["busy"]) == (2, 2)
    status = server.get("/v1")
    assert (status["busy"], status["jobs"]["running"], status["jobs"]["queued"]) == (2, 2, 1)


def test_old_jobs_are_listed_in_pages_and_forgotten(server: RunningServer) -> None:
    """The newest are at the end."""
    jobs = server.submit(*[{"command": "true"}] * 7)
    for job in jobs:
        server.wait(job)
    page = server.get("/v1/jobs", limit=3)
    assert [one["id"] for one in page["jobs"]] == jobs[-3:]
    assert page["more"]
    before = page["jobs"][0]["number"]
    assert [
        one["id"] for one in server.get("/v1/jobs", limit=9, before=before)["jobs"]
    ] == jobs[:4]
    server.post(f"/v1/jobs/{jobs[0]}/forget")
    with pytest.raises(MissingJobError):
        server.job(jobs[0])


@pytest.mark.parametrize(("change", "code"), [("rm", 127), ("chmod -x", 126)])
def test_a_program_that_cannot_start_is_tried_once(
    server: RunningServer, tmp_path: Path, change: str, code: int
) -> None:
    """Its job ends with the code that a shell would have."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    first = {"command": f"{change} {program}", "id": "first"}
    _, job = server.submit(first, {"command": [str(program)], "after": ["first"]})
    ended = server.wait(job)
    assert (ended["state"], ended["code"], ended["tasks_failed"]) == ("failed", code, 1)


def test_commands_survive_the_server(server: RunningServer) -> None:
    """They run once although it is killed twice; tasks that are done do not run again."""
    gate = server.folder / "gate"
    script = (
        f"echo $SLOTWISE_TASK >> {server.folder}/ran;"
        f" [ $SLOTWISE_TASK -lt 3 ] || while [ ! -e {gate} ]; do sleep 0.02; done;"
        " echo $SLOTWISE_TASK; exit $(($SLOTWISE_TASK / 5 * 7))"
    )
    (job,) = server.submit({"command": script, "tasks": 6, "attempts": 1})
    ran = server.folder / "ran"
    until(lambda: ran.exists() and len(ran.read_text().split()) == 5)
    until(lambda: server.job(job)["tasks_done"] == 3)
    server.restart()
    until(lambda: server.job(job)["tasks_running"] == 2)
    server.restart(signal.SIGTERM)
    assert server.job(job)["restarts"] == 0
    gate.touch()
    ended = server.wait(job)
    assert (ended["state"], ended["code"]) == ("failed", 7)
    assert sorted(ran.read_text().split()) == list("012345")
    assert sorted(server.printed(job).split()) == list("012345")


def test_a_server_whose_store_fails_ends_and_keeps_its_jobs(server: RunningServer) -> None:
    """Else who waits for a job that has ended would wait for ever."""
    waits = "echo begun >> begun; until [ -e go ]; do sleep 0.02; done"
    jobs = server.submit({"command": waits}, {"command": "until [ -e ever ]; do sleep 1; done"})
    until(lambda: all(server.job(one)["state"] == "running" for one in jobs))
    broken = "BEFORE UPDATE OF ended ON jobs BEGIN INSERT INTO missing VALUES (1); END"
    with closing(sqlite3.connect(server.folder / "service" / "store.db")) as database:
        database.execute(f"CREATE TRIGGER broken {broken}")
        (server.folder / "go").touch()
        assert server.process is not None
        assert server.process.wait(60) == 1
        assert "what has ended cannot be stored" in server.log
        assert "all jobs are kept" in server.log
        database.execute("DROP TRIGGER broken")
    server.transport.close()
    server.start()
    assert server.wait(jobs[0])["state"] == "done"
    assert (server.folder / "begun").read_text() == "begun\n"
    assert server.job(jobs[1])["state"] == "running"


def test_a_command_that_ended_without_a_server_is_done(server: RunningServer) -> None:
    """Its output folder is written by the next server."""
    gate, out = server.folder / "gate", server.folder / "out"
    begun, ended_by = server.folder / "begun", server.folder / "ended"
    wait = (
        f"touch {begun}; until [ -e {gate} ]; do sleep 0.02; done; echo done; touch {ended_by}"
    )
    (job,) = server.submit({"command": wait, "output": str(out)})
    until(begun.exists)
    server.end(signal.SIGKILL)
    gate.touch()
    until(ended_by.exists)
    server.start()
    ended = server.wait(job)
    assert (ended["state"], ended["code"], ended["restarts"]) == ("done", 0, 0)
    assert (out / "task-00000.out").read_text() == "done\n"
    assert ended["output"] == str(out)


def test_a_job_that_must_not_run_again_is_lost(server: RunningServer) -> None:
    """Another one of the same kind runs again."""
    sleeps = {"phases": [{"name": "p", "work": 600, "tasks": 1}]}
    kept, lost = server.submit(sleeps, {**sleeps, "restart": False})
    until(lambda: server.job(kept)["begun"] and server.job(lost)["begun"])
    server.restart()
    until(lambda: server.job(lost)["state"] == "lost")
    assert "restart" in server.job(lost)["reason"]
    assert server.job(kept)["restarts"] == 1
    server.post(f"/v1/jobs/{kept}/cancel")


def test_a_stop_in_order_keeps_the_queue(server: RunningServer) -> None:
    """The next server runs it."""
    jobs = server.submit(*[{"command": ["sleep", "0.4"]}] * 4)
    assert server.end() == 0
    assert not (server.folder / "service" / "socket").exists()
    server.start()
    assert [server.wait(job)["state"] for job in jobs] == ["done"] * 4


def test_the_socket_is_private_and_the_folder_has_one_server(server: RunningServer) -> None:
    """A second server is refused, and harms nothing."""
    assert os.stat(server.folder / "service" / "socket").st_mode & 0o777 == 0o600
    assert os.stat(server.folder / "service").st_mode & 0o777 == 0o700
    assert server.process is not None
    other = subprocess.run(
        [sys.executable, "-m", "slotwise", "serve", "--folder", server.folder / "service"],
        env=server.environ,
        capture_output=True,
        text=True,
    )
    assert other.returncode == 2
    assert f"process {server.process.pid}" in other.stderr
    assert server.get("/v1")["state"] == "running"


def test_a_refused_job_leaves_its_id(server: RunningServer) -> None:
    """So do those that were to be submitted with it."""
    too_large = {"command": "true", "id": "train", "resources": {"memory": "900 TB"}}
    for _ in range(2):
        with pytest.raises(InputError, match="job 'train-2'"):
            server.submit({"command": "true", "id": "train"}, too_large)
    jobs = server.submit({"command": "true", "id": "train"}, {"command": "true", "id": "train"})
    assert jobs == ["train", "train-2"]


@pytest.mark.parametrize("timeout", ["soon", "-1", "nan"])
def test_a_timeout_is_a_time(server: RunningServer, timeout: str) -> None:
    """Others are refused."""
    (job,) = server.submit({"command": "true"})
    with pytest.raises(InputError, match="timeout"):
        server.get(f"/v1/jobs/{job}/wait", timeout=timeout)


def test_a_configuration_is_read_again(make_server: Callable[..., RunningServer]) -> None:
    """A wrong one changes nothing; no task is lost."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "team.toml")
        config.write_text('scheduler = "fair"\n[[pools]]\nname = "a"\nweight = 2\n')
        server = make_server("--config", str(config))
        (job,) = server.submit({"command": ["sleep", "60"], "pool": "a"})
        with pytest.raises(InputError, match="pool 'b'"):
            server.submit({"command": "true", "pool": "b"})
        config.write_text(
            'scheduler = "fifo"\nobjective = "stretch"\n'
            '[[pools]]\nname = "a"\nweight = 3\n[[pools]]\nname = "b"\n'
        )
        texts = server.post("/v1/reload")["changes"]
        assert len(texts) == 4, texts
        assert any("pool a has changed: weight 3" in text for text in texts), texts
        assert server.post("/v1/reload")["changes"] == []
        status = server.get("/v1")
        assert (status["scheduler"], status["objective"]) == ("fifo", "stretch")
        (after,) = server.submit({"command": "true", "pool": "b"})
        assert server.wait(after)["state"] == "done"
        assert server.job(job)["state"] == "running"
        for wrong, message in (
            ('scheduler = "nobody"\n', "nobody"),
            ("[pools]\nheld = 1\n", "pool 'held' is that of jobs on hold; rename yours"),
            ("[pools]\nx = {resources_max = {memroy = 1}}\n", "team.toml: .*'memroy'"),
        ):
            config.write_text(wrong)
            with pytest.raises(InputError, match=message):
                server.post("/v1/reload")
        assert server.job(job)["state"] == "running"
        server.post(f"/v1/jobs/{job}/cancel")


def test_a_pool_limits_the_memory_of_commands(
    make_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    """The third waits, which its reason and `/v1/pools` say; a larger limit starts it."""
    config = tmp_path / "team.toml"
    limit = '[[pools]]\nname = "lab"\nresources_max = {memory = "%s"}\n'
    config.write_text(limit % "2 MiB")
    server = make_server("--slots", "4", "--config", str(config))
    entry = {"command": ["sleep", "60"], "pool": "lab", "resources": {"memory": "1 MiB"}}
    jobs = [server.submit(entry)[0] for _ in range(3)]
    with pytest.raises(InputError, match="requests memory 3 MiB, but pool 'lab' may hold at"):
        server.submit({**entry, "resources": {"memory": "3 MiB"}})
    until = time.monotonic() + 60
    while server.get("/v1/pools")["pools"][0]["held"] < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    (lab,) = (pool for pool in server.get("/v1/pools")["pools"] if pool["name"] == "lab")
    assert lab["resources"] == {"memory": {"total": 2 << 20, "used": 2 << 20}}
    waits = server.job(jobs[2])
    assert waits["state"] == "queued", waits
    assert "pool 'lab' holds memory 2 MiB of at most 2 MiB" in str(waits), waits
    config.write_text(limit % "3 MiB")
    assert server.post("/v1/reload")["changes"] == ["pool lab has changed: resources_max"]
    until = time.monotonic() + 60
    while server.job(jobs[2])["state"] != "running":
        assert time.monotonic() < until
        time.sleep(0.02)


def test_output_and_the_log_have_limits(
    make_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    """The configuration states that of output; of a large log a copy is kept once."""
    config = tmp_path / "c.toml"
    config.write_text('[service]\noutput_max = "1 KiB"\n')
    server = make_server("--config", str(config))
    (job,) = server.submit({"command": "yes | head -c 100000"})
    assert server.wait(job)["state"] == "done"
    printed = server.printed(job)
    assert len(printed) < 1200
    assert "more than 1 KiB; the rest was dropped" in printed
    log = tmp_path / "server.log"
    code = (
        "import pathlib, sys; from slotwise.service.http import serving;"
        "serving.renew_log(pathlib.Path(sys.argv[1])); print('new', file=sys.stderr)"
    )
    for size in (100, 11_000_000):
        log.write_bytes(b"x" * size)
        with log.open("ab") as stderr:
            subprocess.run([sys.executable, "-c", code, log], stderr=stderr, check=True)
    assert log.read_text() == "new\n"
    assert (tmp_path / "server.log.1").stat().st_size == 11_000_000


def test_a_server_that_stops_accepts_nothing(server: RunningServer) -> None:
    """Requests are told that it stops."""
    server.submit({"phases": [{"name": "p", "work": 600, "tasks": 1}]})
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGTERM)

    def submit_until_closed() -> None:
        for _ in range(1000):
            server.submit({"command": "true"})

    with pytest.raises(ServerClosedError):
        submit_until_closed()
    assert server.process.wait(60) == 0


def test_a_wait_is_told_that_the_server_stops(server: RunningServer) -> None:
    """It can go on with the next server."""
    (job,) = server.submit({"command": "sleep 100"})
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(Transport(server.url).get, f"/v1/jobs/{job}/wait", timeout=60)
        until(lambda: server.job(job)["tasks_running"])
        server.end()
        with pytest.raises((ServerClosedError, NoServerError)):
            waits.result(60)


def test_a_server_that_has_ended_since_the_last_request_may_return(tmp_path: Path) -> None:
    """Who waits goes on to wait; only without a server from the beginning there is none."""
    path = tmp_path / "socket"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            connection.recv(1 << 16)
            listening.close()

    serving = threading.Thread(target=serve)
    serving.start()
    transport = Transport(f"unix:{path}")
    assert transport.get("/v1") == {}
    with pytest.raises(ServerClosedError, match="no server listens"):
        transport.get("/v1")
    with pytest.raises(NoServerError):
        transport.get("/v1")
    serving.join()
