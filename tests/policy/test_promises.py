"""Promises of dates: which are accepted, how they are protected, and when they are broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import run_checked
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import (
    AcceptPromise,
    BreakPromise,
    GuaranteePromise,
    Launch,
    Preempt,
    RefusePromise,
)
from slotwise.core.events import HostRemoved, JobArrived, JobChanged, PoolsChanged
from slotwise.core.job import Block, Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.core.promises import Lasting
from slotwise.core.state import State
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.policy.fair import Fair
from slotwise.policy.promises import PromisedJob, answer, move_refused, pool_shares
from tiers import examples

FOUR = Cluster.of_slots(4)


def job(
    name: str,
    count: int,
    seconds: float,
    arrival: float = 0.0,
    promise: float | None = None,
    *,
    gang: bool = False,
    **more: object,
) -> Job:
    """A job of one phase of equal tasks."""
    phase = Phase("p", Tasks(count, seconds), gang=gang)
    return Job(name, (phase,), arrival, promise=promise, **more)


def answers(log: Log) -> dict[str, AcceptPromise | RefusePromise]:
    """The answer to each job that asked for a promise."""
    found = [d for turn in log.turns for d in turn.decisions]
    return {d.job: d for d in found if isinstance(d, AcceptPromise | RefusePromise)}


def broken(log: Log) -> dict[str, str]:
    """The causes of broken promises, by job."""
    found = [d for turn in log.turns for d in turn.decisions]
    return {d.job: d.cause for d in found if isinstance(d, BreakPromise)}


Runs = Callable[..., object]


@pytest.mark.parametrize("name", ["fair", "flex", "flex-on-fair"])
@pytest.mark.parametrize("assigner", ["greedy", "delay", "flow"])
def test_a_promise_is_kept_against_a_stream_of_others(
    simulated: Runs, name: str, assigner: str
) -> None:
    """Without it the job is late, since it is large and of the least weight."""
    stream = [job(f"s{n}", 4, 3.0, arrival=0.1 * n, weight=9.0) for n in range(12)]
    plain = job("wide", 4, 5.0, 1.0, weight=0.01)
    asking = job("wide", 4, 5.0, 1.0, promise=20.0, weight=0.01)
    options = {"name": name, "assigner": assigner}
    assert simulated([*stream, plain], FOUR, **options).state.completed["wide"] > 20
    watch = simulated([*stream, asking], FOUR, **options)
    given = answers(watch.log)["wide"]
    assert given == AcceptPromise("wide", 20.0, "task", 4, 15.0, 20.0, {"p": 1.0})
    assert watch.state.completed["wide"] <= 20
    assert broken(watch.log) == {}
    assert replay_log(watch.log).is_identical


def test_short_tasks_run_beside_a_reservation(simulated: Runs) -> None:
    """Long ones wait that would run into it; short ones fill the slots until then."""
    jobs = [
        job("running", 2, 6.0),
        job("brief", 2, 1.5),
        job("promised", 4, 5.0, 1.0, promise=11.0, weight=0.01),
        job("long", 2, 30.0, 1.2),
        job("short", 2, 2.0, 1.2),
    ]
    watch = simulated(jobs, FOUR)
    assert answers(watch.log)["promised"].begins == 6.0
    ends = watch.state.completed
    assert ends["short"] <= 6.0 < ends["promised"] <= 11.0 < ends["long"] - 27.0


def test_a_refusal_says_what_could_be_promised(simulated: Runs) -> None:
    """The date that it names is accepted if it is asked for at once."""
    jobs = [job("running", 4, 10.0), job("first", 2, 4.0, 1.0, promise=14.0)]
    refused = simulated([*jobs, job("asks", 4, 3.0, 2.0, promise=13.5)], FOUR)
    earliest = answers(refused.log)["asks"]
    assert earliest == RefusePromise(
        "asks", 13.5, "earlier promises and what runs leave no room", 16.0
    )
    accepted = simulated([*jobs, job("asks", 4, 3.0, 2.0, promise=16.0)], FOUR)
    assert isinstance(answers(accepted.log)["asks"], AcceptPromise)
    assert broken(accepted.log) == {}
    assert accepted.state.completed["asks"] <= 16


def test_a_refusal_for_the_length_of_the_job_says_that(simulated: Runs) -> None:
    """Though all slots are free: it takes that long, or may, by how wrong others were."""
    found = answer(State(FOUR), job("j", 6, 5.0, promise=9.0), Fair())
    reason = "it takes 10 s on the 4 slots that it may reserve"
    assert found == RefusePromise("j", 9.0, reason, 10.0)
    wrong = [job(f"wrong{n}", 1, 1.0) for n in range(9)]
    late = job("j", 1, 5.0, 50.0, promise=55.5)
    watch = simulated([*wrong, late], FOUR, simulation=Simulation(noise=1.0, seed=6))
    assert "as estimates have been wrong so far" in answers(watch.log)["j"].reason


def test_a_job_moves_only_where_its_user_may_have_its_promise() -> None:
    """The quota of the other pool counts, unless the promise is lost there."""
    limits = {"promises_max_per_user": {"*": 1}}
    pools = [Pool("a", **limits), Pool("b", **limits), Pool("c"), Pool("d", slots_max=0)]
    state = State(FOUR, pools)
    state.at(0.0)
    for pool in "ab":
        asking = job(pool, 1, 5.0, promise=90.0, pool=pool, user="ann")
        found = answer(state, asking, Fair())
        state.apply(JobArrived(0.0, asking))
        state.apply(found)
    refused = {pool: move_refused(state, replace(asking, pool=pool)) for pool in "acd"}
    assert "in pool 'a', as many as it allows (promises_max_per_user)" in refused["a"]
    assert (refused["c"], refused["d"]) == ("", "")


def test_a_promise_that_is_due_does_not_wait_for_its_input(simulated: Runs) -> None:
    """It takes a slot anywhere, though it would wait longer for one beside its input."""
    hosts = Cluster((Host("a", {"task": 1}), Host("b", {"task": 1})))
    blocks = [Block(frozenset({"a"}))]
    busy, asking = (
        Job(name, (Phase("p", Tasks(1, seconds, blocks)),), arrival, promise=promise)
        for name, seconds, arrival, promise in (("busy", 99.0, 0.0, None), ("j", 5.0, 1.0, 9.0))
    )
    watch = simulated([busy, asking], hosts, assigner="delay", waits=(50.0, 50.0))
    assert watch.state.completed["j"] == 9.0
    assert broken(watch.log) == {}


def test_a_promise_claims_the_share_of_its_pool(simulated: Runs) -> None:
    """Not more, though all slots are idle: two of four slots, and nothing of it twice."""
    pools = [Pool("a"), Pool("b")]
    jobs = [
        job("one", 4, 3.0, promise=5.9, pool="a"),
        job("two", 4, 3.0, promise=6.0, pool="a"),
        job("three", 2, 1.0, promise=6.9, pool="a"),
        job("other", 2, 1.0, promise=7.0, pool="b"),
    ]
    watch = simulated(jobs, FOUR, pools)
    found = answers(watch.log)
    assert found["one"].earliest == 6.0
    assert (found["two"].slots, found["two"].begins) == (2, 0.0)
    assert found["three"].earliest == 7.0
    assert found["other"].slots == 2


def test_shares_of_nested_pools() -> None:
    """By weight on each level, min shares kept, one slot at least."""
    pools = State(
        Cluster.of_slots(20),
        [
            Pool("lab", weight=3.0),
            Pool("x", parent="lab", weight=2.0),
            Pool("y", parent="lab", slots_min=9),
            Pool("rest", slots_max=2),
            Pool("tiny", weight=0.01),
        ],
    ).pools
    assert pool_shares(pools, "x", "task", 20) == {"lab": 17, "x": 8}
    assert pool_shares(pools, "rest", "task", 20) == {"rest": 2}
    assert pool_shares(pools, "tiny", "task", 20) == {"tiny": 1}


def test_min_shares_come_first(simulated: Runs) -> None:
    """A pool takes its min share from a promise, which is reported as broken by that."""
    pools = [Pool("a"), Pool("least", slots_min=2)]
    jobs = [
        job("running", 2, 9.0, pool="a"),
        job("short", 2, 5.0, pool="a"),
        job("promised", 2, 4.0, 1.0, promise=9.5, pool="a"),
        job("guaranteed", 2, 20.0, 2.0, pool="least"),
    ]
    watch = simulated(jobs, FOUR, pools)
    assert isinstance(answers(watch.log)["promised"], AcceptPromise)
    assert watch.state.completed["guaranteed"] == 25.0
    assert broken(watch.log) == {"promised": "min_shares"}


@pytest.mark.parametrize(
    ("limit", "accepted"), [({}, 10), ({"ann": 2, "*": 1}, 2), ({"*": 1}, 1)]
)
def test_each_user_has_a_quota(simulated: Runs, limit: dict[str, int], accepted: int) -> None:
    """Of a pool with those below it, or of all pools; jobs of nobody have none."""
    pools = [Pool("all", promises_max_per_user=limit), Pool("in", parent="all")]
    jobs = [
        job(f"{user}{n}", 1, 1.0, promise=90.0, pool="in", user=user or None)
        for user in ("ann", "")
        for n in range(12)
    ]
    found = answers(simulated(jobs, FOUR, pools).log)
    of_ann = [one for name, one in found.items() if name.startswith("ann")]
    assert sum(isinstance(one, AcceptPromise) for one in of_ann) == accepted
    assert sum(isinstance(one, AcceptPromise) for one in found.values()) == accepted + 12
    refused = [one for one in of_ann if isinstance(one, RefusePromise)]
    assert all("promises_max_per_user" in one.reason for one in refused)


@pytest.mark.parametrize(
    ("asking", "reason"),
    [
        (Job("j", (Phase("p", Tasks(1)),), promise=9.0), "is not known; state it"),
        (
            Job("j", (Phase("p", Tasks(1, 1.0), resources={"disk": 1}),), promise=9.0),
            "slots only",
        ),
        (
            Job("j", (Phase("p", Tasks(1, 1.0), slots=2),), promise=9.0),
            "not be free on one host",
        ),
        (
            Job("j", (Phase("p", Tasks(1, 1.0), hosts={"a"}),), promise=9.0),
            "only on some hosts",
        ),
        (
            Job("j", (Phase("p", Tasks(1, 1.0)),), promise=9.0, after={"i"}),
            "waits for other jobs",
        ),
    ],
)
def test_what_cannot_be_promised_is_refused(simulated: Runs, asking: Job, reason: str) -> None:
    """With the reason, and no date. The job runs like any other."""
    hosts = (Host("a", {"task": 2}, resources={"disk": 1}), Host("b", {"task": 2}))
    first = job("i", 1, 1.0)
    hides = asking.phases[0].tasks.work is None
    jobs = [first, Job("j", (Phase("p", Tasks(1, 1.0)),), promise=9.0) if hides else asking]
    watch = simulated(jobs, Cluster(hosts), simulation=Simulation(hide_work=hides))
    found = answers(watch.log)["j"]
    assert isinstance(found, RefusePromise)
    assert reason in found.reason
    assert found.earliest is None
    assert "j" in watch.state.completed


def test_other_schedulers_keep_none(simulated: Runs) -> None:
    """FIFO refuses, and names those that do."""
    watch = simulated([job("j", 1, 1.0, promise=9.0)], FOUR, name="fifo")
    assert "take flex or fair" in answers(watch.log)["j"].reason


def test_unknown_work_counts_as_its_time_limit() -> None:
    """An attempt is stopped then, so it takes no longer."""
    asking = Job("j", (Phase("p", Tasks(3)),), promise=40.0, time_limit=12.0)
    found = answer(State(Cluster.of_slots(2)), asking, Fair())
    assert isinstance(found, AcceptPromise)
    assert (found.begins, found.slots) == (16.0, 2)


def test_a_lost_host_is_the_cause(simulated: Runs) -> None:
    """Of a promise that the other hosts cannot keep."""
    hosts = Cluster((Host("a", {"task": 2}), Host("b", {"task": 2})))
    leaves = Simulation(changes=(HostRemoved(3.0, "b"),))
    watch = simulated([job("j", 4, 5.0, promise=6.0)], hosts, simulation=leaves)
    assert broken(watch.log) == {"j": "hosts"}
    assert "j" in watch.state.completed


def test_wrong_estimates_are_the_cause(simulated: Runs) -> None:
    """A job takes longer than it states. The metrics count what became of promises."""
    wrong = Simulation(noise=1.0, seed=6)
    jobs = [job("late", 1, 5.0, promise=6.0), job("kept", 1, 1.0, promise=90.0)]
    watch = simulated([*jobs, job("asks", 9, 3.0, 0.5, promise=2.0)], FOUR, simulation=wrong)
    assert watch.state.completed["late"] > 6
    assert broken(watch.log) == {"late": "estimates"}
    metrics = MetricsCollector.of_log(watch.log).outcome().metrics
    counts = {"asked": 3, "accepted": 2, "refused": 1, "kept": 1, "broken": 1}
    assert metrics["promises"] == {**counts, "causes": {"estimates": 1}}


def test_replaced_pools_are_the_cause() -> None:
    """The pools of the acceptance are no more."""
    state = State(FOUR, [Pool("a")])
    asking = job("j", 4, 5.0, promise=6.0, pool="a")
    found = answer(state, asking, Fair())
    state.at(0.0)
    state.apply(JobArrived(0.0, asking))
    state.apply(found)
    state.apply(PoolsChanged(1.0, (Pool("a", weight=2),)))
    assert state.promises.open["j"].disturbed == {"pools"}


def test_a_pool_takes_slots_back_for_a_promise(simulated: Runs) -> None:
    """What is due counts as a min share: where these take back, tasks are stopped for it.

    Here the host is slower than believed, so that what runs is there for longer.
    """
    pools = [Pool("a", preemption=Preemption(least_after=0.0)), Pool("b")]
    jobs = [job("slow", 4, 2.0, pool="b"), job("j", 2, 4.0, 0.5, promise=10.0, pool="a")]
    slow = Simulation(speeds={"cluster": 0.1})
    watch = simulated(jobs, FOUR, pools, simulation=slow)
    stops = [(t.now, d) for t in watch.log.turns for d in t.decisions if isinstance(d, Preempt)]
    assert [(at, one.phase.job, one.pool) for at, one in stops] == 2 * [(6.0, "slow", "a")]


def test_what_is_promised_is_not_stopped(simulated: Runs) -> None:
    """A pool that lacks its share takes no slots of another one that are promised there."""
    pools = [Pool("a"), Pool("b", preemption=Preemption(fair_after=0.0, fraction=1.0))]
    jobs = [
        job("promised", 2, 6.0, promise=9.0, pool="a"),
        job("plain", 2, 6.0, 0.1, pool="a"),
        job("b", 2, 5.0, 1.0, pool="b"),
    ]
    watch = simulated(jobs, FOUR, pools)
    stopped = [d for t in watch.log.turns for d in t.decisions if isinstance(d, Preempt)]
    assert [one.phase.job for one in stopped] == ["plain"]
    assert broken(watch.log) == {}


def test_a_promise_made_before_arrival_stands(simulated: Runs) -> None:
    """After a restart a job keeps its promise, even if it cannot be kept any more."""
    jobs = [job("running", 4, 10.0), job("j", 4, 5.0, 1.0, promise=8.0, promised=True)]
    watch = simulated(jobs, FOUR)
    assert isinstance(answers(watch.log)["j"], AcceptPromise)
    assert broken(watch.log) == {"j": "estimates"}


def test_nothing_changes_without_promises(simulated: Runs) -> None:
    """A refused promise leaves all other decisions as they are."""
    jobs = [job(f"j{n}", 1 + n % 3, 1.0 + n % 5, 0.5 * n) for n in range(20)]
    asking = [*jobs[:-1], job("j19", 2, 5.0, 9.5, promise=9.6)]
    plain, refused = simulated(jobs, FOUR).log, simulated(asking, FOUR).log
    others = [
        [d for t in log.turns for d in t.decisions if not isinstance(d, RefusePromise)]
        for log in (plain, refused)
    ]
    assert others[0] == others[1]


# Against brute force: reservations that are rectangles of whole seconds.


@st.composite
def asked(draw: st.DrawFn) -> list[tuple[int, int, int, bool]]:
    """Tasks, their seconds, the date, and whether they start together."""
    one = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 12), st.booleans())
    return draw(st.lists(one, min_size=1, max_size=6))


@given(asked(), st.integers(1, 4))
@settings(max_examples=examples(150, slow=3000))
def test_acceptance_is_that_of_a_search(
    requests: Sequence[tuple[int, int, int, bool]], slots: int
) -> None:
    """What fits is accepted, what does not is refused, and the refusal's date is the first."""
    state = State(Cluster.of_slots(slots))
    placed: list[PromisedJob] = []
    for number, (count, seconds, due, is_gang) in enumerate(requests):
        is_gang = is_gang and 1 < count <= slots
        asking = job(f"j{number}", count, float(seconds), promise=float(due), gang=is_gang)
        found = answer(state, asking, Fair(), placed)
        ends = _ends(placed, count, seconds, is_gang, slots)
        if isinstance(found, AcceptPromise):
            assert min(ends) <= due
            needed = -(-count // found.slots) * seconds
            assert found.until - found.begins == needed
            placed.append(PromisedJob(asking, found))
            assert all(_reserved(placed, at) <= slots for at in range(60))
        else:
            assert found.earliest == min(ends) > due


def _reserved(placed: Sequence[PromisedJob], at: int) -> int:
    return sum(p.promise.slots for p in placed if p.promise.begins <= at < p.promise.until)


def _ends(
    placed: Sequence[PromisedJob], count: int, seconds: int, is_gang: bool, slots: int
) -> list[int]:
    """The ends of all reservations that fit beside the earlier ones."""
    widths = [count] if is_gang else range(1, slots + 1)
    return [
        begin + needed
        for begin, width in product(range(45), widths)
        if (needed := -(-count // width) * seconds)
        and all(_reserved(placed, at) + width <= slots for at in range(begin, begin + needed))
    ]


# Random runs with exact estimates.


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Job], Cluster, list[Pool]]:
    """Jobs that ask for promises or not, of up to three phases, in pools without min shares."""
    pools = draw(st.sampled_from([[], [Pool("a", weight=2, slots_max=3), Pool("b")]]))
    hosts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    cluster = Cluster(tuple(Host(f"h{n}", {"task": size}) for n, size in enumerate(hosts)))
    seconds = st.sampled_from([0.5, 1.0, 2.5, 7.0])
    jobs, arrival = [], 0.0
    for number in range(draw(st.integers(2, 10))):
        arrival += draw(st.sampled_from([0.0, 0.5, 3.0]))
        count = draw(st.integers(1, 5))
        works = draw(seconds | st.tuples(*[seconds] * count))
        phases = [Phase("p", Tasks(count, works))]
        if draw(st.booleans()):
            phases.append(Phase("q", Tasks(draw(st.integers(1, 3)), 1.0), after={"p"}))
        if draw(st.booleans()):
            phases.append(Phase("r", Tasks(draw(st.integers(1, 6)), 1.0)))
        due = draw(st.none() | st.floats(1, 40).map(lambda s, at=arrival: at + s))
        pool = draw(st.sampled_from(["a", "b"])) if pools else "default"
        jobs.append(Job(f"j{number}", tuple(phases), arrival, promise=due, pool=pool))
    return jobs, cluster, pools


@given(case=runs(), name=st.sampled_from(["fair", "flex"]))
@settings(max_examples=examples(40, slow=1500))
def test_every_promise_is_kept_with_exact_estimates(
    simulated: Runs, case: tuple[list[Job], Cluster, list[Pool]], name: str
) -> None:
    """The state is checked in each turn, and the log repeats every decision."""
    jobs, cluster, pools = case
    watch = simulated(jobs, cluster, pools, name)
    assert broken(watch.log) == {}
    assert replay_log(watch.log).is_identical
    guaranteed = [
        d for t in watch.log.turns for d in t.decisions if isinstance(d, GuaranteePromise)
    ]
    accepted = answers(watch.log)
    assert all(sum(d.slots.values()) <= accepted[d.job].slots for d in guaranteed)
    assert any(isinstance(d, Launch) for t in watch.log.turns for d in t.decisions)


@pytest.mark.parametrize("most", [0, 1])
def test_a_promise_ends_where_its_job_may_not_have_its_slots(most: int) -> None:
    """On hold, or in a pool of a smaller share: else what it has reserved would stay idle."""
    stream = [job(f"s{n}", 4, 2.0, arrival=1.0 + n) for n in range(12)]
    jobs = [job("first", 4, 1.0), job("j", 4, 5.0, 0.5, promise=20.0), *stream]
    pool = Pool("other", slots_max={"task": most})
    moved = JobChanged(0.8, "j", "normal", 1.0, "other", None)
    back = replace(moved, at=60.0, pool="default")
    backend = SimulatedBackend(FOUR, jobs, requests=[moved, back])
    watch = run_checked(backend, jobs, FOUR, [pool])
    assert broken(watch.log) == {"j": "pools"}
    launched = [t.now for t in watch.log.turns for d in t.decisions if isinstance(d, Launch)]
    assert sum(15.0 <= at < 20.0 for at in launched) >= 8


def test_a_task_that_began_at_the_least_instant_may_take_any_time() -> None:
    """The part of its work that has passed is rounded to 0, which has no logarithm."""
    lasting = Lasting(-0.5, 2.0, inf)
    assert lasting.chance(10.0, 0.0, 5e-324, 5e-324) == 1.0
