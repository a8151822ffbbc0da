"""Those who run shell jobs and calls on two slots: slotwise's server, and its peers.

Each is a context manager that takes an empty folder, and leaves no process at its exit. One
that does not install raises ImportError. Python packages are in the extra `bench`; the others
are Debian's: apt-get install tmux task-spooler slurmctld slurmd slurm-client
"""

from __future__ import annotations

import getpass
import multiprocessing
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from slotwise.service.transport import NoServerError, Transport

SLOTS, START_SECONDS = 2, 60.0


def nothing(*_: object) -> None:
    """What a call that does nothing calls."""


@dataclass(frozen=True, slots=True)
class Peer:
    """How one is used.

    submit      accept a job of a command; True for the best that it offers to begin first
    submit_all  accept many jobs of a command, in its fastest way
    calls       make so many calls at once, and wait for their results
    finish      wait until the ends of all jobs are known here, if that can be told
    best        what it offers to begin first
    """

    submit: Callable[[Sequence[str], bool], object]
    submit_all: Callable[[Sequence[str], int], object]
    calls: Callable[[int], object] | None = None
    finish: Callable[[], object] = nothing
    best: str = ""


@contextmanager
def serving(folder: Path) -> Iterator[Transport]:
    """A server of slotwise with two pools, when it answers."""
    config, place = folder / "config.toml", folder / "service"
    config.write_text('[[pools]]\nname = "small"\n[[pools]]\nname = "large"\n')
    options = ["--slots", str(SLOTS), "--config", str(config), "--folder", str(place)]
    transport = Transport(f"unix:{place / 'socket'}")
    with process(folder, [sys.executable, "-m", "slotwise", "serve", *options]):
        wait_for(lambda: not transport.get("/v1")["restoring"])
        yield transport
        transport.close()


@contextmanager
def slotwise(folder: Path) -> Iterator[Peer]:
    """Jobs and their ends are durable before they are told."""
    from slotwise import Client

    with serving(folder) as transport, Client(f"unix:{transport.path}") as client:
        about = {"folder": str(folder), "environ": dict(os.environ), "client": "bench"}
        news = transport.stream("/v1/results", {"client": "bench", "calls": {}, "jobs": []})
        next(news)  # Now it follows.
        jobs: set[str] = set()

        def submit(pool: str, command: Sequence[str], count: int) -> None:
            entries = [{"command": list(command), "pool": pool}] * count
            found = transport.post("/v1/jobs", {**about, "jobs": entries})
            jobs.update(one["id"] for one in found["jobs"])

        def finish() -> None:
            while jobs:
                end, _ = next(news)
                if "job" in end and end["state"] not in ("queued", "running"):
                    assert end["state"] == "done", end
                    jobs.discard(end["job"])

        yield Peer(
            lambda command, first: submit("small", command, 1),
            partial(submit, "large"),
            calls_by(client.executor(pool="small").submit),
            finish,
        )
        news.close()  # type: ignore[attr-defined]


def of_calls(submit: Callable[..., Any], first: Callable[..., Any], best: str = "") -> Peer:
    """Workers that run commands by calls; `first` submits what is to begin first."""
    made: list[Any] = []

    def job(command: Sequence[str], is_first: bool = False) -> None:
        made.append((first if is_first else submit)(subprocess.run, command))

    return Peer(
        job,
        lambda command, count: [job(command) for _ in range(count)],
        calls_by(submit),
        lambda: [one.result() for one in made],
        best,
    )


def calls_by(submit: Callable[..., Any]) -> Callable[[int], object]:
    return lambda count: futures.wait([submit(abs, number) for number in range(count)])


@contextmanager
def process_pool(folder: Path) -> Iterator[Peer]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(SLOTS, mp_context=spawn) as pool:
        try:
            yield of_calls(pool.submit, pool.submit)
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def dask_cluster(folder: Path) -> Iterator[Peer]:
    from distributed import Client, LocalCluster

    stated = {"dashboard_address": None, "local_directory": str(folder), "silence_logs": 50}
    with (
        LocalCluster(n_workers=SLOTS, threads_per_worker=1, **stated) as cluster,
        Client(cluster) as client,
    ):
        first = partial(client.submit, pure=False, priority=100)
        yield of_calls(client.get_executor(pure=False).submit, first, "priority")


@contextmanager
def hyperqueue(folder: Path) -> Iterator[Peer]:
    """Without a journal. Its client looks for ends each second."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig
    from hyperqueue.task.function import PythonEnv

    with LocalCluster(str(folder), WorkerConfig(cores=SLOTS)) as cluster:
        client = cluster.client(python_env=PythonEnv(sys.executable))

        def submit(command: Sequence[str], is_first: bool, count: int = 1) -> None:
            job = Job(default_workdir=folder)
            for _ in range(count):
                job.program([*command], priority=int(is_first), stdout=None, stderr=None)
            client.submit(job)

        def calls(count: int) -> None:
            job = Job(default_workdir=folder)
            for number in range(count):
                job.function(abs, args=(number,), stdout=None, stderr=None)
            client.wait_for_jobs([client.submit(job)])

        yield Peer(
            submit,
            lambda command, count: submit(command, False, count),
            calls,
            best="priority",
        )


@contextmanager
def task_spooler(folder: Path) -> Iterator[Peer]:
    """Its queue is in memory; a process of each job waits for its turn."""
    run = tool("tsp", TS_SOCKET=f"{folder}/socket", TMPDIR=f"{folder}", TS_MAXCONN="2000")
    run("-S", str(SLOTS))

    def submit(command: Sequence[str], is_first: bool = False) -> None:
        run(*command)
        if is_first:
            run("-u")

    try:
        all_in_turn = lambda command, count: [submit(command) for _ in range(count)]
        yield Peer(submit, all_in_turn, best="-u")
    finally:
        run("-K")


@contextmanager
def gflow(folder: Path) -> Iterator[Peer]:
    """Sessions of tmux. It counts memory but no processors: two jobs fit at a time."""
    port, profile = free_port(), folder / ".profile"  # Its shells of logins find its tools.
    profile.write_text(f"export PATH={shlex.quote(PATH)}\n")
    (folder / "gflow").mkdir()
    config = folder / "gflow" / "gflow.toml"
    config.write_text(f'[daemon]\nhost = "127.0.0.1"\nport = {port}\n')
    homes = ("HOME", "TMUX_TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    environ = dict.fromkeys(homes, str(folder)) | {"PATH": PATH}
    batch, tmux = tool("gbatch", **environ), tool("tmux", **environ)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 5 >> 20
    options = ["--auto-close", "-m", f"{memory}M"]

    def submit(command: Sequence[str], *more: str) -> None:
        batch(*options, *more, *command, *["--"] * (len(command) == 1))  # Not a script.

    try:
        with process(folder, [path_of("gflowd")], **environ):
            wait_for(lambda: socket.create_connection(("127.0.0.1", port)).close() or True)
            yield Peer(
                lambda command, first: submit(command, *["-p", "100"] * first),
                lambda command, count: submit(command, "--array", f"1-{count}"),
                best="priority",
            )
    finally:
        with suppress(subprocess.CalledProcessError):  # It ends with its last session.
            tmux("kill-server")


SLURM = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={other_port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots}
PartitionName=normal Nodes={host} Default=YES PriorityTier=1
PartitionName=urgent Nodes={host} PriorityTier=10
"""


@contextmanager
def slurm(folder: Path) -> Iterator[Peer]:
    """As it comes, without authentication and accounting."""
    config, user = folder / "slurm.conf", getpass.getuser()
    host, port, other = socket.gethostname().split(".")[0], free_port(), free_port()
    stated = {"host": host, "port": port, "other_port": other, "user": user}
    config.write_text(SLURM.format(folder=folder, slots=SLOTS, **stated))
    conf = str(config)
    batch, info = tool("sbatch", SLURM_CONF=conf), tool("sinfo", SLURM_CONF=conf)
    queue, cancel = tool("squeue", SLURM_CONF=conf), tool("scancel", SLURM_CONF=conf)

    def submit(command: Sequence[str], *options: str) -> None:
        batch("-Q", "-o", f"{folder}/%j", *options, "--wrap", shlex.join(command))

    with (
        process(folder, [path_of("slurmctld"), "-D", "-f", conf]),
        process(folder, [path_of("slurmd"), "-D", "-f", conf]),
    ):
        wait_for(lambda: b"idle" in info("-h"))
        try:
            yield Peer(
                lambda command, first: submit(command, *["-p", "urgent"] * first),
                lambda command, count: submit(command, f"--array=1-{count}"),
                best="partition",
            )
        finally:
            cancel(f"--user={user}")
            wait_for(lambda: not queue("-h"))


PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"))


def path_of(name: str) -> str:
    """The path of a program. ImportError without it."""
    if path := shutil.which(name, path=PATH):
        return path
    raise ImportError(name)


def tool(name: str, **environ: str) -> Callable[..., bytes]:
    """Runs a program with arguments; what it prints."""
    path, variables = path_of(name), os.environ | environ
    return lambda *words: subprocess.check_output(
        [path, *words], env=variables, stderr=subprocess.STDOUT
    )


@contextmanager
def process(folder: Path, command: Sequence[str], **environ: str) -> Iterator[None]:
    """A process that is ended at the exit."""
    with (folder / "log").open("ab") as log:
        made = subprocess.Popen(command, env=os.environ | environ, stdout=log, stderr=log)
    try:
        yield
    finally:
        made.terminate()
        try:
            made.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            made.kill()
            made.wait()


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + START_SECONDS
    while True:
        with suppress(subprocess.CalledProcessError, NoServerError, OSError):
            if condition():
                return
        assert time.monotonic() < until, "it does not start, or does not end"
        time.sleep(0.01)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


PEERS: Mapping[str, Callable[[Path], Any]] = {
    "slotwise": slotwise,
    "ProcessPoolExecutor": process_pool,
    "Dask": dask_cluster,
    "HyperQueue": hyperqueue,
    "gflow": gflow,
    "task-spooler": task_spooler,
    "Slurm": slurm,
}
