"""Sessions and runs on real Dask clusters, whose workers come, go and die."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

import slotwise
from backends.local.calling import TIMEOUT
from certificates import make_certificate
from dataflow_nodes import doubled, itself, links, total
from experiments.dask_cluster import dask_cluster
from gated_cluster import Cluster as Threads
from slotwise import Session
from slotwise.backends.agents import asking, dask_workers, plugin
from slotwise.backends.agents.agent import AgentConfig
from slotwise.backends.agents.slots import AgentHost
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.jobs.hosts.auth import RefusedError
from slotwise.jobs.memory import usable_memory
from waiting import until

AGENT = b"slotwise.backends.agents.agent"
ROLES = ("client", "scheduler", "worker")
MARK = f"agents-of-{os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def _marked() -> Iterator[None]:
    """The agents of these tests can be told from those of others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOTWISE_TESTS", MARK)
        yield


@pytest.fixture(scope="module")
def cluster(_marked: None) -> Iterator[LocalCluster]:
    """A cluster of two worker processes with one thread each; no agent is left afterwards."""
    before = agents()
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as made:
        yield made
        until(lambda: agents() == before)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of this cluster, when it has two workers."""
    cluster.scale(2)
    with Client(cluster, set_as_default=False) as made:
        until(lambda: len(workers_of(made)) == 2)
        yield made


def agents() -> set[int]:
    """The agents that these tests have started."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if AGENT not in (process / "cmdline").read_bytes():
                continue
            if MARK.encode() in (process / "environ").read_bytes():
                found.add(int(process.name))
        except OSError:
            continue
    return found


def workers_of(client: Client) -> dict[str, Any]:
    """The workers of a cluster, by address."""
    found: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return found


def hosts_of(session: Session) -> set[str]:
    """The names of the hosts of a session."""
    return set(session._intake.state.cluster.by_name)


def test_a_worker_that_is_left_out_is_told_of_once(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two agents runs another Python; the other one works, and looks follow."""
    left_out = min(str(worker["name"]) for worker in workers_of(client).values())

    def connect(name: str, *others: Any) -> AgentHost:
        if name == left_out:
            raise RefusedError(f"host {name!r}: it runs Python 2.7.1")
        return connected(name, *others)

    connected = asking.connect
    monkeypatch.setattr(asking, "connect", connect)
    monkeypatch.setattr(asking, "MIN_PAUSE", 0.0)
    workers = dask_workers.DaskWorkers(client)
    try:
        (host,) = workers.connect()
        assert host.name != left_out
        assert workers.connect() == workers.connect() == []
        host.stream.close()
    finally:
        workers.close()
    assert capsys.readouterr().err.splitlines() == [
        "slotwise: a worker of the Dask cluster is left out:"
        f" host {left_out!r}: it runs Python 2.7.1"
    ]


def test_a_command_without_an_output_needs_hosts_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Others do not see the temporary folder to which it would write."""
    threads = Threads(workers=1)
    try:
        with Session(dask=threads.client()) as session:
            assert Path(session.command("echo here").result(TIMEOUT)).is_dir()
            monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
            told = "folder of 'elsewhere', which host .* does not see; name a folder that all"
            with pytest.raises(InputError, match=told):
                session.command("echo nowhere")
            output = tmp_path / "out"
            assert session.command("echo there", output).result(TIMEOUT) == str(output)
    finally:
        threads.close()


def test_a_worker_whose_agent_cannot_start_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configuration is wrong, until it is corrected. It is told once, and joins later."""
    asked: list[bool] = []
    is_corrected = threading.Event()

    def speed() -> float:
        asked.append(True)
        if len(asked) != 2 and not is_corrected.is_set():  # The second one is right.
            raise InputError("slotwise-agent.speed is 7; expected a number from 0.001 to 1")
        return 1.0

    monkeypatch.setattr(plugin, "_configured_speed", speed)
    monkeypatch.setattr(dask_workers, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(asking, "MIN_PAUSE", 0.1)
    threads = Threads(workers=2)
    try:
        with Session(dask=threads.client()) as session:
            assert session.slots == 1
            assert list(session.map(abs, [-1, -2])) == [1, 2]
            until(lambda: len(asked) > 3)  # It was asked again, and again.
            is_corrected.set()
            until(lambda: len(hosts_of(session)) == 2)
    finally:
        threads.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"slotwise: a worker of the Dask cluster is left out: host '?[01]'?:"
        r" slotwise-agent.speed is 7; expected a number from 0.001 to 1",
        line,
    )


def test_a_worker_on_a_full_disk_is_left_out_with_this_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its agent has no folder for files. The folder is named, and what to do."""
    place = tmp_path / "a file"  # There can be no folder in it, as on a full disk.
    place.touch()
    given = plugin.AgentPlugin._config

    def elsewhere(self: plugin.AgentPlugin, worker: Any) -> AgentConfig:
        return replace(given(self, worker), folder=str(place))

    monkeypatch.setattr(plugin.AgentPlugin, "_config", elsewhere)
    threads = Threads(workers=1)
    told = rf"its agent cannot write to {place}: File exists; free space there, or start"
    try:
        with pytest.raises(SlotwiseError, match=told):
            Session(dask=threads.client())
    finally:
        threads.close()


def test_nothing_is_left_of_a_session_that_is_refused() -> None:
    """No worker has an agent; the cluster has no plugin and no client of slotwise."""
    threads = Threads(workers=1)
    scheduler = threads.local.scheduler
    try:
        with (
            dask.config.set({plugin.SPEED: "fast"}),
            pytest.raises(SlotwiseError, match=r"speed is 'fast'; give a number"),
        ):
            Session(dask=scheduler.address)
        assert not [name for name in scheduler.worker_plugins if "slotwise" in name]
        until(lambda: not [name for name in scheduler.clients if name.startswith("Client")])
    finally:
        threads.close()


def test_an_address_without_a_scheduler_is_refused_soon() -> None:
    """Within the time that Dask is told, or else within a few seconds."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(InputError, match=r"no Dask scheduler at .* after 0.2 s"),
    ):
        dask_workers.DaskWorkers(address)
    assert dask_workers._find_seconds() == dask_workers.FIND_SECONDS


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-OpenSSH\r\n" * 4], ids=["nothing", "hello"])
def test_a_port_on_which_another_program_listens_is_refused_soon(says: bytes) -> None:
    """Such as the dashboard, whose port is the next one, or a frozen scheduler."""

    def answer() -> None:
        connected, _ = other.accept()
        with connected:
            connected.sendall(says)
            while connected.recv(1000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor() as threads:
        answered = threads.submit(answer)
        with (
            dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
            pytest.raises(InputError, match="does not answer like a Dask scheduler"),
        ):
            dask_workers.DaskWorkers(f"tcp://127.0.0.1:{other.getsockname()[1]}")
        answered.result(TIMEOUT)


def test_the_address_of_a_worker_is_refused(client: Client) -> None:
    """With what it is the address of."""
    with pytest.raises(InputError, match=r"no Dask scheduler at .* address of a Dask worker;"):
        dask_workers.DaskWorkers(min(workers_of(client)))


def test_workers_are_not_lost_when_dask_updates_its_client_at_the_same_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks about the scheduler each two seconds, and then keeps no workers."""
    update, calls = Client._update_scheduler_info, count()

    async def overtaken(self: Client, n_workers: int = 0) -> None:
        await update(self, n_workers)  # type: ignore[no-untyped-call]
        if next(calls) % 2 == 0:
            await update(self)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Client, "_update_scheduler_info", overtaken)
    source = dask_workers.DaskWorkers(client)
    try:
        for host in (hosts := source.connect()):
            host.stream.close()
        assert len(hosts) == 2
        assert source.connect() == source.connect() == source.connect() == []
    finally:
        source.close()


def test_the_remedy_for_a_cluster_with_tls_names_its_certificates() -> None:
    """Without them the address is right, and a longer time does not help."""
    with pytest.raises(InputError, match=r"ssl_context.*distributed\.comm\.tls\.client\.cert"):
        dask_workers.DaskWorkers("tls://127.0.0.1:8786")


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With its setting, before anything is connected."""
    cert = str(tmp_path / "cert.pem")
    with (
        dask.config.set({"distributed.comm.tls.client.cert": cert}),
        pytest.raises(InputError, match=rf"tls\.client\.cert in .* is '{cert}': No such file"),
    ):
        Session(dask="tls://127.0.0.1:8786")


@pytest.mark.slow
def test_a_worker_can_be_told_to_emulate_a_slow_host() -> None:
    """Its tasks take longer by the speed that Dask's configuration states for it."""
    hosts = (Host("fast", {ANY_KIND: 1}), Host("slow", {ANY_KIND: 1}, speed=0.25))
    with (
        dask_cluster(Cluster(hosts)) as address,
        Session(dask=address, scheduler="fifo") as session,
    ):
        session.remove_host("fast")
        slow = min(session.submit(busy_share).result(TIMEOUT) for _ in range(3))
    assert slow < 0.5


def busy_share() -> float:
    """The part of the time for which this process runs while it computes."""
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() < began + 1.0:
        pass
    return (time.process_time() - used) / (time.monotonic() - began)


def slow_square(number: int) -> int:
    """The square, after a moment."""
    import time

    time.sleep(0.1)
    return number * number


@pytest.mark.parametrize(
    ("limit", "dasks", "expected"),
    [
        ("2GiB", {"GPU": 2, "MEMORY": 5e9, "tape": 0.5}, {"gpu": 2000, "tape": 500}),
        (0, {}, {}),
    ],
)
def test_a_worker_states_the_resources_of_its_host(
    limit: str | int, dasks: dict[str, float], expected: dict[str, int]
) -> None:
    """Its memory limit less a reserve, and what Dask counts; without a limit, its machine's."""
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            memory_limit=limit,
            resources=dasks,
        ) as made,
        Client(made, set_as_default=False) as client,
        Session(dask=client) as session,
    ):
        (host,) = session._intake.state.cluster.hosts
    memory = (2 << 30) - (256 << 20) if limit else usable_memory()
    assert host.resources == {"memory": memory, **expected}


def test_two_sessions_share_a_cluster(client: Client) -> None:
    """Each has its own agents; those of the first end while the second goes on."""
    before = agents()
    with Session(dask=client) as second:
        with Session(dask=client) as first:
            one = [first.submit(slow_square, n) for n in range(6)]
            two = [second.submit(slow_square, n) for n in range(6)]
            assert [call.result(TIMEOUT) for call in one] == [n * n for n in range(6)]
        assert [call.result(TIMEOUT) for call in two] == [n * n for n in range(6)]
        until(lambda: len(agents() - before) == 2)
        assert second.submit(os.getpid).result(TIMEOUT) not in (0, os.getpid())
    until(lambda: agents() <= before)


@pytest.mark.slow
def test_a_worker_that_is_killed_comes_back(client: Client) -> None:
    """Its nanny starts it again; its calls are made again meanwhile."""
    with Session(dask=client) as session:
        names = hosts_of(session)
        calls = [session.submit(slow_square, n) for n in range(20)]
        pids = client.run(os.getpid)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        assert [call.result(TIMEOUT) for call in calls] == [n * n for n in range(20)]
        until(lambda: hosts_of(session) == names and len(agents()) >= 2)
        assert session.submit(slow_square, 3).result(TIMEOUT) == 9


@pytest.mark.slow
def test_workers_come_and_leave(cluster: LocalCluster, client: Client) -> None:
    """A further worker is a further host; a retired one is none any more."""
    with Session(dask=client) as session:
        assert len(hosts_of(session)) == 2
        cluster.scale(3)
        until(lambda: len(hosts_of(session)) == 3)
        client.retire_workers([next(iter(workers_of(client)))])
        until(lambda: len(hosts_of(session)) == 2)
        calls = [session.submit(slow_square, n) for n in range(4)]
        assert [call.result(TIMEOUT) for call in calls] == [0, 1, 4, 9]


@pytest.mark.slow
def test_a_session_goes_on_without_its_client(cluster: LocalCluster, client: Client) -> None:
    """It has connections of its own; its agents end with it."""
    before = agents()
    other = Client(cluster, set_as_default=False)
    with Session(dask=other) as session:
        other.close()
        calls = [session.submit(slow_square, n) for n in range(4)]
        assert [call.result(TIMEOUT) for call in calls] == [0, 1, 4, 9]
    until(lambda: agents() <= before)


def test_word_count_on_a_cluster(client: Client, tmp_path: Path) -> None:
    """A run of a program; each host has the output of its own maps."""
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"{number}.txt").write_text("a b a\n" * 100)
    job = slotwise.mapreduce(
        "wordcount", str(tmp_path / "in"), str(tmp_path / "out"), reducers=2
    )
    result = slotwise.run([job], "fair", dask=client)
    assert not result.failed
    lines = [part.read_text() for part in (tmp_path / "out").glob("part-*")]
    assert sorted("".join(lines).split("\n")) == ["", "a\t1200", "b\t600"]


@pytest.mark.parametrize("slow_start", [0, 1])
def test_copies_share_the_slots_of_a_cluster(
    client: Client, tmp_path: Path, slow_start: float
) -> None:
    """Agents have no slots for copies only, so launches in such slots would be dropped."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text("a b a\n" * 100)
    job = slotwise.mapreduce(
        "wordcount", str(tmp_path / "in"), str(tmp_path / "out"), reducers=9
    )
    shuffle = slotwise.Shuffle(slow_start, split=True)
    log = tmp_path / "run.jsonl"
    slotwise.run([job], "fair", dask=client, shuffle=shuffle, log=log)
    assert not [turn for turn in log.read_text().splitlines() if "LaunchDropped" in turn]
    lines = [part.read_text() for part in (tmp_path / "out").glob("part-*")]
    assert sorted("".join(lines).split("\n")) == ["", "a\t600", "b\t300"]


def test_a_dataflow_on_a_cluster(client: Client, tmp_path: Path) -> None:
    """Two groups on two workers meet, and a third one reads their files."""
    flow = slotwise.Dataflow()
    numbers = flow.node(doubled, flow.values(range(100)))
    totals = flow.node(total, numbers.tcp(by=abs))
    flow.write(flow.node(doubled, totals, name="last"))
    result = slotwise.run([flow.job("flow", tmp_path / "out")], "fair", dask=client)
    assert not result.failed
    assert (tmp_path / "out" / "part-n-00000").read_text() == "19800\n"


@pytest.mark.slow
def test_a_dataflow_on_a_cluster_with_tls(tmp_path: Path) -> None:
    """A cluster that demands encryption gives its certificates to the ends of TCP channels."""
    (tmp_path / "certificate").mkdir()
    made = make_certificate(tmp_path / "certificate")
    files = {f"tls_{role}_{key}": made[key] for role in ROLES for key in ("cert", "key")}
    security = Security(tls_ca_file=made["ca_file"], require_encryption=True, **files)
    flow = slotwise.Dataflow()
    numbers = flow.node(doubled, flow.values(range(100)))
    flow.write(flow.node(itself, flow.node(links, numbers.tcp()).tcp()))
    with (
        LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            protocol="tls://",
            security=security,
        ) as cluster,
        Client(cluster, set_as_default=False, security=security) as client,
    ):
        result = slotwise.run([flow.job("flow", tmp_path / "out")], "fair", dask=client)
    assert not result.failed
    assert (tmp_path / "out" / "part-n-00000").read_text() == "0 2 9900\n"


JOBS = """\
slotwise: 1
jobs:
  - {id: count, program: wordcount, inputs: "in/*.txt", output: out}
"""


def test_an_address_without_a_port_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """The client that Dask has begun to make for it does not keep the process from ending."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.txt").write_text("a\n")
    (tmp_path / "jobs.yaml").write_text(JOBS)
    run = [sys.executable, "-m", "slotwise", "run", "jobs.yaml", "--dask", "127.0.0.1"]
    found = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    (sentence,) = found.stderr.splitlines()
    assert "no Dask scheduler at '127.0.0.1': missing port number" in sentence


@pytest.mark.slow
def test_the_command_on_a_cluster_that_ends(tmp_path: Path) -> None:
    """Of `dask scheduler` and `dask worker`: one run succeeds; without hosts, another fails."""
    before = agents()
    dask = str(Path(sys.executable).with_name("dask"))
    begin = [dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    file = tmp_path / "cluster.json"
    (tmp_path / "jobs.yaml").write_text(JOBS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a b a\n")
    scheduler = subprocess.Popen([*begin, "--scheduler-file", str(file)], cwd=tmp_path)
    workers = []
    try:
        until(file.exists)
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            address = client.scheduler.address
            for _ in range(2):
                start = [dask, "worker", address, "--nthreads", "1", "--no-dashboard"]
                workers.append(subprocess.Popen(start, cwd=tmp_path))
            until(lambda: len(workers_of(client)) == 2)
        run = [sys.executable, "-m", "slotwise", "run", "jobs.yaml", "--dask", address]
        assert subprocess.run(run, cwd=tmp_path, timeout=TIMEOUT).returncode == 0
        assert sorted((tmp_path / "out").glob("part-*"))
        scheduler.kill()
        scheduler.wait()
        found = subprocess.run(
            run, cwd=tmp_path, timeout=TIMEOUT, capture_output=True, text=True, check=False
        )
        assert found.returncode != 0
        assert "no Dask scheduler at" in found.stderr
        assert "Traceback" not in found.stderr
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()
    until(lambda: agents() <= before)


@pytest.mark.slow
def test_a_session_ends_clearly_when_its_cluster_does() -> None:
    """Without hosts its calls wait; they are cancelled, or fail if no host can join."""
    before = agents()
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    client = Client(cluster, set_as_default=False)
    session = Session(dask=client)
    call = session.submit(time.sleep, 600)
    until(call.running)
    client.close()
    cluster.close()
    until(lambda: not hosts_of(session))
    session.close(cancels=True)
    assert call.cancelled() or "no host is left" in str(call.exception())
    until(lambda: agents() <= before)
