"""The estimated and the measured work of one phase, as sums."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple, Self, TypeVar

from slotwise.core.decisions import Launch
from slotwise.core.estimation import (
    COUNT,
    MIN_WORK,
    WITHIN,
    Normal,
    Slope,
    Sums,
    combined,
    expected_if_late,
    work_left,
)
from slotwise.core.job import Job, Phase

NEVER, AS_STATED = -1, -2
"""Instead of the number of changes at which an estimate was made: it was not, or it holds for
as long as stated work is exact."""


class PhaseWork:
    """What is known of the work of a phase, in seconds at speed 1. Each method is O(1).

    The caller passes the numbers of done and of running tasks. For equal tasks these are
    enough; sums of the estimates exist only for tasks of unequal work.
    """

    __slots__ = (
        *("_author", "_each", "_elapsed_base", "_finished", "_idle", "_is_stated", "_kept"),
        "_known",
        *("_known_at", "_mean", "_measured", "_observed", "_of_job", "_program"),
        *("_running", "_scale", "_source", "_speed", "_total", "_works", "learned"),
    )

    def __init__(self, job: Job, phase: Phase, default_work: float, learned: Learned) -> None:
        """`learned` has what is known from all phases; call `enter` before anything else."""
        tasks, work = phase.tasks, phase.tasks.work
        self._works = work if isinstance(work, tuple) else None
        self._each = work if isinstance(work, float | int) else default_work
        self._total = self._each * tasks.count if self._works is None else sum(self._works)
        self._mean = self._each if self._works is None else self._total / tasks.count
        self._is_stated = work is not None
        self._scale = log(max(self._mean, MIN_WORK)) if self._is_stated else None
        self.learned = learned
        self._known, self._known_at = (0.0, 0.0), NEVER
        self._idle: float | None = None  # the work left, once it was asked for while none ran
        self._program = job.program, phase.name
        self._author = job.user or "", job.program
        self._of_job = learned.of_job(job.id) if len(job.phases) > 1 else None
        self._measured: Measured | None = None
        self._finished = 0.0  # estimated, of done tasks
        self._running = 0.0  # estimated, of running tasks
        self._observed = 0.0  # measured, of done tasks
        self._speed = 0.0  # of all running tasks together
        self._elapsed_base = 0.0
        self._kept: dict[int, float] = {}  # measured, of stopped tasks

    def expected(self, task: int) -> float:
        """The work of a task as estimated beforehand."""
        return self._each if self._works is None else self._works[task]

    def enter(self, pool: str) -> None:
        """From now on it is like the phases of this pool."""
        self._source = self.learned.source(pool, *self._program)
        self._known_at = NEVER

    def estimate_unbegun(self) -> tuple[float, float]:
        """`estimate` while no task runs or is done; computed once for what is learned.

        Most phases have not begun if thousands wait, and one decision reads them several times.
        """
        learned = self.learned
        is_sure = self._is_stated and learned.is_exact
        changes = AS_STATED if is_sure else learned.changes
        if self._known_at != changes:
            factor, spread = 1.0, 0.0
            if not is_sure:
                found = learned.estimate(self._source, self._of_job, self._scale)
                factor, spread = found.seconds / max(self._mean, MIN_WORK), found.spread
            self._known = max(self._total * factor, MIN_WORK), spread
            self._known_at = changes
        return self._known

    def estimate_idle(self, done: int) -> tuple[float, float]:
        """`estimate` while no task runs and some are done; computed once for these.

        Most phases wait so if thousands have been measured.
        """
        if self._idle is None:
            self._idle = self._left(0.0, done, 0, False, 1.0)
        return self._idle, 0.0

    def estimate(
        self,
        now: float,
        done: int,
        running: Mapping[int, tuple[Launch, float, float]],
        is_early: bool,
    ) -> tuple[float, float]:
        """The estimated work of the tasks that are not done, and its spread.

        The work is above 0. The spread is the standard deviation of its logarithm; it is 0 once
        a task is done. With `is_early` tasks may still wait or copy, which is not work.
        """
        factor, spread = 1.0, 0.0
        if not done and not (self._is_stated and self.learned.is_exact):
            found = self.learned.estimate(self._source, self._of_job, self._scale)
            seconds, spread = found.seconds, found.spread
            if running and not is_early:
                _, started, speed = next(iter(running.values()))  # The oldest.
                seconds = expected_if_late(found.log, (now - started) * speed)
            factor = seconds / max(self._mean, MIN_WORK)
        return self._left(now, done, len(running), is_early, factor), spread

    def error(self, done: int) -> tuple[Normal, float]:
        """The logarithm of the real over the stated work of its tasks, common to all of them.

        And the variance of single tasks around that. Both are 0 as long as stated work is
        exact. After few observations the variance is larger than that of an estimate.
        """
        if self._is_stated and self.learned.is_exact:
            return EXACTLY, 0.0
        if done:
            finished = self._finished if self._works is not None else self._each * done
            ratio = max(self._observed, MIN_WORK) / max(finished, MIN_WORK)
            return Normal(log(ratio), WITHIN / done), WITHIN
        scale = log(max(self._mean, MIN_WORK))
        one = Measured(self._source, self._of_job, scale, self._is_stated, self._author)
        return self.learned.peek().error(one), WITHIN

    @property
    def stated(self) -> float | None:
        """The mean work of its tasks as stated; None if it is not."""
        return self._mean if self._is_stated else None

    @property
    def longest(self) -> float:
        """The work of its longest task as estimated beforehand."""
        return self._each if self._works is None else max(self._works)

    def expected_left(self, done: int) -> float:
        """The work of the tasks that are not done as estimated beforehand."""
        finished = self._finished if self._works is not None else self._each * done
        return max(0.0, self._total - finished)

    def origin(self, done: int) -> Origin:
        """Where its estimates come from now."""
        return "measured" if done else self.learned.origin(self._is_stated)

    def learn(self, done: int) -> None:
        """Note how long its done tasks took, for estimates of other phases."""
        finished = self._finished if self._works is not None else self._each * done
        if finished <= MIN_WORK:
            return
        if self._measured is None:
            scale = log(self._mean)
            self._measured = Measured(
                self._source, self._of_job, scale, self._is_stated, self._author
            )
        self.learned.note(self._measured, self._observed / finished)

    def _left(
        self, now: float, done: int, running: int, is_early: bool, factor: float
    ) -> float:
        """The work left; the estimates are wrong by `factor` while no task is done."""
        finished, expected = self._finished, self._running
        if self._works is None:
            finished, expected = self._each * done, self._each * running
        return work_left(
            expected_pending=max(0.0, self._total - finished - expected),
            expected_running=expected,
            expected_finished=finished,
            observed=self._observed,
            elapsed=0.0 if is_early else self.elapsed(now),
            factor_before=factor,
        )

    def attained(self, now: float, is_early: bool) -> float:
        """The work of the done tasks, and what the running ones have done so far."""
        return self._observed + (0.0 if is_early else self.elapsed(now))

    def elapsed(self, now: float) -> float:
        """The work that its running tasks have done so far."""
        return max(0.0, self._speed * now - self._elapsed_base)

    def grow(self, count: int) -> None:
        """Tasks were added, as large as all others."""
        self._known_at, self._idle = NEVER, None
        self._total += self._each * count

    def drop(self, task: int) -> None:
        """A task that has not begun is not needed."""
        self._known_at, self._idle = NEVER, None
        self._total -= self.expected(task)

    def launch(self, task: int, now: float, speed: float) -> None:
        """A task runs from `now` on a host of this speed."""
        if self._works is not None:
            self._running += self._works[task]
        self._speed += speed
        self._elapsed_base += speed * now

    def end_last(self) -> None:
        """No task runs any more: reset the sums, so that rounding errors do not accumulate."""
        self._running = self._speed = self._elapsed_base = 0.0

    def end(self, task: int, started: float, speed: float) -> None:
        """A task does not run any more, but others do."""
        if self._works is not None:
            self._running -= self._works[task]
        self._speed -= speed
        self._elapsed_base -= speed * started

    def finish(self, task: int, work: float) -> None:
        """A task is done and took this work."""
        self._idle = None
        if self._works is not None:
            self._finished += self._works[task]
        self._observed += work + self._kept.pop(task, 0.0) if self._kept else work

    def undo(self, task: int, done: int) -> None:
        """One of `done` done tasks is not done any more; the ratio of the estimates stays."""
        self._idle = None
        before = self._finished if self._works is not None else done
        each = self._works[task] if self._works is not None else 1
        left = max(0.0, before - each) if done > 1 else 0.0
        self._observed *= left / before if before else 0.0
        if self._works is not None:
            self._finished = left

    def keep(self, task: int, work: float) -> None:
        """Add to the kept work of a stopped task, which need not be done again."""
        if work:
            self._kept[task] = self._kept.get(task, 0.0) + work


# Estimates of phases without finished tasks, from the finished tasks of others, as sums.

SPREAD = 1.0
"""The assumed variance of logarithms before any task has finished."""

FIRST_COUNT = 0.1
"""The weight of the time assumed before any task has finished, as a number of phases."""

ENOUGH = 5
"""Estimates by other phases begin with this number of phases with finished tasks."""

EXACT = 1e-9
"""Logarithms of factors this small are rounding errors."""

MIN_SECONDS = 1e-3
"""Shorter tasks count as this long: differences between them do not matter."""

MAX_GROUPS = 1000
"""The groups of phases, and the jobs, to keep. The one used least lately is dropped."""

MAX_PENDING = 32
"""The measurements to keep until an estimate is asked for; older ones are dropped, if none was
asked for yet."""


Origin = Literal["measured", "stated", "corrected", "alike", "assumed"]
"""Where an estimate comes from: from done tasks of the phase; from stated work, as it is or
corrected by how wrong it was for other phases; from phases that are alike; or from nothing."""

ALIKE = Normal(0.0, 0.25)
"""How a phase deviates from the earlier ones of its program, before any is known: one of six by
a factor of 1.65 or more. Of predictions from earlier runs, 8 to 23 % are wrong by 2 or more on
the traces of 3Sigma (EuroSys 2018)."""

NEWEST_MAX = 100
"""How many phases say by how much bounds on errors were exceeded."""

SURE = 0.99
"""The part of phases whose error is at most the bound on it, which promises rely on."""

DEVIATIONS = NormalDist().inv_cdf(SURE)
"""Standard deviations of the bound."""

TRUSTED = Normal(0.0, 0.0)
"""The error of stated work before any task has finished."""

EXACTLY = Normal(0.0, 0.0)
"""The error of stated work that is exact."""

Key = tuple[str, ...]

K = TypeVar("K")
V = TypeVar("V")


class TaskSource(NamedTuple):
    """Phases that are alike: of the same name, of jobs of the same program in the same pool."""

    pool: str
    program: str
    phase: str


class Estimate(NamedTuple):
    """The time of the tasks of a phase at speed 1: its logarithm, and the mean in seconds.

    spread  the standard deviation of the logarithm
    """

    log: Normal
    seconds: float
    spread: float

    @classmethod
    def of(cls, one: Normal) -> Self:
        """The estimate of this logarithm."""
        return cls(one, one.expected, sqrt(one.variance))


class OfJob:
    """The deviations of the phases of one job: their number, and sums."""

    __slots__ = ("by_alike", "by_stated", "count")

    def __init__(self) -> None:
        self.count = 0
        self.by_alike = self.by_stated = 0.0


class Measured:
    """A phase with finished tasks, and its entries in the sums.

    scale      the logarithm of the estimated work of its tasks
    is_stated  whether this was stated, or is the default
    author     user and program of its job, whose stated work is wrong alike
    """

    __slots__ = ("_entries", "_value", "author", "is_stated", "job", "scale", "source")

    def __init__(
        self,
        source: TaskSource,
        job: OfJob | None,
        scale: float,
        is_stated: bool,
        author: tuple[str, str] = ("", ""),
    ) -> None:
        """`job`: None if it has no other phases."""
        self.source, self.job, self.scale, self.is_stated = source, job, scale, is_stated
        self.author = author
        self._value = 0.0
        self._entries: list[tuple[Sums | Newest, int, float]] = []

    @property
    def is_new(self) -> bool:
        """Whether it is in no sums yet."""
        return not self._entries

    def enter(self, value: float, sums: Sums | Newest, shift: float) -> None:
        """Add the logarithm of its factor, plus `shift`, to sums."""
        self._value = value
        self._entries.append((sums, sums.add(value + shift), shift))

    def change(self, value: float) -> float:
        """Replace the logarithm of its factor in all sums. The change of it."""
        old, self._value = self._value, value
        for sums, number, shift in self._entries:
            sums.change(number, old + shift, value + shift)
        return value - old


class Newest:
    """The newest of some values."""

    __slots__ = ("_added", "_of")

    def __init__(self) -> None:
        self._added, self._of = 0, dict[int, float]()

    @property
    def values(self) -> Iterable[float]:
        """Those that are kept."""
        return self._of.values()

    def add(self, value: float) -> int:
        """Add a value. Its number, for `change`."""
        self._added += 1
        self._of[self._added] = value
        self._of.pop(self._added - NEWEST_MAX, None)
        return self._added

    def change(self, number: int, old: float, new: float) -> None:
        """Replace the value of this number, if it is kept."""
        if number in self._of:
            self._of[number] = new


class OfProgram:
    """The phases of one name of a program. In wider sums they count once, with their mean.

    A thousand calls of one function give no more information on other functions than one call.
    """

    __slots__ = ("_mean", "_number", "_wider", "sums")

    def __init__(self) -> None:
        self.sums = Sums()
        self._wider: Sums | None = None
        self._number, self._mean = 0, 0.0

    def update_wider(self, wider: Sums) -> None:
        """The sums have changed: so does their entry in the wider ones."""
        mean = self.sums.mean
        if wider is self._wider:
            wider.change(self._number, self._mean, mean)
        else:
            self._wider, self._number = wider, wider.add(mean)
        self._mean = mean


class Learned:
    """Sums over phases with finished tasks: of all, and by pool, by program and by job.

    A phase counts once, with the mean of its finished tasks, and a program counts once in the
    sums of its pool and of all. `note` is O(1); what it notes is added to the sums when an
    estimate is asked for.

    is_exact  whether all stated work has been exact so far
    changes   the number of times that estimates may have changed
    """

    def __init__(self, default_work: float) -> None:
        at = log(max(default_work, MIN_WORK)) - SPREAD / 2
        self._default = Estimate(Normal(at, SPREAD), default_work, sqrt(SPREAD))
        self._all, self._count = Sums(), 0
        self._pools: dict[Key, Sums] = {}
        self._programs: dict[Key, OfProgram] = {}
        self._within = Sums()
        self._stated, self._within_authors = Sums(), Sums()
        self._authors: dict[Key, Sums] = {}
        self._exceeded = Newest()
        self._last_job, self._last = "", OfJob()
        self._is_read = False
        self._by_stated, self._by_alike = Slope(1.0), Slope(0.0)
        self._pending: deque[tuple[Measured, float]] = deque(maxlen=MAX_PENDING)
        self._kept: dict[TaskSource, Estimate] = {}
        self._kept_stated: tuple[TaskSource, float, Estimate] | None = None
        self._error: Normal | None = None  # of stated work, until the sums change
        self.changes = 0
        self._sources: dict[TaskSource, TaskSource] = {}
        self._peeked: tuple[int, Learned] | None = None
        self.is_exact = True

    @property
    def count(self) -> int:
        """The number of phases with finished tasks that were counted."""
        return self._count

    def source(self, pool: str, program: str, phase: str) -> TaskSource:
        """A source; equal ones are mostly the same object, so that phases share it."""
        if len(self._sources) == MAX_GROUPS:
            self._sources.clear()
        found = TaskSource(pool, program, phase)
        return self._sources.setdefault(found, found)

    def note(self, phase: Measured, factor: float) -> None:
        """The finished tasks of a phase took `factor` times their estimated work."""
        if self._is_read and len(self._pending) == MAX_PENDING:
            self._add_pending()
        self._pending.append((phase, factor))
        self.changes += 1
        if phase.is_stated and abs(factor - 1) > EXACT:
            self.is_exact = False

    def peek(self) -> Learned:
        """The same for a question that is in no log: it must not change what is kept."""
        if self._is_read:
            return self
        if self._peeked is None or self._peeked[0] != self.changes:
            self._peeked = None  # It is not copied with the rest.
            self._peeked = self.changes, deepcopy(self)
        return self._peeked[1]

    @property
    def is_read(self) -> bool:
        """Whether estimates were asked for, so that a question changes nothing."""
        return self._is_read

    def keep_all(self) -> None:
        """Drop no measurement from now on, because estimates will be asked for."""
        self._is_read = True

    def of_job(self, job: str) -> OfJob:
        """What the phases of a job share; they ask for it one after another."""
        if job != self._last_job:
            self._last_job, self._last = job, OfJob()
        return self._last

    def estimate(
        self, source: TaskSource, of_job: OfJob | None, scale: float | None
    ) -> Estimate:
        """An estimate for a phase without finished tasks. `origin` says where it comes from.

        of_job  None if its job has no other phases
        scale   the logarithm of the stated work of its tasks; None: it is not stated
        """
        self._is_read = True
        if self._pending:
            self._add_pending()
        of_job = of_job if of_job is not None and of_job.count else None
        if of_job is None:
            return self._alike(source) if scale is None else self._by_scale(source, scale)
        found = self._alike(source).log
        if self._knows_enough:
            found = self._by_alike.next(of_job.by_alike / of_job.count, found)
        if scale is not None:
            error = self._by_stated.next(of_job.by_stated / of_job.count, self._error_of_stated)
            found = self._corrected(scale, error, found)
        return Estimate.of(found)

    def error(self, phase: Measured) -> Normal:
        """The logarithm of real over stated work of a phase, before any of its tasks is done.

        The errors of its user and program count more than those of all, and the variance is
        larger than that of an estimate as long as few phases are known.
        """
        self._is_read = True
        if self._pending:
            self._add_pending()
        return self._error_of(phase)

    @property
    def exceeded(self) -> Iterable[float]:
        """By how much the newest phases exceeded the bounds on their errors, as logarithms."""
        return self._exceeded.values

    def _error_of(self, phase: Measured) -> Normal:
        of_job = phase.job if phase.job is not None and phase.job.count else None
        if phase.is_stated:
            error, own = self._stated.next(TRUSTED), self._authors.get(phase.author)
            if own is not None and error.variance:
                error = own.next_member(error, self._within_authors.next(ALIKE))
            if of_job is not None:
                error = self._by_stated.next(of_job.by_stated / of_job.count, error)
        else:
            alike = self._alike(phase.source).log
            if of_job is not None and self._knows_enough:
                alike = self._by_alike.next(of_job.by_alike / of_job.count, alike)
            error = Normal(alike.mean - phase.scale, alike.variance)
        return Normal(error.mean, error.variance * (1 + COUNT / max(1, self._count)))

    def origin(self, is_stated: bool) -> Origin:
        """What the estimate for a phase without finished tasks is based on."""
        if is_stated:
            return "stated" if self.is_exact else "corrected"
        return "alike" if self._knows_enough else "assumed"

    def _by_scale(self, source: TaskSource, scale: float) -> Estimate:
        """By stated work and by all phases that are alike.

        The last one is kept, since phases that follow each other often state the same.
        """
        kept = self._kept_stated
        if kept is not None and kept[1] == scale and kept[0] is source:
            return kept[2]
        alike = self._alike(source).log
        found = Estimate.of(self._corrected(scale, self._error_of_stated, alike))
        self._kept_stated = source, scale, found
        return found

    def _corrected(self, scale: float, error: Normal, alike: Normal) -> Normal:
        """Stated work, corrected by its usual error and by the phases that are alike."""
        stated = Normal(scale + error.mean, error.variance)
        return combined(stated, alike) if self._knows_enough else stated

    @property
    def _error_of_stated(self) -> Normal:
        """The error of stated work of a phase, by all others."""
        if self._error is None:
            self._error = self._stated.next(TRUSTED)
        return self._error

    @property
    def _knows_enough(self) -> bool:
        return self._count >= ENOUGH

    def _alike(self, source: TaskSource) -> Estimate:
        """By all phases that are alike."""
        if not self._knows_enough:
            return self._default
        found = self._kept.get(source)
        if found is None:
            estimate = self._all.next(self._default.log, FIRST_COUNT)
            if (of_pool := self._pools.get(_pool(source))) is not None:
                estimate = of_pool.next(estimate)
            if (of_program := self._programs.get(_programs(source)[0])) is not None:
                estimate = of_program.sums.next_member(estimate, self._within.next(ALIKE))
            if len(self._kept) == MAX_GROUPS:
                self._kept.clear()
            found = self._kept[source] = Estimate.of(estimate)
        return found

    def _add_pending(self) -> None:
        self._error = self._kept_stated = None
        while self._pending:
            phase, factor = self._pending.popleft()
            stated = exp(phase.scale)
            value = log(max(factor * stated, MIN_SECONDS) / max(stated, MIN_SECONDS))
            value = 0.0 if abs(value) < EXACT else value
            if phase.is_new:
                self._enter(phase, value)
            else:
                change = phase.change(value)
                self._update_wider(phase.source)
                if phase.job is not None:
                    phase.job.by_stated += change
                    phase.job.by_alike += change
            self._kept.clear()

    def _enter(self, phase: Measured, value: float) -> None:
        """Add a phase to the sums, and what it shows of the phases of its job."""
        if phase.is_stated and self._knows_enough:
            phase.enter(value, self._exceeded, -bound_of(self._error_of(phase)))
        if phase.job is not None:
            self._enter_in_job(phase, phase.job, value)
        self._count += 1
        if (of_program := self._programs.get(_programs(phase.source)[0])) is not None:
            phase.enter(value, self._within, phase.scale - of_program.sums.mean)
        for sums in self._sums_of(phase.source):
            phase.enter(value, sums, phase.scale)
        self._update_wider(phase.source)
        if phase.is_stated:
            phase.enter(value, self._stated, 0.0)
            if any(phase.author):
                if (known := self._authors.get(phase.author)) is not None:
                    phase.enter(value, self._within_authors, -known.mean)
                phase.enter(value, _used(self._authors, phase.author, Sums), 0.0)

    def _sums_of(self, source: TaskSource) -> list[Sums]:
        """Those of its program, or the wider ones if it has none."""
        if source.program:
            return [_used(self._programs, key, OfProgram).sums for key in _programs(source)]
        return [self._all, _used(self._pools, _pool(source), Sums)]

    def _update_wider(self, source: TaskSource) -> None:
        """A phase of its program has changed."""
        if source.program:
            everywhere, in_pool = map(self._programs.get, _programs(source))
            if everywhere is not None:
                everywhere.update_wider(self._all)
            if in_pool is not None:
                in_pool.update_wider(_used(self._pools, _pool(source), Sums))

    def _enter_in_job(self, phase: Measured, of_job: OfJob, value: float) -> None:
        by_alike = value + phase.scale - self._alike(phase.source).log.mean
        by_stated = value - self._stated.next(TRUSTED).mean if phase.is_stated else 0.0
        if of_job.count:
            self._by_alike.add(of_job.by_alike / of_job.count, by_alike)
            if phase.is_stated:
                self._by_stated.add(of_job.by_stated / of_job.count, by_stated)
        of_job.count += 1
        of_job.by_alike += by_alike
        of_job.by_stated += by_stated


def bound_of(error: Normal) -> float:
    """What the logarithm of an error does not exceed, at the confidence."""
    return error.mean + DEVIATIONS * sqrt(error.variance)


def _pool(source: TaskSource) -> Key:
    """The phases of its name in its pool."""
    return source.pool, source.phase


def _programs(source: TaskSource) -> tuple[Key, Key]:
    """The phases of its name of its program: everywhere, and in its pool alone."""
    return (source.program, source.phase), (source.pool, source.program, source.phase)


def _used(kept: dict[K, V], key: K, new: Callable[[], V]) -> V:
    """The value of this key, which becomes the one that was used last. O(1)."""
    found = kept.pop(key, None)
    if found is None:
        found = new()
        if len(kept) == MAX_GROUPS:
            del kept[next(iter(kept))]
    kept[key] = found
    return found
