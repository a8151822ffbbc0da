"""Minimum cost flow: the tasks of a round go where the fewest bytes move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from policy.test_assigners import A, B, decide, job, occupy, state_of
from slotwise.core import errors
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Defer, Launch, Locality, Reallocate
from slotwise.core.errors import InputError, MissingExtraError
from slotwise.core.events import HostLost, JobArrived, TaskFinished
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.placement import place_blocks
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.assignment import flow_network
from slotwise.policy.assignment.assigner import Greedy
from slotwise.policy.assignment.delay import Delay
from slotwise.policy.assignment.flow import Flow
from slotwise.policy.assignment.flow_network import PlacementNetwork, place
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

pytest.importorskip("ortools")

INFINITE = 1e15


def launched(decisions: Sequence[Decision]) -> set[tuple[str, int, str]]:
    """The job, task and host of each launch."""
    return {(d.phase.job, d.task, d.host) for d in decisions if isinstance(d, Launch)}


def test_two_tasks_both_get_their_home() -> None:
    """Greedy gives h1 to the first task, which may also run on h2; flow gives it h2."""
    first = Job("a", (Phase("map", Tasks(1, 1.0, (Block(frozenset({"h1", "h2"})),))),))
    state = state_of(first, job("b", "h1"))
    assert launched(decide(state, Greedy())) == {("a", 0, "h1"), ("b", 0, "h2")}
    state = state_of(first, job("b", "h1"))
    assert launched(decide(state, Flow())) == {("a", 0, "h2"), ("b", 0, "h1")}


def test_of_two_tasks_the_one_with_less_input_moves() -> None:
    """Both have their input on h1 alone."""
    state = state_of(*(sized(name, size) for name, size in (("a", 5), ("b", 9))))
    assert launched(decide(state, Flow())) == {("a", 0, "h2"), ("b", 0, "h1")}


def sized(name: str, *sizes: int) -> Job:
    """A job whose tasks read blocks of these sizes on h1."""
    blocks = tuple(Block(frozenset({"h1"}), size) for size in sizes)
    return Job(name, (Phase("map", Tasks(len(blocks), 1.0, blocks)),))


def test_tasks_without_input_leave_the_homes_to_others() -> None:
    """The first job could run anywhere, so it takes the slots that the second does not want."""
    state = state_of(job("a", count=2), job("b", "h1"))
    assert ("b", 0, "h1") in launched(decide(state, Flow()))


def test_a_remote_task_runs_in_its_rack_if_a_slot_is_left() -> None:
    """Two tasks have their input on h1; the other one goes to h2 in the same rack, not h3."""
    state = state_of(job("a", "h1", "h1"))
    decisions = decide(state, Flow())
    assert {(d.host, d.locality) for d in decisions if isinstance(d, Launch)} == {
        ("h1", Locality.NODE),
        ("h2", Locality.RACK),
    }


def test_with_racks_no_block_crosses_the_core() -> None:
    """Each job has two blocks on one host: one task runs there, the other one in its rack."""
    hosts = [Host("h1", {"task": 1}, "r1"), Host("h2", {"task": 1}, "r1")]
    hosts += [Host("h3", {"task": 1}, "r2"), Host("h4", {"task": 1}, "r2")]
    near, far = Block(frozenset({"h1"}), 10), Block(frozenset({"h3"}), 10)
    jobs = [
        Job(name, (Phase("map", Tasks(len(blocks), 1.0, blocks)),))
        for name, blocks in (("a", (near, near)), ("b", (far, far)))
    ]
    state = State(Cluster(tuple(hosts)))
    state.at(0.0)
    for one in jobs:
        state.apply(JobArrived(0.0, one))
    state.apply(Reallocate({A: 2.0, B: 2.0}, until=1e9))
    found = [d.locality for d in decide(state, Flow(core_cost=2)) if isinstance(d, Launch)]
    assert Counter(found) == {Locality.NODE: 2, Locality.RACK: 2}


def test_limits_of_pools_are_kept() -> None:
    """The pool may hold one slot, although three tasks have their input on free hosts."""
    state = state_of(
        job("a", "h1", "h2", "h3", pool="few"), pools=[Pool("few", slots_max={"task": 1})]
    )
    assert len(launched(decide(state, Flow()))) == 1
    state.check()


def test_nothing_is_launched_on_an_unresponsive_host() -> None:
    """The input is on h1, which is lost: the task reads it from there or elsewhere."""
    state = state_of(job("a", "h1", "h3"))
    state.apply(HostLost(0.0, "h1"))
    assert launched(decide(state, Flow())) == {("a", 0, "h2"), ("a", 1, "h3")}


def test_pinned_tasks_run_where_they_must() -> None:
    """Each task continues on the host of the one before it."""
    before, after = Phase("map", Tasks(3, 1.0)), Phase("next", Tasks(3, 1.0), continues="map")
    state = state_of(Job("a", (before, after)))
    places = {task: host for _, task, host in launched(decide(state, Flow()))}
    state.at(1.0)
    for task in places:
        state.apply(TaskFinished(1.0, A, task, 1, 1.0))
    name = PhaseId("a", "next")
    state.apply(Reallocate({name: 3.0}, until=1e9))
    decisions = decide(state, Flow())
    assert {d.task: d.host for d in decisions if isinstance(d, Launch)} == places


def test_a_wide_task_gets_its_slots() -> None:
    """A task of two slots runs on the only host that has two."""
    state = State(Cluster((Host("h1", {"task": 1}), Host("h2", {"task": 2}))))
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("a", (Phase("map", Tasks(1, 1.0), slots=2),))))
    state.apply(JobArrived(0.0, Job("b", (Phase("map", Tasks(1, 1.0)),))))
    state.apply(Reallocate({A: 2.0, B: 1.0}, until=1e9))
    assert launched(decide(state, Flow())) == {("a", 0, "h2"), ("b", 0, "h1")}


def test_tasks_wait_for_their_home_then_for_its_rack_then_take_any_slot() -> None:
    """The host of the input is taken, h2 is in its rack, h3 is far."""
    flow = Flow(rack_after=5, any_after=8)
    for free, starts in ((("h2", "h3"), 5.0), (("h3",), 8.0)):
        state = state_of(job("busy"), job("a", "h1", "h1"), hosts=["h1", *free])
        occupy(state, "h1")
        assert decide(state, flow) == [Defer(A, since=0.0, until=5.0)]
        assert state.next_wakeup() == 5.0
        assert decide(state, flow, now=4.9) == []
        if starts == 8.0:
            assert decide(state, flow, now=5.0) == [Defer(A, since=0.0, until=8.0)]
        decisions = decide(state, flow, now=starts)
        assert launched(decisions) == {("a", 0, free[0])}
        state.check()


def test_a_slot_that_a_waiting_phase_does_not_want_goes_to_the_next() -> None:
    """a waits for h1; b has its input on h3."""
    state = state_of(job("busy"), job("a", "h1"), job("b", "h3"), hosts=["h1", "h2", "h3"])
    occupy(state, "h1")
    decisions = decide(state, Flow(5, 8))
    assert launched(decisions) == {("b", 0, "h3")}
    assert [d.phase for d in decisions if isinstance(d, Defer)] == [A]


def test_the_order_in_which_slots_became_free_does_not_matter() -> None:
    """Three tasks with the same two homes: the same ones get the slots near their input."""
    found = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        blocks = (Block(frozenset({"h1", "h3"})),) * 3
        one = Job("a", (Phase("map", Tasks(3, 1.0, blocks)),))
        state = state_of(job("busy", count=3), one)
        occupy(state, "h1", "h2", "h3")
        state.at(1.0)
        for task in order:
            state.apply(TaskFinished(1.0, PhaseId("busy", "map"), task, 1, 1.0))
        found.append(decide(state, Flow()))
    assert len(found[0]) == 3
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"waits": (5, 2)}, "flow: the waits are 5 and 2 seconds"),
        ({"waits": (-1, 2)}, "they must be numbers >= 0"),
        ({"core_cost": 0.5}, "core_cost is 0.5; give a number from 1 to 1000"),
        ({"core_cost": float("nan")}, "core_cost is nan"),
        ({"move_within": -1}, "move_within is -1; give seconds >= 0"),
        ({"move_within": "x"}, "move_within is 'x'; give seconds >= 0"),
        (
            {"assigner": "delay", "move_within": 2},
            "move_within is a parameter of the assigner flow",
        ),
        (
            {"assigner": "delay", "core_cost": 2},
            "core_cost is a parameter of the assigner flow",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], words: str) -> None:
    """The message has the value and what is allowed."""
    with pytest.raises(InputError) as refused:
        make_scheduler("fair", **({"assigner": "flow"} | options))
    assert words in str(refused.value)


def test_without_ortools_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what is missing, how to install it, and the alternatives."""
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as refused:
        make_scheduler("fair", "flow")
    for word in ("pip install 'slotwise[flow]'", "greedy", "delay"):
        assert word in str(refused.value)


# Against other methods.


@st.composite
def rounds(draw: st.DrawFn) -> State:
    """Some phases with input of equal or different sizes on up to six hosts in two racks."""
    rng = Random(draw(st.integers(0, 2**32)))
    names = [f"h{number}" for number in range(rng.randint(2, 6))]
    hosts = [Host(name, {"task": rng.randint(1, 3)}, rng.choice("rs")) for name in names]
    rng.shuffle(hosts)
    state = State(Cluster(tuple(hosts)))
    state.at(0.0)
    slots = {}
    for number in range(rng.randint(1, 4)):
        sizes = rng.choice([[1], [0], [7], [2, 5], [3, 4, 100]])
        blocks = tuple(
            Block(frozenset(rng.sample([*names, "gone"], rng.randint(1, 2))), rng.choice(sizes))
            for _ in range(rng.randint(1, 6))
        )
        count = len(blocks) + rng.randint(0, 1) * (rng.random() < 0.3)
        tasks = Tasks(count, 1.0, blocks if count == len(blocks) else ())
        most = rng.choice([None, None, 2])
        one = Job(f"j{number}", (Phase("map", tasks, slots_max=most),))
        state.apply(JobArrived(0.0, one))
        slots[PhaseId(one.id, "map")] = rng.choice([0.0, 1.0, 2.5, 6.0])
    state.apply(Reallocate(slots, until=1e9))
    return state


def cost(state: State, phase: PhaseId, task: int, host: str, core_cost: float) -> float:
    """What a launch costs: bytes, and more of them through the core."""
    blocks = state.phase(phase).phase.tasks.blocks
    if not blocks or host in blocks[task].hosts:
        return 0.0
    rack_of = state.cluster.rack_of
    in_rack = rack_of[host] in {rack_of.get(home) for home in blocks[task].hosts}
    return max(1, blocks[task].size_bytes) * (1 if in_rack else core_cost)


def optimum(state: State, counts: Counter[PhaseId], core_cost: float) -> float:
    """The least cost of a round with so many launches of each phase, by an assignment problem.

    A column is a slot, or the place of a task that is not launched. A row is a task, or an idle
    slot.
    """
    columns = [(host, None) for host, n in state.free("task").items() for _ in range(n)]
    rows: list[tuple[PhaseId | None, int]] = []
    for phase, count in counts.items():
        tasks = may_start(state, phase, count, core_cost)
        rows += [(phase, task) for task in tasks]
        columns += [("", phase)] * (len(tasks) - count)
    rows += [(None, 0)] * (len(columns) - len(rows))
    costs = np.full((len(rows), len(columns)), INFINITE)
    for row, (phase, task) in enumerate(rows):
        for column, (host, stays) in enumerate(columns):
            if phase is None:
                costs[row, column] = 0.0 if host else INFINITE
            elif host:
                costs[row, column] = cost(state, phase, task, host, core_cost)
            elif stays == phase:
                costs[row, column] = 0.0
    found = costs[linear_sum_assignment(costs)].sum()
    assert found < INFINITE
    return float(found)


def may_start(state: State, phase: PhaseId, count: int, core_cost: float) -> list[int]:
    """The tasks with input on or near free hosts, and as many as are launched, the first."""
    view = state.phase(phase)
    blocks, free = view.phase.tasks.blocks, state.free("task")
    racks = {state.cluster.rack_of[host] for host in free} if core_cost > 1 else set()
    near = [
        task
        for task in view.pending_tasks()
        if blocks
        and any(h in free or state.cluster.rack_of.get(h) in racks for h in blocks[task].hosts)
    ]
    return sorted({*near, *view.pending_tasks()[:count]})


@given(rounds(), st.sampled_from([1.0, 2.0, 7.5]))
@settings(max_examples=examples(60, slow=5000))
def test_a_round_costs_as_little_as_an_assignment_problem_says(
    state: State, core_cost: float
) -> None:
    """Counts of phases are those of the greedy rule, and the cost is the optimum of scipy."""
    assigner = Flow(core_cost=core_cost)
    launches = [d for d in assigner.assign(state) if isinstance(d, Launch)]
    counts = Counter(launch.phase for launch in launches)
    paid = sum(cost(state, d.phase, d.task, d.host, core_cost) for d in launches)
    if sum(state.free("task").values()) > 1:
        assert paid == pytest.approx(optimum(state, counts, core_cost))
    assert list(assigner.assign(state)) == launches, "the same question has the same answer"
    for launch in launches:
        assert launch.locality == state.phase(launch.phase).locality(launch.task, launch.host)
        state.apply(launch)
    state.check()
    assert not assigner.assign(state), "a round leaves nothing to launch"


@pytest.mark.parametrize("seed", range(4))
def test_no_more_bytes_move_than_under_the_greedy_rule(seed: int) -> None:
    """Some 180 tasks of twelve phases fill the free slots of 90 hosts."""
    moved, counts = [], []
    for assigner in Greedy(), Flow(), Flow(core_cost=2):
        state = large(seed)
        launches = [d for d in decide_all(state, assigner) if isinstance(d, Launch)]
        moved.append(sum(d.locality is not Locality.NODE for d in launches))
        counts.append(Counter(d.phase for d in launches))
        state.check()
    assert counts[0] == counts[1] == counts[2]
    assert moved[1] < moved[0]


def large(seed: int) -> State:
    """Jobs of different sizes with two copies of each block; a quarter of the hosts is lost."""
    rng = Random(seed)
    hosts = tuple(Host(f"h{n}", {"task": rng.randint(1, 3)}, f"r{n % 8}") for n in range(120))
    cluster = Cluster(hosts)
    jobs = [Job(f"j{n}", (Phase("map", Tasks(rng.randint(5, 25), 1.0)),)) for n in range(12)]
    state = State(cluster)
    state.at(0.0)
    for one in place_blocks(tuple(jobs), cluster, 2, seed, block_bytes=64):
        state.apply(JobArrived(0.0, one))
    for host in rng.sample(hosts, 30):
        state.apply(HostLost(0.0, host.name))
    state.apply(Reallocate({PhaseId(one.id, "map"): 15.0 for one in jobs}, until=1e9))
    return state


def decide_all(state: State, assigner: Greedy | Flow | Delay) -> list[Decision]:
    """All decisions of an instant, applied."""
    decided: list[Decision] = []
    while decisions := assigner.assign(state):
        for decision in decisions:
            state.apply(decision)
        decided += decisions
    return decided


@given(st.integers(0, 2**32))
@settings(max_examples=examples(30, slow=3000))
def test_with_one_price_the_largest_flow_is_the_cheapest(seed: int) -> None:
    """Both solvers, on one network: as many tasks run beside their input."""
    network = random_network(Random(seed))
    largest, cheapest = place(network), flow_network._cheapest(network)
    for found in largest, cheapest:
        used = found.host >= 0
        pairs = set(zip(network.tasks.tolist(), network.hosts.tolist(), strict=True))
        assert {
            *zip(np.flatnonzero(used).tolist(), found.host[used].tolist(), strict=True)
        } <= pairs
        assert (
            np.bincount(found.host[used], minlength=len(network.room)) <= network.room
        ).all()
    assert (largest.host >= 0).sum() == (cheapest.host >= 0).sum()
    assert largest.remote.sum() == cheapest.remote.sum()


def random_network(rng: Random) -> PlacementNetwork:
    """A network of phases with one group each, and room for all."""
    sizes = [rng.randint(1, 8) for _ in range(rng.randint(1, 4))]
    ends = np.cumsum([0, *sizes])
    hosts = rng.randint(1, 6)
    pairs = sorted(
        {
            (t, rng.randrange(hosts))
            for t in range(int(ends[-1]))
            for _ in range(rng.randint(0, 3))
        }
    )
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    groups = [np.full(b - a, n) for n, (a, b) in enumerate(pairwise(ends.tolist()))]
    return PlacementNetwork(
        launches=np.array([rng.randint(0, size) for size in sizes], np.int64),
        phase_of=np.arange(len(sizes)),
        most=np.array(sizes, np.int64),
        prices=np.full(len(sizes), 5),
        group_of=np.concatenate(groups),
        tasks=edges[:, 0],
        hosts=edges[:, 1],
        room=np.array([rng.randint(0, 3) for _ in range(hosts)], np.int64),
    )
