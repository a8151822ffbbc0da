"""`resume=True` runs what is not done, or was made from what has changed since."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise.core.decisions import Decision
from slotwise.core.errors import InputError, SlotwiseWarning
from slotwise.core.events import Event, TaskFinished
from slotwise.done_record import DoneRecord
from slotwise.resume import verdicts
from slotwise.run_folder import RunFolder
from slotwise.sources import read_source

WORKFLOW = """
slotwise: 1
jobs:
  - {id: make, command: [sh, make.sh, data.csv, half.csv], inputs: [extra.txt]}
  - {id: sort, command: "sort half.csv > sorted.csv", after: [make]}
  - {id: show, command: "cat half.csv", output: out/show, after: [make]}
  - {id: check, command: "test -e ready", after: [sort, show]}
  - {id: end, command: "echo end", after: [check]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workflow whose fourth job fails until there is a file `ready`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "flow.yaml").write_text(WORKFLOW)
    (tmp_path / "make.sh").write_text("cat $1 extra.txt > $2\n")
    (tmp_path / "data.csv").write_text("b\na\n")
    (tmp_path / "extra.txt").write_text("c\n")
    return tmp_path


def ran(folder: Path, **options: Any) -> list[str]:
    """The jobs that a resumed run has run."""
    result = slotwise.run(folder / "flow.yaml", slots=2, **{"resume": True, **options})
    return sorted(result.jobs)


def reasons(folder: Path) -> dict[str, str]:
    """Why each job must run; "done" for those that need not."""
    file = folder / "flow.yaml"
    return {v.job: v.why for v in verdicts(read_source(file), DoneRecord(file).read())}


def test_only_what_is_not_done_runs_again(folder: Path) -> None:
    """The failed job, what waits for it, and finally nothing."""
    assert ran(folder) == ["check", "end", "make", "show", "sort"]
    assert ran(folder) == ["check", "end"]
    (folder / "ready").touch()
    assert ran(folder) == ["check", "end"]
    assert ran(folder) == []
    assert set(reasons(folder).values()) == {"done"}


def test_another_run_of_the_same_file(folder: Path) -> None:
    """It is refused with --resume, and warned without, until the first one ends."""
    told: list[str] = []

    def begin(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        if not told:
            with pytest.raises(InputError) as refused:
                ran(folder)
            record = DoneRecord(folder / "flow.yaml")
            with pytest.warns(SlotwiseWarning) as warned, record.in_use(refuses=False):
                told.extend([str(refused.value), str(warned[0].message)])

    slotwise.run(folder / "flow.yaml", slots=2, progress=begin)
    run = f"run {RunFolder.last().id}, process {os.getpid()} on {platform.node()}"
    text = f"another run of {folder}/flow.yaml is in progress ({run}); "
    assert told == [
        f"{text}both would run the same jobs: wait until it ends, or stop it",
        f"{text}--resume may run jobs again that one of them has done",
    ]
    assert ran(folder) == ["check", "end"]


@pytest.mark.parametrize(
    ("change", "job", "why"),
    [
        (
            lambda one: (one / "make.sh").write_text("cat $1 > $2"),
            "make",
            "file make.sh changed",
        ),
        (lambda one: (one / "data.csv").write_text("z\n"), "make", "file data.csv changed"),
        (lambda one: (one / "extra.txt").unlink(), "make", "input extra.txt was removed"),
        (lambda one: (one / "sorted.csv").unlink(), "sort", "file sorted.csv was removed"),
        (lambda one: (one / "half.csv").write_text("z"), "make", "file half.csv changed"),
        (
            lambda one: (one / "out").rename(one / "away"),
            "show",
            "its output out/show was removed",
        ),
        (
            lambda one: (one / "flow.yaml").write_text(WORKFLOW.replace("echo end", "echo e")),
            "end",
            "its description changed",
        ),
    ],
)
def test_what_has_changed_runs_again(folder: Path, change: Any, job: str, why: str) -> None:
    """With all that waits for it, for the stated reason."""
    (folder / "ready").touch()
    ran(folder)
    change(folder)
    found = reasons(folder)
    assert found[job] == why
    after = {"make": {"sort", "show", "check", "end"}, "sort": {"check", "end"}}
    after |= {"show": {"check", "end"}, "end": set()}
    assert {name for name, reason in found.items() if reason != "done"} == {job, *after[job]}


def test_an_output_is_replaced_by_that_of_the_next_run(folder: Path) -> None:
    """Which slotwise has written; no option is needed."""
    ran(folder)
    (folder / "data.csv").write_text("z\n")
    assert "show" in ran(folder)
    assert (folder / "out/show/task-00000.out").read_text() == "z\nc\n"


def test_a_run_that_is_not_resumed_runs_everything_and_is_recorded(folder: Path) -> None:
    """With `keep=False` nothing is recorded."""
    assert len(ran(folder, resume=False)) == 5
    assert ran(folder) == ["check", "end"]
    (folder / "ready").touch()
    shutil.rmtree(folder / "out")
    assert len(ran(folder, resume=False, keep=False)) == 5
    assert reasons(folder)["check"] == "not done"


def test_a_run_that_is_refused_changes_no_record(folder: Path) -> None:
    """Here because an output exists, and the run does not replace it."""
    (folder / "ready").touch()
    ran(folder)
    with pytest.raises(slotwise.InputError, match="exists"):
        slotwise.run(folder / "flow.yaml", slots=2)
    assert set(reasons(folder).values()) == {"done"}


def test_a_run_that_is_interrupted_forgets_only_what_it_began(folder: Path) -> None:
    """What waits for that runs again, too, although it was completed before."""
    (folder / "ready").touch()
    ran(folder)
    record = DoneRecord(folder / "flow.yaml")
    shutil.rmtree(folder / "out")

    def stop(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        if any(isinstance(event, TaskFinished) for event in events):
            raise KeyboardInterrupt

    with pytest.raises(slotwise.RunInterrupted):
        slotwise.run(folder / "flow.yaml", slots=1, progress=stop)
    kept = {job for job, one in record.read().items() if one.tasks is None}
    assert kept == {"make", "show", "check", "end"}
    found = reasons(folder)
    assert (found["make"], found["sort"]) == ("done", "not done")
    assert found["check"].startswith("after ")


def test_a_job_runs_again_after_one_that_ran_again(folder: Path) -> None:
    """Although nothing that it names has changed."""
    (folder / "ready").touch()
    ran(folder)
    record = DoneRecord(folder / "flow.yaml")
    made = record.read()["make"]
    record.append(made._replace(tasks=set()).to_plain("make"))
    assert reasons(folder)["make"] == "not done"
    record.append(made.to_plain("make"))
    found = reasons(folder)
    assert (found["make"], found["sort"]) == ("done", "after make, which ran again")


def test_files_are_found_in_any_command(folder: Path) -> None:
    """Between signs of the shell, too. An output is looked at, and must be of this file."""
    (folder / "flow.yaml").write_text(
        """
slotwise: 1
jobs:
  - {id: two, command: "sh make.sh data.csv x.csv;cat extra.txt", output: out/two}
  - {id: read, command: "wc -l <data.csv", output: out/read}
  - {id: write, command: "cat data.csv>e.txt"}
"""
    )
    ran(folder)
    (folder / "extra.txt").write_text("changed")
    assert reasons(folder) | {"two": ""} == {"two": "", "read": "done", "write": "done"}
    assert reasons(folder)["two"] == "file extra.txt changed"
    (folder / "e.txt").unlink()
    assert reasons(folder)["write"] == "file e.txt was removed"
    (folder / "out/read/task-00000.out").unlink()
    assert reasons(folder)["read"] == "its output out/read changed"
    other = folder / "other.yaml"
    other.write_text(
        '{"slotwise": 1, "jobs": [{"id": "x", "command": "true", "output": "out/two"}]}'
    )
    with pytest.raises(slotwise.InputError, match="exists"):
        slotwise.run(other, slots=1, resume=True)


def test_input_that_other_tasks_write_meanwhile_is_no_change(folder: Path) -> None:
    """A task begins before the others of the array that it waits for have written."""
    (folder / "flow.yaml").write_text(
        """
slotwise: 1
jobs:
  - {id: gen, command: "sleep 0.$SLOTWISE_TASK; echo > part.$SLOTWISE_TASK", tasks: 3}
  - {id: use, command: "cat part.*", tasks: 3, after_each: [gen], inputs: ["part.*"]}
"""
    )
    ran(folder)
    assert set(reasons(folder).values()) == {"done"}


ARRAY = """
slotwise: 1
jobs:
  - id: fill
    command: [sh, -c, "echo x >> ran.$0; test $0 -ne 3 -o -e ready", "{task}"]
    tasks: 6
    attempts: 1
  - {id: each, command: [sh, -c, "echo $0 >> each", "{task}"], tasks: 6, after_each: [fill]}
"""


def lines_of(folder: Path) -> list[int]:
    """How often each task of the array has run."""
    files = [folder / f"ran.{task}" for task in range(6)]
    return [len(file.read_text().split()) if file.exists() else 0 for file in files]


def test_tasks_of_an_array_that_are_done_do_not_run_again(folder: Path) -> None:
    """Until its description changes; tasks of other jobs that wait for them begin."""
    (folder / "flow.yaml").write_text(ARRAY)
    slotwise.run(folder / "flow.yaml", slots=1)
    first = lines_of(folder)
    assert first[3] == 1
    done = sum(first) - 1
    assert reasons(folder)["fill"] == f"{done} of 6 tasks are done"
    slotwise.run(folder / "flow.yaml", slots=1, resume=True)  # It fails again.
    assert [two - one for one, two in zip(first, lines_of(folder), strict=True)][3] == 1
    (folder / "ready").touch()
    result = slotwise.run(folder / "flow.yaml", slots=2, resume=True)
    assert lines_of(folder) == [1, 1, 1, 3, 1, 1]
    assert sorted((folder / "each").read_text().split()) == list("012345")
    assert slotwise.replay(result.log).is_identical
    assert set(reasons(folder).values()) == {"done"}


def test_tasks_are_not_kept_after_another_job_that_ran_again(folder: Path) -> None:
    """Although the array for whose tasks they wait keeps its own."""
    other = '  - {id: other, command: "true"}\n'
    (folder / "flow.yaml").write_text(ARRAY.replace("[fill]}", "[fill], after: other}") + other)
    slotwise.run(folder / "flow.yaml", slots=1)
    assert reasons(folder)["each"].endswith("of 6 tasks are done")
    record = DoneRecord(folder / "flow.yaml")
    record.append(record.read()["other"].to_plain("other"))
    found = reasons(folder)
    assert (found["other"], found["each"]) == ("done", "not done")
    assert found["fill"].endswith("of 6 tasks are done")
    record.append({"job": "fill", "task": 99})
    assert reasons(folder)["fill"] == found["fill"]


def test_an_array_that_has_changed_runs_as_a_whole(folder: Path) -> None:
    """Although some of its tasks were done."""
    (folder / "flow.yaml").write_text(ARRAY)
    slotwise.run(folder / "flow.yaml", slots=1)
    (folder / "flow.yaml").write_text(ARRAY.replace("echo x", "echo y"))
    assert reasons(folder)["fill"] == "not done"
    (folder / "ready").touch()
    before = lines_of(folder)
    ran(folder)
    assert [two - one for one, two in zip(before, lines_of(folder), strict=True)] == [1] * 6


def test_a_damaged_record_means_that_jobs_run_again(folder: Path) -> None:
    """Line by line."""
    ran(folder)
    record = DoneRecord(folder / "flow.yaml")
    lines = record.path.read_text().splitlines()
    (made,) = (line for line in lines if '"make"' in line and '"tasks"' not in line)
    others = lines[lines.index(made) + 1 :]
    record.path.write_text("\n".join([made[:-5], "[]", '{"job": 3}', *others]))
    assert {job for job, one in record.read().items() if one.tasks is None} == {"sort", "show"}


def test_a_record_that_cannot_be_written_is_told_once(folder: Path) -> None:
    """The run continues and leaves no other file beside the record."""
    record = DoneRecord(folder / "flow.yaml").path
    record.mkdir(parents=True)
    (folder / "ready").touch()
    with pytest.warns(SlotwiseWarning, match="record of completed jobs") as warned:
        assert ran(folder) == ["check", "end", "make", "show", "sort"]
    assert [str(one.message) for one in warned] == [
        "the record of completed jobs is not written: Is a directory"
    ]
    assert [*record.parent.iterdir()] == [record]


def test_programs_and_jobs_in_python_are_resumed(folder: Path) -> None:
    """The record is named by a path; a module beside the program counts."""
    (folder / "words.py").write_text(
        "import slotwise\n"
        "class Words(slotwise.MapReduce):\n"
        "    def map(self, key, value):\n        yield value, 1\n"
        "    def reduce(self, key, values):\n        yield key, sum(values)\n"
    )
    place = folder / "words.py"

    def jobs() -> list[str]:
        program = slotwise.mapreduce(
            f"{place}:Words", folder / "data.csv", folder / "out/words", id="words"
        )
        last = slotwise.command("echo", id="last", after="words")
        return sorted(slotwise.run([program, last], slots=2, resume=place).jobs)

    assert jobs() == ["last", "words"]
    assert jobs() == []
    (folder / "helper.py").write_text("")
    assert jobs() == ["last", "words"]
    with pytest.raises(InputError, match="name the record of these jobs by a path"):
        slotwise.run([slotwise.command("echo", id="one")], resume=True)
