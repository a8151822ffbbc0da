"""A manager that is killed while commands run."""

from __future__ import annotations

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
