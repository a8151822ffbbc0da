"""What a server is started with, and what it can take over while it runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotwise.core.cluster import ANY_KIND
from slotwise.core.errors import InputError
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, Preemption
from slotwise.jobs.accounts import Account
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
    run_as            whether the work of a user runs as the account of the user
    accounts          the name of the account of each user
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
    run_as: bool = False
    accounts: Mapping[str, str] = field(default_factory=dict)

    def all_pools(self) -> tuple[Pool, ...]:
        """The pools, with the closed one for jobs that are held."""
        return (*self.pools, Pool(HELD, slots_max={ANY_KIND: 0}, preemptible=False))

    def account_of(self, user: str | None) -> Account | None:
        """The account as which the work of a user runs; None for that of the server.

        InputError for a user who has none.
        """
        if not self.run_as:
            return None
        name = self.accounts.get(user or "")
        if name is None:
            raise InputError(
                f"user {user!r} has no account as which work could run (run_as); state a user"
                " of the service, by --user"
            )
        return Account.named(name)

    def check_run_as(self, folder: Path) -> None:
        """InputError if this process cannot run work as accounts, or not safely.

        Only root may be able to enter the folder of the service, or to replace it.
        """
        if not self.run_as:
            return
        if os.geteuid():
            raise InputError(
                "run_as is true, but the server does not run as root; start it as root, or"
                " leave run_as out"
            )
        if self.dask is not None:
            raise InputError("run_as is for this machine only; leave out it or dask")
        for place in (folder, *folder.parents):
            status = place.stat()
            others = status.st_mode & 0o077 if place == folder else status.st_mode & 0o022
            is_sticky = place != folder and status.st_mode & stat.S_ISVTX
            if status.st_uid or (others and not is_sticky):
                raise InputError(
                    f"run_as: {place} is not of root alone, and the service keeps its files in"
                    f" {folder}; `chown root` it, and `chmod` it to "
                    f"{'700' if place == folder else '755'}"
                )
