"""A dataflow that did not complete is continued after its finished stages."""

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
from slotwise.core.events import JobArrived
from slotwise.done_record import DoneRecord
from slotwise.resume import verdicts
from slotwise.run_folder import RunFolder
from slotwise.sources import read_source
from waiting import until

APP = """
import os
import time
from pathlib import Path
import slotwise
from beside import first

HERE = Path(__file__).parent
WAIT = 0.01


def noted(name):
    with (HERE / "calls").open("a") as file:
        file.write(f"{name}\\n")
    while (HERE / f"wait-{name}").exists():
        time.sleep(WAIT)
    if (HERE / f"broken-{name}").exists():
        raise ValueError("broken")


def words(lines):
    noted("words")
    for line in lines:
        yield from line.split()


def left(words):
    noted("left")
    yield from words


def right(words):
    noted("right")
    for word in words:
        yield word, 1


def total(pairs):
    noted("total")
    yield from sorted(word for word, _ in pairs)


flow = slotwise.Dataflow()
lines = flow.read("*.txt", name="lines", split_bytes=4)
found = flow.node(words, lines)
both = flow.node(left, found.file(by=first), copies=2)
right = flow.node(right, both.tcp(by=first), copies=2)
total = flow.node(total, right.file(), copies=1)
flow.write(found, total)
"""

BESIDE = """
def first(word):
    return word[0]
"""

FLOW = """
slotwise: 1
jobs:
  - id: sorted
    dataflow: {app: app.py:flow}
    output: out
    attempts: 1
"""

WORDS = ["words", "words"]
GANG = ["left", "left", "right", "right"]
KEPT = "resumes after stages words, left+right (6 tasks kept)"
OUTPUT = {"total": ["x", "y", "y", "z"], "words": ["x", "y", "y", "z"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataflow whose last stage fails while there is a file `broken-total`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "work"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "a.txt").write_text("x\ny\n")
    (tmp_path / "b.txt").write_text("y\nz\n")
    (tmp_path / "broken-total").touch()
    return tmp_path


def run(folder: Path, *, resume: bool = True, repaired: bool = False) -> list[str]:
    """Run the job; return the nodes that are called in this run, one for each copy."""
    if repaired:
        (folder / "broken-total").unlink()
    (folder / "calls").write_text("")
    slotwise.run(folder / "flow.yaml", slots=4, resume=resume)
    return sorted((folder / "calls").read_text().split())


def why(folder: Path) -> str:
    """The reason for which the job runs."""
    record = DoneRecord(folder / "flow.yaml")
    (one,) = verdicts(read_source(folder / "flow.yaml"), record.read(), record.stages())
    return one.why


def output(folder: Path) -> dict[str, list[str]]:
    """The lines of each part of the output."""
    return {
        part.name: sorted(
            line for file in part.glob("part-*") for line in file.read_text().splitlines()
        )
        for part in sorted((folder / "out").iterdir())
        if part.is_dir()
    }


def left_over(folder: Path) -> list[str]:
    """What intermediate files there are, and parts that are not committed."""
    found = [*(folder / "work").glob("slotwise-*"), *(folder / "out").glob("_temporary")]
    return [str(path.relative_to(folder)) for path in found]


def interrupted(folder: Path, node: str, how: signal.Signals) -> str:
    """Run the job, end it by a signal when a node has begun, and return what it prints."""
    (folder / f"wait-{node}").touch()
    (folder / "calls").touch()
    command = [sys.executable, "-m", "slotwise", "run", "flow.yaml", "--slots", "4"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: node in (folder / "calls").read_text())
            process.send_signal(how)
            _, said = process.communicate()
        finally:
            process.kill()
    (folder / f"wait-{node}").unlink()
    return said


def test_a_completed_dataflow_runs_again_if_input_that_its_app_names_changed(
    folder: Path,
) -> None:
    """Or was removed; a new file that the pattern of the app would match is not noticed."""
    assert run(folder, repaired=True) == sorted([*WORDS, *GANG, "total"])
    assert why(folder) == "done"
    (folder / "c.txt").write_text("x\n")
    assert why(folder) == "done"
    (folder / "a.txt").write_text("x\ny\nz\n")
    assert why(folder) == "input a.txt changed"
    (folder / "a.txt").unlink()
    assert why(folder) == "input a.txt was removed"
    assert "total" in run(folder)
    assert why(folder) == "done"


def test_a_failed_dataflow_is_continued_after_its_stages(folder: Path) -> None:
    """Repeatedly; nothing stays when it is done, and the output is that of one run."""
    assert run(folder) == sorted(WORDS + GANG + ["total"])
    assert why(folder) == KEPT
    assert [run(folder), why(folder)] == [["total"], KEPT]
    assert run(folder, repaired=True) == ["total"]
    resumed = {path.name: path.read_bytes() for path in (folder / "out").rglob("part-*")}
    assert [why(folder), left_over(folder), output(folder)] == ["done", [], OUTPUT]
    shutil.rmtree(folder / "out")
    assert run(folder, resume=False) == sorted(WORDS + GANG + ["total"])
    whole = {path.name: path.read_bytes() for path in (folder / "out").rglob("part-*")}
    assert whole == resumed


def test_a_stage_that_a_continued_run_finishes_is_kept_too(folder: Path) -> None:
    """It joins those of the run before."""
    (folder / "broken-right").touch()
    assert run(folder)[-2:] == WORDS
    assert why(folder) == "resumes after words (2 tasks kept)"
    (folder / "broken-right").unlink()
    assert run(folder) == sorted([*GANG, "total"])
    assert why(folder) == KEPT
    assert [run(folder, repaired=True), output(folder)] == [["total"], OUTPUT]


def test_the_job_has_only_the_phases_that_are_left(folder: Path) -> None:
    """So that results and bounds count the work of the run."""
    run(folder)
    (folder / "broken-total").unlink()
    result = slotwise.run(folder / "flow.yaml", slots=4, resume=True)
    events = [event for turn in result.log.turns for event in turn.events]
    (job,) = [event.job for event in events if isinstance(event, JobArrived)]
    assert [(phase.name, phase.after) for phase in job.phases] == [("total", frozenset())]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.txt", "x\ny\nx\n", "input a.txt changed"),
        ("c.txt", "x\n", "it has other tasks now"),
        ("app.py", APP.replace("0.01", "0.02"), "file app.py changed"),
        ("beside.py", BESIDE + "\n", "file beside.py changed"),
        ("flow.yaml", FLOW.replace("output: out", "output: other"), "its description changed"),
    ],
)
@pytest.mark.filterwarnings("ignore:job 'sorted' runs its finished stages again")
@pytest.mark.sampled(3)
def test_stages_of_what_has_changed_run_again(
    folder: Path, name: str, text: str, reason: str
) -> None:
    """The file of an app is known, and what its sources read."""
    run(folder)
    (folder / name).write_text(text)
    is_found = not reason.startswith("it has")  # Only a plan of the job finds a new file.
    assert why(folder) == (f"words, left+right run again: {reason}" if is_found else KEPT)
    assert "words" in run(folder, repaired=True)
    assert left_over(folder) == []


def test_stages_of_files_that_change_meanwhile_are_not_kept(folder: Path) -> None:
    """It is not known which version they are made from."""

    def change(now: float, events: object, decisions: object) -> None:
        (folder / "beside.py").write_text(BESIDE + "\n")

    result = slotwise.run(folder / "flow.yaml", slots=4, progress=change)
    assert "broken" in str(result.failed)
    assert [why(folder), left_over(folder)] == ["not done", []]


@pytest.mark.parametrize("place", ["work/slotwise-*/0-0-*/channel-*", "out/_temporary/*/*"])
def test_stages_whose_files_are_damaged_run_again(folder: Path, place: str) -> None:
    """Files of channels, and parts of the output."""
    run(folder)
    first = min(folder.glob(place))
    os.truncate(first, first.stat().st_size - 1)
    damage = "the output of words task 0 is incomplete"
    assert why(folder) == f"words, left+right run again: {damage}"
    assert run(folder, repaired=True) == sorted(WORDS + GANG + ["total"])
    assert [left_over(folder), output(folder)] == [[], OUTPUT]


def test_a_run_that_is_not_resumed_removes_what_was_kept(folder: Path) -> None:
    """Then it does all the work again."""
    run(folder)
    before = left_over(folder)
    assert run(folder, resume=False) == sorted(WORDS + GANG + ["total"])
    assert len(left_over(folder)) == len(before) == 2
    assert left_over(folder) != before


def test_what_is_kept_goes_with_the_folder_of_its_run(folder: Path) -> None:
    """Also the parts of the output."""
    run(folder)
    RunFolder.last().remove()
    assert [left_over(folder), (folder / "out").exists()] == [[], False]
    assert why(folder) == "words, left+right run again: its output was removed"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.sampled(3)
def test_an_interrupted_run_keeps_its_stages(folder: Path, how: signal.Signals) -> None:
    """Also one that is killed, and so removes nothing itself."""
    said = interrupted(folder, "total", how)
    assert ("kept for --resume: stages of sorted" in said) == (how != signal.SIGKILL)
    assert why(folder) == KEPT
    assert run(folder, repaired=True) == ["total"]
    assert [left_over(folder), output(folder)] == [[], OUTPUT]


def test_a_gang_that_was_killed_begins_again(folder: Path) -> None:
    """The addresses by which its groups have connected are those of dead processes."""
    interrupted(folder, "right", signal.SIGKILL)
    assert why(folder) == "resumes after words (2 tasks kept)"
    assert run(folder, repaired=True) == sorted([*GANG, "total"])
    assert [left_over(folder), output(folder)] == [[], OUTPUT]


def test_a_stage_without_files_is_done_again(folder: Path) -> None:
    """It has other effects, which nothing can check."""
    noting = 'flow.node(lambda found: noted("noting"), found.file(), name="noting", copies=1)\n'
    (folder / "app.py").write_text(APP.replace("both = ", f"{noting}both = "))
    assert run(folder) == sorted([*WORDS, *GANG, "noting", "total"])
    assert why(folder) == KEPT
    assert [run(folder, repaired=True), output(folder)] == [["noting", "total"], OUTPUT]


def test_a_job_of_which_the_record_is_damaged_runs_again(folder: Path) -> None:
    """A line that cannot be read is left out."""
    run(folder)
    record = DoneRecord(folder / "flow.yaml").path
    record.write_text(record.read_text().replace('"stages":{', '"stages":{"more":3,'))
    assert why(folder) == "not done"
    assert run(folder, repaired=True) == sorted(WORDS + GANG + ["total"])
