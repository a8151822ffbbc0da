"""A job that did not complete is continued after its maps, if what they read is unchanged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import slotwise
from slotwise.core.errors import InputError
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.done_record import DoneRecord
from slotwise.jobs.work_folder import sweep
from slotwise.resume import verdicts
from slotwise.run_folder import RunFolder
from slotwise.sources import read_source
from waiting import until

PROGRAM = """
import os
import time
from pathlib import Path
import slotwise

HERE = Path(__file__).parent


class Words(slotwise.MapReduce):
    def map(self, key, value):
        (HERE / "calls" / f"{time.monotonic_ns()}-{os.getpid()}").touch()
        yield value, 1

    def reduce(self, key, values):
        (HERE / "reducing").touch()
        while (HERE / "wait").exists():
            time.sleep(0.01)
        if (HERE / "broken").exists():
            raise ValueError("broken")
        yield key, sum(values)
"""

FLOW = """
slotwise: 1
jobs:
  - id: words
    program: words.py:Words
    inputs: [a.txt, b.txt]
    output: out/words
    split_bytes: 4
    attempts: 1
    reducers: 2
"""

KEPT = "resumes after map (2 tasks kept)"
ALL_LINES = 4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job whose reduces fail while there is a file `broken`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "work"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "words.py").write_text(PROGRAM)
    (tmp_path / "a.txt").write_text("x\ny\n")
    (tmp_path / "b.txt").write_text("y\nz\n")
    (tmp_path / "calls").mkdir()
    (tmp_path / "broken").touch()
    return tmp_path


def run(folder: Path, *, resume: bool = True, repaired: bool = False) -> int:
    """Run the job; return the number of lines that maps have read in this run."""
    if repaired:
        (folder / "broken").unlink()
    before = calls(folder)
    slotwise.run(folder / "flow.yaml", slots=2, resume=resume)
    return calls(folder) - before


def calls(folder: Path) -> int:
    """The number of lines that maps have read in all runs."""
    return len(list((folder / "calls").iterdir()))


def why(folder: Path) -> str:
    """The reason for which the job runs."""
    record = DoneRecord(folder / "flow.yaml")
    (one,) = verdicts(read_source(folder / "flow.yaml"), record.read(), record.stages())
    return one.why


def counts(folder: Path) -> list[str]:
    """The lines of the output."""
    parts = (folder / "out/words").glob("part-*")
    return sorted(line for part in parts for line in part.read_text().splitlines())


def work_folders(folder: Path) -> list[Path]:
    """The work folders that exist."""
    return list((folder / "work").glob("slotwise-*"))


def map_files(folder: Path) -> list[Path]:
    """The files with the output of maps."""
    return sorted((folder / "work").glob("slotwise-*/map-*/pairs"))


def test_a_failed_job_is_continued_after_its_maps(folder: Path) -> None:
    """Repeatedly; nothing stays when it is done, and the output is that of one run."""
    assert run(folder) == ALL_LINES
    assert why(folder) == KEPT
    assert [run(folder), why(folder)] == [0, KEPT]
    assert run(folder, repaired=True) == 0
    resumed = counts(folder)
    assert [why(folder), work_folders(folder)] == ["done", []]
    shutil.rmtree(folder / "out")
    assert run(folder, resume=False) == ALL_LINES
    assert counts(folder) == resumed == ["x\t1", "y\t2", "z\t1"]


def test_a_continued_run_counts_only_its_own_work(folder: Path) -> None:
    """Its job has no phase for the maps."""
    run(folder)
    (folder / "broken").unlink()
    result = slotwise.run(folder / "flow.yaml", slots=2, resume=True)
    events = [event for turn in result.log.turns for event in turn.events]
    (job,) = [event.job for event in events if isinstance(event, JobArrived)]
    assert [phase.name for phase in job.phases] == ["reduce"]
    assert sum(isinstance(event, TaskFinished) for event in events) == 2


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.txt", "x\ny\nx\n", "map runs again: input a.txt changed"),
        ("words.py", PROGRAM + "\n", "map runs again: file words.py changed"),
        (
            "flow.yaml",
            FLOW.replace("reducers: 2", "reducers: 3"),
            "map runs again: its description changed",
        ),
    ],
)
@pytest.mark.sampled(3)
def test_maps_of_what_has_changed_run_again(
    folder: Path, name: str, text: str, reason: str
) -> None:
    """And what they have kept is removed."""
    run(folder)
    (folder / name).write_text(text)
    assert why(folder) == reason
    assert run(folder, repaired=True) >= ALL_LINES
    assert work_folders(folder) == []


@pytest.mark.parametrize("damage", ["cut", "file", "folder"])
@pytest.mark.sampled(3)
def test_maps_whose_output_is_damaged_run_again(folder: Path, damage: str) -> None:
    """A missing file is damage, too."""
    run(folder)
    first, _ = map_files(folder)
    if damage == "cut":
        os.truncate(first, first.stat().st_size - 1)
    elif damage == "file":
        first.unlink()
    else:
        shutil.rmtree(work_folders(folder)[0])
    assert why(folder).startswith("map runs again: ")
    assert run(folder, repaired=True) == ALL_LINES
    assert counts(folder) == ["x\t1", "y\t2", "z\t1"]


def test_a_run_that_is_not_resumed_removes_what_was_kept(folder: Path) -> None:
    """Then it does all the work again."""
    run(folder)
    (before,) = work_folders(folder)
    assert run(folder, resume=False) == ALL_LINES
    (after,) = work_folders(folder)
    assert before != after


def test_what_is_kept_goes_with_the_folder_of_its_run(folder: Path) -> None:
    """Also if the job is never run again."""
    run(folder)
    assert len(work_folders(folder)) == 1
    RunFolder.last().remove()
    assert work_folders(folder) == []
    assert why(folder) == "map runs again: its output was removed"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.sampled(3)
def test_an_interrupted_run_keeps_its_maps(folder: Path, how: signal.Signals) -> None:
    """Also one that is killed, and so removes nothing itself."""
    (folder / "wait").touch()
    command = [sys.executable, "-m", "slotwise", "run", "flow.yaml", "--slots", "2"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: (folder / "reducing").exists())
            process.send_signal(how)
            _, said = process.communicate()
        finally:
            process.kill()
    (folder / "wait").unlink()
    assert ("kept for --resume: stages of words" in said) == (how != signal.SIGKILL)
    assert why(folder) == KEPT
    assert run(folder, repaired=True) == 0
    assert counts(folder) == ["x\t1", "y\t2", "z\t1"]


def test_the_command_shows_what_is_kept(folder: Path) -> None:
    """In a dry run, which changes nothing."""
    run(folder)
    command = [sys.executable, "-m", "slotwise", "run", "flow.yaml", "--resume", "--dry-run"]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert KEPT in shown.stdout
    assert why(folder) == KEPT


@pytest.mark.parametrize(
    "more",
    [
        "shuffle: {slow_start: 0.5}",
        "shuffle: {split: true, slow_start: 0.5}",
    ],
)
def test_copying_begins_with_kept_maps(folder: Path, more: str) -> None:
    """With and without slots of its own."""
    (folder / "flow.yaml").write_text(FLOW + more + "\n")
    assert run(folder) == ALL_LINES
    assert [run(folder, repaired=True), counts(folder)] == [0, ["x\t1", "y\t2", "z\t1"]]


def test_a_sample_is_not_done_again(folder: Path) -> None:
    """The maps have used its result."""
    (folder / "words.py").write_text(
        PROGRAM.replace("MapReduce):\n", "MapReduce):\n    total_order = True\n\n")
    )
    assert run(folder) > ALL_LINES
    assert [run(folder, repaired=True), counts(folder)] == [0, ["x\t1", "y\t2", "z\t1"]]


def test_maps_that_vanish_during_a_continued_run_fail_the_job(folder: Path) -> None:
    """At once, with the remedy, since nothing in the run can make them again."""
    run(folder)
    (folder / "broken").unlink()

    def lose(now: float, events: object, decisions: object) -> None:
        for path in map_files(folder):
            path.unlink()

    result = slotwise.run(folder / "flow.yaml", slots=2, resume=True, progress=lose)
    assert "run again with --resume" in str(result.failed)
    assert why(folder).startswith("map runs again: ")
    assert [run(folder), counts(folder)] == [ALL_LINES, ["x\t1", "y\t2", "z\t1"]]


def test_a_refused_run_removes_nothing(folder: Path) -> None:
    """For example because its output exists."""
    run(folder)
    (folder / "out/words").mkdir(parents=True, exist_ok=True)
    (folder / "out/words/part").touch()
    with pytest.raises(InputError):
        run(folder, resume=False)
    assert why(folder) == KEPT


def test_other_jobs_leave_what_is_kept(folder: Path) -> None:
    """Although they remove the work folders of processes that have ended."""
    run(folder)
    sweep(folder / "work")
    assert why(folder) == KEPT


def test_a_job_that_waits_for_others_is_continued_unless_these_run_again(folder: Path) -> None:
    """It reads what a command has written."""
    command = '  - {id: make, command: "cat a.txt", output: out/made}\n'
    flow = FLOW.replace("jobs:\n", f"jobs:\n{command}").replace("b.txt", "out/made")
    (folder / "flow.yaml").write_text(f"{flow}    after: [make]\n")

    def whys() -> list[str]:
        record = DoneRecord(folder / "flow.yaml")
        found = verdicts(read_source(folder / "flow.yaml"), record.read(), record.stages())
        return [one.why for one in found]

    assert run(folder) == ALL_LINES
    assert whys() == ["done", KEPT]
    assert run(folder) == 0
    (folder / "flow.yaml").write_text(f"{flow}    after: [make]\n".replace("cat a", "cat b"))
    assert whys() == ["its description changed", "map runs again: make runs"]
    assert [run(folder, repaired=True), counts(folder)] == [
        ALL_LINES,
        ["x\t1", "y\t2", "z\t1"],
    ]
