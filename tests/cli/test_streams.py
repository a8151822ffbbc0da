"""The command as a process: full disks, closed pipes, signals at any time, odd characters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import slotwise
from slotwise.model.job import Job, Phase, Tasks

JOBS = "slotwise: 1\ncluster: {slots: 2}\njobs: [{id: a, phases: [{name: m, work: 0.2}]}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a workload."""
    (tmp_path / "jobs.yaml").write_text(JOBS)
    return tmp_path


def run(folder: Path, *arguments: str, **streams: object) -> subprocess.CompletedProcess[str]:
    """The command in this folder, as a process of its own."""
    command = [sys.executable, "-m", "slotwise", *arguments]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(command, cwd=folder, text=True, check=False, **given)  # type: ignore[call-overload,no-any-return]


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
def test_a_full_disk_for_stdout(folder: Path, arguments: str) -> None:
    """One message, and exit code 2."""
    with open("/dev/full", "w") as full:
        done = run(folder, *arguments.split(), stdout=full)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("slotwise: standard output: No space left")
    assert "Traceback" not in done.stderr


def test_a_report_is_written_where_nothing_can_be_printed(folder: Path) -> None:
    """The report that was asked for is there all the same."""
    with open("/dev/full", "w") as full:
        done = run(folder, "simulate", "jobs.yaml", "--report", "r.html", stdout=full)
    assert done.returncode == 2
    assert (folder / "r.html").exists()


def test_a_full_disk_for_stderr(folder: Path) -> None:
    """What cannot be told is lost, and nothing else."""
    with open("/dev/full", "w") as full:
        done = run(folder, "run", "jobs.yaml", "--json", stderr=full)
        refused = run(folder, "run", "none.yaml", stderr=full)
    assert done.returncode == 0
    assert json.loads(done.stdout)["jobs"]["a"]["completion"] > 0
    assert refused.returncode == 2


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    """A closed pipe is no error."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        done = run(folder, "plan", "jobs.yaml", stdout=closed)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_while_modules_are_loaded(folder: Path) -> None:
    """Exit code 130 and no traceback, from the first of our own lines on."""
    code = (
        "import os, signal, sys\n"
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


def test_an_interrupt_before_a_command_has_begun(folder: Path) -> None:
    """Exit code 130 while options are read, too."""
    code = (
        "import os, signal, sys\n"
        "from slotwise.cli import main as cli\n"
        "from slotwise.__main__ import main\n"
        "cli.guard_streams = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "slotwise: interrupted\n")


def test_signals_that_are_ignored_stay_ignored(folder: Path) -> None:
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = (
            "import os, signal\n"
            "from slotwise.cli import main as cli\n"
            "from slotwise.__main__ import main\n"
            "cli.guard_streams = lambda: os.kill(os.getpid(), signal.SIGHUP)\n"
            "main()\n"
        )
        done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True,
                              text=True, check=False)  # fmt: skip
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.returncode == 0


def test_text_of_users_cannot_command_a_terminal(folder: Path) -> None:
    """Control characters of names and of errors are escaped, wherever they are printed."""
    name = "a\x1b[31m\rb"
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
        done = run(folder, *command)
        assert done.returncode == code
        assert not {"\x1b", "\r"} & {*done.stdout, *done.stderr}
        if command[0] != "replay":
            assert "a\\x1b[31m\\rb" in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["run", "compare --live --schedulers fifo"])
def test_hosts_that_a_real_run_leaves_out_are_named(folder: Path, command: str) -> None:
    """A cluster of hosts is for simulations, and how to emulate it is said."""
    hosts = "cluster: {hosts: [{name: x, slots: 1}, {name: y, slots: 1}]}"
    (folder / "hosts.yaml").write_text(JOBS.replace("cluster: {slots: 2}", hosts))
    done = run(folder, *command.split(), "hosts.yaml", "--json")
    notice = "slotwise: the cluster of the workload (2 hosts) is for simulations"
    assert done.stderr.startswith(notice), "before anything of the run is shown"
    assert "add --emulate-hosts to emulate the hosts here" in done.stderr
    assert json.loads(done.stdout)["jobs"]["a"]["completion"] > 0
    emulated = run(folder, *command.split(), "hosts.yaml", "--json", "--emulate-hosts")
    assert emulated.returncode == 0
    assert "for simulations" not in emulated.stderr
    assert "for simulations" not in run(folder, *command.split(), "jobs.yaml").stderr
