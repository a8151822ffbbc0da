"""Levels of locality: what a launch away from the input means for the next wait of its phase.

The hosts are those of test_assigners.py: h1 and h2 in rack r1, h3 and h4 in rack r2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.test_assigners import A, decide, job, occupy, state_of
from policy.test_waits_by_offers import finish
from slotwise import Block, Cluster, Host, Job, Phase, Tasks, Workload, simulate
from slotwise.core.decisions import Defer, Launch, Locality, Reallocate
from slotwise.core.errors import InputError
from slotwise.core.events import HostRemoved, TaskFailed
from slotwise.core.job import PhaseId
from slotwise.core.log import Header, Log
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.insight.replay import replay_log
from slotwise.policy.assignment.assigner import Assigner
from slotwise.policy.assignment.delay import Delay, Levels
from slotwise.policy.assignment.flow import Flow

BUSY = PhaseId("busy", "map")
HOT = Workload(
    (
        Job("busy", (Phase("map", Tasks(1, 100.0)),)),
        Job("hot", (Phase("map", Tasks(4, 100.0, [Block(frozenset({"h0"}))] * 4)),), 0.1),
    ),
    Cluster(tuple(Host(f"h{n}", {"task": 1}, f"r{n}") for n in range(5))),
)
"""Four tasks with their input on a host that runs another one, and four free slots."""


def launches_of_hot(assigner: str, levels: str) -> list[float]:
    """When the hot tasks launch, in seconds after their arrival, with a wait of 15 s."""
    options = {"assigner": assigner, "waits": (15, 15), "levels": levels}
    log = simulate(HOT, "fair", **options).log
    return [
        pytest.approx(turn.now - 0.1)
        for turn in log.turns
        for one in turn.decisions
        if isinstance(one, Launch) and one.phase.job == "hot"
    ]


@pytest.mark.parametrize("assigner", ["delay", "flow"])
def test_after_one_wait_all_tasks_launch_as_in_hadoop(assigner: str) -> None:
    """Hadoop MR1 launches four maps at 15 s."""
    assert launches_of_hot(assigner, "persist") == [15, 15, 15, 15]


def test_levels_that_restart_wait_for_each_task() -> None:
    """A round of minimum cost flow is one launch of several tasks."""
    assert launches_of_hot("delay", "restart") == [15, 30, 45, 60]
    assert launches_of_hot("flow", "restart") == [15, 15, 15, 15]


def after_a_launch_in_the_rack(levels: Levels) -> tuple[State, Delay]:
    """At 5 s, a task of a has launched on h2, in the rack of its input; h3 is free."""
    state = state_of(job("busy"), job("a", *["h1"] * 4), hosts=["h1", "h2", "h3"])
    occupy(state, "h1")
    delay = Delay(rack_after=5, any_after=8, levels=levels)
    assert decide(state, delay) == [Defer(A, 0.0, 5.0)]
    assert decide(state, delay, now=5.0)[0] == Launch(A, 0, 1, "h2", Locality.RACK)
    return state, delay


def test_after_a_launch_in_the_rack_it_waits_for_the_rest_of_the_second_wait() -> None:
    """The rack is near enough at once, other racks from 3 s of a new wait on."""
    state, delay = after_a_launch_in_the_rack("persist")
    assert state.phase(A).deferred_until == 8.0
    finish(state, 6.0, A, 0)
    assert decide(state, delay) == [
        Launch(A, 1, 1, "h2", Locality.RACK),
        Defer(A, since=6.0, until=9.0),
    ]
    assert decide(state, delay, now=9.0) == [Launch(A, 2, 1, "h3", Locality.ANY)]
    finish(state, 9.5, A, 1)
    assert decide(state, delay) == [Launch(A, 3, 1, "h2", Locality.RACK)]
    assert state.phase(A).level is Locality.RACK


def test_a_launch_at_a_better_level_resets_it() -> None:
    """After a node-local launch a phase waits as at the beginning."""
    state, delay = after_a_launch_in_the_rack("persist")
    finish(state, 6.0, BUSY)
    assert decide(state, delay)[:1] == [Launch(A, 1, 1, "h1", Locality.NODE)]
    finish(state, 7.0, A, 0)
    assert decide(state, delay, now=7.0) == []
    assert state.phase(A).deferred_until == 11.0


def test_levels_that_restart_begin_with_the_host() -> None:
    """After a launch in the rack another slot there is not near enough."""
    state, delay = after_a_launch_in_the_rack("restart")
    finish(state, 6.0, A, 0)
    assert decide(state, delay) == []
    assert state.phase(A).deferred_until == 10.0


@pytest.mark.parametrize("assigner", [Delay(5, 8), Flow(5, 8)])
def test_a_task_without_a_home_does_not_wait(assigner: Assigner) -> None:
    """Those with input nowhere, or on no host of the cluster, launch at once; one waits.

    Their launches neither end its wait nor set the level.
    """
    blocks = (Block(frozenset({"h1"})), Block(frozenset()), Block(frozenset({"gone"}), 9))
    mixed = Job("a", (Phase("map", Tasks(3, 1.0, blocks)),))
    state = state_of(job("busy"), mixed, hosts=["h1", "h2", "h3"])
    occupy(state, "h1")
    launched = [
        Launch(A, 1, 1, "h2", Locality.NODE),
        Launch(A, 2, 1, "h3", Locality.ANY),
    ]
    assert decide(state, assigner) == launched
    assert state.phase(A).level is Locality.NODE
    finish(state, 1.0, A, 2)
    assert decide(state, assigner) == [Defer(A, since=1.0, until=6.0)]
    state.check()


def test_a_launch_without_a_home_leaves_the_wait_as_it_is() -> None:
    """Pool p may hold one slot: a begins its wait with the slot that its other task takes."""
    blocks = (Block(frozenset({"h1"})), Block(frozenset()))
    mixed = Job("a", (Phase("map", Tasks(2, 1.0, blocks)),), pool="p")
    pools = [Pool("p", slots_max={"task": 1})]
    state = state_of(job("busy"), job("b", pool="p"), mixed, hosts=["h1", "h2"], pools=pools)
    occupy(state, "h1")
    state.apply(Defer(A, since=0.0, until=5.0))
    state.apply(Launch(A, 1, 1, "h2", Locality.NODE))
    phase = state.phase(A)
    assert (phase.deferred_since, phase.deferred_until, phase.waited) == (0.0, 5.0, 0.0)
    state.check()


def test_a_task_that_loses_its_home_launches_at_once() -> None:
    """The host with its input leaves the cluster while its phase waits for it."""
    state = state_of(job("busy"), job("a", "h1"), hosts=["h1", "h3", "h4"])
    occupy(state, "h1")
    assert decide(state, Delay(5, 8)) == [Defer(A, 0.0, 5.0)]
    state.at(1.0)
    state.apply(HostRemoved(1.0, "h1"))
    state.apply(TaskFailed(1.0, BUSY, 0, 1, "its host was removed", lost=True))
    state.apply(Reallocate({A: 1.0, BUSY: 1.0}, until=1e9))
    assert Launch(A, 0, 1, "h3", Locality.ANY) in decide(state, Delay(5, 8))


def test_logs_without_the_setting_were_made_with_waits_that_restart() -> None:
    """They replay as they were made; a log with the setting says it in its header."""
    for levels, is_identical in (("restart", True), ("persist", False)):
        log = simulate(HOT, "fair", assigner="delay", waits=(15, 15), levels=levels).log
        assert log.header.scheduler["levels"] == levels
        plain = log.header.to_plain()
        assert replay_log(replace_header(log, plain)).is_identical
        del plain["scheduler"]["levels"]
        assert replay_log(replace_header(log, plain)).is_identical is is_identical


def replace_header(log: Log, plain: dict[str, object]) -> Log:
    """The log with a header as it is read from a file."""
    return replace(log, header=Header.from_plain(plain))


@pytest.mark.parametrize("levels", ["reset", "", [], 3])
@pytest.mark.parametrize("assigner", ["delay", "flow"])
def test_unknown_levels_are_refused(assigner: str, levels: Any) -> None:
    """The message names the value and what to give."""
    with pytest.raises(InputError) as caught:
        simulate(HOT, "fair", assigner=assigner, levels=levels)
    assert str(caught.value) == f"levels is {levels!r}; give persist or restart"


def test_levels_are_refused_without_waits() -> None:
    """Only assigners that wait take them."""
    with pytest.raises(InputError, match="levels is a parameter of the assigners delay and"):
        simulate(HOT, "fair", levels="persist")
