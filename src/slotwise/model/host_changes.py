"""Changes of the hosts that are known in advance, as a simulation gets them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.event import HostAdded, HostChange, HostDrained
from slotwise.model.job import Job, Phase
from slotwise.model.typed import check_name, check_time, check_type


class ChangingHosts:
    """Checks changes of a cluster's hosts one by one, in order of time.

    A host that is drained stays until its tasks have ended, so its name is free again only when
    it is removed.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._drained: set[str] = set()

    def follow(self, change: HostChange) -> None:
        """Take the next change. InputError if it is not possible."""
        verb = type(change).__name__.removeprefix("Host").lower()
        if isinstance(change, HostAdded):
            check_type(f"host that is {verb}", change.host, Host, "give a slotwise.Host")
            name = change.host.name
        else:
            check_name(f"host that is {verb}", change.host)
            name = change.host
        check_time(f"host {name!r} is {verb}: at", change.at)
        what = f"host {name!r} is {verb} at {change.at:g} s"
        if isinstance(change, HostAdded):
            self._add(change.host, what)
        elif name not in self.cluster.by_name:
            known = ", ".join(self.cluster.by_name) or "none"
            raise InputError(f"{what}, but is not there then; hosts then: {known}")
        elif not isinstance(change, HostDrained):
            self.cluster = self.cluster.without(name)
            self._drained.discard(name)
        elif name in self._drained:
            raise InputError(f"{what}, but was drained before; leave one of them out")
        else:
            self._drained.add(name)

    def check_served(self, kinds: Iterable[str]) -> None:
        """InputError if slots of one of these kinds are not there after the last change."""
        staying = self.cluster
        for name in self._drained:
            staying = staying.without(name)
        slots = staying.capacity
        for kind in kinds:
            if not slots[kind]:
                raise InputError(
                    f"no host has slots of kind {kind!r} after the last change of the hosts, so"
                    " jobs may wait forever; add a host with such slots"
                )

    def check_held(self, phases: Iterable[tuple[Job, Phase, str]]) -> None:
        """InputError if the hosts after the last change cannot hold a task or a gang of these.

        Each phase comes with its job and the kind of slots that it uses. Only phases that take
        several slots at once are checked.
        """
        staying = self.cluster
        for name in self._drained:
            staying = staying.without(name)
        for job, phase, kind in phases:
            if phase.unit > 1:
                try:
                    staying.check_slots(kind, phase.slots)
                    if phase.gang:
                        staying.check_gang(kind, phase.tasks.count, phase.slots)
                except InputError as error:
                    raise InputError(
                        f"job {job.id!r}, phase {phase.name!r} may wait forever after the last"
                        f" change of the hosts: {error}"
                    ) from None

    def _add(self, host: Host, what: str) -> None:
        if host.name in self._drained:
            raise InputError(
                f"{what}, but may still run tasks since it was drained; remove it before, or"
                " take another name"
            )
        if host.name in self.cluster.by_name:
            raise InputError(f"{what}, but is there already; remove it before, or rename one")
        try:
            self.cluster = self.cluster.with_host(host)
        except InputError as error:
            raise InputError(f"{what}: {error}") from None


def in_order(changes: Iterable[HostChange]) -> list[HostChange]:
    """The changes in order of time; those of one instant in the given order."""
    return sorted(changes, key=lambda change: change.at)


def hosts_ever(cluster: Cluster, changes: Sequence[HostChange]) -> Cluster:
    """All hosts that are ever there, each name once, as it is first."""
    hosts = dict(cluster.by_name)
    for change in in_order(changes):
        if isinstance(change, HostAdded):
            hosts.setdefault(change.host.name, change.host)
    return replace(cluster, hosts=tuple(hosts.values()))


def with_kinds(cluster: Cluster, changes: Iterable[HostChange]) -> Cluster:
    """The cluster for jobs of every kind that it or a later host has slots for.

    Without plain slots it knows the kinds of slots of later hosts from the beginning, so that
    jobs that arrive before these hosts can wait for them.
    """
    if ANY_KIND in cluster.capacity:
        return cluster
    later = {
        kind
        for change in changes
        if isinstance(change, HostAdded)
        for kind, count in change.host.slots.items()
        if count
    }
    return replace(cluster, kinds=cluster.kinds | later) if later else cluster


def check_changes(
    cluster: Cluster, changes: Iterable[HostChange], jobs: Iterable[Job] = ()
) -> None:
    """InputError for changes that are not possible, or that let jobs wait forever.

    A phase uses the kind of slots that it gets by the hosts that have come before its job.
    """
    hosts = ChangingHosts(cluster)
    coming = sorted(jobs, key=lambda job: -job.arrival)
    phases: list[tuple[Job, Phase, str]] = []
    changes = in_order(changes)
    for change in [*changes, None]:
        while coming and (change is None or coming[-1].arrival <= change.at):
            job, kind_of = coming.pop(), hosts.cluster.slot_kind
            phases.extend((job, phase, kind_of(phase.kind)) for phase in job.phases)
        if change is not None:
            hosts.follow(change)
    if changes:
        hosts.check_served(dict.fromkeys(kind for _, _, kind in phases))
        hosts.check_held(phases)
