"""Dataflow jobs whose nodes fail or hang, and runs of them that are stopped or killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slotwise
from dataflow_nodes import doubled, dying_once, failing, stuck, total

JOBS = """\
slotwise: 1
jobs:
  - id: stuck
    output: out
    dataflow:
      nodes:
        - {name: values, inputs: in.txt}
        - {name: one, function: "dataflow_nodes:stuck", parameters: {folder: pids},
           reads: [{node: values, kind: shm}]}
        - {name: two, function: "dataflow_nodes:stuck", parameters: {folder: pids},
           reads: [{node: one, kind: tcp}]}
      write: [two]
"""


def flow_with(function: Callable[..., Any], kind: str, **parameters: object) -> Any:
    """A pipeline of three nodes, of which this one is in the middle."""
    flow = slotwise.Dataflow()
    numbers = flow.node(doubled, flow.values(range(100_000)))
    middle = flow.node(function, getattr(numbers, kind)(), parameters=parameters)
    flow.write(flow.node(total, getattr(middle, kind)()))
    return flow


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["shm", "tcp"])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raises", r"(?s)node failing\[0\]: Traceback.*ValueError: no 500, please$"),
        ("exits", r"node failing\[0\] has called sys.exit\('enough'\); return"),
    ],
)
def test_a_node_that_fails_is_the_one_failure_of_its_job(
    kind: str, how: str, told: str, tmp_path: Path
) -> None:
    """The nodes next to it, whose channels break, are not named."""
    job = flow_with(failing, kind, how=how).job("a", tmp_path / "out", work_dir=tmp_path)
    with slotwise.Session(3) as session:
        future = session.run(job)
        with pytest.raises(slotwise.SlotwiseError, match=told) as caught:
            future.result()
    assert "doubled[0]: Trace" not in str(caught.value)
    assert "Broken" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_node_whose_process_is_killed_is_named(tmp_path: Path) -> None:
    """It is not the first node of its group, so it has a process of its own."""
    job = flow_with(failing, "shm", how="dies").job("a", tmp_path / "out", work_dir=tmp_path)
    told = r"node failing\[0\]: its process \d+ was killed by signal 9 \(SIGKILL\)"
    with slotwise.Session(3) as session:
        future = session.run(job)
        with pytest.raises(slotwise.SlotwiseError, match=told):
            future.result()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["tcp", "shm"])
def test_a_node_that_is_killed_is_no_failed_attempt(kind: str, tmp_path: Path) -> None:
    """It is lost: a group beside others, or a node in a process of its own in the group."""
    marker = tmp_path / "marker"
    marker.touch()
    job = flow_with(dying_once, kind, marker=str(marker)).job("a", tmp_path / "out")
    with slotwise.Session(3, attempts_max=1) as session:
        session.run(job).result()
    assert (tmp_path / "out" / "part-n-00000").read_text() == f"{sum(range(0, 200_000, 2))}\n"


def test_a_node_that_hangs_ends_with_its_job(tmp_path: Path, processes: Any) -> None:
    """When the job is cancelled, its processes are killed, also those of single nodes."""
    (tmp_path / "pids").mkdir()
    flow = flow_with(stuck, "shm", folder=str(tmp_path / "pids"))
    with slotwise.Session(3) as session:
        future = session.run(flow.job("a", tmp_path / "out", work_dir=tmp_path))
        processes.wait_for(lambda: pids(tmp_path))
        (pid,) = pids(tmp_path)
        assert future.cancel()
        processes.wait_for(lambda: not processes.lives(pid))
    assert [path.name for path in tmp_path.iterdir()] == ["pids"]


@pytest.fixture
def running(command: Any, processes: Any) -> Any:
    """A run of a gang that hangs: with a group of two nodes, and one of one node."""
    command.write("a line\n", "in.txt")
    command.write(JOBS)
    (command.folder / "pids").mkdir()
    nodes = Path(__file__).parents[1]
    command.write((nodes / "dataflow_nodes.py").read_text(), "dataflow_nodes.py")
    process = command.start("run", "jobs.yaml", "--slots", "4")
    processes.wait_for(lambda: len(pids(command.folder)) == 2)
    return process


def pids(folder: Path) -> list[int]:
    """The processes of nodes that hang."""
    return [int(path.name.removeprefix("pid-")) for path in (folder / "pids").iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_or_killed_run_leaves_no_process(
    number: signal.Signals, running: Any, command: Any, processes: Any
) -> None:
    """Nor a file, unless it is killed: then the next run removes the files."""
    nodes = [*processes.children(running.pid), *pids(command.folder)]
    os.kill(running.pid, number)
    running.wait(processes.TIMEOUT)
    processes.wait_for(lambda: not any(map(processes.lives, nodes)))
    if number == signal.SIGINT:
        assert command.left() == []
        assert not (command.folder / "out").exists()


def test_a_killed_worker_takes_its_nodes_with_it(
    running: Any, command: Any, processes: Any
) -> None:
    """The gang begins again, with other processes."""
    before = pids(command.folder)
    with_children = [pid for pid in processes.children(running.pid) if processes.children(pid)]
    assert len(with_children) == 1
    os.kill(with_children[0], signal.SIGKILL)
    processes.wait_for(lambda: len(pids(command.folder)) == 4)
    processes.wait_for(lambda: not any(map(processes.lives, before)))
    os.kill(running.pid, signal.SIGINT)
    running.wait(processes.TIMEOUT)
    assert command.left() == []
