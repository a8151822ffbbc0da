"""Which attempt holds which slots of which host on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slotwise.model.cluster import Host
from slotwise.model.decision import Launch
from slotwise.model.job import PhaseId


class SlotTable:
    """The slots of all hosts, free or held by attempts. Slots are numbers of workers.

    An attempt that occupies several slots runs in one of them; the workers of the others do
    nothing. The slot of an attempt that is abandoned is not free until it has ended.

    of_host    the slots of each host; a host without slots is there, too
    host_of    the host of each slot
    held       the attempt that runs in a slot
    abandoned  attempts reported as lost that unresponsive hosts may still run, by slot
    """

    def __init__(self) -> None:
        self.of_host: dict[str, list[int]] = {}
        self.host_of: dict[int, Host] = {}
        self.held: dict[int, Launch] = {}
        self.abandoned: dict[int, Launch] = {}
        self._free: dict[str, list[int]] = {}  # by host; the next one is last
        self._idle: dict[int, list[int]] = {}  # the further slots of an attempt

    def add(self, host: Host, slots: Sequence[int]) -> None:
        """Add a host with free slots."""
        self.of_host[host.name] = list(slots)
        self._free[host.name] = list(reversed(slots))
        for slot in slots:
            self.host_of[slot] = host

    def remove(self, host: str) -> list[int]:
        """Remove a host where no attempt runs; its slots."""
        del self._free[host]
        slots = self.of_host.pop(host)
        for slot in slots:
            assert slot not in self.held
            assert slot not in self.abandoned
            del self.host_of[slot]
        return slots

    def obstacle(self, host: str, width: int) -> str:
        """Why no task that occupies `width` slots can begin on a host; empty if one can."""
        if host not in self._free:
            return f"{host} is not there"
        free = len(self._free[host])
        if free >= width:
            return ""
        if free:
            return f"fewer than {width} workers of {host} are free"
        return f"no worker of {host} is free"

    def take(self, launch: Launch, width: int) -> int:
        """Let an attempt hold free slots; the slot of its worker."""
        free = self._free[launch.host]
        slot = free.pop()
        if width > 1:
            self._idle[slot] = [free.pop() for _ in range(width - 1)]
        self.held[slot] = launch
        return slot

    def release(self, slot: int) -> Launch:
        """Free the slots of an attempt that is over; the launch of the attempt."""
        free = self._free[self.host_of[slot].name]
        free += self._idle.pop(slot, ())
        free.append(slot)
        return self.held.pop(slot)

    def abandon(self, slot: int) -> Launch:
        """Free the slots of an attempt, except the one in which it may still run."""
        launch = self.abandoned[slot] = self.release(slot)
        self._free[self.host_of[slot].name].remove(slot)
        return launch

    def release_abandoned(self, slot: int) -> Launch:
        """Free the slot of an abandoned attempt, which has ended."""
        self._free[self.host_of[slot].name].append(slot)
        return self.abandoned.pop(slot)

    def slot_of(self, phase: PhaseId, task: int) -> int | None:
        """The slot in which a task runs; None if it does not run."""
        wanted = (phase, task)
        held = self.held.items()
        return next((s for s, launch in held if (launch.phase, launch.task) == wanted), None)

    def on(self, host: str, slots: Iterable[int]) -> list[int]:
        """Those of these slots that belong to a host."""
        return [slot for slot in slots if self.host_of[slot].name == host]
