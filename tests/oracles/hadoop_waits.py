"""The waits of delay scheduling by the rule of Hadoop's Fair Scheduler, computed from a log.

At each heartbeat that offers slots, a job that was skipped at the last one has waited for the
time since then. A job is skipped if it was offered a slot and launched nothing. If levels
persist, a launch sets the level of its job, as in Hadoop's `updateLastMapLocalityLevel`:
node-local, rack-local or any. From there it waits for the next level only.

Tasks whose input is on no host of the cluster wait for nothing and change nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile

from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import TaskFailed, TaskKilled
from slotwise.core.job import PhaseId
from slotwise.core.log import Log, Turn
from slotwise.core.loop import initial_state
from slotwise.core.phase_state import PhaseState
from slotwise.core.state import State

ROUNDING = 1e-6
"""Seconds; instants of up to a day are added and subtracted."""


class HadoopWaits:
    """Follows a log and asserts that each launch is as far as its wait allows, and none later.

    A heartbeat is a turn at which slots of a kind are free. The order of phases, their limits
    and the free slots are those of a state; what it knows of waits is not used. `by_round`: the
    assigner launches several tasks before it looks at waits again. So a phase may begin to wait
    later than here, and only launches that are too early are found.
    """

    def __init__(self, log: Log, rack_after: float, any_after: float, by_round: bool) -> None:
        self.state: State = initial_state(log.header)
        self.persists = log.header.scheduler.get("levels") == "persist"
        self.level: defaultdict[PhaseId, Locality] = defaultdict(lambda: Locality.NODE)
        self.rack_after, self.any_after, self.by_round = rack_after, any_after, by_round
        self.waited: defaultdict[PhaseId, float] = defaultdict(float)
        self.skipped: defaultdict[str, set[PhaseId]] = defaultdict(set)
        self.last: defaultdict[str, float] = defaultdict(float)
        self.paused = 0
        """How often a phase that had waited was not offered slots that others got."""

    def follow(self, turn: Turn) -> None:
        """Apply a turn and check its launches."""
        state, now = self.state, turn.now
        state.at(now)
        for event in turn.events:
            state.apply(event)
            if isinstance(event, TaskFailed | TaskKilled):
                self._forget(event.phase)
        offered = [kind for kind in state.cluster.capacity if state.free(kind)]
        before = {kind: self.skipped[kind] for kind in offered}
        for kind in offered:
            for phase in before[kind]:
                self.waited[phase] += now - self.last[kind]
            self.skipped[kind], self.last[kind] = set(), now
        launched: set[PhaseId] = set()
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                taker = state.phase(decision.phase)
                for phase in self._before(taker):
                    self.skipped[taker.slot_kind].add(phase.id)
                    if not phase.yields:
                        self._assert_waits(phase)
                if self._has_home(taker, decision.task):
                    if not (self.by_round and taker.id in launched):
                        self._assert_may(taker, decision.locality)
                    self._forget(taker.id)
                    self.level[taker.id] = decision.locality
                    launched.add(taker.id)
                elif self.waited[taker.id] > 0 or taker.id in before[taker.slot_kind]:
                    self.skipped[taker.slot_kind].add(taker.id)  # Its wait goes on.
            state.apply(decision)
        for kind in offered:
            if state.free(kind):
                able = [phase for phase in state.backlogged(kind) if phase.may_launch]
                self.skipped[kind] = {phase.id for phase in able}
                for phase in able:
                    self._assert_waits(phase)
            missed = before[kind] - self.skipped[kind] - launched
            self.paused += sum(self.waited[phase] > 0 for phase in missed)

    def _least(self, phase: PhaseState) -> tuple[float, float]:
        """How long a phase must have waited for slots in the rack, and for any slot."""
        waits = self.rack_after, self.any_after
        level = self.level[phase.id] if self.persists else Locality.NODE
        if level is Locality.NODE:
            return waits
        return 0.0, waits[1] - waits[0] if level is Locality.RACK else 0.0

    def _has_home(self, phase: PhaseState, task: int) -> bool:
        """Whether the input of a task is on some host of the cluster."""
        blocks, known = phase.phase.tasks.blocks, self.state.cluster.by_name
        return phase.is_pinned or not blocks or any(h in known for h in blocks[task].hosts)

    def _before(self, taker: PhaseState) -> Iterator[PhaseState]:
        order = takewhile(lambda one: one is not taker, self.state.backlogged(taker.slot_kind))
        return (phase for phase in order if phase.may_launch)

    def _forget(self, phase: PhaseId) -> None:
        """A launch, or a task that comes back, ends the wait."""
        self.waited[phase] = 0.0
        for skipped in self.skipped.values():
            skipped.discard(phase)

    def _assert_may(self, phase: PhaseState, locality: Locality) -> None:
        """It has waited long enough for a slot as far from its input as this."""
        if not phase.is_pinned and not phase.overrides_delay:
            least = dict(zip(Locality, (0, *self._least(phase)), strict=True))
            assert self.waited[phase.id] >= least[locality] - ROUNDING

    def _assert_waits(self, phase: PhaseState) -> None:
        """It skips the free slots: none is near enough for how long it has waited."""
        if self.by_round:
            return
        state, waited = self.state, self.waited[phase.id]
        avoided = phase.avoided(state.lost)
        free = [host for host in state.free(phase.slot_kind) if host not in avoided]
        if not free:
            return  # Its tasks only fail on these hosts.
        assert phase.next_task_on(free) is None
        if not phase.is_pinned:
            assert not phase.overrides_delay
            rack_after, any_after = self._least(phase)
            assert waited < any_after + ROUNDING
            assert all(self._has_home(phase, task) for task in phase.pending_tasks())
            if waited > rack_after + ROUNDING:
                racks = {state.cluster.rack_of[host] for host in free}
                assert not any(phase.next_task_in(rack) for rack in racks)


def check_waits(
    log: Log, rack_after: float, any_after: float, by_round: bool = False
) -> HadoopWaits:
    """Assert that all launches of a log keep Hadoop's rule. No phase may take several slots."""
    waits = HadoopWaits(log, rack_after, any_after, by_round)
    for turn in log.turns:
        waits.follow(turn)
    return waits
