"""A client of a server: its jobs outlive it, and it outlives the server."""

from __future__ import annotations

import multiprocessing
import operator
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from service.conftest import RunningServer
from sessions.small_calls import fail, touch_and_wait, wait_for_file
from slotwise import Calls, Client, InputError, Job, Phase, SlotwiseError, Tasks
from slotwise.service.clients.transport import NoServerError, ServerClosedError, Transport
from slotwise.service.http.views import IDLE
from waiting import until

PATIENCE = 60.0


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    """A client of a server with two slots."""
    with Client(server.url, reconnect_seconds=PATIENCE) as opened:
        yield opened


def script(server: RunningServer, text: str) -> subprocess.CompletedProcess[str]:
    """The end of a program that uses a client."""
    path = os.pathsep.join(str(one) for one in Path(__file__).parents[1:2])
    return subprocess.run(
        [sys.executable, "-c", f"from slotwise import Client\n{text}"],
        env={**os.environ, "SLOTWISE_SERVER": server.url, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_calls_run_when_their_caller_has_been_killed(
    server: RunningServer, tmp_path: Path
) -> None:
    """A chain of calls needs no caller; another program attaches to its last one."""
    text = f"""
import os, signal
from sessions.small_calls import wait_for_file
client = Client()
first = client.submit(wait_for_file, {str(tmp_path / "go")!r})
last = client.submit(str.upper, first)
client.flush()
print(last.job, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = script(server, text)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with Client(server.url) as client:
        last = client.job(ended.stdout.strip())
        (tmp_path / "go").touch()
        assert last.result(PATIENCE) == str(tmp_path / "go").upper()


def test_a_program_that_ends_leaves_what_it_has_submitted(server: RunningServer) -> None:
    """Without `close`, its end waits until all is durable, but for no result."""
    text = """
import time
client = Client()
executor = client.executor(name="left")
futures = [executor.submit(pow, n, 2) for n in range(5)]
"""
    ended = script(server, text)
    assert ended.returncode == 0, ended.stderr
    with Client(server.url) as client:
        assert client.job("left").result(PATIENCE) == [0, 1, 4, 9, 16]
        assert client.wait("left") == "done"


def test_futures_survive_kills_of_the_server(
    server: RunningServer, client: Client, tmp_path: Path
) -> None:
    """Each ends once, with its own result, also those that were submitted meanwhile."""
    ends: list[int] = []
    go = tmp_path / "go"
    executor = client.executor(name="many")
    waits = client.submit(wait_for_file, str(go))
    futures = [executor.submit(operator.neg, n) for n in range(100)]
    futures[0].result(PATIENCE)
    server.end(signal.SIGKILL)
    futures += [executor.submit(operator.neg, n) for n in range(100, 200)]
    after = client.submit(len, waits)
    server.start()
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: ends.append(number))  # type: ignore[misc]
    assert [one.result(PATIENCE) for one in futures] == [-n for n in range(200)]
    go.touch()
    assert after.result(PATIENCE) == len(str(go))
    until(lambda: sorted(ends) == list(range(200)))


def test_a_result_has_the_id_of_its_job(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the answer to the submission, which has it, comes after the result."""
    is_done = threading.Event()
    transport = client._intake.transport
    post = transport.post_frames

    def post_slowly(path: str, body: bytes) -> Any:
        answer = post(path, body)
        assert is_done.wait(PATIENCE)
        return answer

    monkeypatch.setattr(transport, "post_frames", post_slowly)
    future = client.submit(abs, -1)
    assert future.result(PATIENCE) == 1
    job = future.job
    is_done.set()
    assert client.wait(job) == "done"


def test_futures_fail_when_the_server_does_not_return(server: RunningServer) -> None:
    """After the stated time; the client can be used when it is back."""
    with Client(server.url, reconnect_seconds=0.2) as client:
        stuck = client.submit(wait_for_file, "/no/such/file")
        client.flush()
        server.end(signal.SIGKILL)
        late = client.submit(abs, -1)
        for future in (stuck, late):
            with pytest.raises(ServerClosedError):
                future.result(PATIENCE)
        server.start()
        until(lambda: client.submit(abs, -1).exception(PATIENCE) is None)
        client.cancel(stuck)


def test_without_a_server_the_remedy_is_named(tmp_path: Path) -> None:
    """At once, and for a URL of another kind."""
    with pytest.raises(NoServerError, match="start one with `slotwise serve`"):
        Client(f"unix:{tmp_path / 'socket'}")
    with pytest.raises(InputError, match="unix:"):
        Client("ftp://localhost")
    with pytest.raises(SlotwiseError, match="slotwise login"):
        Client("http://localhost")


def test_jobs_are_held_released_changed_and_cancelled(
    server: RunningServer, client: Client, tmp_path: Path
) -> None:
    """By id or by future."""
    held = client.command(["touch", str(tmp_path / "ran")], id="held", after=[])
    assert client.wait(held) == "done"
    blockers = [client.submit(wait_for_file, str(tmp_path / "go")) for _ in range(2)]
    until(lambda: all(one.running() for one in blockers))
    waits = client.submit(abs, -1)
    client.hold(waits)
    (tmp_path / "go").touch()
    assert [one.result(PATIENCE) for one in blockers] == 2 * [str(tmp_path / "go")]
    with pytest.raises(TimeoutError):
        client.wait(waits, timeout=0.0)
    client.change(waits, priority="high")
    client.release(waits.job)
    assert waits.result(PATIENCE) == 1
    stuck = client.command("sleep 1000", id="stuck")
    client.cancel("stuck")
    until(stuck.cancelled)
    client.cancel("stuck")
    with pytest.raises(InputError, match="nobody"):
        client.job("nobody")


def test_a_job_is_attached_again(server: RunningServer, client: Client) -> None:
    """A value, an exception, an output, the results of calls in phases."""
    value, error = client.submit(abs, -3), client.submit(fail, "why")
    command = client.command("exit 3", id="bad", attempts=1)
    calls = client.run(Calls(Job("calls", (Phase("p", Tasks(2)),)), operator.neg))
    for future in (value, error, command, calls):
        client.wait(future)
    with Client(server.url) as other:
        assert other.job(value.job).result(PATIENCE) == 3
        assert isinstance(other.job(error.job).exception(PATIENCE), LookupError)
        assert "'bad' failed" in str(other.job("bad").exception(PATIENCE))
        assert other.job("calls").result(PATIENCE) == {"p": {0: 0, 1: -1}}


def test_a_job_that_begins_before_its_id_is_known_runs(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answer to its submission comes late."""
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    post = client._intake.transport.post

    def late(path: str, body: Any = None) -> Any:
        answer = post(path, body)
        time.sleep(1.0)
        return answer

    monkeypatch.setattr(client._intake.transport, "post", late)
    future = client.command(waits)
    until(future.running)
    (tmp_path / "go").touch()
    future.result(PATIENCE)


def test_a_pool_that_the_server_lacks_is_refused(
    tmp_path: Path, make_server: Callable[..., RunningServer]
) -> None:
    """By the future; later calls of other pools run."""
    config = tmp_path / "service.toml"
    config.write_text('[[pools]]\nname = "team"\n')
    server = make_server("--config", str(config))
    with Client(server.url) as client:
        with client.executor(pool="taem") as wrong:
            error = wrong.submit(abs, -1).exception(PATIENCE)
            assert isinstance(error, InputError)
            assert "'taem'" in str(error)
        assert client.executor(pool="team").submit(abs, -1).result(PATIENCE) == 1


def test_large_values_pass(client: Client) -> None:
    """An argument, a result, and a result as the argument of another call."""
    large = os.urandom(1 << 20)
    same = client.submit(bytes, large)
    assert client.submit(len, same).result(PATIENCE) == len(large)
    assert same.result(PATIENCE) == large
    assert client.submit(len, same).result(PATIENCE) == len(large)


def test_the_end_of_a_block_with_an_error_cancels(
    server: RunningServer, tmp_path: Path
) -> None:
    """The server has stopped the calls when the block ends."""

    def block() -> None:
        with Client(server.url) as client:
            calls.append(client.submit(touch_and_wait, str(tmp_path / "on"), "/no/such/file"))
            until((tmp_path / "on").exists)
            raise KeyError("stop")

    calls: list[object] = []
    with pytest.raises(KeyError):
        block()
    assert calls[0].cancelled()  # type: ignore[attr-defined]
    assert server.wait(calls[0].job)["state"] == "cancelled"  # type: ignore[attr-defined]


def test_a_forked_process_does_not_use_the_client(client: Client) -> None:
    """And the parent continues; a client is no argument of a call."""
    future = client.submit(abs, -1)
    receiver, sender = multiprocessing.Pipe()

    def use() -> None:
        try:
            client.submit(abs, -2)
        except SlotwiseError as error:
            sender.send(str(error))
        client.close()

    child = multiprocessing.get_context("fork").Process(target=use)
    child.start()
    child.join(PATIENCE)
    assert "forked" in receiver.recv()
    assert future.result(PATIENCE) == 1
    assert client.submit(abs, -2).result(PATIENCE) == 2
    with pytest.raises(InputError, match="a Client cannot be used inside a call"):
        pickle.dumps(client)


@pytest.mark.parametrize("is_job", [False, True])
def test_what_ends_before_the_server_listens_is_not_missed(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, is_job: bool
) -> None:
    """As where a first connection takes longer than a submission and its work."""
    listens, stream = threading.Event(), Transport.stream

    def late(self: Transport, path: str, body: Any = None, **query: Any) -> Iterator[Any]:
        if path == "/v1/results" and not body.get("once"):
            assert listens.wait(PATIENCE)
        yield from stream(self, path, body, **query)

    monkeypatch.setattr(Transport, "stream", late)
    with Client(server.url) as client:
        future = client.command("true", id="job") if is_job else client.submit(abs, -1)
        client.flush()
        until(lambda: [one["state"] for one in server.get("/v1/jobs")["jobs"]] == ["done"])
        listens.set()
        found = future.result(PATIENCE)
        assert Path(found).is_dir() if is_job else found == 1


def test_a_job_that_ends_while_its_answer_is_on_the_way_is_not_missed(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before the server listens: the client asks for it when it has the answer."""
    listens, told = threading.Event(), threading.Event()
    stream, post = Transport.stream, Transport.post

    def late(self: Transport, path: str, body: Any = None, **query: Any) -> Iterator[Any]:
        if path == "/v1/results" and not body.get("once"):
            assert listens.wait(PATIENCE)
        for frame in stream(self, path, body, **query):
            yield frame
            told.set()

    def slow(self: Transport, path: str, body: Any = None) -> Any:
        answer = post(self, path, body)
        until(lambda: [one["state"] for one in server.get("/v1/jobs")["jobs"]] == ["done"])
        listens.set()
        assert told.wait(PATIENCE)
        return answer

    monkeypatch.setattr(Transport, "stream", late)
    with Client(server.url) as client:
        monkeypatch.setattr(Transport, "post", slow)
        future = client.command("true", id="job")
        assert Path(future.result(PATIENCE)).is_dir()


@pytest.mark.parametrize("is_job", [False, True])
def test_what_begins_before_the_server_listens_is_known_to_run(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_job: bool
) -> None:
    """The server says at first what runs."""
    listens, stream = threading.Event(), Transport.stream

    def late(self: Transport, path: str, body: Any = None, **query: Any) -> Iterator[Any]:
        if path == "/v1/results":
            assert listens.wait(PATIENCE)
        yield from stream(self, path, body, **query)

    monkeypatch.setattr(Transport, "stream", late)
    with Client(server.url) as client:
        go = str(tmp_path / "go")
        command = f"until [ -e {go} ]; do sleep 0.02; done"
        future = client.command(command) if is_job else client.submit(wait_for_file, go)
        client.flush()
        until(lambda: server.job(future.job)["state"] == "running")
        listens.set()
        until(future.running)
        (tmp_path / "go").touch()
        future.result(PATIENCE)


def test_a_closed_client_leaves_no_thread_and_no_output(server: RunningServer) -> None:
    """The folder of a command without an output is removed; nothing more is accepted."""
    with Client(server.url) as client:
        folder = client.command("echo hello").result(PATIENCE)
        assert Path(folder, "task-00000.out").read_text() == "hello\n"
    assert not Path(folder).exists()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.submit(abs, -1)
    until(lambda: not client_threads())


def test_a_client_without_references_ends(server: RunningServer) -> None:
    """When its calls are over."""
    future = Client(server.url).submit(abs, -1)
    assert future.result(PATIENCE) == 1
    until(lambda: not client_threads())


def client_threads() -> list[threading.Thread]:
    """The threads of clients."""
    return [one for one in threading.enumerate() if "slotwise client" in one.name]


@pytest.mark.slow
def test_a_call_costs_little_in_a_pipeline(client: Client) -> None:
    """`submit` does not wait for an answer: it takes a small part of the time in all."""
    executor = client.executor()
    executor.submit(abs, -1).result(PATIENCE)
    begun = time.perf_counter()
    futures = [executor.submit(abs, -n) for n in range(3000)]
    submitted = time.perf_counter() - begun
    assert [one.result(PATIENCE) for one in futures] == list(range(3000))
    assert submitted < (time.perf_counter() - begun) / 2


def test_a_changed_module_is_imported_again(server: RunningServer, tmp_path: Path) -> None:
    """Modules of the same name of two programs do not meet in the workers either."""

    def write(folder: str, value: int) -> Path:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        (place / "deep.py").write_text(f"VALUE = {value}")
        (place / "own.py").write_text("import deep\n\n\ndef value(_):\n    return deep.VALUE\n")
        text = "with Client() as client:\n    print(set(client.map(own.value, range(8))))\n"
        (place / "main.py").write_text(f"from slotwise import Client\nimport own\n{text}")
        return place

    def run(place: Path) -> str:
        ended = subprocess.run(
            [sys.executable, "main.py"],
            env={**os.environ, "SLOTWISE_SERVER": server.url},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return ended.stdout.strip() or ended.stderr

    first, second = write("first", 1), write("second", 2)
    assert [run(first), run(second), run(first)] == ["{1}", "{2}", "{1}"]
    write("first", 333)
    assert [run(first), run(second)] == ["{333}", "{2}"]


def test_calls_that_must_not_run_again_are_lost(
    server: RunningServer, client: Client, tmp_path: Path
) -> None:
    """Those of an executor that says so; their futures have the reason."""
    begun = tmp_path / "begun"
    with client.executor(name="once", restart=False) as executor:
        future = executor.submit(_begin_and_sleep, str(begun))
        until(lambda: begun.exists() and begun.read_text())
        server.restart()
        with pytest.raises(SlotwiseError, match="restart: false"):
            future.result(PATIENCE)
    assert server.job("once")["state"] == "lost"
    assert begun.read_text() == "begun\n"


def _begin_and_sleep(path: str) -> None:
    with open(path, "a") as file:
        file.write("begun\n")
    time.sleep(PATIENCE)


def test_an_open_executor_waits_with_its_numbers_over_a_kill(
    server: RunningServer, client: Client
) -> None:
    """It is not queued: all its calls are done. The next server counts those before it."""
    executor = client.executor(name="night")
    assert [executor.submit(abs, -n).result() for n in range(3)] == [0, 1, 2]

    def looks_idle() -> bool:
        job = server.job("night")
        numbers = (job["tasks_done"], job["tasks"])
        return (job["state"], job["reason"], *numbers) == ("waiting", IDLE, 3, 3)

    until(looks_idle)
    server.restart()
    until(looks_idle)
    executor.shutdown()
    until(lambda: server.job("night")["state"] == "done")


def test_a_running_job_is_attached_as_running(
    server: RunningServer, client: Client, tmp_path: Path
) -> None:
    """A future of another program knows what has happened before it."""
    future = client.submit(wait_for_file, str(tmp_path / "go"))
    until(future.running)
    with Client(server.url) as other:
        attached = other.job(future.job)
        assert attached.running()
        (tmp_path / "go").touch()
        assert attached.result(PATIENCE) == str(tmp_path / "go")
