"""Forecasts of starts and ends on logs of parallel computers: coverage, width and cost.

    scripts/bench eta [LOG.swf ...] [--swim TRACE.tsv ...] [--scheduler easy] [--cases 5000]
                      [--stretch 1.0] [--plot FOLDER]

Each log is simulated whole under the scheduler. At the submission of some of the jobs that have
to wait, all that waits or runs is forecast by what is known at that time. The first fifth of a
log only teaches. Nominal ranges hold 80 %. KTH-SP2 is `KTH-SP2_log.swf`, and LLNL-Atlas
`LLNL-Atlas-2006-2.1-cln.swf`, both in github.com/jad-darrous/predictsim; the SWIM traces are
those of github.com/SWIMProjectUCB/SWIM. Without logs, a made-up one is used.

    coverage  the part of the ranges that held what happened, with a 95 % interval by bootstrap
              over weeks; of each class of jobs with 200 cases or more; and the part of the
              weeks with 50 cases or more in which it is from 70 to 90 %
    width     seconds, median and mean; beside that of the best of three baselines made of past
              waits, which are widened or narrowed to the same coverage
    error     of the median, seconds
    cost      milliseconds of a processor for all jobs of a forecast, and for each job
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2
from pathlib import Path

import numpy as np

import measuring
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision
from slotwise.core.events import Event, JobArrived, launches
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.forecast.calibration import FEW_JOBS, LONG_QUEUE, SHORT_QUEUE
from slotwise.forecast.eta import Eta
from slotwise.forecast.forecaster import Forecaster
from slotwise.forecast.picture import picture_of
from slotwise.policy.scheduler import make_scheduler
from slotwise.workload.swf import read_swf
from slotwise.workload.swim import read_swim

WEEK = 7 * 86_400.0
BURN_IN = 0.2
"""The part of a log that only teaches."""

CLASS_MIN, WEEK_MIN = 200, 50
"""The cases from which the coverage of a class, or of a week, counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """One forecast at the submission of a job, and what happened."""

    job: str
    at: float
    eta: Eta
    earlier: int
    waiting: int
    start: float = inf
    end: float = inf


class Watcher:
    """Forecasts at the submission of some jobs of a simulation, and notes what happens."""

    def __init__(
        self, state: State, scheduler: str, chosen: Callable[[int], bool], burn_in: int
    ) -> None:
        self.forecaster = Forecaster(state.cluster)
        self.cases: dict[str, Case] = {}
        self.waits: list[tuple[float, float, float, str]] = []  # Known at, wait, arrival, job.
        self.cost, self.jobs_forecast = 0.0, 0
        self._state, self._scheduler, self._chosen = state, scheduler, chosen
        self._arrived, self._burn_in = 0, burn_in
        self._of_user: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, float] = {}

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        state = self._state
        self.forecaster.on_turn(state, now, events, decisions)
        arrived = [event.job for event in events if isinstance(event, JobArrived)]
        for job in arrived:
            self._waiting[job.id] = now
        for one in launches(events, decisions):
            if (arrival := self._waiting.pop(one.phase.job, None)) is not None:
                if now > arrival:
                    self.waits.append((now, now - arrival, arrival, one.phase.job))
                if case := self.cases.get(one.phase.job):
                    self.cases[one.phase.job] = replace(case, start=now)
        for name, at in state.completed.items():
            if case := self.cases.get(name):
                self.cases[name] = replace(case, end=at)
        waiting = [job for job in arrived if job.id in self._waiting]
        for job in arrived:
            self._arrived += 1
            self._of_user[job.user or job.pool] += 1
        wanted = [job for job in waiting if self._chosen(self._arrived)]
        if wanted and self._arrived > self._burn_in / 2:
            began = time.thread_time()
            found = self.forecaster.forecast(picture_of(state, self._scheduler, "response"))
            self.cost += time.thread_time() - began
            self.jobs_forecast += len(found)
            for job in wanted:
                earlier = self._of_user[job.user or job.pool] - 1
                self.cases[job.id] = Case(
                    job.id, now, found[job.id], earlier, len(self._waiting)
                )


def forecast_log(
    jobs: Sequence[Job], cluster: Cluster, scheduler: str, cases: int
) -> tuple[list[Case], Watcher]:
    """Simulate all jobs, and forecast about so many of those that wait."""
    state = State(cluster)
    waiting = _count_waiting(jobs, cluster, scheduler)
    part = min(1.0, cases / max(1.0, waiting * (1 - BURN_IN)))
    rng = np.random.default_rng(1996)
    burn_in = int(BURN_IN * len(jobs))
    watcher = Watcher(state, scheduler, lambda _: rng.random() < part, burn_in)
    run(make_scheduler(scheduler), SimulatedBackend(cluster, jobs), state, watcher)
    first = sorted(job.arrival for job in jobs)[burn_in]
    found = [one for one in watcher.cases.values() if one.at >= first and one.end < inf]
    return found, watcher


def _count_waiting(jobs: Sequence[Job], cluster: Cluster, scheduler: str) -> int:
    state, arrivals, count = State(cluster), {job.id: job.arrival for job in jobs}, 0

    def note(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        nonlocal count
        for one in launches(events, decisions):
            if (arrival := arrivals.pop(one.phase.job, None)) is not None:
                count += now > arrival

    run(make_scheduler(scheduler), SimulatedBackend(cluster, jobs), state, note)
    return count


# What is reported of the cases.


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges in seconds from the forecast, and the truth: arrays of the same length."""

    low: np.ndarray
    median: np.ndarray
    high: np.ndarray
    truth: np.ndarray
    week: np.ndarray

    @property
    def held(self) -> np.ndarray:
        return (self.low <= self.truth) & (self.truth <= self.high)

    @property
    def width(self) -> np.ndarray:
        return self.high - self.low

    def interval(self, of: Callable[[np.ndarray], float]) -> tuple[float, float]:
        """A 95 % interval of a statistic of cases, by bootstrap over weeks."""
        weeks = [np.flatnonzero(self.week == one) for one in np.unique(self.week)]
        rng = np.random.default_rng(7)
        drawn = [
            of(np.concatenate([weeks[k] for k in rng.integers(0, len(weeks), len(weeks))]))
            for _ in range(400)
        ]
        return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def ranges_of(cases: Sequence[Case], what: str) -> Ranges:
    """The ranges of starts or of ends."""
    rows = []
    for one in cases:
        found = one.eta.start if what == "start" else one.eta.end
        assert found is not None
        truth = one.start if what == "start" else one.end
        rows.append((found.low, found.median, found.high, truth))
    at = np.array([one.at for one in cases])
    table = np.array(rows) - at[:, None]
    return Ranges(*table.T, week=(at // WEEK).astype(int))


def baseline(
    cases: Sequence[Case], watcher: Watcher, jobs: Mapping[str, Job], way: str
) -> Ranges:
    """Ranges of starts from past waits: those of all, of jobs of similar size, or of similar
    queues, at the shares that give the coverage 80 %."""
    best = None
    for share in (0.2, 0.16, 0.13, 0.1, 0.08, 0.06, 0.04, 0.025, 0.01):
        found = _past_waits(cases, watcher, jobs, way, share)
        if best is None or abs(found.held.mean() - 0.8) < abs(best.held.mean() - 0.8):
            best = found
    assert best is not None
    return best


def _past_waits(
    cases: Sequence[Case], watcher: Watcher, jobs: Mapping[str, Job], way: str, share: float
) -> Ranges:
    def group(job: Job) -> int:
        slots = job.phases[0].slots
        if way == "all":
            return 0
        return (
            int(log2(max(slots, 1)))
            if way == "size"
            else int(log2(max((job.time_requested or 1.0) * slots, 1.0)) / 2)
        )

    known = sorted(watcher.waits)
    last: dict[int, tuple[deque[float], list[float]]] = defaultdict(lambda: (deque(), []))
    place, rows = 0, []
    for case in sorted(cases, key=lambda one: one.at):
        while place < len(known) and known[place][0] <= case.at:
            kept, ordered = last[group(jobs[known[place][3]])]
            kept.append(known[place][1])
            insort(ordered, known[place][1])
            if len(kept) > 500:
                del ordered[bisect_left(ordered, kept.popleft())]
            place += 1
        _, ordered = last[group(jobs[case.job])]
        if not ordered:
            _, ordered = max(last.values(), key=lambda one: len(one[1]), default=(None, [0.0]))
        count = len(ordered)
        low = ordered[min(count - 1, int(count * share))]
        high = ordered[min(count - 1, ceil(count * (1 - share)))]
        rows.append((low, ordered[count // 2], high, case.start - case.at, case.at // WEEK))
    table = np.array(rows)
    return Ranges(*table.T[:4], week=table[:, 4].astype(int))


def report(
    name: str, jobs: Sequence[Job], cluster: Cluster, scheduler: str, cases: int
) -> list[Case]:
    """Forecast a log and print what is found."""
    began = time.perf_counter()
    found, watcher = forecast_log(jobs, cluster, scheduler, cases)
    found.sort(key=lambda one: one.at)
    print(
        f"{name}, {scheduler}: {len(jobs):,} jobs, {len(watcher.waits):,} wait,"
        f" {len(found):,} cases, {time.perf_counter() - began:.0f} s"
    )
    for what in ("start", "end"):
        _show(what, found, ranges_of(found, what))
    named, starts = {job.id: job for job in jobs}, ranges_of(found, "start")
    ways = {way: baseline(found, watcher, named, way) for way in ("all", "size", "area")}
    for way, one in ways.items():
        print(
            f"  past waits, {way:5}  coverage {one.held.mean():.3f}   width median"
            f" {np.median(one.width):,.0f} mean {one.width.mean():,.0f}"
        )
    best = min(ways.values(), key=lambda one: float(np.median(one.width)))
    ratio = float(np.median(starts.width) / np.median(best.width))
    low, high = starts.interval(
        lambda rows: float(np.median(starts.width[rows]) / np.median(best.width[rows]))
    )
    print(
        f"  median width of starts {ratio:.2f} ({low:.2f} to {high:.2f}) of the best of these"
    )
    milliseconds = 1000 * watcher.cost
    forecasts = max(1, len(watcher.cases))
    print(
        f"  cost {milliseconds / forecasts:.1f} ms a forecast,"
        f" {milliseconds / max(1, watcher.jobs_forecast):.2f} ms a job",
        flush=True,
    )
    return found


def _show(what: str, cases: Sequence[Case], ranges: Ranges) -> None:
    held = ranges.held
    low, high = ranges.interval(lambda rows: float(held[rows].mean()))
    weeks = [held[ranges.week == one] for one in np.unique(ranges.week)]
    means = [float(one.mean()) for one in weeks if len(one) >= WEEK_MIN]
    good = np.mean([0.7 <= one <= 0.9 for one in means]) if means else float("nan")
    print(
        f"  {what:5}  coverage {held.mean():.3f} ({low:.3f} to {high:.3f}),"
        f" weeks {good:.2f} of {len(means)}; below {np.mean(ranges.truth < ranges.low):.3f}"
        f" above {np.mean(ranges.truth > ranges.high):.3f};"
        f" open {np.mean(np.isinf(ranges.high)):.4f}"
    )
    error = np.abs(ranges.truth - ranges.median)
    print(
        f"         width median {np.median(ranges.width):,.0f} mean {ranges.width.mean():,.0f};"
        f" error median {np.median(error):,.0f} mean {error.mean():,.0f}"
    )
    for name, of in CLASSES.items():
        rows = np.array([of(one) for one in cases])
        note = "" if rows.sum() >= CLASS_MIN else "  (few cases)"
        if rows.any():
            print(f"         {name:28} {held[rows].mean():.3f} of {rows.sum():,}{note}")


CLASSES: Mapping[str, Callable[[Case], bool]] = {
    "few earlier jobs of the user": lambda one: one.earlier < FEW_JOBS,
    "many": lambda one: one.earlier >= FEW_JOBS,
    "short queue": lambda one: one.waiting <= SHORT_QUEUE,
    "longer": lambda one: one.waiting > SHORT_QUEUE,
    "more than 40": lambda one: one.waiting > LONG_QUEUE,
}


def made_up(count: int = 4_000, seed: int = 3) -> tuple[list[Job], Cluster]:
    """Jobs of users who repeat themselves, on 64 slots at a load of about 0.9."""
    rng = np.random.default_rng(seed)
    times = rng.lognormal(6.5, 1.2, 30)
    jobs, at = [], 0.0
    for number in range(count):
        user = int(rng.integers(0, 30))
        slots = int(2 ** rng.integers(0, 6))
        at += float(rng.exponential(times.mean() * 14 / 64 / 0.75))
        seconds = float(times[user] * rng.lognormal(0, 0.5))
        phase = Phase("run", Tasks(1, seconds), slots=slots)
        requested = float(times[user] * rng.choice([1.5, 3.0, 6.0]))
        jobs.append(
            Job(f"j{number}", (phase,), at, user=f"u{user}", program=f"p{user}",
                time_requested=max(requested, seconds))
        )  # fmt: skip
    return jobs, Cluster.of_slots(64)


def stretched(jobs: Iterable[Job], factor: float) -> list[Job]:
    """The same jobs, with other times between their arrivals."""
    return [replace(job, arrival=job.arrival * factor) for job in jobs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="*", type=Path, help="SWF logs; made up if omitted")
    parser.add_argument("--swim", nargs="*", type=Path, default=[], help="SWIM traces")
    parser.add_argument("--scheduler", default="easy")
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument(
        "--stretch", type=float, default=1.0, help="factor on times between arrivals"
    )
    parser.add_argument("--first", type=int, help="only the first jobs of each log")
    options = parser.parse_args()
    print(f"a yardstick takes {measuring.yardstick():.4f} s here")
    for path in options.logs:
        log = read_swf(path, first=options.first)
        jobs = stretched(log.jobs, options.stretch)
        report(path.stem, jobs, log.cluster, options.scheduler, options.cases)
    for path in options.swim:
        trace = read_swim(path)
        raise SystemExit(f"{trace}")
    if not options.logs and not options.swim:
        jobs, cluster = made_up()
        report("made up", jobs, cluster, options.scheduler, options.cases)


if __name__ == "__main__":
    main()
