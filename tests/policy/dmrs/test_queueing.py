"""DMRS at run time: queues of hosts, checked before each launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.endings import Endings
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Enqueue, Launch
from slotwise.core.errors import InputError
from slotwise.core.events import Event, HostJoined, HostLost, JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.loop import run
from slotwise.core.pools import Pool, Preemption
from slotwise.core.state import State
from slotwise.insight.replay import replay_log
from slotwise.policy.dmrs.algorithm import dmrs
from slotwise.policy.dmrs.jobs import related_machines
from slotwise.policy.dmrs.queueing import Queueing, by_program
from slotwise.policy.scheduler import QUEUEINGS, check_scheduler, make_scheduler
from tiers import examples

NAMES = sorted(QUEUEINGS)
works = st.lists(st.integers(1, 40).map(lambda tenth: tenth / 4), min_size=1, max_size=5)


def mapreduce(name: str, maps: list[float], reduces: list[float], **rest: object) -> Job:
    """A job of these maps and reduces."""
    phases = Phase("map", Tasks(len(maps), tuple(maps)))
    after = Phase("reduce", Tasks(len(reduces), tuple(reduces)), after=frozenset({"map"}))
    return Job(name, (phases, after), **rest)


def of_speeds(*speeds: float) -> Cluster:
    """Hosts h0, h1 and so on, of one slot each."""
    return Cluster(
        tuple(Host(f"h{number}", {"task": 1}, speed=v) for number, v in enumerate(speeds))
    )


speeds = st.lists(st.sampled_from([1.0, 0.5, 0.25, 0.7]), min_size=1, max_size=4)
clusters = speeds.map(lambda them: of_speeds(*them))


@st.composite
def jobs_at_once(draw: st.DrawFn) -> list[Job]:
    """Up to five jobs that are present from the beginning."""
    return [
        mapreduce(f"j{number}", draw(works), draw(works), weight=draw(st.integers(1, 5)))
        for number in range(draw(st.integers(1, 5)))
    ]


@settings(max_examples=examples(15, slow=1000))
@given(jobs_at_once(), clusters)
def test_with_exact_estimates_the_run_is_the_plan(
    simulated: Callable[..., object], jobs: list[Job], cluster: Cluster
) -> None:
    """If all estimates are correct, the run is the schedule of Algorithm 1, planned once."""
    planned = dmrs(related_machines(jobs, cluster, {})).completion
    watch = simulated(jobs, cluster, name="dmrs")
    assert [watch.state.completed[job.id] for job in jobs] == pytest.approx(planned.tolist())
    decided = [d for turn in watch.log.turns for d in turn.decisions]
    assert sum(isinstance(decision, Enqueue) for decision in decided) == 1


@settings(max_examples=examples(12, slow=1000))
@given(
    jobs_at_once(),
    clusters,
    st.sampled_from(NAMES),
    st.lists(st.floats(0, 30), min_size=5, max_size=5),
    st.integers(0, 5),
)
def test_all_jobs_end_despite_arrivals_and_noise(
    simulated: Callable[..., object],
    jobs: list[Job],
    cluster: Cluster,
    name: str,
    arrivals: list[float],
    seed: int,
) -> None:
    """Jobs arrive at any time, tasks take longer or shorter than expected: all are done, and
    the log explains each decision."""
    late = [
        Job(job.id, job.phases, arrival=at, weight=job.weight)
        for job, at in zip(jobs, arrivals, strict=False)
    ]
    watch = simulated(late, cluster, name=name, simulation=Simulation(seed=seed, noise=0.7))
    assert watch.state.completed.keys() == {job.id for job in jobs}
    assert replay_log(watch.log).is_identical


@pytest.mark.parametrize("name", NAMES)
def test_tasks_of_no_duration_are_queued_in_order(
    simulated: Callable[..., object], name: str
) -> None:
    """So late in time that a task of a nanosecond ends when it begins, phases one behind the
    other are planned for one instant, on any slot of a host: none is queued before the last."""
    begin = Phase("p0", Tasks(1, 1e9))
    chain = [
        Phase(f"p{n}", Tasks(1, 1e-9), after=frozenset({f"p{n - 1}"})) for n in range(1, 9)
    ]
    watch = simulated(
        [Job("a", (begin, *chain))], Cluster((Host("h", {"task": 3}),)), name=name
    )
    assert watch.state.completed == {"a": pytest.approx(1e9)}


def value(jobs: list[Job], scheduler: Queueing, stated: Cluster, true: Cluster) -> float:
    """The weighted sum of completions when hosts do not have their stated speeds."""
    state = State(stated)
    run(scheduler, SimulatedBackend(true, jobs), state, endings := Endings(state))
    return sum(job.weight * endings.completed[job.id] for job in jobs)


def test_plans_adapt_to_hosts_slower_than_stated() -> None:
    """Two of four hosts are four times slower than stated. Checks before each launch detect
    it; without checks the result is far worse; with correct speeds it is better than both."""
    jobs = [
        mapreduce(f"j{number}", [4.0] * 12, [6.0] * 3, weight=1 + number % 3)
        for number in range(8)
    ]
    stated, true = of_speeds(1, 1, 1, 1), of_speeds(1, 1, 0.25, 0.25)
    looks, blind = Queueing(by_program), Queueing(by_program, checks=False)
    known = value(jobs, looks, true, true)
    learned, unmeasured = value(jobs, looks, stated, true), value(jobs, blind, stated, true)
    assert known < learned < 0.8 * unmeasured
    assert learned < 1.25 * known


def test_the_first_task_corrects_an_estimate_that_is_ten_times_off() -> None:
    """A job states ten times its work. When another job arrives, the finished tasks correct
    this: the remainder of the first job is smaller, and it stays first."""
    wrong = mapreduce("wrong", [10.0] * 8, [10.0])
    truth = mapreduce("wrong", [1.0] * 8, [1.0])
    late = mapreduce("late", [4.0] * 3, [4.0], arrival=2.5)
    state = State(of_speeds(1, 1))
    endings, orders = Endings(state), []

    class StatingWrongWork(SimulatedBackend):
        def wait(self, until: float | None) -> list[Event]:
            return [
                JobArrived(event.at, wrong) if getattr(event, "job", None) is truth else event
                for event in super().wait(until)
            ]

    def note(now: float, events: list[Event], decisions: list[Decision]) -> None:
        orders.extend(d.jobs for d in decisions if isinstance(d, Enqueue))
        endings(now, events, decisions)

    run(Queueing(by_program), StatingWrongWork(state.cluster, [truth, late]), state, note)
    assert ("wrong", "late") in orders
    assert ("late", "wrong") not in orders
    assert endings.completed["wrong"] < endings.completed["late"]


class Story:
    """A state with events applied by hand."""

    def __init__(self, cluster: Cluster, *jobs: Job) -> None:
        self.state = State(cluster)
        for job in jobs:
            self.state.apply(JobArrived(0.0, job))

    def decide(self, name: str, now: float) -> list[Decision]:
        """All decisions at an instant, which are applied."""
        snapshot, scheduler = self.state.at(now), make_scheduler(name)
        decided: list[Decision] = []
        while decisions := scheduler.decide(snapshot):
            for decision in decisions:
                self.state.apply(decision)
                self.state.check()
            decided += decisions
        return decided


def test_a_slot_waits_for_the_reduce_that_is_planned_on_it() -> None:
    """The slow host runs the last map; the fast one waits for it, or is used meanwhile."""
    first = mapreduce("a", [4.0, 4.0], [8.0], weight=9)
    other = Job("b", (Phase("map", Tasks(3, 1.0)),))
    for name, begins in (("dmrs", []), ("dmrs-best", ["b"])):
        format_traceback = Story(of_speeds(1.0, 0.6), first, other)
        format_traceback.decide(name, 0.0)
        format_traceback.state.at(4.0)
        format_traceback.state.apply(TaskFinished(4.0, PhaseId("a", "map"), 0, 1, 4.0))
        decided = format_traceback.decide(name, 4.0)
        assert [d.phase.job for d in decided if isinstance(d, Launch)] == begins


def test_queued_tasks_leave_an_unresponsive_host_and_running_ones_stay() -> None:
    """Its queue moves immediately; its running task stays. When it is back, it gets tasks."""
    format_traceback = Story(of_speeds(1.0, 1.0), Job("a", (Phase("map", Tasks(8, 1.0)),)))
    format_traceback.decide("dmrs", 0.0)
    format_traceback.state.apply(HostLost(0.5, "h1"))
    (enqueued,) = format_traceback.decide("dmrs", 0.5)
    assert isinstance(enqueued, Enqueue)
    assert {host: len(queue) for host, queue in enqueued.queues.items()} == {"h0": 6}
    format_traceback.state.apply(HostJoined(0.75, "h1"))
    (enqueued,) = format_traceback.decide("dmrs", 0.75)
    assert isinstance(enqueued, Enqueue)
    assert {host: len(queue) for host, queue in enqueued.queues.items()} == {"h0": 3, "h1": 3}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_queued_while_all_hosts_are_unresponsive(name: str) -> None:
    """When one host is back, it gets all tasks."""
    format_traceback = Story(of_speeds(1.0), Job("a", (Phase("map", Tasks(2, 1.0)),)))
    format_traceback.state.apply(HostLost(0.0, "h0"))
    assert format_traceback.decide(name, 0.0) == [Enqueue({})]
    format_traceback.state.apply(HostJoined(9.0, "h0"))
    decided = format_traceback.decide(name, 9.0)
    assert [type(decision) for decision in decided] == [Enqueue, Launch]


def test_workloads_that_queues_cannot_serve_are_refused() -> None:
    """Each with place and remedy, including invalid assigners and budgets."""
    plain = Job("a", (Phase("map", Tasks(2, 1.0)),))
    cluster = of_speeds(1.0)
    kinds = Cluster((Host("h", {"map": 1, "reduce": 1}),))
    capped = Job("a", (Phase("map", Tasks(2, 1.0), slots_max=1),))
    check = partial(check_scheduler, "dmrs")
    for bad, stated in (
        (lambda: check([plain], kinds, {}), "slots of one kind"),
        (lambda: check([capped], cluster, {}), "job 'a', phase 'map': dmrs keeps no min"),
        (
            lambda: check([plain], cluster, {"p": Pool("p", slots_max={"task": 1})}),
            "pool 'p': dmrs keeps no shares of pools",
        ),
        (
            lambda: check([plain], cluster, {"p": Pool("p", preemption=Preemption(1.0))}),
            "pool 'p': dmrs takes no slots back; leave out preemption",
        ),
        (lambda: make_scheduler("dmrs", "delay"), "leave out the assigner 'delay'"),
        (lambda: make_scheduler("dmrs-best", budget_seconds=-1), "budget_seconds is -1"),
        (lambda: make_scheduler("dmrs", epoch_seconds=float("nan")), "epoch_seconds is nan"),
    ):
        with pytest.raises(InputError, match=stated):
            bad()
    check_scheduler("fair", [capped], kinds, {})
