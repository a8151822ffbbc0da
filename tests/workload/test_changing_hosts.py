"""Changes of the hosts in a workload file."""

from __future__ import annotations

from typing import Any

import pytest

from slotwise.api import run, simulate
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Host
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostDrained, HostRemoved
from slotwise.plans import plan, plan_tasks
from slotwise.workload.file import parse_workload

FILE = """\
slotwise: 1
cluster:
  hosts: [{name: h1, slots: 1}]
  changes:
    - {at: 30, remove: h1}
    - {at: 10, add: {name: h2, slots: {map: 2, reduce: 1}, rack: r, speed: 2}}
    - {at: 20.5, drain: h1}
    - {at: 40, add: {name: h1, slots: 1}}
jobs: [{id: j, phases: [{name: map, work: 8, tasks: 8}]}]
"""


def test_changes_are_read_in_order_of_time() -> None:
    """The file may list them in any order."""
    assert parse_workload(FILE).changes == (
        HostAdded(10.0, Host("h2", {"map": 2, "reduce": 1}, "r", 2.0)),
        HostDrained(20.5, "h1"),
        HostRemoved(30.0, "h1"),
        HostAdded(40.0, Host("h1", {"task": 1})),
    )


def changing(changes: str, slots: str = "1", kind: str = "task", split: bool = False) -> str:
    """A workload of eight tasks of 1 s on one host, with these changes."""
    return (
        "slotwise: 1\n"
        f"cluster: {{hosts: [{{name: h1, slots: {slots}}}], changes: [{changes}]}}\n"
        f"shuffle: {{split: {str(split).lower()}}}\n"
        f"jobs: [{{id: j, phases: [{{name: m, kind: {kind}, work: 8, tasks: 8}}]}}]\n"
    )


@pytest.mark.parametrize(
    ("changes", "completion"),
    [
        ("", 8.0),
        ("{at: 4, add: {name: h2, slots: 3}}", 5.0),
        ("{at: 4, add: {name: h2, slots: 1}}", 6.0),
        ("{at: 3.5, drain: h1}, {at: 6, add: {name: h2, slots: 2}}", 8.0),
        ("{at: 3.5, remove: h1}, {at: 6, add: {name: h2, slots: 1}}", 11.0),
        ("{at: 3.5, remove: h1}, {at: 3.5, add: {name: h1, slots: 5}}", 4.5),
    ],
)
@pytest.mark.parametrize("scheduler", ["fifo", "fair", "flex", "dmrs", "flowflex-fast"])
@pytest.mark.sampled(4)
def test_a_simulation_uses_the_hosts_that_are_there(
    changes: str, completion: float, scheduler: str
) -> None:
    """A removed host loses the task that runs there, a drained one completes it."""
    result = simulate(parse_workload(changing(changes)), scheduler)
    assert result.outcome.jobs["j"]["completion"] == completion
    assert result.outcome.bound <= result.outcome.metrics["value"]


def test_a_job_waits_for_a_kind_of_slots_that_comes_later() -> None:
    """No host had such slots, nor plain ones, when it arrived."""
    text = changing("{at: 5, add: {name: h2, slots: {gpu: 2}}}", "{map: 1}", "gpu")
    result = simulate(parse_workload(text))
    assert result.outcome.jobs["j"]["start"] == 5.0
    assert result.outcome.jobs["j"]["completion"] == 9.0
    assert result.log.header.cluster.kinds == {"gpu"}


def test_added_hosts_get_slots_for_copying() -> None:
    """As the hosts have that are there from the beginning."""
    text = (
        changing("{at: 1, add: {name: h2, slots: {map: 1, reduce: 2}}}", split=True)
        .replace("slots: 1}]", "slots: {map: 1, reduce: 1}}]")
        .replace("kind: task", "kind: map")
    )
    result = simulate(parse_workload(text))
    (added,) = [e for t in result.log.turns for e in t.events if isinstance(e, HostAdded)]
    assert added.host.slots == {"map": 1, "reduce": 2, "copy": 4}


def test_slots_and_a_simulation_replace_the_changes() -> None:
    """They belong to the cluster of the workload."""
    workload = parse_workload(changing("{at: 4, add: {name: h2, slots: 3}}"))
    assert simulate(workload, slots=2).outcome.jobs["j"]["completion"] == 4.0
    other = Simulation(changes=(HostAdded(6.0, Host("h2", {"task": 1})),))
    assert simulate(workload, simulation=other).outcome.jobs["j"]["completion"] == 7.0


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda w: plan(w), "a plan is for hosts that do not change"),
        (lambda w: plan_tasks(w), "a plan is for hosts that do not change"),
        (lambda w: run(w, emulate_hosts=True), "emulated hosts do not change"),
    ],
)
def test_changes_are_refused_where_hosts_stay(act: Any, message: str) -> None:
    """In plans, and where hosts are emulated."""
    workload = parse_workload(changing("{at: 4, add: {name: h2, slots: 3}}"))
    with pytest.raises(InputError, match=f"cluster.changes: {message}"):
        act(workload)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            (HostAdded(-1.0, Host("h2", {"task": 1})),),
            "host 'h2' is added: at is -1.0; give",
        ),
        ((HostRemoved(1.0, "x"),), "host 'x' is removed at 1 s, but is not there then"),
        ((HostRemoved(1.0, "h1"),), "no host has slots of kind 'task' after the last change"),
        ((HostDrained(1.0, "h1"),), "no host has slots of kind 'task' after the last change"),
        (
            (HostAdded(1.0, Host("h2", {"map": 1})),),
            "dmrs takes machines that run any task, not slots of kinds map, task",
        ),
    ],
)
def test_impossible_changes_of_a_simulation_are_refused(
    changes: tuple[Any, ...], message: str
) -> None:
    """Before anything is simulated."""
    with pytest.raises(InputError, match=message):
        simulate(parse_workload(changing("")), "dmrs", simulation=Simulation(changes=changes))
