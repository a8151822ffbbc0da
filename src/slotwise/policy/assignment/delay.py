"""Delay scheduling: a phase waits for a limited time for a slot near its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from slotwise.core.decisions import Decision, Defer, Launch, Locality
from slotwise.core.errors import InputError, is_number, option_name, shown
from slotwise.core.phase_state import PhaseState
from slotwise.core.snapshot import Snapshot
from slotwise.policy.assignment.assigner import remote, waiting
from slotwise.policy.assignment.offers import Offers
from slotwise.policy.assignment.together import Together, near_first

HEARTBEATS = 1.5
"""The wait for one level of locality, in reporting intervals of a host."""


Levels = Literal["persist", "restart"]
"""Where a wait begins: at the locality of the last launch, or always at the host."""

LEVELS: tuple[Levels, ...] = ("persist", "restart")

DEFAULT_LEVELS: Levels = "persist"
"""Jobs whose input is on few hosts respond much faster, and others about as fast."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Delay scheduling with two waits (Zaharia and others, "Locality Wait").

    A phase that is only offered slots far from its input lets them pass to the next phase. For
    the first `rack_after` seconds it accepts node-local slots only, then also rack-local ones,
    and from `any_after` seconds on any slot. The wait begins at the first offer that it lets
    pass and ends with any launch: the analysis of delay scheduling counts from each launch. It
    stands still while slots are offered to others only (`runtime.offers`).

    With `levels="persist"` a launch sets the level of its phase: after a launch in the rack it
    accepts slots in the rack at once, and any slot after the rest of the second wait; after a
    launch on any slot it accepts any slot at once; after a node-local launch it waits as at
    the beginning. With "restart" each wait begins with node-local slots only.

    Tasks whose input is on no host of the cluster wait for none, and their launches neither
    end a wait nor set the level. The phases of a pool that is overdue (preemption), and those
    that lack slots of a promise that is due, accept any slot immediately. A gang accepts slots
    for all of its tasks, none farther than these waits allow; `together` places them.
    InputError unless 0 <= rack_after <= any_after < inf, and for other levels.
    """

    rack_after: float = 5.0
    any_after: float = 10.0
    levels: Levels = DEFAULT_LEVELS
    together: Together = field(default=near_first, repr=False)

    def __post_init__(self) -> None:
        check_waits("delay", self.rack_after, self.any_after, self.levels)

    @classmethod
    def of_heartbeat(cls, seconds: float) -> Delay:
        """The waits for a reporting interval of hosts, seconds: one and a half intervals each.

        In this time each host has offered its slots (Hadoop Fair Scheduler).
        """
        return cls(HEARTBEATS * seconds, 2 * HEARTBEATS * seconds)

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next launch, preceded by the deferrals of the phases that let its slot pass."""
        decisions: list[Decision] = []
        resumed: list[PhaseState] = []
        now = snapshot.now
        offered: Mapping[str, int] | None = None
        offers = Offers(snapshot, self.near_after) if snapshot.has_wide else None
        for slot_kind, phase, free in waiting(snapshot, offers):
            if free is not offered:
                offered = free
                # Slots that were free before this turn were offered and passed: they are far.
                freed = [host for host in snapshot.freed(slot_kind) if host in free]
                has_overdue = bool(snapshot.overdue(slot_kind))
            until, has_passed = phase.deferred_until, phase.has_passed
            is_promised = snapshot.promises.comes_first(phase)
            overrides_delay = is_promised or (has_overdue and phase.overrides_delay)
            is_due = until is None or now >= until or overrides_delay or phase.is_wide
            # What it did not pass may have been kept from it, by a limit or for other phases.
            near = freed if has_passed else free
            hosts = free if is_due else near
            if not hosts:
                continue
            farthest = self.farthest(phase, now)
            if is_promised and not phase.is_pinned:
                farthest = Locality.ANY
            if phase.is_gang:
                if gang := self.together(snapshot, phase, free, farthest):
                    return [*decisions, *(_begun(offers) or gang)]
                continue
            if near and (found := phase.next_task_on(near)):
                launch = Launch(phase.id, *found, Locality.NODE)
                return [*decisions, *(_begun(offers) or (launch,))]
            if near and (one := phase.next_task_without_home(near)):
                locality = phase.locality(one[0], one[2])
                launch = Launch(phase.id, *one, locality)
                return [*decisions, *(_begun(offers) or (launch,))]
            if farthest > Locality.NODE and (far := remote(phase, snapshot, hosts, farthest)):
                return [*decisions, *(_begun(offers) or (far,))]
            if phase.is_wide and offers is not None:
                offers.note(phase)
            elif is_due and not phase.is_wide and not phase.is_pinned:
                if resumes(phase):
                    resumed.append(phase)
                else:
                    decisions.append(self.deferral(phase, now))
        decisions += [self.deferral(phase, now) for phase in resumed]
        return [*decisions, *(offers.defer() if offers else ())]

    def farthest(self, phase: PhaseState, now: float) -> Locality:
        """The farthest locality that a phase accepts now.

        Instants are compared, not differences: `now - since >= wait` may be false in floats at
        exactly the instant `since + wait`.
        """
        if phase.is_pinned:
            return Locality.NODE
        if phase.overrides_delay:
            return Locality.ANY
        since, (rack_after, any_after) = begun(phase, now), self._waits_of(phase)
        if now >= since + any_after:
            return Locality.ANY
        return Locality.RACK if now >= since + rack_after else Locality.NODE

    def deferral(self, phase: PhaseState, now: float) -> Defer:
        """Begin the wait of a phase that launches nothing, or continue it."""
        since, (rack_after, any_after) = begun(phase, now), self._waits_of(phase)
        due = since + rack_after
        return Defer(phase.id, since, due if due > now else since + any_after)

    def near_after(self, phase: PhaseState) -> float:
        """Seconds for which a phase of wide tasks or a gang waits for slots near its input."""
        if phase.is_pinned or not phase.has_homes:
            return 0.0
        if not phase.is_gang and phase.homes.task_without_home() is not None:
            return 0.0  # That task waits for any slots.
        return self._waits_of(phase)[1]

    def _waits_of(self, phase: PhaseState) -> tuple[float, float]:
        """The seconds until a phase takes slots in the rack, and any slot, at its level."""
        if self.levels == "restart" or phase.level is Locality.NODE:
            return self.rack_after, self.any_after
        if phase.level is Locality.RACK:
            return 0.0, self.any_after - self.rack_after
        return 0.0, 0.0


def _begun(offers: Offers | None) -> Sequence[Decision]:
    """The waits that begin before a launch of a phase that comes later."""
    return offers.begin() if offers else ()


def begun(phase: PhaseState, now: float) -> float:
    """The beginning of the wait of a phase that is offered slots now; now if it has not waited.

    It is later by the time in which the wait stood still.
    """
    return now - phase.waited if phase.deferred_since is None else phase.deferred_since


def resumes(phase: PhaseState) -> bool:
    """Whether the wait of a phase that is offered slots now has stood still since its `Defer`.

    It needs another one only if slots stay free. If a phase after it takes the last one, the
    state knows that this one skipped it.
    """
    has_waited = phase.waited > 0 or phase.deferred_since is not None
    return has_waited and phase.deferred_until is None


def check_waits(assigner: str, rack_after: float, any_after: float, levels: object) -> None:
    """InputError unless 0 <= rack_after <= any_after < inf, and levels are known ones."""
    if levels not in LEVELS:
        raise InputError(
            f"{option_name('levels')} is {shown(levels)}; give {' or '.join(LEVELS)}"
        )
    are_numbers = is_number(rack_after) and is_number(any_after)
    if not are_numbers or not 0 <= rack_after <= any_after < float("inf"):
        raise InputError(
            f"{assigner}: the waits are {shown(rack_after)} and {shown(any_after)} seconds;"
            " they must be numbers >= 0, the wait for the rack not longer than the wait for"
            " any slot"
        )
