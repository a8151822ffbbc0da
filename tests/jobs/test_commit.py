"""What becomes of attempts and of the output."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest

from slotwise.core.errors import InputError
from slotwise.jobs import plan_mapreduce
from slotwise.jobs.staged import StagedExecution


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a text and room for temporary files."""
    (tmp_path / "text").write_text("b a\nb\n")
    (tmp_path / "work").mkdir()
    return tmp_path


def plan(place: Path, **options: Any) -> StagedExecution:
    """Word count in one part."""
    return plan_mapreduce(
        "j",
        "wordcount",
        "text",
        base_dir=place,
        work_dir=place / "work",
        **{"output": "new/out", "reducers": 1, **options},
    )


def attempt(execution: StagedExecution, phase: str, task: int, number: int) -> object:
    """Run one attempt, without telling the result."""
    return execution.runner(*execution.arguments(phase, task, number))


def finish_maps(execution: StagedExecution) -> None:
    """Run all map tasks."""
    for task in range(execution.job.by_name["map"].tasks.count):
        execution.finished("map", task, 0, attempt(execution, "map", task, 0))


def test_output_appears_with_success_last(place: Path) -> None:
    """Before the commit there is no part to see, afterwards nothing temporary is left."""
    execution = plan(place)
    finish_maps(execution)
    execution.finished("reduce", 0, 0, attempt(execution, "reduce", 0, 0))
    out = place / "new" / "out"
    assert [path.name for path in out.iterdir()] == ["_temporary"]
    execution.close(True)
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", "part-r-00000"]
    assert (out / "part-r-00000").read_bytes() == b"a\t1\nb\t2\n"
    assert list((place / "work").iterdir()) == []


def test_a_failed_job_leaves_nothing(place: Path) -> None:
    """The output, its new parent and the temporary files go."""
    execution = plan(place)
    finish_maps(execution)
    attempt(execution, "reduce", 0, 0)
    execution.close(False)
    assert sorted(path.name for path in place.iterdir()) == ["text", "work"]
    assert list((place / "work").iterdir()) == []


def test_a_job_that_never_began_leaves_nothing(place: Path) -> None:
    """Closing an unopened job touches nothing."""
    plan(place).close(False)
    assert sorted(path.name for path in place.iterdir()) == ["text", "work"]


def test_later_attempts_never_change_the_output(place: Path) -> None:
    """A second attempt, unfinished, finished or discarded, does no harm."""
    execution = plan(place)
    finish_maps(execution)
    execution.finished("map", 0, 1, attempt(execution, "map", 0, 1))
    results = [attempt(execution, "reduce", 0, number) for number in range(3)]
    half = Path(execution.runner.layout.attempt_part("reduce", 0, 2))
    half.write_bytes(b"half")
    execution.finished("reduce", 0, 1, results[1])
    execution.finished("reduce", 0, 0, results[0])
    execution.discard("reduce", 0, 2)
    execution.discard("reduce", 0, 1)
    assert not half.exists()
    execution.close(True)
    assert (Path(execution.output) / "part-r-00000").read_bytes() == b"a\t1\nb\t2\n"


def run(execution: StagedExecution) -> None:
    """Run all of it and commit."""
    finish_maps(execution)
    for task in range(execution.job.by_name["reduce"].tasks.count):
        execution.finished("reduce", task, 0, attempt(execution, "reduce", task, 0))
    execution.close(True)


def test_overwritten_output_stays_until_the_commit(place: Path) -> None:
    """A job that fails leaves the old output; one that succeeds replaces all of it."""
    out = place / "new" / "out"
    run(plan(place, reducers=3))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    failing = plan(place, overwrite=True)
    finish_maps(failing)
    failing.close(False)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    run(plan(place, overwrite=True))
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", "part-r-00000"]


def test_success_lists_the_parts(place: Path) -> None:
    """`_SUCCESS` is the manifest of the output: by it a later job knows what it may replace."""
    run(plan(place, reducers=2))
    assert json.loads((place / "new" / "out" / "_SUCCESS").read_text()) == {
        "slotwise": 1, "job": "j", "parts": ["part-r-00000", "part-r-00001"],
    }  # fmt: skip


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_output_has_one_writer(place: Path, overwrite: bool) -> None:
    """A second job is refused at once, with the name of the first; later it may write."""
    first = plan(place, overwrite=overwrite)
    second = plan(place, overwrite=True)
    first.open()
    with pytest.raises(InputError, match=r"is being written by job 'j' of process \d+ on .*;"):
        second.open()
    with pytest.raises(InputError, match="is being written by job 'j' of process"):
        plan(place)
    second.close(False)
    run(first)
    run(second)
    assert (place / "new" / "out" / "part-r-00000").read_bytes() == b"a\t1\nb\t2\n"


def test_an_output_by_another_name_has_one_writer(place: Path) -> None:
    """The lock is in the directory, whatever name leads there."""
    first = plan(place)
    first.open()
    (place / "link").symlink_to("new")
    with pytest.raises(InputError, match="is being written by"):
        plan(place, output="link/out", overwrite=True).open()
    first.close(False)


def test_an_output_elsewhere_has_one_writer(place: Path) -> None:
    """On a file system without locks, two jobs of one machine do not share an output."""
    first, second = (plan(place, output="memory://shared/out") for _ in range(2))
    first.open()
    with pytest.raises(InputError, match="is being written by"):
        second.open()
    first.close(False)
    run(second)
    assert fsspec.filesystem("memory").cat("/shared/out/part-r-00000") == b"a\t1\nb\t2\n"
    fsspec.filesystem("memory").rm("/shared", recursive=True)


@pytest.mark.parametrize("succeeds", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_files_are_kept(place: Path, succeeds: bool, overwrite: bool) -> None:
    """A file that somebody adds to the output while the job runs is there afterwards."""
    if overwrite:
        run(plan(place))
    execution = plan(place, overwrite=overwrite)
    finish_maps(execution)
    out = place / "new" / "out"
    (out / "notes").write_text("mine")
    (out / "_temporary" / "notes").write_text("mine")
    execution.finished("reduce", 0, 0, attempt(execution, "reduce", 0, 0))
    execution.close(succeeds)
    parts = {"_SUCCESS", "part-r-00000"} if succeeds or overwrite else set()
    assert {path.name for path in out.iterdir()} == {"notes", "_temporary"} | parts
    assert [path.name for path in (out / "_temporary").iterdir()] == ["notes"]


@pytest.mark.parametrize("name", ["part-r-00000", "_SUCCESS"])
def test_a_foreign_file_is_not_replaced_by_a_part(place: Path, name: str) -> None:
    """Where somebody puts a file of that name, the commit fails and the file stays."""
    execution = plan(place)
    finish_maps(execution)
    execution.finished("reduce", 0, 0, attempt(execution, "reduce", 0, 0))
    out = place / "new" / "out"
    (out / name).write_text("mine")
    with pytest.raises(FileExistsError, match="slotwise did not write"):
        execution.close(True)
    execution.close(False)
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_text() == "mine"


def test_a_foreign_file_at_the_path_of_a_part_is_refused(place: Path) -> None:
    """Overwriting replaces what the last job wrote. A file of somebody else is refused."""
    run(plan(place))
    mine = place / "new" / "out" / "part-r-00001"
    mine.write_text("mine")
    with pytest.raises(InputError, match="holds 'part-r-00001', which no job has written"):
        plan(place, reducers=2, overwrite=True).open()
    assert mine.read_text() == "mine"
    run(plan(place, overwrite=True))
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{}", '{"slotwise": 1, "parts": ["../text"]}', "\0"])
def test_a_foreign_success_file_does_not_permit_removal(place: Path, text: str) -> None:
    """Where `_SUCCESS` is that of another program, or lists other files, nothing is removed."""
    out = place / "new" / "out"
    out.mkdir(parents=True)
    (out / "_SUCCESS").write_text(text)
    (out / "part-r-00000").write_text("theirs")
    with pytest.raises(InputError, match="holds files that no job has written"):
        plan(place, overwrite=True).open()
    assert (out / "part-r-00000").read_text() == "theirs"
    assert (place / "text").exists()


def test_a_failed_commit_is_repeated(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses the second part; later it takes all."""
    execution = plan(place, reducers=2)
    finish_maps(execution)
    for task in range(2):
        execution.finished("reduce", task, 0, attempt(execution, "reduce", task, 0))
    with failing_after(1, monkeypatch), pytest.raises(OSError, match="full"):
        execution.close(True)
    execution.close(True)
    out = place / "new" / "out"
    assert sorted(p.name for p in out.iterdir()) == ["_SUCCESS", "part-r-00000", "part-r-00001"]
    assert list((place / "work").iterdir()) == []


@pytest.mark.parametrize("replaced", [0, 1])
def test_a_failed_commit_is_undone(
    place: Path, monkeypatch: pytest.MonkeyPatch, replaced: int
) -> None:
    """The disk refuses the second part, and the job is given up: no part stays."""
    execution = plan(place, reducers=2)
    finish_maps(execution)
    for task in range(2):
        execution.finished("reduce", task, 0, attempt(execution, "reduce", task, 0))
    with failing_after(replaced, monkeypatch), pytest.raises(OSError, match="full"):
        execution.close(True)
    execution.close(False)
    assert not (place / "new").exists()


@contextmanager
def failing_after(count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk is full after this many parts."""
    replace, left = os.replace, [count]

    def once(source: str, target: str) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "the disk is full")
        left[0] -= 1
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", once)
        yield


KILLED = """\
import os, signal, sys
from slotwise.jobs import plan_mapreduce

execution = plan_mapreduce("j", "wordcount", "text", "new/out", work_dir="work", reducers=2,
                           overwrite=sys.argv[1] == "2")
for phase, tasks in (("map", 1), ("reduce", 2)):
    for task in range(tasks):
        made = execution.runner(*execution.arguments(phase, task, 0))
        execution.finished(phase, task, 0, made)
count, replace = int(sys.argv[1]), os.replace
def killed(source, target):
    global count
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)
    count -= 1
    replace(source, target)
os.replace = killed
execution.close(True)
"""
"""A job that is killed during its commit, after this many parts."""


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_killed_run_leaves_no_lock(place: Path, parts: int) -> None:
    """Killed by -9 in its commit: the next job replaces what is there, and sweeps the rest."""
    if parts == 2:
        run(plan(place, reducers=3))
    ended = subprocess.run([sys.executable, "-c", KILLED, str(parts)], cwd=place, check=False)
    assert ended.returncode == -signal.SIGKILL
    out = place / "new" / "out"
    assert not (out / "_SUCCESS").exists()
    assert len(list((place / "work").iterdir())) == 1
    run(plan(place, overwrite=parts > 0))
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", "part-r-00000"]
    assert list((place / "work").iterdir()) == []


def test_a_leftover_is_no_output(place: Path) -> None:
    """What a killed run has made goes with a job that takes it over and fails."""
    ended = subprocess.run([sys.executable, "-c", KILLED, "0"], cwd=place, check=False)
    assert ended.returncode == -signal.SIGKILL
    execution = plan(place)
    finish_maps(execution)
    execution.close(False)
    assert not (place / "new" / "out").exists()


KILLED_EARLY = """\
import os, signal, sys
from slotwise.jobs import plan_mapreduce

execution = plan_mapreduce("j", "wordcount", "text", "new/out", work_dir="work", reducers=2)
count = int(sys.argv[1])
def killed(change, *given):
    global count
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)
    count -= 1
    change(*given)
mkdir, rename = os.mkdir, os.rename
os.mkdir = lambda path, *mode: killed(mkdir, path, *mode)
os.rename = lambda source, target: killed(rename, source, target)
execution.arguments("map", 0, 0)
"""
"""A job that is killed before it begins, after it has made this many folders."""


def test_a_run_that_is_killed_early_leaves_no_output(place: Path) -> None:
    """Whatever folders it has made by then, the next job with this output begins."""
    for count in range(30):
        command = [sys.executable, "-c", KILLED_EARLY, str(count)]
        ended = subprocess.run(command, cwd=place, check=False)
        execution = plan(place)
        execution.arguments("map", 0, 0)
        execution.close(False)
        assert not list(place.rglob("out*"))
        if ended.returncode != -signal.SIGKILL:
            break
        shutil.rmtree(place / "new", ignore_errors=True)
    assert 3 < count < 29


def test_output_that_appeared_after_planning_is_not_touched(place: Path) -> None:
    """Two jobs with one output: the second is refused when it begins."""
    execution = plan(place)
    (place / "new" / "out").mkdir(parents=True)
    with pytest.raises(InputError, match="exists"):
        execution.arguments("map", 0, 0)
    execution.close(False)
    assert (place / "new" / "out").exists()


def test_committed_output_stays(place: Path) -> None:
    """A run stopped just behind a commit closes the job again: nothing is taken back."""
    execution = plan(place)
    run(execution)
    execution.close(False)
    assert (place / "new" / "out" / "_SUCCESS").exists()
    assert (place / "new" / "out" / "part-r-00000").read_bytes() == b"a\t1\nb\t2\n"


def test_a_directory_at_the_path_of_a_part_is_not_removed(place: Path) -> None:
    """The manifest lists its name, and it is somebody else's all the same."""
    run(plan(place, reducers=2))
    part = place / "new" / "out" / "part-r-00001"
    part.unlink()
    part.mkdir()
    (part / "mine").touch()
    with pytest.raises(FileExistsError, match="slotwise did not write"):
        run(plan(place, overwrite=True))
    assert (part / "mine").exists()
    assert (place / "new" / "out" / "_SUCCESS").exists()


def test_a_failing_job_keeps_the_record_of_a_killed_commit(place: Path) -> None:
    """The parts that a killed commit has left can be replaced by a later job still."""
    ended = subprocess.run([sys.executable, "-c", KILLED, "1"], cwd=place, check=False)
    assert ended.returncode == -signal.SIGKILL
    mine = place / "new" / "out" / "part-r-00002"
    mine.touch()
    with pytest.raises(InputError, match="holds 'part-r-00002'"):
        plan(place, reducers=3, overwrite=True).open()
    failing = plan(place, overwrite=True)
    finish_maps(failing)
    failing.close(False)
    run(plan(place, overwrite=True))
    names = {path.name for path in (place / "new" / "out").iterdir()}
    assert names == {"_SUCCESS", "part-r-00000", "part-r-00002"}
