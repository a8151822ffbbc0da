"""The shares of all pools in all kinds of slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

from slotwise.model.job import PhaseId
from slotwise.model.pool_tree import PoolTree
from slotwise.runtime.hosts import FreeSlots
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PoolState, path_to
from slotwise.runtime.shares import Shares
from slotwise.runtime.totals import CrossKindLimits, set_guarantees


class SharesByKind:
    """One tree of shares for each kind of slot, and what involves several of them.

    of  the shares of each kind
    """

    def __init__(self, free: Mapping[str, FreeSlots]) -> None:
        self._totals, self._free = CrossKindLimits(free), free
        self.of: dict[str, Shares] = {}
        for kind in free:
            self.of[kind] = Shares(kind, free[kind], self._totals, self.of)

    def add(self, kind: str, now: float, pools: PoolTree) -> None:
        """Add the shares of a new kind of slots; afterwards call `recount`.

        A share of a number for all kinds now has it in common with the new kind.
        """
        for shares in self.of.values():
            shares.join_totals(pools)
        self.of[kind] = Shares(kind, self._free[kind], self._totals, self.of)
        self.of[kind].now = now

    def at(self, now: float) -> None:
        """Set the clock, and mark the pools whose time-out has passed as overdue."""
        for shares in self.of.values():
            shares.now = now
            if shares.alarms:
                shares.ring()

    def next_alarm(self) -> float:
        """When the next pool will be overdue if nothing changes; inf if none will."""
        alarm = inf
        for shares in self.of.values():
            if shares.alarms:
                alarm = min(alarm, shares.next_alarm())
        return alarm

    def reallocate(
        self,
        ready: Mapping[str, Mapping[PhaseId, PhaseState]],
        slots: Mapping[PhaseId, float],
        in_turn: bool,
    ) -> None:
        """Set the slots that each ready phase should hold; 0 for phases not named.

        `in_turn`: phases are served by priority, then by arrival, and min shares do not count.
        """
        for kind, phases in ready.items():
            self.of[kind].reallocate(phases, slots, in_turn)
        if not in_turn:
            set_guarantees(
                [pool for shares in self.of.values() for pool in shares.inner_first()]
            )
        self._line_up()

    def adjust(
        self,
        phases: Mapping[PhaseId, PhaseState],
        slots: Mapping[PhaseId, float],
        ended: Mapping[PhaseId, PhaseState],
    ) -> None:
        """Change the slots that some phases should hold; `ended` are not ready any more."""
        for name, share in slots.items():
            if name not in ended:
                self.of[phases[name].slot_kind].adjust(phases[name], share)
        for phase in ended.values():
            self.of[phase.slot_kind].add(phase, -phase.allocated)

    def recount(self, phases: Iterable[PhaseState], lost: set[str]) -> None:
        """Recount what all shares hold and demand; the hosts in `lost` are unresponsive."""
        of_kind: dict[str, list[PhaseState]] = {kind: [] for kind in self.of}
        for phase in phases:
            of_kind[phase.slot_kind].append(phase)
        for shares in self.of.values():
            shares.clear()
        for kind, shares in self.of.items():
            shares.recount(of_kind[kind], lost)
        self._line_up()

    def release_host(self, host: str) -> None:
        """A host changes: none of its slots is reserved any more."""
        for shares in self.of.values():
            shares.reserved.release_host(host)

    def hand_over(self, others: SharesByKind, phases: Iterable[PhaseState]) -> None:
        """The pools are replaced by others, which keep what is taken back by their names.

        Afterwards call `recount`.
        """
        for kind, shares in self.of.items():
            for host, by_pool in [*shares.reserved.by_host.items()]:
                for share, slots in [*by_pool.items()]:
                    shares.reserved.release(host, share, slots)
                    if (other := others.of[kind].get(share.key)) is not None:
                        others.of[kind].reserved.add(host, other, slots)
        for phase in phases:
            for task, taker in phase.stopping.items():
                if taker is not None:
                    phase.stopping[task] = others.of[taker.slot_kind].get(taker.key)

    def check_coming(self, phases: Iterable[PhaseState], lost: set[str]) -> None:
        """Assert that what is taken back for each share, or reserved, is counted. For tests."""
        coming: Counter[PoolState] = Counter()
        for phase in phases:
            for host, taker in phase.stops():
                if host not in lost:
                    coming.update(dict.fromkeys(path_to(taker), phase.width))
        for shares in self.of.values():
            assert not shares.reserved.by_host.keys() & lost, (
                "nothing begins on a host that is lost"
            )
            for by_pool in shares.reserved.by_host.values():
                assert all(slots > 0 for slots in by_pool.values())
                for taker, slots in by_pool.items():
                    coming.update(dict.fromkeys(path_to(taker), slots))
        for shares in self.of.values():
            for pool in shares.inner_first():
                assert pool.slots_being_reclaimed == coming[pool], (
                    "all slots that come are counted"
                )

    @property
    def has_overdue(self) -> bool:
        """Whether a pool may take slots back."""
        return any(shares.overdue for shares in self.of.values())

    def taker(self, pool: str | None, slot_kind: str) -> PoolState | None:
        """The share of a pool for which a task of a kind is asked to stop; None without a pool.

        It is an overdue share of the pool that lacks slots, of this kind if possible; otherwise
        one of another kind, which may hold more slots once the task has stopped.
        """
        if not pool:
            return None
        named = self.of[slot_kind].named(pool)
        others = [share for shares in self.of.values() for share in shares.named(pool)]
        overdue = [share for share in (*named, *others) if share.is_overdue]
        lacking = [share for share in overdue if share.missing(self.of[slot_kind].now) > 0]
        return next(iter(lacking or overdue or named), None)

    def _line_up(self) -> None:
        for shares in self.of.values():
            shares.rebuild_order()
