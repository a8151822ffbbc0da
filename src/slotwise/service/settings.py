"""What a server is started with, and what it can take over while it runs."""

from __future__ import annotations

import ipaddress
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import slotwise
from slotwise.core.cluster import ANY_KIND
from slotwise.core.errors import InputError
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, Preemption
from slotwise.jobs.accounts import Account
from slotwise.service.users.access import User
from slotwise.sources import Slots

PORT_MAX = 65_535
"""The largest number of a port."""

HELD = "held"
"""The closed pool of the jobs that are held."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Where a server listens for other hosts, or for the browsers of its own.

    certificate, key  files for TLS; the key may be in the file of the certificate
    plain             that it may do without TLS for other hosts
    hosts             the names by which clients reach it
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, listen: str, **others: Any) -> NetworkSettings:
        """A network from an address such as `0.0.0.0:8443`. InputError for another one."""
        host, colon, port = listen.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
            raise InputError(f"listen is {listen!r}; give an address and a port: 0.0.0.0:8443")
        return cls(host.removeprefix("[").removesuffix("]"), int(port), **others)

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise InputError("key is stated without certificate; state both, or neither")
        if self.is_loopback:
            return
        if self.certificate is None and not self.plain:
            raise InputError(
                f"listen is {self.host}:{self.port}, where other hosts reach it: state"
                " `certificate` and `key`, or `plain` if tokens and jobs may pass unencrypted"
            )
        if self.is_wildcard and not self.hosts:
            raise InputError(
                f"listen is {self.host}:{self.port}: state `hosts`, the names by which clients"
                " reach the server"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_wildcard(self) -> bool:
        """Whether it listens at all addresses of the machine."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def url(self, port: int) -> str:
        """The beginning of the URLs of the server, which listens at a port."""
        name = self.hosts[0] if self.hosts else self.host
        place = f"[{name}]" if ":" in name else name
        return f"{'http' if self.certificate is None else 'https'}://{place}:{port}"


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
    output_max        the most bytes of stdout and of stderr of a task that are kept
    network           where it listens besides its socket
    users             by name, besides the account of the server
    run_as            whether work runs as the account of its user, and not as the server's
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
    output_max: int = 1 << 30
    network: NetworkSettings | None = None
    users: Mapping[str, User] = field(default_factory=dict)
    run_as: bool = False

    def __post_init__(self) -> None:
        if self.run_as and os.geteuid() != 0:
            raise InputError("run_as takes a server that runs as root; leave it out")
        if any(pool.name == HELD for pool in self.pools):
            raise InputError(f"pool {HELD!r} is that of jobs on hold; rename yours")
        for user in self.users.values():
            _check_account(user, must_exist=self.run_as)

    def all_pools(self) -> tuple[Pool, ...]:
        """The pools, with the closed one for jobs that are held."""
        return (*self.pools, Pool(HELD, slots_max={ANY_KIND: 0}, preemptible=False))

    def pools_of(self, pool: str) -> tuple[str, ...]:
        """A pool and those above it, whose roles hold in it."""
        parents = {one.name: one.parent for one in self.pools}
        found: list[str] = []
        above: str | None = pool
        while above is not None and above not in found:
            found.append(above)
            above = parents.get(above)
        return tuple(found)

    def account_of(self, user: str | None) -> Account | None:
        """The account as which the work of a user runs; None for that of the server.

        InputError for a user who has none.
        """
        if not self.run_as:
            return None
        found = self.users.get(user or "")
        if found is None:
            raise InputError(
                f"user {user!r} has no account as which work could run (run_as); state a user"
                " of the service, by --user"
            )
        return Account.named(found.account)

    def check_run_as(self, folder: Path) -> None:
        """InputError if this process cannot run work as accounts, or not safely.

        Only root may be able to enter the folder of the service, or to replace it.
        """
        if not self.run_as:
            return
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
        self.check_accounts()

    def check_accounts(self) -> None:
        """InputError for a user whose account cannot run slotwise. A process for each account.

        Its commands would run, but their supervisors would fail before they record the ends.
        """
        places = (sys.executable, os.__file__, slotwise.__file__)
        for name in self.users if self.run_as else ():
            found = self.account_of(name)
            if found is not None and not _can_read(found, *places):
                raise InputError(
                    f"user {name!r}: account {found.name!r} cannot run {sys.executable}, or"
                    " read its files; install Python and slotwise where all can, as in /opt"
                )


def _check_account(user: User, *, must_exist: bool) -> None:
    """InputError for an account that no work may run as. Reads the accounts of the system."""
    try:
        number = pwd.getpwnam(user.account).pw_uid
    except KeyError:
        if must_exist:
            raise InputError(
                f"user {user.name!r}: there is no account {user.account!r}; create it, or state"
                " another `account`"
            ) from None
        return
    if number == 0:
        raise InputError(
            f"user {user.name!r}: account {user.account!r} is that of root, as which no work"
            " may run; state another `account`"
        )


def _can_read(account: Account, executable: str, *files: str) -> bool:
    """Whether an account can run a program and read files. Takes a process of the account."""
    test = 'test -x "$0" || exit 1; for file; do test -r "$file" || exit 1; done'
    done = subprocess.run(
        ["/bin/sh", "-c", test, executable, *files],
        cwd="/",
        stdin=subprocess.DEVNULL,
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
    )
    return done.returncode == 0


def environment_of(account: str | None) -> dict[str, str]:
    """The variables that all work of an account has; None: that of the server."""
    found = pwd.getpwuid(os.geteuid()) if account is None else pwd.getpwnam(account)
    return {
        "HOME": found.pw_dir,
        "LOGNAME": found.pw_name,
        "USER": found.pw_name,
        "SHELL": found.pw_shell or "/bin/sh",
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
