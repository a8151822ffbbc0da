"""What would happen if: the change that is asked about, and the answer as plain values."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import InputError, check_all, check_string, shown, suggestion
from slotwise.core.job import Job
from slotwise.core.pools import Pool, PoolTree, check_fits, check_resources, pools_of
from slotwise.forecast.eta import WhatIf
from slotwise.forecast.situation import Change
from slotwise.sessions.changes import check_replaces, known_resources
from slotwise.sessions.intake import SessionCore

ANSWERED_MAX = 1_000
"""The most jobs in an answer."""


class Asked(NamedTuple):
    """A change as a user states it: see `Session.what_if`."""

    pools: Mapping[str, Any] = {}
    scheduler: str | None = None
    hosts: Any = ()
    without_hosts: Sequence[str] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether nothing would change."""
        return not (self.pools or self.scheduler or self.hosts or self.without_hosts)


def change_of(core: SessionCore, jobs: Sequence[Job], asked: Asked) -> Change:
    """The change for a forecast. InputError for one that the session could not have."""
    if not jobs and asked.is_nothing:
        raise InputError("nothing would change; give a job, or other pools, scheduler or hosts")
    if asked.scheduler is not None:
        check_string("scheduler", asked.scheduler)
        check_replaces(core.loop.scheduler_name, asked.scheduler)
    without = asked.without_hosts
    check_all("without_hosts", without, str, "give a list of names of hosts")
    hosts = tuple(hosts_of(asked.hosts))
    cluster, tree = core.state.cluster, core.state.pools
    left = tuple(host for host in cluster.hosts if host.name not in without)
    _check_join(replace(cluster, hosts=left, kinds=frozenset(cluster.capacity)), hosts)
    pools = changed_pools(tree, asked.pools) if asked.pools else None
    if pools is not None:
        changed = PoolTree(pools).on(cluster)
        left_jobs = core.ask(core.jobs_left)
        named = (changed[name] for name in asked.pools)
        known = known_resources([*cluster.hosts, *hosts], left_jobs, tree.values())
        check_resources(named, known)
        for job in left_jobs:
            check_fits(job, cluster, changed)
        pools = tuple(changed.values())
    return Change(tuple(jobs), pools, asked.scheduler, hosts, tuple(without))


def plain_answer(found: WhatIf, jobs: Sequence[Job] = ()) -> dict[str, Any]:
    """The JSON of an answer in Unix seconds; `jobs` are new.

    It names those of them with deadlines, and those whose promises could be given.
    """
    return {
        **replace(found, jobs=found.jobs[:ANSWERED_MAX]).to_plain(),
        "now": time.time(),
        "new": [job.id for job in jobs],
        "deadlines": [job.id for job in jobs if job.deadline is not None],
        "promises": [job.id for job in jobs if job.promised],
    }


def _check_join(present: Cluster, hosts: Iterable[Host]) -> None:
    """InputError for hosts without slots, of names that are taken, or of too many slots."""
    for host in hosts:
        if not any(host.slots.values()):
            raise InputError(f"hosts: {shown(host.name)} has no slots; give it at least 1")
        try:
            present = present.with_host(host)
        except InputError as error:
            raise InputError(f"hosts: {shown(host.name)}: {error}") from None


def changed_pools(present: Mapping[str, Pool], stated: Mapping[str, Any]) -> tuple[Pool, ...]:
    """All pools, some with other keys: `{"x": 2}` is another weight. InputError."""
    if not isinstance(stated, Mapping):
        raise InputError(
            f"pools is {shown(stated)}; give weights by name, such as {{'team': 2}}"
        )
    for name in stated:
        if name not in present:
            raise InputError(f"pools: unknown pool {shown(name)}; {suggestion(name, present)}")
    found = list[Pool]()
    for name, pool in present.items():
        given = stated.get(name, {})
        keys = dict(given) if isinstance(given, Mapping) else {"weight": given}
        kept = {one.name: getattr(pool, one.name) for one in fields(Pool) if one.name != "name"}
        found += pools_of({name: {**kept, **keys}}) if keys else [pool]
    return tuple(found)


def hosts_of(stated: Any) -> Iterator[Host]:
    """Hosts, as such or as mappings; `{"name": 8}` is a host with its slots. InputError."""
    if isinstance(stated, Mapping):
        stated = [{"name": name, "slots": slots} for name, slots in stated.items()]
    if isinstance(stated, str) or not isinstance(stated, Iterable):
        raise InputError(f"hosts is {shown(stated)}; give slots by name, such as {{'h1': 8}}")
    for one in stated:
        if isinstance(one, Host):
            yield one
            continue
        known = [field.name for field in fields(Host)]
        if not isinstance(one, Mapping) or not {"name", "slots"} <= one.keys() <= set(known):
            raise InputError(f"hosts: {shown(one)} is not a host; give {', '.join(known)}")
        slots = one["slots"]
        by_kind = slots if isinstance(slots, Mapping) else {ANY_KIND: slots}
        yield Host(**{**one, "slots": by_kind})
