"""Why jobs waited, and what would have served them sooner, as far as the log proves it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from slotwise.model.decision import Decision, Launch, Reallocate
from slotwise.model.event import Event, HostLost, JobArrived
from slotwise.record.log import Header, Log
from slotwise.runtime.ordering import ROUNDING, whole
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import path_to
from slotwise.runtime.state import State
from slotwise.scheduler import ALLOCATORS, QUEUEINGS, make_allocator

NAMES_MOST = 3
"""So many jobs are named in a sentence."""

PART_LEAST = 0.1
"""A cause that held for less than this part of a wait is left out."""

PART_WHOLE = 0.99
"""A cause that held for this part of a wait or more is given without its part."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a job waited, in seconds."""

    job: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What a job waited for, why, and what would have helped.

    The reason is empty where others were simply served first, and the remedy where the log
    proves none.
    """

    slot_kind: str
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class _Chance:
    """A guarantee of one slot, by which a job would have been next in the turn `turn`.

    `what` is the guarantee in words. A `pool` is that of which a guarantee is meant: it helps
    the job as long as no other one arrives there. Without it, it is one of a phase, which helps
    where there is one pool only. `is_taken_back`: with preemption it gets a slot at once.
    """

    turn: int
    what: str
    pool: str | None
    is_taken_back: bool


def advise(log: Log, waits: Sequence[Stretch]) -> list[Advice]:
    """Advice on each of these waits. Follows the log once: O(n log n) for n entries, and
    O(pools) for each reallocation and for each turn of a wait, besides its job's phases."""
    if not waits:
        return []
    course = _Course(log.header)
    due = sorted(range(len(waits)), key=lambda number: -waits[number].start)
    cases: dict[int, _Case] = {}
    going_on: list[_Case] = []
    for turn in log.turns:
        for case in going_on:
            case.pass_to(turn.now)
        course.follow(turn.now, turn.events, turn.decisions)
        while due and waits[due[-1]].start <= turn.now:
            number = due.pop()
            if phase := course.waiting(waits[number].job):
                cases[number] = _Case(waits[number], phase, course)
                going_on.append(cases[number])
        going_on = [case for case in going_on if turn.now < case.wait.end]
        for case in going_on:
            case.look(course)
    unknown = Advice(next(iter(log.header.cluster.capacity)))
    return [
        cases[number].advice(course) if number in cases else unknown
        for number in range(len(waits))
    ]


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a phase waits, if not because others are served first by their shares.

    Causes of one `kind` and `place` (a pool) are one, though their words may change.
    """

    kind: str = ""
    place: str = ""
    reason: str = ""
    remedy: str = ""


class _Case:
    """A wait, and how long each cause of it held."""

    def __init__(self, wait: Stretch, phase: PhaseState, course: _Course) -> None:
        self.wait = wait
        self._slot_kind = phase.slot_kind
        self._now = wait.start
        self._cause = course.cause(phase)
        self._causes: dict[tuple[str, str], _Cause] = {}
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._turn = course.turn
        self._chance = None if self._cause.kind else course.chance(phase)

    def pass_to(self, now: float) -> None:
        """Time goes on, while the cause stays."""
        key = (self._cause.kind, self._cause.place)
        self._causes.setdefault(key, self._cause)
        self._seconds[key] += min(now, self.wait.end) - self._now
        self._now = min(now, self.wait.end)

    def look(self, course: _Course) -> None:
        """See what the cause is now."""
        if phase := course.waiting(self.wait.job):
            self._cause = course.cause(phase)

    def advice(self, course: _Course) -> Advice:
        """The causes that held for long, each with its part of the time, once all is known."""
        self.pass_to(self.wait.end)
        kind, total = self._slot_kind, self.wait.end - self.wait.start
        order = sorted(self._seconds, key=lambda key: (-self._seconds[key], key))
        longest, reasons = self._causes[order[0]], []
        for key in order:
            part = self._seconds[key] / total
            if self._causes[key].reason and part >= PART_LEAST:
                often = f"for {100.0 * part:.0f} % of the time " if part < PART_WHOLE else ""
                reasons.append(often + self._causes[key].reason)
        if longest.kind:
            return Advice(kind, "; ".join(reasons), longest.remedy)
        if not reasons and not course.has_freed(kind, self._turn, self.wait.end):
            reasons = ["no slot came free"]
        remedy = course.remedy(self._chance, self.wait, kind) if self._chance else ""
        return Advice(kind, "; ".join(reasons), remedy)


class _Course:
    """The course of a run: its state by now, and which guarantees would have been served."""

    def __init__(self, header: Header) -> None:
        self.state = State(
            header.cluster,
            header.pools,
            jobs_expected=header.jobs_expected,
            attempts_max=header.attempts_max,
            losses_max=header.losses_max,
        )
        self.turn = -1
        self._had_outage = False
        self.scheduler: str = header.scheduler["name"]
        self.may_defer = header.scheduler.get("assigner") == "delay"
        is_allocated = self.scheduler in ALLOCATORS
        self.keeps_min_shares = is_allocated and make_allocator(self.scheduler).keeps_min_shares
        # By kind of slot: how many of them are guaranteed to somebody, and the launches to
        # whom nothing more was guaranteed, each with its turn, its instant and that number;
        # and all launches.
        self._promised = dict.fromkeys(header.cluster.capacity, 0.0)
        self._served: defaultdict[str, list[tuple[int, float, float]]] = defaultdict(list)
        self._launches: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        self._arrivals: defaultdict[str, list[int]] = defaultdict(list)  # turns, by pool

    def follow(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Take in one turn."""
        state = self.state
        self.turn += 1
        state.at(now)
        for event in events:
            state.apply(event)
            self._had_outage |= isinstance(event, HostLost)
            if isinstance(event, JobArrived):
                self._arrivals[event.job.pool].append(self.turn)
        for decision in decisions:
            if isinstance(decision, Launch):
                phase = state.phase(decision.phase)
                kind = phase.slot_kind
                self._launches[kind].append((self.turn, now))
                if not _lacks_least(phase):
                    self._served[kind].append((self.turn, now, self._promised[kind]))
            state.apply(decision)
            if isinstance(decision, Reallocate):
                for kind in self._promised:
                    tops = [p for p in state.shares(kind) if p.parent and not p.parent.parent]
                    self._promised[kind] = sum(pool.owed for pool in tops)

    def waiting(self, job: str) -> PhaseState | None:
        """The first phase of a job that could begin now; None if a task of it runs, or none
        can."""
        phases = self.state.phases_of(job)
        if any(phase.running for phase in phases):
            return None
        could = [phase for phase in phases if phase.pending and not phase.waits_for]
        return could[0] if could else None

    def cause(self, phase: PhaseState) -> _Cause:
        """Why a phase waits now."""
        state, kind = self.state, phase.slot_kind
        pool = state.pools[phase.job.pool]
        if phase.job.id in state.awaiting_admission:
            name, inside = next(iter(state.full_pools(phase.job.id).items()), ("", []))
            reason = f"pool {name} ran {_listed(inside)}, as many jobs as it may at once"
            remedy = f"a larger jobs_max for pool {name} admits it sooner"
            return _Cause("not admitted", name, reason, remedy)
        if self.scheduler in QUEUEINGS:
            reason = f"{self.scheduler} had planned tasks of others before its own"
            return _Cause("queued", "", reason)
        if phase.deferred_until is not None and phase.deferred_until > state.now:
            reason = "it let slots far from its input pass (delay scheduling)"
            return _Cause("deferred", "", reason, "shorter waits let it take them")
        full = next((pool for pool in path_to(phase.pool) if pool.is_full), None)
        if full is not None:
            reason = f"pool {full.name} held its max share of {full.max_share:g}"
            if not any(state.free(kind).values()):
                return _Cause("full", full.name, reason)
            return _Cause(
                "full with free slots",
                full.name,
                f"{reason} while slots were free",
                f"a larger slots_max for pool {full.name} lets it use such slots",
            )
        if self.scheduler == "fifo":
            reason = "fifo serves jobs in the order of priority and arrival, whatever the pool"
            remedy = "fair and flex share the slots among jobs and pools"
            return _Cause("fifo", "", reason, remedy)
        if self.scheduler == "fair" and pool.policy == "fifo" and phase.pool.running:
            reason = f"pool {pool.name} serves its jobs one after the other (policy fifo)"
            remedy = "policy fair shares its slots among them"
            return _Cause("fifo in its pool", pool.name, reason, remedy)
        return _Cause()

    def chance(self, phase: PhaseState) -> _Chance | None:
        """The guarantee that would make a phase that waits the next one to be served.

        Who lacks guaranteed slots is served before all others at each level of pools. So a
        guarantee of a phase is enough where there is one pool, and that of a pool where only
        this job waits in it, and neither it nor a pool that it lies in holds anything.
        """
        if not self.keeps_min_shares or phase.is_pinned or phase.is_limited:
            return None
        if self.may_defer and phase.has_homes:
            return None
        state, kind = self.state, phase.slot_kind
        pools = state.shares(kind)
        one = "1" if len(state.cluster.capacity) == 1 else f"1 {kind} slot"
        if len(pools) == 1:
            if phase.phase.slots_min:
                return None
            what = f"a min share of {one} for phase {phase.id.phase} of the job"
            return _Chance(self.turn, what, None, is_taken_back=False)
        path = [pool for pool in path_to(phase.pool) if pool.parent is not None]
        if any(pool.running or pool.min_share for pool in path):
            return None
        if any(other.job.id != phase.job.id for other in phase.pool.walk()):
            return None
        return _Chance(
            self.turn,
            f"a min share of {one} for pool {phase.job.pool}",
            phase.job.pool,
            is_taken_back=self._promised[kind] + 1 <= state.cluster.capacity[kind]
            and state.pools.preemption(phase.job.pool) is None
            and not any(pool.stopping for pool in pools)
            and not state.free(kind)
            and not state.lost,
        )

    def has_freed(self, kind: str, turn: int, end: float) -> bool:
        """Whether anybody was given a slot of this kind from a turn on, before an instant."""
        launches = self._launches[kind]
        place = bisect_left(launches, (turn,))
        return place < len(launches) and launches[place][1] < end

    def remedy(self, chance: _Chance, wait: Stretch, kind: str) -> str:
        """What the guarantee would have done, in words; empty if that is not sure."""
        if self._had_outage:
            return ""  # With fewer slots the guarantees of all may not have fitted.
        served, slots = self._served[kind], self.state.cluster.capacity[kind]
        if chance.pool is None and len(self.state.shares(kind)) > 1:
            return ""  # Another pool came later.
        place = bisect_left(served, (chance.turn,))
        if place == len(served) or served[place][1] >= wait.end:
            if not chance.is_taken_back:
                return ""
            return (
                f"{chance.what} with preemption (least_after: 0) would have started it at once"
            )
        turn, at, promised = served[place]
        if promised + 1 > slots or self._comes_another(chance, turn):
            return ""
        if at > (wait.start + wait.end) / 2:
            return ""  # That would not have been worth the trouble.
        # Sooner if it had come before others that lacked guaranteed slots, too.
        when = "at once" if at <= wait.start else f"within {_short(at - wait.start)} s"
        return f"{chance.what} would have started it {when}"

    def _comes_another(self, chance: _Chance, until: int) -> bool:
        """Whether another job arrives in the pool behind the turn of a chance, until then."""
        turns = self._arrivals[chance.pool] if chance.pool is not None else []
        place = bisect_right(turns, chance.turn)
        return place < len(turns) and turns[place] <= until


def _lacks_least(phase: PhaseState) -> bool:
    """Whether a phase, or a pool that it is in, lacks whole slots of what it is guaranteed."""
    if phase.running < whole(phase.owed):
        return True
    return any(pool.running < whole(pool.owed) for pool in path_to(phase.pool) if pool.parent)


def _listed(jobs: Sequence[str]) -> str:
    more = f" and {len(jobs) - NAMES_MOST} more" if len(jobs) > NAMES_MOST else ""
    return ", ".join(jobs[:NAMES_MOST]) + more


def _short(seconds: float) -> str:
    """A number above 0, rounded up to three digits that count."""
    digit = 10.0 ** (floor(log10(seconds)) - 2)
    return f"{ceil(seconds / digit - ROUNDING) * digit:.6g}"
