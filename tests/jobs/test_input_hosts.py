"""Jobs whose input says which hosts hold it: homes of tasks, and where tasks then run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import slotwise
from dataflow_nodes import total
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded
from slotwise.core.job import Block, Job
from slotwise.core.log import read_log
from slotwise.insight.replay import replay_log
from slotwise.jobs.dataflow.planning import plan_dataflow
from slotwise.jobs.mapreduce.planning import plan_mapreduce

CLUSTER = Cluster((Host("a", {"task": 2}), Host("b", {"task": 2}), Host("c", {"task": 2})))
HOSTS = {"big.txt": ["a"], "small.txt": ["b", "c"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two input files, each of one split."""
    (tmp_path / "big.txt").write_text("1\n" * 1000)
    (tmp_path / "small.txt").write_text("2\n" * 500)
    return tmp_path


def homes(job: Job, phase: str) -> list[Block]:
    """The input blocks of the tasks of a phase."""
    return list(job.by_name[phase].tasks.blocks)


def planned(flow: slotwise.Dataflow, folder: Path, cluster: Cluster | None = CLUSTER) -> Job:
    """The job of a graph on a cluster."""
    return plan_dataflow("j", flow, "out", base_dir=folder, cluster=cluster).job


def numbers(lines: Iterator[str]) -> Iterator[int]:
    """Lines as numbers."""
    yield from map(int, lines)


def graph(kind: str, **read: Any) -> slotwise.Dataflow:
    """A copy for each file, and one that adds all numbers."""
    flow = slotwise.Dataflow()
    lines = flow.read(["big.txt", "small.txt"], split_bytes=2000, input_hosts=HOSTS)
    parsed = flow.node(numbers, lines)
    flow.write(flow.node(total, getattr(parsed, kind)(), copies=1))
    return flow


BIG, SMALL = Block(frozenset("a"), 2000), Block(frozenset("bc"), 1000)
NONE = Block(frozenset(), 0)


def test_each_map_has_the_hosts_of_its_split(folder: Path) -> None:
    """Reduces read the output of maps, and have none."""
    job = plan_mapreduce(
        "j",
        "wordcount",
        ["big.txt", "small.txt"],
        "out",
        split_bytes=2000,
        base_dir=folder,
        input_hosts=HOSTS,
    ).job
    assert homes(job, "map") == [BIG, SMALL]
    assert homes(job, "reduce") == []


def test_each_copy_that_reads_a_source_has_the_hosts_of_its_split(folder: Path) -> None:
    """The reader of files of the work folder has none."""
    job = planned(graph("file"), folder)
    assert homes(job, "numbers") == [BIG, SMALL]
    assert homes(job, "total") == []


def test_a_group_of_a_gang_without_input_has_no_home(folder: Path) -> None:
    """The other groups have those of their splits."""
    job = planned(graph("tcp"), folder)
    assert homes(job, "numbers+total") == [BIG, SMALL, NONE]


def test_a_group_that_reads_several_files_belongs_where_most_bytes_are(folder: Path) -> None:
    """A host of both files comes before the host of the larger one."""
    flow = slotwise.Dataflow()
    lines = flow.read(
        ["big.txt", "small.txt"], input_hosts={"*.txt": ["c"], "big.txt": ["a"]}, split_bytes=9
    )
    flow.write(flow.node(numbers, lines, copies=1))
    assert homes(planned(flow, folder), "numbers") == [Block(frozenset("c"), 3000)]


def test_hosts_that_the_cluster_lacks_are_no_homes(folder: Path) -> None:
    """On this machine alone no task waits for hosts of another cluster."""
    here = Cluster((Host("localhost", {"task": 8}),))
    assert homes(planned(graph("file"), folder, here), "numbers") == []
    assert homes(planned(graph("file"), folder, None), "numbers") == [BIG, SMALL]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("a", "flow.read: input_hosts is 'a'; give lists of names of hosts by path"),
        ({"x.txt": "a"}, "input_hosts: 'x.txt' has 'a'; give lists of names"),
    ],
)
def test_wrong_hosts_are_refused(given: Any, says: str) -> None:
    """The message says what to give."""
    with pytest.raises(InputError, match=says):
        slotwise.Dataflow().read("x.txt", input_hosts=given)


WORKLOAD = """\
slotwise: 1
cluster:
  hosts:
    - {name: a, slots: 2}
    - {name: b, slots: 2}
jobs:
  - id: words
    program: wordcount
    inputs: [big.txt, small.txt]
    split_bytes: 2000
    input_hosts: {big.txt: [b], small.txt: [a]}
    output: words
  - id: sums
    arrival: 0.001
    output: sums
    dataflow:
      nodes:
        - {name: lines, inputs: [big.txt, small.txt], split_bytes: 2000,
           input_hosts: {big.txt: [b], small.txt: [a]}}
        - {name: parsed, function: "nodes.py:parsed", reads: [lines]}
        - {name: total, function: "nodes.py:total", reads: [{node: parsed, kind: tcp}]}
      write: [total]
"""

NODES = """\
def parsed(lines):
    yield from map(int, lines)


def total(numbers):
    yield sum(numbers)
"""


@pytest.mark.parametrize("assigner", ["flow", "delay"])
def test_tasks_run_where_their_input_is(folder: Path, assigner: str) -> None:
    """On emulated hosts: maps, and a gang of which one group reads no input."""
    (folder / "nodes.py").write_text(NODES)
    (folder / "jobs.yaml").write_text(WORKLOAD)
    result = slotwise.run(
        folder / "jobs.yaml",
        "fifo",
        emulate_hosts=True,
        assigner=assigner,
        log=folder / "log.jsonl",
    )
    assert not result.failed
    assert (folder / "sums" / "part-n-00000").read_text() == "2000\n"
    log = read_log(folder / "log.jsonl")
    assert replay_log(log).is_identical
    launches = [
        decision
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch)
    ]
    assert {launch.locality for launch in launches} == {Locality.NODE}
    placed = {(launch.phase.phase, launch.task): launch.host for launch in launches}
    assert [placed["map", task] for task in (0, 1)] == ["b", "a"]
    assert [placed["parsed+total", task] for task in (0, 1)] == ["b", "a"]


def test_a_host_that_the_workload_lacks_is_refused(folder: Path) -> None:
    """With the place in the file."""
    (folder / "jobs.yaml").write_text(WORKLOAD.replace("{big.txt: [b]", "{big.txt: [x]", 1))
    with pytest.raises(InputError, match=r"input_hosts.*unknown host 'x'; use the names"):
        slotwise.simulate(folder / "jobs.yaml")


@pytest.mark.parametrize("kind", ["program", "dataflow"])
def test_a_table_that_names_no_host_of_the_cluster_is_refused(kind: str, folder: Path) -> None:
    """Where its hosts are known for good. A host that is added later is known, too."""
    names = {f"{folder}/big.txt": ["a"], f"{folder}/small.txt": ["x"]}
    job: Any = slotwise.mapreduce("wordcount", list(names), folder / "out", input_hosts=names)
    if kind == "dataflow":
        flow = slotwise.Dataflow()
        lines = flow.read(list(names), input_hosts=names)
        flow.write(flow.node(numbers, lines))
        job = flow.job("wordcount", folder / "out")
    workload = slotwise.Workload((job,), CLUSTER)
    path = re.escape(f"{folder}/small.txt")
    says = (
        rf"job 'wordcount': input_hosts: '{path}' has 'x', which is not a host .* are a, b, c"
    )
    for act in (slotwise.simulate, partial(slotwise.run, emulate_hosts=True)):
        with pytest.raises(InputError, match=says):
            act(workload)
    added = (HostAdded(1.0, Host("x", {"task": 1})),)
    assert not slotwise.simulate(replace(workload, changes=added)).failed
    assert not slotwise.simulate(workload, slots=3).failed  # There are no hosts then.
    assert not (folder / "out").exists()


def test_a_session_warns_of_hosts_that_may_join(folder: Path) -> None:
    """The job runs, and a line of the caller's code is named."""
    inputs, table = folder / "big.txt", {f"{folder}/*": ["x"]}
    entry = slotwise.mapreduce("wordcount", inputs, folder / "out", input_hosts=table)
    hosts = Cluster((Host("a", {"task": 1}), Host("b", {"task": 1})))
    with slotwise.Session(hosts) as session:
        with pytest.warns(UserWarning, match="has 'x', which is not a host") as warned:
            future = session.run(entry)
        assert Path(warned[0].filename).name == "test_input_hosts.py"
        future.result(60)
