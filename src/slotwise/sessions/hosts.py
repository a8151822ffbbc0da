"""Hosts of a session: added, drained and removed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.event import HostAdded, HostDrained, HostRemoved
from slotwise.runtime.local.backend import LocalBackend
from slotwise.runtime.local.hosts import check_emulated, on_this_machine
from slotwise.runtime.state import State
from slotwise.sessions.checking import (
    check_number,
    check_slots,
    check_text,
    part_of_session,
)
from slotwise.sessions.claims_of_cores import ClaimOfCores, claim_cores
from slotwise.sessions.loop_thread import LoopThread
from slotwise.sources import Slots, processors


def claimed_cluster(slots: Slots | Cluster | None) -> tuple[Cluster, ClaimOfCores]:
    """The hosts of a new session, and its entry among the sessions on this machine.

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


@part_of_session
class ChangesHosts:
    """The part of a session that changes its hosts; all of them are on this machine."""

    _loop: LoopThread
    _state: State

    @property
    def slots(self) -> int:
        """The number of slots of all hosts that are present."""
        return sum(self._state.cluster.capacity.values())

    def hosts(self) -> list[Host]:
        """The hosts that are present; a drained one until its last task has ended."""
        return list(self._loop.ask(lambda: self._state.cluster.hosts))

    def add_host(self, name: str, slots: Slots, speed: float = 1.0, rack: str = "rack") -> None:
        """Add a host with its own worker processes; tasks begin there from now on.

        slots  the number of its worker processes, or their number by kind
        speed  the part of the time for which they run while they have tasks, at most 1

        InputError for a name that is taken, or for slots or a speed that no host here can have;
        SlotwiseError if the workers cannot be started.
        """
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
            present = self._state.cluster
            if name in present.by_name:
                leaves = name in self._state.leaving
                why = "leaves when its last task has ended" if leaves else "is there already"
                raise InputError(f"host {name!r} {why}; give the new host another name")
            present.with_host(host)  # Refuses too many slots.
            self._loop.hear(HostAdded(self._loop.backend.now, host))

        self._change(add)

    def remove_host(self, name: str, drain: bool = True) -> None:
        """Let nothing more begin on a host; with `drain` its tasks continue to their ends.

        Otherwise its worker processes are killed at once, and its tasks begin again elsewhere.
        Does not wait for these. Without any host, jobs wait for the next one. To drain a host
        again has no effect. InputError for an unknown name.
        """
        check_text("the name of a host", name)

        def remove() -> None:
            known = self._state.cluster.by_name
            if name not in known:
                raise InputError(
                    f"there is no host {name!r}; hosts: {', '.join(known) or 'none'}"
                )
            event = HostDrained if drain else HostRemoved
            self._loop.hear(event(self._loop.backend.now, name))

        self._change(remove)

    def _change(self, change: Callable[[], None]) -> None:
        """Make a change, and wait until the state has heard of it."""
        self._loop.ask(change)
        self._loop.ask(lambda: None)
