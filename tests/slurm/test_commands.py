"""Slurm's commands with a real server."""

from __future__ import annotations

import getpass
import os

import pytest

from slotwise.slurm.__main__ import main
from slurm.conftest import SlurmShell
from waiting import until

SCRIPT = """\
#!/usr/bin/env bash
#SBATCH --job-name=table -c 2
#SBATCH --array=1-5:2%1
#SBATCH --output=%x-%A_%3a.txt
echo "$1 $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, $OMP_NUM_THREADS threads, {task}"
[ "$SLURM_ARRAY_TASK_ID" != 3 ]
"""


def test_a_batch_job_runs_as_under_slurm(slurm: SlurmShell) -> None:
    """Its variables, its folder, its output with stderr, its exit code, also by `--wait`."""
    (slurm.folder / "sub").mkdir()
    text = 'echo "$SLURM_JOB_ID $A $SLURM_JOB_PARTITION in $PWD"; echo no >&2; exit 3'
    done = slurm.run(
        "sbatch", "-W", "-D", "sub", "-p", "team", "--export=ALL,A=b", "--wrap", text
    )
    assert done.returncode == 3
    job = done.stdout.split()[-1]
    assert done.stdout == f"Submitted batch job {job}\n"
    place = slurm.folder / "sub"
    assert slurm.read(f"sub/slurm-{job}.out") == f"{job} b team in {place}\nno\n"
    columns = "JobID,JobName,Partition,State,ExitCode,User"
    shown = slurm("sacct", "-nP", "-j", job, "-o", columns)
    assert shown == f"{job}|wrap|team|FAILED|3:0|{getpass.getuser()}\n"


def test_the_tasks_of_an_array_are_independent(slurm: SlurmShell) -> None:
    """One fails, the others run, at most one at once; a job waits for all of them."""
    (slurm.folder / "job.sh").write_text(SCRIPT)
    array = slurm.submit("job.sh", "first")
    (slurm.folder / "job.sh").unlink()  # Slurm, too, keeps a copy.
    never = slurm.submit("-d", f"afterok:{array}", "--wrap", "true")
    slurm("sbatch", "--wait", "-d", f"afterany:{array}", "--wrap", "true")
    ended = {f"{array}_1": "COMPLETED", f"{array}_3": "FAILED", f"{array}_5": "COMPLETED"}
    assert slurm.states(array) == ended
    assert slurm.states(f"{array}_3") == {f"{array}_3": "FAILED"}
    assert slurm.states(never) == {never: "CANCELLED"}
    expected = "first 5 of 3, 2 threads, {task}\n"
    assert slurm.read(f"table-{array}_005.txt") == expected


def test_jobs_are_listed_held_and_cancelled(slurm: SlurmShell) -> None:
    """By ids, names and users; the default table of squeue is Slurm's."""
    queue = "squeue", "-h", "-o", "%i %t %j %r"
    running = slurm.submit("-J", "long", "--wrap", "sleep 100")
    array = slurm.submit("-J", "several", "-H", "-a", "0-2", "--wrap", "sleep 100")
    until(lambda: slurm("squeue", "-h", "-o", "%t", "-j", running) == "R\n")
    rows = [f"{array}_{task} PD several JobHeldUser" for task in range(3)]
    assert slurm(*queue, "--me").splitlines() == [f"{running} R long None", *rows]
    assert slurm(*queue, "-t", "PD", "-u", "nobody,none") == ""
    title, row = slurm("squeue", "-j", running).splitlines()
    assert " ".join(title.split()) == "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)"
    assert row.startswith(f"{running:>18}   default     long")
    slurm("scancel", f"{array}_[0-1]", running)
    slurm("scancel", running)  # It is over, which is no mistake.
    slurm("scontrol", "release", f"{array}_2")
    until(lambda: slurm("squeue", "-h", "-o", "%T", "-n", "several") == "RUNNING\n")
    slurm("scancel", "--me", "-n", "several")
    until(lambda: set(slurm.states(array).values()) == {"CANCELLED"})
    assert slurm("squeue", "-h", "-j", array) == ""
    lately = slurm("squeue", "-h", "-t", "CA", "-o", "%i").split()
    assert {running, *(f"{array}_{task}" for task in range(3))} <= {*lately}


def test_ends_by_time_and_by_signal(slurm: SlurmShell) -> None:
    """TIMEOUT, and a signal after the colon."""
    late = slurm.submit("-t", "0:1", "--wrap", "sleep 100")
    killed = slurm.run("sbatch", "--parsable", "-W", "--wrap", "kill -9 $$")
    assert killed.returncode == 128 + 9
    code = slurm("sacct", "-nP", "-j", killed.stdout.strip(), "-o", "ExitCode")
    assert code == "0:9\n"
    until(lambda: slurm.states(late)[late] == "TIMEOUT")


def test_steps_of_a_job(slurm: SlurmShell) -> None:
    """`srun` runs a command for each task, with its own output; the script comes by stdin."""
    script = """\
#!/bin/sh
srun -l --output=step-%t.txt sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'
srun -n1 --cpu-bind=q sh -c 'exit 4'
echo "code $?"
srun -n 2 false || srun -n1 none
"""
    done = slurm.run("sbatch", "--parsable", "-W", "-n", "2", "-o", "out.txt", stdin=script)
    assert done.returncode == 1
    assert [slurm.read(f"step-{task}.txt") for task in (0, 1)] == ["0 of 2\n", "1 of 2\n"]
    assert slurm.read("out.txt").startswith("code 4\nsrun: error: execve(): none: No such file")
    refused = slurm.run("srun", "true")
    assert (refused.returncode, "within a job only" in refused.stderr) == (1, True)


def test_scripts_are_of_any_language_and_size(slurm: SlurmShell) -> None:
    """They run from a file that has no name any more, and may be as large as 1 MiB."""
    padding = "# é\n" * 50_000
    script = f"#!/usr/bin/env -S python3 -u\n{padding}import sys\nprint(sys.argv[1:])\n"
    (slurm.folder / "job.py").write_text(script)
    slurm("sbatch", "-W", "-o", "a b.txt", "job.py", "x y", "{task}")
    assert slurm.read("a b.txt") == "['x y', '{task}']\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sbatch", "--frobnicate"), "sbatch: error: unrecognized option --frobnicate"),
        (("sbatch", "none.sh"), "sbatch: error: Unable to open file none.sh"),
        (("sbatch", "-d", "afterok:99999", "--wrap", "true"), "job 99999 does not exist"),
        (("sbatch", "-p", "none", "--wrap", "true"), "pool 'none' is not a pool"),
        (("sbatch", "-c", "99", "--wrap", "true"), "sbatch: error: job"),
        (("squeue", "-j", "99999"), "squeue: error: slurm_load_jobs error: Invalid job id"),
        (("squeue", "-o", "%y"), "unknown field %y"),
        (("sacct", "-o", "JobID,None"), 'Invalid field requested: "None"'),
        (("sacct", "-S", "soon"), "--starttime is 'soon'"),
        (("scancel", "99999"), "scancel: error: Kill job error on job id 99999"),
        (("scancel", "-s", "USR1", "1"), "--signal=USR1 is not supported"),
        (("scancel",), "No job identification provided"),
        (("scontrol", "requeue", "1"), "requeue is not supported"),
    ],
)
def test_what_is_wrong_has_one_message_and_exit_code_1(
    slurm: SlurmShell,
    words: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In the form of Slurm."""
    monkeypatch.setenv("SLOTWISE_SERVER", slurm.server.url)
    monkeypatch.chdir(slurm.folder)
    assert main(words) == 1
    printed = capfd.readouterr()
    assert says in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_the_server_and_its_pools(slurm: SlurmShell) -> None:
    """As a cluster of partitions and accounts; a job shows itself, and reads its host."""
    assert slurm("sinfo", "-h", "-o", "%P %c").splitlines() == ["default* 2", "team 2"]
    assert (
        slurm("sacctmgr", "-n", "list", "user", "x", "format=account%256") == "default\nteam\n"
    )
    job = slurm.submit("-A", "team", "-W", "--wrap", "scontrol show hostnames").split()[0]
    assert slurm.read(f"slurm-{job}.out") == f"{os.uname().nodename}\n"
    shown = slurm("scontrol", "-o", "show", "job", job)
    assert f"JobId={job} JobName=wrap " in shown
    assert " Partition=team " in shown
    shown = slurm("scontrol", "-o", "show", "partition", "team").split()
    assert {"PartitionName=team", "Default=NO", "State=UP", "TotalCPUs=2"} <= {*shown}
    assert slurm("scontrol", "show", "partitions").count("PartitionName=") == 2
    assert "not found" in slurm.run("scontrol", "show", "partition", "none").stderr
    assert "MinJobAge               = 3600 sec\n" in slurm("scontrol", "show", "config")
