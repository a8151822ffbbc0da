"""Jobs of commands: their environment, their files, and how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotwise.core.errors import InputError, SlotwiseError
from slotwise.core.job import Phase, Tasks
from slotwise.jobs import Execution
from slotwise.jobs.commands import Commands, plan_commands


def plan(folder: Path, command: Any, **options: Any) -> Commands:
    """A job of commands that writes to out/ in this folder."""
    return plan_commands("j", command, "out", base_dir=folder, **options)


def read(folder: Path) -> dict[str, str]:
    """The names and contents of the files in out/."""
    return {path.name: path.read_text() for path in (folder / "out").iterdir()}


def test_a_list_runs_without_a_shell(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """Its words arrive as they are; stdout and stderr of each task are files."""
    script = "import sys; print(sys.argv[1]); print('e', file=sys.stderr)"
    drive(plan(tmp_path, [sys.executable, "-c", script, "$HOME *"]))
    files = read(tmp_path)
    assert files.pop("_SUCCESS")
    assert files == {"task-00000.out": "$HOME *\n", "task-00000.err": "e\n"}


def test_a_text_is_run_by_the_shell(tmp_path: Path, drive: Callable[[Execution], None]) -> None:
    """The environment has the numbers of job, task and attempt, and what the job states."""
    command = "echo $SLOTWISE_JOB $SLOTWISE_TASK of $SLOTWISE_TASKS, $SLOTWISE_ATTEMPT: $NAME"
    drive(plan(tmp_path, command, tasks=2, env={"NAME": "a b"}))
    files = read(tmp_path)
    assert files["task-00000.out"] == "j 0 of 2, 0: a b\n"
    assert files["task-00001.out"] == "j 1 of 2, 0: a b\n"


def test_cwd_is_relative_to_the_folder_of_the_job(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """The default is that folder itself."""
    (tmp_path / "sub").mkdir()
    drive(plan(tmp_path, "pwd", cwd="sub"))
    assert read(tmp_path)["task-00000.out"] == f"{tmp_path / 'sub'}\n"
    drive(plan(tmp_path, "pwd", overwrite=True))
    assert read(tmp_path)["task-00000.out"] == f"{tmp_path}\n"


def test_a_failed_command_shows_its_code_and_the_end_of_its_stderr(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """Only the last lines are shown; the output does not appear."""
    with pytest.raises(SlotwiseError) as caught:
        drive(plan(tmp_path, "seq 100 >&2; exit 3"))
    lines = [str(number) for number in range(91, 101)]
    assert str(caught.value).splitlines() == [
        "the last lines of its stderr:",
        *lines,
        "the command exited with code 3",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_command_without_an_output_leaves_no_files(
    tmp_path: Path, drive: Callable[[Execution], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """What it prints goes where its worker prints."""
    job = plan_commands(
        "j", "echo a; echo e >&2; echo $SLOTWISE_TASK > mine", base_dir=tmp_path
    )
    drive(job)
    assert capfd.readouterr() == ("a\n", "e\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (job.output, job.result, job.is_shown) == ("", None, False)


def test_a_killed_command_shows_its_signal(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """By number and name."""
    with pytest.raises(SlotwiseError) as caught:
        drive(plan(tmp_path, "kill -9 $$"))
    assert str(caught.value) == "the command was killed by signal 9 (SIGKILL)"


def test_a_long_command_is_cut_in_messages(tmp_path: Path) -> None:
    """A message shows its beginning."""
    job = plan(tmp_path, ["echo", "a" * 1000])
    assert job.describe("command", 0) == f"task 0 of job j (echo {'a' * 495} ...)"


def test_files_of_output_that_vanish_are_named(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """A command that fails and has removed its own stderr, and one without a folder."""
    with pytest.raises(SlotwiseError, match=r"^the command exited with code 3$"):
        drive(plan(tmp_path, "rm -r out/_temporary && exit 3"))
    runner = plan(tmp_path, "true").runner
    with pytest.raises(
        SlotwiseError, match=r"its output cannot be written to .*missing/out: No"
    ):
        runner(0, 0, (str(tmp_path / "missing" / "out"), str(tmp_path / "err")))


def test_processes_left_behind_are_killed(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """Also one in a session of its own whose parent has ended."""
    drive(plan(tmp_path, "setsid sleep 1000 & echo $!; sleep 1000 & echo $!"))
    for pid in read(tmp_path)["task-00000.out"].split():
        assert not Path(f"/proc/{pid}").exists()


def test_children_of_other_work_are_left_alone(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """Only processes that began with the command end with it."""
    other = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000")
    try:
        drive(plan(tmp_path, "true"))
        assert os.waitpid(other, os.WNOHANG) == (0, 0)
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)


def test_only_the_files_of_the_winner_appear(tmp_path: Path) -> None:
    """What a later attempt wrote is removed."""
    execution = plan(tmp_path, "echo $SLOTWISE_ATTEMPT")
    execution.open()
    for attempt in (1, 2, 3):
        execution.runner(*execution.arguments("command", 0, attempt))
    execution.discard("command", 0, 1)
    execution.finished("command", 0, 2, None)
    execution.finished("command", 0, 3, None)
    execution.close(True)
    files = read(tmp_path)
    assert sorted(files) == ["_SUCCESS", "task-00000.err", "task-00000.out"]
    assert files["task-00000.out"] == "2\n"


def test_other_files_in_the_output_stay(
    tmp_path: Path, drive: Callable[[Execution], None]
) -> None:
    """An output is replaced only if a job wrote it, and only the files of that job."""
    drive(plan(tmp_path, "echo $SLOTWISE_TASK", tasks=2))
    (tmp_path / "out" / "notes").write_text("mine")
    with pytest.raises(InputError, match="exists; name another directory"):
        plan(tmp_path, "true")
    drive(plan(tmp_path, "echo new", overwrite=True))
    files = read(tmp_path)
    assert sorted(files) == ["_SUCCESS", "notes", "task-00000.err", "task-00000.out"]
    assert files["task-00000.out"] == "new\n"


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (["no-such-program"], {}, "program 'no-such-program' not found; check its name"),
        (["./here"], {}, "program './here' not found; check its name"),
        (["./script"], {}, "program './script' is not executable; `chmod"),
        ("true", {"cwd": "missing"}, "missing' is not a folder; name a folder"),
    ],
)
def test_what_cannot_be_started_is_refused(
    tmp_path: Path, command: Any, options: Any, message: str
) -> None:
    """Before the run begins."""
    (tmp_path / "script").touch()
    with pytest.raises(InputError, match=message):
        plan(tmp_path, command, **options).open()


def test_the_number_of_the_task_is_no_word_of_a_string(tmp_path: Path) -> None:
    """It would be literal there; a shell variable of this name is another matter."""
    with pytest.raises(InputError, match=r"in a string, write \$SLOTWISE_TASK"):
        plan(tmp_path, "train {task}", tasks=2)
    for other in ("task=3; echo ${task}", "echo '{{task}}'", r"echo \{task}"):
        assert plan(tmp_path, other, tasks=2).job.phases[0].tasks.count == 2


@pytest.mark.parametrize("command", ["", [], ["a", 1], "a\0b"])
def test_what_is_no_command_is_refused(tmp_path: Path, command: Any) -> None:
    """It is a string or a list of strings."""
    with pytest.raises(InputError, match="job 'j'"):
        plan(tmp_path, command)


def test_an_output_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    """Commands write to files directly."""
    with pytest.raises(InputError, match="output is 'memory://out'; name a folder"):
        plan_commands("j", "true", "memory://out", base_dir=tmp_path)


def test_work_is_that_of_all_tasks(tmp_path: Path) -> None:
    """It is divided among them; without it, the work is unknown."""
    job = plan(tmp_path, "true", tasks=4, work=20.0, slots_min=1, slots_max=2).job
    assert job.phases == (Phase("command", Tasks(4, 5.0), slots_min=1, slots_max=2),)
    assert plan(tmp_path, "true").job.phases[0].tasks.work is None
