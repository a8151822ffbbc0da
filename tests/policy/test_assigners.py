"""Which task goes to which slot: greedy takes the nearest, delay scheduling waits for it.

Three hosts: h1 and h2 in rack r1, h3 in rack r2. Blocks lie where a test says.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Defer, Launch, Locality, Reallocate
from slotwise.core.errors import InputError
from slotwise.core.events import HostLost, JobArrived, TaskFailed, TaskFinished
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.insight.why import why_avoided
from slotwise.policy.assignment.assigner import Assigner, Greedy
from slotwise.policy.assignment.delay import Delay, Levels

RACKS = {"h1": "r1", "h2": "r1", "h3": "r2", "h4": "r2"}
EPOCH = 1e9
"""When the only allocation of these tests ends."""
A, B = PhaseId("a", "map"), PhaseId("b", "map")


def job(name: str, *homes: str, count: int = 1, **rest: object) -> Job:
    """A job whose tasks read blocks on these hosts; without any, `count` tasks for anywhere."""
    blocks = tuple(Block(frozenset({home})) for home in homes)
    return Job(name, (Phase("map", Tasks(len(homes) or count, 1.0, blocks)),), **rest)


def state_of(
    *jobs: Job, hosts: Sequence[str] = ("h1", "h2", "h3"), pools: Sequence[Pool] = ()
) -> State:
    """All jobs are there at time 0 and are allocated a slot each; hosts have one slot each."""
    cluster = Cluster(tuple(Host(name, {"task": 1}, RACKS[name]) for name in hosts))
    state = State(cluster, pools)
    state.at(0.0)
    for one in jobs:
        state.apply(JobArrived(0.0, one))
    slots = {PhaseId(one.id, "map"): 1.0 for one in jobs}
    state.apply(Reallocate(slots, until=EPOCH))
    return state


def decide(state: State, assigner: Assigner, now: float | None = None) -> list[Decision]:
    """All that is decided at an instant, applied; by default at the instant that it is."""
    if now is not None:
        state.at(now)
    decided: list[Decision] = []
    while decisions := assigner.assign(state):
        for decision in decisions:
            state.apply(decision)
        decided += decisions
        assert len(decided) < 100
    return decided


def occupy(state: State, *hosts: str) -> None:
    """Fill the slots of these hosts with tasks of a job `busy` that must be there."""
    for task, host in enumerate(hosts):
        state.apply(Launch(PhaseId("busy", "map"), task, 1, host, Locality.NODE))


def waiting_for_h1(*homes: str) -> State:
    """Only h3 is free; tasks of a have their blocks on h1, whose slot is held, and on homes."""
    state = state_of(job("busy"), job("a", "h1", *homes), hosts=["h1", "h3"])
    occupy(state, "h1")
    return state


def test_greedy_prefers_the_host_of_the_block() -> None:
    """With all hosts free, a task runs where its block lies."""
    state = state_of(job("a", "h2"))
    assert decide(state, Greedy()) == [Launch(A, 0, 1, "h2", Locality.NODE)]


def test_greedy_takes_the_task_whose_block_is_near() -> None:
    """Only h2 is free: the second task, whose block lies there, goes first."""
    state = state_of(job("a", "h3", "h2"), hosts=["h2"])
    assert decide(state, Greedy()) == [Launch(A, 1, 1, "h2", Locality.NODE)]


def test_greedy_takes_the_rack_next_and_any_slot_last() -> None:
    """The block on h1, which is taken: in the same rack first, else anywhere, at once."""
    for free, locality in ((["h3", "h2"], Locality.RACK), (["h3"], Locality.ANY)):
        state = state_of(job("a", "h1"), hosts=free)
        cluster_has_home = "h1" in state.cluster.by_name
        assert not cluster_has_home
        # The rack of a host that is not in the cluster is unknown, so any slot will do.
        assert decide(state, Greedy()) == [Launch(A, 0, 1, free[0], Locality.ANY)]
        state = state_of(job("busy", count=1), job("a", "h1"), hosts=["h1", *free])
        occupy(state, "h1")
        assert decide(state, Greedy()) == [Launch(A, 0, 1, free[-1], locality)]


def test_the_phase_farthest_below_its_allocation_goes_first() -> None:
    """Of 3 and 1 allocated slots, holding 1 and none: the one that holds none is next."""
    state = state_of(job("a", count=5), job("b", count=5))
    state.apply(Reallocate({A: 3.0, B: 1.0}, until=EPOCH))
    launched = [d.phase.job for d in decide(state, Greedy()) if isinstance(d, Launch)]
    assert launched == ["a", "b", "a"]


@pytest.mark.parametrize("assigner", [Greedy(), Delay()])
def test_tasks_without_blocks_run_anywhere_at_once(assigner: Assigner) -> None:
    """Nobody waits for what does not matter."""
    state = state_of(job("a", count=3))
    decided = decide(state, assigner)
    assert [type(d) for d in decided] == [Launch] * 3
    assert {d.host for d in decided if isinstance(d, Launch)} == {"h1", "h2", "h3"}


def test_delay_waits_for_the_home_of_the_block() -> None:
    """A task whose input lies on h1 is not given to h3 before the waits end."""
    state = state_of(job("busy", count=1), job("a", "h1"), hosts=["h1", "h3"])
    occupy(state, "h1")
    delay = Delay(rack_after=5, any_after=8)
    assert decide(state, delay) == [Defer(A, since=0.0, until=5.0)]
    assert state.next_wakeup() == 5.0
    assert decide(state, delay, now=4.9) == []
    assert decide(state, delay, now=5.0) == [Defer(A, since=0.0, until=8.0)]
    assert state.next_wakeup() == 8.0
    assert decide(state, delay, now=8.0) == [Launch(A, 0, 1, "h3", Locality.ANY)]
    assert state.next_wakeup() == EPOCH


def test_delay_takes_the_rack_after_the_first_wait() -> None:
    """h2 shares the rack with the block on h1: good enough from 5 s on."""
    state = state_of(job("busy", count=1), job("a", "h1"))
    occupy(state, "h1")
    delay = Delay(rack_after=5, any_after=8)
    assert decide(state, delay) == [Defer(A, 0.0, 5.0)]
    assert decide(state, delay, now=5.0) == [Launch(A, 0, 1, "h2", Locality.RACK)]


def test_a_local_slot_is_taken_as_soon_as_it_is_free() -> None:
    """h1 comes free at 2, during the wait."""
    state = state_of(job("busy", count=1), job("a", "h1"))
    occupy(state, "h1")
    decide(state, Delay())
    state.at(2.0)
    state.apply(TaskFinished(2.0, PhaseId("busy", "map"), 0, 1, 2.0))
    assert decide(state, Delay()) == [Launch(A, 0, 1, "h1", Locality.NODE)]
    assert state.next_wakeup() == EPOCH


def test_a_waiting_phase_lets_others_pass() -> None:
    """Job b, behind a in the order, takes the slot that a lets pass."""
    state = state_of(job("busy"), job("a", "h1"), job("b", "h3"), hosts=["h1", "h3"])
    occupy(state, "h1")
    assert decide(state, Delay()) == [
        Defer(A, 0.0, 5.0),
        Launch(B, 0, 1, "h3", Locality.NODE),
    ]


@pytest.mark.parametrize(
    ("levels", "then"),
    [
        ("restart", Defer(A, since=4.0, until=6.0)),
        ("persist", Launch(A, 1, 1, "h3", Locality.ANY)),
    ],
)
def test_a_launch_on_any_slot_ends_the_wait(levels: Levels, then: Decision) -> None:
    """The next task of the phase begins a new wait, or takes any slot at once."""
    state = waiting_for_h1("h1")
    delay = Delay(rack_after=2, any_after=3, levels=levels)
    decide(state, delay)
    decide(state, delay, now=2.0)
    assert decide(state, delay, now=3.0) == [Launch(A, 0, 1, "h3", Locality.ANY)]
    state.at(4.0)
    state.apply(TaskFinished(4.0, A, 0, 1, 1.0))
    assert decide(state, delay) == [then]


def test_a_failed_attempt_ends_the_wait_too() -> None:
    """A task that comes back may have a free home: all slots are looked at again."""
    state = state_of(job("a", "h2", "h1"), hosts=["h2", "h3"])
    decide(state, Delay())  # h2 at once; the other waits.
    state.at(1.0)
    state.apply(TaskFailed(1.0, A, 0, 1, "it broke"))
    assert decide(state, Delay())[0] == Launch(A, 0, 2, "h2", Locality.NODE)


def test_without_waits_delay_is_greedy() -> None:
    """rack_after = any_after = 0: nobody ever defers, and everything runs as under greedy."""
    jobs = [job("a", "h1", "h1", "h2"), job("b", "h3", "h1"), job("c", count=2)]
    for now in (0.0, 7.7):
        greedy, delay = state_of(*jobs), state_of(*jobs)
        decided = decide(greedy, Greedy(), now)
        assert decide(delay, Delay(0, 0), now) == decided
        assert all(isinstance(d, Launch) for d in decided)


def test_a_wait_too_short_for_the_clock_is_no_wait() -> None:
    """Late on the clock, adding a tiny wait changes nothing; the wake still lies ahead."""
    state = waiting_for_h1()
    assert decide(state, Delay(1e-12, 1e-12), now=1e6) == [Launch(A, 0, 1, "h3", Locality.ANY)]
    state = waiting_for_h1()
    assert decide(state, Delay(1e-12, 5), now=1e6) == [Defer(A, 1e6, 1e6 + 5)]


def test_waits_end_at_exactly_the_stated_instant() -> None:
    """0.1 + 0.7 and the like: the alarm of a wait is never too early for its own test."""
    for tenths in range(1, 40):
        state = waiting_for_h1()
        delay = Delay(0.1, 0.7)
        decide(state, delay, now=tenths / 10)
        for _ in range(2):
            wake = state.next_wakeup()
            if wake == EPOCH:
                break
            decide(state, delay, now=wake)
        assert state.free("task") == {}, "two waits, two alarms, one launch"


def test_a_local_slot_is_not_lost_while_the_pool_is_at_its_limit() -> None:
    """h1 comes free while the pool may not launch; when it may, a does not go on waiting.

    Pool p may hold one slot, which b does. Task a waits for h1, busy until 2; b ends at 3.
    """
    pool = Pool("p", slots_max={"task": 1})
    state = state_of(
        job("busy", count=1),
        job("a", "h1", pool="p"),
        job("b", "h2", "h2", pool="p"),
        pools=[pool],
    )
    occupy(state, "h1")
    state.apply(Reallocate({A: 1.0, B: 0.5}, until=EPOCH))
    delay = Delay(rack_after=50, any_after=100)
    assert decide(state, delay) == [
        Defer(A, 0.0, 50.0),
        Launch(B, 0, 1, "h2", Locality.NODE),
    ]
    state.at(2.0)
    state.apply(TaskFinished(2.0, PhaseId("busy", "map"), 0, 1, 2.0))
    assert decide(state, delay) == []
    state.at(3.0)
    state.apply(TaskFinished(3.0, B, 0, 1, 3.0))
    assert decide(state, delay) == [Launch(A, 0, 1, "h1", Locality.NODE)]


@pytest.mark.parametrize("waits", [(-1, 1), (2, 1), (0, float("inf")), (float("nan"), 1)])
def test_impossible_waits_are_refused(waits: tuple[float, float]) -> None:
    """Negative, unordered and endless waits are refused with their values."""
    with pytest.raises(InputError, match="delay: the waits are"):
        Delay(*waits)


@pytest.mark.parametrize("assigner", [Greedy(), Delay(0.0, 0.0)])
@pytest.mark.parametrize("homes", [(), ("h9",)])
def test_a_failed_task_takes_another_host(assigner: Assigner, homes: tuple[str, ...]) -> None:
    """If one is free; both without input, and with input on none of these hosts."""
    state = state_of(job("a", *homes), job("b"), hosts=("h1", "h2"))
    first = Launch(A, 0, 1, "h1", locality_of(homes))
    assert first in decide(state, assigner)
    state.apply(TaskFailed(0.0, A, 0, 1, "broken"))
    state.apply(TaskFinished(0.0, B, 0, 1, 1.0))
    assert decide(state, assigner) == [Launch(A, 0, 2, "h2", locality_of(homes))]
    state.apply(TaskFailed(0.0, A, 0, 2, "lost", lost=True))
    assert decide(state, assigner) == [Launch(A, 0, 3, "h2", locality_of(homes))]


def locality_of(homes: tuple[str, ...]) -> Locality:
    """That of a task with input on these hosts, which are not there."""
    return Locality.ANY if homes else Locality.NODE


def test_no_slot_idles_for_a_failed_task() -> None:
    """It runs where it has failed if no other host is free and nothing else waits."""
    state = state_of(job("a"), hosts=("h1",))
    decide(state, Greedy())
    state.apply(TaskFailed(0.0, A, 0, 1, "broken"))
    assert decide(state, Greedy()) == [Launch(A, 0, 2, "h1", Locality.NODE)]


@pytest.mark.parametrize("assigner", [Greedy(), Delay(0.0, 0.0)])
@pytest.mark.parametrize("homes", [(), ("h1",)])
def test_a_phase_avoids_a_host_where_it_only_fails(
    assigner: Assigner, homes: tuple[str, ...]
) -> None:
    """After three failures in a row its tasks wait for another host."""
    state = state_of(job("a", *homes, count=9), job("b"), hosts=("h1", "h2"))
    decide(state, assigner)
    for attempt in (1, 2, 3):
        assert state.attempts_of("a")[0].host == "h1"
        state.apply(TaskFailed(0.0, A, 0, attempt, "broken"))
        launches = decide(state, assigner)
    assert launches == []
    assert why_avoided(state, state.phase(A)) == (
        "its last attempts on h1 have failed: it waits for slots on other hosts"
    )
    state.apply(TaskFinished(0.0, B, 0, 1, 1.0))
    (again,) = decide(state, assigner)
    assert (again.task, again.attempt, again.host) == (0, 4, "h2")


def test_a_success_makes_a_host_as_good_as_others() -> None:
    """Failures count in a row."""
    state = state_of(job("a", count=9), job("b"), hosts=("h1", "h2"))
    decide(state, Greedy())
    for attempt in (1, 2):
        state.apply(TaskFailed(0.0, A, 0, attempt, "broken"))
        decide(state, Greedy())
    state.apply(TaskFinished(0.0, A, 0, 3, 1.0))
    decide(state, Greedy())
    state.apply(TaskFailed(0.0, A, 1, 1, "broken"))
    assert decide(state, Greedy()) == [Launch(A, 1, 2, "h1", Locality.NODE)]


def test_hosts_are_not_avoided_where_tasks_fail_on_all_others() -> None:
    """The program is wrong: its job fails soon. Hosts that are lost do not count as others."""
    state = state_of(job("a", count=9), hosts=("h1", "h2"))
    decide(state, Greedy())
    state.apply(HostLost(0.0, "h2"))
    for attempt in (1, 2, 3):
        state.apply(TaskFailed(0.0, A, 0, attempt, "broken"))
        assert decide(state, Greedy()) == [Launch(A, 0, attempt + 1, "h1", Locality.NODE)]
