"""Waits of jobs for slots, the jobs that held the slots meanwhile, and remedies."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, floor, inf, log10
from typing import Any

import numpy as np

from slotwise.core.decisions import Adjust, Decision, Launch, Reallocate
from slotwise.core.errors import InputError
from slotwise.core.events import Event, HostChange, HostLost, JobArrived, SchedulerChanged
from slotwise.core.log import Header, Log
from slotwise.core.loop import initial_state
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import path_to, whole
from slotwise.core.tolerances import SLOTS
from slotwise.insight.present_hosts import SlotsOverTime
from slotwise.insight.timeline import Timeline, TimelineReducer
from slotwise.insight.why import Cause, cause_of, unknown_job
from slotwise.policy.scheduler import ALLOCATORS, WAITERS, make_allocator

MIN_WAIT = 0.01
"""Waits shorter than this part of the run are left out."""

MAX_WAITS = 10
"""The default number of waits."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that held slots while another one waited for them."""

    job: str
    pool: str
    slot_seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """A time (seconds) in which a job had tasks that could start, and no running tasks.

    slot_kind          the kind of slot for which it waited
    holders            the jobs that held slots of this kind meanwhile, most slots first
    free_slot_seconds  slot-seconds that no job held, including those of unresponsive hosts
    reason             why it waited; empty if other jobs were simply served first
    remedy             a change that would have helped; empty if the log proves none
    """

    job: str
    pool: str
    start: float
    end: float
    slot_kind: str
    holders: tuple[Holder, ...]
    free_slot_seconds: float
    reason: str = ""
    remedy: str = ""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start

    @property
    def held_slot_seconds(self) -> float:
        """The slot-seconds that all other jobs held meanwhile."""
        return sum(holder.slot_seconds for holder in self.holders)

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"seconds": self.seconds}


def worst_waits(
    log: Log,
    line: Timeline,
    *,
    job: str | None = None,
    most: int = MAX_WAITS,
    most_of_job: int | None = None,
) -> tuple[Wait, ...]:
    """Return the longest waits in a run, of all jobs or of one, longest first.

    A job waits from its arrival, or from the end of its last running task, until one of its
    tasks is launched, it is given up, or it is moved to another pool, where a new wait starts.
    It has tasks that could start in this time, unless it awaits admission (`jobs_max`). A job
    with a growing phase does not wait while all tasks that were added to it are done. `line` is
    the timeline of the log. InputError for a job that is not in it. O(n log n) for n entries of
    the log, and O(`most` times n) in numpy.
    """
    if job is not None and job not in line.jobs:
        raise InputError(unknown_job(job, line.jobs))
    held, chosen = HeldSlots(line), _longest(line, job, most, most_of_job)
    return tuple(held.with_holders(wait) for wait in _with_reasons(log, chosen))


def _longest(
    line: Timeline, job: str | None, most: int, most_of_job: int | None
) -> Sequence[Wait]:
    """The waits of `worst_waits`, without reasons."""
    least = MIN_WAIT * (line.end - min((s.arrival for s in line.jobs.values()), default=0.0))
    found = [
        Wait(name, line.jobs[name].pool_at(start), start, end, "", (), 0.0)
        for name in (line.jobs if job is None else [job])
        for start, end in _stretches(line, name)
        if end - start > least
    ]
    found.sort(key=lambda wait: (wait.start - wait.end, wait.start, wait.job))
    chosen, taken = [], Counter[str]()
    for wait in found:
        if most_of_job is None or taken[wait.job] < most_of_job:
            chosen.append(wait)
            taken[wait.job] += 1
        if len(chosen) == most:
            break
    return chosen


def _stretches(line: Timeline, job: str) -> Iterator[tuple[float, float]]:
    """Yield the times between arrival and end of a job in which it held no slot."""
    since: float | None = line.jobs[job].arrival
    end = line.end_of(job)
    steps = line.held_by_job.get(job)
    for time, slots in zip(steps.times, steps.values, strict=True) if steps else ():
        if slots and since is not None:
            yield from _parts(line, job, since, time)
            since = None
        elif not slots:
            since = time
    if since is not None and since < end:
        yield from _parts(line, job, since, end)


def _parts(line: Timeline, job: str, since: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield the parts of a time in one pool and with unfinished tasks."""
    idle = line.idle.get(job, ())
    for until in [*(at for at, _ in line.jobs[job].moves if since < at < end), end]:
        for start, stop in idle[bisect_left(idle, (since, since)) :]:
            if start >= until:
                break
            if since < start:
                yield since, start
            since = stop
        if since < until:
            yield since, until
        since = max(since, until)


class HeldSlots:
    """The attempts of a run as arrays, to find the jobs that held slots in a time."""

    def __init__(self, line: Timeline) -> None:
        self._line = line
        self.jobs = list(line.jobs)
        number = {job: at for at, job in enumerate(self.jobs)}
        attempts = line.attempts
        names = ("start", "end", "phase")
        self._start, self._end, self._phase = (attempts.column(name) for name in names)
        self._jobs = np.array([number[phase.job] for phase in attempts.phases], dtype=np.intp)
        self._kinds = np.array(attempts.kinds, dtype=object)

    def with_holders(self, wait: Wait) -> Wait:
        """The wait with the jobs that held slots of its kind, and the free slots."""
        start, end, kind = wait.start, wait.end, wait.slot_kind
        holders, held = self.others(wait.job, start, end, kind)
        slots = self._line.slots_by_kind.get(kind, SlotsOverTime(0)).seconds(start, end)
        return replace(wait, holders=holders, free_slot_seconds=max(0.0, slots - held))

    def others(
        self, job: str, start: float, end: float, kind: str
    ) -> tuple[tuple[Holder, ...], float]:
        """The other jobs that held slots of a kind in a time, most first; slot-seconds of all.

        O(attempts), in numpy.
        """
        at = (self._start < end) & (self._end > start)
        at &= (self._kinds == kind)[self._phase]
        overlap = np.minimum(self._end[at], end) - np.maximum(self._start[at], start)
        sums = np.bincount(self._jobs[self._phase[at]], overlap, minlength=len(self.jobs))
        held = {self.jobs[number]: float(sums[number]) for number in np.flatnonzero(sums)}
        held.pop(job, None)
        spans = self._line.jobs
        order = sorted(held, key=lambda job: (-held[job], job))
        holders = tuple(Holder(name, spans[name].pool_at(start), held[name]) for name in order)
        return holders, sum(held.values())


# Reasons for waits, and changes for which the log proves that they would have helped.

MIN_PART = 0.1
"""A cause that applied to less than this part of a wait is left out."""

PART_WHOLE = 0.99
"""A cause that applied to at least this part of a wait is stated without the part."""


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A guarantee of one slot that would have made a job the next one in the turn `turn`.

    `what` is the guarantee in words. With a `pool` it is a guarantee of that pool, which helps
    until another job arrives in it. Otherwise it is one of a phase, which helps only in a
    single pool. `is_taken_back`: with preemption the job would get a slot at once.
    """

    turn: int
    what: str
    pool: str | None
    is_taken_back: bool


def _with_reasons(log: Log, waits: Sequence[Wait]) -> list[Wait]:
    """The waits with their kinds of slots, reasons and remedies, in the same order.

    The log is read once: O(entries), plus O(pools) for each reallocation, plus O(pools + phases
    of the job) for each turn of a wait. Only the state and the waits are stored.
    """
    if not waits:
        return []
    run = RetracedRun(log.header)
    due = sorted(range(len(waits)), key=lambda number: -waits[number].start)
    cases: dict[int, _Case] = {}
    open_cases: list[_Case] = []
    started: list[int] = []  # Their last tasks may not have ended yet.
    for turn in log.turns:
        for case in open_cases:
            case.pass_to(turn.now)
        run.follow(turn.now, turn.events, turn.decisions)
        while due and waits[due[-1]].start <= turn.now:
            started.append(due.pop())
        for number in started:
            if phase := run.waiting(waits[number].job):
                cases[number] = _Case(waits[number], phase, run)
                open_cases.append(cases[number])
        started = [n for n in started if n not in cases and turn.now < waits[n].end]
        open_cases = [case for case in open_cases if turn.now < case.wait.end]
        for case in open_cases:
            case.update(run)
    some = next(iter(log.header.cluster.capacity))
    return [
        cases[number].explained(run) if number in cases else replace(wait, slot_kind=some)
        for number, wait in enumerate(waits)
    ]


class JobWaits:
    """Follows the waits of one job while a log is read once, before their ends are known.

    For each turn, call `pass_to`, apply the turn to the timeline and to the run, and call
    `note`. It keeps the waits that were long when they ended, so few of many.
    """

    def __init__(self, job: str, reducer: TimelineReducer, run: RetracedRun) -> None:
        self._job, self._reducer, self._run = job, reducer, run
        self._cases: list[_Case] = []
        self._open: _Case | None = None
        self._first = inf  # The first arrival of a job.
        self._moves = 0  # To other pools, until now.
        self._some = next(iter(run.state.cluster.capacity))

    @property
    def needs_rest(self) -> bool:
        """Whether remedies of its waits depend on the rest of the log."""
        return any(case.has_guarantee for case in self._cases)

    def pass_to(self, now: float) -> None:
        """Time has passed since the last turn."""
        if self._open is not None:
            self._open.pass_to(now)

    def note(self, now: float, events: Sequence[Event]) -> None:
        """Begin, update or end a wait after a turn has been applied."""
        run, reducer, job = self._run, self._reducer, self._job
        arrivals = (one.job.arrival for one in events if isinstance(one, JobArrived))
        self._first = min(self._first, *arrivals, inf)
        if job not in reducer.jobs:
            return
        span, has_end = reducer.jobs[job], reducer.end_of(job) is not None
        is_moved, self._moves = len(span.moves) > self._moves, len(span.moves)
        if is_moved or has_end or reducer.is_idle(job) or span.running:
            self._close(now)
        if has_end:
            return
        phase = run.waiting(job)
        if self._open is None and phase is not None:
            last = self._cases[-1] if self._cases else None
            if last is not None and last.now == now and not is_moved:
                self._open = self._cases.pop()  # Tasks that took no time have run.
            else:
                self._open = _Case(Wait(job, "", now, inf, "", (), 0.0), phase, run)
        if self._open is not None:
            self._open.update(run)

    def explained(self, line: Timeline, held: HeldSlots) -> tuple[Wait, ...]:
        """The waits as `worst_waits` returns them, after the last turn."""
        if self._open is not None:
            self._open.pass_to(line.end)
            self._cases.append(self._open)
        found = []
        for wait in _longest(line, self._job, MAX_WAITS, None):
            begun = (one for one in self._cases if wait.start <= one.wait.start < wait.end)
            if (case := next(begun, None)) is not None:
                wait = case.of(wait).explained(self._run)
            else:
                wait = replace(wait, slot_kind=self._some)
            found.append(held.with_holders(wait))
        return tuple(found)

    def _close(self, now: float) -> None:
        if self._open is None:
            return
        if now - self._open.wait.start >= MIN_WAIT * (now - self._first):
            self._cases.append(self._open)
        self._open = None


class _Case:
    """A wait, and the time for which each of its causes applied.

    now  the end of the time that is counted
    """

    def __init__(self, wait: Wait, phase: PhaseState, run: RetracedRun) -> None:
        self.wait = wait
        self._slot_kind = phase.slot_kind
        self.now = wait.start
        self._cause = self._first_cause = run.cause(phase)
        self._causes: dict[tuple[str, str], Cause] = {}
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._turn = run.turn
        self._guarantee = None if self._cause.kind else run.guarantee(phase)
        self._is_freed = self._has_another = False
        self._served: _Served | None = None

    def pass_to(self, now: float) -> None:
        """Add the time until `now` to the current cause."""
        key = (self._cause.kind, self._cause.place)
        self._causes.setdefault(key, self._cause)
        self._seconds[key] += min(now, self.wait.end) - self.now
        self.now = min(now, self.wait.end)

    @property
    def has_guarantee(self) -> bool:
        """Whether a guarantee may have helped."""
        return self._guarantee is not None

    def of(self, wait: Wait) -> _Case:
        """This case, now that it is known when its wait began and ended."""
        first, last = self._first_cause, self._cause
        self._causes.setdefault((first.kind, first.place), first)
        self._seconds[first.kind, first.place] += self.wait.start - wait.start
        self._seconds[last.kind, last.place] -= max(0.0, self.now - wait.end)
        self.wait, self.now = wait, min(self.now, wait.end)
        return self

    def update(self, run: RetracedRun) -> None:
        """Update the current cause, and the events since the start of the wait."""
        served = run.served.get(self._slot_kind)
        self._is_freed |= self._slot_kind in run.freed
        if self._served is None:
            pool = self._guarantee and self._guarantee.pool
            self._has_another |= run.turn > self._turn and pool in run.arrived
            self._served = served
        if phase := run.waiting(self.wait.job):
            self._cause = run.cause(phase)

    def explained(self, run: RetracedRun) -> Wait:
        """The wait with its longest causes and their parts of the time, after the last turn."""
        self.pass_to(self.wait.end)
        kind, total = self._slot_kind, self.wait.end - self.wait.start
        order = sorted(self._seconds, key=lambda key: (-self._seconds[key], key))
        longest, reasons = self._causes[order[0]], []
        for key in order:
            part = self._seconds[key] / total
            if self._causes[key].reason and part >= MIN_PART:
                often = f"for {100.0 * part:.0f} % of the time " if part < PART_WHOLE else ""
                reasons.append(often + self._causes[key].reason)
        remedy = longest.remedy
        if not longest.kind:
            if not reasons and not self._is_freed:
                reasons = ["no slot became free"]
            if self._guarantee and run.is_certain(self._guarantee, kind):
                remedy = self._remedy(self._guarantee, run.state.cluster.capacity[kind])
        return replace(self.wait, slot_kind=kind, reason="; ".join(reasons), remedy=remedy)

    def _remedy(self, guarantee: Counterfactual, slots: int) -> str:
        """The effect that the guarantee would have had, in words, or "" if not certain."""
        wait, served = self.wait, self._served
        if served is None:
            if not guarantee.is_taken_back:
                return ""
            preempting = "with preemption (least_after: 0) would have started it at once"
            return f"{guarantee.what} {preempting}"
        if served.guaranteed + 1 > slots or self._has_another:
            return ""
        if served.at > (wait.start + wait.end) / 2:
            return ""  # The gain is too small.
        # It might have started even sooner, before others that lacked guaranteed slots.
        when = "at once"
        if served.at > wait.start:
            when = f"within {_short(served.at - wait.start)} s"
        return f"{guarantee.what} would have started it {when}"


@dataclass(frozen=True, slots=True)
class _Served:
    """A launch of a phase that lacked no guaranteed slot, while `guaranteed` slots were."""

    at: float
    guaranteed: float


class RetracedRun:
    """The current state of a run, and the data to decide whether a guarantee would have helped.

    In the current turn, `freed` are the kinds of slots that were used for launches, `served` is
    the first launch, by kind, of a phase that lacked no guaranteed slot, and `arrived` are the
    pools of the jobs that arrived.
    """

    def __init__(self, header: Header) -> None:
        self.state = initial_state(header)
        self.turn = -1
        self._had_fewer_slots = self._has_changed = False
        self.scheduler: str = header.scheduler["name"]
        self.may_defer = header.scheduler.get("assigner") in WAITERS
        self.keeps_min_shares = _keeps_min_shares(self.scheduler)
        self._guaranteed: defaultdict[str, float] = defaultdict(float)  # slots, by kind
        self.freed: set[str] = set()
        self.served: dict[str, _Served] = {}
        self.arrived: set[str] = set()

    def follow(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Apply one turn."""
        state = self.state
        self.turn += 1
        for one in (self.freed, self.served, self.arrived):
            one.clear()
        state.at(now)
        for event in events:
            state.apply(event)
            self._had_fewer_slots |= isinstance(event, HostLost | HostChange)
            if isinstance(event, SchedulerChanged):
                self.scheduler, self._has_changed = event.name, True
                self.keeps_min_shares = _keeps_min_shares(event.name)
            if isinstance(event, JobArrived):
                self.arrived.add(event.job.pool)
        for decision in decisions:
            if isinstance(decision, Launch):
                phase = state.phase(decision.phase)
                kind = phase.slot_kind
                self.freed.add(kind)
                if (
                    kind not in self.served
                    and not state.wide(kind)
                    and not _lacks_guarantee(phase)
                ):
                    self.served[kind] = _Served(now, self._guaranteed[kind])
            state.apply(decision)
            if isinstance(decision, Reallocate | Adjust):
                for kind in state.cluster.capacity:
                    tops = [p for p in state.shares(kind) if p.parent and not p.parent.parent]
                    self._guaranteed[kind] = sum(pool.owed for pool in tops)

    def waiting(self, job: str) -> PhaseState | None:
        """The first phase of a job that could start now, or else with failed tasks that may run
        later; None without one or if a task runs."""
        phases = self.state.phases_of(job)
        if any(phase.running for phase in phases):
            return None
        could = [phase for phase in phases if phase.pending and not phase.waits_for]
        could = could or [phase for phase in phases if phase.delayed]
        return could[0] if could else None

    def cause(self, phase: PhaseState) -> Cause:
        """The cause for which a phase waits now."""
        return cause_of(self.state, phase, self.scheduler, self.may_defer)

    def guarantee(self, phase: PhaseState) -> Counterfactual | None:
        """The guarantee with which a phase would be served next, or None if not certain.

        At each level of pools, those that lack guaranteed slots are served first. So a
        guarantee of the phase is enough if there is one pool. A guarantee of its pool is enough
        if only this job waits in it, and neither the pool nor its ancestors hold slots.
        """
        if not self.keeps_min_shares or phase.is_pinned or phase.is_limited:
            return None
        if phase.needs or self.state.wide(phase.slot_kind):
            return None  # Slots may be kept for tasks that request more than one slot.
        if self.may_defer and phase.has_homes:
            return None
        state, kind = self.state, phase.slot_kind
        pools = state.shares(kind)
        one = "1" if len(state.cluster.capacity) == 1 else f"1 {kind} slot"
        if len(pools) == 1:
            if phase.phase.slots_min:
                return None
            what = f"a min share of {one} for phase {phase.id.phase} of the job"
            return Counterfactual(self.turn, what, None, is_taken_back=False)
        path = [pool for pool in path_to(phase.pool) if pool.parent is not None]
        if any(pool.running or pool.min_share for pool in path):
            return None
        if any(other.job.id != phase.job.id for other in phases_below(phase.pool)):
            return None
        return Counterfactual(
            self.turn,
            f"a min share of {one} for pool {phase.job.pool}",
            phase.job.pool,
            is_taken_back=self._guaranteed[kind] + 1 <= state.cluster.capacity[kind]
            and state.pools.preemption(phase.job.pool) is None
            and not any(pool.stopping for pool in pools)
            and not state.free(kind)
            and not state.lost,
        )

    def is_certain(self, guarantee: Counterfactual, kind: str) -> bool:
        """Whether the guarantee would have been kept. Call it at the end of the log."""
        if self._had_fewer_slots or self._has_changed:
            return (
                False  # The guarantees together may have exceeded the slots, or were ignored.
            )
        # A guarantee of a phase helps only if no other pool was added.
        return guarantee.pool is not None or len(self.state.shares(kind)) == 1


def _keeps_min_shares(scheduler: str) -> bool:
    return scheduler in ALLOCATORS and make_allocator(scheduler).keeps_min_shares


def _lacks_guarantee(phase: PhaseState) -> bool:
    """Whether a phase, or one of its pools, lacks whole slots of its guarantee."""
    if phase.running < whole(phase.owed):
        return True
    return any(pool.running < whole(pool.owed) for pool in path_to(phase.pool) if pool.parent)


def _short(seconds: float) -> str:
    """A number above 0, rounded up to three significant digits."""
    digit = 10.0 ** (floor(log10(seconds)) - 2)
    return f"{ceil(seconds / digit - SLOTS) * digit:.6g}"
