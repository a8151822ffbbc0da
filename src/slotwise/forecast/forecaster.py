"""Forecasts of all jobs, and what is learned from how earlier ones turned out.

A `Forecaster` gets all that happens as a record of the loop, which only keeps it. Everything
else happens in the thread that asks for forecasts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

import numpy as np

from slotwise.core.decisions import Decision
from slotwise.core.events import Event, JobArrived, SchedulerChanged, TaskFinished, launches
from slotwise.core.job import Job
from slotwise.core.snapshot import Snapshot
from slotwise.forecast.arrivals import PastArrivals
from slotwise.forecast.calibration import (
    FLOOR_SECONDS,
    RUNNING,
    Calibration,
    Issued,
    class_of,
)
from slotwise.forecast.courses import Courses, courses_for, simulated
from slotwise.forecast.durations import Draws, Floats, PastWork
from slotwise.forecast.eta import CONFIDENCE, Changed, Eta, Etas, WhatIf
from slotwise.forecast.situation import Situation, base_of, job_now

TURNS_MAX = 100_000
"""The turns of the loop that are kept until the next forecast; older ones teach nothing."""

SLIGHT_SECONDS, SLIGHT_PART = 1.0, 0.01
"""A change of a median end by less than both does not count."""


@dataclass(slots=True)
class _OpenForecast:
    """A job that is not over: what was forecast, and by phase the done tasks and seconds."""

    job: Job
    seconds: dict[str, tuple[int, float]] = field(default_factory=dict)
    start: Issued | None = None
    end: Issued | None = None
    end_begun: Issued | None = None
    began: float = inf


class Forecaster:
    """Forecasts by simulations, corrected by the errors of earlier forecasts.

    `on_turn` belongs to the thread of the loop, and takes O(1); all others to one other thread.
    """

    def __init__(self, confidence: float = CONFIDENCE) -> None:
        self.confidence = confidence
        self.past, self.arrivals = PastWork(), PastArrivals()
        self._lives: dict[str, _OpenForecast] = {}
        self.starts = Calibration(confidence)
        self.ends = Calibration(confidence)  # Of jobs that wait,
        self.ends_begun = Calibration(confidence)  # and of those that have begun.
        self.scheduler = ""
        self._turns: deque[tuple[Any, ...]] = deque(maxlen=TURNS_MAX)
        self._of_user: Counter[str] = Counter()
        self._draws: dict[int, Draws] = {}

    # What happens.

    def on_turn(
        self,
        state: Snapshot,
        now: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
    ) -> None:
        """Keep a turn of the loop until the next forecast."""
        over = (tuple(state.completed.items()), tuple(state.failed))  # type: ignore[attr-defined]
        self._turns.append((now, events, decisions, *over, state.cluster))

    @property
    def has_news(self) -> bool:
        """Whether something has happened since the last forecast."""
        return bool(self._turns)

    def learn(self) -> None:
        """Learn from the turns since the last call. O(events of these)."""
        while self._turns:
            now, events, decisions, completed, failed, cluster = self._turns.popleft()
            for event in events:
                if isinstance(event, TaskFinished):
                    if life := self._lives.get(event.phase.job):
                        count, total = life.seconds.get(event.phase.phase, (0, 0.0))
                        life.seconds[event.phase.phase] = count + 1, total + event.seconds
                elif isinstance(event, JobArrived):
                    self._lives[event.job.id] = _OpenForecast(event.job)
                    self.arrivals.note(job_now(event.job, cluster))
                elif isinstance(event, SchedulerChanged):
                    self._change_scheduler()
            for one in launches(events, decisions):
                life = self._lives.get(one.phase.job)
                if life and life.began == inf:
                    life.began = now
                    if life.start:
                        self.starts.note(life.start, now)
            for job, at in completed:
                self._end(job, at)
            for job in failed:
                self._end(job, None)

    def _end(self, job: str, at: float | None) -> None:
        """A job is over: completed at this instant, or failed."""
        life = self._lives.pop(job, None)
        if life is None:
            return
        means = {name: total / count for name, (count, total) in life.seconds.items()}
        user = life.job.user or life.job.pool
        for phase in life.job.phases:
            if phase.name in means:
                base, _ = base_of(life.job, phase)
                self.past.note(user, life.job.program, base, means[phase.name])
        self._of_user[user] += 1
        self.arrivals.note_end(job, means)
        if at is not None:
            if life.end:
                self.ends.note(life.end, at)
            if life.end_begun:
                self.ends_begun.note(life.end_begun, at)

    def _change_scheduler(self) -> None:
        """What was forecast for another scheduler will not be compared with what happens."""
        for one in (self.starts, self.ends, self.ends_begun):
            one.change_scheduler()
        for life in self._lives.values():
            life.start = life.end = life.end_begun = None

    # Forecasts.

    def forecast(self, situation: Situation) -> Etas:
        """The forecast for each job of a situation, and note it for later corrections."""
        self.learn()
        if situation.scheduler != self.scheduler:
            if self.scheduler:
                self._change_scheduler()
            self.scheduler = situation.scheduler
        return self._etas(situation, self.courses_of(situation), notes=True)

    def _etas(self, situation: Situation, courses: Courses, notes: bool) -> Etas:
        """The corrected forecasts of simulated courses; `notes`: remember the first of each."""
        jobs, now = situation.jobs, situation.now
        waits = np.array([job.began == inf for job in jobs], bool)
        waiting = int(waits.sum())
        users = {job.user for job in jobs}
        classes = {user: class_of(self._of_user[user], waiting) for user in users}
        names = [classes[job.user] for job in jobs]
        starts, ends = self._ranges(courses.starts, now), self._ranges(courses.ends, now)
        given_starts = self.starts.correct(starts, names)
        begun = [
            name if now - job.began < FLOOR_SECONDS else name + RUNNING
            for name, job in zip(names, jobs, strict=True)
        ]
        of_begun = self.ends_begun.correct(ends, begun)
        of_waiting = self.ends.correct(ends, names, given_starts[:, 0])
        given_ends = np.where(waits[:, None], of_waiting, of_begun)
        for k, job in enumerate(jobs) if notes else ():
            if (life := self._lives.get(job.id)) is None:
                continue
            self._note_present(life, now)
            end = ends[k], given_ends[k]
            if not waits[k]:
                life.end_begun = life.end_begun or self.ends_begun.issue(begun[k], now, *end)
            elif life.start is None:
                life.start = self.starts.issue(names[k], now, starts[k], given_starts[k])
                life.end = self.ends.issue(names[k], now, *end)
        return Etas(
            {job.id: k for k, job in enumerate(jobs)},
            waits, given_starts + now, given_ends + now, now, self.confidence,
            [(one.noted, one.of_another) for one in (self.ends_begun, self.ends)],
        )  # fmt: skip

    def _note_present(self, life: _OpenForecast, now: float) -> None:
        """Its job is not over now."""
        if life.start is not None and life.began == inf:
            self.starts.note_present(life.start, now)
        if life.end is not None:
            self.ends.note_present(life.end, now)
        if life.end_begun is not None:
            self.ends_begun.note_present(life.end_begun, now)

    def courses_of(self, situation: Situation, draws: Draws | None = None) -> Courses:
        """Simulate a situation."""
        draws = draws or self._drawn(situation)
        return simulated(situation, self.past, self.arrivals, draws)

    def _drawn(self, situation: Situation) -> Draws:
        """The random numbers of as many courses as are simulated."""
        count = courses_for(situation)
        if count not in self._draws:
            self._draws[count] = Draws(count)
        return self._draws[count]

    def _ranges(self, values: Floats, now: float) -> Floats:
        """The raw range of each row, in seconds from now."""
        courses = values.shape[1]
        part = (1 - self.confidence) / 2
        places = [min(courses - 1, round(courses * at)) for at in (part, 0.5, 1 - part)]
        return np.asarray(np.sort(values, axis=1)[:, places] - now)

    def what_if(self, situation: Situation, other: Situation) -> WhatIf:
        """The course of a situation beside that of another one, by the same random numbers."""
        self.learn()
        larger = max(situation, other, key=lambda one: sum(len(j.phases) for j in one.jobs))
        draws = self._drawn(larger)
        before, after = self.courses_of(situation, draws), self.courses_of(other, draws)
        etas = [
            self._etas(*pair, notes=False) for pair in ((situation, before), (other, after))
        ]
        rows = {job.id: k for k, job in enumerate(situation.jobs)}
        changes = []
        for number, job in enumerate(other.jobs):
            row = rows.pop(job.id, None)
            was = None if row is None else etas[0][job.id]
            now = etas[1][job.id]
            late = _late(after, number, job.deadline)
            late_before = 0.0 if row is None else _late(before, row, job.deadline)
            if was is None or _differs(was, now) or abs(late - late_before) > SLIGHT_PART:
                changes.append(Changed(job.id, was, now, late_before, late))
        changes.sort(key=lambda one: (one.before is not None, -_delay(one), one.job))
        unending = {
            job.id
            for one, courses in ((situation, before), (other, after))
            for job, ends in zip(one.jobs, courses.ends, strict=True)
            if not np.isfinite(ends).all()
        }
        found = [
            _measures(one, courses, unending)
            for one, courses in ((situation, before), (other, after))
        ]
        measures = {name: (found[0][name], found[1][name]) for name in found[0]}
        return WhatIf(situation.now, tuple(changes), measures)

    # What is kept across restarts.

    def plain(self) -> dict[str, Any]:
        """Errors and times of the past as values of JSON: see `restore`."""
        return {
            "scheduler": self.scheduler,
            "starts": self.starts.plain(),
            "ends": self.ends.plain(),
            "ends_begun": self.ends_begun.plain(),
            "past": self.past.plain(),
        }

    def restore(self, plain: Mapping[str, Any]) -> None:
        """What was kept.

        AttributeError, KeyError, TypeError or ValueError for anything else.
        """
        starts = Calibration.of(plain["starts"], self.confidence)
        ends = Calibration.of(plain["ends"], self.confidence)
        begun = Calibration.of(plain["ends_begun"], self.confidence)
        past = PastWork.of(plain["past"])
        self.scheduler, self.past = str(plain["scheduler"]), past
        self.starts, self.ends, self.ends_begun = starts, ends, begun


def _late(courses: Courses, row: int, deadline: float) -> float:
    return float((courses.ends[row] > deadline).mean()) if isfinite(deadline) else 0.0


def _delay(change: Changed) -> float:
    if change.before is None or change.after is None:
        return 0.0
    delay = change.after.end.median - change.before.end.median
    return delay if isfinite(delay) else inf


def _differs(before: Eta, after: Eta) -> bool:
    old, new = before.end.median, after.end.median
    if not (isfinite(old) and isfinite(new)):
        return old != new
    return abs(new - old) > max(SLIGHT_SECONDS, SLIGHT_PART * (old - before.at))


def _measures(
    situation: Situation, courses: Courses, unending: Container[str]
) -> dict[str, float]:
    """What a change is measured by: seconds, seconds from now, and jobs; means of the courses.

    `unending`: the jobs that have no end in some course, such as held ones, which do not count.
    """
    rows = [k for k, job in enumerate(situation.jobs) if job.id not in unending]
    jobs, ends = [situation.jobs[k] for k in rows], courses.ends[rows]
    found = dict.fromkeys(("mean response", "end of the last job", "missed deadlines"), 0.0)
    if jobs:
        arrivals = np.array([[job.arrival] for job in jobs])
        deadlines = np.array([[job.deadline] for job in jobs])
        found["mean response"] = float((ends - arrivals).mean())
        found["end of the last job"] = float(ends.max(axis=0).mean() - situation.now)
        found["missed deadlines"] = float((ends > deadlines).sum(axis=0).mean())
    return found
