"""Many simulated futures of one picture: what each job and phase takes in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

from slotwise.core.estimation import RUNNING_FLOOR, WITHIN
from slotwise.forecast.arrivals import PastArrivals
from slotwise.forecast.course import EASY, EASY_SHORTEST, ORDER, SERVED, SHARES, simulate
from slotwise.forecast.durations import Draws, Floats, PastWork
from slotwise.forecast.picture import JobNow, PhaseNow, Picture
from slotwise.policy.compiled import FLOATS, INTS, compiled, has_numba

TASKS_MAX = 20_000
"""About how many tasks one course simulates; phases of more tasks are simulated in batches."""

BATCHES_MIN = 16
"""The fewest batches of a phase, and four for each place where its tasks can run."""

ARRIVALS_MAX = 400
"""How many later arrivals a course has at most."""

MODES = {
    "fair": SHARES,
    "uwfq": SHARES,
    "las": SERVED,
    "easy": EASY,
    "conservative": EASY,
    "easy-sjbf": EASY_SHORTEST,
    "conservative-sjbf": EASY_SHORTEST,
}
"""How the schedulers are simulated; all others serve jobs in a fixed order."""

BY_SIZE = frozenset({"response", "stretch", "slowdown", "lateness"})
"""The penalties under which smaller jobs go first; under all others, earlier deadlines do."""


@dataclass(frozen=True, slots=True)
class Courses:
    """When jobs start and end: a row for each job of the picture, a column for each course."""

    starts: Floats
    ends: Floats


def simulated(
    picture: Picture, past: PastWork, arrivals: PastArrivals, draws: Draws
) -> Courses:
    """Simulate the picture once for each of the draws.

    Without numba (extra `fast`) a course takes a hundred times as long.
    """
    table = _Table(picture, past, arrivals, draws)
    jobs, courses = len(picture.jobs), draws.courses
    starts, ends = np.full((jobs, courses), inf), np.full((jobs, courses), inf)
    for course in range(courses):
        starts[:, course], ends[:, course] = table.run(course)
    return Courses(starts, ends)


@cache
def _simulate() -> Any:
    """The simulation, as machine code if possible."""
    if not has_numba():
        return simulate
    matrix = "float64[:,::1]"
    numbers = [
        "int64", "float64", "float64", FLOATS, "int64", INTS, FLOATS, INTS, INTS, INTS, INTS,
        matrix, FLOATS, INTS, INTS, INTS, FLOATS, FLOATS, FLOATS, FLOATS, INTS, FLOATS, FLOATS,
        FLOATS, INTS, FLOATS, FLOATS, INTS, FLOATS, FLOATS,
    ]  # fmt: skip
    return compiled(simulate, f"int64({', '.join(numbers)})", releases_gil=True)


def prepare() -> None:
    """Load the machine code, or make it: once for an installation, which takes some seconds."""
    _simulate()


class _Table:
    """The arrays of a picture and its later arrivals: what is the same in all courses."""

    def __init__(
        self, picture: Picture, past: PastWork, arrivals: PastArrivals, draws: Draws
    ) -> None:
        self._picture, self._past, self._draws = picture, past, draws
        self._mode = MODES.get(picture.scheduler, ORDER)
        most = min(ARRIVALS_MAX, max(20, 40_000 // max(1, len(picture.jobs))))
        self._replayed = [arrivals.replay(picture.now, k, most) for k in range(draws.courses)]
        others = {id(one): one for replay in self._replayed for _, one in replay}
        self._others = [one for one in others.values() if one.job.pool in picture.pools]
        self._all = [*picture.jobs, *(one.job for one in self._others)]
        self._number_phases()
        self._fill()
        self._draw()
        self._link()

    def _number_phases(self) -> None:
        self._first_of: list[int] = []
        self._rows: list[tuple[int, PhaseNow]] = []
        for number, job in enumerate(self._all):
            self._first_of.append(len(self._rows))
            self._rows += [(number, phase) for phase in job.phases]
        self._first_of.append(len(self._rows))
        self._present = len(self._picture.jobs)

    def _fill(self) -> None:
        """Arrays that hold for all courses."""
        picture, rows = self._picture, self._rows
        names = list(picture.totals)
        kinds = len(picture.kinds)
        column = {name: place for place, name in enumerate(names)}
        pools = {name: place for place, name in enumerate(picture.pools)}
        self._need = np.zeros((len(rows), len(names)))
        self._free = np.array([float(amount) for amount in picture.totals.values()])
        self._kinds = kinds
        fits = np.ones(len(rows), bool)
        for row, (_, phase) in enumerate(rows):
            for name, amount in phase.takes.pairs:
                if name in column:
                    self._need[row, column[name]] = amount
                elif amount:
                    fits[row] = False  # No host has it.
            self._free -= self._need[row] * len(phase.begun)
        fits &= (self._need <= np.array([picture.totals[n] for n in names]) + 0.5).all(axis=1)
        count = len(rows)
        batches = max(BATCHES_MIN, TASKS_MAX // max(1, count))
        slots = max(1.0, float(sum(picture.totals[kind] for kind in picture.kinds)))
        self._job = np.fromiter((number for number, _ in rows), np.int64, count)
        self._pending = np.fromiter((phase.pending for _, phase in rows), np.int64, count)
        self._pending[~fits] += 1  # It never ends.
        self._room = np.fromiter(
            (phase.room if fit else 0 for (_, phase), fit in zip(rows, fits, strict=True)),
            np.int64, count,
        )  # fmt: skip
        self._batch = np.fromiter(
            (
                max(1, ceil(p.pending / max(batches, 4 * min(p.room, slots // p.width + 1))))
                for _, p in rows
            ),
            np.int64, count,
        )  # fmt: skip
        of_job = [self._all[number] for number in self._job]
        self._width = np.fromiter((float(phase.width) for _, phase in rows), float, count)
        self._expected = np.fromiter((phase.expected for _, phase in rows), float, count)
        self._pool = np.fromiter((pools[job.pool] for job in of_job), np.int64, count)
        self._weight = np.fromiter(
            (inf if picture.pools[job.pool].in_turn else job.weight for job in of_job),
            float,
            count,
        )
        keys = _keys(picture, self._all)
        self._key = np.fromiter((keys[number] for number in self._job), float, count)
        of_pools = list(picture.pools.values())
        self._pools = tuple(
            np.array(values, float)
            for values in (
                [one.weight for one in of_pools],
                [one.slots_min for one in of_pools],
                [one.slots_max for one in of_pools],
            )
        )

    def _link(self) -> None:
        """Which phases wait for which."""
        rows, number_of = self._rows, {job.id: k for k, job in enumerate(self._picture.jobs)}
        successors: list[list[int]] = [[] for _ in rows]
        waits = np.zeros(len(rows), np.int64)
        for number, job in enumerate(self._all):
            first, last = self._first_of[number], self._first_of[number + 1]
            own = {self._rows[row][1].name: row for row in range(first, last)}
            for row in range(first, last):
                before = [own[name] for name in rows[row][1].waits_for if name in own]
                if number < self._present and not before:
                    for other in job.after:
                        if (found := number_of.get(other)) is not None:
                            before += range(self._first_of[found], self._first_of[found + 1])
                for other_row in before:
                    successors[other_row].append(row)
                waits[row] += len(before)
        self._waits = waits
        self._successors_from = np.cumsum([0, *map(len, successors)]).astype(np.int64)
        self._successors = np.array([row for one in successors for row in one], np.int64)

    def _draw(self) -> None:
        """What a task of each phase takes in each course, and when the running ones end."""
        picture, now, draws = self._picture, self._picture.now, self._draws
        count = self._first_of[self._present]
        self._work = np.empty((len(self._rows), draws.courses))
        running: list[int] = []
        ends: list[Floats] = []
        expected: list[float] = []
        for row, (number, phase) in enumerate(self._rows[:count]):
            job = picture.jobs[number]
            uniform = draws.uniform(job.user, job.id)
            oldest = now - min(phase.begun) if phase.begun else 0.0
            if phase.done:
                spread = sqrt(WITHIN * (1 + 1 / phase.done))
                drawn = phase.measured * np.exp(spread * draws.of("job", job.id))
            else:
                drawn = self._past.draw(
                    job.user,
                    job.program,
                    phase.base,
                    phase.is_stated,
                    uniform,
                    oldest,
                    job.longest,
                )
            self._work[row] = drawn
            for begun in phase.begun:
                running.append(row)
                least = now + RUNNING_FLOOR * np.minimum(drawn, now - begun)
                ends.append(np.maximum(begun + drawn, least))
                expected.append(begun + phase.expected)
        for row, (number, phase) in enumerate(self._rows[count:], count):
            known = self._others[number - self._present].seconds
            self._work[row] = known.get(phase.name, phase.expected)
        self._running = np.array(running, np.int64)
        self._running_ends = np.array(ends).reshape(len(running), draws.courses)
        self._running_expected = np.array(expected, float)

    def run(self, course: int) -> tuple[Floats, Floats]:
        """One course: when the jobs of the picture start and end."""
        picture, present = self._picture, self._present
        arrival = np.full(len(self._rows), inf)
        arrival[: self._first_of[present]] = picture.now
        at = {id(one): when for when, one in reversed(self._replayed[course])}
        for number, one in enumerate(self._others, present):
            if (when := at.get(id(one))) is not None:
                arrival[self._first_of[number] : self._first_of[number + 1]] = when
        expected = np.flatnonzero((arrival > picture.now) & (arrival < inf))
        later = expected[np.argsort(arrival[expected], kind="stable")].astype(np.int64)
        left = np.zeros(len(self._all), np.int64)
        left[:present] = np.diff(self._first_of[: present + 1])
        start, end = np.full(len(self._all), inf), np.full(len(self._all), inf)
        start[:present] = [job.began for job in picture.jobs]
        end[:present][left[:present] == 0] = picture.now
        _simulate()(
            self._mode, picture.now, inf, self._free.copy(), self._kinds, self._job, arrival,
            later, self._waits.copy(), self._successors_from, self._successors, self._need,
            self._width, self._pending.copy(), self._batch, self._room,
            np.ascontiguousarray(self._work[:, course]), self._expected, self._key,
            self._weight,
            self._pool, *self._pools, self._running,
            np.ascontiguousarray(self._running_ends[:, course]), self._running_expected, left,
            start, end,
        )  # fmt: skip
        return start[:present], end[:present]


def _keys(picture: Picture, jobs: Sequence[JobNow]) -> Sequence[float]:
    """The order in which jobs are served where it is fixed, and among equals elsewhere."""
    name = picture.scheduler
    arrived = [float(number) for number in range(len(jobs))]
    if name in MODES:
        return arrived
    if name == "fifo":
        places = sorted(range(len(jobs)), key=lambda k: (-jobs[k].priority, arrived[k]))
        return _ranks(places)
    if picture.penalty in BY_SIZE:
        sizes = [_work_left(job) / job.weight for job in jobs]
    else:
        sizes = [job.deadline for job in jobs]
    return _ranks(sorted(range(len(jobs)), key=lambda k: (not jobs[k].first, sizes[k], k)))


def _ranks(places: Iterable[int]) -> list[float]:
    found = {job: float(rank) for rank, job in enumerate(places)}
    return [found[job] for job in range(len(found))]


def _work_left(job: JobNow) -> float:
    """The slot-seconds that a job still needs, as estimated."""
    return sum([p.expected * p.width * (p.pending + len(p.begun)) for p in job.phases])
