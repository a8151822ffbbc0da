"""Learned memory on traces of real workflows, beside presets and published methods.

    scripts/bench memory_sizing PATH [--splits 10] [--traces chipseq,eager]

PATH is a folder with the six files `trace_*.csv` of github.com/dos-group/sizey, in `data`.
Without it, three made-up types of tasks are used.

A type is a process of a workflow with at least 34 tasks. They teach, and get estimates, one
after the other. Waste is what a task got less its peak, by its duration; of a failed attempt
all that it got, by the whole duration. Protocols:

    warm, random  30 % of each type teach before; the rest comes in random order
    cold, random  nothing teaches before: the first ten of a type get their presets
    warm, time    the first 30 % of each type teach; the rest by their starts
    cold, time    by their starts; in both, a task teaches when it has ended

Orders and splits are those of seeds from 1996 on, and medians over these are shown. Then a
simulation runs all tasks on one host of 16 processors and 64 GiB, each as a job, in the order
of submission: at most 66 are admitted, so that up to 50 wait while others pass them. They state
their presets, or nothing, so that slotwise learns what they need, or their peaks.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import random
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import check as checking
import measuring
from slotwise.api import simulate
from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import TaskFailed
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.core.sizing import CASES_MIN, KEPT, LearnedMemory
from slotwise.workload.workload import Workload

GBH = 1e9 * 3.6e6
"""A gigabyte for an hour, in bytes by milliseconds."""

FIRST_SEED = 1996
TASKS_MIN = 34
WARM = 0.3
PROCESSORS, MEMORY, AHEAD = 16, 64 << 30, 50


@dataclass(frozen=True, slots=True)
class Task:
    """A row of a trace. Times in milliseconds, memory and size of input in bytes."""

    kind: str
    submitted: int
    started: int
    ended: int
    duration: int
    processors: int
    preset: int
    peak: int
    size: int


Types = dict[str, list[Task]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", help="a folder of trace_*.csv; made up if omitted")
    parser.add_argument("--splits", type=int, default=10, help="the number of random splits")
    parser.add_argument("--traces", help="only these, such as chipseq,eager")
    options = parser.parse_args()
    traces = dict(read(Path(options.path))) if options.path else {"made-up": made_up()}
    if options.traces:
        traces = {name: traces[name] for name in options.traces.split(",")}
    if not traces:
        parser.error(f"{options.path}: there is no trace_*.csv; name the folder with them")
    for is_warm in (True, False):
        for order, seeds in (("random", options.splits), ("time", 1)):
            print(f"\n{'warm' if is_warm else 'cold'}, {order}: waste in GBh / % failed")
            print(f"{'':10} {'tasks':>6} {'used':>7}", *(f"{name:>15}" for name in METHODS))
            for name, types in traces.items():
                print_waste(name, types, is_warm, order == "time", seeds)
    print("\nmakespan by that with presets (attempts out of memory)")
    for name, types in traces.items():
        print_makespan(name, types)


def check() -> Iterator[checking.Result]:
    """Waste on the made-up types by that of the largest peak, and the time of a call."""
    found = {
        name: [replay(made_up(), METHODS[name], seed) for seed in range(1996, 1999)]
        for name in ("max x 1.1", "learned")
    }
    waste = {name: median(one.waste for one in runs) for name, runs in found.items()}
    ratio = waste["learned"] / waste["max x 1.1"]
    yield checking.Result(
        "waste by that of the largest peak", ratio, 0.6, "", noise=checking.COUNTED
    )
    learned = LearnedMemory()
    for k in range(KEPT):
        learned.note(k % 97 << 20, k % 101 << 20)

    def both() -> None:
        for k in range(100):
            learned.estimate(k << 20)
            learned.note(k << 20, k << 20)

    goal = measuring.yardsticks(100 * 0.2)
    took = measuring.in_yardsticks(both)
    yield checking.Result("100 estimates and tasks noted", took, goal, measuring.LOOP)


# The traces.


def read(folder: Path) -> Iterator[tuple[str, Types]]:
    """Each trace by its name; only types with enough tasks that took time and memory."""
    for path in sorted(folder.glob("trace_*.csv")):
        tasks = []
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                values = [row[column] for column in COLUMNS]
                if row["status"] == "COMPLETED" and "-" not in values:
                    tasks.append(Task(row["process"], *map(int, values)))
        yield path.stem.removeprefix("trace_"), by_type(tasks)


COLUMNS = (
    "submit", "start", "complete", "realtime", "cpus", "memory", "peak_rss", "rchar",
)  # fmt: skip


def by_type(tasks: Iterable[Task]) -> Types:
    types: Types = defaultdict(list)
    for task in tasks:
        if task.duration > 0 and task.peak > 0:
            types[task.kind].append(task)
    return {kind: of_it for kind, of_it in sorted(types.items()) if len(of_it) >= TASKS_MIN}


def made_up() -> Types:
    """Types that need the same each, a line in the input, or what nobody foresees."""
    draw = random.Random(1)
    needs: dict[str, Callable[[int], float]] = {
        "same": lambda _: 0.5 + 0.02 * draw.random(),
        "line": lambda size: (0.2 + size / 1e9) * (1 + 0.02 * draw.random()),
        "any": lambda _: 1 + draw.random(),
    }
    tasks = []
    for kind, need in needs.items():
        for k in range(200):
            size, begun, took = draw.randrange(10**10), 1000 * k, draw.randrange(1000, 60_000)
            peak = int(need(size) * 1e9)
            tasks.append(Task(kind, begun, begun, begun + took, took, 1, 16 << 30, peak, size))
    return by_type(tasks)


# The methods. Each object serves one type: it is taught by `note`, `first` is None without
# enough cases, and `again` follows an attempt that failed.


class Presets:
    """What the authors of the workflow ask for."""

    def note(self, task: Task) -> None: ...

    def first(self, task: Task) -> float | None:
        return task.preset

    def again(self, task: Task, allocated: float) -> float:
        return 2 * allocated


class Method(Presets):
    """Keeps the peaks, sorted, and the cases in their order."""

    def __init__(self) -> None:
        self.peaks: list[int] = []
        self.cases: list[tuple[int, int, int]] = []

    def note(self, task: Task) -> None:
        insort(self.peaks, task.peak)
        self.cases.append((task.size, task.peak, task.duration))

    def first(self, task: Task) -> float | None:
        return self.enough(task) if len(self.cases) >= CASES_MIN else None

    def enough(self, task: Task) -> float:
        """The largest peak so far, and a tenth."""
        return 1.1 * self.peaks[-1]


class Percentile(Method):
    """Witt et al., HPCS 2019: the 95th percentile, then double."""

    def enough(self, task: Task) -> float:
        return float(np.percentile(self.peaks, 95))


class Regression(Method):
    """Witt et al., HPCS 2019: a least-squares line and twice the deviation from it."""

    def enough(self, task: Task) -> float:
        sizes, peaks, _ = np.array(self.cases, float).T
        height, slope = line(sizes, peaks, np.ones(len(sizes)))
        off = float(np.std(peaks - height - slope * sizes))
        return max(height + slope * task.size + 2 * off, self.peaks[0])


class Tovar(Method):
    """Tovar et al., TPDS 2018: the peak that would have wasted least; then the largest."""

    def enough(self, task: Task) -> float:
        _, peaks, times = np.array(sorted(self.cases, key=lambda case: case[1]), float).T
        longer = times.sum() - np.cumsum(times)  # Of the tasks that would fail.
        return float(peaks[np.argmin(peaks * times.sum() + peaks[-1] * longer)])

    def again(self, task: Task, allocated: float) -> float:
        return max(self.peaks[-1], 2 * allocated if allocated >= self.peaks[-1] else 0)


class Ponder(Method):
    """Lehmann et al., e-Science 2024: a line that counts what lies above it 50 times.

    Only if size and peak correlate, by more than 0.3; otherwise the largest peak. Twice the
    deviation, in which similar sizes weigh more, or 128 MiB are added. Failures double.
    """

    def enough(self, task: Task) -> float:
        sizes, peaks, _ = np.array(self.cases, float).T
        least, largest = self.peaks[0], self.peaks[-1]
        if np.ptp(sizes) == 0 or np.ptp(peaks) == 0 or np.corrcoef(sizes, peaks)[0, 1] <= 0.3:
            return largest + OFFSET
        weights = np.ones(len(sizes))
        for _ in range(20):
            height, slope = line(sizes, peaks, weights)
            before, weights = weights, np.where(peaks > height + slope * sizes, 1, 0.02)
            if np.array_equal(before, weights):
                break
        base, is_larger = height + slope * task.size, task.size >= sizes.max()
        if (base < largest) == is_larger:
            base = largest
        far = np.abs(sizes - task.size)
        near = 1 - far / far.max() if far.max() else np.ones(len(sizes))
        off = peaks - height - slope * sizes
        spread = np.average((off - np.average(off, weights=near)) ** 2, weights=near)
        unbiased = spread / (1 - (near**2).sum() / near.sum() ** 2)
        return float(max(base, least) + max(OFFSET, 2 * unbiased**0.5))


OFFSET = 128 << 20


class Learned(Presets):
    """slotwise."""

    def __init__(self) -> None:
        self.learned = LearnedMemory()
        self.failed: set[Task] = set()

    def size(self, task: Task) -> int | None:
        """What is known of the input before the task begins."""
        return task.size

    def note(self, task: Task) -> None:
        self.learned.note(task.peak, self.size(task), task in self.failed)

    def first(self, task: Task) -> float | None:
        return self.learned.estimate(self.size(task))

    def again(self, task: Task, allocated: float) -> float:
        self.failed.add(task)
        return self.learned.after_failure(int(allocated))


class WithoutSizes(Learned):
    """The sizes of inputs are not known."""

    def size(self, task: Task) -> int | None:
        return None


class NoisySizes(Learned):
    """The sizes are known but for a random factor, normal with a deviation of 30 %."""

    def size(self, task: Task) -> int | None:
        noise = random.Random(f"{task.kind} {task.size} {task.submitted}").gauss(0, 0.3)
        return max(0, int(task.size * (1 + noise)))


METHODS: dict[str, Callable[[], Presets]] = {
    "presets": Presets,
    "max x 1.1": Method,
    "percentile": Percentile,
    "regression": Regression,
    "Tovar": Tovar,
    "Ponder": Ponder,
    "learned": Learned,
    "without sizes": WithoutSizes,
    "noisy sizes": NoisySizes,
}


Floats = np.typing.NDArray[np.float64]


def line(sizes: Floats, peaks: Floats, weights: Floats) -> tuple[float, float]:
    """Height and slope of the weighted least-squares line."""
    size, peak = np.average(sizes, weights=weights), np.average(peaks, weights=weights)
    spread = float((weights * (sizes - size) ** 2).sum())
    slope = float((weights * (sizes - size) * (peaks - peak)).sum()) / spread if spread else 0.0
    return float(peak - slope * size), slope


# Waste and failures.


@dataclass(frozen=True, slots=True)
class Found:
    """Sums over the tasks that got an estimate or a preset, in GBh; failed attempts."""

    tasks: int = 0
    used: float = 0.0
    waste: float = 0.0
    failed: int = 0


def print_waste(name: str, types: Types, is_warm: bool, in_time: bool, seeds: int) -> None:
    shown = []
    for make in METHODS.values():
        runs = [
            replay(types, make, FIRST_SEED + k, is_warm=is_warm, in_time=in_time)
            for k in range(seeds)
        ]
        failed = median(100 * run.failed / run.tasks for run in runs)
        shown.append(f"{median(run.waste for run in runs):,.5g} / {failed:.2f}")
    used = median(run.used for run in runs)
    print(f"{name:10} {runs[0].tasks:6,} {used:7,.5g}", *(f"{one:>15}" for one in shown))


def replay(
    types: Types,
    make: Callable[[], Presets],
    seed: int,
    *,
    is_warm: bool = True,
    in_time: bool = False,
) -> Found:
    """All types, one after the other."""
    draw = random.Random(seed)
    found = Found()
    for tasks in types.values():
        mixed = draw.sample(tasks, len(tasks))
        ordered = sorted(tasks, key=lambda task: task.started) if in_time else mixed
        before = int(WARM * len(ordered)) if is_warm else 0
        method = make()
        for task in ordered[:before]:
            method.note(task)
        running: list[tuple[int, int, Task]] = []
        for k, task in enumerate(ordered[before:]):
            while running and (not in_time or running[0][0] <= task.started):
                method.note(heapq.heappop(running)[2])
            found = with_attempts(found, task, method)
            heapq.heappush(running, (task.ended, k, task))
    return found


def with_attempts(found: Found, task: Task, method: Presets) -> Found:
    """The sums with those of one task."""
    waste, failed = 0.0, 0
    allocated = method.first(task) or float(task.preset)
    while allocated < task.peak:
        waste += allocated
        failed += 1
        allocated = method.again(task, allocated)
    waste += allocated - task.peak
    hours = task.duration / GBH
    return Found(
        found.tasks + 1,
        found.used + task.peak * hours,
        found.waste + waste * hours,
        found.failed + failed,
    )


# Makespan.

REQUESTS: dict[str, Callable[[Task], dict[str, int]]] = {
    "presets": lambda task: {"memory": min(task.preset, MEMORY)},
    "learned": lambda task: {},
    "exact": lambda task: {"memory": task.peak},
}
"""What each task states. Nobody can know its exact peak before."""


def print_makespan(name: str, types: Types) -> None:
    tasks = sorted((t for of_it in types.values() for t in of_it), key=lambda t: t.submitted)
    found = {how: makespan(tasks, requests) for how, requests in REQUESTS.items()}
    presets, _ = found.pop("presets")
    shown = [f"{how} {took / presets:.3f} ({out})" for how, (took, out) in found.items()]
    print(f"{name:10}", ", ".join(shown))


def makespan(
    tasks: Sequence[Task], requests: Callable[[Task], dict[str, int]]
) -> tuple[float, int]:
    """Seconds of a simulation of these tasks, and the attempts that ran out of memory."""
    jobs = []
    for number, task in enumerate(tasks):
        work = Tasks(1, task.duration / 1000, peaks=task.peak, sizes=task.size)
        slots = min(task.processors, PROCESSORS)
        phase = Phase("task", work, slots=slots, resources=requests(task))
        jobs.append(Job(f"{number}", (phase,), program=task.kind))
    host = Host("host", {"task": PROCESSORS}, resources={"memory": MEMORY})
    pool = Pool("default", jobs_max=PROCESSORS + AHEAD)
    workload = Workload(tuple(jobs), Cluster((host,)), pools=(pool,))
    result = simulate(workload, "fifo")
    failed = (event for turn in result.log.turns for event in turn.events)
    out = sum(isinstance(event, TaskFailed) for event in failed)
    return result.metrics["makespan"], out


if __name__ == "__main__":
    checking.serve(main, check)
