"""What would happen if: the change that is asked about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from slotwise.core.cluster import ANY_KIND, Host
from slotwise.core.errors import InputError, shown, suggestion
from slotwise.core.job import Job
from slotwise.core.pools import Pool, PoolTree, check_fits, pools_of
from slotwise.forecast.situation import Change
from slotwise.sessions.changes import check_session_scheduler
from slotwise.sessions.intake import SessionCore


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
        check_session_scheduler(asked.scheduler)
    if isinstance(asked.without_hosts, str):
        raise InputError(f"without_hosts is {asked.without_hosts!r}; give a list of names")
    hosts = tuple(hosts_of(asked.hosts))
    cluster, tree = core.state.cluster, core.state.pools
    pools = changed_pools(tree, asked.pools) if asked.pools else None
    if pools is not None:
        changed = PoolTree(pools).on(cluster)
        for job in core.ask(core.jobs_left):
            check_fits(job, cluster, changed)
        pools = tuple(changed.values())
    return Change(tuple(jobs), pools, asked.scheduler, hosts, tuple(asked.without_hosts))


def changed_pools(present: Mapping[str, Pool], stated: Mapping[str, Any]) -> tuple[Pool, ...]:
    """All pools, some with other keys: `{"x": 2}` is another weight. InputError."""
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
