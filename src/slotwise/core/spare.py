"""What is free of the resources beside slots, on each host that is present."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Protocol

from slotwise.core.cluster import Host
from slotwise.core.decisions import Launch
from slotwise.core.resources import GPU, UNIT, Resources

KEPT_REQUESTS = 10_000
"""The number of different requests for which the hosts that hold them are kept."""


class ResourceHolder(Protocol):
    """A phase as the hosts see it."""

    slot_kind: str
    width: int
    order: int
    stated: Resources
    launches: dict[int, tuple[Launch, float, float]]

    def held(self, launch: Launch) -> Resources:
        """What an attempt has of its host beside slots."""
        ...


class Spare:
    """The free amounts of memory, devices and named resources of each host.

    The free part of each device is known, so that tasks that get parts share devices and others
    get whole ones. `hosts_for` costs O(hosts) for a new request, and afterwards O(changes since
    it was last asked); `take` and `give_back` cost O(names and devices of the request).
    Where no host has resources, nothing is counted.

    tasks_read  what a snapshot has read of the tasks on a host, kept until others run there
    """

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._amounts: dict[str, dict[str, int]] = {}
        self._devices: dict[str, list[int]] = {}
        self._tasks: dict[str, dict[tuple[int, int], ResourceHolder]] = {}
        self.tasks_read: dict[str, Any] = {}
        self._changed: list[str] = []  # hosts, in the order in which their amounts changed
        self._known: dict[Resources, tuple[int, set[str]]] = {}
        self._free: dict[str, Resources] = {}  # by host, since they were read
        for host in hosts:
            self.add(host)

    def add(self, host: Host) -> None:
        """Add a host on which nothing runs."""
        self.tasks_read.pop(host.name, None)
        if host.resources:
            amounts = dict(host.resources)
            self._devices[host.name] = [UNIT] * (amounts.pop(GPU, 0) // UNIT)
            self._amounts[host.name], self._tasks[host.name] = amounts, {}
            self._note(host.name)

    def forget(self, host: str) -> None:
        """Remove a host."""
        if self._amounts.pop(host, None) is not None:
            del self._devices[host], self._tasks[host]
            self.tasks_read.pop(host, None)
            self._note(host)

    def holds(self, host: str, request: Resources) -> bool:
        """Whether a request, not empty, fits into what a host has free."""
        amounts = self._amounts.get(host)
        if amounts is None:
            return False
        for name, amount in request.pairs:
            if name == GPU:
                if not devices_for(self._devices[host], amount):
                    return False
            elif amounts.get(name, 0) < amount:
                return False
        return True

    def times(self, host: str, request: Resources, more: Sequence[Resources] = ()) -> int:
        """How many of these requests, not empty, fit on a host at once.

        `more` are requests of tasks that run there and will have ended.
        """
        amounts, devices = self._amounts.get(host), self._devices.get(host, ())
        if amounts is None:
            return 0
        if more:
            amounts = dict(amounts)
            for one in more:
                for name, amount in one.pairs:
                    amounts[name] = amounts.get(name, 0) + amount
            freed = sum(one.get(GPU, 0) for one in more)
            devices = _with(devices, freed)
        found = [
            devices_for(devices, amount)
            if name == GPU
            else max(0, amounts.get(name, 0)) // amount
            for name, amount in request.pairs
        ]
        return min(found)

    def amounts(self, name: str) -> dict[str, int]:
        """The free amount of a resource on each host that has resources."""
        if name == GPU:
            return {host: sum(devices) for host, devices in self._devices.items()}
        return {host: amounts.get(name, 0) for host, amounts in self._amounts.items()}

    def largest(self, name: str, hosts: Iterable[str]) -> int:
        """The largest free amount of a resource on one of these hosts."""
        if name == GPU:
            return max([sum(self._devices.get(host, ())) for host in hosts], default=0)
        amounts = self._amounts
        return max([amounts[host].get(name, 0) for host in hosts if host in amounts], default=0)

    def hosts_for(self, request: Resources) -> Set[str]:
        """The hosts where a request fits now."""
        at = len(self._changed)
        since, hosts = self._known.get(request, (-1, set[str]()))
        if since < 0 or at - since > len(self._amounts):
            hosts = {host for host in self._amounts if self.holds(host, request)}
            if len(self._known) >= KEPT_REQUESTS:
                self._known.clear()
        else:
            for host in islice(self._changed, since, at):
                (hosts.add if self.holds(host, request) else hosts.discard)(host)
        self._known[request] = at, hosts
        return hosts

    def choose(
        self, host: str, request: Resources, taken: Iterable[int] = ()
    ) -> tuple[int, ...]:
        """The devices of a host for a request; none if it requests none.

        A part is of the device with the least free part that is enough, and whole devices are
        the first ones. `taken` are devices that launches of the same decision got.
        """
        amount = request.get(GPU, 0)
        if not amount:
            return ()
        free = list(self._devices.get(host, ()))
        for device in taken:
            free[device] -= min(amount, UNIT)
        if amount < UNIT:
            able = [(left, device) for device, left in enumerate(free) if left >= amount]
            return (min(able)[1],) if able else ()
        return tuple(d for d, left in enumerate(free) if left == UNIT)[: amount // UNIT]

    def has_free(self, launch: Launch, request: Resources) -> bool:
        """Whether the host of a launch has this free, on the devices of the launch."""
        amounts, free = self._amounts.get(launch.host, {}), self._devices.get(launch.host, ())
        amount = request.get(GPU, 0)
        if len(launch.devices) != (max(1, amount // UNIT) if amount else 0):
            return False
        if any(n >= len(free) or free[n] < min(amount, UNIT) for n in launch.devices):
            return False
        return all(amounts.get(n, 0) >= most for n, most in request.pairs if n != GPU)

    def take(self, launch: Launch, phase: ResourceHolder) -> None:
        """Take what a task requests of its host, with its devices."""
        host = launch.host
        if host in self._tasks:
            self._tasks[host][phase.order, launch.task] = phase
            self.tasks_read.pop(host, None)
        if launch.memory or phase.stated.pairs:
            self._add(launch, phase.held(launch), -1)
            assert all(left >= 0 for left in self._devices[host]), "no device is exceeded"
            assert all(left >= 0 for left in self._amounts[host].values()), "it was free"

    def give_back(self, launch: Launch, phase: ResourceHolder) -> None:
        """Return what a task had of its host."""
        if launch.host in self._tasks:
            self._tasks[launch.host].pop((phase.order, launch.task), None)
            self.tasks_read.pop(launch.host, None)
            if launch.memory or phase.stated.pairs:
                self._add(launch, phase.held(launch), 1)

    def tasks(self, host: str) -> Iterable[tuple[tuple[int, int], ResourceHolder]]:
        """The tasks that run on a host: order of the phase and number, and the phase."""
        return self._tasks.get(host, {}).items()

    def amount(self, host: str, name: str) -> int:
        """The free amount of one resource of a host."""
        if name == GPU:
            return sum(self._devices.get(host, ()))
        return self._amounts.get(host, {}).get(name, 0)

    def free(self, host: str) -> Resources:
        """The free amounts of a host."""
        found = self._free.get(host)
        if found is None:
            amounts = dict(self._amounts.get(host, {}))
            if devices := sum(self._devices.get(host, ())):
                amounts[GPU] = devices
            found = self._free[host] = Resources(amounts)
        return found

    def check(self, hosts: Mapping[str, Host], held: Mapping[str, Sequence[Resources]]) -> None:
        """Assert that each host has free what it has and its tasks do not hold. For tests."""
        assert self._amounts.keys() == {name for name, host in hosts.items() if host.resources}
        for name in self._amounts:
            left = dict(hosts[name].resources)
            for request in held.get(name, ()):
                for resource, amount in request.pairs:
                    left[resource] = left[resource] - amount
            assert self.free(name) == Resources(left), "each amount is held or free"
            assert all(amount >= 0 for amount in left.values()), "no host is exceeded"
        for request, (since, hosts_then) in self._known.items():
            if since == len(self._changed):
                now = {host for host in self._amounts if self.holds(host, request)}
                assert hosts_then == now, "the hosts for a request are known"

    def _add(self, launch: Launch, request: Resources, sign: int) -> None:
        host, devices = launch.host, launch.devices
        amounts = self._amounts[host]
        for name, amount in request.pairs:
            if name == GPU:
                assert len(devices) == max(1, amount // UNIT), "each task has its devices"
                for device in devices:
                    self._devices[host][device] += sign * min(amount, UNIT)
            else:
                amounts[name] += sign * amount
        self._note(host)

    def _note(self, host: str) -> None:
        self._free.pop(host, None)
        if len(self._changed) >= 2 * KEPT_REQUESTS:
            self._changed.clear()
            self._known.clear()
        self._changed.append(host)


def devices_for(free: Sequence[int], amount: int) -> int:
    """How many requests of this amount fit on devices with these free parts."""
    if amount < UNIT:
        return sum(left // amount for left in free)
    return sum(left == UNIT for left in free) // (amount // UNIT)


def _with(free: Sequence[int], freed: int) -> list[int]:
    """The free parts after tasks with this amount end; the fullest devices are freed first.

    It may be more than will really fit: it is not known here which devices these tasks have.
    """
    found = sorted(free, reverse=True)
    for number, left in enumerate(found):
        more = min(UNIT - left, freed)
        found[number] += more
        freed -= more
    return found
