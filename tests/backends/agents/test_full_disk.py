"""Hosts on which no large file can be written, as on a full disk."""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path

import pytest

from agent_processes import Loopback
from backends.agents.test_programs import CLUSTER, loopback, text
from backends.local.calling import TIMEOUT
from slotwise.backends.agents.backend import AgentsBackend
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from slotwise.policy.scheduler import make_scheduler

__all__ = ["loopback", "text"]


def limit_files(agent: int) -> None:
    """Let the worker processes of an agent, also later ones, write no file over 100 bytes."""
    children = Path(f"/proc/{agent}/task/{agent}/children")
    until = time.monotonic() + TIMEOUT
    while not (pids := children.read_text().split()):
        assert time.monotonic() < until
        time.sleep(0.01)
    for pid in (agent, *map(int, pids)):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, 100))


@pytest.mark.slow
def test_a_job_fails_clearly_when_disks_are_full(
    tmp_path: Path, loopback: Loopback, text: Counter[str]
) -> None:
    """The message names the task and the error; no part of the output is there, and no file."""
    execution = plan_mapreduce(
        "count", "wordcount", str(tmp_path / "in"), str(tmp_path / "out"), reducers=3
    )
    hosts = loopback.connect()
    for agent in loopback.agents.values():
        limit_files(agent.pid)
    state = State(CLUSTER)
    with AgentsBackend([execution], loopback, hosts, grace=60) as backend:
        run(make_scheduler("fair"), backend, state, lambda *turn: None)
    assert state.failed.keys() == {"count"}
    assert "File too large" in state.failed["count"]
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").rglob("*"))
