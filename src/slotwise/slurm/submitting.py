"""The commands that submit and run: `sbatch`, and `srun` within a job."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from slotwise.core.errors import InputError
from slotwise.service.clients.transport import ServerClosedError, Transport, job_path
from slotwise.slurm.batch import SBATCH, Batch, request_of
from slotwise.slurm.jobs import OVER, SlurmJob, found_jobs
from slotwise.slurm.options import (
    OptionTable,
    Words,
    dependencies,
    expanded,
    noted,
    parse,
    whole,
)

WAIT_SECONDS = 30.0
"""After how long a request that waits for the end of a job is made again."""

FAILED = 127
"""The exit code of a process of a step that could not be started."""

RETURN_SECONDS = 60.0
"""How long requests are repeated while a server starts or stops."""

SRUN = OptionTable.of(
    "cpu-bind= D:chdir= c:cpus-per-task= cpus-per-gpu= distribution= e:error= exact exclusive"
    " export= G:gpus= gpus-per-node= gpus-per-task= gpu-bind= gres= hint= i:input= jobid="
    " J:job-name= K:kill-on-bad-exit l:label mem= mem-bind= mem-per-cpu= mem-per-gpu= mpi="
    " N:nodes= n:ntasks= ntasks-per-node= w:nodelist= open-mode= o:output= overlap O:overcommit"
    " pty Q:quiet s:oversubscribe t:time= threads-per-core= u:unbuffered v:verbose W:wait=",
    pty="a job has no terminal; run the program outside of a job",
    jobid="a step runs within its job only; leave it out",
)


def sbatch(arguments: Sequence[str]) -> int:
    """Submit a script; the exit code, with `--wait` that of the job."""
    words = parse(arguments, SBATCH, stops=True)
    batch = Batch.of(words, *_script_of(words), os.environ)
    if (note := noted(batch.words, SBATCH)) and not batch.words.has("quiet"):
        print(f"sbatch: {note}", file=sys.stderr)
    transport = Transport()
    body = request_of(
        batch,
        os.getcwd(),
        os.environ,
        after=_before(transport, batch.words.last("dependency")),
        pool=_pool(transport, batch.words),
        host=platform.node(),
    )
    body["key"] = uuid4().hex  # Sent again, it is accepted once.
    jobs = _repeated(lambda: transport.post("/v1/jobs", body))["jobs"]
    name = str(jobs[0]["id"]).partition("_")[0]
    parsable = batch.words.has("parsable")
    print(name if parsable else f"Submitted batch job {name}", flush=True)
    if not batch.words.has("wait"):
        return 0
    return max(_code(_ended(transport, str(job["id"]))) for job in jobs)


def _script_of(words: Words) -> tuple[str, str]:
    """The script, and the name of a job that states none."""
    if words.has("wrap"):
        if words.rest:
            raise InputError("Script arguments not permitted with --wrap option")
        return f"#!/bin/sh\n{words.last('wrap')}\n", "wrap"
    if not words.rest or words.rest[0] == "-":
        return sys.stdin.read(), "sbatch"
    path = words.rest[0]
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read(), os.path.basename(path)
    except OSError as error:
        raise InputError(f"Unable to open file {path}: {error.strerror}") from None


def _before(transport: Transport, text: str) -> list[str]:
    """The ids of the jobs of `--dependency`; of an array all its tasks. InputError."""
    names, _ = dependencies(text)
    ids: list[str] = []
    for name, jobs in (found_jobs(transport, names) if names else {}).items():
        if not jobs:
            raise InputError(f"Job dependency problem: job {name} does not exist")
        ids += [str(job.plain["id"]) for job in jobs]
    return ids


def _pool(transport: Transport, words: Words) -> str | None:
    """The pool: the first partition, or the account if a pool has its name."""
    if words.has("partition"):
        return words.last("partition").split(",")[0]
    account = words.last("account")
    if account and any(p["name"] == account for p in transport.get("/v1/pools")["pools"]):
        return account
    return None


def _ended(transport: Transport, job: str) -> SlurmJob:
    """A job when it is over. ServerClosedError."""
    path = job_path(job, "wait")
    while True:
        found = SlurmJob(_repeated(lambda: transport.get(path, timeout=WAIT_SECONDS)))
        if found.is_over:
            return found


def _repeated(request: Callable[[], Any]) -> Any:
    """What a server answers that may just be starting. ServerClosedError."""
    until = time.monotonic() + RETURN_SECONDS
    while True:
        try:
            return request()
        except ServerClosedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def _code(job: SlurmJob) -> int:
    code, _, number = job.exit_code.partition(":")
    failed = job.plain["state"] != OVER[0]
    return int(code) or (128 + int(number) if int(number) else int(failed))


# Steps of a job.


def srun(arguments: Sequence[str]) -> int:
    """Run a command as a step of this job: once, or in as many processes as it has tasks.

    A step has no slots of its own: it uses those of its job.
    """
    words = parse(arguments, SRUN, stops=True)
    if not words.rest:
        raise InputError("No command given to execute.")
    if "SLURM_JOB_ID" not in os.environ:
        raise InputError(
            "it works within a job only; outside of one, `slotwise submit --follow -- COMMAND`"
            " runs a command and prints what it prints"
        )
    number = whole("--ntasks", words.last("ntasks", os.environ.get("SLURM_NTASKS", "1")))
    if words.has("chdir"):
        os.chdir(words.last("chdir"))
    if number == 1:
        _enter(0, 1, words)
        _execute(words.rest)
    return _in_processes(number, words)


def _enter(task: int, number: int, words: Words) -> None:
    """Give this process the variables and the output of a task of the step."""
    own = {"SLURM_PROCID": task, "SLURM_LOCALID": task, "SLURM_NTASKS": number}
    own |= {"SLURM_STEP_ID": 0, "SLURM_STEPID": 0, "SLURM_STEP_NUM_TASKS": number}
    own |= {"SLURM_NPROCS": number, "SLURM_STEP_NUM_NODES": 1}
    os.environ.update({name: str(value) for name, value in own.items()})
    if words.has("cpus-per-task"):
        os.environ["SLURM_CPUS_PER_TASK"] = words.last("cpus-per-task")
    opened: dict[str, int] = {}
    flags = os.O_WRONLY | os.O_CREAT
    flags |= (
        os.O_APPEND if words.last("open-mode").startswith("a") or number > 1 else os.O_TRUNC
    )
    streams = ("output", 1), ("error", 2)
    for name, stream in streams:
        if not words.has(name) and not (name == "error" and words.has("output")):
            continue
        path = _path(words.last(name, words.last("output")), os.environ, task)
        if path == "none":
            path = os.devnull
        if path not in opened:
            opened[path] = os.open(path, flags, 0o666)
        os.dup2(opened[path], stream)


def _path(pattern: str, environ: Mapping[str, str], task: int) -> str:
    """The path of an output of a step: `%j` and the like are replaced."""
    job = environ["SLURM_JOB_ID"]
    known = {
        **{"j": job, "J": f"{job}.0", "A": environ.get("SLURM_ARRAY_JOB_ID", job), "s": "0"},
        **{"a": environ.get("SLURM_ARRAY_TASK_ID", "4294967294"), "t": str(task), "n": "0"},
        **{"N": platform.node(), "u": environ.get("USER", "")},
        "x": environ.get("SLURM_JOB_NAME", ""),
    }
    return expanded(
        pattern, lambda name, digits: known[name].zfill(digits) if name in known else None
    )


def _execute(command: Sequence[str]) -> None:
    """Become the command. InputError if it cannot be started."""
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        raise InputError(f"execve(): {command[0]}: {error.strerror}") from None


def _in_processes(number: int, words: Words) -> int:
    """Run the command in several processes; the largest exit code."""
    processes: list[int] = []
    for task in range(number):
        process = os.fork()
        if not process:
            try:
                _enter(task, number, words)
                _execute(words.rest)
            except (OSError, InputError) as error:
                print(f"srun: error: {error}", file=sys.stderr)
            finally:
                os._exit(FAILED)
        processes.append(process)

    def pass_on(signal_number: int, _: object) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal_number)

    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(one, pass_on)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    return max(code if code >= 0 else 128 - code for code in codes)
