"""Hosts are killed, frozen, drained and connected again at random moments."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import slotwise
from agent_processes import Loopback
from backends.agents.trouble import Trouble
from backends.local.calling import TIMEOUT
from dataflow_nodes import as_lines, counted_words, slow_words, word, word_of
from random_dataflows import check
from slotwise import Pool, Preemption
from slotwise.backends.agents import slots as agent_slots
from slotwise.backends.agents.backend import AgentsBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.insight.replay import replay_log
from slotwise.jobs.calls import Calls
from slotwise.jobs.dataflow.planning import plan_dataflow
from slotwise.jobs.dataflow.stages import derive
from slotwise.jobs.execution import Execution
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from slotwise.jobs.work_folder import sweep
from tiers import examples

CLUSTER = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1}), Host("c", {"task": 1})))
POOLS = [Pool("urgent", slots_min=2, preemption=Preemption(least_after=0.0, grace=1.0))]
STEPS = 30


@pytest.fixture
def loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Agents of three hosts with folders of their own; nothing of them is left afterwards.

    Silence of more than 1.5 s, instead of 3 s, is noticed.
    """
    monkeypatch.setattr(agent_slots, "SILENT_SECONDS", 1.5)
    folder = tmp_path / "hosts"
    source = Loopback(CLUSTER, folder)
    try:
        yield source
    finally:
        source.close()
    for host in CLUSTER.by_name:  # As the next agent does there after one that was killed.
        sweep(folder / host)
    assert not [path for path in folder.rglob("*") if not path.is_dir()]
    until = time.monotonic() + TIMEOUT
    while processes_of(folder):
        assert time.monotonic() < until
        time.sleep(0.05)


def processes_of(folder: Path) -> list[str]:
    """The processes whose environment names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if os.fsencode(folder) in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def steps(number: int) -> int:
    """Take some steps, each of which is kept if this is asked for; their sum."""
    import time

    from slotwise import task

    step, total = task.kept() or (0, 0)
    while step < STEPS:
        total += step * number
        step += 1
        time.sleep(0.02)
        if task.stop_requested():
            task.stop((step, total))
    return int(total)


def write_text(place: Path) -> list[str]:
    """Write eight files of lines; the lines."""
    rng, lines = random.Random(1), []
    (place / "in").mkdir()
    for number in range(8):
        some = [" ".join(f"w{rng.randrange(300)}" for _ in range(8)) for _ in range(200)]
        (place / "in" / f"{number}.txt").write_text("\n".join(some) + "\n")
        lines += some
    return lines


def flow_of(place: Path) -> slotwise.Dataflow:
    """Words go by TCP to two groups that count them, whose files two others read."""
    flow = slotwise.Dataflow()
    lines = flow.read(str(place / "in"), split_bytes=1 << 20)
    words = flow.node(slow_words, lines, copies=1)
    counts = flow.node(counted_words, words.tcp(by=word), copies=2)
    flow.write(flow.node(as_lines, counts.file(by=word_of, sort=True), copies=2))
    return flow


def jobs(place: Path) -> list[Execution]:
    """Word count, sort and a dataflow, which may take slots from calls that keep values."""

    def program(name: str) -> Execution:
        return plan_mapreduce(
            name,
            name,
            str(place / "in"),
            str(place / name),
            reducers=3,
            split_bytes=4000,
            pool="urgent",
        )

    calls = Calls(Job("calls", (Phase("p", Tasks(12)),)), steps)
    flow = plan_dataflow("flow", flow_of(place), place / "flow", pool="urgent")
    return [calls, program("wordcount"), program("sort"), flow]


def parts(output: Path) -> list[str]:
    """The lines of a complete output."""
    assert (output / "_SUCCESS").exists()
    found = sorted(output.glob("part-*"))
    return [line for part in found for line in part.read_text().splitlines()]


def play(
    seed: int, count: int, pause: float, place: Path, loopback: Loopback, watched: Callable
) -> list[str]:
    """Run the jobs with faults, and check all that they leave; the faults."""
    place.mkdir()
    lines = write_text(place)
    executions = jobs(place)
    with (
        AgentsBackend(executions, loopback, loopback.connect(), grace=1.0) as backend,
        Trouble(backend, loopback, CLUSTER, seed, count, pause) as trouble,
    ):
        found = watched(
            backend,
            [execution.job for execution in executions],
            CLUSTER,
            POOLS,
            backend_name="live",
            attempts_max=1000,  # A worker that is killed fails its attempt.
        )
    assert not found.state.failed
    words = Counter(word for line in lines for word in line.split())
    assert dict(line.split("\t") for line in parts(place / "wordcount")) == {
        word: str(count) for word, count in words.items()
    }
    assert [line.rstrip("\t") for line in parts(place / "sort")] == sorted(lines)
    check(derive(flow_of(place).graph()), place / "flow")
    (calls, *_) = executions
    assert calls.results["p"] == {n: n * sum(range(STEPS)) for n in range(12)}
    assert replay_log(found.log).is_identical
    return trouble.done


@pytest.mark.slow
def test_outputs_are_right_whatever_happens_to_hosts(
    tmp_path: Path, loopback: Loopback, watched: Callable
) -> None:
    """The state is checked after each turn, the replay is identical, and nothing is left."""
    done: list[str] = []
    runs = 0
    while len(done) < examples(3, slow=200):
        pause = random.Random(runs).choice([0.2, 0.5, 1.0])
        wanted = examples(3, slow=12)
        done += play(runs, wanted, pause, tmp_path / str(runs), loopback, watched)
        runs += 1
