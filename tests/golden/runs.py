"""Simulated runs as golden cases, and what their modules share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

import slotwise
from slotwise import Cluster, Fault, InputError, Job, Pool, Simulation, Workload
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.decisions import Launch
from slotwise.core.events import Event, TaskFinished
from slotwise.core.log import Header, LogFile
from slotwise.core.loop import initial_state, run
from slotwise.insight import metrics
from slotwise.policy.scheduler import make_scheduler

COMPACT = (",", ":")
"""The separators of JSON in logs."""


@dataclass(frozen=True)
class Run:
    """A case: a workload, a file of one or a list of jobs, simulated under a scheduler.

    The log of a workload that the scheduler refuses is one line. Wording is tested elsewhere.
    """

    workload: Workload | Path | Sequence[Job]
    scheduler: str = "fair"
    simulation: Simulation | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, log: Path) -> None:
        """Write the log."""
        given = {"simulation": self.simulation, "log": log, **self.options}
        log.unlink(missing_ok=True)  # One that tells of a refusal is not replaced.
        try:
            # The lower bound is not in the log, and takes longer than many of the runs.
            with patch.object(metrics, "objective_bound", return_value=0.0):
                slotwise.simulate(self.workload, self.scheduler, **given)
        except InputError:
            log.write_text("refused\n")
        else:
            without_versions(log)


@dataclass(frozen=True)
class Requested:
    """A case: jobs, and what users ask for while they run, at the instants of the events."""

    jobs: Sequence[Job]
    requests: Sequence[Event]
    cluster: Cluster
    pools: Sequence[Pool] = ()
    scheduler: Mapping[str, Any] = field(default_factory=lambda: {"name": "fair"})

    def __call__(self, log: Path) -> None:
        """Write the log."""
        header = Header(
            backend="simulated",
            scheduler=dict(self.scheduler),
            objective={"penalty": "response", "aggregate": "sum"},
            cluster=self.cluster,
            pools=tuple(self.pools),
            jobs_expected=None,
        )
        backend = SimulatedBackend(self.cluster, self.jobs, requests=self.requests)
        with LogFile(log, header) as file:
            run(make_scheduler(**header.scheduler), backend, initial_state(header), file)


def without_versions(log: Path) -> None:
    """Remove the versions of Python and packages from the header of a log."""
    first, rest = log.read_text().split("\n", 1)
    header = json.dumps(json.loads(first) | {"versions": {}}, separators=COMPACT)
    log.write_text(f"{header}\n{rest}")


@dataclass(frozen=True)
class Faults:
    """One attempt in `one_in` fails, chosen by its name; of these, every second is lost."""

    one_in: int
    salt: int = 0

    def __call__(self, launch: Launch) -> Fault | None:
        """The fault of this attempt."""
        name = f"{self.salt} {launch.phase} {launch.task} {launch.attempt}"
        dice = crc32(name.encode())
        if dice % self.one_in:
            return None
        return Fault("it broke", after=dice % 7 / 7, lost=dice // self.one_in % 2 == 0)


@dataclass(frozen=True)
class Repeats:
    """Two of three launches are received twice."""

    after: float

    def __call__(self, launch: Launch) -> float | None:
        """When this launch comes again."""
        return None if (launch.task + launch.attempt) % 3 == 0 else self.after


@dataclass(frozen=True)
class Loss:
    """Output of one task in `every` is lost, of its first `attempts` attempts."""

    seconds: float
    every: int
    attempts: int = 2

    def __call__(self, end: TaskFinished) -> float | None:
        """When the output of this task is lost."""
        chosen = (end.task + end.attempt) % self.every == 0 and end.attempt <= self.attempts
        return self.seconds if chosen else None
