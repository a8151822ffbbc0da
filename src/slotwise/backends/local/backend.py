"""The local backend: this machine. Its slots are worker processes; it runs in real time.

It can emulate several hosts, each with its own worker processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from slotwise.backends.attempt_logs import AttemptLogs
from slotwise.backends.live import LiveBackend
from slotwise.backends.local.pacing import MIN_SPEED
from slotwise.backends.local.processes import Processes
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import InputError, option_name
from slotwise.core.resources import GPU, MEMORY, NOTHING
from slotwise.jobs.devices import gpus
from slotwise.jobs.execution import Execution
from slotwise.jobs.memory import usable_memory

HOST = "localhost"
"""The name of the only host, if no cluster is emulated."""


class LocalBackend(LiveBackend):
    """Runs launches in the worker processes of this machine.

    `slots` is their number, or their number by kind, or a cluster: then each host has its own
    worker processes, one for each slot. A worker is unresponsive if another process has stopped
    it; the only host never is.
    """

    def __init__(
        self,
        executions: Iterable[Execution],
        slots: int | Mapping[str, int] | Cluster,
        *,
        is_open: bool = False,
        logs: AttemptLogs | None = None,
    ) -> None:
        cluster = slots if isinstance(slots, Cluster) else self.cluster(slots)
        self._processes = Processes(stdout=1 if is_open else 2)
        super().__init__(executions, cluster, self._processes, is_open=is_open, logs=logs)

    @staticmethod
    def cluster(
        slots: int | Mapping[str, int],
        stated: Mapping[str, Any] = NOTHING,
        *,
        needs_gpus: bool = True,
    ) -> Cluster:
        """This machine as a cluster of one host, with its memory and GPUs.

        Resources that are `stated` replace those that were found, name by name. GPUs are looked
        for only if tasks may need them and they are not stated.
        """
        by_kind = {ANY_KIND: slots} if isinstance(slots, int) else slots
        found = machine_resources(needs_gpus and GPU not in stated)
        return Cluster((Host(HOST, by_kind, resources={**found, **stated}),))

    def _begin_host(self, host: Host) -> Sequence[int]:
        return self._processes.add([host.speed] * sum(host.slots.values()))


def machine_resources(needs_gpus: bool) -> dict[str, int]:
    """The memory that tasks may use on this machine, in bytes, and the number of its GPUs.

    These are looked for only if they are needed, which may take seconds.
    """
    return {MEMORY: usable_memory(), GPU: len(gpus()) if needs_gpus else 0}


# Clusters that can be emulated on this machine.


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
    """Whether a cluster names hosts, and is not only slots for every kind and resources."""
    if cluster is None:
        return False
    plain = Cluster.of_slots(sum(cluster.capacity.values()))
    return tuple(replace(host, resources=NOTHING) for host in cluster.hosts) != plain.hosts
