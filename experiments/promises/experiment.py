"""One draw: promises that were accepted and kept, and the mean response with and without them.

Jobs state how long they take, and state it wrong. A part of them asks for a date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from types import MappingProxyType

import numpy as np

from experiments.endings import Endings
from experiments.unknown.experiment import Misinforming
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import AcceptPromise, BreakPromise, Decision, RefusePromise
from slotwise.core.events import Event
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

SLOTS = 32

JOBS = 400

PROGRAMS = 20
"""Jobs of the same program are wrong alike."""

ASKING = 0.2
"""The part of the jobs that ask for a promise."""

SLACK = (1.5, 10.0)
"""The range of the time until the asked date, by the stated time alone, drawn by its logarithm."""

WIDEST = 16

Numbers = np.random.Generator


@dataclass(frozen=True, slots=True)
class PromisesDraw:
    """What became of the promises of one draw, and mean responses in seconds by scheduler.

    asked, accepted, kept   numbers of jobs by scheduler
    without                 the mean responses under the same schedulers without promises
    """

    errors: str
    load: float
    number: int
    asked: int
    accepted: Mapping[str, int]
    kept: Mapping[str, int]
    response: Mapping[str, float]
    without: Mapping[str, float]


def _exact(rng: Numbers, programs: np.ndarray) -> np.ndarray:
    return np.ones(len(programs))


def _spread(deviation: float) -> Callable[[Numbers, np.ndarray], np.ndarray]:
    """The true time by the stated one: half of the variance is that of the program."""

    def factors(rng: Numbers, programs: np.ndarray) -> np.ndarray:
        each = deviation / 2**0.5
        of_program = rng.normal(0, each, PROGRAMS)[programs]
        return np.exp(of_program + rng.normal(0, each, len(programs)))

    return factors


def _requested(rng: Numbers, programs: np.ndarray) -> np.ndarray:
    """Limits that users state: the true time is a random part of them."""
    return rng.uniform(0.05, 1.0, len(programs))


def _adversarial(rng: Numbers, programs: np.ndarray) -> np.ndarray:
    """Programs turn bad: honest at first, then a tenth of their true time is stated."""
    turns = rng.uniform(0.0, 1.0, PROGRAMS) < 0.25
    late = np.arange(len(programs)) > len(programs) / 2
    honest = np.exp(rng.normal(0, 0.3, len(programs)))
    return np.where(turns[programs] & late, 10.0, 1.0) * honest


ERRORS: Mapping[str, Callable[[Numbers, np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "exact": _exact,
        "spread 0.5": _spread(0.5),
        "spread 1": _spread(1.0),
        "requested": _requested,
        "adversarial": _adversarial,
    }
)
"""How the true times are drawn, by the stated ones."""


def drawn(errors: str, load: float, numbers: Sequence[int]) -> tuple[list[Job], list[Job]]:
    """The jobs of a draw as they are, and as they state it."""
    rng = np.random.default_rng(numbers)
    programs = rng.integers(PROGRAMS, size=JOBS)
    medians = np.exp(rng.normal(3.0, 1.0, PROGRAMS))[programs]
    stated = np.clip(medians * np.exp(rng.normal(0, 0.5, JOBS)), 1.0, 1000.0)
    true = stated * ERRORS[errors](rng, programs)
    widths = np.minimum(WIDEST, 2 ** rng.integers(0, 5, JOBS))
    is_gang = rng.random(JOBS) < 0.5
    gap = (true * widths).mean() / (SLOTS * load)
    arrivals = np.cumsum(rng.exponential(gap, JOBS))
    asks = rng.random(JOBS) < ASKING
    slack = np.exp(rng.uniform(*np.log(SLACK), JOBS))

    def job(number: int, work: float) -> Job:
        phase = Phase("phase", Tasks(int(widths[number]), work), gang=bool(is_gang[number]))
        arrival = float(arrivals[number])
        return Job(
            f"job-{number:03}",
            (phase,),
            arrival,
            program=f"program-{programs[number]}",
            promise=arrival + float(slack[number] * stated[number]) if asks[number] else None,
        )

    def made(works: np.ndarray) -> list[Job]:
        return [job(number, float(work)) for number, work in enumerate(works)]

    return made(true), made(stated)


class _Kept:
    """Counts the answers to jobs that ask for a promise, and the promises that are broken."""

    def __init__(self, inner: Endings) -> None:
        self._inner = inner
        self.accepted: dict[str, AcceptPromise] = {}
        self.broken: dict[str, BreakPromise] = {}

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        self._inner(now, events, decisions)
        for one in decisions:
            if isinstance(one, AcceptPromise):
                self.accepted[one.job] = one
            elif isinstance(one, BreakPromise):
                self.broken[one.job] = one


def simulated(name: str, true: Sequence[Job], stated: Sequence[Job], seed: int):
    cluster = Cluster.of_slots(SLOTS)
    backend = SimulatedBackend(cluster, true, Simulation(seed=seed))
    state = State(cluster)
    endings = Endings(state)
    kept = _Kept(endings)
    told = {job.id: job for job in stated}
    run(make_scheduler(name), Misinforming(backend, told), state, kept)
    response = fmean(endings.completed[job.id] - job.arrival for job in true)
    return response, kept, endings


def without_promises(jobs: Sequence[Job]) -> list[Job]:
    return [replace(job, promise=None) for job in jobs]
