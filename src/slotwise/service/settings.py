"""What a server is started with, and what it can take over while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slotwise.core.cluster import ANY_KIND
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, Preemption
from slotwise.sources import Slots

HELD = "held"
"""The closed pool of the jobs that are held."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of a server. InputError for values that it cannot have.

    slots, resources  those of this machine; by default all, as of a session
    dask, dask_slots  the address of a Dask scheduler whose workers are used instead
    pools             with their shares; if some are given, jobs may name only these
    options           further options of a session, by name, such as `attempts_max`
    drain_seconds     at a stop, seconds for which calls may continue to their ends
    keep_days         days after which jobs that are over are forgotten
    keep_jobs         the most jobs that are over and kept
    """

    slots: Slots | None = None
    resources: Mapping[str, Any] | None = None
    dask: str | None = None
    dask_slots: int | None = None
    scheduler: str = "flex"
    objective: Objective | None = None
    pools: tuple[Pool, ...] = ()
    preemption: Preemption | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    drain_seconds: float = 30.0
    keep_days: float = 90.0
    keep_jobs: int = 100_000

    def all_pools(self) -> tuple[Pool, ...]:
        """The pools, with the closed one for jobs that are held."""
        return (*self.pools, Pool(HELD, slots_max={ANY_KIND: 0}, preemptible=False))
