"""Hosts of a session: added, drained and removed while it runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.event import HostAdded, HostDrained, HostRemoved
from slotwise.model.typed import check_number, check_text
from slotwise.runtime.agents.source import dask_workers
from slotwise.runtime.live_backend import LiveBackend
from slotwise.runtime.local.backend import LocalBackend
from slotwise.runtime.local.hosts import check_emulated, on_this_machine
from slotwise.sessions.checking import check_slots
from slotwise.sessions.claims_of_cores import ClaimOfCores, claim_cores
from slotwise.sessions.loop_thread import LoopThread
from slotwise.sources import Slots, processors


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where the tasks of a session run: hosts, and a backend that runs tasks there.

    claim    the entry among the sessions on this machine; None for hosts elsewhere
    discard  frees what was reserved, if no backend is made
    """

    cluster: Cluster
    backend: Callable[[], LiveBackend]
    claim: ClaimOfCores | None
    discard: Callable[[], None]


def place_for(
    slots: Slots | Cluster | None, dask: Any, dask_slots: int | None = None
) -> SessionPlace:
    """This machine, or the hosts of a Dask cluster. InputError for what cannot be used."""
    if dask is None:
        if dask_slots is not None:
            raise InputError("dask_slots is for the workers of a Dask cluster; give dask, too")
        cluster, claim = _claimed_cluster(slots)
        return SessionPlace(
            cluster, lambda: LocalBackend((), cluster, is_open=True), claim, claim.close
        )
    if slots is not None:
        raise InputError(
            "slots and dask are both given; a Dask worker has a slot a thread, or dask_slots"
        )
    source = dask_workers(dask, dask_slots)  # Refuses what lacks the extra dask.
    from slotwise.runtime.agents.backend import AgentsBackend, cluster_of

    try:
        hosts = source.connect()
    except BaseException:
        source.close()
        raise
    return SessionPlace(
        cluster_of(hosts),
        lambda: AgentsBackend((), source, hosts, is_open=True),
        None,
        source.close,
    )


def check_on_this_machine(cluster: Cluster) -> None:
    """InputError for a host elsewhere, which does not see the temporary folders of this one."""
    here = socket.gethostname()
    for host in cluster.hosts:
        if host.addresses and here not in host.addresses:
            raise InputError(
                f"a command without an output writes to a temporary folder of {here!r}, which"
                f" host {host.name!r} does not see; name a folder that all hosts see, as in"
                " output='/shared/out'"
            )


def _claimed_cluster(slots: Slots | Cluster | None) -> tuple[Cluster, ClaimOfCores]:
    """The hosts of a new session here, and its entry among the sessions on this machine.

    InputError for hosts that cannot be emulated.
    """
    if slots is None:
        count, claim = claim_cores(None, processors())
        return LocalBackend.cluster(count), claim
    if isinstance(slots, Cluster):
        cluster = on_this_machine(slots)
    else:
        cluster = LocalBackend.cluster(slots)
    return cluster, claim_cores(sum(cluster.capacity.values()), processors())[1]


def add_host(loop: LoopThread, name: str, slots: Slots, speed: float, rack: str) -> None:
    """Add a host with its own worker processes. See `Session.add_host`."""
    if not loop.backend.is_local:
        raise InputError("the hosts are the workers of a Dask cluster; start another worker")
    check_text("the name of a host", name)
    check_text(f"host {name!r}: rack", rack)
    if not isinstance(slots, int | Mapping):
        raise InputError(f"host {name!r}: slots is {slots!r}; give a whole number >= 1")
    check_slots(slots)
    check_number(f"host {name!r}: speed", speed)
    by_kind = {ANY_KIND: slots} if isinstance(slots, int) else dict(slots)
    host = Host(name, by_kind, rack, speed)
    check_emulated(host)
    if not any(by_kind.values()):
        raise InputError(f"host {name!r} has no slots; give it at least 1")

    def add() -> None:
        present = loop.state.cluster
        if name in present.by_name:
            leaves = name in loop.state.leaving
            why = "leaves when its last task has ended" if leaves else "is there already"
            raise InputError(f"host {name!r} {why}; give the new host another name")
        present.with_host(host)  # Refuses too many slots.
        loop.on_event(HostAdded(loop.backend.now, host))

    loop.ask(add)
    loop.ask(lambda: None)  # The state has heard of it then.


def remove_host(loop: LoopThread, name: str, *, drain: bool) -> None:
    """Let nothing more begin on a host. See `Session.remove_host`."""
    check_text("the name of a host", name)

    def remove() -> None:
        known = loop.state.cluster.by_name
        if name not in known:
            raise InputError(f"there is no host {name!r}; hosts: {', '.join(known) or 'none'}")
        event = HostDrained if drain else HostRemoved
        loop.on_event(event(loop.backend.now, name))

    loop.ask(remove)
    loop.ask(lambda: None)
