"""FIFO's malleable schedule by events; the cost of a completion is that of its changes."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from slotwise.allocation.fluid import PhaseProgress, freed, progress_of, waiting_for
from slotwise.allocation.mcnaughton import merged
from slotwise.allocation.tolerances import CLOCK, ROUNDING
from slotwise.model.cluster import Cluster
from slotwise.model.job import PRIORITIES, Job
from slotwise.model.schedule import Piece, Schedule


def fifo_schedule(jobs: Sequence[Job], cluster: Cluster) -> Schedule:
    """The schedule of `fluid_schedule` under `Fifo`, up to rounding, without limits of pools.

    InputError as for `fluid_schedule`. O(P log P) for P phases and changes of their slots.
    """
    phases = [progress_of(job, phase) for job in jobs for phase in job.topological]
    phases.sort(key=lambda one: -PRIORITIES[one.job.priority])
    turns = {one.id: turn for turn, one in enumerate(phases)}
    behind = waiting_for(phases)
    max_share = [_most(one, cluster) for one in phases]
    kinds = [cluster.slot_kind(one.phase.kind) for one in phases]
    queues = {kind: _Queue(capacity, max_share) for kind, capacity in cluster.capacity.items()}
    course = _Course(phases)
    ready = [turn for turn, one in enumerate(phases) if not one.waits_for]
    ended: list[int] = []
    while ready or ended:
        for turn in ended:
            queues[kinds[turn]].leave(turn)
        for turn in ready:
            queues[kinds[turn]].join(turn)
        for kind in {kinds[turn] for turn in (*ended, *ready)}:
            for turn, slots in queues[kind].settle().items():
                course.hold(turn, slots)
        ended = course.next_ended()
        ready = [turns[one.id] for one in freed((phases[turn].id for turn in ended), behind)]
    return Schedule(merged(course.pieces))


def _most(one: PhaseProgress, cluster: Cluster) -> int:
    return min(one.phase.slots_most, cluster.capacity[cluster.slot_kind(one.phase.kind)])


class _Queue:
    """The phases that hold slots of one kind and those that wait for them.

    Every holder's turn is before the turns of all waiting phases. Each holder has its max
    share, except possibly the last one.
    """

    def __init__(self, capacity: int, max_share: Sequence[int]) -> None:
        self._most = max_share
        self._free = capacity
        self._waiting: list[int] = []
        self._held: dict[int, int] = {}
        self._latest: list[int] = []
        """The negated turns of the phases that hold slots, and of some that no longer do."""

    def join(self, turn: int) -> None:
        """Add a phase that is ready."""
        heappush(self._waiting, turn)

    def leave(self, turn: int) -> None:
        """Remove a phase that is done."""
        self._free += self._held.pop(turn)

    def settle(self) -> dict[int, int]:
        """Give slots in turn, if need be from later phases; the changed phases' new slots."""
        before: dict[int, int] = {}
        while True:
            last = self._last()
            if last is not None and self._waiting and self._waiting[0] < last:
                before.setdefault(last, self._held[last])
                self._free += self._held.pop(last)
                heappush(self._waiting, last)
                continue
            if not self._free:
                break
            if last is None or self._held[last] == self._most[last]:
                if not self._waiting:
                    break
                last = heappop(self._waiting)
                heappush(self._latest, -last)
            held = self._held.get(last, 0)
            before.setdefault(last, held)
            more = min(self._free, self._most[last] - held)
            self._held[last] = held + more
            self._free -= more
        now = {turn: self._held.get(turn, 0) for turn in before}
        return {turn: slots for turn, slots in now.items() if slots != before[turn]}

    def _last(self) -> int | None:
        """The last phase that holds slots."""
        while self._latest and -self._latest[0] not in self._held:
            heappop(self._latest)
        return -self._latest[0] if self._latest else None


class _Course:
    """The progress of the phases, and the pieces that they have held so far."""

    def __init__(self, phases: Sequence[PhaseProgress]) -> None:
        self.pieces: list[Piece] = []
        self._phases = phases
        self._now = 0.0
        self._held = [0] * len(phases)
        self._since = [0.0] * len(phases)
        self._end = [0.0] * len(phases)
        self._ends: list[tuple[float, int]] = []
        """When each will be done if nothing changes, and some outdated instants."""

    def hold(self, turn: int, slots: int) -> None:
        """Let a phase hold this number of slots from now on."""
        one, since, held = self._phases[turn], self._since[turn], self._held[turn]
        if held and since < self._now:
            self.pieces.append(Piece(one.id, since, self._now, held))
            # From rounded instants, as the piece is measured.
            one.left -= held * (self._now - since)
        self._held[turn], self._since[turn] = slots, self._now
        if slots:
            self._end[turn] = self._now + max(0.0, one.left) / slots
            heappush(self._ends, (self._end[turn], turn))

    def next_ended(self) -> list[int]:
        """Advance to the next completions and return these phases, none if all are done."""
        ended: list[int] = []
        while self._ends:
            end, turn = self._ends[0]
            if self._held[turn] and end == self._end[turn]:
                if not ended:
                    self._now = end
                elif not self._is_done(turn):
                    break
                ended.append(turn)
                self.hold(turn, 0)
            heappop(self._ends)
        return ended

    def _is_done(self, turn: int) -> bool:
        """Whether a phase is done now, up to rounding."""
        one, held = self._phases[turn], self._held[turn]
        left = held * (self._end[turn] - self._now)
        return left <= max(ROUNDING * one.work, CLOCK * self._now * held)
