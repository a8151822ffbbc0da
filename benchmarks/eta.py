"""Forecasts of starts and ends on logs of parallel computers: coverage, width and cost.

    scripts/bench eta [LOG.swf ...] [--swim TRACE.tsv ...] [--unknown] [--scheduler easy]
                      [--recorded] [--cases 5000] [--stretch 1.0] [--first JOBS]
                      [--plot FILE.svg]

Each log is simulated whole under the scheduler. At the submission of some of the jobs that have
to wait, all that waits or runs is forecast by what is known at that time. The first fifth of a
log only teaches. Nominal ranges hold 80 %. KTH-SP2 is `KTH-SP2_log.swf`, and LLNL-Atlas
`LLNL-Atlas-2006-2.1-cln.swf`, both in github.com/jad-darrous/predictsim; the SWIM traces are
those of github.com/SWIMProjectUCB/SWIM: they run under fair and flex on as many slots as give a
load of 0.8, and no work is stated, as by `--unknown` for a made-up stream of calls of some
functions. There, all jobs are forecast as they arrive. With `--recorded`, jobs start when the
log says, by whatever policy that was, and the scheduler is only that of the simulations: a
regression (`eta_recorded.py`) is shown beside the ranges that come from simulations and their
past errors alone. Without logs, a made-up one is used.

    coverage  the part of the ranges that held what happened, with a 95 % interval by bootstrap
              over weeks (SWIM: hours); likewise of each class of jobs, of which those with 200
              cases or more count; and the part of the weeks with 50 cases or more in which it
              is from 70 to 90 %
    width     seconds, median and mean; beside that of the best of three baselines made of past
              waits, which are widened or narrowed to the same coverage
    error     of the median, seconds
    cost      milliseconds of a processor for all jobs of a forecast, and for each job; without
              logs, also for 1,000 and 10,000 waiting jobs of one and of 20 tasks, and how old
              forecasts get if they take 2 % of a processor
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, inf, log2
from pathlib import Path

import numpy as np

import check as checking
from eta_recorded import PastWaits, area_of, by_regression, inputs_of
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, Launch, Locality
from slotwise.core.events import Event, JobArrived, launches
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import Record, run, turn
from slotwise.core.pools import Pool
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.forecast.calibration import FEW_JOBS, LONG_QUEUE, SHORT_QUEUE, class_of
from slotwise.forecast.courses import load_machine_code
from slotwise.forecast.eta import Eta, Range
from slotwise.forecast.forecaster import Forecaster
from slotwise.forecast.situation import situation_of
from slotwise.policy.scheduler import make_scheduler
from slotwise.sessions.forecasting import PROCESSOR_PART
from slotwise.workload.swf import read_swf
from slotwise.workload.swim import SwimRates, read_swim

WEEK, HOUR = 7 * 86_400.0, 3_600.0
LOAD = 0.8
BURN_IN = 0.2
"""The part of a log that only teaches."""

CLASS_MIN, WEEK_MIN = 200, 50
"""The cases from which the coverage of a class, or of a week, counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """One forecast at the submission of a job, and what happened.

    inputs  what a regression gets
    """

    job: str
    at: float
    eta: Eta
    earlier: int
    waiting: int
    start: float = inf
    end: float = inf
    inputs: Sequence[float] = ()


class Watcher:
    """Forecasts at the submission of some jobs of a simulation, and notes what happens."""

    def __init__(
        self,
        state: State,
        scheduler: str,
        chosen: Callable[[], bool],
        burn_in: int,
        only_waiting: bool,
    ) -> None:
        self.forecaster = Forecaster()
        self.cases: dict[str, Case] = {}
        self.waits: list[tuple[float, float, float, str]] = []  # Known at, wait, arrival, job.
        self.cost, self.jobs_forecast = 0.0, 0
        self._state, self._scheduler, self._chosen = state, scheduler, chosen
        self._arrived, self._burn_in = 0, burn_in
        self._of_user: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, float] = {}
        self._only_waiting = only_waiting
        self._past = PastWaits()
        self._jobs: dict[str, Job] = {}

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        state = self._state
        self.forecaster.on_turn(state, now, events, decisions)
        arrived = [event.job for event in events if isinstance(event, JobArrived)]
        for job in arrived:
            self._waiting[job.id] = now
            self._jobs[job.id] = job
        for one in launches(events, decisions):
            if (arrival := self._waiting.pop(one.phase.job, None)) is not None:
                self._past.note(self._jobs.pop(one.phase.job), now - arrival)
                if now > arrival:
                    self.waits.append((now, now - arrival, arrival, one.phase.job))
                if case := self.cases.get(one.phase.job):
                    self.cases[one.phase.job] = replace(case, start=now)
        for name, at in state.completed.items():
            if case := self.cases.get(name):
                self.cases[name] = replace(case, end=at)
        among = [j for j in arrived if j.id in self._waiting or not self._only_waiting]
        for job in arrived:
            self._arrived += 1
            self._of_user[job.user or job.pool] += 1
        wanted = [job for job in among if state.phases_of(job.id) and self._chosen()]
        if wanted and self._arrived > self._burn_in / 2:
            began = time.thread_time()
            situation = situation_of(state, self._scheduler, "response")
            found = self.forecaster.forecast(situation)
            self.cost += time.thread_time() - began
            self.jobs_forecast += len(found)
            for job in wanted:
                earlier, eta = self._of_user[job.user or job.pool] - 1, found[job.id]
                inputs = inputs_of(job, eta, situation, self._past) if eta.start else ()
                self.cases[job.id] = Case(
                    job.id, now, eta, earlier, len(self._waiting), inputs=inputs
                )


@dataclass(frozen=True, slots=True)
class Log:
    """Jobs on a cluster.

    period  the length of what stands for a week, in seconds
    starts  when each job starts, whatever the scheduler would do; None: as it decides
    """

    name: str
    jobs: Sequence[Job]
    cluster: Cluster
    is_unknown: bool = False
    period: float = WEEK
    starts: Mapping[str, float] | None = None

    def simulate(self, scheduler: str, state: State, record: Record) -> None:
        """Simulate all jobs."""
        if self.starts is not None:
            replay(self.jobs, self.cluster, self.starts, state, record)
            return
        backend = SimulatedBackend(
            self.cluster, self.jobs, Simulation(hide_work=self.is_unknown)
        )
        run(make_scheduler(scheduler), backend, state, record)


class _Starts:
    """Launches jobs when they are due, or as soon as there is room then."""

    def __init__(self, starts: Mapping[str, float]) -> None:
        self._starts = starts
        self._left = sorted(starts.values(), reverse=True)

    def next_after(self, now: float) -> float | None:
        """When the next job is due."""
        while self._left and self._left[-1] <= now:
            self._left.pop()
        return self._left[-1] if self._left else None

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Launch one job that is due and fits."""
        (kind,) = snapshot.cluster.capacity
        for phase in snapshot.in_order(kind, snapshot.ready(kind)):
            if phase.pending and self._starts[phase.job.id] <= snapshot.now:
                for host, free in snapshot.free(kind).items():
                    if free >= phase.width:
                        return [Launch(phase.id, 0, 1, host, Locality.NODE)]
        return ()


def replay(
    jobs: Sequence[Job],
    cluster: Cluster,
    starts: Mapping[str, float],
    state: State,
    record: Record,
) -> None:
    """Run jobs of one task from these instants on."""
    backend, decider = SimulatedBackend(cluster, jobs), _Starts(starts)
    while not state.is_done:
        turn(decider, backend, state, record, backend.wait(decider.next_after(backend.now)))


def forecast_log(log: Log, scheduler: str, cases: int) -> tuple[list[Case], Watcher]:
    """Simulate all jobs, and forecast about so many of those that wait."""
    load_machine_code(waits=True)
    state = State(log.cluster)
    count = len(log.jobs) if log.is_unknown else _count_waiting(log, scheduler)
    part = min(1.0, cases / max(1.0, count * (1 - BURN_IN)))
    rng = np.random.default_rng(1996)
    burn_in = int(BURN_IN * len(log.jobs))
    watcher = Watcher(
        state, scheduler, lambda: rng.random() < part, burn_in, not log.is_unknown
    )
    log.simulate(scheduler, state, watcher)
    first = sorted(job.arrival for job in log.jobs)[burn_in]
    found = [one for one in watcher.cases.values() if one.at >= first and one.end < inf]
    return sorted(found, key=lambda one: one.at), watcher


def _count_waiting(log: Log, scheduler: str) -> int:
    arrivals, count = {job.id: job.arrival for job in log.jobs}, 0

    def note(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        nonlocal count
        for one in launches(events, decisions):
            if (arrival := arrivals.pop(one.phase.job, None)) is not None:
                count += now > arrival

    log.simulate(scheduler, State(log.cluster), note)
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

    def of(self, rows: np.ndarray) -> Ranges:
        """Some of them."""
        return Ranges(*(getattr(self, one.name)[rows] for one in fields(self)))

    def interval(self, of: Callable[[np.ndarray], float]) -> tuple[float, float]:
        """A 95 % interval of a statistic of cases, by bootstrap over weeks."""
        weeks = [np.flatnonzero(self.week == one) for one in np.unique(self.week)]
        rng = np.random.default_rng(7)
        drawn = [
            of(np.concatenate([weeks[k] for k in rng.integers(0, len(weeks), len(weeks))]))
            for _ in range(400)
        ]
        return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def ranges_of(cases: Sequence[Case], what: str, period: float) -> Ranges:
    """The ranges of starts, of those that had not begun, or of ends."""
    rows = []
    for one in cases:
        found = one.eta.start if what == "start" else one.eta.end
        if found is not None:
            truth = one.start if what == "start" else one.end
            rows.append((found.low, found.median, found.high, truth, one.at))
    table = np.array(rows).reshape(-1, 5)
    at = table[:, 4]
    return Ranges(*(table[:, :4] - at[:, None]).T, week=(at // period).astype(int))


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
        return int(log2(max(slots, 1))) if way == "size" else area_of(job)

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


def report(log: Log, scheduler: str, cases: int) -> list[Case]:
    """Forecast a log and print what is found."""
    began = time.perf_counter()
    found, watcher = forecast_log(log, scheduler, cases)
    print(
        f"{log.name}, {scheduler}: {len(log.jobs):,} jobs, {len(watcher.waits):,} wait,"
        f" {len(found):,} cases, {time.perf_counter() - began:.0f} s"
    )
    for what in ("start", "end"):
        of = [one for one in found if what == "end" or one.eta.start is not None]
        if len(of) >= CLASS_MIN:
            _show(what, of, ranges_of(of, what, log.period))
    if log.starts is not None:
        print("  By a regression on these and on what is known of the situation:")
        of = with_regression(list(watcher.cases.values()), {one.job for one in found})
        for what in ("start", "end") if len(of) >= CLASS_MIN else ():
            _show(what, of, ranges_of(of, what, log.period))
        if of:
            _compare(log, of, watcher)
        print("  Without it:")
    if not log.is_unknown:
        _compare(log, found, watcher)
    milliseconds, forecasts = 1000 * watcher.cost, max(1, len(watcher.cases))
    print(
        f"  cost {milliseconds / forecasts:.1f} ms a forecast,"
        f" {milliseconds / max(1, watcher.jobs_forecast):.2f} ms a job",
        flush=True,
    )
    return found


def with_regression(cases: Sequence[Case], wanted: Container[str]) -> list[Case]:
    """The cases with the ranges of a regression, which all cases teach."""
    cases = sorted(cases, key=lambda one: one.at)
    at = np.array([one.at for one in cases])
    inputs = np.array([one.inputs for one in cases])
    classes = [class_of(one.earlier, one.waiting) for one in cases]
    ranges = [
        by_regression(at, np.array(truth), inputs, classes)
        for truth in ([one.start for one in cases], [one.end for one in cases])
    ]
    found = []
    for one, *rows in zip(cases, *ranges, strict=True):
        if one.job in wanted and np.isfinite(rows).all():
            start, end = (Range(*row.tolist()).moved(one.at) for row in rows)
            found.append(replace(one, eta=replace(one.eta, start=start, end=end)))
    return found


def _compare(log: Log, cases: Sequence[Case], watcher: Watcher) -> None:
    """The widths of starts beside those from past waits."""
    named, starts = {job.id: job for job in log.jobs}, ranges_of(cases, "start", log.period)
    ways = {way: baseline(cases, watcher, named, way) for way in ("all", "size", "area")}
    for way, one in ways.items():
        print(
            f"  past waits, {way:5}  coverage {one.held.mean():.3f}   width median"
            f" {np.median(one.width):,.0f} mean {one.width.mean():,.0f}"
        )
    best = min(ways.values(), key=lambda one: float(np.median(one.width)))
    for name, of in (("median", np.median), ("mean", np.mean)):
        low, high = starts.interval(
            lambda rows, of=of: float(of(starts.width[rows]) / of(best.width[rows]))
        )
        ratio = of(starts.width) / of(best.width)
        print(f"  {name} width of starts {ratio:.2f} ({low:.2f} to {high:.2f}) of the best")


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
            low, high = ranges.of(rows).interval(lambda at, of=held[rows]: float(of[at].mean()))
            print(
                f"         {name:28} {held[rows].mean():.3f} ({low:.3f} to {high:.3f})"
                f" of {rows.sum():,}{note}"
            )


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


def calls(count: int = 6_000, seed: int = 4) -> Log:
    """Calls of some functions by some users, whose times nobody states, on 16 slots."""
    rng = np.random.default_rng(seed)
    means, jobs, at = rng.lognormal(2.0, 1.5, 40), [], 0.0
    for number in range(count):
        function, tasks = int(rng.integers(0, 40)), int(rng.choice([1, 1, 1, 4, 20]))
        at += float(rng.exponential(means.mean() * 5.4 / 16 / LOAD))
        work = tuple(map(float, means[function] * rng.lognormal(0, 0.4, tasks)))
        phase = Phase("call", Tasks(tasks, work))
        jobs.append(
            Job(f"j{number}", (phase,), at, user=f"u{function % 10}", program=f"f{function}")
        )
    return Log("calls of unknown times", jobs, Cluster.of_slots(16), True, 6 * HOUR)


def swim(path: Path, first: int | None) -> Log:
    """A SWIM trace in blocks of 8 GiB, on as many slots as give the load."""
    plain, scale = SwimRates(), 64
    rates = SwimRates(
        plain.block_bytes * scale,
        plain.part_bytes * scale,
        plain.input_rate * scale,
        plain.shuffle_rate * scale,
        plain.output_rate * scale,
    )
    jobs = read_swim(path, rates, first=first)
    span = jobs[-1].arrival - jobs[0].arrival
    slots = max(1, ceil(sum(job.work or 0.0 for job in jobs) / span / LOAD))
    return Log(f"{path.stem} on {slots} slots", jobs, Cluster.of_slots(slots), True, HOUR)


def swf(path: Path, options: argparse.Namespace) -> Log:
    """A log of a parallel computer."""
    log = read_swf(path, first=options.first)
    jobs = [replace(job, arrival=job.arrival * options.stretch) for job in log.jobs]
    starts = None
    if options.recorded:
        lines = [line.split() for line in path.read_text("utf-8", "replace").splitlines()]
        waits = {line[0]: float(line[2]) for line in lines if line and line[0].isdigit()}
        starts = {job.id: job.arrival + max(0.0, waits[job.id]) for job in jobs}
    name = f"{path.stem}{' as recorded' if starts else ''}"
    return Log(name, jobs, log.cluster, starts=starts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="*", type=Path, help="SWF logs; made up if omitted")
    parser.add_argument("--swim", nargs="*", type=Path, default=[], help="SWIM traces")
    parser.add_argument("--unknown", action="store_true", help="calls of unknown times")
    parser.add_argument("--scheduler", default="easy", help="of the SWF logs")
    parser.add_argument("--recorded", action="store_true", help="start jobs as logged")
    parser.add_argument("--cases", type=int, default=5_000, help="forecasts of each log")
    parser.add_argument("--stretch", type=float, default=1.0, help="of times between arrivals")
    parser.add_argument("--first", type=int, help="only the first jobs of each log")
    parser.add_argument("--plot", type=Path, help="write the calibration as a picture")
    options = parser.parse_args()
    logs: list[tuple[Log, str]] = []
    logs += [(swf(path, options), options.scheduler) for path in options.logs]
    for path in options.swim:
        logs += [(swim(path, options.first), name) for name in ("fair", "flex")]
    if options.unknown:
        logs += [(calls(), name) for name in ("fair", "flex")]
    if not logs:
        logs = [(Log("made up", *made_up()), options.scheduler)]
        show_ages()
    shown = {}
    for log, scheduler in logs:
        shown[f"{log.name}, {scheduler}"] = report(log, scheduler, options.cases)
    if options.plot:
        write_plot(shown, options.plot)


AGES = (("fair", 20, 1), ("flex", 20, 1), ("easy", 20, 1), ("easy", 1, 32))
"""Schedulers, how many tasks a job has, and how many slots a task has at most."""


def show_ages() -> None:
    """How old forecasts of many jobs get."""
    print("jobs    tasks  slots to  scheduler  seconds of a processor  age, seconds")
    for jobs in (1_000, 10_000):
        for scheduler, tasks, slots in (*AGES, ("fair", 1, 1), ("easy-sjbf", 1, 32)):
            seconds = seconds_of_forecast(jobs, tasks, slots, scheduler)
            age = seconds / PROCESSOR_PART
            print(f"{jobs:6,} {tasks:6} {slots:9} {scheduler:>10} {seconds:23.2f} {age:13.1f}")


def seconds_of_forecast(count: int, tasks: int, slots: int, scheduler: str) -> float:
    """What a forecast of this many waiting jobs takes, in ten pools and on 100 slots.

    The least of three, with the part in the thread of the loop.
    """
    load_machine_code(waits=True)
    cluster, rng = Cluster.of_slots(100), np.random.default_rng(0)
    state = State(cluster, [Pool(f"p{number}") for number in range(10)])
    jobs = []
    for number in range(count):
        width = int(2 ** rng.integers(0, log2(slots) + 1))
        phase = Phase("run", Tasks(tasks, float(rng.lognormal(3, 1))), slots=width)
        who = {"user": f"u{number % 30}", "program": f"g{number % 30}"}
        jobs.append(Job(f"j{number}", (phase,), pool=f"p{number % 10}", **who))
    backend, decider = SimulatedBackend(cluster, jobs), make_scheduler(scheduler)
    forecaster = Forecaster()

    def note(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        forecaster.on_turn(state, now, events, decisions)

    turn(decider, backend, state, note, backend.wait(0.0))
    situation, seconds = None, []
    for number in range(60):
        turn(decider, backend, state, note, backend.wait(None))
        if number >= 56:
            began = time.thread_time()
            situation = situation_of(state, scheduler, "response", situation)
            forecaster.forecast(situation)
            seconds.append(time.thread_time() - began)
    return min(seconds[1:])  # The first one also makes what is kept.


def check() -> Iterator[checking.Result]:
    """Ages of forecasts, and the coverage of a made-up log."""
    for jobs, goal in ((1_000, 10.0), (10_000, 60.0)):
        for scheduler, tasks, slots in AGES:
            age = seconds_of_forecast(jobs, tasks, slots, scheduler) / PROCESSOR_PART
            name = f"age with {jobs:,} jobs, {scheduler}{', wide' if slots > 1 else ''}"
            yield checking.Result(name, age, goal, "s")
    log = Log("made up", *made_up(1_500))
    cases, _ = forecast_log(log, "easy", 400)
    for what in ("start", "end"):
        held = ranges_of(cases, what, WEEK).held
        missed = abs(float(held.mean()) - 0.8)
        name = f"coverage of {what}s, from 0.8"
        yield checking.Result(name, missed, 0.1, "of the ranges", noise=checking.TIMED)


def write_plot(shown: Mapping[str, Sequence[Case]], path: Path) -> None:
    """The part of cases whose truth is below each part of the range, beside the ideal line.

    A range has 0.1 of the cases below it, and 0.9 below its upper end; between, and at the
    median, parts are in proportion.
    """
    import altair as alt

    places, rows = np.linspace(0.0, 1.0, 41), []
    for name, cases in shown.items():
        found = ranges_of(cases, "end", WEEK)
        for at in places:
            half = np.where(at < 0.5, 2 * at, 2 * at - 1)
            low = np.where(at < 0.5, found.low, found.median)
            high = np.where(at < 0.5, found.median, found.high)
            limit = low + half * (high - low)
            part = float(np.mean(found.truth <= limit))
            rows.append({"expected": 0.1 + 0.8 * float(at), "held": part, "log": name})
    x = alt.X("expected:Q", title="part that should end before", scale=alt.Scale(nice=False))
    y = alt.Y("held:Q", title="part that ended before", scale=alt.Scale(zero=False))
    ideal = [{"expected": at, "held": at} for at in (0.1, 0.9)]
    diagonal = alt.Chart(alt.Data(values=ideal)).mark_line(color="grey", strokeDash=[4, 4])
    lines = alt.Chart(alt.Data(values=rows)).mark_line()
    chart = alt.layer(
        diagonal.encode(x, y), lines.encode(x, y, alt.Color("log:N", title=None))
    ).properties(width=380, height=380)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.save(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    checking.serve(main, check)
