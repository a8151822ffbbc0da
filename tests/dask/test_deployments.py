"""The gate in clusters that others start: by environment variables, and by dask-jobqueue."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client

import slotwise.dask as gate

MAX_SECONDS = 60
POOLS = '[{"name": "reports", "slots_min": 2}, {"name": "research"}]'


@pytest.mark.slow
def test_a_scheduler_takes_all_from_its_environment(tmp_path: Path) -> None:
    """The preload and the options, as Helm charts and operators give them."""
    command = [str(Path(sys.executable).with_name("dask")), "scheduler"]
    command += ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--scheduler-file", "cluster.json"],
        cwd=tmp_path,
        env=os.environ
        | {
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": '["slotwise.dask"]',
            "DASK_SLOTWISE__SCHEDULER": "fair",
            "DASK_SLOTWISE__POOLS": POOLS,
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        file = tmp_path / "cluster.json"
        with Client(scheduler_file=file, timeout=MAX_SECONDS, set_as_default=False) as client:
            status = gate.status(client)
            assert status.scheduler == "fair"
            assert {name: one.guaranteed for name, one in status.pools.items()} == {
                "reports": 2,
                "research": 0,
            }
    finally:
        process.terminate()
        process.wait(MAX_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["install", "preload"])
def test_dask_jobqueue(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scheduler is in this process; its workers are jobs of a queue, here processes."""
    jobqueue = pytest.importorskip("dask_jobqueue.local")
    monkeypatch.chdir(tmp_path)
    Path("gate.yaml").write_text(f"scheduler: fair\npools: {POOLS}\n")
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    if by == "preload":
        options |= {
            "preload": ["slotwise.dask"],
            "preload_argv": ["--slotwise-config", "gate.yaml"],
        }
    with (
        jobqueue.LocalCluster(
            cores=2, processes=1, memory="1GB", scheduler_options=options
        ) as cluster,
        Client(cluster, name="reports", set_as_default=False) as client,
    ):
        if by == "install":
            gate.install(client, scheduler="fair", pools=[{"name": "reports"}])
        cluster.scale(jobs=1)
        assert client.submit(sum, client.map(abs, range(-9, 0))).result() == 45
        assert gate.status(client).completed == 2
