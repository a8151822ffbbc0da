"""Random changes of the hosts of a cluster: additions, losses and drains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slotwise.model.cluster import Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.event import HostAdded, HostChange, HostDrained, HostRemoved


def draw_changes(
    cluster: Cluster, count: int, until: float, rng: np.random.Generator
) -> tuple[HostChange, ...]:
    """Draw changes of hosts at random instants from 0 to `until` seconds, in order of time.

    Each is an addition, a loss or a drain with equal probability; where no host may leave, it
    is an addition. An added host is like a random host of the cluster, with a name of its own.
    The hosts that are present and not drained are always at least half as many as those of the
    cluster. So that every task can run, one of them has as many slots of each kind as any host
    of the cluster. The same state of `rng` gives the same changes. O(count * hosts). InputError
    for a negative number of changes.
    """
    if count < 0:
        raise InputError(f"the number of changes of hosts is {count}; give a number >= 0")
    staying, changes = list(cluster.hosts), list[HostChange]()
    names = {host.name for host in staying}
    added = 0
    for at in np.sort(rng.random(count) * until).tolist():
        kind = rng.integers(3)
        leavers = _may_leave(cluster, staying) if kind else []
        if leavers:
            host = leavers[rng.integers(len(leavers))]
            staying.remove(host)
            changes.append((HostRemoved if kind == 1 else HostDrained)(at, host.name))
            continue
        while f"added-{added}" in names:
            added += 1
        like = cluster.hosts[rng.integers(len(cluster.hosts))]
        host = replace(like, name=f"added-{added}")
        added += 1
        staying.append(host)
        changes.append(HostAdded(at, host))
    return tuple(changes)


def _may_leave(cluster: Cluster, staying: Sequence[Host]) -> list[Host]:
    """The hosts that may leave, so that enough hosts and the largest ones of each kind stay."""
    if 2 * (len(staying) - 1) < len(cluster.hosts):
        return []
    kept: set[str] = set()
    for kind in cluster.capacity:
        most = max(host.slots.get(kind, 0) for host in cluster.hosts)
        large = [host.name for host in staying if host.slots.get(kind, 0) == most]
        if len(large) == 1:
            kept.update(large)
    return [host for host in staying if host.name not in kept]
