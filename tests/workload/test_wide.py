"""`slots` of phases and programs: what files say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import slotwise
from slotwise.core.cluster import Cluster, Host
from slotwise.core.codec import decode_job, encode_job
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostDrained, HostRemoved
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.workload.file import read_workload
from slotwise.workload.workload import Workload
from slotwise.workload.writer import write_workload


def write(path: Path, phase: str, cluster: str = "{slots: 4}") -> Path:
    """A workload file with one job of one phase."""
    path.write_text(
        f"slotwise: 1\ncluster: {cluster}\njobs:\n"
        f"  - {{id: j, phases: [{{name: p, {phase}}}]}}\n"
    )
    return path


def test_a_phase_states_the_slots_of_its_tasks(tmp_path: Path) -> None:
    """The work is in seconds on the slots of a task; without `tasks`, as many as fit."""
    (job,) = read_workload(write(tmp_path / "w.yaml", "work: 6, slots: 2")).jobs
    (phase,) = job.phases
    assert (phase.slots, phase.tasks.count, phase.tasks.work) == (2, 2, 3.0)
    assert (phase.slots_most, phase.work_total(), job.work) == (4, 12.0, 12.0)


def test_it_is_written_and_read_again(tmp_path: Path) -> None:
    """A file and a log keep it; a job without it is logged as before."""
    job = Job("j", (Phase("p", Tasks(3, 1.0), slots=2),))
    write_workload([job], tmp_path / "w.yaml")
    assert read_workload(tmp_path / "w.yaml").jobs[0].phases == job.phases
    assert decode_job(json.loads(json.dumps(encode_job(job)))) == job
    plain = encode_job(Job("j", (Phase("p", Tasks(3, 1.0)),)))
    assert "slots" not in plain["phases"][0]


@pytest.mark.parametrize(
    ("phase", "cluster", "said"),
    [
        ("work: 1, slots: 0", "{slots: 4}", "slots (line 4) is 0: expected a number >= 1"),
        ("work: 1, slots: 5", "{slots: 4}", "the largest host, 'cluster', has 4"),
        ("work: 1, slots: 2, slots_max: 1", "{slots: 4}", "slots_max is 1, and each task"),
        (
            "work: 1, slots: 3",
            "{hosts: [{name: a, slots: 2}, {name: b, slots: 2}]}",
            "each task occupies 3 slots of one host, but the largest host, 'a', has 2",
        ),
    ],
)
def test_what_can_never_run_is_refused(
    tmp_path: Path, phase: str, cluster: str, said: str
) -> None:
    """With the place in the file, the value and a remedy."""
    with pytest.raises(InputError, match=r"w\.yaml") as caught:
        read_workload(write(tmp_path / "w.yaml", phase, cluster))
    assert said in str(caught.value)


def test_a_pool_that_is_too_small_is_refused() -> None:
    """A max share below the slots of a task would keep the job from running."""
    job = Job("j", (Phase("p", Tasks(1, 1.0), slots=3),), pool="a")
    workload = Workload((job,), Cluster.of_slots(4), (Pool("a", slots_max={"task": 2}),))
    with pytest.raises(InputError, match=r"job 'j', phase 'p': .*pool 'a' may hold at most 2"):
        slotwise.simulate(workload)


@pytest.mark.parametrize("act", [slotwise.simulate, slotwise.run, slotwise.plan])
def test_too_few_slots_are_refused(act: object) -> None:
    """The number of slots may come from an option."""
    job = Job("j", (Phase("p", Tasks(1, 1.0), slots=3),))
    with pytest.raises(InputError, match="job 'j', phase 'p': each task occupies 3 slots"):
        act(job, slots=2)


@pytest.mark.parametrize("change", [HostDrained, HostRemoved])
def test_a_task_that_no_host_could_run_after_the_last_change_is_refused(change: type) -> None:
    """Unless a host comes that is large enough."""
    job = Job("j", (Phase("p", Tasks(2, 9.0), slots=3),))
    cluster = Cluster((Host("large", {"task": 3}), Host("small", {"task": 2})))
    leaves, joins = change(1.0, "large"), HostAdded(2.0, Host("late", {"task": 3}))
    with pytest.raises(InputError, match=r"'p' may wait forever after the last change.* 3 slo"):
        slotwise.simulate(Workload((job,), cluster, changes=(leaves,)))
    result = slotwise.simulate(Workload((job,), cluster, changes=(leaves, joins)))
    assert result.metrics["jobs_done"] == 1


def test_tasks_that_continue_others_need_slots_on_the_same_host() -> None:
    """A host with slots for the first phase has too few for the second."""
    first = Phase("first", Tasks(2, 1.0), "map")
    second = Phase("second", Tasks(2, 1.0), "reduce", continues="first", slots=2)
    hosts = Host("a", {"map": 1, "reduce": 2}), Host("b", {"map": 1, "reduce": 1})
    workload = Workload((Job("j", (first, second)),), Cluster(hosts))
    with pytest.raises(InputError, match=r"host 'b' has 1 slots of kind 'reduce'.*occupies 2"):
        slotwise.simulate(workload)


@pytest.mark.parametrize("name", ["dmrs", "dmrs-best", "identical-machine", "map-only"])
def test_queues_take_tasks_of_one_slot(name: str) -> None:
    """Schedulers that plan queues of hosts say so."""
    job = Job("j", (Phase("p", Tasks(1, 1.0), slots=2),))
    with pytest.raises(InputError, match="dmrs places tasks of one slot each"):
        slotwise.simulate(job, name, slots=4)


@pytest.mark.parametrize("allocator", ["fifo", "fair", "flex", "flowflex-fast"])
def test_a_plan_divides_the_slot_seconds(allocator: str) -> None:
    """2 tasks of 3 s on two slots each are 12 slot-seconds, here on four slots in 3 s."""
    job = Job("j", (Phase("p", Tasks(2, 3.0), slots=2),))
    plan = slotwise.plan(job, allocator, slots=4)
    assert plan.value == pytest.approx(3.0)
    assert plan.bound == pytest.approx(3.0)
    plan.schedule.check([job], Cluster.of_slots(4))
