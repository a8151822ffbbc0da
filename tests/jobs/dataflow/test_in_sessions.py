"""Dataflow jobs in sessions that stay open: many of one graph, changing hosts, wide bundles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import slotwise
from slotwise.core.cluster import Cluster, Host


def held(numbers: Iterator[int], folder: str) -> Iterator[int]:
    """Says that it runs, and waits for the file "go"."""
    first = next(numbers)
    Path(folder, f"runs-{first}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    yield first
    yield from numbers


def whole(number: int) -> int:
    """The key of a record."""
    return number


def added(numbers: Iterator[int]) -> Iterator[int]:
    """The sum."""
    yield sum(numbers)


def square(width: int, function: Callable[..., object], **parameters: object) -> object:
    """A bundle in which each copy of a node writes to each copy of another one."""
    flow = slotwise.Dataflow()
    numbers = flow.values(range(10 * width), copies=width)
    one = flow.node(function, numbers, parameters=parameters)
    flow.write(flow.node(added, one.tcp(by=whole), copies=width))
    return flow


def total(output: Path) -> int:
    """The sum of all parts."""
    return sum(int(part.read_text()) for part in output.glob("part-n-*"))


def all_of(numbers: Iterator[int]) -> Iterator[int]:
    """The records."""
    yield from numbers


def test_one_graph_runs_ten_times_in_a_session(tmp_path: Path) -> None:
    """All jobs are there at once; nothing of them is left in the work folder."""
    flow = square(2, all_of)
    with slotwise.Session(4) as session:
        jobs = [
            session.run(flow.job(f"j{n}", tmp_path / f"out{n}", work_dir=tmp_path / "work"))
            for n in range(10)
        ]
        for job in jobs:
            job.result()
        assert [total(tmp_path / f"out{n}") for n in range(10)] == [sum(range(20))] * 10
        assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("drain", [True, False])
def test_hosts_may_change_while_a_bundle_runs(tmp_path: Path, drain: bool) -> None:
    """If a host is removed at once, the whole bundle starts again; a drained one stays."""
    flow = square(2, held, folder=str(tmp_path))
    hosts = tuple(Host(name, {"task": 2}) for name in "ab")
    with slotwise.Session(Cluster(hosts)) as session:
        job = session.run(flow.job("j", tmp_path / "out", work_dir=tmp_path / "work"))
        while len(list(tmp_path.glob("runs-*"))) < 2:
            assert not job.done()
            time.sleep(0.01)
        session.add_host("c", 2)
        session.remove_host("b", drain=drain)
        (tmp_path / "go").touch()
        job.result()
        assert total(tmp_path / "out") == sum(range(20))
        assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
def test_a_thousand_channels_in_one_bundle(tmp_path: Path) -> None:
    """32 copies write to 32 copies; all of them run at the same time."""
    job = square(32, all_of).job("j", tmp_path / "out", work_dir=tmp_path / "work")
    assert not slotwise.run([job], slots=64).failed
    assert total(tmp_path / "out") == sum(range(320))
