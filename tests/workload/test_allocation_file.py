"""Pools from the allocation files of Hadoop and Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slotwise.core.errors import InputError
from slotwise.core.pools import Pool, PoolTree, Preemption
from slotwise.core.units import Percent
from slotwise.workload.allocation_file import read_allocations
from slotwise.workload.file import parse_workload

HADOOP = """\
<?xml version="1.0"?>
<allocations>
  <queue name="sales">
    <minResources>8192 mb, 4 vcores</minResources>
    <maxResources>vcores=75%, memory-mb=50%</maxResources>
    <maxRunningApps>50</maxRunningApps>
    <maxAMShare>0.1</maxAMShare>
    <weight>2.0</weight>
    <minSharePreemptionTimeout>60</minSharePreemptionTimeout>
    <queue name="reports">
      <aclSubmitApps>ann</aclSubmitApps>
      <schedulingPolicy>fifo</schedulingPolicy>
      <allowPreemptionFrom>false</allowPreemptionFrom>
    </queue>
  </queue>
  <queue name="adhoc" type="parent">
    <weight>0.0</weight>
    <maxRunningApps>2147483647</maxRunningApps>
    <maxChildResources>2 vcores</maxChildResources>
  </queue>
  <user name="bob"><maxRunningApps>30</maxRunningApps></user>
  <userMaxAppsDefault>5</userMaxAppsDefault>
  <queueMaxAppsDefault>20</queueMaxAppsDefault>
  <defaultFairSharePreemptionTimeout>300</defaultFairSharePreemptionTimeout>
  <defaultFairSharePreemptionThreshold>0.8</defaultFairSharePreemptionThreshold>
  <defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>
  <queuePlacementPolicy><rule name="specified"/></queuePlacementPolicy>
</allocations>
"""


def imported(tmp_path: Path, text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys of a workload file, read from their YAML, and what has no counterpart."""
    (tmp_path / "pools.xml").write_text(text)
    found = read_allocations(tmp_path / "pools.xml")
    return yaml.safe_load(found.text), found.missing


def test_invalid_values_of_spark_are_named(tmp_path: Path) -> None:
    """Spark takes its defaults instead of them: FIFO, weight 1, no min share."""
    text = """<allocations><pool name="a">
  <schedulingMode>NONE</schedulingMode><weight> </weight><minShare>few</minShare>
</pool></allocations>"""
    keys, missing = imported(tmp_path, text)
    assert keys["pools"][0] == {"name": "a", "policy": "fifo"}
    assert missing == (
        "schedulingMode NONE of a (line 2)",
        "weight of a (line 2)",
        "minShare few of a (line 2)",
    )


def test_queues_of_the_file_have_the_default_max_share(tmp_path: Path) -> None:
    """`maxChildResources` of a queue is for those that are created later."""
    text = """<allocations>
  <queue name="g"><maxChildResources>64 vcores</maxChildResources>
    <queue name="h"/><queue name="i"><maxResources>9 vcores</maxResources></queue></queue>
  <queueMaxResourcesDefault>100 vcores</queueMaxResourcesDefault>
</allocations>"""
    keys, missing = imported(tmp_path, text)
    assert [pool.get("slots_max") for pool in keys["pools"]] == [None, 100, 9]
    assert (keys["pools"][0]["child_defaults"], missing) == ({"slots_max": 64}, ())


def test_the_most_memory_and_gpus_become_limits(tmp_path: Path) -> None:
    """Of a queue, its children and all queues, also as parts; minima have no counterpart."""
    text = """<allocations>
  <queue name="g"><maxResources>8192 mb, 4 vcores</maxResources>
    <minResources>1024 mb, 1 vcores</minResources>
    <maxChildResources>vcores=2, memory-mb=2048, yarn.io/gpu=1</maxChildResources>
    <queue name="h"/><queue name="i"><maxResources>vcores=3</maxResources></queue></queue>
  <queue name="j"><maxResources>memory-mb=50%, vcores=10%</maxResources></queue>
  <queue name="k"><maxResources>40%</maxResources></queue>
  <queueMaxResourcesDefault>100 vcores, 4096 mb</queueMaxResourcesDefault>
</allocations>"""
    keys, missing = imported(tmp_path, text)
    most = {pool["name"]: pool.get("resources_max") for pool in keys["pools"]}
    assert keys["pool_defaults"] == {"slots_max": 100, "resources_max": {"memory": "4096 MiB"}}
    assert most == {
        "g": {"memory": "8192 MiB"},
        "g.h": {"memory": "4096 MiB"},
        "g.i": {},
        "j": {"memory": "50%"},
        "k": {"memory": "40%", "gpu": "40%"},
    }
    assert keys["pools"][0]["child_defaults"] == {
        "slots_max": 2,
        "resources_max": {"memory": "2048 MiB", "gpu": 1},
    }
    assert missing == ("minResources 1024 mb of g (line 3)",)


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ("memory-mb=0%, vcores=50%", {"slots_max": "50%", "resources_max": {"memory": 0}}),
        ("vcores=0.0%", {"slots_max": 0}),
        ("0%", {"slots_max": 0, "resources_max": {"memory": 0, "gpu": 0}}),
    ],
)
def test_nothing_in_percent_is_nothing(
    tmp_path: Path, amounts: str, expected: dict[str, Any]
) -> None:
    """Parts of a workload file are above 0 %."""
    queue = f"<queue name='q'><maxResources>{amounts}</maxResources></queue>"
    keys, missing = imported(tmp_path, f"<allocations>{queue}</allocations>")
    assert (keys, missing) == ({"pools": [{"name": "q", **expected}]}, ())


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        ("<maxResources>8192 mb, 0vcores</maxResources>", "slots_max is 0"),
        ("<maxResources>vcores=0%</maxResources>", "slots_max is 0"),
        ("<maxResources>0.5 vcores, 8 mb</maxResources>", "slots_max is 0"),
        ("<maxReduces>0</maxReduces>", "slots_max of kind 'reduce' is 0"),
        ("<maxRunningApps>0</maxRunningApps>", "jobs_max is 0"),
        ("<weight>0</weight>", "weight is 0 and it has no min share"),
        ("<weight>0</weight><minResources>8 mb, 1 vcores</minResources>", None),
        ("<maxResources>0 mb, 4 vcores</maxResources>", None),
    ],
)
def test_pools_in_which_no_task_may_run_are_named(
    tmp_path: Path, queue: str, reason: str | None
) -> None:
    """Once each, not with the pools below them; the file may mean something else."""
    text = f"<allocations><queue name='a'>{queue}<queue name='b'/></queue></allocations>"
    (tmp_path / "pools.xml").write_text(text)
    closed = read_allocations(tmp_path / "pools.xml").closed
    assert closed == (() if reason is None else (f"pool 'a', because its {reason}",))


def test_queues_of_hadoop_become_pools(tmp_path: Path) -> None:
    """Limits of users hold in all queues: `root` has them, and is free of the defaults."""
    keys, missing = imported(tmp_path, HADOOP)
    jobs = [{"id": "a", "pool": "default", "phases": [{"name": "m", "work": 1}]}]
    read = parse_workload(yaml.safe_dump({"slotwise": 1, **keys, "jobs": jobs}))
    pools = PoolTree(read.pools)
    assert read.preemption == Preemption(fair_after=300.0, fraction=0.8)
    assert pools["root"] == Pool("root", jobs_max_per_user={"bob": 30, "*": 5})
    sales = pools["sales"]
    assert (sales.weight, sales.slots_min, sales.jobs_max) == (2.0, {"task": 4}, 50)
    assert (str(sales.slots_max["task"]), sales.parent) == ("75%", "root")
    assert sales.resources_max == {"memory": Percent(50)}
    assert sales.preemption == Preemption(least_after=60.0)
    reports = Pool("sales.reports", policy="fifo", parent="sales", jobs_max=20)
    assert pools["sales.reports"] == Pool(**{**vars(reports), "preemptible": False})
    assert (pools["adhoc"].weight, pools["adhoc"].jobs_max) == (0, None)
    assert keys["pools"][3]["child_defaults"] == {"slots_max": 2}
    assert pools["default"].parent == "root"
    assert missing == (
        "minResources 8192 mb of sales (line 4)",
        "maxAMShare of sales (line 7)",
        "aclSubmitApps of reports (line 11)",
        "queuePlacementPolicy (line 27)",
    )


def test_pools_of_mapreduce_have_shares_by_kind(tmp_path: Path) -> None:
    """The first Fair Scheduler had slots of two kinds."""
    shares = "<minMaps>5</minMaps><maxReduces>3</maxReduces><maxRunningJobs>2</maxRunningJobs>"
    text = f"<allocations><pool name='etl'>{shares}</pool></allocations>"
    etl = {"name": "etl", "slots_min": {"map": 5}, "slots_max": {"reduce": 3}, "jobs_max": 2}
    assert imported(tmp_path, text) == ({"pools": [etl]}, ())


def test_pools_of_spark_are_fifo_unless_they_say_otherwise(tmp_path: Path) -> None:
    """So is the pool `default`."""
    text = """<allocations>
      <pool name="production">
        <schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>2</minShare>
      </pool>
      <pool name="test"><weight>2</weight></pool>
    </allocations>"""
    keys, missing = imported(tmp_path, text)
    assert keys["pools"] == [
        {"name": "production", "policy": "fair", "weight": 1, "slots_min": 2},
        {"name": "test", "weight": 2, "policy": "fifo"},
        {"name": "default", "policy": "fifo"},
    ]
    assert not missing


def within(queue: str) -> str:
    """A file with one queue."""
    return f"<allocations><queue name='a'>{queue}</queue></allocations>"


BAD = {
    "pools: []": "not XML: syntax error: line 1, column 0; name an allocation file of Hadoop's",
    "<!DOCTYPE a [<!ENTITY x 'y'>]><allocations/>": "line 1: a document type; remove it",
    "<configuration/>": "<configuration> (line 1) is not <allocations>; name an allocation fi",
    "<allocations><queue/></allocations>": "<queue> (line 1) has no name; give it the",
    within("<weight>much</weight>"): "<weight> (line 1) is 'much'; expected a number",
    within("<weight>-1</weight>"): "as keys of a workload file: pool 'a'.weight is -1",
    within(
        "<minResources>9 vcores</minResources><maxResources>1 vcores</maxResources>"
    ): "as keys of a workload file: pool 'a': slots_min 9 of kind 'task' is above its slots",
    within("<maxRunningApps>1.5</maxRunningApps>"): "<maxRunningApps> (line 1) is '1.5'; expe",
    within("<minResources>many</minResources>"): "<minResources> (line 1) is 'many'; expected",
    within("<maxResources>8 gb, 4 vcores</maxResources>"): (
        "<maxResources> (line 1) is '8 gb, 4 vcores'; expected memory in mebibytes, as in 8192"
    ),
    within("<minResources>memory-mb=8Gi</minResources>"): (
        "<minResources> (line 1) is 'memory-mb=8Gi'; expected memory in mebibytes, as in 8192"
        " mb or memory-mb=8192"
    ),
    within("<allowPreemptionFrom>no</allowPreemptionFrom>"): "is 'no'; expected true or false",
    "<a>" * 200 + "</a>" * 200: "line 1: nested too deeply; remove levels",
    '<allocations><queue name="a"><weight>nan</weight></queue></allocations>': (
        "<weight> (line 1) is 'nan'; expected a finite number"
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_files_are_refused(text: str, tmp_path: Path) -> None:
    """With the file, the place, the value and the remedy."""
    with pytest.raises(InputError) as refused:
        imported(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'pools.xml'}: ")
    assert BAD[text] in str(refused.value)
