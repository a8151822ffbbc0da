"""Jobs whose phases are commands and programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import slotwise
from slotwise.core.decisions import Launch
from slotwise.core.errors import InputError
from slotwise.core.events import TaskFailed
from slotwise.core.history import read_history
from slotwise.core.log import Log
from slotwise.jobs.execution import LostInputError
from slotwise.jobs.phased import PhasedRunner
from slotwise.sources import read_source
from slotwise.workload.writer import write_workload

NIGHTLY = """\
slotwise: 1
jobs:
  - id: nightly
    deadline: 2h
    phases:
      - {name: fetch, command: "echo b > fetched"}
      - name: convert
        command: [sh, -c, 'cat fetched > "converted-$0"', "{task}"]
        tasks: 2
        after: [fetch]
      - {name: count, program: wordcount, inputs: "logs/*", output: counts, after: [convert]}
      - name: mail
        command: cat counts/part* converted-1
        output: mail
        after: [count, convert]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file with a job of a command, an array, a program and a command."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "one.txt").write_text("b a b\n" * 3)
    (tmp_path / "flow.yaml").write_text(NIGHTLY)
    return tmp_path


def launched(log: Log) -> Iterator[str]:
    """The phases of all launches, in order."""
    for turn in log.turns:
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                yield decision.phase.phase


def content(output: Path) -> dict[str, str]:
    """The parts of an output."""
    return {path.name: path.read_text() for path in output.glob("part-*")}


def test_phases_run_in_order_and_read_what_earlier_ones_wrote(folder: Path) -> None:
    """The output of the program is that of the program alone."""
    result = slotwise.run(folder / "flow.yaml", slots=2)
    assert result.failed == {}
    phases = ["fetch", "convert", "convert", "count.map", *2 * ["count.reduce"], "mail"]
    assert list(launched(result.log)) == phases
    mail = (folder / "mail" / "task-00000.out").read_text()
    assert sorted(mail.splitlines()) == ["a\t3", "b", "b\t6"]
    logs = str(folder / "logs" / "*")
    slotwise.run(slotwise.mapreduce("wordcount", logs, folder / "alone"), slots=2)
    assert content(folder / "counts") == content(folder / "alone")


def test_a_failing_phase_fails_the_job(tmp_path: Path) -> None:
    """Later phases do not run; outputs of phases that are done stay, others do not appear."""
    steps = [
        slotwise.command("echo one", tmp_path / "first", id="first"),
        slotwise.command(
            "exit 3", tmp_path / "second", id="second", no_retry=[3], after={"first"}
        ),
        slotwise.command("echo three", tmp_path / "third", id="third", after={"second"}),
    ]
    result = slotwise.run(slotwise.phases(steps, id="steps"), slots=2)
    failed = result.failed["steps"]
    assert (
        "phase second, task 0 of job steps (exit 3): the command exited with code 3" in failed
    )
    assert list(launched(result.log)) == ["first", "second"]
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_a_phase_is_retried_alone(tmp_path: Path) -> None:
    """Earlier phases do not run again."""
    seen = tmp_path / "seen"
    flaky = f"test -e {seen} || {{ touch {seen}; exit 1; }}"
    steps = [
        slotwise.command(f"echo x >> {tmp_path}/first", id="first"),
        slotwise.command(flaky, id="flaky", after=["first"]),
    ]
    log = slotwise.run(slotwise.phases(steps, id="steps"), slots=1).log
    assert list(launched(log)) == ["first", "flaky", "flaky"]
    failures = [one for turn in log.turns for one in turn.events if isinstance(one, TaskFailed)]
    assert [one.phase.phase for one in failures] == ["flaky"]


def test_the_elements_of_an_array_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other."""
    for pipe in "01":
        os.mkfifo(tmp_path / pipe)
    pair = "if [ $SLOTWISE_TASK = 0 ]; then echo > 0; read x < 1; else read x < 0; echo > 1; fi"
    job = slotwise.phases([slotwise.command(pair, id="pair", tasks=2, cwd=tmp_path)], id="a")
    assert slotwise.run(job, slots=2).failed == {}


def test_two_programs_keep_their_intermediate_files_apart(folder: Path) -> None:
    """Both run at once, in one job."""
    logs = str(folder / "logs" / "*")
    pair = [slotwise.mapreduce("wordcount", logs, folder / id, id=id) for id in ("a", "b")]
    assert slotwise.run(slotwise.phases(pair, id="both"), slots=2).failed == {}
    assert content(folder / "a") == content(folder / "b") != {}


def test_lost_output_is_reported_by_the_phase_of_the_job() -> None:
    """A task of a program knows only the phases of the program."""

    def lose() -> None:
        raise LostInputError("map", ((0, 1),), "place")

    with pytest.raises(LostInputError) as lost:
        PhasedRunner({"count": lose})("count")
    assert (lost.value.phase, lost.value.outputs) == ("count.map", ((0, 1),))


def test_a_history_knows_each_phase_as_a_job_of_its_own(folder: Path) -> None:
    """So a simulation needs no stated work."""
    with pytest.raises(InputError, match="phase 'fetch': a simulation needs its work"):
        slotwise.simulate(folder / "flow.yaml", slots=2)
    history = folder / "history.db"
    slotwise.run(folder / "flow.yaml", slots=2, history=history)
    names = {(one.program, one.phase) for one in read_history(history)}
    assert ("$ echo b > fetched", "command") in names
    assert {phase for program, phase in names if program == "wordcount"} == {"map", "reduce"}
    simulated = slotwise.simulate(folder / "flow.yaml", slots=2, history=history)
    assert simulated.failed == {}


def test_it_is_resumed_as_a_whole(folder: Path) -> None:
    """If the input, the code or the words of any phase have changed."""
    flow = folder / "flow.yaml"
    slotwise.run(flow, slots=2, resume=True)
    assert list(slotwise.run(flow, slots=2, resume=True).jobs) == []
    (folder / "logs" / "two.txt").write_text("c\n")
    assert len(list(launched(slotwise.run(flow, slots=2, resume=True).log))) == 7
    assert "c\t1" in (folder / "mail" / "task-00000.out").read_text()
    flow.write_text(NIGHTLY.replace("echo b", "echo d"))
    slotwise.run(flow, slots=2, resume=True)
    assert (folder / "converted-0").read_text() == "d\n"


def test_it_is_planned_when_a_job_before_it_is_over(tmp_path: Path) -> None:
    """If a program in it reads what that job writes."""
    count = slotwise.mapreduce("wordcount", tmp_path / "made", tmp_path / "out", id="count")
    jobs = [
        slotwise.command("echo a", tmp_path / "made", id="make"),
        slotwise.phases([count], id="counts", after="make"),
    ]
    result = slotwise.run(jobs, slots=1)
    assert result.failed == {}
    assert "a\t1\n" in content(tmp_path / "out").values()


def test_it_is_written_as_stated_work(folder: Path) -> None:
    """With a history, and read again with the same phases."""
    history = folder / "history.db"
    slotwise.run(folder / "flow.yaml", slots=2, history=history)
    (job,) = read_source(folder / "flow.yaml").with_options(history=history).jobs()
    write_workload([job], folder / "written.yaml")
    (read,) = read_source(folder / "written.yaml").jobs()
    assert {one.name: one.after for one in read.phases} == {
        "fetch": frozenset(),
        "convert": {"fetch"},
        "count.map": {"convert"},
        "count.reduce": {"count.map"},
        "mail": {"convert", "count.reduce"},
    }


def test_a_session_returns_the_folders_of_the_outputs(tmp_path: Path) -> None:
    """By the names of their phases."""
    steps = [
        slotwise.command("echo one", tmp_path / "first", id="first"),
        slotwise.command("echo two", id="second", after=["first"]),
    ]
    with slotwise.Session(1) as session:
        assert session.run(slotwise.phases(steps, id="steps")).result() == {
            "first": str(tmp_path / "first")
        }


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("made", "phase 'make' writes its input 'made', which is examined when the job begins"),
        ("none/*", "no file matches"),
    ],
)
def test_input_of_another_phase_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: str, message: str
) -> None:
    """With the remedy."""
    monkeypatch.chdir(tmp_path)
    steps = [
        slotwise.command("echo one", "made", id="make"),
        slotwise.mapreduce("wordcount", inputs, "out", id="count", after=["make"]),
    ]
    with pytest.raises(InputError) as refused:
        slotwise.run(slotwise.phases(steps, id="a"), slots=1)
    assert str(refused.value).startswith("job 'a', phase 'count': ")
    assert message in str(refused.value)
    assert str(refused.value).endswith("make the program a job of its own, with `after`")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            [slotwise.command("true", id="a", pool="x")],
            "job 'j', phase 'a': pool is not for a phase; state it for the job",
        ),
        (["true"], "job 'j': a phase is 'true'; expected slotwise.command"),
        (
            [
                slotwise.command("true", "out", id="a"),
                slotwise.command("true", "out/b", id="b"),
            ],
            "job 'j': two phases write to the same output",
        ),
    ],
)
def test_what_has_no_sense_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[object], message: str
) -> None:
    """Before anything runs."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        slotwise.run(slotwise.phases(steps, id="j"), slots=1)  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert list(tmp_path.iterdir()) == []
