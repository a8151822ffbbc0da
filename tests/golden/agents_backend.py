"""What joins the scripts of `agents.py` to the code of today.

Real are the run, the backend, its slots, the messages as bytes, the jobs in execution, and the
source of hosts with its leases and questions. Fake are Dask's client, the connecting, and the
agents at the other ends of the connections.
"""

from __future__ import annotations

import json
import select
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import slotwise.jobs.mapreduce.planning
import slotwise.jobs.mapreduce.tasks  # noqa: F401  # Otherwise it has the real clock.
from golden.checked import check_log
from golden.fake_agents import FakeCluster, Script
from golden.scripted_time import threads
from slotwise.api import run
from slotwise.backends.agents.asking import RunInLoop
from slotwise.backends.agents.backend import AgentsBackend, cluster_of
from slotwise.backends.agents.dask_workers import DaskWorkers
from slotwise.core.errors import HostsLostError
from slotwise.core.events import (
    HostDrained,
    HostRemoved,
    JobCancelled,
    JobChanged,
    JobsClosed,
    ObjectiveChanged,
    PoolsChanged,
)
from slotwise.core.log import LogFile
from slotwise.core.loop import initial_state
from slotwise.core.loop import run as run_loop
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.policy.scheduler import make_scheduler
from slotwise.results import RunLost
from slotwise.running import Options, RunOptions, RunSpec
from slotwise.sessions.intake import arriving
from slotwise.sources import read_source


def write_log(script: Script, log: Path) -> None:
    """Run a script, and write its log, which can be replayed."""
    fake = FakeCluster(script)
    polling = SimpleNamespace(poll=fake.make_poll, POLLIN=select.POLLIN, POLLOUT=select.POLLOUT)
    asking = SimpleNamespace(run_coroutine_threadsafe=fake.answer)
    committing = threads(fake.clock, script.get("commit_seconds", 0.0))
    asked = patch.object(RunInLoop, "_host", lambda self, address, name: (address, name))
    with (
        TemporaryDirectory() as folder,
        asked,
        fake.clock.replaced(
            backends__agents__slots={"select": polling},
            backends__agents__asking={"asyncio": asking, "wait": fake.wait},
            backends__agents__dask_workers={"threading": threads(fake.clock)},
            backends__executing={"threading": committing},
        ),
    ):
        for name, text in script.get("files", {}).items():
            Path(folder, name).write_text(text)
        workload = Path(folder, "workload.yaml")
        given = {"slotwise": 1, **script["workload"]}
        workload.write_text(json.dumps(given).replace("FOLDER", folder))
        with suppress(RunLost, HostsLostError):  # The log has all until then.
            drive = _drive_open if "requests" in script else _drive
            drive(fake, workload, log)
    check_log(log, str(Path(folder).resolve()), folder)


def _drive(fake: FakeCluster, workload: Path, log: Path) -> None:
    """Run all jobs of the workload."""
    script = fake.script
    for at, *event in script.get("events", ()):
        fake.clock.at(at, partial(fake.do, *event))
    run(
        workload,
        script.get("scheduler", "fair"),
        dask=fake.client,
        dask_slots=script.get("dask_slots"),
        log=log,
        **script.get("options", {}),
    )


def _drive_open(fake: FakeCluster, workload: Path, log: Path) -> None:
    """Let requests arrive at a backend that is open, as those of a session."""
    script, source = fake.script, read_source(workload)
    workers = DaskWorkers(fake.client, script.get("dask_slots"))
    hosts = workers.connect()
    stated: Options = {**script.get("options", {}), "objective": source.workload.objective}
    given = RunOptions.of(stated, run)
    spec = RunSpec(
        script.get("scheduler", "fair"), "live", (), cluster_of(hosts), source, given, {}
    )
    header = spec.header(rest_seconds=script.get("rest_seconds", 0.0), is_open=True)
    scheduler = make_scheduler(**header.scheduler, objective=Objective(**header.objective))
    jobs = {one.job.id: one for one in source.executions(cluster_of(hosts))}

    def ask(what: str, *details: Any) -> None:
        now = backend.now
        if what == "job":
            (job,) = details
            execution: Any = arriving(jobs[job], now, str)
            execution.open()
            backend.inbox.put(execution)
        elif what == "cancel":
            backend.inbox.put(JobCancelled(now, *details))
        elif what == "change":
            backend.inbox.put(JobChanged(now, *details))
        elif what == "pools":
            backend.inbox.put(PoolsChanged(now, tuple(Pool(**pool) for pool in details[0])))
        elif what == "objective":
            backend.inbox.put(ObjectiveChanged(now, *details))
        elif what == "drain":
            backend.inbox.put(HostDrained(now, *details))
        elif what == "remove":
            backend.inbox.put(HostRemoved(now, *details))
        else:
            assert what == "close"
            backend.inbox.put(JobsClosed(now))

    with (
        LogFile(log, header) as record,
        AgentsBackend((), workers, hosts, is_open=True) as backend,
    ):
        for at, *event in script.get("events", ()):
            fake.clock.at(at, partial(fake.do, *event))
        for at, *request in script["requests"]:
            fake.clock.at(at, partial(ask, *request))
        run_loop(scheduler, backend, initial_state(header), record)
