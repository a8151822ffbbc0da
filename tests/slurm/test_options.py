"""Options of Slurm's commands: how they are written, and what their values mean."""

from __future__ import annotations

import pytest

from slotwise.core.errors import InputError
from slotwise.slurm.batch import SBATCH, Batch, Shape, request_of
from slotwise.slurm.jobs import JobRange, SlurmJob, states_named
from slotwise.slurm.options import (
    array_tasks,
    bytes_of_memory,
    dependencies,
    directives,
    noted,
    parse,
    seconds_of_time,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        (
            "--time=5 -c4 a.sh -c 9",
            {"time": ["5"], "cpus-per-task": ["4"]},
            ["a.sh", "-c", "9"],
        ),
        ("--job x -HQ -- -n", {"job-name": ["x"], "hold": [""], "quiet": [""]}, ["-n"]),
        ("-n=2 --exclusive=user -", {"ntasks": ["2"], "exclusive": ["user"]}, ["-"]),
    ],
)
def test_options_are_written_as_for_slurm(
    words: str, options: dict[str, list[str]], rest: list[str]
) -> None:
    """Long names may be cut, values follow in three ways, letters join, a script ends them."""
    found = parse(words.split(), SBATCH, stops=True)
    assert (found.options, list(found.rest)) == (options, rest)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--frobnicate", "unrecognized option --frobnicate"),
        ("--mem", "option --mem requires an argument"),
        ("--m 3", "unrecognized option --m"),
        ("-Z", "invalid option -Z"),
        ("-c", "option -c requires an argument"),
        ("--begin now", "--begin is not supported; use `at`"),
    ],
)
def test_wrong_options_are_refused(words: str, says: str) -> None:
    """Unknown ones, those without a value, and those that cannot be honoured."""
    with pytest.raises(InputError, match=says):
        parse(words.split(), SBATCH, stops=True)


def test_options_without_effect_are_noted() -> None:
    """Those on which a user may rely, and no others."""
    words = parse(["--signal", "B:USR2@30", "--qos=high", "--exclusive", "-Q"], SBATCH)
    assert noted(words, SBATCH) == "without effect in slotwise: --signal, --exclusive"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("5", 300), ("1:30", 90), ("2:00:01", 7201), ("1-0", 86_400), ("1-2:03", 93_780)),
        *(("0-0:1:30", 90), ("0", None), ("UNLIMITED", None), ("0:00", None)),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    """Minutes, and days before hours."""
    assert seconds_of_time(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("4G", 4 * GIB), ("4GB", 4 * GIB), ("100", 100 << 20), ("8k", 8192), ("0", None)],
)
def test_memory(text: str, size: int | None) -> None:
    """MiB without a unit; zero is all that there is."""
    assert bytes_of_memory("--mem", text) == size


@pytest.mark.parametrize(
    ("text", "numbers", "limit"),
    [("0-3", (0, 1, 2, 3), 0), ("1,3,5-9:2%2", (1, 3, 5, 7, 9), 2), ("7", (7,), 0)],
)
def test_arrays(text: str, numbers: tuple[int, ...], limit: int) -> None:
    """Ranges, steps, lists, and how many run at once."""
    found = array_tasks(text)
    assert (found.numbers, found.limit) == (numbers, limit)


@pytest.mark.parametrize(
    "text", ["", "3-1", "a", "1-9:0", "0-99999999", "1%0", "-1", "1,,2", "0-10000"]
)
def test_wrong_arrays(text: str) -> None:
    """Also those that are too long."""
    with pytest.raises(InputError, match="--array is"):
        array_tasks(text)


@pytest.mark.parametrize(
    ("text", "jobs", "must_succeed"),
    [
        ("afterok:1:2,afterok:3", ["1", "2", "3"], True),
        ("afterany:4_2", ["4_2"], False),
        ("", [], True),
    ],
)
def test_dependencies(text: str, jobs: list[str], must_succeed: bool) -> None:
    """Of one kind."""
    assert dependencies(text) == (jobs, must_succeed)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("afternotok:3", "sacct -j ID"),
        ("singleton", "afterany and the id"),
        ("afterok:1,afterany:2", "not supported together"),
        ("afterok:1?afterok:2", "separate with"),
        ("afterok", "name a job"),
    ],
)
def test_dependencies_that_are_refused(text: str, remedy: str) -> None:
    """Each with what to do instead."""
    with pytest.raises(InputError, match=remedy):
        dependencies(text)


@pytest.mark.parametrize(
    ("words", "slots", "amounts"),
    [
        ("-n 2 -c 3 --mem-per-cpu 1G", 6, {"memory": 6 * GIB}),
        ("--gres=gpu:a100:2 --mem-per-gpu=4G", 1, {"gpu": 2, "memory": 8 * GIB}),
        ("--gres=license,disk:3", 1, {"license": 1, "disk": 3}),
        ("--gpus-per-task 1 --ntasks-per-node 4", 4, {"gpu": 4}),
        ("-G 2 --cpus-per-gpu 3 -N 1-1", 6, {"gpu": 2}),
        ("--gpus=0 --mem=0 --gres=none", 1, {"gpu": 0}),
    ],
)
def test_the_needs_of_a_job(words: str, slots: int, amounts: dict[str, int]) -> None:
    """All tasks of a job in the sense of Slurm share one host."""
    shape = Shape.of(parse(words.split(), SBATCH))
    assert (shape.slots, shape.amounts) == (slots, amounts)


def test_directives_end_at_the_first_command() -> None:
    """Comments between them, and text after `#`, are no options."""
    script = (
        "#!/bin/sh\n#SBATCH -J 'a b' # why\n\n# more\n#SBATCH --mem=1G\necho\n#SBATCH -n 2\n"
    )
    assert directives(script) == [["-J", "a b"], ["--mem=1G"]]


def submission(
    words: str, script: str = "#!/bin/bash\ntrue\n", **environ: str
) -> dict[str, object]:
    """What `sbatch` sends."""
    batch = Batch.of(parse(words.split(), SBATCH, stops=True), script, "job.sh", environ)
    return request_of(batch, "/w", environ, after=[], pool=None, host="h")


def test_the_command_line_goes_before_variables_and_these_before_the_script() -> None:
    """For each option by itself."""
    script = "#!/bin/sh\n#SBATCH -t 1 -J own --comment=x\n"
    (job,) = submission("-t 3", script, SBATCH_JOB_NAME="variable", SBATCH_TIMELIMIT="2")[
        "jobs"
    ]
    assert (job["time_limit"], job["name"]) == (180, "variable")


def test_a_job_has_the_variables_that_are_exported() -> None:
    """All, none, or some; those of an outer job never."""
    given = {"PATH": "/bin", "A": "1", "B": "2", "SLURM_JOB_ID": "7", "SLOTWISE_TASK": "3"}

    def kept(export: str) -> dict[str, str]:
        found = submission(f"--export={export} j.sh", **given)["environ"]
        return {name: found[name] for name in (*given, "C") if name in found}

    assert kept("ALL") == {"PATH": "/bin", "A": "1", "B": "2"}
    assert kept("NONE") == {"PATH": "/bin"}
    assert kept("A,C=9") == {"PATH": "/bin", "A": "1", "C": "9"}


def test_at_most_so_many_tasks_of_an_array_run_at_once() -> None:
    """Each waits for the one as many places before it, however that ends."""
    jobs = submission("-a 0-4%2 j.sh")["jobs"]
    assert [job["array_index"] for job in jobs] == [0, 1, 2, 3, 4]
    assert [job.get("after") for job in jobs] == [
        None,
        None,
        ["task-0"],
        ["task-1"],
        ["task-2"],
    ]
    assert jobs[4]["after_failed"] == "run"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo\n", "does not look like a batch script"),
        ("#!/bin/sh\n#SBATCH --bad\n", "unrecognized option --bad"),
        ("#!/bin/sh\n#SBATCH word\n", "without an option: word"),
        ("#!/bin/sh\n#SBATCH 'open\n", "line 2"),
        ("#!/bin/sh\n" + "#" * (1 << 20), "longer than"),
        ("#!/bin/sh\n#SBATCH --nodes=2\n", "one host"),
    ],
)
def test_scripts_that_are_refused(script: str, says: str) -> None:
    """Each with one message."""
    with pytest.raises(InputError, match=says):
        submission("", script)


# Ids and states.


def job_of(**changes: object) -> SlurmJob:
    """A job of a server."""
    plain = {"id": "17", "number": 17, "state": "failed", "reason": "", "code": 1}
    return SlurmJob({**plain, **changes})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        *(("12", {"12_0", "12_3"}), ("12_3", {"12_3"}), ("12_[0-2,5]", {"12_0"})),
        *(
            ("17", {"17"}),
            ("17.batch", {"17"}),
            ("14", {"12_3"}),
            ("17_0", set()),
            ("17.0", set()),
        ),
    ],
)
def test_ids_name_jobs_arrays_and_tasks(text: str, names: set[str]) -> None:
    """A task of an array also has a number of its own."""
    jobs = [job_of(id="12_0", number=13), job_of(id="12_3", number=14), job_of()]
    assert {job.id for job in jobs if JobRange.of(text).has(job)} == names


@pytest.mark.parametrize(
    ("changes", "state", "code"),
    [
        ({}, "FAILED", "1:0"),
        ({"code": -9}, "FAILED", "0:9"),
        ({"code": -15, "reason": "exceeded its time limit of 60 s"}, "TIMEOUT", "0:15"),
        ({"code": -9, "reason": "killed for lack of memory"}, "OUT_OF_MEMORY", "0:9"),
        ({"state": "lost", "code": None}, "NODE_FAIL", "0:15"),
        ({"state": "cancelled", "code": None}, "CANCELLED", "0:15"),
        ({"state": "held", "code": None}, "PENDING", "0:0"),
    ],
)
def test_states_as_slurm_spells_them(changes: dict[str, object], state: str, code: str) -> None:
    """With the exit code and the signal."""
    job = job_of(**changes)
    assert (job.state, job.exit_code) == (state, code)


def test_states_by_long_and_short_names() -> None:
    """Slurm's other states are known, and no job has them."""
    assert states_named("-t", ["pd", "Running", "CG"]) == {"PENDING", "RUNNING", "CG"}
    assert states_named("-t", ["R", "all"]) is None
    with pytest.raises(InputError, match="invalid job state"):
        states_named("-t", ["gone"])
