"""`slotwise plan --scheduler`: whole tasks on uneven hosts, checked with what it prints."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

JOBS = """\
slotwise: 1
cluster:
  hosts:
    - {name: fast, slots: 2, speed: 2.0}
    - {name: slow, slots: 3, speed: 0.5}
jobs:
  - {id: a, weight: 2, phases: [{name: map, work: 40, tasks: 8},
     {name: reduce, work: 10, tasks: 2, after: [map]}]}
  - {id: b, arrival: 5, phases: [{name: map, tasks: [3, 4.5, 1]},
     {name: reduce, tasks: [8], after: [map]}]}
  - {id: c, arrival: 5, weight: 3, phases: [{name: map, work: 6, tasks: 2}]}
"""
TASKS = {("a", "map"): [5.0] * 8, ("a", "reduce"): [5.0] * 2, ("b", "map"): [3.0, 4.5, 1.0]}
TASKS |= {("b", "reduce"): [8.0], ("c", "map"): [3.0, 3.0]}
WEIGHT, RELEASE = {"a": 2.0, "b": 1.0, "c": 3.0}, {"a": 0.0, "b": 5.0, "c": 5.0}
SPEED, SLOTS = {"fast": 2.0, "slow": 0.5}, {"fast": 2, "slow": 3}

KEYS = "scheduler value bound ratio guarantee D seconds completion assignment".split()  # noqa: SIM905
NAMES = ["dmrs", "dmrs-best", "fifo", "identical-machine", "map-only"]


@pytest.fixture
def plan(slotwise: Any, folder: Path) -> Any:
    """Plans the jobs above with these changes, and gives the object that is printed."""

    def planned(scheduler: str, *arguments: str, jobs: str = JOBS) -> dict[str, Any]:
        (folder / "uneven.yaml").write_text(jobs)
        done = slotwise("plan", "uneven.yaml", "--scheduler", scheduler, "--json", *arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        (line,) = done.stdout.splitlines()
        return json.loads(line)

    return planned


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_of_tasks_keeps_the_contract(name: str, plan: Any) -> None:
    """Keys, tasks, machines, order of phases, completion, value, ratio and guarantee."""
    found = plan(name)
    assert list(found) == KEYS
    assert found["scheduler"] == name
    check_assignment(found["assignment"])
    ends: dict[str, float] = defaultdict(float)
    for job, _, _, _, _, end in found["assignment"]:
        ends[job] = max(ends[job], end)
    assert found["completion"] == dict(ends)
    value = sum(WEIGHT[job] * end for job, end in ends.items())
    assert found["value"] == pytest.approx(value, rel=1e-12)
    assert 0 < found["bound"] <= found["value"]
    assert found["ratio"] == pytest.approx(found["value"] / found["bound"])
    # a: 50 / 10, b: 16.5 / 12.5, c: 6 / 3.
    assert found["D"] == pytest.approx(16.5 / 12.5)
    if name.startswith("dmrs"):
        assert found["guarantee"] == pytest.approx(2 * (1 + 4 / (16.5 / 12.5)) + 1)
        assert found["ratio"] <= found["guarantee"]
    else:
        assert found["guarantee"] is None


def check_assignment(assignment: list[list[Any]]) -> None:
    """Each task once, long enough, after its release and the phase before, slots kept."""
    done = sorted((job, phase, task) for job, phase, task, _, _, _ in assignment)
    assert done == sorted(
        (*key, task) for key, own in TASKS.items() for task in range(len(own))
    )
    ends: dict[tuple[str, str], float] = defaultdict(float)
    for job, phase, task, host, start, end in assignment:
        assert end - start >= TASKS[job, phase][task] / SPEED[host] - 1e-9
        assert start >= RELEASE[job]
        ends[job, phase] = max(ends[job, phase], end)
    for job, phase, task, host, _, end in assignment:
        if phase == "reduce":
            computes = end - TASKS[job, phase][task] / SPEED[host]
            assert computes >= ends[job, "map"] - 1e-9
    for host, slots in SLOTS.items():
        own = [(start, end) for _, _, _, at, start, end in assignment if at == host]
        for instant in {start for start, _ in own}:
            assert sum(start <= instant + 1e-9 < end for start, end in own) <= slots


def test_search_is_never_worse(plan: Any) -> None:
    """With no steps and with many; the same number of steps gives the same plan."""
    listed = plan("dmrs")["value"]
    values = [plan("dmrs-best", "--budget-steps", str(steps))["value"] for steps in (0, 9, 300)]
    assert sorted(values, reverse=True) == values
    assert values[0] <= listed
    one, other = (plan("dmrs-best", "--budget-steps", "50") for _ in range(2))
    assert one | {"seconds": 0} == other | {"seconds": 0}


def test_guarantee_without_releases(plan: Any) -> None:
    """If all jobs are present at 0, the factor is less by one."""
    together = JOBS.replace("arrival: 5, ", "")
    assert plan("dmrs", jobs=together)["guarantee"] == pytest.approx(2 * (1 + 4 * 12.5 / 16.5))


def test_a_plan_of_tasks_is_shown_without_json(slotwise: Any, folder: Path) -> None:
    """Value, bound and guarantee on one line; then completions in order."""
    (folder / "uneven.yaml").write_text(JOBS)
    done = slotwise("plan", "uneven.yaml", "--scheduler", "dmrs")
    head, *lines = done.stdout.splitlines()
    assert head.startswith("dmrs: sum of weighted completion ")
    assert "bound " in head
    assert head.endswith(" by theorem")
    instants = [float(line.split()[0]) for line in lines]
    assert instants == sorted(instants)
    assert [line.split()[-1] for line in lines] == ["c", "b", "a"]


REFUSED = {
    ("speed: 0.5", "speed: 0"): ("cluster.hosts[1].speed", "0", "expected a number > 0"),
    ("speed: 0.5", "speed: -1"): ("cluster.hosts[1].speed", "-1", "expected a number > 0"),
    ("speed: 0.5", "speed: .inf"): (
        "cluster.hosts[1].speed",
        "inf",
        "expected a finite number",
    ),
    ("arrival: 5, w", "arrival: -5, w"): ("jobs[2].arrival", "-5", "expected a number >= 0"),
    ("weight: 2", "weight: 0"): ("jobs[0].weight", "0", "expected a number > 0"),
    ("tasks: [8]", "work: 0"): ("jobs[1].phases[1].work", "0", "expected a number > 0"),
    ("tasks: [8]", "tasks: 3"): ("jobs[1].phases[1]", "work", "give its work in seconds"),
    ("tasks: [8]", "tasks: [2, 0]"): ("tasks", "0", "expected a number > 0"),
    ("tasks: [8]", "work: 8, slots_max: 1"): ("job 'b', phase 'reduce'", "shares", "leave out"),
    ("tasks: [8]", "work: 8, slots_min: 1"): ("job 'b', phase 'reduce'", "shares", "leave out"),
    ("slots: 2", "slots: {map: 1, reduce: 1}"): ("cluster", "map, reduce", "slots: 1"),
    ("jobs:", "pools: [{name: default, slots_max: 2}]\njobs:"): ("'default'", "", "leave out"),
}


@pytest.mark.parametrize(("change", "parts"), REFUSED.items(), ids=lambda case: case[1])
def test_a_workload_that_cannot_be_planned_is_refused(
    change: tuple[str, str], parts: tuple[str, str, str], slotwise: Any, folder: Path
) -> None:
    """Exit code 2, nothing on stdout, and one message with place, value and remedy."""
    assert change[0] in JOBS
    (folder / "bad.yaml").write_text(JOBS.replace(*change))
    refused = slotwise("plan", "bad.yaml", "--scheduler", "dmrs", "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert all(part in refused.stderr for part in parts), refused.stderr


def test_a_task_without_a_slot_of_its_kind(slotwise: Any, folder: Path) -> None:
    """All slots are for maps, so phases of another kind cannot run."""
    only = JOBS.replace("slots: 2", "slots: {map: 2}").replace("slots: 3", "slots: {map: 3}")
    (folder / "bad.yaml").write_text(only)
    refused = slotwise("plan", "bad.yaml", "--scheduler", "dmrs")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "no host has slots for phases of kind 'task'" in refused.stderr


def test_an_unknown_scheduler(slotwise: Any) -> None:
    """The known ones are named."""
    refused = slotwise("plan", "jobs.yaml", "--scheduler", "flex")
    assert refused.exit_code == 2
    assert all(name in refused.stderr for name in ["'flex'", *NAMES])
