"""A manager that is killed: its agents end their processes and remove their files at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_processes import TOKEN, Loopback, files_named
from backends.local.calling import await_end
from slotwise.core.cluster import Cluster, Host
from waiting import until

CLUSTER = Cluster((Host("a", {"task": 1}), Host("b", {"task": 1})))

MANAGER = """\
import sys
from slotwise.backends.agents.slots import AgentSlots, connect

token, place, *listen = sys.argv[1:]

def run(task):
    import os, time
    folder = os.environ["SLOTWISE_FOLDER"]
    open(f"{folder}/made", "w").close()
    with open(f"{place}/{task}.new", "w") as file:
        file.write(str(os.getpid()))
    os.replace(f"{place}/{task}.new", f"{place}/{task}")
    time.sleep(600)

agents = AgentSlots()
for number, port in zip(listen[::2], listen[1::2], strict=True):
    agents.add(connect(port, (number, int(port)), bytes.fromhex(token)))
with agents as workers:
    for slot in range(len(listen) // 2):
        workers.start(slot, "run", run, (slot,))
    workers.wait()
"""


@pytest.mark.slow
def test_a_killed_manager_leaves_nothing_on_hosts(tmp_path: Path) -> None:
    """By -9; the agents then wait for another manager, for a limited time."""
    source = Loopback(CLUSTER, tmp_path / "hosts")
    try:
        for host in source.connect():
            host.stream.close()
        marks = [tmp_path / "0", tmp_path / "1"]
        command = [sys.executable, "-c", MANAGER, TOKEN.hex(), str(tmp_path)]
        listen = [str(part) for one in source.listen.values() for part in one]
        with subprocess.Popen([*command, *listen]) as manager:
            until(lambda: all(mark.exists() for mark in marks))
            manager.kill()
        await_end(*(int(mark.read_text()) for mark in marks))
        until(lambda: not files_named(tmp_path / "hosts", "made"))
        assert all(agent.poll() is None for agent in source.agents.values())
    finally:
        source.close()
    assert [os.listdir(tmp_path / "hosts" / name) for name in "ab"] == [[], []]
