"""Lists of pods and nodes with GPUs: what a row becomes, what is left out, what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from slotwise.core.cluster import Host
from slotwise.core.errors import InputError
from slotwise.workload.file import read_workload
from slotwise.workload.openb import read_nodes, read_pods
from slotwise.workload.writer import write_workload

MIB = 1 << 20

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
n0,8500,1024,2,P100
n1,4000,512,0,
n2,8000,1024,2,P100
n3,8000,1024,2,P100
"""

HEADING = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)

PODS = f"""\
{HEADING}\
part,1500,256,1,460,,LS,Running,100,160,110
whole,2000,512,2,1000,,BE,Succeeded,130,150,130
plain,1000,0,0,0,,,Succeeded,140,150,140
waiting,1000,256,0,0,,LS,Pending,150,180,
endless,1000,256,0,0,,LS,Running,160,,160
empty,1000,256,0,0,,LS,Failed,170,180,180
large,9000,256,0,0,,LS,Running,180,190,180
late,1000,256,1,1000,,BE,Failed,190,200,195
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Three hosts of one size and one without GPUs."""
    path = tmp_path / "nodes.csv"
    path.write_text(NODES, encoding="utf-8")
    return path


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """Eight pods, of which four are left out."""
    path = tmp_path / "pods.csv"
    path.write_text(PODS, encoding="utf-8")
    return path


def test_a_node_becomes_a_host(nodes: Path) -> None:
    """Its slots are whole CPUs; its memory and GPUs are resources."""
    first, second, *_ = read_nodes(nodes).hosts
    assert first == Host("n0", {"task": 8}, resources={"memory": 1024 * MIB, "gpu": 2})
    assert second == Host("n1", {"task": 4}, resources={"memory": 512 * MIB})


def test_a_sample_keeps_the_mix(nodes: Path) -> None:
    """Of a list that is three quarters of one size, so are eight hosts."""
    row = "{},{},1024,{},\n"
    many = [row.format(f"a{n}", 8000, 2) for n in range(30)]
    many += [row.format(f"b{n}", 4000, 0) for n in range(10)]
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\n" + "".join(many), encoding="utf-8")
    sample = read_nodes(nodes, hosts=8)
    assert Counter(host.slots["task"] for host in sample.hosts) == {8: 6, 4: 2}


def test_a_pod_becomes_a_job_of_one_task(pods: Path, nodes: Path) -> None:
    """Rounded slots, work since it was scheduled, arrivals from the first."""
    jobs = read_pods(pods, read_nodes(nodes)).jobs
    rows = [
        (job.id, job.arrival, job.pool, phase.slots, phase.tasks.work, phase.needs.stated())
        for job in jobs
        for phase in job.phases
    ]
    assert rows == [
        ("part", 0, "LS", 2, 50, {"gpu": 0.46, "memory": 256 * MIB}),
        ("whole", 30, "BE", 2, 20, {"gpu": 2, "memory": 512 * MIB}),
        ("plain", 40, "default", 1, 10, {}),
        ("late", 90, "BE", 1, 5, {"gpu": 1, "memory": 256 * MIB}),
    ]


def test_pods_that_cannot_be_jobs_are_counted(pods: Path, nodes: Path) -> None:
    """Never begun or ended, of no length, or larger than any host; only before the last job."""
    cluster = read_nodes(nodes)
    found = read_pods(pods, cluster)
    assert (found.endless, found.empty, found.large) == (2, 1, 1)
    few = read_pods(pods, cluster, first=2)
    assert ([job.id for job in few.jobs], few.endless) == (["part", "whole"], 0)


def test_the_workload_file_has_the_same_jobs(pods: Path, nodes: Path, tmp_path: Path) -> None:
    """What is written is read as it was."""
    cluster = read_nodes(nodes)
    jobs = read_pods(pods, cluster).jobs
    write_workload(jobs, tmp_path / "gpu.yaml", cluster=cluster)
    workload = read_workload(tmp_path / "gpu.yaml")
    assert (workload.jobs, workload.cluster) == (jobs, cluster)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,cpu_milli\n", "line 1: no column 'memory_mib'"),
        (HEADING + "a,1x,1,0,0,,LS,Running,0,9,0\n", "line 2: cpu_milli is '1x'"),
        (HEADING + "a,1,1,1,1001,,LS,Running,0,9,0\n", "line 2: gpu_milli is '1001'"),
        (HEADING + 2 * "a,1,1,0,0,,LS,Running,0,9,0\n", "line 3: name 'a' occurs twice"),
        (HEADING + "a,1,1\n", "line 2: creation_time is ''"),
    ],
)
def test_a_message_has_file_line_and_value(
    pods: Path, nodes: Path, text: str, message: str
) -> None:
    """An invalid list is refused where it is wrong."""
    pods.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_pods(pods, read_nodes(nodes))
    assert str(caught.value).startswith(f"{pods}: ")
    assert message in str(caught.value)
