"""Programs on hosts with folders of their own: map output is fetched, and can be lost."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import Popen

import pytest

from agent_processes import Loopback, end_agent, files_named
from backends.local.calling import TIMEOUT
from slotwise.backends.agents.backend import AgentsBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, GiveUp, Launch
from slotwise.core.events import (
    Event,
    HostAdded,
    HostDrained,
    HostRemoved,
    OutputLost,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import Job, Phase, PhaseId, Shuffle, Tasks
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.jobs.calls import Calls
from slotwise.jobs.commit import OutputDirectory
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from slotwise.jobs.work_folder import sweep
from slotwise.policy.scheduler import make_scheduler

MAPS = 24
"""The number of maps: two for each file."""

CLUSTER = Cluster(tuple(Host(name, {"task": 1}) for name in "abc"))


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[Loopback]:
    """Agents of three hosts with one slot each; the folder of each is its own."""
    source = Loopback(CLUSTER, tmp_path / "hosts")
    try:
        yield source
    finally:
        source.close()
    for host in source.agents:  # As the next agent does there after one that was killed.
        sweep(tmp_path / "hosts" / host)
    assert not [path for path in (tmp_path / "hosts").rglob("*") if not path.is_dir()]


def words(place: Path, files: int) -> Counter[str]:
    """Write files of random words; how often each word is in them."""
    rng, total = random.Random(files), Counter[str]()
    for number in range(files):
        some = [f"w{rng.randrange(500)}" for _ in range(2000)]
        total.update(some)
        (place / f"{number:02}.txt").write_text(" ".join(some))
    return total


def counted(output: Path) -> dict[str, int]:
    """The output of word count."""
    assert (output / "_SUCCESS").exists()
    lines = [line for part in output.glob("part-*") for line in part.read_text().splitlines()]
    return {word: int(count) for word, count in (line.split("\t") for line in lines)}


def counts(
    loopback: Loopback,
    place: Path,
    on_turn: Callable[[list[Event], list[Decision]], None] = lambda events, decisions: None,
    program: str = "wordcount",
    reducers: int = 3,
    **settings: object,
) -> list[Event]:
    """Count the words of `place`/in on these agents. All events."""
    execution = plan_mapreduce(
        "count",
        program,
        str(place / "in"),
        str(place / "out"),
        reducers=reducers,
        split_bytes=8000,
        **settings,
    )
    heard: list[Event] = []

    def record(now: float, events: list[Event], decisions: list[Decision]) -> None:
        heard.extend(events)
        on_turn(events, decisions)
        state.check()
        assert not any(isinstance(decision, GiveUp) for decision in decisions)

    state = State(CLUSTER)
    with AgentsBackend([execution], loopback, loopback.connect(), grace=60) as backend:
        run(make_scheduler("fair"), backend, state, record)
    return heard


@pytest.fixture
def text(tmp_path: Path) -> Counter[str]:
    """Twelve files; how often each word is in them."""
    (tmp_path / "in").mkdir()
    return words(tmp_path / "in", 12)


def test_map_output_is_fetched_from_the_hosts_that_made_it(
    tmp_path: Path, loopback: Loopback, text: Counter[str]
) -> None:
    """Each host has only what its own maps wrote; the output is that of all."""
    heard = counts(loopback, tmp_path)
    assert counted(tmp_path / "out") == text
    finished = [event for event in heard if isinstance(event, TaskFinished)]
    assert len(finished) == MAPS + 3


class Six(Loopback):
    """Agents that listen on loopback of IPv6."""

    def address(self, name: str) -> str:
        """The same for all hosts; their ports differ."""
        return "::1"


@pytest.mark.slow
def test_hosts_may_have_addresses_of_ipv6(tmp_path: Path, text: Counter[str]) -> None:
    """The manager connects to them, and reduces fetch from them."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    source = Six(CLUSTER, tmp_path / "hosts")
    heard = counts(source, tmp_path)
    assert counted(tmp_path / "out") == text
    assert not [event for event in heard if isinstance(event, TaskFailed)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("maps", [3, MAPS - 1])
def test_the_output_of_a_lost_host_is_made_again(
    tmp_path: Path, loopback: Loopback, text: Counter[str], maps: int
) -> None:
    """An agent is killed early among the maps, or before the last of them has ended."""
    hosts: dict[int, str] = {}  # of the maps
    done: list[int] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        before = len(done)
        done.extend(event.task for event in events if isinstance(event, TaskFinished))
        if before < maps <= len(done):
            loopback.agents[hosts[done[0]]].kill()
        hosts.update({one.task: one.host for one in decisions if isinstance(one, Launch)})

    heard = counts(loopback, tmp_path, on_turn)
    assert counted(tmp_path / "out") == text
    assert len([event for event in heard if isinstance(event, HostRemoved)]) == 1
    lost = [task for event in heard if isinstance(event, OutputLost) for task in event.tasks]
    assert done[0] in lost


@pytest.mark.slow
def test_files_that_disappear_are_made_again(
    tmp_path: Path, loopback: Loopback, text: Counter[str]
) -> None:
    """The host is there, but not what its maps wrote."""
    gone: list[Path] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        if not gone and len(files_named(tmp_path / "hosts", "pairs")) >= 11:
            for path in files_named(tmp_path / "hosts" / "c", "pairs"):
                path.unlink()
                gone.append(path)

    heard = counts(loopback, tmp_path, on_turn)
    assert gone
    assert counted(tmp_path / "out") == text
    assert any(isinstance(event, OutputLost) for event in heard)


def test_a_host_whose_folder_is_removed_is_lost(
    tmp_path: Path, loopback: Loopback, text: Counter[str]
) -> None:
    """No task fails by it. The host comes again, with a new folder."""
    gone: list[str] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        if not gone and len(files_named(tmp_path / "hosts", "pairs")) >= 11:
            # At once: a task that writes there meanwhile would keep a folder from its removal.
            (tmp_path / "hosts" / "c").rename(tmp_path / "removed")
            gone.append("c")
        if any(isinstance(event, HostRemoved) for event in events):
            loopback.join(loopback.connect_to("c"))

    heard = counts(loopback, tmp_path, on_turn)
    assert gone
    assert counted(tmp_path / "out") == text
    failed = [event for event in heard if isinstance(event, TaskFailed)]
    assert all(event.lost or event.lacks_input for event in failed)
    assert [event.host for event in heard if isinstance(event, HostRemoved)] == ["c"]
    assert [event.host.name for event in heard if isinstance(event, HostAdded)] == ["c"]


@pytest.mark.slow
def test_the_output_of_a_frozen_host_is_made_again(
    tmp_path: Path, loopback: Loopback, text: Counter[str]
) -> None:
    """All maps are done when it stops; a reduce that waits for it gives it up after a time."""
    hosts: dict[int, str] = {}  # of the maps
    done: list[int] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        launches = [one for one in decisions if isinstance(one, Launch)]
        hosts.update({one.task: one.host for one in launches if one.phase.phase == "map"})
        before = len(done)
        done.extend(event.task for event in events if isinstance(event, TaskFinished))
        if before < MAPS <= len(done):
            reduces = {one.host for one in launches}
            frozen.append(min({*hosts.values()} - reduces, default="c"))
            loopback.agents[frozen[0]].send_signal(signal.SIGSTOP)
        if any(isinstance(event, OutputLost) for event in events):
            loopback.agents[frozen[0]].send_signal(signal.SIGCONT)

    frozen: list[str] = []
    counts(loopback, tmp_path, on_turn, reducers=2)
    assert frozen
    assert counted(tmp_path / "out") == text


def test_a_shared_work_folder_needs_no_fetching(
    tmp_path: Path, loopback: Loopback, text: Counter[str]
) -> None:
    """All hosts see the files; those of a host that left stay."""
    heard = counts(loopback, tmp_path, work_dir=str(tmp_path / "shared"))
    assert counted(tmp_path / "out") == text
    assert not any(isinstance(event, OutputLost) for event in heard)
    assert not files_named(tmp_path / "hosts", "pairs")
    assert os.listdir(tmp_path / "shared") == []


@pytest.mark.slow
def test_nothing_is_left_while_agents_go_on(
    tmp_path: Path, loopback: Loopback, text: Counter[str]
) -> None:
    """The files of a job are removed from hosts when it is over."""
    counts(loopback, tmp_path)
    until = time.monotonic() + TIMEOUT
    while files_named(tmp_path / "hosts", "pairs"):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shuffle", [Shuffle(slow_start=0.1), Shuffle(split=True)])
@pytest.mark.parametrize("loses", [False, True])
def test_reduces_that_copy_first(
    tmp_path: Path, loopback: Loopback, text: Counter[str], shuffle: Shuffle, loses: bool
) -> None:
    """Reduces have no slots of their own, so none copies while maps run.

    If copying is a phase, its output is lost with its host, too.
    """
    last = "reduce-copy" if shuffle.split else "map"
    lost: list[PhaseId] = []

    def on_turn(events: list[Event], decisions: list[Decision]) -> None:
        for event in events:
            if isinstance(event, OutputLost):
                lost.append(event.phase)
            if isinstance(event, TaskFinished) and event.phase.phase == last:
                done.append(event.task)
        for launch in decisions:
            if isinstance(launch, Launch) and launch.phase.phase == last:
                hosts[launch.task] = launch.host
        if loses and done and not killed:
            killed.append(hosts[done[0]])
            loopback.agents[killed[0]].kill()

    done: list[int] = []
    hosts: dict[int, str] = {}
    killed: list[str] = []
    counts(loopback, tmp_path, on_turn, shuffle=shuffle)
    assert counted(tmp_path / "out") == text
    assert (PhaseId("count", last) in lost) is loses
    assert not files_named(tmp_path / "hosts", "fetched-0")


@pytest.mark.slow
def test_a_host_that_comes_again_during_a_commit_joins_afterwards(
    tmp_path: Path, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last task of the job counts as running there until its output is in place."""
    commit, hosts, old = OutputDirectory.commit, dict[str, str](), list[Popen[str]]()

    def slow_commit(self: OutputDirectory, staged: Mapping[str, str]) -> None:
        old.append(loopback.agents[hosts["count"]])
        loopback.join(loopback.begin(CLUSTER.by_name[hosts["count"]]))
        time.sleep(0.5)
        commit(self, staged)

    def on_turn(now: float, events: list[Event], decisions: list[Decision]) -> None:
        heard.extend(events)
        hosts.update({one.phase.job: one.host for one in decisions if isinstance(one, Launch)})
        if any(isinstance(event, HostAdded) for event in events):
            joined.touch()
        state.check()

    def wait(task: int) -> None:
        while not joined.exists():
            time.sleep(0.01)

    joined = tmp_path / "joined"
    monkeypatch.setattr(OutputDirectory, "commit", slow_commit)
    (tmp_path / "in").mkdir()
    words(tmp_path / "in", 1)
    inputs, output = str(tmp_path / "in"), str(tmp_path / "out")
    count = plan_mapreduce("count", "wordcount", inputs, output, reducers=1)
    calls = Calls(Job("calls", (Phase("p", Tasks(1)),)), wait)
    heard, state = list[Event](), State(CLUSTER)
    with AgentsBackend([count, calls], loopback, loopback.connect(), grace=60) as backend:
        run(make_scheduler("fair"), backend, state, on_turn)
    for agent in old:
        end_agent(agent)
    changes = [event for event in heard if isinstance(event, HostAdded | HostDrained)]
    assert [type(event) for event in changes] == [HostDrained, HostAdded]
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.slow
def test_large_results_travel_between_hosts(loopback: Loopback) -> None:
    """A result of one host is the argument of a call on another one."""
    import numpy as np

    job = Job(
        "j",
        (Phase("make", Tasks(3)), Phase("add", Tasks(3), after=frozenset({"make"}))),
    )
    calls = Calls(
        job,
        {
            "make": lambda task: np.full(200_000, task),
            "add": lambda task, found: int(sum(found["make"][n].sum() for n in range(3))),
        },
    )
    state = State(CLUSTER)
    with AgentsBackend([calls], loopback, loopback.connect(), grace=60) as backend:
        run(make_scheduler("fair"), backend, state, lambda *turn: None)
    assert calls.results["add"] == dict.fromkeys(range(3), 600_000)
