"""The share of a job does not depend on its number of phases; FIFO serves in order. In runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil, floor
from random import Random

import pytest

from oracles.pools import by_filling, pooled
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import JobArrived, JobChanged, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.state import State
from slotwise.policy.allocator import Allocator, Group
from slotwise.policy.claims import allocate
from slotwise.policy.fair import Fair
from slotwise.policy.fluid import fluid_schedule
from slotwise.policy.las import Las
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

Simulate = Callable[..., object]
SIZED = Pool("sized", job_weights="size")


def job(name: str, phases: int, tasks: int, work: float, **rest: object) -> Job:
    """A job of phases that wait for nothing, each of equal tasks."""
    made = [Phase(f"p{number}", Tasks(tasks, work)) for number in range(phases)]
    return Job(name, tuple(made), **rest)


EXAMPLES = [
    ([job("a", 3, 12, 120.0), job("b", 1, 36, 360.0)], {"a": 6, "b": 6}),
    ([job("a", 4, 12, 120.0), job("b", 1, 36, 360.0, weight=2.0)], {"a": 4, "b": 8}),
    # As many tasks, in more phases.
    (
        [job("a", 3, 12, 120.0, pool="sized"), job("b", 1, 36, 120.0, pool="sized")],
        {"a": 6, "b": 6},
    ),
    # log2(1 + 3) = 2 and log2(1 + 15) = 4, by tasks of the jobs.
    (
        [job("a", 3, 1, 120.0, pool="sized"), job("b", 3, 5, 120.0, pool="sized")],
        {"a": 3, "b": 9},
    ),
]


def held(log: Log, instant: float) -> Counter[str]:
    """The slots of each job just after an instant."""
    found: Counter[str] = Counter()
    for turn in log.turns:
        if turn.now <= instant:
            found.update(d.phase.job for d in turn.decisions if isinstance(d, Launch))
            found.subtract(e.phase.job for e in turn.events if isinstance(e, TaskFinished))
    return +found


def launched(log: Log) -> list[tuple[float, str]]:
    """The instant and the job of each launch."""
    return [
        (turn.now, decision.phase.job)
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch)
    ]


@pytest.mark.parametrize("name", ["fair", "las"])
@pytest.mark.parametrize(("jobs", "expected"), EXAMPLES)
def test_a_job_of_several_phases_holds_what_one_of_a_single_phase_would(
    simulated: Simulate, jobs: Sequence[Job], expected: dict[str, int], name: str
) -> None:
    """12 slots, divided by the weights of the jobs, not by those of their phases."""
    log = simulated(jobs, Cluster.of_slots(12), [SIZED], name).log
    assert held(log, 1.0) == expected


@pytest.mark.parametrize("allocator", [Fair(), Las()])
@pytest.mark.parametrize(("jobs", "expected"), EXAMPLES)
def test_a_plan_gives_jobs_the_same_shares(
    jobs: Sequence[Job], expected: dict[str, int], allocator: Allocator
) -> None:
    """A second after the beginning."""
    tree = PoolTree([SIZED, Pool("default")])
    schedule = fluid_schedule(jobs, Cluster.of_slots(12), tree, allocator)
    slots: Counter[str] = Counter()
    for piece in schedule.pieces:
        if piece.start <= 1.0 < piece.end:
            slots[piece.phase.job] += piece.slots
    assert slots == expected


def test_each_kind_of_slot_is_divided_among_jobs(simulated: Simulate) -> None:
    """Two maps and a reduce beside one of each: half of the slots of each kind."""
    maps, reduces = Tasks(12, 9.0), Tasks(12, 9.0)
    jobs = [
        Job(
            "a",
            (Phase("m", maps, "map"), Phase("n", maps, "map"), Phase("r", reduces, "reduce")),
        ),
        Job("b", (Phase("m", maps, "map"), Phase("r", reduces, "reduce"))),
    ]
    cluster = Cluster((Host("h", {"map": 8, "reduce": 4}),))
    assert held(simulated(jobs, cluster, name="fair").log, 1.0) == {"a": 6, "b": 6}


@pytest.mark.parametrize("allocator", [Fair(), Las()])
def test_a_max_share_for_all_kinds_together_is_divided_among_jobs(allocator: Allocator) -> None:
    """A job of two map phases and one of a reduce phase get 3 of the 6 slots of their pool."""
    maps = [Phase(name, Tasks(9, 1.0), "map") for name in ("m", "n")]
    state = State(
        Cluster((Host("h", {"map": 9, "reduce": 9}),)), [Pool("p", slots_max={"task": 6})]
    )
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("a", tuple(maps), pool="p")))
    state.apply(JobArrived(0.0, Job("b", (Phase("r", Tasks(9, 1.0), "reduce"),), pool="p")))
    assert allocate(allocator, state) == pytest.approx(
        {PhaseId("a", "m"): 1.5, PhaseId("a", "n"): 1.5, PhaseId("b", "r"): 3.0}
    )


@pytest.mark.parametrize("seed", range(examples(6, slow=200)))
def test_each_job_holds_its_share_to_a_slot(simulated: Simulate, seed: int) -> None:
    """Random weights, numbers of phases, min shares and demands, against exact fractions."""
    random = Random(seed)
    jobs, members, of_job = [], [], []
    for number in range(random.randint(2, 6)):
        phases = []
        for place in range(random.choice([1, 1, 2, 5])):
            count = random.randint(1, 9)
            low = random.choice([0, 0, 0, 1]) if random.random() < 0.5 else 0
            phases.append(Phase(f"p{place}", Tasks(count, 99.0), slots_min=low))
            members.append((0, low, count))
            of_job.append(len(members) - 1 - place)
        jobs.append(Job(f"j{number}", tuple(phases), weight=random.choice([1.0, 2.0, 3.0])))
    slots = random.randint(4, 20)
    weight = [one.weight for one in jobs for _ in one.phases]
    problem = pooled(slots, members, [Group(1, 0, float("inf"))], weight, jobs=of_job)
    shares: Counter[str] = Counter()
    owners = [one.id for one in jobs for _ in one.phases]
    for owner, share in zip(owners, by_filling(problem), strict=True):
        shares[owner] += share  # type: ignore[assignment]
    found = held(simulated(jobs, Cluster.of_slots(slots), name="fair").log, 1.0)
    for name, share in shares.items():
        assert floor(share + 1e-9) <= found[name] <= ceil(share - 1e-9)


def test_fractions_of_a_job_of_many_phases_are_one_turn(simulated: Simulate) -> None:
    """Ten phases beside one on 3 slots: 1.5 each, so each job holds 1 or 2 at any time, and in
    the long run half of the slots."""
    jobs = [job("many", 10, 30, 1.0), job("one", 1, 300, 1.0)]
    log = simulated(jobs, Cluster.of_slots(3), name="fair").log
    instants = [0.5 + number for number in range(60)]
    seen = [held(log, instant) for instant in instants]
    assert {one["many"] for one in seen} == {1, 2}
    assert sum(one["many"] for one in seen) == 90


@pytest.mark.parametrize("name", ["fair", "fifo", "las", "uwfq"])
def test_a_fifo_pool_that_lacks_slots_serves_by_priority_then_arrival(
    simulated: Simulate, name: str
) -> None:
    """`first` came before `urgent`, which has priority: both lack all their slots at 10 s."""
    g = Job("g", (Phase("p", Tasks(4, (10.0, 11.0, 12.0, 13.0))),), pool="g")
    first = job("first", 1, 1, 100.0, pool="f", arrival=1.0)
    urgent = job("urgent", 1, 2, 100.0, pool="f", arrival=2.0, priority="very_high")
    pools = [Pool("g"), Pool("f", weight=9.0, policy="fifo")]
    log = simulated([g, first, urgent], Cluster.of_slots(4), pools, name).log
    assert launched(log)[4:] == [(10.0, "urgent"), (11.0, "urgent"), (12.0, "first")]


def test_the_fifo_scheduler_serves_jobs_of_all_pools_in_one_order(simulated: Simulate) -> None:
    """Jobs of two pools in turn: each free slot goes to the earliest that lacks one."""
    busy = Job("busy", (Phase("p", Tasks(4, (10.0, 11.0, 12.0, 13.0))),))
    late = [job(f"{n}", 1, 1, 99.0, pool="ab"[n % 2], arrival=1.0 + n) for n in range(4)]
    log = simulated([busy, *late], Cluster.of_slots(4), name="fifo").log
    assert launched(log)[4:] == [(10.0, "0"), (11.0, "1"), (12.0, "2"), (13.0, "3")]


def test_the_fifo_scheduler_ignores_min_shares_when_it_serves(simulated: Simulate) -> None:
    """The later job has a min share, but the earlier one lacks slots, too."""
    busy = Job("busy", (Phase("p", Tasks(2, (10.0, 11.0))),))
    sure = Job("sure", (Phase("p", Tasks(1, 99.0), slots_min=1),), arrival=2.0)
    jobs = [busy, job("early", 1, 1, 99.0, arrival=1.0), sure]
    log = simulated(jobs, Cluster.of_slots(2), name="fifo").log
    assert launched(log)[2:] == [(10.0, "early"), (11.0, "sure")]


def test_a_new_priority_counts_at_once_in_a_fifo_pool() -> None:
    """The second of two waiting jobs is raised: it comes first."""
    state = State(Cluster.of_slots(1), [Pool("f", policy="fifo")])
    state.at(0.0)
    for name in ("a", "b"):
        state.apply(JobArrived(0.0, job(name, 1, 1, 1.0, pool="f")))
    assert [phase.id.job for phase in state.backlogged("task")] == ["a", "b"]
    state.apply(JobChanged(0.0, "b", "high", 1.0, "f", None))
    assert [phase.id.job for phase in state.backlogged("task")] == ["b", "a"]
    state.check()


def test_pools_that_lack_slots_come_by_held_over_min_share() -> None:
    """Both lack guaranteed slots: 1 of 4 is less than 1 of 2, whatever the weights."""
    pools = [Pool("half", 9.0, {"task": 2}), Pool("quarter", 1.0, {"task": 4}), Pool("rest")]
    assert order_of(pools, {"half": 1, "quarter": 1, "rest": 6}, 8) == ["quarter", "half"]


def test_then_pools_that_lack_slots_come_by_held_over_weight() -> None:
    """2 slots for a weight of 4 are less than 1 for a weight of 1, although the first pool,
    which can use 3, holds the greater part of its share."""
    pools = [Pool("small"), Pool("heavy", 4.0), Pool("rest", 4.0)]
    held = {"small": 1, "heavy": 2, "rest": 15}
    assert order_of(pools, held, 18, {"heavy": 3}) == ["heavy", "small"]


def order_of(
    pools: Sequence[Pool],
    holding: dict[str, int],
    slots: int,
    tasks: dict[str, int] | None = None,
) -> list[str]:
    """The pools that lack slots in the order of service, when they hold so many."""
    state = State(Cluster.of_slots(slots), pools)
    state.at(0.0)
    for pool in pools:
        count = (tasks or {}).get(pool.name, 99)
        state.apply(JobArrived(0.0, job(pool.name, 1, count, 9.0, pool=pool.name)))
    (decision,) = make_scheduler("fair").decide(state)
    state.apply(decision)
    for name, count in holding.items():
        for task in range(count):
            host = next(iter(state.free("task")))
            phase = PhaseId(name, "p0")
            state.apply(Launch(phase, task, 1, host, state.phase(phase).locality(task, host)))
    state.check()
    lacking = {pool.name for pool in state.shares("task") if pool.held + 1 <= pool.share}
    return [p.id.job for p in state.backlogged("task") if p.id.job in lacking]


def test_a_job_is_one_node_only_while_several_of_its_phases_are_ready(
    simulated: Simulate,
) -> None:
    """Two phases in parallel, then one: the job has half of the slots all the time."""
    phases = (
        Phase("x", Tasks(4, 1.0)),
        Phase("y", Tasks(4, 1.0)),
        Phase("z", Tasks(8, 1.0), after=frozenset({"x", "y"})),
    )
    jobs = [Job("graph", phases), job("other", 1, 40, 1.0)]
    log = simulated(jobs, Cluster.of_slots(8), name="fair").log
    assert [held(log, at + 0.5) for at in range(4)] == 4 * [{"graph": 4, "other": 4}]
