"""The command as a process: full disks, closed pipes, signals at any time, odd characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise.cli.terminal import cluster_left_out
from slotwise.core.job import Job, Phase, Tasks
from slotwise.sources import read_source

JOBS = "slotwise: 1\ncluster: {slots: 2}\njobs: [{id: a, phases: [{name: m, work: 0.2}]}]\n"


@pytest.fixture
def folder(folder: Path) -> Path:
    """A folder with a workload that also runs quickly."""
    (folder / "jobs.yaml").write_text(JOBS)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "plan jobs.yaml",
        "plan jobs.yaml --json",
        "simulate jobs.yaml",
        "run jobs.yaml",
    ],
)
def test_a_full_disk_for_stdout(run_process: Any, arguments: str) -> None:
    """One message, and exit code 2."""
    with open("/dev/full", "w") as full:
        done = run_process(*arguments.split(), stdout=full)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("slotwise: standard output: No space left")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_report_is_written_where_nothing_can_be_printed(
    run_process: Any, folder: Path
) -> None:
    """The report does not depend on stdout."""
    with open("/dev/full", "w") as full:
        done = run_process("simulate", "jobs.yaml", "--report", "r.html", stdout=full)
    assert done.returncode == 2
    assert (folder / "r.html").exists()


def test_a_full_disk_for_stderr(run_process: Any, folder: Path) -> None:
    """Messages are lost, and nothing else."""
    with open("/dev/full", "w") as full:
        done = run_process("run", "jobs.yaml", "--json", stderr=full)
        refused = run_process("run", "none.yaml", stderr=full)
    assert done.returncode == 0
    assert json.loads(done.stdout)["jobs"]["a"]["completion"] > 0
    assert refused.returncode == 2


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize(
    "command",
    [
        "plan jobs.yaml",
        "simulate jobs.yaml",
        "compare jobs.yaml",
        "compare jobs.yaml --json",
        "--version",
    ],
)
def test_a_closed_pipe_is_not_an_error(
    run_process: Any, closed_pipe: int, command: str
) -> None:
    """A reader that closes its end early causes no message and no exit code."""
    done = run_process(*command.split(), stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_report_is_written_even_to_a_closed_pipe(
    run_process: Any, closed_pipe: int, folder: Path
) -> None:
    """A reader that has ended, as after Ctrl-C to a pipeline, does not prevent the page."""
    done = run_process("simulate", "jobs.yaml", "--report", "r.html", stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (0, "report: r.html\n")
    assert (folder / "r.html").stat().st_size > 100_000


def test_a_workload_may_come_through_a_pipe() -> None:
    """The file is read once, so it may be a pipe; the command starts as a module."""
    done = subprocess.run(
        [sys.executable, "-m", "slotwise", "plan", "/dev/stdin", "--objective", "stretch"],
        input=JOBS,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("flex: sum of stretch ")


def test_tables_are_not_squeezed_in_pipes(run_process: Any, folder: Path) -> None:
    """Where stdout is not a terminal, a row is one line, however long the names are."""
    name = 150 * "n"
    (folder / "long.yaml").write_text(
        f"slotwise: 1\njobs: [{{id: {name}, phases: [{{name: m, work: 1}}]}}]\n"
    )
    done = run_process("simulate", "long.yaml")
    assert done.returncode == 0
    assert any(line.split()[:2] == [name, "done"] for line in done.stdout.splitlines())


def test_an_interrupt_while_modules_are_loaded() -> None:
    """Exit code 130 and no traceback, from our first line on."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from slotwise.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "slotwise: interrupted\n")


KILLED = """\
import os, signal
signal.signal(signal.{name}, signal.{handler})
from slotwise.cli import main as cli
cli.gc.freeze = lambda: os.kill(os.getpid(), signal.{name})
"""
"""Sends a signal to itself when a command begins."""


def test_an_interrupt_before_a_command_has_begun(run_process: Any) -> None:
    """Exit code 130 also while options are read."""
    before = KILLED.format(name="SIGINT", handler="default_int_handler")
    done = run_process("plan", "jobs.yaml", before=before)
    assert (done.returncode, done.stderr) == (130, "slotwise: interrupted\n")


def test_signals_that_are_ignored_stay_ignored(run_process: Any) -> None:
    """As `nohup` needs it."""
    before = KILLED.format(name="SIGHUP", handler="SIG_IGN")
    assert run_process("plan", "jobs.yaml", before=before).returncode == 0


def test_text_of_users_cannot_control_a_terminal(run_process: Any, folder: Path) -> None:
    """Control characters of names and of errors are escaped, wherever they are printed."""
    name = "a\u202eb"
    job = Job(name, (Phase("m", Tasks(3, 1.0)),), pool=name)
    other = Job("other", (Phase("m", Tasks(1, 9.0)),))
    slotwise.simulate([other, job], "fifo", slots=1, log=folder / "log")
    (folder / "own.py").write_text(
        "from slotwise import MapReduce\n"
        "class Own(MapReduce):\n"
        "    def map(self, key, value): raise ValueError('a\\x1b[31m\\rb')\n"
    )
    (folder / "in.txt").write_text("text\n")
    (folder / "bad.yaml").write_text(
        "slotwise: 1\njobs: [{id: j, program: own.py:Own, inputs: in.txt, output: out}]\n"
    )
    for command, code in (
        (("explain", "log"), 0),
        (("explain", "log", "--job", name, "--at", "1"), 0),
        (("explain", "log", "--job", name + "?", "--at", "1"), 2),
        (("replay", "log"), 0),
        (("run", "bad.yaml", "--slots", "1", "--attempts", "1"), 1),
    ):
        done = run_process(*command)
        assert done.returncode == code
        assert not {"\x1b", "\r", "\u202e"} & {*done.stdout, *done.stderr}
        if command[0] != "replay":
            escaped = "a\\x1b[31m\\rb" if command[0] == "run" else "a\\u202eb"
            assert escaped in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    ["run", pytest.param("compare --live --schedulers fifo", marks=pytest.mark.slow)],
)
def test_hosts_that_a_live_run_ignores_are_named(
    run_process: Any, folder: Path, command: str
) -> None:
    """A cluster of hosts is for simulations; the message says how to emulate it."""
    hosts = "cluster: {hosts: [{name: x, slots: 1}, {name: y, slots: 1}]}"
    (folder / "hosts.yaml").write_text(JOBS.replace("cluster: {slots: 2}", hosts))
    done = run_process(*command.split(), "hosts.yaml", "--json")
    notice = "slotwise: the cluster of the workload (2 hosts) is for simulations"
    assert done.stderr.startswith(notice), "before anything of the run is shown"
    assert "add --emulate-hosts to emulate the hosts on it" in done.stderr
    assert json.loads(done.stdout)["jobs"]["a"]["completion"] > 0
    emulated = run_process(*command.split(), "hosts.yaml", "--json", "--emulate-hosts")
    assert emulated.returncode == 0
    assert "for simulations" not in emulated.stderr
    assert "for simulations" not in run_process(*command.split(), "jobs.yaml").stderr


@pytest.mark.parametrize(
    ("cluster", "what"), [("slots: 3", "3 slots"), ("hosts: [{name: x, slots: 1}]", "1 host")]
)
def test_a_run_on_dask_says_that_it_does_not_use_the_cluster_of_the_workload(
    folder: Path, cluster: str, what: str
) -> None:
    """Neither its hosts nor its number of slots."""
    (folder / "jobs.yaml").write_text(JOBS.replace("slots: 2", cluster))
    notice = cluster_left_out(read_source("jobs.yaml"), False, "tcp://127.0.0.1:8786")
    assert notice.startswith(f"slotwise: the cluster of the workload ({what}) is for runs")
    assert notice.endswith("this run uses the slots of the Dask cluster")
