"""Promises of dates: what was asked for, what is open, and the room that is left beside it.

A promise is a reservation that is made once: a number of slots of one kind, until an instant.
It begins as late as the remaining tasks of the job allow. What is decided on promises is in
`slotwise.policy.promises`; docs/algorithms/promises.md has the rules and their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, erfc, exp, inf, log, nextafter, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple, Self

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import (
    AcceptPromise,
    Adjust,
    BreakPromise,
    Decision,
    Defer,
    GiveUp,
    GuaranteePromise,
    Launch,
    PromiseCause,
    Reallocate,
    RefusePromise,
)
from slotwise.core.events import (
    Event,
    HostDrained,
    HostLost,
    HostRemoved,
    HostResized,
    JobChanged,
    PoolsChanged,
    TaskFailed,
    TaskKilled,
)
from slotwise.core.job import Job
from slotwise.core.objective import met_until
from slotwise.core.phase_state import PhaseState
from slotwise.core.phase_work import SURE, PhaseWork
from slotwise.core.pool_state import PoolState, path_to
from slotwise.core.tolerances import CLOSE, ROUNDING

CONFIDENCE = 0.95
"""The part of cases in which running tasks hold at most the slots that are assumed. With `SURE`,
which is that of the work of a promised job, it keeps 95 % of the promises."""

STANDARD = NormalDist()

COMMON = STANDARD.inv_cdf(CONFIDENCE)
"""Standard deviations above the mean."""

HALF = 0.5
"""Of a slot: a count that is normal exceeds whole slots from there on."""

CHANCES = (0.9, 0.7, 0.5, 0.3, 0.15, 0.07, 0.03, 0.01, 1e-6)
"""Probabilities to run still, at which the room over time is found."""

ROOT_2 = sqrt(2.0)

OVERDUE = 0.2
"""A task that has exceeded all that its estimate allows is assumed to need this part of the
time that it has run in addition."""

FAR_TAIL = 1e-9
"""A smaller tail of a distribution is not computed."""


# How long tasks take at most, at the confidence.


def factor_of(
    work: PhaseWork, done: int, rounds: int = 1, at_once: int = 1, margin: float = 0.0
) -> float:
    """The real over the stated work of the tasks of a phase, at the confidence.

    margin  by how much errors exceed their bounds of late, as a logarithm

    They run one after another in `rounds`, and `at_once` such rows end when the last of them
    does: what all tasks have in common counts once, what is of each counts by its extremes.
    """
    error, within = work.error(done)
    common, single = STANDARD.inv_cdf(SURE), STANDARD.inv_cdf(SURE ** (1 / at_once))
    variance = common * common * error.variance + single * single * within / rounds
    return exp(error.mean + sqrt(variance) + margin)


class Lasting(NamedTuple):
    """How long tasks of a phase may take: the logarithm of real by stated work is normal.

    most  the seconds after which they are stopped
    """

    mean: float
    deviation: float
    most: float

    @classmethod
    def of(cls, phase: PhaseState) -> Self:
        """That of the tasks of a phase, by what is known now."""
        error, within = phase.work.error(phase.done)
        return cls(error.mean, sqrt(error.variance + within), phase.job.time_limit or inf)

    def chance(self, expected: float, started: float, now: float, at: float) -> float:
        """The probability that a task which runs now still runs at a later instant.

        expected  its stated work, in seconds on its host
        """
        seconds, elapsed = at - started, now - started
        rounding = CLOSE * expected + ROUNDING * abs(at)
        if seconds >= self.most - rounding:
            return 0.0
        usual = expected * exp(self.mean)
        passed = 0.0
        if self.deviation and expected > 0:
            passed = self._longer(expected, elapsed)
        if passed < FAR_TAIL:
            longest = usual if elapsed < usual else elapsed * (1 + OVERDUE)
            return float(seconds < longest - rounding)
        return self._longer(expected, seconds) / passed

    def _longer(self, expected: float, seconds: float) -> float:
        """The probability that a task takes longer than that."""
        part = seconds / expected
        if part <= 0:  # Also of the least instants after 0.
            return 1.0
        return erfc((log(part) - self.mean) / (self.deviation * ROOT_2)) / 2

    def ends(self, expected: float, started: float, now: float) -> Iterator[float]:
        """Instants at which a task that runs now still does with these probabilities."""
        elapsed, usual = now - started, expected * exp(self.mean)
        passed = self._longer(expected, elapsed) if self.deviation and expected > 0 else 0.0
        found = [usual if elapsed < usual else elapsed * (1 + OVERDUE)]
        if passed >= FAR_TAIL:
            ahead = (STANDARD.inv_cdf(1 - chance * passed) for chance in CHANCES)
            found = [usual * exp(self.deviation * one) for one in ahead]
        return (started + min(seconds, self.most) for seconds in found)


class TasksLeft(NamedTuple):
    """The tasks of a phase that are not done: their number, and seconds at the confidence.

    area   of all together
    longest  of one
    width  the slots of each
    after  the phases that it waits for
    """

    number: int
    area: float
    longest: float
    width: int
    after: Iterable[str]


def seconds_needed(phases: Mapping[str, TasksLeft], slots: int) -> float:
    """An upper bound on the time in which a job ends on this number of slots, at speed 1.

    The phases are in topological order. Equal tasks of one phase run in rounds. Otherwise the
    area and the longest path bound each schedule that leaves no slot idle while a task may
    begin (Graham 1969). O(phases).
    """
    at_once = max(1, slots // max(one.width for one in phases.values()))
    ends: dict[str, float] = {}
    for name, one in phases.items():
        before = max((ends[other] for other in one.after), default=0.0)
        ends[name] = before + (one.longest if one.number else 0.0)
    path, area = max(ends.values()), sum(one.area for one in phases.values())
    rounds = inf
    if len(phases) == 1:
        rounds = ceil(next(iter(phases.values())).number / at_once) * path
    return min(rounds, area / at_once + path * (1 - 1 / at_once))


def tasks_left(
    phases: Sequence[PhaseState], factors: Mapping[str, float]
) -> dict[str, TasksLeft]:
    """The tasks of a job that are not done, with these factors on their stated work."""
    return {
        one.id.phase: TasksLeft(
            one.tasks_left,
            one.work.expected_left(one.done) * factors[one.id.phase],
            one.work.longest * factors[one.id.phase],
            one.width,
            one.phase.waits_for,
        )
        for one in phases
    }


# Open promises.


@dataclass(slots=True)
class OpenPromise:
    """A promise that was accepted, of a job that is not over.

    stated      the min shares that its phases state, by name
    begins      the latest start of what is left of it
    is_due      its slots are guaranteed from now on
    guaranteed  how many of them its phases have, by name
    disturbed   what has happened since that may break it (`BreakPromise`)
    """

    decision: AcceptPromise
    stated: Mapping[str, int]
    begins: float = inf
    is_due: bool = False
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    disturbed: set[PromiseCause] = field(default_factory=set)

    @property
    def late_from(self) -> float:
        """The first instant at which it is broken."""
        return nextafter(met_until(self.decision.at), inf)


class Held:
    """Slots that may be held at some instants: mean and variance, of independent tasks."""

    __slots__ = ("mean", "variance")

    def __init__(self, count: int) -> None:
        self.mean, self.variance = [0.0] * count, [0.0] * count

    def add(self, number: int, slots: float, chance: float) -> None:
        """Add slots that are held at an instant with this probability."""
        self.mean[number] += slots * chance
        self.variance[number] += slots * slots * chance * (1 - chance)

    def most(self, number: int, slots: float = 0.0, chance: float = 0.0) -> float:
        """The slots at the confidence, with these; numbers are rounded from halves on."""
        variance = self.variance[number] + slots * slots * chance * (1 - chance)
        return self.mean[number] + slots * chance + COMMON * sqrt(variance) - HALF


def add_running(
    held: Held,
    phase: PhaseState,
    now: float,
    times: Sequence[float],
    lost: Collection[str] = (),
    *,
    are_alike: bool = False,
) -> None:
    """Add the running tasks of a phase. Those on `lost` hosts hold no slots that are shared.

    Until one is done, its tasks are late together: they have the error of their estimate in
    common. Afterwards they are independent.
    """
    lasting, together = Lasting.of(phase), Held(len(times))
    for task, (launch, started, speed) in phase.launches.items():
        if launch.host not in lost:
            expected = phase.work.expected(task) / speed
            for number, at in enumerate(times):
                if not (chance := lasting.chance(expected, started, now, at)):
                    break
                together.add(number, phase.width, chance)
    for number, mean in enumerate(together.mean):
        variance = together.variance[number]
        if are_alike and not phase.done:
            variance = max(variance, mean * (phase.running - mean))
        held.mean[number] += mean
        held.variance[number] += variance


class Rooms:
    """The slots that are left at the beginnings of the reservations of one kind of slot.

    Of all slots, and of the shares with a max share that hold a promised job. Running tasks
    count as far as they may still run then, and a promised job with what it has reserved, or
    holds if that is more. Only beginnings matter: room only grows until the next one.
    """

    def __init__(
        self, now: float, times: Sequence[float], slots: Mapping[PoolState, float]
    ) -> None:
        self._now, self._times = now, times
        self._left = {share: [most] * len(times) for share, most in slots.items()}
        self._held = {share: Held(len(times)) for share in slots}
        self._own: dict[str, tuple[OpenPromise, int]] = {}  # with the slots that it holds

    def permits(self, phase: PhaseState, speed: float) -> bool:
        """Whether a launch of a phase leaves enough slots."""
        shares = self._shares(phase)
        for number, slots, chance in self._needed(phase, speed, phase.unit):
            for share in shares if slots else ():
                room = max(0, self._left[share][number])
                if self._held[share].most(number, slots, chance) > room:
                    return False
        return True

    def take(self, phase: PhaseState, speed: float) -> None:
        """Count a task that is launched."""
        for number, slots, chance in self._needed(phase, speed, phase.width):
            for share in self._shares(phase):
                self._held[share].add(number, slots, chance)
        if (own := self._own.get(phase.id.job)) is not None:
            self._own[phase.id.job] = own[0], own[1] + phase.width

    def hold(self, phase: PhaseState, lost: Collection[str]) -> None:
        """Count the running tasks of a phase, but not in the reservation of its own job."""
        held = Held(len(self._times))
        add_running(held, phase, self._now, self._times, lost)
        for number, mean in enumerate(held.mean):
            for share in (
                self._shares(phase) if mean and not self._is_own(phase, number) else ()
            ):
                self._held[share].mean[number] += mean
                self._held[share].variance[number] += held.variance[number]

    def reserve(self, promise: OpenPromise, phases: Sequence[PhaseState]) -> None:
        """Count what a promised job has reserved; before `hold` of its phases."""
        running = sum(phase.running for phase in phases)
        self._own[promise.decision.job] = promise, running
        for number in range(len(self._times)):
            for share in self._shares(phases[0]) if self._is_own(phases[0], number) else ():
                self._left[share][number] -= max(promise.decision.slots, running)

    def _is_own(self, phase: PhaseState, number: int) -> bool:
        """Whether an instant lies in the reservation of the job of a phase."""
        own, at = self._own.get(phase.id.job), self._times[number]
        return own is not None and own[0].begins <= at < own[0].decision.until

    def _needed(
        self, phase: PhaseState, speed: float, slots: int
    ) -> Iterator[tuple[int, int, float]]:
        """The slots that a launch takes at each instant, and with which probability."""
        lasting, now = Lasting.of(phase), self._now
        expected, own = phase.work.longest / speed, self._own.get(phase.id.job)
        for number, at in enumerate(self._times):
            if not (chance := lasting.chance(expected, now, now, at)):
                return
            more = slots
            if own is not None and self._is_own(phase, number):
                more = max(0, min(slots, own[1] + slots - own[0].decision.slots))
            yield number, more, chance

    def _shares(self, phase: PhaseState) -> list[PoolState]:
        return [share for share in (phase.pool, *phase.pool.above) if share in self._left]


class OpenPromises:
    """All promises of a run. With none, nothing of this costs more than a comparison.

    asked  the jobs that ask for a promise and have no answer yet, in order of arrival
    open   the promises that were accepted, by job
    broken those that were not kept, by job, at least until the job is over
    """

    def __init__(self, phases_of: Callable[[str], Sequence[PhaseState]]) -> None:
        self.asked: dict[str, None] = {}
        self.open: dict[str, OpenPromise] = {}
        self.broken: dict[str, BreakPromise] = {}
        self._phases_of = phases_of
        self._rooms: dict[str, Rooms] | None = None
        self._at, self._speed = -inf, 1.0

    def arrive(self, job: Job) -> bool:
        """A job has arrived. Whether it asks for a promise, for which estimates are read."""
        if job.promise is None:
            return False
        self.asked[job.id] = None
        return True

    def accept(self, decision: AcceptPromise) -> None:
        """A promise is open from now on."""
        self.asked.pop(decision.job, None)
        stated = {one.id.phase: one.phase.slots_min for one in self._phases_of(decision.job)}
        self.open[decision.job] = OpenPromise(decision, stated)
        self._rooms = None

    def end(self, job: str) -> OpenPromise | None:
        """A job is over, or gets no promise, or no more."""
        self.asked.pop(job, None)
        self._rooms = None
        return self.open.pop(job, None)

    def note(self, entry: Event | Decision) -> None:
        """While promises are open: an entry is about to be applied."""
        if isinstance(entry, Launch):
            phases = self._phases_of(entry.phase.job)
            self._launched(next(phase for phase in phases if phase.id == entry.phase))
            return
        if isinstance(entry, GiveUp):
            self.end(entry.job)
        elif isinstance(entry, TaskFailed | TaskKilled):
            is_lost = isinstance(entry, TaskFailed) and entry.lost
            ended: PromiseCause = "min_shares" if isinstance(entry, TaskKilled) else "failures"
            self._disturb("hosts" if is_lost else ended, entry.phase.job)
        elif isinstance(entry, HostLost | HostDrained | HostRemoved | HostResized):
            self._disturb("hosts")
        elif isinstance(entry, PoolsChanged):
            self._disturb("pools")
        elif isinstance(entry, JobChanged):
            if any(one.job.pool != entry.pool for one in self._phases_of(entry.job)):
                self._disturb("pools", entry.job)
        elif isinstance(entry, Reallocate | Adjust | Defer):
            return
        self._rooms = None

    def _disturb(self, cause: PromiseCause, job: str | None = None) -> None:
        """Something happens that may break the promise of a job, or any."""
        for name in self.open if job is None else self.open.keys() & {job}:
            self.open[name].disturbed.add(cause)

    def refresh(
        self,
        now: float,
        cluster: Cluster,
        lost: Iterable[str],
        holding: Callable[[str], Sequence[PhaseState]],
        capacity: Callable[[str], int],
    ) -> None:
        """Find the latest starts, and the room beside all promises, unless nothing changed.

        O(running tasks * promises), for the kinds of slots with promises.
        """
        for job in [job for job in (*self.asked, *self.open) if not self._phases_of(job)]:
            self.end(job)
        if self._rooms is not None and now == self._at:
            return
        self._at, self._speed, self._rooms = now, slowest(cluster), {}
        for promise in self.open.values():
            phases = self._phases_of(promise.decision.job)
            left = tasks_left(phases, promise.decision.factors)
            waits = any(one.has_more for one in phases)
            seconds = seconds_needed(left, promise.decision.slots) if waits else 0.0
            promise.begins = promise.decision.until - seconds / self._speed
        for kind in {one.decision.kind: None for one in self.open.values()}:
            self._rooms[kind] = self._rooms_of(
                kind, now, set(lost), holding(kind), capacity(kind)
            )

    def _rooms_of(
        self, kind: str, now: float, lost: set[str], holding: Sequence[PhaseState], slots: int
    ) -> Rooms:
        promises = [one for one in self.open.values() if one.decision.kind == kind]
        live = [one for one in promises if one.begins < one.decision.until > now]
        for one in live:  # What is due has begun.
            one.begins = max(now, one.begins)
        times = sorted({one.begins for one in live})
        most: dict[PoolState, float] = {}
        for one in live:
            for share in path_to(self._phases_of(one.decision.job)[0].pool):
                if share.parent is None:
                    most[share] = slots
                elif share.max_share < inf and share.total is None:
                    most[share] = share.max_on_responsive
        rooms = Rooms(now, times, most)
        for one in live:
            rooms.reserve(one, self._phases_of(one.decision.job))
        for phase in holding:
            if phase.launches:
                rooms.hold(phase, lost)
        return rooms

    def permits(self, phase: PhaseState) -> bool:
        """Whether a launch of this phase now leaves enough slots for all reservations.

        Min shares come first: neither a pool nor a phase waits that is below its own.
        """
        rooms = self._rooms.get(phase.slot_kind) if self._rooms else None
        if rooms is None or self._is_below_least(phase):
            return True
        return rooms.permits(phase, self._speed)

    def _is_below_least(self, phase: PhaseState) -> bool:
        """Whether a phase, or a pool that it is in, holds less than its own min share.

        What is reserved in a pool counts as held: its min share is for its promises first.
        """
        if phase.running - phase.slots_on_lost_hosts < phase.phase.slots_min:
            return True
        for share in path_to(phase.pool):
            if share.min_share > 0 and share.held < share.min_share:
                reserved = 0
                for one in self.open.values():
                    phases = self._phases_of(one.decision.job)
                    if share in path_to(phases[0].pool):
                        held = sum(other.running for other in phases)
                        reserved += max(0, one.decision.slots - held)
                if share.held + reserved < share.min_share:
                    return True
        return False

    def reserved(self, phase: PhaseState) -> int:
        """The slots that are promised to the job of a phase; 0 without a promise."""
        promise = self.open.get(phase.id.job)
        return 0 if promise is None else promise.decision.slots

    def comes_first(self, phase: PhaseState) -> bool:
        """Whether a phase is guaranteed slots by a promise that is due, and lacks some."""
        promise = self.open.get(phase.id.job)
        held = phase.running - phase.slots_on_lost_hosts
        return promise is not None and held < promise.guaranteed.get(phase.id.phase, 0)

    def _launched(self, phase: PhaseState) -> None:
        """A task is launched; for a min share, also if that leaves too few slots."""
        rooms = self._rooms.get(phase.slot_kind) if self._rooms else None
        if rooms is not None:
            is_first = not phase.is_gang or not phase.running
            if (
                is_first
                and phase.id.job not in self.open
                and not rooms.permits(phase, self._speed)
            ):
                self._disturb("min_shares")
            rooms.take(phase, self._speed)
        if phase.pending == 1 and phase.id.job in self.open:
            self._rooms = None  # All its tasks run, which may end its reservation.

    def next_wakeup(self, now: float) -> float:
        """The next instant at which a promise is due, or ends, or is broken; inf if none is."""
        return min(
            [
                at
                for one in self.open.values()
                for at in (one.begins, one.decision.until, one.late_from)
                if at > now
            ],
            default=inf,
        )


def slowest(cluster: Cluster) -> float:
    """The speed of the slowest host."""
    return min((host.speed for host in cluster.hosts), default=1.0)


# What decisions on promises change of the state. It is a part of the module of `State`.


def promise_handlers(state: Any) -> dict[type, Callable[[Any], None]]:
    """What applies each of these decisions to a `State`."""
    promises: OpenPromises = state.promises

    def guarantee(decision: GuaranteePromise) -> None:
        promise = promises.open[decision.job]
        promise.is_due, promise.guaranteed = True, decision.slots
        _set_min_shares(state, decision.job, decision.slots)

    def end(decision: RefusePromise | BreakPromise) -> None:
        promise = promises.end(decision.job)
        if promise is not None and promise.is_due:
            _set_min_shares(state, decision.job, promise.stated)

    def break_(decision: BreakPromise) -> None:
        end(decision)
        left = {job: one for job, one in promises.broken.items() if state.phases_of(job)}
        promises.broken = {**left, decision.job: decision}

    return {
        AcceptPromise: promises.accept,
        GuaranteePromise: guarantee,
        RefusePromise: end,
        BreakPromise: break_,
    }


def _set_min_shares(state: Any, name: str, slots: Mapping[str, int]) -> None:
    """Set the min shares of the phases of a job; 0 for those that are not named."""
    job = state._jobs.job(name)
    phases = tuple(replace(one, slots_min=slots.get(one.name, 0)) for one in job.phases)
    state._jobs.replace(replace(job, phases=phases))
    for phase in state.phases_of(name):
        state._of_kind[phase.slot_kind].guarantee(phase)
    state._reallocate_now()
