"""`slotwise plan --json`: the contract, checked with nothing but the pieces it prints."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KEYS = "allocator objective value bound gap exact may_improve seconds completion pieces".split()  # noqa: SIM905
WORK = {("small", "map"): 40.0, ("large", "map"): 400.0, ("large", "reduce"): 60.0}
WEIGHT = {"small": 1.0, "large": 2.0}
SIZE = {"small": 40.0, "large": 460.0}

VALUES: dict[tuple[str, str], Callable[[dict[str, float]], float]] = {
    ("response", "sum"): lambda at: sum(WEIGHT[job] * at[job] for job in at),
    ("response", "max"): lambda at: max(WEIGHT[job] * at[job] for job in at),
    ("stretch", "sum"): lambda at: sum(WEIGHT[job] * at[job] / SIZE[job] for job in at),
    ("stretch", "max"): lambda at: max(WEIGHT[job] * at[job] / SIZE[job] for job in at),
    ("makespan", "max"): lambda at: max(at.values()),
}
"""The objectives, from their definitions."""


@pytest.mark.parametrize("allocator", ["fifo", "fair", "flex", "flowflex", "flowflex-fast"])
@pytest.mark.parametrize(("penalty", "aggregate"), VALUES)
def test_a_plan_keeps_the_contract(
    allocator: str, penalty: str, aggregate: str, slotwise: Any
) -> None:
    """Keys, whole slots, areas, capacity, completion, value and gap are correct."""
    done = slotwise(
        *f"plan jobs.yaml --allocator {allocator} --objective {penalty}".split(),
        *f"--aggregate {aggregate} --json".split(),
    )
    assert (done.exit_code, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    plan = json.loads(line)
    assert list(plan) == KEYS
    assert plan["allocator"] == allocator
    assert plan["objective"] == {"penalty": penalty, "aggregate": aggregate}
    check_pieces(plan["pieces"])
    ends: dict[str, float] = defaultdict(float)
    for job, _, _, end, _ in plan["pieces"]:
        ends[job] = max(ends[job], end)
    assert plan["completion"] == pytest.approx(dict(ends), rel=1e-9)
    assert plan["value"] == pytest.approx(VALUES[penalty, aggregate](ends), rel=1e-9)
    assert 0 < plan["bound"] <= plan["value"]
    assert plan["gap"] == pytest.approx(plan["value"] / plan["bound"] - 1)
    assert plan["exact"] == (plan["gap"] <= 1e-9)


def check_pieces(pieces: list[list[Any]]) -> None:
    """The pieces do all work, within capacity and shares, one after the other, in order."""
    by_phase = defaultdict(list)
    for job, phase, start, end, slots in pieces:
        assert type(slots) is int
        assert 0 <= start < end
        by_phase[job, phase].append((start, end, slots))
    assert set(by_phase) == set(WORK)
    for phase, own in by_phase.items():
        for (_, end, _), (start, _, _) in itertools.pairwise(sorted(own)):
            assert end <= start
        area = math.fsum((end - start) * slots for start, end, slots in own)
        assert area == pytest.approx(WORK[phase], rel=1e-9)
    assert max(slots for _, _, slots in by_phase["large", "reduce"]) <= 4
    assert min(by_phase["large", "reduce"])[0] >= max(e for _, e, _ in by_phase["large", "map"])
    for instant in {start for _, _, start, _, _ in pieces}:
        assert sum(slots for _, _, s, e, slots in pieces if s <= instant < e) <= 10


def test_jobs_that_arrive_later_are_refused(slotwise: Any, folder: Any) -> None:
    """In a plan all jobs are present at 0."""
    (folder / "late.yaml").write_text(
        "slotwise: 1\njobs: [{id: a, arrival: 5, phases: [{name: m, work: 1}]}]"
    )
    done = slotwise("plan", "late.yaml", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "slotwise: late.yaml: jobs[0] (line 2): job 'a': arrival is 5.0, but a plan takes every"
        " job as present at time 0; set it to 0, or simulate\n"
    )


def test_a_plan_is_shown_without_json(slotwise: Any) -> None:
    """The text has value, bound, gap and the completion of each job."""
    done = slotwise("plan", "jobs.yaml", "--objective", "makespan")
    first, *jobs = done.stdout.splitlines()
    assert first.startswith("flex: max of makespan 55, bound 5")
    assert [line.split()[-1] for line in jobs] == ["small", "large"]


OPEN = """\
slotwise: 1
cluster: {slots: 4}
jobs:
  - {id: a, phases: [{name: m, work: 9, slots_max: 3},
     {name: n, work: 4, after: [m], slots_max: 2}]}
  - {id: b, phases: [{name: m, work: 8, slots_max: 3}]}
  - {id: c, phases: [{name: m, work: 5, slots_max: 2}, {name: n, work: 3, after: [m]}]}
"""
"""Jobs whose plan is not proven optimal, although the search ends by itself."""

SPENT = "the search spent its budget; {} could find better"


@pytest.mark.parametrize(
    ("options", "spent"),
    [
        ("--objective response", ""),
        (
            "--objective response --budget-steps 0",
            SPENT.format("--budget-steps above 0"),
        ),
        ("--objective response --budget-seconds 0", SPENT.format("a larger --budget-seconds")),
        ("--objective makespan --aggregate max --budget-steps 0", ""),
    ],
)
def test_a_plan_tells_whether_a_larger_budget_could_help(
    options: str, spent: str, slotwise: Any, folder: Path
) -> None:
    """Not if the search ended by itself, and not if the value is proven optimal. It names the
    option of the budget, and how many steps were not enough."""
    (folder / "open.yaml").write_text(OPEN)
    command = ["plan", "open.yaml", "--allocator", "flowflex", *options.split()]
    plan = json.loads(slotwise(*command, "--json").stdout)
    assert plan["exact"] == ("makespan" in options)
    assert plan["may_improve"] is bool(spent)
    lines = slotwise(*command).stdout.splitlines()
    assert [line for line in lines if "budget" in line] == ([spent] if spent else [])


COPYING = """\
slotwise: 1
cluster: {hosts: [{name: h, slots: {map: 2, reduce: 2}}], heartbeat: 3}
shuffle: {slow_start: 0.1, split: true}
placement: {replicas: 1, block_bytes: 1000000}
network: {host: 1}
preemption: {least_after: 1}
pools: [{name: top}, {name: low, parent: top, jobs_max: 1}]
jobs:
  - id: a
    pool: low
    phases:
      - {name: m, kind: map, work: 8, tasks: 8}
      - {name: r, kind: reduce, work: 4, tasks: 4, after: [m], slow_start: 0.1, copy: 5}
      - {name: s, kind: map, work: 4, tasks: 4, continues: r}
"""


def test_plans_do_not_copy_data(slotwise: Any, folder: Path) -> None:
    """Phases begin as soon as the phases that they wait for or continue are done."""
    (folder / "copying.yaml").write_text(COPYING)
    plan = json.loads(slotwise("plan", "copying.yaml", "--json").stdout)
    assert plan["completion"] == {"a": 8 / 2 + 4 / 2 + 4 / 2}
    assert {(phase, start, end) for _, phase, start, end, _ in plan["pieces"]} == {
        ("m", 0, 4),
        ("r", 4, 6),
        ("s", 6, 8),
    }
