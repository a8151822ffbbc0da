"""A wait for locality counts only while slots are offered to its phase.

The hosts are those of test_assigners.py: h1 and h2 in rack r1, h3 and h4 in rack r2.
"""

from __future__ import annotations

import pytest

from policy.test_assigners import A, B, decide, job, occupy, state_of
from slotwise import Cluster, Host, Job, Phase, Simulation, Tasks, Workload, simulate
from slotwise.core.decisions import Defer, Launch, Locality, Reallocate
from slotwise.core.events import TaskFinished
from slotwise.core.job import PhaseId
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.assignment.assigner import Assigner
from slotwise.policy.assignment.delay import Delay
from slotwise.policy.assignment.flow import Flow

C = PhaseId("c", "map")
WAITS = Delay(rack_after=5, any_after=8)


def finish(state: State, now: float, phase: PhaseId, task: int = 0) -> None:
    """A task ends at an instant."""
    state.at(now)
    state.apply(TaskFinished(now, phase, task, 1, now))


@pytest.mark.parametrize("assigner", [WAITS, Flow(5, 8)])
def test_a_wait_stands_still_while_slots_go_to_phases_before_it(assigner: Assigner) -> None:
    """b waits for h1 for 4 s; then a, before it in the order, takes the next slot, until 20."""
    state = state_of(
        job("busy", count=2),
        job("a", "h2"),
        job("b", "h1"),
        job("c", count=1),
        hosts=["h1", "h2", "h3"],
    )
    occupy(state, "h1", "h2")
    first = decide(state, assigner)
    assert {one.phase for one in first if isinstance(one, Defer)} == {A, B}
    assert [one.phase for one in first if isinstance(one, Launch)] == [C]
    waits = state.phase(B)
    assert (waits.deferred_since, waits.waited) == (0.0, 0.0)
    finish(state, 4.0, PhaseId("busy", "map"), 1)
    assert decide(state, assigner) == [Launch(A, 0, 1, "h2", Locality.NODE)]
    assert (waits.deferred_since, waits.deferred_until, waits.waited) == (None, None, 4.0)
    finish(state, 20.0, C)
    assert decide(state, assigner) == [Defer(B, since=16.0, until=21.0)]
    assert decide(state, assigner, now=21.0) == [Defer(B, since=16.0, until=24.0)]
    assert decide(state, assigner, now=24.0) == [Launch(B, 0, 1, "h3", Locality.ANY)]
    state.check()


def test_a_wait_goes_on_while_no_slot_is_free() -> None:
    """b skips h3, which c takes. Until c ends at 9 nothing is offered to anybody."""
    state = state_of(job("busy"), job("b", "h1"), job("c"), hosts=["h1", "h3"])
    occupy(state, "h1")
    assert decide(state, WAITS) == [Defer(B, 0.0, 5.0), Launch(C, 0, 1, "h3", Locality.NODE)]
    assert decide(state, WAITS, now=5.0) == []
    finish(state, 9.0, C)
    assert decide(state, WAITS) == [Launch(B, 0, 1, "h3", Locality.ANY)]


def test_a_skip_that_another_phase_follows_resumes_the_wait() -> None:
    """b waits 4 s, is passed over until 20, then skips a slot that c takes: 7 s at 23."""
    state = state_of(job("busy", count=2), job("a", "h2"), job("b", "h1"), job("c", count=2))
    occupy(state, "h1", "h2")
    decide(state, WAITS)  # a and b wait, c takes h3.
    finish(state, 4.0, PhaseId("busy", "map"), 1)
    decide(state, WAITS)  # a takes h2.
    finish(state, 20.0, C)
    assert decide(state, WAITS) == [Launch(C, 1, 1, "h3", Locality.NODE)]
    waits = state.phase(B)
    assert (waits.deferred_since, waits.deferred_until) == (16.0, None)
    finish(state, 23.0, C, 1)
    assert decide(state, WAITS) == [Defer(B, since=16.0, until=24.0)]
    assert decide(state, WAITS, now=24.0) == [Launch(B, 0, 1, "h3", Locality.ANY)]


def test_a_wait_goes_on_if_slots_were_offered_to_its_phase_in_the_same_turn() -> None:
    """Two slots at once: pool p's turn comes first, a skips and b takes; then pool q takes."""
    pools = [Pool("p"), Pool("q")]
    state = state_of(
        job("busy"),
        job("a", "h1", pool="p"),
        job("b", pool="p"),
        job("c", pool="q"),
        pools=pools,
    )
    occupy(state, "h1")
    assert decide(state, WAITS) == [
        Defer(A, 0.0, 5.0),
        Launch(B, 0, 1, "h2", Locality.NODE),
        Launch(C, 0, 1, "h3", Locality.NODE),
    ]
    assert state.phase(A).deferred_since == 0.0


def test_a_wait_stands_still_while_its_pool_is_full() -> None:
    """Pool p may hold one slot. b takes it at 2, and h4 stays free; at 10 b is done."""
    state = state_of(
        job("busy", count=2),
        job("a", "h1", pool="p"),
        job("b", "h2", pool="p"),
        hosts=["h1", "h2", "h4"],
        pools=[Pool("p", slots_max={"task": 1})],
    )
    occupy(state, "h1", "h2")
    assert decide(state, WAITS) == [Defer(A, 0.0, 5.0), Defer(B, 0.0, 5.0)]
    finish(state, 2.0, PhaseId("busy", "map"), 1)
    assert decide(state, WAITS) == [Launch(B, 0, 1, "h2", Locality.NODE)]
    finish(state, 10.0, B)
    assert decide(state, WAITS) == [Defer(A, since=8.0, until=13.0)]
    state.apply(Reallocate({A: 1.0}, until=1e9))
    assert decide(state, WAITS, now=13.0) == [Launch(A, 0, 1, "h2", Locality.RACK)]
    state.check()


@pytest.mark.parametrize(
    ("levels", "local_least", "slower"), [("restart", 0.85, 0.85), ("persist", 0.7, 0.9)]
)
def test_waiting_pays_under_fifo(levels: str, local_least: float, slower: float) -> None:
    """20 jobs of 6 tasks queue for 30 slots: each waits only when it is offered slots.

    On the clock, waits would pass while earlier jobs are served.
    """
    hosts = tuple(Host(f"h{n}", {"task": 1}, f"r{n % 3}") for n in range(30))
    crowd = Job("crowd", (Phase("map", Tasks(60, 10.0)),))
    jobs = [
        Job(f"job-{n:02}", (Phase("map", Tasks(6, 10.0)),), arrival=0.1 * n) for n in range(20)
    ]
    workload = Workload((crowd, *jobs), Cluster(hosts), replicas=2)
    truth = Simulation(seed=1, noise=0.3, remote_factor=2.0)
    greedy = simulate(workload, "fifo", simulation=truth).metrics
    options = {"assigner": "delay", "waits": (3, 6), "levels": levels}
    waiting = simulate(workload, "fifo", simulation=truth, **options).metrics
    assert waiting["locality"]["node"] > local_least > 0.5 > greedy["locality"]["node"]
    assert waiting["response_mean"] < slower * greedy["response_mean"]
