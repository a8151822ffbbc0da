"""`gang` of phases: what files and Python say, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import slotwise
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.codec import decode_job, encode_job
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostRemoved
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.workload.file import read_workload
from slotwise.workload.workload import Workload
from slotwise.workload.writer import write_workload

GANG = Phase("p", Tasks(3, 1.0), slots=2, gang=True)
JOB = Job("j", (GANG,))
TWO = Cluster((Host("a", {"task": 3}), Host("b", {"task": 3})))


def write(path: Path, phase: str) -> Path:
    """A workload file with one job of one phase."""
    path.write_text(
        "slotwise: 1\ncluster: {slots: 4}\njobs:\n"
        f"  - {{id: j, phases: [{{name: p, {phase}}}]}}\n"
    )
    return path


def test_a_phase_may_be_a_gang(tmp_path: Path) -> None:
    """It takes the slots of all its tasks at once."""
    (job,) = read_workload(write(tmp_path / "w.yaml", "work: 6, tasks: 2, gang: true")).jobs
    (phase,) = job.phases
    assert (phase.gang, phase.unit, phase.slots_most) == (True, 2, 2)


def test_a_gang_of_one_task_is_like_any_phase() -> None:
    """It takes the slots of one task at once."""
    assert not Phase("p", Tasks(1), gang=True).is_gang


def test_it_is_written_and_read_again(tmp_path: Path) -> None:
    """A file and a log keep it; a job without it is logged as before."""
    write_workload([JOB], tmp_path / "w.yaml")
    assert read_workload(tmp_path / "w.yaml").jobs[0].phases == JOB.phases
    assert decode_job(json.loads(json.dumps(encode_job(JOB)))) == JOB
    assert "gang" not in encode_job(Job("j", (replace(GANG, gang=False),)))["phases"][0]


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("work: 1, gang: true", "starts all of its tasks together; give their number"),
        ("work: 1, tasks: 3, gang: true, slots_max: 2", "slots_max is 2; give it at least 3"),
        ("work: 1, tasks: 3, gang: 2", "gang (line 4)"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, phase: str, said: str) -> None:
    """With the place in the file, the value and a remedy."""
    with pytest.raises(InputError, match=r"w\.yaml") as caught:
        read_workload(write(tmp_path / "w.yaml", phase))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "more", [{"grows": True}, {"continues": "q"}, {"slow_start": 0.5, "after": "q"}]
)
def test_a_gang_neither_grows_nor_begins_early(more: dict[str, object]) -> None:
    """All of its tasks must be known, and able to start."""
    with pytest.raises(InputError, match="is a gang, whose tasks start together; leave out"):
        Phase("p", Tasks(2), gang=True, **more)


@pytest.mark.parametrize("more", [{"continues": "p"}, {"slow_start": 0.5, "after": "p"}])
def test_nothing_begins_before_a_gang_is_done(more: dict[str, object]) -> None:
    """Its done tasks may have to be done again."""
    with pytest.raises(InputError, match="phase 'q' begins before gang 'p' is done"):
        Job("j", (GANG, Phase("q", Tasks(3), "other", **more)))


@pytest.mark.parametrize("act", [slotwise.simulate, slotwise.run])
def test_a_gang_that_the_cluster_cannot_hold_is_refused(act: Callable[..., object]) -> None:
    """Five slots hold two tasks of two slots each."""
    with pytest.raises(InputError, match=r"job 'j', phase 'p': .*3 tasks of 2 slots together"):
        act(JOB, slots=5)
    act(replace(JOB, phases=(replace(GANG, tasks=Tasks(2, 0.01)),)), slots=5)


def test_the_parts_of_hosts_count() -> None:
    """Two hosts of three slots hold one task of two slots each."""
    with pytest.raises(
        InputError, match="the 6 slots of kind 'task' on 2 hosts hold 2 of them"
    ):
        slotwise.simulate(Workload((JOB,), TWO))


def test_a_host_that_comes_later_counts_and_one_that_leaves_does_not() -> None:
    """What is there after the last change must hold the gang."""
    add = HostAdded(2.0, Host("c", {"task": 2}))
    result = slotwise.simulate(Workload((JOB,), TWO), simulation=Simulation(changes=(add,)))
    assert result.jobs["j"]["start"] == 2.0
    with pytest.raises(InputError, match="job 'j', phase 'p' may wait forever"):
        slotwise.simulate(
            Workload((JOB,), TWO), simulation=Simulation(changes=(add, HostRemoved(3.0, "a")))
        )


def test_a_pool_that_is_too_small_is_refused() -> None:
    """A max share below the slots of the gang would keep the job from running."""
    job = replace(JOB, pool="a")
    workload = Workload((job,), Cluster.of_slots(6), (Pool("a", slots_max={"task": 5}),))
    with pytest.raises(
        InputError, match=r"a gang hold 6 slots, but pool 'a' may hold at most 5"
    ):
        slotwise.simulate(workload)


def test_a_session_refuses_what_it_cannot_hold() -> None:
    """It names the job, the phase and the numbers."""
    with slotwise.Session(slots=2) as session, pytest.raises(InputError, match="3 tasks of 2"):
        session.run(JOB)


@pytest.mark.parametrize("name", ["dmrs", "dmrs-best", "identical-machine", "map-only"])
def test_queues_take_no_gangs(name: str) -> None:
    """Schedulers that plan queues of hosts say so."""
    job = replace(JOB, phases=(replace(GANG, slots=1),))
    with pytest.raises(InputError, match="its tasks start together, as a gang, and dmrs"):
        slotwise.simulate(job, slots=4, scheduler=name)


def test_a_plan_takes_no_gangs() -> None:
    """It divides work anywhere."""
    with pytest.raises(InputError, match="job 'j', phase 'p': its tasks start together"):
        slotwise.plan(JOB, slots=6)
