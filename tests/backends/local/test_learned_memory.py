"""Memory that commands request without stating it: learned by a run, known to the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import JobArrived
from slotwise.core.job import Sizes
from slotwise.core.log import read_log
from slotwise.insight.replay import replay_log
from slotwise.jobs.commands import plan_commands
from slotwise.workload.workload import Workload

MIB = 1 << 20
CLUSTER = Cluster((Host("h", {"task": 4}, resources={"memory": "200 MiB"}),))
COMMAND = "head -c 50M /dev/zero | tail -c 50M > /dev/null"
TASKS = 15


def allotted(folder: Path, log: Path) -> list[int]:
    """The memory that each launch of a run got."""
    job = plan_commands("many", COMMAND, tasks=TASKS)
    workload = Workload((job,), cluster=CLUSTER)
    history = folder / "history.db"
    result = slotwise.run(workload, "fifo", emulate_hosts=True, history=history, log=log)
    assert not result.failed
    assert replay_log(read_log(log)).is_identical
    decisions = (one for turn in read_log(log).turns for one in turn.decisions)
    return [one.memory for one in decisions if isinstance(one, Launch)]


def test_commands_teach_how_many_run_at_once(tmp_path: Path) -> None:
    """The first ten of a run; in the next one, with its history, all get an amount."""
    first = allotted(tmp_path, tmp_path / "first.jsonl")
    assert len(first) == TASKS
    assert set(first[:10]) == {0}
    assert 50 * MIB < first[-1] < 100 * MIB
    second = allotted(tmp_path, tmp_path / "second.jsonl")
    assert all(50 * MIB < memory < 100 * MIB for memory in second)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [({}, {"map": (6, 3), "reduce": 9}), ({"memory": "1 MiB"}, {})],
)
def test_jobs_of_programs_state_the_sizes_of_their_inputs(
    tmp_path: Path, resources: dict[str, Any], expected: dict[str, Sizes]
) -> None:
    """In live runs, where memory is learned by them."""
    for name, text in (("a.txt", "a b a\n"), ("b.txt", "b\n\n")):
        (tmp_path / name).write_text(text)
    inputs = str(tmp_path / "a.txt"), str(tmp_path / "b.txt")
    settings: dict[str, Any] = {"reducers": 1, "split_bytes": 6, "resources": resources}
    job = slotwise.mapreduce("wordcount", inputs, str(tmp_path / "out"), **settings)
    result = slotwise.run(Workload((job,), cluster=CLUSTER), "fifo", emulate_hosts=True)
    (arrived,) = (
        event.job
        for turn in result.log.turns
        for event in turn.events
        if isinstance(event, JobArrived)
    )
    sizes = {one.name: one.tasks.sizes for one in arrived.phases}
    assert {name: of for name, of in sizes.items() if of is not None} == expected
