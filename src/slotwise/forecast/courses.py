"""Many simulated futures of one situation: what each job and phase takes in each of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

from slotwise.core.estimation import RUNNING_FLOOR, WITHIN
from slotwise.core.resources import Resources
from slotwise.forecast import course as columns
from slotwise.forecast.arrivals import Ints, PastArrivals, ReplayedRows
from slotwise.forecast.course import (
    EASY,
    EASY_SHORTEST,
    LEAST,
    ORDER,
    PARTS,
    SHARES,
    Tables,
    simulate,
)
from slotwise.forecast.durations import Draws, Floats, PastWork, size_of
from slotwise.forecast.situation import JobNow, Situation
from slotwise.policy.compiled import compiled, has_numba

TASKS_MAX, TASKS_EACH, BATCHES_MIN = 3_000, 2, 2
"""About how many tasks one course simulates: the larger of a number and of one for each slot.
Phases of more tasks are simulated in batches, of which each has at least `BATCHES_MIN`."""

ARRIVALS_MIN, ARRIVALS_EACH, ARRIVALS_MAX = 40, 3, 400
"""How many phases of later arrivals a course has: for each phase of the present, and limits."""

MODES = {
    "fair": SHARES,
    "uwfq": SHARES,
    "las": LEAST,
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
    """When jobs start and end: a row for each present job, a column for each course."""

    starts: Floats
    ends: Floats


def simulated(
    situation: Situation, past: PastWork, arrivals: PastArrivals, draws: Draws
) -> Courses:
    """Simulate the situation once for each of the draws.

    Without machine code (extra `fast`) a course of many jobs takes five times as long.
    """
    table = _Table(situation, past, arrivals, draws)
    jobs, courses = len(situation.jobs), draws.courses
    starts, ends = np.full((jobs, courses), inf), np.full((jobs, courses), inf)
    for course in range(courses):
        starts[:, course], ends[:, course] = table.run(course)
    return Courses(starts, ends)


COURSES = ((300, 50), (3_000, 30), (inf, 16))
"""How many courses are simulated, each up to a number of phases."""

COMPILED_FROM = 200
"""The simulated tasks from which machine code is worth loading."""

PLAIN_TASKS, PLAIN_COURSES = 10_000, 5
"""Without machine code: the tasks of all courses together, and the fewest courses."""


def courses_for(situation: Situation) -> int:
    """How many courses are simulated. Begins to load the machine code if it is worth it."""
    phases = [phase for job in situation.jobs for phase in job.phases]
    count = next(count for most, count in COURSES if len(phases) <= most)
    most = _batches(situation, len(phases))
    tasks = sum([min(phase.pending, most) for phase in phases])
    if tasks < COMPILED_FROM or load_machine_code():
        return count
    return max(PLAIN_COURSES, min(count, PLAIN_TASKS // tasks))


SURE = 0.95
"""The part of the courses in which tasks are over when that is assumed beside promises."""


def _batches(situation: Situation, phases: int) -> int:
    """In how many batches the tasks of a phase are simulated at most."""
    return max(BATCHES_MIN, max(TASKS_MAX, TASKS_EACH * situation.slots) // max(1, phases))


_loading: list[threading.Thread] = []
_loaded: list[Any] = []


def load_machine_code(*, waits: bool = False) -> bool:
    """Whether the machine code is loaded. A thread loads it, which takes a second.

    Once for an installation it is made, which takes some seconds of a process of its own.
    Python simulates meanwhile.
    """
    if not _loading:
        load = _load if waits else _load_when_made
        thread = threading.Thread(target=load, name="slotwise machine code", daemon=True)
        _loading.append(thread)
        thread.start()
    if waits:
        _loading[0].join()
    return bool(_loaded)


def _load_when_made() -> None:
    """Load it from numba's cache, which another process fills: to make it here would hold the
    lock of the interpreter, and so delay all other threads, for most of these seconds."""
    command = [sys.executable, "-P", "-m", __name__]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with (
        suppress(OSError),
        subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True, **quiet
        ) as making,
    ):
        making.wait()  # Its lifeline is open until then.
    _load()


def _make() -> None:
    """Fill numba's cache, at the lowest priority and while the other end of stdin is open."""
    os.nice(19)
    ends = threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True)
    ends.start()
    _load()
    os._exit(0)


def _load() -> None:
    if not has_numba():
        return
    from numba import types

    ints, floats = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")
    table, of_ints = types.Array(types.float64, 2, "C"), types.Array(types.int64, 2, "C")
    members = types.int64, types.int64, of_ints, table, table, floats, table, table
    tables = types.NamedTuple(members, Tables)  # type: ignore[no-untyped-call]
    signature = types.int64(types.float64, tables, table, ints, ints, ints, ints, table, ints)
    _loaded.append(
        compiled(simulate, signature, never_by_zero=True, releases_gil=True, parts=PARTS)
    )


class _Table:
    """The arrays of a situation; later arrivals are appended to them for each course."""

    def __init__(
        self, situation: Situation, past: PastWork, arrivals: PastArrivals, draws: Draws
    ) -> None:
        self._situation, self._past, self._draws = situation, past, draws
        self._arrivals = arrivals
        self._mode = MODES.get(situation.scheduler, ORDER)
        self._totals = situation.totals
        # A limit of a pool is one more resource, of which tasks in this pool take as much.
        pools, names = situation.pools.values(), list(self._totals)
        limits = {key: most for pool in pools for key, most in pool.limits.items()}
        self._limits = {key: most for key, most in limits.items() if key[1] in names}
        self._limited = [names.index(name) for _, name in self._limits]
        inside = [[key in pool.limits for key in self._limits] for pool in pools]
        self._inside = np.array(inside, bool).reshape(len(inside), len(self._limits))
        self._rows = [(k, p) for k, job in enumerate(situation.jobs) for p in job.phases]
        self._began = np.array([job.began for job in situation.jobs], float)
        self._phases_left = np.array([len(job.phases) for job in situation.jobs], np.int64)
        count = ARRIVALS_MIN + ARRIVALS_EACH * len(self._rows)
        self._most = min(ARRIVALS_MAX, count)
        self._fill()
        self._fill_pools()
        self._link()
        self._draw()
        self._reserve()
        self._simulate: Any = _loaded[0] if _loaded else simulate

    def _fill(self) -> None:
        """What is the same in all courses, of the phases of the situation."""
        situation, rows, count = self._situation, self._rows, len(self._rows)
        phases = [phase for _, phase in rows]
        jobs = [situation.jobs[number] for number, _ in rows]
        names = list(self._totals)
        batches = _batches(situation, count)
        rows_of = {takes: _needed(takes, names) for takes in {p.takes for p in phases}}
        pools = {name: place for place, name in enumerate(situation.pools)}
        need = np.array([rows_of[p.takes] for p in phases]).reshape(count, len(names))
        self._need = self._within(need, np.array([pools[job.pool] for job in jobs], np.int64))
        totals = self._all_totals
        fits = np.all(self._need <= totals, axis=1)  # Else it never ends.
        held = np.array([len(p.begun) for p in phases], float)
        unknown = np.isinf(self._need)  # With these, what is free would not be a number.
        self._need[unknown] = np.where(held[:, None] > 0, 0.0, UNKNOWN)[unknown.nonzero()[0], 0]
        self._free = totals - held @ self._need if count else totals
        pending = np.array([p.pending for p in phases], np.int64)
        batch = [ceil(p.pending / batches) for p in phases]
        room = np.array([p.room for p in phases], np.int64)
        self._ints = np.zeros((count, columns.OF_PHASE), np.int64)
        self._ints[:, columns.JOB] = [number for number, _ in rows]
        self._ints[:, columns.POOL] = [pools[job.pool] for job in jobs]
        self._ints[:, columns.BATCH] = np.maximum(1, np.array(batch, np.int64))
        self._ints[:, columns.ROOM] = np.where(fits, room, 0)
        self._ints[:, columns.PENDING] = np.where(fits, pending, pending + 1)
        self._floats = np.zeros((count, columns.OF_PHASE))
        self._floats[:, columns.ARRIVAL] = situation.now
        self._floats[:, columns.WIDTH] = [p.width for p in phases]
        self._floats[:, columns.WEIGHT] = [self._weight(job.pool, job.weight) for job in jobs]
        self._floats[:, columns.EXPECTED] = [p.expected for p in phases]
        key = np.array(_keys(situation, situation.jobs), float)
        self._floats[:, columns.KEY] = key[self._ints[:, columns.JOB]] if count else key

    @property
    def _all_totals(self) -> Floats:
        """The totals of the hosts, then the limits of pools."""
        return np.array([*self._totals.values(), *self._limits.values()], float)

    def _within(self, need: Floats, pool: Ints) -> Floats:
        """What tasks in these pools take of the resources, with columns for limits of pools."""
        if not self._limits:
            return need
        return np.hstack((need, np.where(self._inside[pool], need[:, self._limited], 0.0)))

    def _weight(self, pool: str, weight: float) -> float:
        """The weight of a job in its pool; where jobs run in turn, each counts as idle."""
        return inf if self._situation.pools[pool].in_turn else weight

    def _fill_pools(self) -> None:
        of_pools = list(self._situation.pools.values())
        self._pools = np.zeros((len(of_pools), columns.OF_POOL))
        self._pools[:, columns.POOL_WEIGHT] = [one.weight for one in of_pools]
        self._pools[:, columns.POOL_MIN] = [one.slots_min for one in of_pools]
        self._pools[:, columns.POOL_MAX] = [one.slots_max for one in of_pools]
        self._pools[:, columns.IS_STALE] = 1.0
        # Of past arrivals: the pools and the requests by their places there.
        arrivals, names = self._arrivals, list(self._situation.pools)
        places = {name: place for place, name in enumerate(names)}
        self._pool_of = np.array([places.get(name, -1) for name in arrivals.pools], np.int64)
        in_turn = [
            name in places and self._situation.pools[name].in_turn for name in arrivals.pools
        ]
        self._in_turn = np.array(in_turn, bool)
        needs = [_needed(takes, list(self._totals)) for takes in arrivals.requests]
        self._takes = np.array(needs).reshape(len(needs), len(self._totals))

    def _link(self) -> None:
        """Which phases of the situation wait for which."""
        jobs = self._situation.jobs
        first_of = np.cumsum([0, *(len(job.phases) for job in jobs)]).tolist()
        number_of = {job.id: k for k, job in enumerate(jobs)}
        successors = [_NONE] * len(self._rows)
        for number, job in enumerate(jobs):
            if not job.after and (
                len(job.phases) == 1 or not any(p.waits_for for p in job.phases)
            ):
                continue
            own = {phase.name: first_of[number] + k for k, phase in enumerate(job.phases)}
            others = [number_of[name] for name in job.after if name in number_of]
            for row, phase in zip(own.values(), job.phases, strict=True):
                before = [own[name] for name in phase.waits_for if name in own]
                if not before:
                    before = [r for k in others for r in range(first_of[k], first_of[k + 1])]
                for other in before:
                    if successors[other] is _NONE:
                        successors[other] = []
                    successors[other].append(row)
                self._ints[row, columns.WAITS] = len(before)
        self._successors = _joined(successors, 0)

    def _draw(self) -> None:
        """What a task of each phase takes in each course, and when the running ones end."""
        situation, now, draws = self._situation, self._situation.now, self._draws
        uniform = draws.uniform([(job.user, job.id) for job in situation.jobs])
        self._work = np.empty((len(self._rows), draws.courses))
        alike = defaultdict[tuple[Any, ...], list[int]](list)
        begun: list[int] = []
        for row, (number, phase) in enumerate(self._rows):
            job = situation.jobs[number]
            if phase.begun:
                begun.append(row)
            if phase.done:
                spread = sqrt(WITHIN * (1 + 1 / phase.done))
                self._work[row] = phase.measured * np.exp(spread * draws.of("job", [job.id])[0])
            elif phase.begun:
                self._work[row] = self._past.draw(
                    job.user, job.program, phase.base, phase.is_stated, uniform[number],
                    now - min(phase.begun), job.longest,
                )  # fmt: skip
            else:
                size = size_of(phase.base)
                alike[job.user, job.program, size, phase.is_stated, job.longest].append(row)
        numbers = self._ints[:, columns.JOB]
        bases = np.array([[p.base] for _, p in self._rows])
        for (user, program, _, is_stated, longest), rows in alike.items():
            self._work[rows] = self._past.draw(
                user, program, bases[rows], is_stated, uniform[numbers[rows]], longest=longest
            )
        self._draw_ends(begun)

    def _draw_ends(self, begun: Sequence[int]) -> None:
        """When the running tasks of these phases end in each course."""
        now, running, ends, expected = self._situation.now, [], [], []
        for row in begun:
            drawn, phase = self._work[row], self._rows[row][1]
            for at in phase.begun:
                running.append(row)
                least = now + RUNNING_FLOOR * np.minimum(drawn, now - at)
                ends.append(np.maximum(at + drawn, least))
                expected.append(at + phase.expected)
        self._running = np.array(running, np.int64)
        self._running_ends = np.array(ends).reshape(len(running), self._draws.courses)
        self._running_expected = np.array(expected, float)

    def _reserve(self) -> None:
        """What is promised. Beside it, tasks are assumed to take as long as they do at most."""
        jobs, slots = self._situation.jobs, self._situation.slots
        first_of, rows = 0, []
        for job in jobs if self._mode not in (EASY, EASY_SHORTEST) else ():
            last = first_of + len(job.phases) - 1
            if job.promise is not None:
                begins, until, reserved = job.promise
                rows.append((begins, until, reserved, first_of, last, 0.0, 0.0))
            first_of = last + 1
        self._promises = np.array(rows).reshape(len(rows), columns.OF_PROMISE)
        if rows:
            begins, until, reserved = self._promises[:, : columns.FIRST].T
            covered = (begins <= begins[:, None]) & (begins[:, None] < until)
            self._promises[:, columns.OTHERS_MAX] = slots - covered @ reserved
            sure = np.quantile(self._work, SURE, axis=1, method="higher")
            self._floats[:, columns.EXPECTED] = sure
            ends = np.quantile(self._running_ends, SURE, axis=1, method="higher")
            self._running_expected = ends

    def run(self, course: int) -> tuple[Floats, Floats]:
        """One course: when the jobs of the situation start and end."""
        situation, jobs, present = self._situation, len(self._began), len(self._rows)
        ints, floats, need, links = self._with_arrivals(course)
        later = present + np.argsort(floats[present:, columns.ARRIVAL], kind="stable")
        left = np.zeros(max(int(ints[:, columns.JOB].max(initial=-1)) + 1, jobs), np.int64)
        left[:jobs] = self._phases_left
        times = np.full((len(left), 2), inf)
        times[:jobs, 0], times[:jobs, 1][self._phases_left == 0] = self._began, situation.now
        tables = Tables(
            self._mode,
            len(situation.kinds),
            ints,
            floats,
            need,
            self._free.copy(),
            self._pools.copy(),
            times,
        )
        ends = np.column_stack((self._running_ends[:, course], self._running_expected))
        promises = self._promises.copy()
        self._simulate(
            situation.now, tables, promises, later, *links, self._running, ends, left
        )
        return times[:jobs, 0], times[:jobs, 1]

    def _with_arrivals(self, course: int) -> tuple[Ints, Floats, Floats, tuple[Ints, Ints]]:
        """The tables of the situation and of the later arrivals of a course."""
        ints, floats, need = [self._ints], [self._floats.copy()], [self._need]
        floats[0][:, columns.WORK] = self._work[:, course]
        links = list[Sequence[int]]()
        rows, jobs = len(self._rows), len(self._situation.jobs)
        arrivals = self._arrivals
        for part in arrivals.replay(self._situation.now, course, self._most):
            of_part = slice(part.first, part.last)
            of_ints, of_floats, of_need = self._later(part, jobs)
            ints.append(of_ints)
            floats.append(of_floats)
            need.append(of_need)
            if arrivals.has_links:
                for place, one in enumerate(arrivals.successors[of_part], rows):
                    links.append([place + distance for distance in one])
            else:
                links += [()] * (part.last - part.first)
            rows += part.last - part.first
            jobs = int(ints[-1][-1, columns.JOB]) + 1
        starts, successors = _joined(links, len(self._successors[1]))
        return (
            np.concatenate(ints),
            np.concatenate(floats),
            np.concatenate(need),
            (
                np.concatenate((self._successors[0], starts[1:])),
                np.concatenate((self._successors[1], successors)),
            ),
        )

    def _later(self, part: ReplayedRows, jobs: int) -> tuple[Ints, Floats, Floats]:
        """Later arrivals as rows of the tables, with numbers of jobs from `jobs` on."""
        rows = slice(part.first, part.last)
        old_ints = {name: column[rows] for name, column in self._arrivals.ints.items()}
        old = {name: column[rows] for name, column in self._arrivals.floats.items()}
        pool, takes = self._pool_of[old_ints["pool"]], old_ints["takes"]
        need = self._within(self._takes[takes], pool)
        lives = (pool >= 0) & np.all(need <= self._all_totals, axis=1)
        ints = np.zeros((len(pool), columns.OF_PHASE), np.int64)
        ints[:, columns.JOB] = old_ints["job"] - old_ints["job"][0] + jobs
        ints[:, columns.POOL] = np.maximum(pool, 0)
        ints[:, columns.BATCH] = old_ints["batch"]
        ints[:, columns.ROOM] = np.where(lives, old_ints["room"], 0)
        ints[:, columns.WAITS] = old_ints["waits"]
        ints[:, columns.PENDING] = old_ints["pending"]
        at = old["at"] + part.shift
        turns = self._in_turn[old_ints["pool"]]
        floats = np.zeros((len(pool), columns.OF_PHASE))
        floats[:, columns.ARRIVAL] = np.where(lives, at, inf)
        floats[:, columns.WIDTH] = old["width"]
        floats[:, columns.WORK] = floats[:, columns.EXPECTED] = old["seconds"]
        floats[:, columns.KEY] = _later_keys(self._situation, old, at, jobs)
        floats[:, columns.WEIGHT] = np.where(turns, inf, old["weight"])
        return ints, floats, need


_NONE: list[int] = []
"""No successors: replaced, never changed."""


def _joined(lists: Sequence[Sequence[int]], before: int) -> tuple[Ints, Ints]:
    """Lists of numbers as one array, and where each begins in it, after `before` others."""
    starts = before + np.cumsum([0, *map(len, lists)])
    return starts.astype(np.int64), np.array([k for one in lists for k in one], np.int64)


def _needed(takes: Resources, names: Sequence[str]) -> list[float]:
    """What a task takes of each resource; of one that no host has, more than all have."""
    amounts = dict(takes.pairs)
    known = [float(amounts.get(name, 0)) for name in names]
    if any(amount and name not in names for name, amount in amounts.items()):
        return [inf] * len(names)
    return known


UNKNOWN = 1e15
"""What a waiting task takes of a resource that no host has: more than any host could have."""

FIRST = -1e15
"""Added to the key of jobs that have been allocated slots, where the order is fixed."""


def _keys(situation: Situation, jobs: Sequence[JobNow]) -> Sequence[float]:
    """The order in which jobs are served where it is fixed, and among equals elsewhere."""
    if situation.scheduler in MODES:
        return range(len(jobs))
    if situation.scheduler == "fifo":
        return [number - job.priority * BEFORE for number, job in enumerate(jobs)]
    by_size = situation.penalty in BY_SIZE
    return [
        (_work_left(job) / job.weight if by_size else min(job.deadline, NO_DEADLINE))
        + FIRST * job.first
        for job in jobs
    ]


NO_DEADLINE = 1e14
"""The key of jobs without a deadline where deadlines order them; infinity is never served."""

BEFORE = 1e9
"""More than the number of jobs: what a priority counts."""


def _later_keys(
    situation: Situation, old: Mapping[str, Floats], at: Floats, number: int
) -> Floats:
    """The same for later arrivals, of which the first has this number."""
    numbers = number + np.arange(len(at), dtype=float)
    if situation.scheduler in MODES:
        return numbers
    if situation.scheduler == "fifo":
        return np.asarray(numbers - old["priority"] * BEFORE)
    if situation.penalty in BY_SIZE:
        return np.asarray(old["size"] / old["weight"])
    return np.asarray(np.minimum(at + old["patience"], NO_DEADLINE))


def _work_left(job: JobNow) -> float:
    """The slot-seconds that a job still needs, as estimated."""
    return sum([p.expected * p.width * (p.pending + len(p.begun)) for p in job.phases])


if __name__ == "__main__":
    _make()
