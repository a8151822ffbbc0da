"""Agents: tasks in slots of other processes, and what becomes of hosts."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent_processes import TOKEN, Loopback
from backends.local.calling import TIMEOUT, exists
from slotwise.backends.agents import slots as agent_slots
from slotwise.backends.agents.slots import AgentHost, AgentSlots, check_python, connect
from slotwise.backends.local.workers import Conditions, Reply, UserCodeError
from slotwise.core.cluster import Cluster, Host
from slotwise.jobs.hosts import messages
from slotwise.jobs.hosts.auth import RefusedError
from slotwise.jobs.hosts.messages import MessageStream, send
from slotwise.jobs.hosts.sockets import MAX_UNKNOWN
from waiting import until

CLUSTER = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1})))


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    """Agents of two hosts, with two slots and one."""
    source = Loopback(CLUSTER)
    try:
        yield source
    finally:
        source.close()


@pytest.fixture
def workers(loopback: Loopback) -> Iterator[AgentSlots]:
    """The slots of these agents: 0, 1 and 2."""
    agents = AgentSlots()
    for host in loopback.connect():
        agents.add(host)
    with agents as workers:
        yield workers


def replies(workers: AgentSlots, count: int = 1) -> list[Reply]:
    """The next replies, by slot."""
    found: list[Reply] = []
    until = time.monotonic() + TIMEOUT
    while len(found) < count:
        assert time.monotonic() < until
        found += [reply.opened() for reply in workers.wait(1.0)]
    return sorted(found, key=lambda reply: reply.slot)


def pid_file(path: Path) -> Callable[[], None]:
    """A task that writes its process id and then does not end."""

    def run() -> None:
        with open(f"{path}.new", "w") as file:
            file.write(str(os.getpid()))
        os.replace(f"{path}.new", path)
        time.sleep(600)

    return run


def test_tasks_run_in_the_slots_of_all_hosts(workers: AgentSlots) -> None:
    """Each slot is a process of its own."""
    for slot in range(3):
        workers.start(slot, "pid", os.getpid, ())
    found = replies(workers, 3)
    assert [reply.slot for reply in found] == [0, 1, 2]
    assert len({reply.value for reply in found} - {os.getpid()}) == 3


def test_an_error_of_a_task_is_its_reply(workers: AgentSlots) -> None:
    """As on this machine."""
    workers.start(2, "int", int, ("x",))
    (reply,) = replies(workers)
    assert reply.status == "error"
    assert "invalid literal" in str(reply.value)


def test_large_arguments_and_results_pass(workers: AgentSlots) -> None:
    """More than fits into the buffers of sockets, in both directions at once."""
    data = os.urandom(20_000_000)
    for slot in range(3):
        workers.start(slot, "turn", lambda data: data[::-1], (data,))
    assert all(reply.value == data[::-1] for reply in replies(workers, 3))


def test_a_killed_task_is_not_heard_of(workers: AgentSlots, tmp_path: Path) -> None:
    """Its process ends; its slot takes the next task at once."""
    workers.start(0, "sleep", pid_file(tmp_path / "pid"), ())
    while not (tmp_path / "pid").exists():
        assert workers.wait(0.01) == []
    workers.kill(0)
    workers.start(0, "len", len, ("abc",))
    (reply,) = replies(workers)
    assert reply.value == 3
    until(lambda: not exists(int((tmp_path / "pid").read_text())))


def test_the_result_of_a_killed_task_does_not_pass_for_that_of_the_next(
    workers: AgentSlots, loopback: Loopback, tmp_path: Path
) -> None:
    """The agent finds the result of one, the order to kill it and the next task all at once."""

    def wait(value: int) -> int:
        (tmp_path / f"begun-{value}").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        return value

    workers.start(0, "wait", wait, (1,))
    while not (tmp_path / "begun-1").exists():
        assert workers.wait(0.01) == []
    agent = loopback.agents["a"]
    agent.send_signal(signal.SIGSTOP)
    try:
        (tmp_path / "go").touch()
        time.sleep(0.3)  # Too short a time lets the test pass without a result.
        workers.kill(0)
        workers.start(0, "wait", wait, (2,))
        workers.wait(0.0)
    finally:
        agent.send_signal(signal.SIGCONT)
    assert replies(workers)[0].value == 2


def test_a_worker_that_dies_loses_its_task(workers: AgentSlots) -> None:
    """The slot goes on with another process."""
    workers.start(1, "die", lambda: os.kill(os.getpid(), signal.SIGKILL), ())
    (reply,) = replies(workers)
    assert reply.status == "lost"
    workers.start(1, "len", len, ("ab",))
    assert replies(workers)[0].value == 2


def test_a_task_is_asked_to_stop(workers: AgentSlots) -> None:
    """It keeps a value, with which its next attempt begins."""

    def runs() -> str:
        from slotwise import task

        if (kept := task.kept()) is not None:
            return f"again from {kept}"
        while not task.stop_requested():
            time.sleep(0.01)
        task.stop("half")
        raise AssertionError

    workers.start(0, "runs", runs, ())
    workers.wait(0.5)
    workers.request_stop(0, time.monotonic() + 600)
    (reply,) = replies(workers)
    assert reply.status == "stopped"
    assert isinstance(reply.value, bytes)
    workers.start(0, "runs", runs, (), Conditions(reply.value))
    assert replies(workers)[0].value == "again from half"


def test_progress_is_reported(workers: AgentSlots) -> None:
    """With the beats of the agent."""

    def runs() -> None:
        from slotwise import task

        task.progress(3, 4)
        time.sleep(600)

    workers.start(2, "runs", runs, ())
    end = time.monotonic() + TIMEOUT
    while workers.progress(2) is None:
        assert time.monotonic() < end
        workers.wait(0.1)
    assert workers.progress(2) == (3, 4)


def test_a_lost_agent_is_noticed_and_its_processes_end(
    workers: AgentSlots, loopback: Loopback, tmp_path: Path
) -> None:
    """Killed by -9: the kernel ends its workers; the other host goes on."""
    workers.start(0, "sleep", pid_file(tmp_path / "pid"), ())
    while not (tmp_path / "pid").exists():
        workers.wait(0.01)
    loopback.agents["a"].kill()
    gone: list[str] = []
    end = time.monotonic() + TIMEOUT
    while not gone:
        assert time.monotonic() < end
        workers.wait(0.1)
        gone = workers.take_disconnected()
    assert gone == ["a"]
    workers.remove([0, 1])
    until(lambda: not exists(int((tmp_path / "pid").read_text())))
    workers.start(2, "len", len, ("ab",))
    assert replies(workers)[0].value == 2


def test_a_lost_manager_ends_the_workers(loopback: Loopback, tmp_path: Path) -> None:
    """The agent itself serves the next one."""
    host = loopback.connect()[0]
    agents = AgentSlots()
    agents.add(host)
    workers = agents
    workers.start(0, "sleep", pid_file(tmp_path / "pid"), ())
    while not (tmp_path / "pid").exists():
        workers.wait(0.01)
    workers.close()
    until(lambda: not exists(int((tmp_path / "pid").read_text())))
    agents = AgentSlots()
    agents.add(loopback.connect_to("a"))
    with agents as workers:
        workers.start(0, "len", len, ("abc",))
        assert replies(workers)[0].value == 3


def test_a_frozen_agent_counts_as_stopped(
    workers: AgentSlots, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is heard of again."""
    monkeypatch.setattr(agent_slots, "SILENT_SECONDS", 1.5)
    pid = loopback.agents["b"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        end = time.monotonic() + TIMEOUT
        while not workers.is_stopped(2):
            assert time.monotonic() < end
            workers.wait(0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    while workers.is_stopped(2):
        assert time.monotonic() < end
        workers.wait(0.1)


def test_nobody_connects_without_the_token(loopback: Loopback) -> None:
    """Neither with another one, nor with anything else."""
    loopback.connect()
    address = loopback.listen["a"]
    with pytest.raises(RefusedError, match="host 'a'"):
        connect("a", address, b"wrong")
    with socket.create_connection(address) as other:
        other.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        with suppress(ConnectionResetError):
            while other.recv(1000):
                pass
    assert TOKEN != b"wrong"


@pytest.mark.parametrize("descriptors", [100, 2000])
def test_a_crowd_of_unknown_peers_keeps_nobody_out(
    descriptors: int, loopback: Loopback
) -> None:
    """Of those that say nothing, few are kept; the oldest are cut off."""
    hosts = loopback.connect()
    agent = loopback.agents["a"].pid
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    crowd = [socket.create_connection(loopback.listen["a"]) for _ in range(500)]
    try:
        loopback.connect_to("a").stream.close()
        assert len(os.listdir(f"/proc/{agent}/fd")) < MAX_UNKNOWN + 40
        # Whoever connects gets a random number, and nothing more.
        assert len(crowd[0].recv(100, socket.MSG_WAITALL)) == 4 + 32
    finally:
        for peer in [*crowd, *(host.stream for host in hosts)]:
            peer.close()


def test_another_python_is_refused() -> None:
    """Pickled functions of another version do not work."""
    with pytest.raises(RefusedError, match=r"it runs Python 2\.7\.1 .* use the same version"):
        check_python("2.7.1")


def test_an_address_without_agent_is_refused() -> None:
    """One sentence, with the host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(RefusedError, match="host 'h': its agent cannot be reached"):
        connect("h", address, TOKEN)


def test_data_that_cannot_be_sent_fail_their_task(
    workers: AgentSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes on."""
    monkeypatch.setattr(messages, "MAX_DATA", 1_000)
    with pytest.raises(UserCodeError, match="cannot be sent to a worker process: 2,"):
        workers.start(0, "len", len, (b"x" * 2_000,))
    workers.start(0, "len", len, (b"x" * 20,))
    assert replies(workers)[0].value == 20


def test_the_limit_of_a_message() -> None:
    """4 GiB, less what the message says besides."""
    assert messages.too_large(2**32 - 2**17) == ""
    assert messages.too_large(2**32).startswith("4,294,967,296 bytes are too many")


def test_a_manager_whose_connection_was_lost_is_served_again(loopback: Loopback) -> None:
    """Its agent may not have heard of the loss; the end of the old one does not end it."""
    agents = AgentSlots()
    with agents as workers:
        (slots,) = [agents.add(host) for host in loopback.connect() if host.name == "b"]
        workers.start(slots[0], "sleep", time.sleep, (600,))
        workers.wait(0.1)
        again = loopback.connect_to("b")
        agents.leave(again)
        workers.remove(slots)
        (slot,) = agents.add(again)
        workers.start(slot, "len", len, ("abc",))
        assert replies(workers)[0].value == 3
        assert loopback.agents["b"].poll() is None


@pytest.mark.parametrize(
    "message",
    [
        ["answer", 1, 1, "done", b"", 0.0],  # A slot of the other host.
        ["answer", -1, 1, "done", b"", 0.0],
        ["answer", 0, 1, "well", b"", 0.0],
        ["answer", 0, 1, "done", 7, 0.0],
        ["answer", 0, 1, "bytes", "text", 0.0],
        ["answer", 0, 1, "lost", b"", 0.0],
        ["answer", 0, 1],
        ["beat", [], [[1, 1, 0.5, 1.0]]],
        ["more"],
    ],
    ids=str,
)
def test_an_agent_answers_for_its_own_slots_only(message: list[object]) -> None:
    """One that sends anything else is disconnected; nothing is reported for other hosts."""
    ends = [socket.socketpair() for _ in range(2)]
    slots = AgentSlots()
    for name, (mine, _) in zip("ab", ends, strict=True):
        slots.add(AgentHost(name, 1, MessageStream(mine)))
    slots.learn("key", b"")
    slots.start_pickled(1, "key", b"")
    send(ends[0][1], message)
    assert slots.wait(TIMEOUT) == []
    assert slots.take_disconnected() == ["a"]
    assert slots.progress(1) is None
    slots.close()
    for _, theirs in ends:
        theirs.close()
