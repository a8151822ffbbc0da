"""Whole runs on the simulated backend: which job gets which slots when, by scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from slotwise.backends.simulated.backend import Fault, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Launch, Preempt, Reallocate
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, JobArrived, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.scheduler import Scheduler, make_allocator, make_scheduler

Simulate = Callable[..., object]


def job(name: str, count: int, work: float = 1.0, min_share: int = 0, **rest: object) -> Job:
    """A job of one phase of equal tasks."""
    return Job(name, (Phase("map", Tasks(count, work), slots_min=min_share),), **rest)


def launches(log: Log) -> list[tuple[float, str]]:
    """The instant and the job of each launch."""
    return [
        (turn.now, decision.phase.job)
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch)
    ]


def held_at(log: Log, instant: float) -> Counter[str]:
    """Slots that each job holds just after an instant."""
    held: Counter[str] = Counter()
    for turn in log.turns:
        if turn.now > instant:
            break
        held.update(d.phase.job for d in turn.decisions if isinstance(d, Launch))
        held.subtract(e.phase.job for e in turn.events if isinstance(e, TaskFinished))
    return held


def test_fifo_serves_jobs_one_after_another(simulated: Simulate) -> None:
    """On two slots the second job begins when the first has nothing pending."""
    log = simulated(
        [job("a", 4), job("b", 2), job("c", 2)], Cluster.of_slots(2), name="fifo"
    ).log
    assert [name for _, name in launches(log)] == list("aaaabbcc")


def test_fair_lets_three_jobs_take_turns_on_one_slot(simulated: Simulate) -> None:
    """A third of a slot each: every round serves each of them once, nobody starves."""
    jobs = [job(name, 10) for name in "abc"]
    log = simulated(jobs, Cluster.of_slots(1), name="fair").log
    order = [name for _, name in launches(log)]
    for start in range(0, 30, 3):
        assert sorted(order[start : start + 3]) == ["a", "b", "c"]


def test_fair_shares_by_weight_in_the_long_run(simulated: Simulate) -> None:
    """Weights 1, 2 and 3 on 12 slots: 2, 4 and 6 of them, within a task each."""
    jobs = [job(name, 300, weight=w) for name, w in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    simulation = Simulation(seed=3, noise=0.5)
    log = simulated(jobs, Cluster.of_slots(12), name="fair", simulation=simulation).log
    shares = Counter({"a": 0.0, "b": 0.0, "c": 0.0})
    instants = [10.0 + 0.25 * step for step in range(120)]
    for instant in instants:
        for name, slots in held_at(log, instant).items():
            shares[name] += slots / len(instants)
    assert shares == pytest.approx({"a": 2.0, "b": 4.0, "c": 6.0}, rel=0.05)


def test_pools_share_by_weight_whatever_their_number_of_jobs(simulated: Simulate) -> None:
    """A pool of weight 2 with one job holds 6 of 9 slots, one with three jobs the other 3."""
    jobs = [job("a", 99, pool="p"), *(job(name, 99, pool="q") for name in "bcd")]
    pools = [Pool("p", 2.0), Pool("q")]
    log = simulated(jobs, Cluster.of_slots(9), pools, "fair").log
    assert held_at(log, 5.0) == {"a": 6, "b": 1, "c": 1, "d": 1}


@pytest.mark.parametrize("name", ["fair", "flex"])
def test_a_min_share_is_reached_with_the_first_free_slots(
    simulated: Simulate, name: str
) -> None:
    """A long job with 3 guaranteed slots comes late: it gets the first 3 free slots."""
    jobs = [
        job("a", 40, 2.0),
        job("b", 40, 2.0),
        job("late", 60, 2.0, min_share=3, arrival=3.0),
    ]
    simulation = Simulation(seed=2, noise=0.3)
    log = simulated(jobs, Cluster.of_slots(8), name=name, simulation=simulation).log
    assert [name for at, name in launches(log) if at >= 3.0][:3] == ["late"] * 3


def test_the_min_share_of_a_pool_is_reached(simulated: Simulate) -> None:
    """FLEX would serve only the short job, but the pool of the long one is guaranteed 2."""
    jobs = [job("short", 30), job("long", 30, 9.0, pool="p")]
    pools = [Pool("p", slots_min={"task": 2})]
    log = simulated(jobs, Cluster.of_slots(6), pools, "flex").log
    assert held_at(log, 0.0) == {"short": 4, "long": 2}


def test_flex_gives_a_late_small_job_the_next_free_slots(simulated: Simulate) -> None:
    """A job of 3 s comes behind one of 60 s: the next three free slots are its own."""
    jobs = [job("big", 60), job("small", 3, arrival=4.5)]
    watch = simulated(jobs, Cluster.of_slots(3), name="flex")
    assert [name for at, name in launches(watch.log) if at >= 4.5][:3] == ["small"] * 3
    assert watch.state.completed["small"] == 6.0
    fifo = simulated(jobs, Cluster.of_slots(3), name="fifo")
    assert fifo.state.completed["small"] > 20.0


def test_flex_for_the_makespan_begins_with_the_longest(simulated: Simulate) -> None:
    """Two jobs that can use one slot each, and many short tasks: the longest comes first."""
    long = Job("long", (Phase("map", Tasks(10, 1.0), slots_max=1),))
    jobs = [job("x", 10), long]
    aim = Objective("makespan", "max")
    log = simulated(jobs, Cluster.of_slots(2), name="flex", objective=aim).log
    assert {name for at, name in launches(log) if at == 0.0} == {"x", "long"}
    assert max(turn.now for turn in log.turns) == 10.0


@pytest.mark.parametrize("epoch", [0.5, 0.3, 7.0])
def test_allocations_come_at_arrivals_ends_and_epochs(
    simulated: Simulate, epoch: float
) -> None:
    """FLEX decides again when jobs come or go and at the end of each epoch in which something
    happened; every `until` is the next multiple of the epoch."""
    jobs = [job("a", 6), job("b", 4, 0.7, arrival=1.1)]
    log = simulated(jobs, Cluster.of_slots(2), name="flex", epoch_seconds=epoch).log
    decided = [
        (turn.now, decision.until)
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Reallocate)
    ]
    for now, until in decided:
        assert now < until <= now + epoch + 1e-9
        assert until / epoch == pytest.approx(round(until / epoch))
    instants = [now for now, _ in decided]
    assert {0.0, 1.1} <= set(instants)
    end = log.turns[-1].now
    for turn in log.turns:
        last, until = max(pair for pair in decided if pair[0] <= turn.now)
        assert last == turn.now or turn.now < until, "no epoch goes on beyond its end"
        if turn.events and until < end:
            assert any(turn.now <= now <= until for now in instants)


def test_a_job_whose_task_always_fails_is_given_up_and_the_others_finish(
    simulated: Simulate,
) -> None:
    """Its running attempts are stopped at once, its pending tasks never start."""

    def fault(launch: Launch) -> Fault | None:
        bad = launch.phase.job == "bad" and launch.task == 1
        return Fault(f"no luck, {launch.attempt}", after=0.1) if bad else None

    jobs = [job("bad", 50, 5.0), job("good", 6)]
    watch = simulated(
        jobs,
        Cluster.of_slots(4),
        name="fair",
        simulation=Simulation(fault=fault),
        attempts_max=3,
    )
    assert watch.state.failed == {"bad": "no luck, 3"}
    assert watch.state.completed.keys() == {"good"}
    (turn,) = (t for t in watch.log.turns if any(isinstance(d, GiveUp) for d in t.decisions))
    stopped = [d for d in turn.decisions if isinstance(d, Preempt)]
    killed = [e for t in watch.log.turns for e in t.events if isinstance(e, TaskKilled)]
    assert stopped
    assert {(d.phase, d.task, d.attempt) for d in stopped} == {
        (e.phase, e.task, e.attempt) for e in killed
    }
    assert all(event.at == turn.now for event in killed)
    assert not [at for at, name in launches(watch.log) if name == "bad" and at > turn.now]


def test_two_jobs_doomed_at_one_instant_are_both_given_up(simulated: Simulate) -> None:
    """Each failure is reported, and each job fails with its own reason."""
    simulation = Simulation(fault=lambda launch: Fault(f"{launch.phase.job} broke"))
    jobs = [job("a", 2), job("b", 2), job("c", 1, arrival=9.0)]
    watch = simulated(jobs, Cluster.of_slots(4), simulation=simulation, attempts_max=1)
    assert watch.state.failed == {name: f"{name} broke" for name in "abc"}


def test_lost_attempts_do_not_count_as_failures(simulated: Simulate) -> None:
    """A task that loses its slot ten times does not fail."""
    fault = Fault("the host died", lost=True)
    simulation = Simulation(fault=lambda launch: fault if launch.attempt <= 10 else None)
    watch = simulated([job("a", 2)], Cluster.of_slots(2), simulation=simulation, attempts_max=1)
    assert watch.state.completed.keys() == {"a"}


def test_phases_begin_when_their_predecessors_are_done(simulated: Simulate) -> None:
    """A diamond on four slots: 1 s, then two in parallel, then the end."""
    job = Job(
        "j",
        (
            Phase("top", Tasks(1, 1.0)),
            Phase("left", Tasks(1, 2.0), after=frozenset({"top"})),
            Phase("right", Tasks(1, 3.0), after=frozenset({"top"})),
            Phase("end", Tasks(1, 1.0), after=frozenset({"left", "right"})),
        ),
    )
    log = simulated([job], Cluster.of_slots(4)).log
    starts = {
        decision.phase.phase: turn.now
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch)
    }
    assert starts == {"top": 0.0, "left": 1.0, "right": 1.0, "end": 4.0}


def test_fast_hosts_take_less_time(simulated: Simulate) -> None:
    """Work 6 takes 3 s at speed 2 and 12 s at half speed."""
    cluster = Cluster(
        (Host("fast", {"task": 1}, speed=2.0), Host("slow", {"task": 1}, speed=0.5))
    )
    log = simulated([job("a", 2, 6.0)], cluster).log
    seconds = [e.seconds for t in log.turns for e in t.events if isinstance(e, TaskFinished)]
    assert seconds == [3.0, 12.0]


def test_tasks_without_work_take_no_time(simulated: Simulate) -> None:
    """A thousand empty tasks on one slot end at the instant at which they begin."""
    watch = simulated([job("a", 300, 0.0)], Cluster.of_slots(1))
    assert watch.state.completed == {"a": 0.0}


def test_an_epoch_must_be_positive() -> None:
    """Zero, negative and infinite epochs are rejected."""
    for seconds in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InputError, match="epoch_seconds is"):
            make_scheduler("fair", epoch_seconds=seconds)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: make_scheduler("faire"), "unknown scheduler 'faire'; did you mean 'fair'?"),
        (lambda: make_allocator("x"), "unknown allocator 'x'"),
        (
            lambda: make_scheduler("fair", "late"),
            "unknown assigner 'late'; known: greedy, delay",
        ),
        (
            lambda: make_scheduler("fair", waits=(1, 2)),
            "waits is a parameter of the assigners delay and flow, not of 'greedy'",
        ),
    ],
)
def test_unknown_names_are_refused(make: Callable[[], Scheduler], words: str) -> None:
    """The message lists the known names."""
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize("names", [("fifo", "fair"), ("fair", "flex"), ("flex", "fifo")])
def test_every_scheduler_meets_the_same_tasks(
    simulated: Simulate, names: Sequence[str]
) -> None:
    """The true work of a task depends on the seed, not on the order of launches."""
    jobs = [job(name, 5, 2.0) for name in "abc"]
    truths = []
    for name in names:
        log = simulated(
            jobs, Cluster.of_slots(2), name=name, simulation=Simulation(seed=4, noise=0.7)
        ).log
        truths.append(
            {
                (e.phase, e.task): e.seconds
                for t in log.turns
                for e in t.events
                if isinstance(e, TaskFinished)
            }
        )
    assert truths[0] == truths[1]
    assert len(set(truths[0].values())) == 15


def test_noise_has_mean_one(simulated: Simulate) -> None:
    """Estimates are right on average: the mean of 20,000 true times is within 2 % of them."""
    from slotwise.backends.simulated.backend import SimulatedBackend

    jobs = [job("a", 20_000, 3.0)]
    backend = SimulatedBackend(Cluster.of_slots(1), jobs, Simulation(seed=1, noise=0.5))
    drawn = backend._attempts.durations.draw(PhaseId("a", "map"))
    assert sum(drawn) / len(drawn) == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize(
    ("slots", "weights"), [(1, (2.0, 1.0)), (3, (3.0, 1.0)), (2, (1.0, 3.0))]
)
def test_fractions_of_slots_are_shared_by_weight_in_the_long_run(
    simulated: Simulate, slots: int, weights: tuple[float, float]
) -> None:
    """Two thirds of a slot are one slot for two thirds of the time."""
    jobs = [job(name, 400, weight=w) for name, w in zip("ab", weights, strict=True)]
    simulation = Simulation(seed=1, noise=0.5)
    log = simulated(jobs, Cluster.of_slots(slots), name="fair", simulation=simulation).log
    served = Counter(name for at, name in launches(log) if at < 300 / slots)
    assert served["a"] / served.total() == pytest.approx(weights[0] / sum(weights), abs=0.02)


@pytest.mark.parametrize(
    ("scheduler", "objective", "rest"),
    [
        ("fair", "response", 0.05),
        ("flex", "response", 0.05),
        ("flex", "tardy", 0.3),
        ("flex-on-fair", "tardiness", 0.3),
        ("flowflex-fast", "response", 0.3),
    ],
)
def test_a_rest_is_ten_times_as_long_as_an_allocation_is_estimated_to_take(
    scheduler: str, objective: str, rest: float
) -> None:
    """Among 100 phases: 1 ms for linear sums, 30 ms for others; the least rest is 50 ms."""
    assert allocation_of(100, scheduler, objective).earliest == pytest.approx(rest)


@pytest.mark.parametrize(("scheduler", "rest"), [("fair", 0.05), ("flex", 0.1001)])
def test_a_rest_counts_all_phases_of_the_jobs_whose_work_is_read(
    scheduler: str, rest: float
) -> None:
    """FLEX ranks whole jobs: of 1,000 phases in a chain one is ready, but all are estimated."""
    names = [f"p{number}" for number in range(1000)]
    chain = [
        Phase(name, Tasks(1, 1.0), after=(before,) if before else ())
        for before, name in zip([None, *names], names, strict=False)
    ]
    state = State(Cluster.of_slots(2))
    snapshot = state.at(0.0)
    state.apply(JobArrived(0.0, Job("graph", tuple(chain))))
    (decision,) = make_scheduler(scheduler, rest_seconds=0.05).decide(snapshot)
    assert isinstance(decision, Reallocate)
    assert decision.earliest == pytest.approx(rest)


def test_an_epoch_is_not_shorter_than_the_rest() -> None:
    """With 1,000 phases an allocation about deadlines rests for 3 seconds."""
    decision = allocation_of(1000, "flex", "tardy")
    assert decision.until == decision.earliest == pytest.approx(3.0)


def test_an_allocation_follows_a_change_of_hosts_at_once() -> None:
    """Though the last one was a moment ago: otherwise the old shares would fill the host."""
    scheduler = make_scheduler("fair", rest_seconds=0.05)
    state = State(Cluster.of_slots(2))
    state.at(0.0)
    for name in ("a", "b"):
        state.apply(JobArrived(0.0, job(name, 9)))
    (first,) = scheduler.decide(state)
    state.apply(first)
    while decisions := scheduler.decide(state):
        for decision in decisions:
            state.apply(decision)
    state.at(0.01)
    state.apply(HostAdded(0.01, Host("new", {"task": 2})))
    (second,) = scheduler.decide(state)
    assert isinstance(second, Reallocate)
    assert dict(second.slots) == {PhaseId("a", "map"): 2.0, PhaseId("b", "map"): 2.0}


def allocation_of(jobs: int, scheduler: str, objective: str) -> Reallocate:
    """The first decision when jobs of one task arrive together, with rests of 0.05 s."""
    chosen = make_scheduler(scheduler, objective=Objective(objective), rest_seconds=0.05)
    state = State(Cluster.of_slots(2))
    snapshot = state.at(0.0)
    for number in range(jobs):
        state.apply(JobArrived(0.0, job(f"{number}", 1, deadline=9.0)))
    (decision,) = chosen.decide(snapshot)
    assert isinstance(decision, Reallocate)
    return decision
