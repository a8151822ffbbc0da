"""Those who run shell jobs and calls on two slots: the server of slotwise, and its peers.

Each is a context manager that takes an empty folder, and leaves no process at its exit. One
that is not installed raises ImportError. Python packages are in the extra `bench`; the others
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
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotwise.service.clients.transport import NoServerError, Transport

SLOTS, START_SECONDS = 2, 60.0
PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"))


@dataclass(frozen=True, slots=True)
class Peer:
    """How one is used.

    submit  accept a number of jobs of a command; True for the best that it offers to be first
    calls   make so many calls at once, and wait for their results
    finish  wait until the ends of all jobs are known here, if that is reported
    best    what it offers to be first
    """

    submit: Callable[[Sequence[str], int, bool], object]
    calls: Callable[[int], object] | None = None
    finish: Callable[[], object] = lambda: None
    best: str = ""


@contextmanager
def serving(folder: Path) -> Iterator[Transport]:
    """A server of slotwise with two pools, when it accepts jobs."""
    config, place = folder / "config.toml", folder / "service"
    config.write_text('[[pools]]\nname = "small"\n[[pools]]\nname = "large"\n')
    options = ["--slots", str(SLOTS), "--config", str(config), "--folder", str(place)]
    transport = Transport(f"unix:{place / 'socket'}")
    with process(folder, sys.executable, "-m", "slotwise", "serve", *options):
        wait_for(lambda: not transport.get("/v1")["restoring"])
        yield transport
        transport.close()


@contextmanager
def slotwise(folder: Path) -> Iterator[Peer]:
    """Jobs and ends are durable before they are reported. Many at once are of another pool."""
    from slotwise import Client

    with serving(folder) as transport, Client(f"unix:{transport.place.path}") as client:
        about = {"folder": str(folder), "environ": dict(os.environ), "client": "bench"}
        news = transport.stream("/v1/results", {"client": "bench", "calls": {}, "jobs": []})
        next(news)  # Now it follows.
        open_jobs: set[str] = set()

        def submit(command: Sequence[str], count: int, is_first: bool) -> None:
            entry = {"command": list(command), "pool": "small" if count == 1 else "large"}
            found = transport.post("/v1/jobs", {**about, "jobs": [entry] * count})
            open_jobs.update(one["id"] for one in found["jobs"])

        def finish() -> None:
            while open_jobs:
                end, _ = next(news)
                if end.get("state") in ("done", "failed", "cancelled", "lost"):
                    assert end["state"] == "done", end
                    open_jobs.discard(end.get("job", ""))

        yield Peer(submit, calls_by(client.executor(pool="small").submit), finish)


def by_calls(submit: Callable[..., Any], first: Callable[..., Any], best: str) -> Peer:
    """Workers run commands by calls."""
    made: list[Any] = []

    def jobs(command: Sequence[str], count: int, is_first: bool) -> None:
        send = first if is_first else submit
        made.extend(send(subprocess.run, command) for _ in range(count))

    return Peer(jobs, calls_by(submit), lambda: [one.result() for one in made], best)


def calls_by(submit: Callable[..., Any]) -> Callable[[int], object]:
    return lambda count: futures.wait([submit(abs, number) for number in range(count)])


@contextmanager
def process_pool(folder: Path) -> Iterator[Peer]:
    pool = ProcessPoolExecutor(SLOTS, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield by_calls(pool.submit, pool.submit, "")
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
        executor = client.get_executor(pure=False)

        def first(*call: Any) -> Any:
            return client.submit(*call, pure=False, priority=100)

        yield by_calls(executor.submit, first, "priority")


@contextmanager
def hyperqueue(folder: Path) -> Iterator[Peer]:
    """In this process, without a journal. Its client looks each second for ends."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig
    from hyperqueue.task.function import PythonEnv

    with LocalCluster(str(folder), WorkerConfig(cores=SLOTS)) as cluster:
        client = cluster.client(python_env=PythonEnv(sys.executable))
        quiet: Any = {"stdout": None, "stderr": None, "cwd": folder}

        def submit(command: Sequence[str], count: int, is_first: bool) -> None:
            job = Job()
            for _ in range(count):
                job.program([*command], priority=int(is_first), **quiet)
            client.submit(job)

        def calls(count: int) -> None:
            job = Job()
            for number in range(count):
                job.function(abs, args=(number,), **quiet)
            client.wait_for_jobs([client.submit(job)])

        yield Peer(submit, calls, best="priority")


@contextmanager
def task_spooler(folder: Path) -> Iterator[Peer]:
    """Its queue is in memory; a process of each job waits for its turn."""
    run = tools(TS_SOCKET=f"{folder}/socket", TMPDIR=str(folder), TS_MAXCONN="2000")
    run("tsp", "-S", str(SLOTS))

    def submit(command: Sequence[str], count: int, is_first: bool) -> None:
        for _ in range(count):
            run("tsp", *command)
        if is_first:
            run("tsp", "-u")

    try:
        yield Peer(submit, best="-u")
    finally:
        run("tsp", "-K")


@contextmanager
def gflow(folder: Path) -> Iterator[Peer]:
    """Sessions of tmux. It counts memory but no processors: here two jobs fit at a time."""
    port, settings = free_port(), folder / "gflow"
    settings.mkdir()
    daemon = f'[daemon]\nhost = "127.0.0.1"\nport = {port}\n'
    (settings / "gflow.toml").write_text(daemon)
    (folder / ".profile").write_text(f"PATH={shlex.quote(PATH)}\n")  # Jobs call its tools.
    places = ("HOME", "TMUX_TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    environ = dict.fromkeys(places, str(folder)) | {"PATH": PATH}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 5 >> 20
    run = tools(**environ)

    def submit(command: Sequence[str], count: int, is_first: bool) -> None:
        options = [*["-p", "100"] * is_first, *["--array", f"1-{count}"] * (count > 1)]
        words = [*command, "--"] if len(command) == 1 else command  # One would be a script.
        run("gbatch", "--auto-close", "-m", f"{memory}M", *options, *words)

    try:
        with process(folder, "gflowd", **environ):
            wait_for(lambda: socket.create_connection(("127.0.0.1", port)).close() or True)
            yield Peer(submit, best="priority")
    finally:
        with suppress(subprocess.CalledProcessError):  # It ends with its last session.
            run("tmux", "kill-server")


SLURM = """\
ClusterName=bench SlurmctldHost={host}(127.0.0.1) SlurmctldPort={port} SlurmdPort={other}
AuthType=auth/none CredType=cred/none SlurmUser={user} SlurmdUser={user} MailProg=/bin/true
StateSaveLocation={folder} SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc TaskPlugin=task/none MpiDefault=none
SelectType=select/cons_tres SelectTypeParameters=CR_CPU"""
HOSTS = """
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots}
PartitionName=normal Nodes={host} Default=YES PriorityTier=1
PartitionName=urgent Nodes={host} PriorityTier=10
"""


@contextmanager
def slurm(folder: Path) -> Iterator[Peer]:
    """As it comes, without authentication and accounting."""
    file, user, host = folder / "slurm.conf", getpass.getuser(), socket.gethostname()
    stated = {"folder": folder, "user": user, "host": host.split(".")[0], "slots": SLOTS}
    text = SLURM.replace(" ", "\n") + HOSTS  # Each setting has a line of its own.
    file.write_text(text.format(port=free_port(), other=free_port(), **stated))
    run = tools(SLURM_CONF=str(file))

    def submit(command: Sequence[str], count: int, is_first: bool) -> None:
        options = [*["-p", "urgent"] * is_first, *[f"--array=1-{count}"] * (count > 1)]
        run("sbatch", "-Q", "-o", f"{folder}/%j", *options, "--wrap", shlex.join(command))

    with (
        process(folder, "slurmctld", "-D", "-f", str(file)),
        process(folder, "slurmd", "-D", "-f", str(file)),
    ):
        try:
            wait_for(lambda: b"idle" in run("sinfo", "-h"))
            yield Peer(submit, best="partition")
        finally:
            with suppress(subprocess.CalledProcessError):  # It has not started.
                run("scancel", f"--user={user}")
                wait_for(lambda: not run("squeue", "-h"))


def path_of(name: str) -> str:
    """The path of a program. ImportError without it."""
    if path := shutil.which(name, path=PATH):
        return path
    raise ImportError(name)


def tools(**environ: str) -> Callable[..., bytes]:
    """Runs a program with arguments; what it prints."""
    variables = os.environ | environ
    return lambda name, *words: subprocess.check_output(
        [path_of(name), *words], env=variables, stderr=subprocess.STDOUT
    )


@contextmanager
def process(folder: Path, name: str, *words: str, **environ: str) -> Iterator[None]:
    """A process that is ended at the exit."""
    command = [path_of(name), *words]
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


PEERS: dict[str, Callable[[Path], AbstractContextManager[Peer]]] = {
    "slotwise": slotwise,
    "ProcessPoolExecutor": process_pool,
    "Dask": dask_cluster,
    "HyperQueue": hyperqueue,
    "gflow": gflow,
    "task-spooler": task_spooler,
    "Slurm": slurm,
}
