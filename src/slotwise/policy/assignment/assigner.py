"""Assignment: which task goes to which free slot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from slotwise.core.decisions import Decision, GiveUp, Launch, Locality, Preempt, Retry
from slotwise.core.phase_state import PhaseState
from slotwise.core.resources import GPU, MEMORY
from slotwise.core.snapshot import Snapshot
from slotwise.policy.assignment.offers import Offers
from slotwise.policy.assignment.together import Together, near_first


class Assigner(Protocol):
    """Decides which task to launch next; called again until it returns nothing."""

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions, each valid on its own; empty if there is nothing to launch."""
        ...


REFUSED_MAX = 1000
"""The phases that would run into promises and are passed over, to find one that does not."""

Offer = tuple[str, PhaseState, Mapping[str, int]]
"""The kind of slot of a phase, the phase, and hosts with free slots where it may launch."""


def waiting(snapshot: Snapshot, offers: Offers | None = None) -> Iterator[Offer]:
    """The phases that may launch on free slots, in order, each with the hosts offered to it.

    First, kind by kind, the phases farthest below their allocation; last, the phases whose pool
    should rather get a slot of another kind. `offers`, if tasks of some phase occupy several
    slots, decides who goes before these and which hosts each phase is offered. A phase is not
    offered hosts where its tasks only fail.
    """
    last = []
    kinds: Iterable[str] = snapshot.cluster.capacity
    if offers:
        kinds = sorted(kinds, key=lambda kind: _is_later(snapshot, kind))
    for slot_kind in kinds:
        free = snapshot.free(slot_kind)
        if free or (offers and snapshot.reserved(slot_kind)):
            order = offers.in_order(slot_kind) if offers else snapshot.backlogged(slot_kind)
            promises, refused = snapshot.promises, 0
            for phase in order:
                if not phase.may_launch:
                    continue
                if promises.open and not promises.permits(phase):
                    refused += 1
                    if refused == REFUSED_MAX:
                        break
                else:
                    offered = offers.offered(slot_kind, phase) if offers else free
                    if not offered and offers:
                        offers.note(phase)
                    if phase.failures is not None:
                        offered = _without(phase.avoided(snapshot.lost), offered)
                    if not offered:
                        continue
                    if phase.is_limited and phase.yields:
                        last.append((slot_kind, phase, offered))
                    else:
                        yield slot_kind, phase, offered
    yield from last


def _is_later(snapshot: Snapshot, slot_kind: str) -> bool:
    """Whether no overdue pool needs these slots to use what it took back within a limit.

    What was taken back of another resource than slots is reserved for no pool.
    """
    return not any(pool.resource_limits for pool in snapshot.overdue(slot_kind))


def _without(avoided: Collection[str], hosts: Mapping[str, int]) -> Mapping[str, int]:
    """The hosts that are not avoided, with their slots."""
    if not avoided:
        return hosts
    return {host: slots for host, slots in hosts.items() if host not in avoided}


def local(phase: PhaseState, hosts: Collection[str]) -> Launch | None:
    """Launch a task of this phase on one of these hosts that holds its input, or on any of them
    if the phase has no preference. Each host has a free slot. O(number of hosts) at worst."""
    found = phase.next_task_on(hosts)
    return Launch(phase.id, *found, Locality.NODE) if found else None


def remote(
    phase: PhaseState, snapshot: Snapshot, hosts: Iterable[str], farthest: Locality
) -> Launch | None:
    """Launch a task on one of these hosts away from its input, in its rack if possible, at most
    as far as `farthest`. None if that is not possible or its tasks are pinned to hosts.
    O(number of hosts) at worst."""
    if phase.is_pinned:
        return None
    if farthest >= Locality.RACK:
        rack_of = snapshot.cluster.rack_of
        for host in hosts:
            found = phase.next_task_in(rack_of[host])
            if found:
                return Launch(phase.id, *found, host, Locality.RACK)
    if farthest >= Locality.ANY:
        return Launch(phase.id, *phase.next_task_for(hosts), Locality.ANY)
    return None


# Greedy assignment: the phase farthest below its allocation takes the best free slot.


@dataclass(frozen=True, slots=True)
class Greedy:
    """The phase farthest below its allocation launches on a node with its input, otherwise in
    its rack, otherwise anywhere. Wide tasks and gangs may wait for slots
    (`Offers`). `together` places the tasks of a gang."""

    together: Together = field(default=near_first, repr=False)

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next launch, if a slot is free and a phase may use it."""
        offers = Offers(snapshot) if snapshot.has_wide else None
        for _, phase, free in waiting(snapshot, offers):
            if phase.is_gang:
                if gang := self.together(snapshot, phase, free, Locality.ANY):
                    return (offers and offers.begin()) or gang
                continue
            launch = local(phase, free) or remote(phase, snapshot, free, Locality.ANY)
            if launch is not None:  # None if its tasks must run on other hosts.
                return (offers and offers.begin()) or (launch,)
        return offers.defer() if offers else ()


# Resources: which of the GPUs of its host a task gets, and how much memory if it is learned.


def with_resources(snapshot: Snapshot, decisions: Sequence[Decision]) -> Sequence[Decision]:
    """The decisions, with the devices of tasks that request some, and with learned memory.

    Without wide phases these are the same.
    """
    found = list(decisions)
    for place, one in enumerate(decisions):
        if not isinstance(one, Launch):
            continue
        phase = snapshot.phase(one.phase)
        needs = phase.needs
        if needs is not phase.phase.needs:
            one = found[place] = replace(one, memory=needs[MEMORY])
        if GPU in needs:
            earlier = [d for launch in found[:place] for d in _devices(launch, one.host)]
            chosen = snapshot.spare.choose(one.host, needs, earlier)
            found[place] = replace(one, devices=chosen)
    return found


def _devices(decision: Decision, host: str) -> Sequence[int]:
    if isinstance(decision, Launch) and decision.host == host:
        return decision.devices
    return ()


# Broken gangs: their running tasks are stopped, since all of them are done again together.


def stop_broken(snapshot: Snapshot) -> Sequence[Preempt]:
    """Stop what runs of broken gangs at once, also tasks that have a grace for preemption."""
    return [
        Preempt(a.phase, a.task, a.attempt, a.host)
        for phase in snapshot.broken
        for a in snapshot.attempts_of(phase.job)
        if a.phase == phase
    ]


# Retries: failed tasks run again when their delays are over.


def retry(snapshot: Snapshot) -> Sequence[Retry]:
    """Let the failed tasks of a phase run again whose delays are over, if there are some."""
    due = snapshot.next_retry()
    return [Retry(*due)] if due else ()


# Giving up: a job that can no longer succeed ends, and its running tasks are stopped.


def give_up(snapshot: Snapshot) -> Sequence[Decision]:
    """End one of the doomed jobs; there must be one. O(its running tasks)."""
    job, reason = next(iter(snapshot.doomed.items()))
    stops = [Preempt(a.phase, a.task, a.attempt, a.host) for a in snapshot.attempts_of(job)]
    return [GiveUp(job, reason), *stops]
