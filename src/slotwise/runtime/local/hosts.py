"""Clusters that can be emulated on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from slotwise.model.cluster import Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.option_names import option_name
from slotwise.runtime.local.pacing import MIN_SPEED


def emulated(cluster: Cluster | None) -> Cluster:
    """The cluster of a workload as this machine emulates it.

    It has no heartbeat: the end of a task is known at once. InputError for a cluster that names
    no hosts, or that has a host with a speed above 1 or below `MIN_SPEED`.
    """
    if not names_hosts(cluster):
        raise InputError(
            "there are no hosts to emulate: the workload has no `cluster: hosts`; give it some,"
            f" each with name, slots and speed, or run without {option_name('emulate_hosts')}"
        )
    return on_this_machine(cluster)


def on_this_machine(cluster: Cluster) -> Cluster:
    """The cluster without a heartbeat; InputError for a host that cannot be emulated."""
    fastest = max(host.speed for host in cluster.hosts)
    for host in cluster.hosts:
        check_emulated(host, f"divide all speeds by {fastest:g}, the largest")
    return replace(cluster, heartbeat=0.0)


def check_emulated(host: Host, remedy: str = "give at most 1") -> None:
    """InputError for a host with a speed above 1 or below `MIN_SPEED`."""
    if host.speed > 1:
        raise InputError(
            f"host {host.name!r}: speed is {host.speed:g}, and a slot of this machine has"
            f" speed 1: only slower ones can be emulated; {remedy}"
        )
    if host.speed < MIN_SPEED:
        raise InputError(
            f"host {host.name!r}: speed is {host.speed:g}; no host slower than"
            f" {MIN_SPEED:g} can be emulated"
        )


def names_hosts(cluster: Cluster | None) -> TypeGuard[Cluster]:
    """Whether a cluster names hosts, and is not only a number of slots for every kind."""
    if cluster is None:
        return False
    plain = Cluster.of_slots(sum(cluster.capacity.values()))
    return cluster.hosts != plain.hosts
