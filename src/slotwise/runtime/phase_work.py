"""The estimated and the measured work of one phase, as sums."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from slotwise.estimation.extrapolation import MIN_WORK, work_left
from slotwise.estimation.posterior import expected_if_late
from slotwise.model.decision import Launch
from slotwise.model.job import Job, Phase
from slotwise.runtime.learned import Learned, Measured, Origin

NEVER, AS_STATED = -1, -2
"""Instead of the number of changes at which an estimate was made: it was not, or it holds for
as long as stated work is exact."""


class PhaseWork:
    """What is known of the work of a phase, in seconds at speed 1. Each method is O(1).

    The caller passes the numbers of done and of running tasks. For equal tasks these are
    enough; only for tasks of unequal work are there sums of the estimates.
    """

    __slots__ = (
        "_each",
        "_elapsed_base",
        "_finished",
        "_idle",
        "_is_stated",
        "_kept",
        "_known",
        "_known_at",
        "_learned",
        "_mean",
        "_measured",
        "_observed",
        "_of_job",
        "_program",
        "_running",
        "_scale",
        "_source",
        "_speed",
        "_total",
        "_works",
    )

    def __init__(self, job: Job, phase: Phase, default_work: float, learned: Learned) -> None:
        """`learned` is what all phases tell about others; call `enter` before anything else."""
        tasks, work = phase.tasks, phase.tasks.work
        self._works = work if isinstance(work, tuple) else None
        self._each = work if isinstance(work, float | int) else default_work
        self._total = self._each * tasks.count if self._works is None else sum(self._works)
        self._mean = self._each if self._works is None else self._total / tasks.count
        self._is_stated = work is not None
        self._scale = log(max(self._mean, MIN_WORK)) if self._is_stated else None
        self._learned = learned
        self._known, self._known_at = (0.0, 0.0), NEVER
        self._idle: float | None = None  # the work left, once it was asked for while none ran
        self._program = job.program, phase.name
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
        self._source = self._learned.source(pool, *self._program)
        self._known_at = NEVER

    def estimate_unbegun(self) -> tuple[float, float]:
        """`estimate` while no task runs or is done; computed once for what is learned.

        Most phases have not begun if thousands wait, and one decision reads them several times.
        """
        learned = self._learned
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
        if not done and not (self._is_stated and self._learned.is_exact):
            found = self._learned.estimate(self._source, self._of_job, self._scale)
            seconds, spread = found.seconds, found.spread
            if running and not is_early:
                _, started, speed = next(iter(running.values()))  # The oldest.
                seconds = expected_if_late(found.log, (now - started) * speed)
            factor = seconds / max(self._mean, MIN_WORK)
        return self._left(now, done, len(running), is_early, factor), spread

    def origin(self, done: int) -> Origin:
        """Where its estimates come from now."""
        return "measured" if done else self._learned.origin(self._is_stated)

    def learn(self, done: int) -> None:
        """Note how long its done tasks took, for estimates of other phases."""
        finished = self._finished if self._works is not None else self._each * done
        if finished <= MIN_WORK:
            return
        if self._measured is None:
            scale = log(self._mean)
            self._measured = Measured(self._source, self._of_job, scale, self._is_stated)
        self._learned.note(self._measured, self._observed / finished)

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
