"""Tasks run on the agents whose hosts hold their input."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_processes import Loopback
from slotwise.backends.agents.backend import AgentsBackend, cluster_of
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Launch, Locality
from slotwise.core.events import Event
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from slotwise.policy.scheduler import make_scheduler

PLACES = {f"{number}.txt": ["ab"[number % 2]] for number in range(6)}
"""The host of each file: two agents on this machine, told apart by their names."""


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[Loopback]:
    """Agents of two hosts with one slot each."""
    cluster = Cluster((Host("a", {"task": 1}), Host("b", {"task": 1})))
    source = Loopback(cluster, tmp_path / "hosts", is_one_machine=True)
    try:
        yield source
    finally:
        source.close()


def maps(folder: Path, loopback: Loopback, assigner: str, **settings: Any) -> dict[int, Launch]:
    """The launch of each map of word count on six files of one split each."""
    for name in PLACES:
        (folder / name).write_text("a b c\n" * 100)
    hosts = loopback.connect()
    execution = plan_mapreduce(
        "count",
        "wordcount",
        [str(folder / name) for name in PLACES],
        str(folder / "out"),
        base_dir=folder,
        split_bytes=600,
        cluster=cluster_of(hosts),
        **settings,
    )
    launches: list[Launch] = []

    def record(now: float, events: list[Event], decisions: list[Decision]) -> None:
        launches.extend(one for one in decisions if isinstance(one, Launch))
        state.check()

    state = State(cluster_of(hosts))
    with AgentsBackend([execution], loopback, hosts, grace=60) as backend:
        waits = (600.0, 600.0)  # Longer than the test: no map runs elsewhere.
        run(make_scheduler("fifo", assigner, waits=waits), backend, state, record)
    assert not state.failed
    return {launch.task: launch for launch in launches if launch.phase.phase == "map"}


@pytest.mark.parametrize("assigner", ["delay", "flow"])
def test_maps_run_where_a_table_says(tmp_path: Path, loopback: Loopback, assigner: str) -> None:
    """By the names of the hosts, although both are on one machine."""
    found = maps(tmp_path, loopback, assigner, input_hosts=PLACES)
    assert [found[task].host for task in range(6)] == ["a", "b"] * 3
    assert {launch.locality for launch in found.values()} == {Locality.NODE}


def test_the_hosts_of_a_machine_have_its_blocks(tmp_path: Path, loopback: Loopback) -> None:
    """A location by the address of an agent, or by the name of the machine, means both."""

    def locate(path: str) -> list[tuple[int, int, list[str]]]:
        return [(0, 600, ["127.0.0.1" if "0.txt" in path else socket.gethostname()])]

    found = maps(tmp_path, loopback, "delay", input_hosts=locate)
    assert len(found) == 6
    assert {launch.locality for launch in found.values()} == {Locality.NODE}
