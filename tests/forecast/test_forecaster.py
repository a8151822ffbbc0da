"""Forecasts of a whole queue, and what is learned from how they turn out."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import inf, isfinite

import pytest

from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision
from slotwise.core.events import Event, JobArrived, SchedulerChanged
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run, turn
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.state import State
from slotwise.forecast.arrivals import PastArrivals
from slotwise.forecast.eta import Eta
from slotwise.forecast.forecaster import Forecaster
from slotwise.forecast.situation import (
    Change,
    Situation,
    changed,
    job_now,
    pools_now,
    situation_of,
)
from slotwise.policy.scheduler import make_scheduler

CLUSTER = Cluster.of_slots(4)


class Watched:
    """Forecasts after each arrival, and when jobs really end."""

    def __init__(self, scheduler: str = "fair", every: int = 1) -> None:
        self.state, self.forecaster = State(CLUSTER), Forecaster()
        self.scheduler, self._every, self._arrived = scheduler, every, 0
        self.first: dict[str, Eta] = {}
        self.starts: dict[str, float] = {}
        self.ends: dict[str, float] = {}

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Note a turn."""
        self.forecaster.on_turn(self.state, now, events, decisions)
        self.ends.update(self.state.completed)
        arrived = [event.job.id for event in events if isinstance(event, JobArrived)]
        self._arrived += len(arrived)
        if arrived and self._arrived % self._every == 0:
            found = self.forecaster.forecast(self.situation())
            self.first.update({job: found[job] for job in arrived if job in found})

    def situation(self) -> Situation:
        """The present state."""
        return situation_of(self.state, self.scheduler, "response")

    def run(self, jobs: Sequence[Job], *, hide_work: bool = False) -> None:
        """Simulate all jobs."""
        backend = SimulatedBackend(CLUSTER, jobs, Simulation(hide_work=hide_work))
        run(make_scheduler(self.scheduler), backend, self.state, self)


def stream(count: int, seed: int = 1) -> list[Job]:
    """Jobs of ten users whose times are a constant factor off, more or less."""
    rng, at, jobs = random.Random(seed), 0.0, []
    wrong = [rng.lognormvariate(0, 0.8) for _ in range(10)]
    for number in range(count):
        user = rng.randrange(10)
        at += rng.expovariate(1 / 5.0)
        seconds = 16.0 * wrong[user] * rng.lognormvariate(0, 0.3)
        phase = Phase("run", Tasks(1, seconds))
        jobs.append(
            Job(f"j{number}", (phase,), at, user=f"u{user}", program=f"p{user}",
                time_requested=16.0)
        )  # fmt: skip
    return jobs


@pytest.mark.parametrize("scheduler", ["fair", pytest.param("easy", marks=pytest.mark.slow)])
def test_ranges_hold_what_happens(scheduler: str) -> None:
    """Ranges hold what happens."""
    watched = Watched(scheduler, every=4)
    watched.run(stream(400))
    later = [f"j{number}" for number in range(150, 400) if f"j{number}" in watched.first]
    held = [
        watched.first[job].end.low <= watched.ends[job] <= watched.first[job].end.high
        for job in later
    ]
    assert len(held) > 50
    assert sum(held) / len(held) >= 0.7
    assert watched.first["j399"].past > 30


def estimated(job: Job, way: str) -> Job:
    """The same job with another estimate, or none."""
    (phase,) = job.phases
    seconds = phase.tasks.work
    assert isinstance(seconds, float)
    estimates = {
        "exact": seconds,
        "inverted": 300.0 / seconds,
        "constant": 1e-3,
        "random": 0.1 * 3 ** (int(job.id[1:]) * 7 % 9),
    }
    return replace(job, time_requested=estimates.get(way))


@cache
def coverage_and_width(way: str) -> tuple[float, float]:
    """Of forecasts of ends with these estimates: the part that held, and the median width."""
    watched = Watched("fair", every=3)
    watched.run([estimated(job, way) for job in stream(360)], hide_work=way == "missing")
    first = {job: eta for job, eta in watched.first.items() if int(job[1:]) > 120}
    held = [eta.end.low <= watched.ends[job] <= eta.end.high for job, eta in first.items()]
    widths = sorted(eta.end.width for eta in first.values())
    return sum(held) / len(held), widths[len(widths) // 2]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["missing", "inverted", "constant", "random"])
def test_wrong_and_missing_estimates_widen_ranges(way: str) -> None:
    """Ranges still hold what happens, and are wider than those from exact estimates."""
    coverage, width = coverage_and_width(way)
    assert coverage >= 0.65
    assert width > coverage_and_width("exact")[1]


def test_a_job_that_has_begun_has_no_start() -> None:
    """A job that has begun has no start."""
    watched = Watched()
    jobs = [Job(f"j{n}", (Phase("run", Tasks(1, 10.0)),)) for n in range(6)]
    watched.run(jobs)
    assert [watched.first[f"j{n}"].start is None for n in range(6)] == [True] * 4 + [False] * 2


def test_decisions_are_the_same_with_and_without_forecasts() -> None:
    """Decisions are the same with and without forecasts."""
    jobs, turns = stream(60), []
    for watched in (Watched("flex"), None):
        seen: list[tuple[float, tuple[Decision, ...]]] = []
        state = watched.state if watched else State(CLUSTER)

        def record(
            now: float,
            events: Sequence[Event],
            decisions: Sequence[Decision],
            seen: list[tuple[float, tuple[Decision, ...]]] = seen,
            watched: Watched | None = watched,
        ) -> None:
            """Record."""
            seen.append((now, tuple(decisions)))
            if watched:
                watched(now, events, decisions)

        run(make_scheduler("flex"), SimulatedBackend(CLUSTER, jobs), state, record)
        turns.append(seen)
    assert turns[0] == turns[1]


def test_errors_of_another_scheduler_count_until_there_are_others() -> None:
    """Forecasts say how many of the errors that correct them these are."""
    watched = Watched()
    watched.run(stream(60))
    forecaster = watched.forecaster
    forecaster.learn()
    noted = forecaster.ends.noted
    assert noted > 30
    forecaster.on_turn(watched.state, 1e6, [SchedulerChanged(1e6, "fifo")], [])
    forecaster.learn()
    assert (forecaster.ends.noted, forecaster.ends.of_another) == (0, noted)
    _, situation = waiting_situation()
    found = forecaster.forecast(replace(situation, scheduler="fifo"))
    assert [(one.past, one.of_another) for one in found.values()] == [
        (forecaster.ends_begun.of_another,) * 2
    ] * 2


def test_what_was_learned_is_kept() -> None:
    """What was learned is kept."""
    watched = Watched()
    watched.run(stream(60))
    again = Forecaster()
    again.restore(json.loads(json.dumps(watched.forecaster.plain())))
    assert again.ends.noted == watched.forecaster.ends.noted
    assert again.past.plain() == watched.forecaster.past.plain()


@pytest.mark.parametrize("plain", [{}, [], {"scheduler": "fair", "starts": 3}])
def test_what_is_no_record_of_forecasts_is_refused(plain: object) -> None:
    """What is no record of forecasts is refused."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        Forecaster().restore(plain)  # type: ignore[arg-type]


def test_a_situation_shares_the_jobs_that_have_not_changed() -> None:
    """New objects for thousands of waiting jobs cost more than what is read."""
    state = State(CLUSTER)
    jobs = [Job(f"j{n}", (Phase("run", Tasks(1, 10.0 + n)),)) for n in range(6)]
    backend, scheduler = SimulatedBackend(CLUSTER, jobs), make_scheduler("fair")
    situations: list[Situation] = []
    for _ in range(2):
        turn(scheduler, backend, state, lambda *_: None, backend.wait(None))
        before = situations[-1] if situations else None
        situations.append(situation_of(state, "fair", "response", before))
    first, second = ({job.id: job for job in one.jobs} for one in situations)
    assert {name for name in second if second[name] is first[name]} == {"j1", "j2", "j3", "j5"}
    assert second["j4"].began == 10.0
    assert situations[1] == situation_of(state, "fair", "response")


def test_forecasts_are_a_mapping_of_the_jobs() -> None:
    """Each forecast is made when it is asked for."""
    _, situation = waiting_situation()
    found = Forecaster().forecast(situation)
    assert (list(found), len(found), "a" in found, "x" in found) == (["a", "b"], 2, True, False)
    assert found["a"].job == "a"
    assert found.get("x") is None


# What if.


def waiting_situation() -> tuple[State, Situation]:
    """Two jobs of eight tasks each in two pools, on four slots."""
    state, jobs = State(CLUSTER, [Pool("a"), Pool("b")]), []
    for pool in "ab":
        phase = Phase("run", Tasks(8, 10.0))
        jobs.append(Job(pool, (phase,), pool=pool, deadline=45.0, time_requested=10.0))
    backend = SimulatedBackend(CLUSTER, jobs)
    turn(make_scheduler("fair"), backend, state, lambda *_: None, backend.wait(0.0))
    return state, situation_of(state, "fair", "response")


def test_another_job_delays_the_others() -> None:
    """Another job delays the others."""
    state, situation = waiting_situation()
    new = Job("new", (Phase("run", Tasks(8, 10.0)),), pool="a", deadline=1.0)
    other = changed(situation, Change(jobs=(new,)), state.cluster, state.pools)
    found = Forecaster().what_if(situation, other)
    first, *rest = found.jobs
    assert (first.job, first.before, first.late_after) == ("new", None, 1.0)
    assert {one.job for one in rest} >= {"a"}
    assert all(one.after.end.median >= one.before.end.median for one in rest)  # type: ignore[union-attr]
    before, after = found.measures["end of the last job"]
    assert after > before


def test_a_larger_weight_or_another_host_lets_a_job_end_sooner() -> None:
    """A larger weight or another host lets a job end sooner."""
    state, situation = waiting_situation()
    heavy = Change(pools=(Pool("a", weight=9.0), Pool("b")))
    more = Change(hosts=(Host("more", {"task": 4}),))
    for change, sooner in ((heavy, "a"), (more, "b")):
        other = changed(situation, change, state.cluster, state.pools)
        found = {one.job: one for one in Forecaster().what_if(situation, other).jobs}
        one = found[sooner]
        assert one.after.end.median < one.before.end.median  # type: ignore[union-attr]


def test_jobs_that_never_end_do_not_count_in_the_measures() -> None:
    """Such as held ones, or those of a closed pool."""
    state, situation = waiting_situation()
    closed = Change(pools=(Pool("a", weight=0.0), Pool("b")))
    other = changed(situation, closed, state.cluster, state.pools)
    found = Forecaster().what_if(situation, other)
    assert all(isfinite(value) for pair in found.measures.values() for value in pair)


def test_without_hosts_nothing_ends() -> None:
    """Without hosts nothing ends."""
    state, situation = waiting_situation()
    host = situation.hosts[0].name
    other = changed(situation, Change(without_hosts=(host,)), state.cluster, state.pools)
    found = Forecaster().what_if(situation, other)
    assert all(one.after.end.high == inf for one in found.jobs if one.after)


def test_jobs_of_many_phases_and_thousands_of_pools_cost_little() -> None:
    """What is read and learned is linear in phases and pools, not quadratic."""
    count = 6_000
    chain = [Phase("p0", Tasks(1, 1.0))]
    chain += [
        Phase(f"p{k}", Tasks(1, 1.0), after=frozenset({f"p{k - 1}"})) for k in range(1, count)
    ]
    pools = [Pool(f"q{k}") for k in range(count)]
    hosts, tree = CLUSTER.hosts, PoolTree(pools)
    large, arrivals = job_now(Job("large", tuple(chain)), CLUSTER), PastArrivals()
    began = time.thread_time()
    arrivals.note(large)
    pools_now(tree, list(tree), hosts)
    assert time.thread_time() - began < 2.0


def test_arrivals_forget_the_requests_of_those_they_forget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each job may request another amount of memory, without end."""
    monkeypatch.setattr("slotwise.forecast.arrivals.KEPT", 50)
    host = Host("h", {"task": 4}, resources={"memory": 1 << 30})
    arrivals = PastArrivals()
    for number in range(1_000):
        phase = Phase("run", Tasks(1, 1.0), resources={"memory": 1 + number})
        job = Job(f"j{number}", (phase,), float(number), pool=f"p{number}")
        arrivals.note(job_now(job, Cluster((host,))))
    assert max(len(arrivals.requests), len(arrivals.pools)) < 500
    last = list(arrivals.requests)[arrivals.ints["takes"][arrivals._count - 1]]
    assert dict(last.pairs)["memory"] == 1_000
    large = Job("large", tuple(Phase(f"p{k}", Tasks(1, 1.0)) for k in range(500)))
    for _ in range(2):  # A job of more phases than are kept.
        arrivals.note(job_now(large, Cluster((host,))))
