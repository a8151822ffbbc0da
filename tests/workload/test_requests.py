"""`resources` of tasks and hosts: what files and Python say, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise import Cluster, Host, InputError, Job, Phase, Tasks, Workload
from slotwise.core.events import JobArrived
from slotwise.workload.file import parse_workload, read_workload
from slotwise.workload.writer import write_workload

GIB = 1 << 30
CLUSTER = Cluster(
    (Host("h", {"task": 8}, resources={"memory": "8 GiB", "gpu": 4, "disk": 1.5}),)
)

JOB = Job("j", (Phase("p", Tasks(1, 1.0)),))


def numbers(*_: Iterator[int]) -> Iterator[int]:
    """A node of a dataflow."""
    return iter(range(3))


def requests(workload: Workload) -> dict[str, dict[str, float]]:
    """What each phase of the only job requests, as a simulation logs it."""
    log = slotwise.simulate(workload, "fifo").log
    arrived = [event for turn in log.turns for event in turn.events]
    (job,) = [event.job for event in arrived if isinstance(event, JobArrived)]
    return {phase.name: phase.needs.stated() for phase in job.phases}


def of_file(job: str, tmp_path: Path) -> Workload:
    """A workload file with this job on a host of 8 slots and 8 GiB."""
    (tmp_path / "in.txt").write_text("a b")
    (tmp_path / "nodes.py").write_text("def numbers(*_):\n    return iter(range(3))\n")
    text = "slotwise: 1\ncluster: {slots: 8, resources: {memory: 8 GiB, gpu: 4}}\njobs:\n  - "
    (tmp_path / "jobs.yaml").write_text(text + job)
    return read_workload(tmp_path / "jobs.yaml")


PROGRAM = "{id: j, program: wordcount, inputs: in.txt, output: out, resources: "
TWO = {"memory": 2 * GIB}

STATED = {
    "{id: j, phases: [{name: p, work: 2, resources: {memory: 2 GiB}}]}": {"p": TWO},
    "{id: j, command: x, work: 2, resources: {memory: 2 GiB}}": {"command": TWO},
    "{id: j, phases: [{name: p, command: x, work: 2, resources: {gpu: 0.5}}]}": {
        "p": {"gpu": 0.5}
    },
    PROGRAM + "{memory: 2 GiB}}": {"map": TWO, "reduce": TWO},
    PROGRAM + "{reduce: {memory: 2 GiB}}}": {"map": {}, "reduce": TWO},
    "{id: j, output: out, dataflow: {nodes: [{name: n, function: 'nodes.py:numbers', work: 1,"
    " resources: {memory: 2 GiB}}], write: [n]}}": {"n": TWO},
}
"""Jobs of a workload file, and what the tasks of each phase request."""


@pytest.mark.parametrize("job", STATED)
def test_a_file_states_what_tasks_request(job: str, tmp_path: Path) -> None:
    """The key is the same for phases, commands, programs and nodes."""
    assert requests(of_file(job, tmp_path)) == STATED[job]


def test_python_states_what_tasks_request(tmp_path: Path) -> None:
    """The argument is the same, too."""
    (tmp_path / "in.txt").write_text("a b")
    command = slotwise.command("x", id="j", work=1, resources={"disk": 0.5})
    program = slotwise.mapreduce("wordcount", "in.txt", "out", resources={"gpu": 2})
    assert requests(Workload((command,), CLUSTER)) == {"command": {"disk": 0.5}}
    program_there = Workload((program,), CLUSTER, folder=tmp_path)
    assert requests(program_there) == {"map": {"gpu": 2}, "reduce": {"gpu": 2}}


@pytest.mark.parametrize(
    ("channel", "needs"),
    [
        ("shm", {"one+two": {"memory": 3 * GIB, "gpu": 2}}),
        ("file", {"one": {"memory": GIB, "gpu": 0.7}, "two": {"memory": 2 * GIB, "gpu": 0.7}}),
    ],
)
def test_nodes_that_run_together_request_the_sum(channel: str, needs: object) -> None:
    """Parts of devices that add up to more than one become whole devices."""
    flow = slotwise.Dataflow()
    one = flow.node(numbers, name="one", work=1, resources={"memory": "1 GiB", "gpu": 0.7})
    read = getattr(one, channel)()
    two = {"memory": "2 GiB", "gpu": 0.7}
    flow.write(flow.node(numbers, read, name="two", work=1, resources=two))
    assert requests(Workload((flow.job("j", "out"),), CLUSTER)) == needs


def test_each_group_requests_as_much_as_any() -> None:
    """The tasks of a phase are equal: here one has three copies that share memory."""
    flow = slotwise.Dataflow()
    one = flow.node(numbers, name="one", work=1, copies=2, resources={"memory": "1 GiB"})
    two = flow.node(numbers, one.shm(broadcast=True), name="two", work=1, copies=1)
    flow.write(flow.node(numbers, two.tcp(), name="three", work=1, resources={"disk": 0.5}))
    needs = requests(Workload((flow.job("j", "out"),), CLUSTER))
    assert needs == {"one+two+three": {"memory": 2 * GIB, "disk": 0.5}}


def test_requests_and_hosts_are_written_and_read_again(tmp_path: Path) -> None:
    """A file that slotwise writes has them as a user states them."""
    job = Job("j", (Phase("p", Tasks(2, 1.0), resources={"memory": "512 MiB", "gpu": 0.5}),))
    write_workload([job], tmp_path / "w.yaml", cluster=CLUSTER)
    read = read_workload(tmp_path / "w.yaml")
    assert (read.jobs[0], read.cluster) == (job, CLUSTER)


def described(**options: Any) -> list[Callable[[], object]]:
    """A job of each kind with these options, as functions that simulate it."""
    flow = slotwise.Dataflow()
    flow.write(flow.node(numbers, name="n", work=1, **options))
    jobs: list[Any] = [
        flow.job("j", "out"),
        slotwise.command("x", id="j", work=1, **options),
        slotwise.mapreduce("teragen", (), "out", id="j", parameters={"records": 1}, **options),
        slotwise.Job("j", (Phase("p", Tasks(1, 1.0), **options),)),
    ]
    return [lambda job=job: slotwise.simulate(Workload((job,), CLUSTER)) for job in jobs]


@pytest.mark.parametrize(
    ("amounts", "said"),
    [
        ({"memory": "9 GiB"}, "requests memory 9 GiB, but the host with the most, 'h', has 8"),
        ({"gpu": 5}, "requests gpu 5, but the host with the most, 'h', has 4; request less"),
        ({"tpu": 1}, "requests tpu 1, but no host has tpu; leave it out, or state what"),
        ({"task": 1}, "requests 'task' as a resource, but it is a kind of slot"),
    ],
)
def test_a_task_that_fits_no_host_is_refused(amounts: dict[str, Any], said: str) -> None:
    """The message has the numbers, however the request is stated."""
    for simulated in described(resources=amounts):
        with pytest.raises(InputError, match=r"^job 'j'") as caught:
            simulated()
        assert said in str(caught.value)


@pytest.mark.parametrize("scheduler", ["dmrs", "dmrs-best"])
def test_queues_of_hosts_take_no_requests(scheduler: str) -> None:
    """DMRS names the phase, the request and the remedy."""
    job = Job("j", (Phase("p", Tasks(1, 1.0), resources={"memory": "2 GiB"}),))
    for act in slotwise.simulate, slotwise.plan_tasks:
        with pytest.raises(InputError) as caught:
            act(Workload((job,), CLUSTER), scheduler)
        assert str(caught.value) == (
            "job 'j', phase 'p': each task requests memory 2 GiB, and dmrs places tasks by"
            " slots alone; leave out resources, or take another scheduler"
        )


@pytest.mark.parametrize(
    "job",
    [
        "{id: j, command: x, work: 2, memory_limit: true, resources: {memory: 2 GiB}}",
        PROGRAM + "{memory: 2 GiB}, memory_limit: true}",
    ],
)
def test_requests_may_be_limits(job: str, tmp_path: Path) -> None:
    """Also of jobs whose phases are planned later."""
    assert next(iter(requests(of_file(job, tmp_path)).values())) == TWO


def test_commands_wait_for_no_host_that_leaves() -> None:
    """A task that only a host can run that is drained is refused, also of a command."""
    text = """
        slotwise: 1
        cluster:
          hosts: [{name: a, slots: 1, resources: {memory: 4 GiB}}, {name: b, slots: 1}]
          changes: [{at: 5, drain: a}]
        jobs: [{id: j, command: x, work: 2, resources: {memory: 2 GiB}}]
    """
    with pytest.raises(InputError, match=r"may wait forever after the last change .* no host"):
        slotwise.simulate(parse_workload(text))


@pytest.mark.parametrize("slots", [None, 2])
def test_given_resources_go_before_stated_ones(slots: int | None) -> None:
    """Name by name, also for another number of slots; 0 takes one away."""
    text = """
        slotwise: 1
        cluster: {slots: 1, resources: {memory: 1 GiB, gpu: 2, disk: 1}}
        jobs: [{id: j, phases: [{name: p, work: 2, resources: {memory: 2 GiB}}]}]
    """
    given = {"memory": "3 GiB", "gpu": 0}
    done = slotwise.simulate(parse_workload(text), slots=slots, resources=given)
    (host,) = done.log.header.cluster.hosts
    assert host.has.stated() == {"memory": 3 * GIB, "disk": 1}


def test_hosts_have_resources_of_their_own() -> None:
    """Those that are given are of one host, and refused for a cluster that names hosts."""
    with pytest.raises(
        InputError, match="resources is for one host, and the hosts of the work"
    ):
        slotwise.simulate(Workload((JOB,), CLUSTER), resources={"gpu": 1})
