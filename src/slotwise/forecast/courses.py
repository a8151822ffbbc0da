"""Many simulated futures of one situation: what each job and phase takes in each of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.core.estimation import RUNNING_FLOOR, WITHIN
from slotwise.core.resources import Resources
from slotwise.forecast.arrivals import Ints, PastArrivals
from slotwise.forecast.course import EASY, EASY_SHORTEST, ORDER, SERVED, SHARES, simulate
from slotwise.forecast.durations import Draws, Floats, PastWork
from slotwise.forecast.situation import JobNow, Situation
from slotwise.policy.compiled import FLOATS, INTS, compiled, has_numba

TASKS_MAX, BATCHES_MIN = 6_000, 2
"""About how many tasks one course simulates. Phases of more tasks are simulated in batches, of
which each has at least `BATCHES_MIN`."""

ARRIVALS_MIN, ARRIVALS_EACH, ARRIVALS_MAX = 40, 3, 400
"""How many phases of later arrivals a course has: for each phase of the present, and limits."""

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

COMPILED_FROM = 100
"""The phases from which machine code is worth loading."""

PLAIN_PHASES, PLAIN_COURSES = 10_000, 5
"""Without machine code: the phases of all courses together, and the fewest courses."""


def courses_for(situation: Situation) -> int:
    """How many courses are simulated. Begins to load the machine code if it is worth it."""
    phases = sum(len(job.phases) for job in situation.jobs)
    count = next(count for most, count in COURSES if phases <= most)
    if phases < COMPILED_FROM or load_machine_code():
        return count
    return max(PLAIN_COURSES, min(count, PLAIN_PHASES // phases))


_loading: list[threading.Thread] = []
_loaded: list[Any] = []


def load_machine_code(*, waits: bool = False) -> bool:
    """Whether the machine code is loaded. A thread loads it, or makes it: that takes a second,
    and once for an installation some seconds. Python simulates meanwhile."""
    if not _loading:
        thread = threading.Thread(target=_load, name="slotwise machine code", daemon=True)
        _loading.append(thread)
        thread.start()
    if waits:
        _loading[0].join()
    return bool(_loaded)


def _load() -> None:
    if not has_numba():
        return
    matrix = "float64[:,::1]"
    numbers = [
        "int64", "float64", "float64", FLOATS, "int64", INTS, FLOATS, INTS, INTS, INTS, INTS,
        matrix, FLOATS, INTS, INTS, INTS, FLOATS, FLOATS, FLOATS, FLOATS, INTS, FLOATS, FLOATS,
        FLOATS, INTS, FLOATS, FLOATS, INTS, FLOATS, FLOATS,
    ]  # fmt: skip
    _loaded.append(compiled(simulate, f"int64({', '.join(numbers)})", releases_gil=True))


class _Table:
    """The arrays of a situation; later arrivals are appended to them for each course."""

    def __init__(
        self, situation: Situation, past: PastWork, arrivals: PastArrivals, draws: Draws
    ) -> None:
        self._situation, self._past, self._draws = situation, past, draws
        self._arrivals = arrivals
        self._mode = MODES.get(situation.scheduler, ORDER)
        self._totals = situation.totals
        self._rows = [(k, p) for k, job in enumerate(situation.jobs) for p in job.phases]
        count = ARRIVALS_MIN + ARRIVALS_EACH * len(self._rows)
        self._most = min(ARRIVALS_MAX, count)
        self._fill()
        self._fill_pools()
        self._link()
        self._draw()
        self._simulate: Any = _loaded[0] if _loaded else simulate

    def _fill(self) -> None:
        """What is the same in all courses, of the phases of the situation."""
        situation, rows, count = self._situation, self._rows, len(self._rows)
        phases = [phase for _, phase in rows]
        jobs = [situation.jobs[number] for number, _ in rows]
        names = list(self._totals)
        batches = max(BATCHES_MIN, TASKS_MAX // max(1, count))
        rows_of = {p.takes: _needed(p.takes, names) for p in phases}
        self._need = np.array([rows_of[p.takes] for p in phases]).reshape(count, len(names))
        totals = np.array([float(self._totals[name]) for name in names])
        fits = np.all(self._need <= totals, axis=1)  # Else it never ends.
        held = np.array([len(p.begun) for p in phases], float)
        unknown = np.isinf(self._need)  # With these, what is free would not be a number.
        self._need[unknown] = np.where(held[:, None] > 0, 0.0, UNKNOWN)[unknown.nonzero()[0], 0]
        self._free = totals - held @ self._need if count else totals
        pending = np.array([p.pending for p in phases], np.int64)
        batch = [ceil(p.pending / batches) for p in phases]
        room = np.array([p.room for p in phases], np.int64)
        pools = {name: place for place, name in enumerate(situation.pools)}
        self._ints = {
            "job": np.array([number for number, _ in rows], np.int64),
            "pending": np.where(fits, pending, pending + 1),
            "batch": np.maximum(1, np.array(batch, np.int64)),
            "room": np.where(fits, room, 0),
            "pool": np.array([pools[job.pool] for job in jobs], np.int64),
        }
        key = np.array(_keys(situation, situation.jobs), float)
        self._floats = {
            "at": np.full(count, situation.now),
            "width": np.array([p.width for p in phases], float),
            "weight": np.array([self._weight(job.pool, job.weight) for job in jobs], float),
            "expected": np.array([p.expected for p in phases], float),
            "key": key[self._ints["job"]] if count else key,
        }

    def _weight(self, pool: str, weight: float) -> float:
        """The weight of a job in its pool; where jobs run in turn, each counts as idle."""
        return inf if self._situation.pools[pool].in_turn else weight

    def _fill_pools(self) -> None:
        of_pools = list(self._situation.pools.values())
        self._pools = tuple(
            np.array(values, float)
            for values in (
                [one.weight for one in of_pools],
                [one.slots_min for one in of_pools],
                [one.slots_max for one in of_pools],
            )
        )
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
        totals = np.array(list(self._totals.values()), float)
        self._takes_fit: NDArray[np.bool_] = np.all(self._takes <= totals, axis=1)

    def _link(self) -> None:
        """Which phases of the situation wait for which."""
        jobs = self._situation.jobs
        first_of = np.cumsum([0, *(len(job.phases) for job in jobs)]).tolist()
        number_of = {job.id: k for k, job in enumerate(jobs)}
        successors: list[list[int]] = [[] for _ in self._rows]
        waits = np.zeros(len(self._rows), np.int64)
        for number, job in enumerate(jobs):
            own = {phase.name: first_of[number] + k for k, phase in enumerate(job.phases)}
            others = [number_of[name] for name in job.after if name in number_of]
            for row, phase in zip(own.values(), job.phases, strict=True):
                before = [own[name] for name in phase.waits_for if name in own]
                if not before:
                    before = [r for k in others for r in range(first_of[k], first_of[k + 1])]
                for other in before:
                    successors[other].append(row)
                waits[row] = len(before)
        self._waits, self._successors = waits, successors

    def _draw(self) -> None:
        """What a task of each phase takes in each course, and when the running ones end."""
        situation, now, draws = self._situation, self._situation.now, self._draws
        self._work = np.empty((len(self._rows), draws.courses))
        running: list[int] = []
        ends: list[Floats] = []
        expected: list[float] = []
        for row, (number, phase) in enumerate(self._rows):
            job = situation.jobs[number]
            if phase.done:
                spread = sqrt(WITHIN * (1 + 1 / phase.done))
                drawn = phase.measured * np.exp(spread * draws.of("job", job.id))
            else:
                oldest = now - min(phase.begun) if phase.begun else 0.0
                drawn = self._past.draw(
                    job.user,
                    job.program,
                    phase.base,
                    phase.is_stated,
                    draws.uniform(job.user, job.id),
                    oldest,
                    job.longest,
                )
            self._work[row] = drawn
            for begun in phase.begun:
                running.append(row)
                least = now + RUNNING_FLOOR * np.minimum(drawn, now - begun)
                ends.append(np.maximum(begun + drawn, least))
                expected.append(begun + phase.expected)
        self._running = np.array(running, np.int64)
        self._running_ends = np.array(ends).reshape(len(running), draws.courses)
        self._running_expected = np.array(expected, float)

    def run(self, course: int) -> tuple[Floats, Floats]:
        """One course: when the jobs of the situation start and end."""
        situation, jobs = self._situation, len(self._situation.jobs)
        ints, floats, need, waits, links = self._with_arrivals(course)
        at, present = floats["at"], len(self._rows)
        later = present + np.argsort(at[present:], kind="stable")
        left = np.zeros(int(ints["job"].max(initial=-1)) + 1, np.int64)
        left[:jobs] = np.bincount(self._ints["job"], minlength=jobs)
        start, end = np.full(max(len(left), jobs), inf), np.full(max(len(left), jobs), inf)
        start[:jobs] = [job.began for job in situation.jobs]
        self._simulate(
            self._mode,
            situation.now,
            inf,
            self._free.copy(),
            len(situation.kinds),
            ints["job"],
            at,
            later,
            waits,
            np.cumsum([0, *map(len, links)]).astype(np.int64),
            np.array([row for one in links for row in one], np.int64),
            need,
            floats["width"],
            ints["pending"],
            ints["batch"],
            ints["room"],
            floats["work"],
            floats["expected"],
            floats["key"],
            floats["weight"],
            ints["pool"],
            *self._pools,
            self._running,
            np.ascontiguousarray(self._running_ends[:, course]),
            self._running_expected,
            left,
            start,
            end,
        )
        end[:jobs][[not job.phases for job in situation.jobs]] = situation.now
        return start[:jobs], end[:jobs]

    def _with_arrivals(
        self, course: int
    ) -> tuple[dict[str, Ints], dict[str, Floats], Floats, Ints, list[Sequence[int]]]:
        """The arrays of the situation and of the later arrivals of a course."""
        arrivals, situation = self._arrivals, self._situation
        ints = {name: [column] for name, column in self._ints.items()}
        floats = {name: [column] for name, column in self._floats.items()}
        floats["work"] = [self._work[:, course]]
        need, waits, links = [self._need], [self._waits], list[Sequence[int]](self._successors)
        rows, jobs = len(self._rows), len(situation.jobs)
        for first, last, shift in arrivals.replay(situation.now, course, self._most):
            part = slice(first, last)
            old_ints = {name: column[part] for name, column in arrivals.ints.items()}
            old = {name: column[part] for name, column in arrivals.floats.items()}
            pool, takes = self._pool_of[old_ints["pool"]], old_ints["takes"]
            lives = (pool >= 0) & self._takes_fit[takes]
            ints["job"].append(old_ints["job"] - old_ints["job"][0] + jobs)
            ints["pending"].append(old_ints["pending"])
            ints["batch"].append(old_ints["batch"])
            ints["room"].append(np.where(lives, old_ints["room"], 0))
            ints["pool"].append(np.maximum(pool, 0))
            at = old["at"] + shift
            floats["at"].append(np.where(lives, at, inf))
            floats["width"].append(old["width"])
            turns = self._in_turn[old_ints["pool"]]
            floats["weight"].append(np.where(turns, inf, old["weight"]))
            floats["expected"].append(old["seconds"])
            floats["work"].append(old["seconds"])
            floats["key"].append(_later_keys(situation, old, at, jobs))
            need.append(self._takes[takes])
            waits.append(old_ints["waits"])
            if arrivals.has_links:
                for place, one in enumerate(arrivals.successors[part], rows):
                    links.append([place + distance for distance in one])
            else:
                links += [()] * (last - first)
            rows += last - first
            jobs += int(old_ints["job"][-1] - old_ints["job"][0]) + 1
        return (
            {name: np.concatenate(columns) for name, columns in ints.items()},
            {name: np.concatenate(columns) for name, columns in floats.items()},
            np.concatenate(need),
            np.concatenate(waits),
            links,
        )


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
