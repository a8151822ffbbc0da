"""Workflows of commands and programs, of which some read what others write."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import slotwise
from slotwise.core.errors import InputError
from slotwise.core.events import TaskFailed
from slotwise.core.history import read_history
from slotwise.core.log import Log
from slotwise.core.log_validation import LogValidator
from slotwise.insight.replay import replay_log
from slotwise.workload.workload import command, mapreduce


def counted(folder: Path) -> dict[str, str]:
    """The words of a word count, and how often each was found."""
    parts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    return dict(line.split("\t") for line in "".join(parts).splitlines())


def assert_sound(log: Log) -> None:
    """The log is plausible, and the decisions in it can be repeated."""
    plausible = LogValidator(log.header.cluster)
    for turn in log.turns:
        plausible.check_turn(turn.now, turn.events, turn.decisions)
    assert replay_log(log).is_identical


def test_a_program_reads_what_a_command_writes(tmp_path: Path) -> None:
    """It is planned when the command is done; another command reads what it wrote."""
    made, words, shown = (str(tmp_path / name) for name in ("made", "words", "shown"))
    result = slotwise.run(
        [
            command(["cat", f"{words}/part-r-00000"], shown, id="show", after=["words"]),
            mapreduce(
                "wordcount", made, words, id="words", after="make", reducers=1, deadline=60.0
            ),
            command("echo b a b", made, id="make", tasks=2),
        ],
        slots=2,
    )
    assert result.failed == {}
    assert counted(Path(words)) == {"a": "2", "b": "4"}
    assert Path(shown, "task-00000.out").read_text() == "a\t2\nb\t4\n"
    assert result.jobs["words"]["arrival"] == 0
    assert_sound(result.log)


def test_a_program_that_waits_is_in_the_history(tmp_path: Path) -> None:
    """Like any other, in runs and in sessions."""
    made, history = str(tmp_path / "made"), tmp_path / "history.db"
    make = command("echo b a b", made, id="make")
    count = mapreduce("wordcount", made, tmp_path / "words", id="words", after="make")
    slotwise.run([make, count], slots=1, history=history)
    with slotwise.Session(1, history=history) as session:
        first = session.command("echo b", tmp_path / "again")
        later = mapreduce("wordcount", str(tmp_path / "again"), tmp_path / "b", after=first.job)
        session.run(later).result()
    seen = Counter((one.program, one.phase) for one in read_history(history))
    assert seen["wordcount", "map"] == 2


def test_a_program_whose_input_is_missing_fails_alone(tmp_path: Path) -> None:
    """Once, with the message. If its predecessor fails, its input is not looked at."""
    made = str(tmp_path / "made")
    result = slotwise.run(
        [
            command("echo b a b", made, id="make"),
            mapreduce("wordcount", f"{made}/*.csv", tmp_path / "a", id="csv", after="make"),
            command("exit 1", tmp_path / "bad", id="bad"),
            mapreduce("wordcount", tmp_path / "bad", tmp_path / "b", id="after", after="bad"),
        ],
        slots=2,
    )
    assert result.failed.keys() == {"csv", "bad", "after"}
    assert f"input '{made}/*.csv': no file matches" in result.failed["csv"]
    assert result.failed["after"] == "job 'bad', for which it waits, has failed"
    events = [event for turn in result.log.turns for event in turn.events]
    failures = [event.phase.job for event in events if isinstance(event, TaskFailed)]
    assert failures.count("csv") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]
    assert_sound(result.log)


def test_a_program_that_is_planned_later_may_fit_no_host(tmp_path: Path) -> None:
    """It fails with the numbers, in place of waiting forever."""
    before = slotwise.command("echo a", tmp_path / "in", id="before")
    needs = {"reduce": {"license": 2}}
    words = slotwise.mapreduce(
        *("wordcount", tmp_path / "in" / "*.out", tmp_path / "out"),
        **{"id": "words", "after": ["before"], "resources": needs},
    )
    done = slotwise.run([before, words], slots=1, resources={"license": 1}, keep=False)
    assert list(done.failed) == ["words"]
    assert "each task requests license 2, but the host with the most" in done.failed["words"]


def test_inputs_of_a_command_must_exist(tmp_path: Path) -> None:
    """Before the run, or when a job begins that waits for others, which may write them."""
    made = str(tmp_path / "made")
    steps = [
        command("echo a", made, id="make"),
        command("true", id="read", inputs=f"{made}/*.out", after=["make"]),
        command("true", id="lacks", inputs=f"{made}/*.csv", after=["make"]),
    ]
    result = slotwise.run(steps, slots=2)
    assert result.failed.keys() == {"lacks"}
    assert f"job 'lacks': input '{made}/*.csv': no file matches" in result.failed["lacks"]
    with pytest.raises(
        InputError, match=r"job 'alone': input 'no\.csv': no file matches; give"
    ):
        slotwise.run(command("true", id="alone", inputs="no.csv"), slots=1)


def test_inputs_of_a_phase_may_come_from_another(tmp_path: Path) -> None:
    """They are examined when it begins, so the job fails if they are missing."""
    made = str(tmp_path / "made")
    steps = [
        command("echo a", made, id="make"),
        command("true", id="read", inputs=f"{made}/*.out", after=["make"]),
        command("true", id="lacks", inputs=f"{made}/*.csv", after=["read"]),
    ]
    result = slotwise.run(slotwise.phases(steps, id="whole"), slots=2)
    assert "phase lacks" in result.failed["whole"]
    assert f"input '{made}/*.csv': no file matches" in result.failed["whole"]


def test_a_dataflow_in_a_session_reads_what_a_command_writes(tmp_path: Path) -> None:
    """Both are submitted at once."""
    flow = slotwise.Dataflow()
    lines = flow.read(str(tmp_path / "made" / "*.out"))
    flow.write(flow.node(lambda lines: lines, lines, name="copy"))
    with slotwise.Session(2) as session:
        session.command("sleep 0.1; echo one", tmp_path / "made", id="make")
        copied = session.run(flow.job("copy", tmp_path / "copied", after="make"))
        folder = Path(copied.result())
    assert "one" in "".join(path.read_text() for path in folder.glob("part*"))


def test_what_a_simulation_cannot_know_is_refused(tmp_path: Path) -> None:
    """The input of a program that another job would write."""
    jobs = [
        command("echo a", tmp_path / "made", id="make", work=1.0),
        mapreduce("wordcount", tmp_path / "made", tmp_path / "words", id="words", after="make"),
    ]
    with pytest.raises(InputError, match="made"):
        slotwise.simulate(jobs, slots=2)
