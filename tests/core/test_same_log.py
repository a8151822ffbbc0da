"""Same seed, same log, byte for byte, in every process: sets of names have no order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
import slotwise
from slotwise import Block, Cluster, Host, Job, Phase, Pool, Preemption, Tasks, Workload

hosts = tuple(Host(f"h{n}", {"map": 2, "reduce": 1}, f"r{n % 4}") for n in range(24))

def homes(job, task):
    places = [(job * 7 + task * 5) % 24, (job * 3 + task) % 24, (job + task * 11) % 24]
    return Block(frozenset(f"h{place}" for place in places))

def job(number):
    count = 3 + number % 5
    maps = Tasks(count, 5.0, tuple(homes(number, task) for task in range(count)))
    reduces = Phase("reduce", Tasks(2, 3.0), "reduce", frozenset({"map"}))
    phases = (Phase("map", maps, "map"), reduces)
    return Job(f"j{number}", phases, number * 0.7, "ab"[number % 2])

pools = (Pool("a", slots_min={"map": 9}, preemption=Preemption(least_after=1.0)), Pool("b"))
workload = Workload(tuple(map(job, range(30))), Cluster(hosts), pools)
slotwise.simulate(workload, "fair", assigner="delay", log=sys.argv[1])
"""


@pytest.mark.slow
def test_the_log_does_not_depend_on_the_hashes_of_names(tmp_path: Path) -> None:
    """Two processes that order sets of names in their own ways write the same log."""
    logs = []
    for seed in "1", "2":
        path = tmp_path / f"{seed}.jsonl"
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", RUN, str(path)], env=environment, check=True)
        logs.append(path.read_bytes())
    assert logs[0] == logs[1]
