"""Hosts, racks and slots: where work runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Annotated, Any, NamedTuple

from slotwise.core.errors import (
    POSITIVE,
    InputError,
    Limits,
    Positive,
    Seconds,
    check_all,
    check_limits,
    check_name,
    check_type,
    is_whole,
    option_name,
    shown,
)
from slotwise.core.resources import (
    NOTHING,
    Resources,
    check_devices,
    resources_of,
)
from slotwise.core.units import Percent

ANY_KIND = "task"
"""The plain kind of slot: it serves phases of every kind that has no slots of its own."""

MAX_SLOTS = 10_000_000
"""The largest number of slots of one kind; a larger one is taken for a typing error."""

Slots = Annotated[
    int, Limits(1, MAX_SLOTS, f"give a whole number from 1 to {MAX_SLOTS}", whole=True)
]
Count = Annotated[
    int, Limits(0, MAX_SLOTS, f"give a whole number from 0 to {MAX_SLOTS}", whole=True)
]

GRACE_SECONDS = 30.0
"""Default seconds that a host may not respond before its tasks are planned elsewhere."""


@dataclass(frozen=True)
class Host:
    """A machine with slots of one or more kinds. A task of work w takes w / speed seconds.

    addresses  other names and addresses of the machine, by which file systems name it
    resources  what it has beside slots, by name: `memory` in bytes or as a size, whole `gpu`,
               and numbers of others
    """

    name: str
    slots: Mapping[str, int]
    rack: str = "rack"
    speed: Positive = 1.0
    addresses: tuple[str, ...] = ()
    resources: Mapping[str, Any] = NOTHING

    def __post_init__(self) -> None:
        check_name("the name of a host", self.name)
        check_name(f"host {self.name!r}: rack", self.rack)
        check_all(
            f"host {self.name!r}: addresses", self.addresses, str, "give a tuple of strings"
        )
        if not isinstance(self.slots, Mapping) or not all(
            isinstance(kind, str) and is_whole(count) for kind, count in self.slots.items()
        ):
            raise InputError(
                f"host {self.name!r}: slots is {shown(self.slots)}; give whole numbers by kind,"
                " such as {'task': 2}"
            )
        check_limits(f"host {self.name!r}", self)
        for kind, count in self.slots.items():
            if count < 0:
                raise InputError(
                    f"host {self.name!r}: {shown(count)} slots of kind {kind!r}; use >= 0"
                )
        self._check_resources()

    def _check_resources(self) -> None:
        what = f"host {self.name!r}: resources"
        more = resources_of(what, self.resources)
        check_devices(what, more, is_host=True)
        for name in more:
            if name in self.slots:
                raise InputError(f"{what} has {name!r}, which is a kind of slot; rename one")
        object.__setattr__(self, "resources", more)

    @property
    def has(self) -> Resources:
        """Its `resources`, as amounts."""
        assert isinstance(self.resources, Resources)
        return self.resources

    @cached_property
    def amounts(self) -> Resources:
        """All that tasks can request of it: its slots of each kind, and its resources."""
        return (
            Resources({**self.slots, **self.resources})
            if self.resources
            else Resources(self.slots)
        )


@dataclass(frozen=True)
class Cluster:
    """All hosts. A phase of kind k uses slots of kind k, or plain ones if there are none.

    While hosts come and go it holds those that are present. Kinds of slots stay known when
    their last host has left, so that phases wait for another one.

    heartbeat  seconds between two reports of a host, as in Hadoop: the end of a task is known
               with the next report. 0: the host reports at once
    grace      seconds that a host may not respond; after that, the tasks that run there are
               started again on other hosts
    kinds      kinds of slots that are known although no host may have any now; a cluster with
               such kinds may be empty
    """

    hosts: tuple[Host, ...] = field(default=())
    heartbeat: Seconds = 0.0
    grace: Seconds = GRACE_SECONDS
    kinds: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        hosts = self.hosts
        if not isinstance(hosts, Sequence) or not all(isinstance(one, Host) for one in hosts):
            raise InputError(
                f"cluster: hosts is {shown(hosts)}; give a tuple of Host, or a number of slots"
                " to Cluster.of_slots"
            )
        check_limits("cluster", self)
        check_type("cluster: kinds", self.kinds, frozenset, "give a frozenset of strings")
        names = [host.name for host in self.hosts]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two hosts are named {twice!r}; rename one")
        if not self.capacity:
            raise InputError("the cluster has no slots; give it at least 1")
        for kind, count in self.capacity.items():
            if count > MAX_SLOTS:
                raise InputError(
                    f"the cluster has {shown(count)} slots of kind {kind!r};"
                    f" give it at most {MAX_SLOTS}"
                )

    @classmethod
    def of_slots(cls, slots: int, name: str = "cluster") -> Cluster:
        """One host of speed 1 whose slots serve every kind."""
        return cls((Host(name, {ANY_KIND: slots}),))

    @cached_property
    def by_name(self) -> dict[str, Host]:
        """The hosts by name."""
        return {host.name: host for host in self.hosts}

    def at(self, machine: str) -> tuple[str, ...]:
        """The hosts that have this name, or are on the machine with this name or address.

        Names of machines also match without their domains.
        """
        if machine in self.by_name:
            return (machine,)
        name = machine.lower()
        return self._by_address.get(name) or self._by_address.get(_short(name), ())

    @cached_property
    def _by_address(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for host in self.hosts:
            names = {name.lower() for name in host.addresses if name}
            for name in names | set(map(_short, names)):
                found[name] = (*found.get(name, ()), host.name)
        return found

    @cached_property
    def speeds(self) -> dict[str, float]:
        """The speed of each host."""
        return {host.name: host.speed for host in self.hosts}

    @cached_property
    def host_of_slot(self) -> dict[str, list[str]]:
        """The host of each slot, by kind of slot."""
        return {
            kind: [host.name for host in self.hosts for _ in range(host.slots.get(kind, 0))]
            for kind in self.capacity
        }

    @cached_property
    def position(self) -> dict[str, int]:
        """The index of each host in `hosts`."""
        return {host.name: number for number, host in enumerate(self.hosts)}

    @cached_property
    def rack_of(self) -> dict[str, str]:
        """The rack of each host."""
        return {host.name: host.rack for host in self.hosts}

    @cached_property
    def capacity(self) -> dict[str, int]:
        """The number of slots of each known kind of slot, over all hosts."""
        total: dict[str, int] = {}
        for host in self.hosts:
            for kind, count in host.slots.items():
                total[kind] = total.get(kind, 0) + count
        kinds = self.kinds | {kind for kind, count in total.items() if count}
        return {kind: total.get(kind, 0) for kind in sorted(kinds)}

    def with_host(self, host: Host) -> Cluster:
        """The cluster with one more host. InputError if its name is taken."""
        return replace(self, hosts=(*self.hosts, host), kinds=frozenset(self.capacity))

    def without(self, name: str) -> Cluster:
        """The cluster without a host; the kinds of its slots stay known."""
        hosts = tuple(host for host in self.hosts if host.name != name)
        return replace(self, hosts=hosts, kinds=frozenset(self.capacity))

    def resized(self, name: str, slots: Mapping[str, int]) -> Cluster:
        """The cluster with other numbers of slots on one host."""
        hosts = tuple(
            replace(host, slots=slots) if host.name == name else host for host in self.hosts
        )
        return replace(self, hosts=hosts, kinds=frozenset(self.capacity))

    @cached_property
    def totals(self) -> Resources:
        """The amounts of all resources, slots included, over all hosts."""
        total: dict[str, int] = {}
        for host in self.hosts:
            for name, amount in host.amounts.pairs:
                total[name] = total.get(name, 0) + amount
        return Resources(total)

    def fit(self, request: Resources) -> int:
        """How many tasks with this request, not empty, the hosts hold at once.

        O(hosts) at the first call for a request.
        """
        known = self._fit
        if request not in known:
            known[request] = sum(host.amounts.times(request) for host in self.hosts)
        return known[request]

    @cached_property
    def _fit(self) -> dict[Resources, int]:
        return {}

    def check_task(
        self, kind: str, slots: int, needs: Resources = NOTHING, *, are_named: bool = False
    ) -> None:
        """InputError if no host has this number of slots for phases of this kind.

        Nor `needs`, what each task requests beside slots. One slot is present, or will be when
        a host of the kind joins. `are_named`: the hosts are those that a phase names.
        """
        slot_kind = self.slot_kind(kind)
        for name in needs.keys() & self.capacity.keys():
            raise InputError(
                f"each task requests {name!r} as a resource, but it is a kind of slot; state it"
                " with the key `kind`"
            )
        if (slots == 1 and not needs) or not self.hosts:
            return
        request = Resources({slot_kind: slots, **needs})
        if any(host.amounts.holds(request) for host in self.hosts):
            return
        words = _NAMED if are_named else _ALL
        self._refuse(request, needs, words)
        if slots > max(host.amounts.get(slot_kind, 0) for host in self.hosts):
            host = max(self.hosts, key=lambda host: host.amounts.get(slot_kind, 0))
            largest = host.amounts.get(slot_kind, 0)
            raise InputError(
                f"each task occupies {slots} slots of one host, but {words.largest},"
                f" {host.name!r}, has {largest} of kind {slot_kind!r}; give `slots` at most"
                f" {largest}, or {words.larger}"
            )
        raise InputError(
            f"each task requests {needs} and {slots} {_slots(slots)} of kind {slot_kind!r}, and"
            f" {words.none} has all of it; request less, or {words.larger}"
        )

    def _refuse(self, request: Resources, needs: Resources, words: _Words) -> None:
        """InputError for a resource of which no host has as much as is requested."""
        for name, text in needs.texts().items():
            host = max(self.hosts, key=lambda host: host.amounts.get(name, 0))
            largest = Resources({name: host.amounts.get(name, 0)})
            if largest.holds(Resources({name: request[name]})):
                continue
            if not largest:
                remedy = words.having or (
                    f"state what hosts have: {option_name('resources')} of the run or server,"
                    " or `resources` of a host"
                )
                raise InputError(
                    f"each task requests {name} {text}, but {words.none} has {name}; leave it"
                    f" out, or {remedy}"
                )
            most = largest.texts()[name]
            raise InputError(
                f"each task requests {name} {text}, but {words.most}, {host.name!r}, has"
                f" {most}; request less, or {words.larger}"
            )

    def check_gang(self, kind: str, tasks: int, slots: int, needs: Resources = NOTHING) -> None:
        """InputError if the hosts together cannot hold these tasks at once.

        Each task occupies `slots` slots of one host, and requests `needs`. No check without
        hosts: some may come.
        """
        slot_kind = self.slot_kind(kind)
        request = Resources({slot_kind: slots, **needs})
        fit = self.fit(request)
        if fit < tasks and self.hosts:
            raise InputError(
                f"a gang starts its {tasks} tasks of {slots} {_slots(slots)}"
                f"{f' and {needs}' if needs else ''} together, but"
                f" the {self.capacity[slot_kind]} slots of kind {slot_kind!r} on"
                f" {len(self.hosts)} {'host' if len(self.hosts) == 1 else 'hosts'} hold {fit}"
                f" of them at once; give the gang at most {fit}, or add"
                f" {'hosts' if needs else 'slots'}"
            )

    def check_continues(
        self,
        before: str,
        after: str,
        slots: tuple[int, int] = (1, 1),
        needs: tuple[Resources, Resources] = (NOTHING, NOTHING),
    ) -> None:
        """InputError for a host that can run tasks of kind `before` but not those of `after`.

        Tasks of kind `after` continue those of kind `before` on the same host; `slots` are the
        slots that each task occupies before and after, and `needs` what it requests beside.
        """
        one, other = self.slot_kind(before), self.slot_kind(after)
        request = Resources({one: slots[0], **needs[0]})
        next_request = Resources({other: slots[1], **needs[1]})
        for host in self.hosts:
            if not host.amounts.holds(request) or host.amounts.holds(next_request):
                continue
            if host.amounts.get(other, 0) >= slots[1]:
                raise InputError(
                    f"a task that continues one on host {host.name!r} requests {needs[1]}, and"
                    " the host has less; request less, or give it more"
                )
            if has := host.amounts.get(other, 0):
                raise InputError(
                    f"host {host.name!r} has {has} slots of kind {other!r}, and a task of kind"
                    f" {after!r} that continues one there occupies {slots[1]}; give it more, or"
                    f" no slots of kind {one!r}"
                )
            raise InputError(
                f"host {host.name!r} has slots of kind {one!r} but none of kind {other!r},"
                f" for tasks of kind {after!r} that continue those of kind {before!r} where"
                f" they ran; give it some, or no slots of kind {one!r}"
            )

    def slot_kind(self, kind: str) -> str:
        """The kind of slot that phases of this kind use. InputError if there is none."""
        slots = self.capacity
        if kind in slots:
            return kind
        if ANY_KIND in slots:
            return ANY_KIND
        wanted = " or ".join(repr(one) for one in dict.fromkeys((kind, ANY_KIND)))
        raise InputError(
            f"no host has slots for phases of kind {kind!r}; the cluster has slots of kind"
            f" {', '.join(self.capacity)}: add {wanted} slots to a host"
        )

    def part(self, share: Any, kind: str, least: int = 0) -> Any:
        """The slots that a `Percent` is of those of a kind; any other share as it is."""
        if not isinstance(share, Percent):
            return share
        return share.of_total(self.capacity[self.slot_kind(kind)], least)


class _Words(NamedTuple):
    """How refusals name the hosts, and what hosts they ask for."""

    none: str
    largest: str
    most: str
    larger: str
    having: str = ""


_ALL = _Words("no host", "the largest host", "the host with the most", "add a larger host")
_NAMED = _Words(
    "none of these hosts",
    "the largest of these hosts",
    "the one of these hosts with the most",
    "name a larger host",
    "name hosts that have it",
)


def _slots(count: int) -> str:
    return "slot" if count == 1 else "slots"


def _short(name: str) -> str:
    """The name of a machine without its domain; addresses stay as they are."""
    return name if ":" in name or name[-1:].isdecimal() else name.partition(".")[0]


# The network of a cluster: the bandwidth between hosts and racks.

Bandwidth = Annotated[
    float, replace(POSITIVE, remedy=f"{POSITIVE.remedy} bytes a second", or_infinite=True)
]
"""Bytes a second."""


@dataclass(frozen=True, slots=True)
class Network:
    """Bandwidths in bytes a second: of a host and of a rack, each way, and of the core.

    The hosts of a rack are connected by its switch, and the racks by the core. Concurrent flows
    share each of these fairly.
    """

    host: Bandwidth = inf
    rack: Bandwidth = inf
    core: Bandwidth = inf

    def __post_init__(self) -> None:
        check_limits("network", self)
