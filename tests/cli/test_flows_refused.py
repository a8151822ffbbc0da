"""Flows of which no plan can be made are refused by `plan --allocator flowflex`, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotwise.core import errors

NAMES = ("flowflex", "flowflex-fast", "flowflex-paper")


def assert_refused(done: Any, message: str, folder: Path) -> None:
    """Exit code 2, this line on stderr, nothing on stdout, nothing on disk."""
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["jobs.yaml"]


def file_of(phases: str, more: str = "") -> str:
    """A file of one job of these phases."""
    return (
        f"slotwise: 1\ncluster: {{slots: 4}}\njobs:\n  - {{id: j, {more}phases: [{phases}]}}\n"
    )


A = "{name: a, work: 4, tasks: 2}"

BAD = {
    "a cycle of three": (
        file_of(
            "{name: a, work: 1, after: [c]}, {name: b, work: 1, after: [a]},"
            " {name: c, work: 1, after: [b]}, {name: d, work: 1}"
        ),
        "job 'j': phases a, b, c wait for each other in a circle; remove one `after`",
    ),
    "a cycle behind a beginning": (
        file_of(f"{A}, {{name: b, work: 1, after: [a, c]}}, {{name: c, work: 1, after: [b]}}"),
        "job 'j': phases b, c wait for each other in a circle; remove one `after`",
    ),
    "after a phase of another job": (
        file_of(A) + "  - {id: k, phases: [{name: x, work: 1, after: [a]}]}\n",
        "job 'k': phase 'x' waits for unknown phase 'a'; known: x",
    ),
    "a phase without work in a flow": (
        file_of(f"{A}, {{name: b, work: 0, tasks: 2, after: [a]}}"),
        "jobs.yaml: jobs[0].phases[1].work (line 4) is 0: expected a number > 0",
    ),
    "work that is lost beside the rest": (
        file_of(f"{A}, {{name: b, work: 1.0e-9, after: [a]}}, {{name: c, work: 1.0e+9}}"),
        "job 'j', phase 'b': takes 2.5e-10 s, which is lost in a plan of",
    ),
    "a flow that arrives later": (
        file_of(A, "arrival: 3, "),
        "job 'j': arrival is 3.0, but a plan takes every job as present at time 0; set it to",
    ),
    "slots of another speed": (
        "slotwise: 1\ncluster: {hosts: [{name: h, slots: 2, speed: 2}]}\n"
        f"jobs: [{{id: j, phases: [{A}]}}]\n",
        "a malleable plan takes slots of speed 1; set every host's speed to 1, plan whole tasks"
        " (--scheduler dmrs, in Python plan_tasks), or simulate",
    ),
}
"""What only a plan refuses, and what only a flow can have wrong."""


@pytest.mark.parametrize("allocator", NAMES)
@pytest.mark.parametrize("name", BAD)
def test_a_flow_that_cannot_be_planned(
    name: str, allocator: str, slotwise: Any, folder: Path
) -> None:
    """One message that names the job, the phase, the value and the remedy."""
    text, message = BAD[name]
    (folder / "jobs.yaml").write_text(text, encoding="utf-8")
    done = slotwise("plan", "jobs.yaml", "--allocator", allocator, "--json")
    assert_refused(done, message, folder)


def test_without_ortools_the_extra_is_named(
    slotwise: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums need the min-cost flow; the faster variant and maxima do not."""
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    (folder / "jobs.yaml").write_text(file_of(f"{A}, {{name: b, work: 1, after: [a]}}"))
    done = slotwise("plan", "jobs.yaml", "--allocator", "flowflex")
    assert_refused(done, "pip install 'slotwise[flow]'", folder)
    done = slotwise("simulate", "jobs.yaml", "--scheduler", "flowflex")
    assert_refused(done, "pip install 'slotwise[flow]'", folder)
    for options in ("--allocator flowflex-fast", "--allocator flowflex --objective makespan"):
        done = slotwise("plan", "jobs.yaml", "--json", *options.split())
        assert done.exit_code == 0, done.stderr
