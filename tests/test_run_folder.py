"""The folders of runs: what they hold, which are kept, and runs without a usable one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import slotwise
from slotwise import InputError, Job, Phase, Session, Tasks
from slotwise.core.decisions import Decision
from slotwise.core.errors import SlotwiseWarning
from slotwise.core.events import Event, TaskFinished
from slotwise.jobs.work_folder import FileLock
from slotwise.run_folder import LOCK, RunFolder
from waiting import until

JOB = Job("a", (Phase("p", Tasks(2, 0.0)),))


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the runs of a test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/slotwise/runs"


def commands(
    command: str, *, output: Path | None = None, tasks: int = 1
) -> slotwise.CommandJob:
    """A job of commands."""
    return slotwise.command(command, output, id="a", tasks=tasks)


def printed(folder: Path | None) -> dict[str, str]:
    """The contents of the files with output in the folder of a run, by path below `logs`."""
    assert folder is not None
    found = sorted(path for path in folder.glob("logs/*/*"))
    return {str(path.relative_to(folder / "logs")): path.read_text() for path in found}


def test_a_run_leaves_its_log_and_what_it_was(runs: Path) -> None:
    """The log can be read; a run that printed nothing has no files for that."""
    result = slotwise.run(JOB, slots=1)
    last = RunFolder.last()
    assert (last.path, last.path.parent) == (result.folder, runs)
    assert sorted(path.name for path in last.path.iterdir()) == ["log.jsonl", "run.json"]
    assert slotwise.replay(last.log).is_identical
    about = last.about()
    assert (about["kind"], about["exit"], about["failed"]) == ("run", "done", [])
    assert about["start"] <= about["end"]
    assert (last.state, RunFolder.named(last.id[:15]).path) == ("done", last.path)


def test_the_log_of_a_run_that_waits_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a task begins directly after the end of another, and then nothing happens."""
    monkeypatch.setattr("slotwise.core.log.FLUSH_SECONDS", 2.0)
    command = f"test $SLOTWISE_TASK = 0 || until test -e {tmp_path}/go; do sleep 0.05; done"
    with Session(1, epoch_seconds=3600.0) as session:
        future = session.command(command, tasks=2)
        try:
            until(lambda: RunFolder.last().log.read_text().count('"is":"Launch"') == 2)
        finally:
            (tmp_path / "go").touch()
        future.result()


def test_a_log_that_was_named_is_not_written_twice(tmp_path: Path) -> None:
    """The folder knows where it is."""
    slotwise.run(JOB, slots=1, log=tmp_path / "own.jsonl")
    assert RunFolder.last().log == tmp_path / "own.jsonl"
    assert sorted(path.name for path in RunFolder.last().path.iterdir()) == ["run.json"]


def test_commands_leave_what_they_print(tmp_path: Path) -> None:
    """Of all attempts, with and without an output; the message of a failure names the file."""
    command = "echo $SLOTWISE_TASK; test $SLOTWISE_TASK = 0 || { echo why >&2; exit 3; }"
    for output in (None, tmp_path / "out"):
        job = commands(command, output=output, tasks=2)
        result = slotwise.run(job, "fifo", slots=1, attempts_max=2)
        assert result.folder is not None
        assert printed(result.folder) == {
            "a/0.1.out": "0\n",
            "a/1.1.err": "why\n",
            "a/1.1.out": "1\n",
            "a/1.2.err": "why\n",
            "a/1.2.out": "1\n",
        }
        assert result.failed["a"].splitlines()[1:] == [
            "why",
            f"the command exited with code 3; see {result.folder}/logs/a/1.2.err",
        ]
        assert RunFolder(result.folder).about()["failed"] == ["a"]
    assert not (tmp_path / "out").exists()


def test_jobs_that_were_cancelled_with_another_have_not_failed() -> None:
    """They never began."""
    jobs = [
        slotwise.command("exit 3", id="a", attempts=1),
        slotwise.command("true", id="b", after="a"),
        slotwise.command("true", id="c", after="b"),
    ]
    slotwise.run(jobs, slots=1)
    about = RunFolder.last().about()
    assert (about["failed"], about["failed_count"]) == (["a"], 1)


def test_a_failed_call_names_what_it_printed() -> None:
    """As the cause of its exception; one that printed nothing does not."""

    def fail(text: str) -> None:
        print(text, end="")
        raise ValueError("bad")

    with Session(1) as session:
        for text in ("hint", ""):
            future = session.submit(fail, text)
            cause = str(future.exception().__cause__)  # type: ignore[union-attr]
            path = f"{session.folder}/logs/{future.job}/0.1.out"
            assert cause.endswith(f"ValueError: bad\nits output: {path}" if text else "bad")
            assert os.path.exists(path) == bool(text)
        folder = RunFolder.last()
        assert (folder.path, folder.state) == (session.folder, "running")
    assert (folder.state, folder.about()["kind"]) == ("done", "session")


def test_only_live_runs_have_a_folder_unless_it_is_asked_for(
    runs: Path, tmp_path: Path
) -> None:
    """A simulation can have one, a run can go without, and both can name it."""
    assert slotwise.simulate(JOB, slots=1).folder is None
    assert slotwise.run(JOB, slots=1, keep=False).folder is None
    assert not runs.exists()
    assert slotwise.simulate(JOB, slots=1, keep=True).folder == RunFolder.last().path
    assert slotwise.run(JOB, slots=1, keep=tmp_path / "mine").folder == tmp_path / "mine"
    assert RunFolder.named(tmp_path / "mine").state == "done"
    with pytest.raises(InputError, match="mine': it is not empty; name another folder"):
        slotwise.run(JOB, slots=1, keep=tmp_path / "mine")
    with pytest.raises(InputError, match="keep is 3; expected a path"):
        slotwise.run(JOB, slots=1, keep=3)  # type: ignore[arg-type]


def ids(runs: Path) -> list[str]:
    """The folders of runs, in order."""
    return sorted(path.name for path in runs.iterdir())


def test_old_runs_are_removed_by_number(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except live ones, and files that slotwise did not write."""
    monkeypatch.setenv("SLOTWISE_RUNS_MAX", "2")
    made = [slotwise.run(commands("echo x"), slots=1).folder for _ in range(2)]
    (runs / "notes").mkdir()
    with FileLock(made[1] / LOCK):  # type: ignore[operator]
        for _ in range(2):
            made.append(slotwise.run(commands("echo x"), slots=1).folder)
            (made[-1] / "mine.txt").write_text("")  # type: ignore[operator]
        assert ids(runs) == [*(path.name for path in made[1:] if path), "notes"]
        assert printed(made[1]) == {"a/0.1.out": "x\n"}
    made.append(slotwise.run(JOB, slots=1).folder)
    assert ids(runs) == [*(path.name for path in made[2:] if path), "notes"]
    assert [path.name for path in made[2].iterdir()] == ["mine.txt"]  # type: ignore[union-attr]
    assert [run.path for run in RunFolder.all()] == made[3:]


def test_old_runs_are_removed_by_size(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest that fit are kept."""
    monkeypatch.setenv("SLOTWISE_RUNS_BYTES_MAX", "1000000")
    large = commands("head -c 300000 /dev/zero")
    made = [slotwise.run(large, slots=1).folder for _ in range(5)]
    assert ids(runs) == [path.name for path in made[1:] if path]
    monkeypatch.setenv("SLOTWISE_RUNS_BYTES_MAX", "1 GB")
    with pytest.raises(InputError, match="SLOTWISE_RUNS_BYTES_MAX is '1 GB'; expected a whole"):
        slotwise.run(JOB, slots=1)


def test_runs_sort_by_their_start(runs: Path) -> None:
    """Also those that start within a second."""
    made = [slotwise.simulate(JOB, slots=1, keep=True).folder for _ in range(10)]
    assert [run.path for run in RunFolder.all()] == made


def test_an_interrupted_run_keeps_what_was_printed(tmp_path: Path) -> None:
    """Although its output does not appear."""

    def interrupt(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        if any(isinstance(event, TaskFinished) for event in events):
            raise KeyboardInterrupt

    job = commands("echo x", output=tmp_path / "out", tasks=3)
    with pytest.raises(slotwise.RunInterrupted) as stop:
        slotwise.run(job, slots=1, progress=interrupt)
    assert printed(stop.value.result.folder)["a/0.1.out"] == "x\n"
    assert RunFolder.last().state == "interrupted"
    assert not (tmp_path / "out").exists()


def test_a_run_that_was_killed_says_so(runs: Path) -> None:
    """Its lock is free, and it has not recorded an end."""
    slotwise.run(JOB, slots=1)
    last = RunFolder.last()
    (last.path / LOCK).write_text("")
    (last.path / "run.json").write_text(json.dumps({**last.about(), "exit": None}))
    assert last.state == "killed"


def test_without_a_usable_folder_a_run_warns_once(runs: Path) -> None:
    """And continues; the message of a failed command has the end of its stderr."""
    runs.parent.parent.mkdir()
    runs.parent.write_text("")
    with pytest.warns(SlotwiseWarning) as warned:
        result = slotwise.run(commands("echo why >&2; exit 3"), slots=1)
    about_folder = [str(one.message) for one in warned if one.category is SlotwiseWarning]
    assert about_folder == [
        f"this run is not kept in {runs}: Not a directory; set XDG_STATE_HOME to another folder"
    ]
    assert result.failed["a"].splitlines()[1:] == ["why", "the command exited with code 3"]


def test_the_log_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a note that readers ignore; the run is complete."""
    monkeypatch.setattr("slotwise.run_folder.LOG_BYTES_MAX", 3000)
    result = slotwise.run(Job("a", (Phase("p", Tasks(20, 0.0)),)), slots=1)
    assert not result.is_interrupted
    last = RunFolder.last()
    assert last.log.read_text().splitlines()[-1].startswith('{"is":"Cut","reason":"')
    assert last.log.stat().st_size < 3100
    replay = slotwise.replay(last.log)
    assert (replay.is_identical, 1 < replay.turns < 20) == (True, True)


def test_nothing_is_kept_yet(runs: Path) -> None:
    """The message says how to make a run."""
    with pytest.raises(InputError) as refused:
        RunFolder.last()
    assert str(refused.value) == (
        f"no run is kept in {runs}; make one with `slotwise run FILE`, or name a log"
    )
    with pytest.raises(InputError, match="run 'x': no run has this id; `slotwise logs --list`"):
        RunFolder.named("x")
