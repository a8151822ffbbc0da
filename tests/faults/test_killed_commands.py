"""Commands whose manager is killed, or has inherited unusual handling of signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def test_commands_end_with_a_killed_manager(command: Any, processes: SimpleNamespace) -> None:
    """No process of theirs is left, and the next run takes over the output."""
    wait = "echo $$ > pid; until test -e go; do sleep 0.05; done; echo done"
    command.write(f"slotwise: 1\njobs: [{{id: a, command: '{wait}', output: out}}]\n")
    run = command.start("run", "jobs.yaml", "--slots", "1")
    pid_file = command.folder / "pid"
    processes.wait_for(lambda: pid_file.exists() and pid_file.read_text())
    pid = int(pid_file.read_text())
    run.kill()
    run.wait(processes.TIMEOUT)
    processes.wait_for(lambda: not processes.lives(pid))
    (command.folder / "go").touch()
    assert command.run("run", "jobs.yaml", "--slots", "1") == 0, command.stderr
    files = {path.name for path in (command.folder / "out").iterdir()}
    assert files == {"_SUCCESS", "task-00000.out", "task-00000.err"}
    assert (command.folder / "out" / "task-00000.out").read_text() == "done\n"


SETTINGS = """
import os, signal, subprocess, sys
for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
blocked = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
os.execv(sys.executable, [sys.executable, "-m", "slotwise", *sys.argv[1:]])
"""

JOBS = """
slotwise: 1
jobs:
  - {id: fails, command: exit 3, output: out/fails}
  - {id: dies, command: "kill -9 $$", output: out/dies}
  - {id: told, command: ["/bin/grep", -E, "Sig(Blk|Ign)", /proc/self/status], output: out/told}
"""


def test_inherited_signal_settings_change_nothing(tmp_path: Path) -> None:
    """Exit codes decide as ever, and commands start as a shell would start them."""
    (tmp_path / "jobs.yaml").write_text(JOBS)
    done = subprocess.run(
        [sys.executable, "-c", SETTINGS, "run", "jobs.yaml", "--slots", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "the command exited with code 3" in done.stderr
    assert "the command was killed by signal 9 (SIGKILL)" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["told"]
    ignored = 1 << signal.SIGHUP - 1  # As nohup has it.
    text = (tmp_path / "out/told/task-00000.out").read_text()
    assert [int(line.split()[1], 16) for line in text.splitlines()] == [0, ignored]


def test_a_signal_that_is_inherited_as_blocked_stops_a_run(tmp_path: Path) -> None:
    """As any other."""
    (tmp_path / "jobs.yaml").write_text(
        "slotwise: 1\njobs: [{id: a, command: 'touch begun; sleep 600', output: out}]\n"
    )
    blocks = SETTINGS.replace("signal.SIG_IGN", "signal.SIG_DFL")
    run = subprocess.Popen(
        [sys.executable, "-c", blocks, "run", "jobs.yaml", "--slots", "1"], cwd=tmp_path
    )
    try:
        while not (tmp_path / "begun").exists():
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        assert run.wait(100) == 130
    finally:
        run.kill()
        run.wait()
