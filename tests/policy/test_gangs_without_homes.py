"""Gangs of which only some tasks have input: the others are near it on any host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.job import Block, Job, Phase, Tasks

HOSTS = Cluster((Host("a", {"task": 2}), Host("b", {"task": 2})))
NONE = Block(frozenset())


@pytest.mark.parametrize(
    ("assigner", "waits"), [("greedy", None), ("delay", (3.0, 6.0)), ("flow", (3.0, 6.0))]
)
def test_tasks_without_input_wait_for_no_host(
    simulated: Callable[..., object], assigner: str, waits: tuple[float, float] | None
) -> None:
    """The gang starts at once, with its last task at the input of that one."""
    blocks = (NONE, NONE, Block(frozenset("b"), 100))
    gang = Job("gang", (Phase("p", Tasks(3, 1.0, blocks), gang=True),))
    watch = simulated([gang], HOSTS, assigner=assigner, waits=waits)
    launches = [
        (turn.now, decision.task, decision.host, decision.locality)
        for turn in watch.log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch)
    ]
    assert [launch[:2] for launch in launches] == [(0.0, 0), (0.0, 1), (0.0, 2)]
    assert launches[2][2] == "b"
    assert {locality for *_, locality in launches} == {Locality.NODE}


@pytest.mark.parametrize("assigner", ["delay", "flow"])
def test_a_task_with_input_is_waited_for(
    simulated: Callable[..., object], assigner: str
) -> None:
    """Both slots beside the input are taken for a second."""
    blocks = (NONE, Block(frozenset("a"), 100))
    first = Job("first", (Phase("p", Tasks(2, 1.0, [Block(frozenset("a"), 1)] * 2)),))
    gang = Job("gang", (Phase("p", Tasks(2, 1.0, blocks), gang=True),), arrival=0.1)
    watch = simulated([first, gang], HOSTS, name="fifo", assigner=assigner, waits=(3.0, 6.0))
    assert watch.state.completed == {"first": 1.0, "gang": 2.0}
