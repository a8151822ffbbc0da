"""Sources: what schedulers, backends and logs receive of a workload in any form."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Shuffle, Tasks
from slotwise.core.pools import Pool, Preemption, TimeOuts
from slotwise.jobs.calls import Calls
from slotwise.sources import read_source
from slotwise.workload.workload import Workload, mapreduce

SORT = Job(
    "sort",
    (
        Phase("map", Tasks(8, 2.0), "map"),
        Phase("reduce", Tasks(4, 3.0), "reduce", after="map", slow_start=0.5, copy=1.0),
    ),
    pool="etl",
)
HOST = Cluster((Host("h", {"map": 2, "reduce": 2}),))


def test_pools_are_a_tree_with_the_pools_of_all_jobs() -> None:
    """Pools that only jobs name are at the top; the workload's preemption is for all."""
    own = Preemption(fair_after=60.0)
    pools = (Pool("ads"), Pool("etl", parent="ads"), Pool("lab", preemption=own))
    common = Preemption(least_after=5.0)
    source = read_source(
        Workload((SORT, Job("b", SORT.phases)), pools=pools, preemption=common)
    )
    tree = source.pools(Cluster.of_slots(4))
    assert list(tree) == ["ads", "etl", "lab", "default"]
    assert [pool.name for pool in tree.path("etl")] == ["ads", "etl"]
    assert {name: tree.preemption(name) for name in tree} == {
        "ads": TimeOuts(least_after=5.0),
        "etl": TimeOuts(least_after=5.0),
        "lab": TimeOuts(least_after=5.0, fair_after=60.0),
        "default": TimeOuts(least_after=5.0),
    }


def test_a_job_in_a_pool_of_pools_is_refused() -> None:
    """In Python as in a file: jobs are in the pools at the bottom."""
    pools = (Pool("etl"), Pool("day", parent="etl"))
    with pytest.raises(InputError, match="'etl' has pools below it and holds no jobs itself"):
        read_source(Workload((SORT,), pools=pools)).pools(Cluster.of_slots(4))


def test_arguments_override_the_workload() -> None:
    """Preemption and shuffle, each only if it is given."""
    source = read_source(Workload((SORT,), preemption=Preemption(3.0), shuffle=Shuffle(0.5)))
    assert source.with_options() == source
    asked = source.with_options(preemption=Preemption(inf, 9.0), shuffle=Shuffle(0.1))
    assert asked.pools(Cluster.of_slots(4)).preemption("etl") == TimeOuts(inf, 9.0)
    assert asked.shuffle == Shuffle(0.1)


def test_jobs_use_the_shuffle_of_the_workload() -> None:
    """In a cluster reduces may copy apart from computing; in a plan nothing is copied."""
    split = read_source(Workload((SORT,), shuffle=Shuffle(0.25, split=True)))
    cluster = split.cluster(HOST)
    assert cluster.capacity == {"copy": 4, "map": 2, "reduce": 2}
    (job,) = split.jobs(cluster)
    _, copying, computing = job.phases
    assert (copying.kind, copying.slow_start, copying.copy) == ("copy", 0.25, 1.0)
    assert (copying.slots_most, computing.continues) == (2, copying.name)
    assert split.jobs() == (SORT,)
    plain = read_source(Workload((SORT,)))
    assert (plain.cluster(HOST), plain.jobs(HOST)) == (HOST, (SORT,))


def test_programs_shuffle_and_have_priorities_too(tmp_path: Path) -> None:
    """A program's reduces are split in the same way, with copies for each reduce slot."""
    (tmp_path / "in.txt").write_text("a b a\n")
    entry = mapreduce(
        "wordcount", tmp_path / "in.txt", tmp_path / "out", reducers=5, priority="high"
    )
    split = read_source(Workload((entry,), shuffle=Shuffle(0.25, split=True)))
    (job,) = split.jobs(split.cluster(HOST))
    assert job.priority == "high"
    assert [(p.name, p.kind, p.slots_most) for p in job.phases] == [
        ("map", "map", 1),
        ("reduce-copy", "copy", 2),
        ("reduce", "reduce", 5),
    ]
    assert [phase.name for phase in split.jobs()[0].phases] == ["map", "reduce"]
    with pytest.raises(InputError, match="unknown priority 'highest'"):
        read_source(mapreduce("wordcount", tmp_path / "in.txt", "o", priority="highest")).jobs()


def test_sleeping_phases_begin_after_all_predecessors() -> None:
    """On the local backend a sleeping reduce that began early would end before the maps."""
    slow = read_source(Workload((SORT,), shuffle=Shuffle(0.1)))
    (sleeping,) = slow.executions(HOST)
    assert [phase.slow_start for phase in sleeping.job.phases] == [1.0, 1.0]


def test_executions_are_used_unchanged() -> None:
    """Calls have the phases that they were made with."""
    calls = Calls(Job("c", (Phase("m", Tasks(2, 1.0)),)), lambda task: task)
    source = read_source(calls).with_options(shuffle=Shuffle(split=True))
    assert source.jobs(HOST) == (calls.job,)
    assert source.executions(HOST) == [calls]
