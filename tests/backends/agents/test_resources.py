"""Commands on agents that Dask starts: they request memory and devices of their workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from typer.testing import CliRunner

from slotwise.cli.main import app
from slotwise.core.decisions import Launch
from slotwise.core.events import TaskFinished
from slotwise.core.log import read_log

JOBS = """\
slotwise: 1
jobs:
  - {id: plain, command: sleep 0.2, tasks: 6, resources: {memory: 300 MiB, tape: 0.5}}
  - id: devices
    command: sleep 0.2; echo "$CUDA_VISIBLE_DEVICES" > device-$SLOTWISE_TASK
    tasks: 4
    resources: {memory: 100 MiB, gpu: 1}
"""

HELD = {"plain": (300 << 20, 500, 0), "devices": (100 << 20, 0, 1000)}
"""Bytes, and thousandths of tapes and GPUs."""


@pytest.mark.slow
def test_commands_stay_within_the_resources_of_dasks_workers(tmp_path: Path) -> None:
    """Each worker has a GiB less a reserve of 256 MiB, one tape and one GPU, its device 0."""
    file, log = tmp_path / "jobs.yaml", tmp_path / "log.jsonl"
    file.write_text(JOBS)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=4,
            dashboard_address="127.0.0.1:0",
            memory_limit="1GiB",
            resources={"GPU": 1, "tape": 1},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        address = client.scheduler.address
        run = ["run", str(file), "--dask", address, "--scheduler", "fair", "--log", str(log)]
        done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.output
    devices = [(tmp_path / f"device-{task}").read_text() for task in range(4)]
    assert devices == ["0\n"] * 4
    amounts = {host: Counter[int]() for host in ("0", "1")}
    most = {host: [0, 0, 0] for host in amounts}
    hosts = {}
    for turn in read_log(log).turns:
        for event in turn.events:
            if isinstance(event, TaskFinished):
                host = hosts.pop((event.phase, event.task))
                amounts[host].subtract(dict(enumerate(HELD[event.phase.job])))
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                hosts[decision.phase, decision.task] = decision.host
                amounts[decision.host].update(dict(enumerate(HELD[decision.phase.job])))
        for host, now in amounts.items():
            most[host] = [max(was, now[number]) for number, was in enumerate(most[host])]
    assert not hosts
    for held in most.values():
        assert all(
            one <= has for one, has in zip(held, ((1024 - 256) << 20, 1000, 1000), strict=True)
        )
