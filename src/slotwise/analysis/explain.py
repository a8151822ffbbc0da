"""Why a job holds the slots that it holds: shares of its pools, its demand, its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from slotwise.model.errors import InputError
from slotwise.record.log import Log
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PoolState, path_to
from slotwise.runtime.state import State

NEIGHBOURS = 5
"""So many of those that are served before and after a phase are named."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another phase of the same pool: slots that it holds, and that it should."""

    job: str
    phase: str
    running: int
    allocated: float


@dataclass(frozen=True, slots=True)
class ShareExplained:
    """A pool's share of one kind of slot.

    share    slots that it was allocated, for all of its jobs
    running  slots that it holds
    demand   slots that its jobs can use
    least    what it is guaranteed at most; most: what it never exceeds, None for no limit
    lacks    whether it is below its least share or its share, in words; empty if not
    """

    pool: str
    slot_kind: str
    share: float
    running: int
    demand: int
    least: float
    most: float | None
    lacks: str


@dataclass(frozen=True, slots=True)
class PhaseExplained:
    """One phase of the job: what it holds, what it should, and why, in a sentence.

    `shares` are those of its pools, the nearest first; `over` other pools that hold more than
    their share of the same slots. `before` are phases of its pool with tasks waiting that are
    served before it, `after` those that come behind it; both cut to the nearest few.
    """

    phase: str
    slot_kind: str
    running: int
    stopping: int
    pending: int
    done: int
    allocated: float
    most: int
    why: str
    shares: tuple[ShareExplained, ...]
    over: tuple[ShareExplained, ...]
    before: tuple[Neighbour, ...]
    after: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A job at an instant: what it holds, and why."""

    job: str
    at: float
    pool: str
    status: str
    phases: tuple[PhaseExplained, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def explain(log: Log, job: str, at: float) -> Explanation:
    """What a job holds at an instant of a run and why. Follows the log that far: O(entries).

    InputError for a job that is not in the log, or an instant outside of it.
    """
    pools = {
        event.job.id: event.job.pool
        for turn in log.turns
        for event in turn.events
        if hasattr(event, "job")
    }
    if job not in pools:
        known = ", ".join(sorted(pools)[:8])
        raise InputError(f"job {job!r} is not in the log; it has, among others: {known}")
    last = log.turns[-1].now if log.turns else 0.0
    if not 0 <= at <= last:
        raise InputError(f"instant {at} is not in the log; name one from 0 to {last:.6g} s")
    state = state_at(log, at)
    status = _status(state, job, pools[job])
    phases = tuple(_phase(state, phase) for phase in state.phases_of(job))
    return Explanation(job, at, pools[job], status, phases)


def state_at(log: Log, at: float) -> State:
    """The state of a run after all that was heard and decided until an instant."""
    header = log.header
    state = State(
        header.cluster,
        header.pools,
        jobs_expected=header.jobs_expected,
        attempts_max=header.attempts_max,
        losses_max=header.losses_max,
    )
    for turn in log.turns:
        if turn.now > at:
            break
        state.at(turn.now)
        for entry in (*turn.events, *turn.decisions):
            state.apply(entry)
    state.at(at)
    return state


def _status(state: State, job: str, pool: str) -> str:
    if job in state.completed:
        return f"completed at {state.completed[job]:.6g} s"
    if job in state.failed:
        return f"failed: {state.failed[job]}"
    if job in state.kept_out:
        full = [p for p in state.pools.path(pool) if p.jobs_max is not None]
        names = ", ".join(f"{p.name!r} (jobs_max {p.jobs_max})" for p in full)
        return f"waits outside until fewer jobs run in {names}"
    if not state.phases_of(job):
        return "has not arrived yet"
    return "under way"


def _phase(state: State, phase: PhaseState) -> PhaseExplained:
    before, after = _neighbours(phase)
    path = list(path_to(phase.pool)) if phase.is_ready else []
    over = [p for p in state.shares(phase.slot_kind) if path and p.running > p.share]
    return PhaseExplained(
        phase=phase.id.phase,
        slot_kind=phase.slot_kind,
        running=phase.running,
        stopping=len(phase.stopping),
        pending=phase.pending + phase.blocked,
        done=phase.done,
        allocated=phase.allocated,
        most=phase.most,
        why=_why(state, phase),
        shares=tuple(_share(state, pool) for pool in path if pool.parent is not None),
        over=tuple(_share(state, pool) for pool in over if pool not in path),
        before=before,
        after=after,
    )


def _why(state: State, phase: PhaseState) -> str:
    """The first reason that applies for holding no more than it does."""
    if phase.waits_for:
        return f"waits for {', '.join(sorted(phase.waits_for))}"
    if phase.done == phase.phase.tasks.count:
        return "is done"
    if not phase.is_ready:
        return "may not begin yet"
    if not phase.pending:
        return (
            f"all its tasks run, or wait for those that they continue ({phase.blocked})"
            if phase.blocked
            else "all its tasks run: it can use no more"
        )
    if phase.running >= phase.most:
        return f"holds its most share of {phase.most}"
    for pool in path_to(phase.pool):
        if pool.running >= pool.most:
            return f"pool {pool.name!r} holds its most share of {pool.most:g}"
    if phase.deferred_until is not None and phase.deferred_until > state.now:
        return (
            f"waits since {phase.deferred_since:.6g} s for a slot near its input,"
            f" until {phase.deferred_until:.6g} s at the latest"
        )
    if phase.running >= phase.allocated:
        return f"holds what it was allocated ({phase.allocated:.6g})"
    return (
        f"is {phase.allocated - phase.running:.6g} below its allocation: no slot has come free"
        " for it yet"
    )


def _share(state: State, pool: PoolState) -> ShareExplained:
    return ShareExplained(
        pool.name,
        pool.slot_kind,
        pool.allocated,
        pool.running,
        pool.demand,
        pool.least,
        None if pool.most == inf else pool.most,
        _lacks(state, pool),
    )


def _lacks(state: State, pool: PoolState) -> str:
    """What a pool lacks, and when it takes it back."""
    words = []
    for what, due in (("its least share", pool.least_due), ("its share", pool.fair_due)):
        if due <= state.now:
            words.append(f"below {what} for too long: it takes back what it lacks")
        elif due < inf:
            words.append(f"below {what}: it takes back what it lacks at {due:.6g} s")
    return "; ".join(words)


def _neighbours(
    phase: PhaseState,
) -> tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]:
    """The phases of its pool that are served before it and after it, the nearest ones."""
    order: Sequence[PhaseState] = list(phase.pool.walk())
    if phase not in order:  # None of its tasks waits.
        return (), ()
    place = order.index(phase)
    before = order[max(0, place - NEIGHBOURS) : place]
    after = order[place + 1 : place + 1 + NEIGHBOURS]
    return tuple(map(_neighbour, before)), tuple(map(_neighbour, after))


def _neighbour(phase: PhaseState) -> Neighbour:
    return Neighbour(phase.job.id, phase.id.phase, phase.running, phase.allocated)
