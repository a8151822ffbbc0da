"""Commands in a workload file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import slotwise
from slotwise.core.errors import InputError
from slotwise.workload.file import parse_workload
from slotwise.workload.workload import CommandJob

FILE = """
slotwise: 1
cluster: {slots: 2}
jobs:
  - {id: a, command: [python, train.py], tasks: 8, env: {SEED: "1"}, cwd: src, work: 80,
     output: out/a, slots_max: 4, pool: default, weight: 2}
  - {id: b, command: "date | tee now", output: out/b, arrival: 3, overwrite: true}
"""


def test_a_command_is_read_with_its_settings() -> None:
    """A list and a text; keys that are left out have the defaults of the job."""
    settings = {"tasks": 8, "env": {"SEED": "1"}, "cwd": "src", "work": 80, "slots_max": 4}
    assert parse_workload(FILE).jobs == (
        CommandJob("a", ("python", "train.py"), "out/a", weight=2.0, settings=settings),
        CommandJob("b", "date | tee now", "out/b", arrival=3.0, settings={"overwrite": True}),
    )


def test_a_command_of_stated_work_is_simulated(tmp_path: Path) -> None:
    """Eight tasks of 10 s on two slots; nothing is run or written."""
    workload = parse_workload(FILE.split("  - {id: b")[0], tmp_path)
    assert slotwise.simulate(workload).jobs["a"]["completion"] == pytest.approx(40.0)
    assert list(tmp_path.iterdir()) == []


def test_a_simulation_needs_the_work_of_a_command(tmp_path: Path) -> None:
    """Without it there is nothing to simulate; an earlier run with a history tells it."""
    file, history = tmp_path / "w.yaml", tmp_path / "h.db"
    job = "{id: b, command: [sleep, '0.01'], tasks: 2}"
    file.write_text(f"slotwise: 1\njobs:\n  - {job}\n")
    with pytest.raises(InputError) as refused:
        slotwise.simulate(file)
    assert str(refused.value) == (
        f"{file}: jobs[0] (line 3): job 'b', phase 'command': a simulation needs its work;"
        " state it, or give a history of an earlier run"
    )
    later = replace(slotwise.read_workload(file), jobs=(slotwise.command("true", id="later"),))
    with pytest.raises(InputError, match=r"^job 'later', phase 'command': a simulation needs"):
        slotwise.simulate(later)
    slotwise.run(file, slots=1, history=history)
    known = slotwise.simulate(file, slots=1, history=history).jobs["b"]["completion"]
    assert known is not None
    assert known >= 0.02


def test_a_command_is_described_in_python(tmp_path: Path) -> None:
    """`slotwise.command` makes the same job as the file."""
    job = slotwise.command("echo $SLOTWISE_TASK", tmp_path / "out", id="c", tasks=2)
    assert slotwise.run([job], slots=2).failed == {}
    printed = [path.read_text() for path in sorted((tmp_path / "out").glob("*.out"))]
    assert printed == ["0\n", "1\n"]


def test_a_command_needs_no_output(tmp_path: Path) -> None:
    """Several such jobs run; it has nothing to overwrite, and a comparison no suffixes."""
    entry = "{id: %s, command: 'echo $SLOTWISE_JOB; touch %s', work: 1}"
    text = f"slotwise: 1\njobs: [{entry % ('a', 'a')}, {entry % ('b', 'b')}]"
    workload = parse_workload(text, tmp_path)
    assert workload.jobs[0] == CommandJob(
        "a", "echo $SLOTWISE_JOB; touch a", settings={"work": 1}
    )
    assert slotwise.run(workload, slots=2).failed == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    compared = slotwise.compare(workload, ["fifo", "fair"], live=True, slots=2)
    assert [one.failed for one in compared] == [{}, {}]
    with pytest.raises(InputError, match="overwrite is for a command with an output; remove"):
        slotwise.command("true", id="c", overwrite=True)


def test_two_jobs_may_not_share_an_output(tmp_path: Path) -> None:
    """A command is refused like a program."""
    jobs = [slotwise.command("true", tmp_path / "out", id=name) for name in "ab"]
    with pytest.raises(InputError, match="write to the same output"):
        slotwise.run(jobs, slots=1)


def test_compare_runs_commands_with_outputs_of_their_own(tmp_path: Path) -> None:
    """Each scheduler has its folder."""
    job = slotwise.command("true", tmp_path / "out", id="c")
    slotwise.compare([job], ["fifo", "fair"], live=True, slots=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out-fair", "out-fifo"]
