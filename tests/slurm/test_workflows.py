"""Programs that use Slurm, unchanged, with a server: submitit, Snakemake, and Nextflow's calls.

Nextflow itself is not run: it comes only from its own site. `GridExecutorEmulation` makes the
files, calls the commands and reads the answers as its executor for Slurm does.
"""

from __future__ import annotations

import getpass
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm.conftest import SlurmShell
from waiting import until

SUBMITIT = """\
import time
import submitit

def added(a, b):
    if a > 10:
        raise ValueError(f"{a} is too large")
    return a + b

def state_of(job, *passing):
    while (state := job.get_info(mode="force").get("State")) in passing:
        time.sleep(0.1)
    return state

OPEN = "PENDING", "RUNNING"

executor = submitit.SlurmExecutor("logs")
executor.update_parameters(time=5, mem="50MB", cpus_per_task=1, array_parallelism=2)
one = executor.submit(added, 2, 3)
several = executor.map_array(added, [1, 2, 11], [10, 20, 30])
last = executor.submit(time.sleep, 100)
print(one.result(), [job.result() for job in several[:2]], several[2].exception() is not None)
print([one.job_id.split("_")[1] for one in several], state_of(one, *OPEN))
print(state_of(several[2], *OPEN), state_of(last, "PENDING"))
last.cancel(check=True)
print(state_of(last, "RUNNING"), last.done())
"""


def test_submitit_runs_calls_and_arrays(slurm: SlurmShell) -> None:
    """Results come back, a call that raises fails alone, and a job is cancelled."""
    (slurm.folder / "program.py").write_text(SUBMITIT)
    printed = slurm(sys.executable, "program.py").splitlines()
    assert printed == [
        "5 [11, 22] True",
        "['0', '1', '2'] COMPLETED",
        "FAILED RUNNING",
        "CANCELLED True",
    ]


SNAKEFILE = """\
rule all:
    input: "sum.txt"
rule part:
    output: "part-{n}.txt"
    shell: "echo {wildcards.n} $SLURM_CLUSTER_NAME > {output}"
rule total:
    input: expand("part-{n}.txt", n=[1, 2])
    output: "sum.txt"
    shell: "cat {input} > {output}"
"""


@pytest.mark.slow
def test_snakemake_runs_a_workflow_by_its_executor_for_slurm(slurm: SlurmShell) -> None:
    """Its plugin submits by sbatch, asks sacct, and runs each rule by srun."""
    pytest.importorskip("snakemake_executor_plugin_slurm")
    (slurm.folder / "Snakefile").write_text(SNAKEFILE)
    slurm(
        *(sys.executable, "-m", "snakemake", "--executor", "slurm", "--jobs", "2"),
        *("--default-resources", "slurm_account=team", "mem_mb=100", "runtime=5"),
        *("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "2"),
    )
    assert slurm.read("sum.txt") == "1 slotwise\n2 slotwise\n"


STATES = {
    **{"PD": "pending", "R": "running", "CG": "running", "CF": "pending", "CD": "done"},
    **dict.fromkeys(("CA", "F", "TO", "NF", "PR", "BF"), "error"),
}
"""What Nextflow makes of the short names of states."""


@dataclass
class GridExecutorEmulation:
    """Emulates what Nextflow's executor for Slurm does: `SlurmExecutor`, `GridTaskHandler`.

    A task has a folder with `.command.run`, whose header has the directives, one in a line. It
    is submitted from there, and writes `.exitcode` at its end. States come by one call of
    squeue for a queue and the user.
    """

    slurm: SlurmShell
    queue: str
    tasks: dict[str, Path] = field(default_factory=dict)

    def submit(self, name: str, script: str, *options: str) -> str:
        """Write the files of a task, and submit it; its id."""
        folder = self.slurm.folder / "work" / name
        folder.mkdir(parents=True)
        directives = (
            f"-J nf-{name}_(1)",
            f"-o {folder}/.command.log",
            "--no-requeue",
            "--signal B:USR2@30",
            *options,
            f"-p {self.queue}",
        )
        header = "".join(f"#SBATCH {one}\n" for one in directives)
        wrapper = (
            f"#!/bin/bash\n{header}# NEXTFLOW TASK: {name}\nset -e\nset -u\n"
            "NXF_ENTRY=${1:-nxf_main}\n"
            f"on_exit() {{ status=$?; printf $status > {folder}/.exitcode; exit $status; }}\n"
            "on_term() { set +e; [[ $pid ]] && kill $pid; }\n"
            "nxf_main() { trap on_exit EXIT; trap on_term TERM INT USR2; "
            f"cd {folder}; (/bin/bash -ue {folder}/.command.sh) & pid=$!; wait $pid; }}\n"
            "$NXF_ENTRY\n"
        )
        (folder / ".command.run").write_text(wrapper)
        (folder / ".command.sh").write_text(script)
        process = subprocess.run(
            ["sbatch", ".command.run"],
            cwd=folder,
            env=self.slurm.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        found = re.search(r"Submitted batch job (\d+)", process.stdout)
        assert found is not None, process.stdout
        self.tasks[found[1]] = folder
        return found[1]

    def states(self) -> dict[str, str]:
        """The states of all jobs that squeue shows."""
        command = ["squeue", "--noheader", "-o", "%i %t", "-t", "all", "-p", self.queue]
        lines = self.slurm(*command, "-u", getpass.getuser()).splitlines()
        return {one.split()[0]: STATES[one.split()[1]] for one in lines}

    def exit_code(self, job: str) -> int | None:
        """The exit code that a task has written, if it has ended."""
        path = self.tasks[job] / ".exitcode"
        text = path.read_text() if path.exists() else ""
        return int(text) if text else None

    def kill(self, *jobs: str) -> None:
        """Cancel tasks, all by one call."""
        self.slurm("scancel", *jobs)


def test_the_calls_of_nextflow_run_a_workflow(slurm: SlurmShell) -> None:
    """A process reads the output of another one; one fails, and the last are killed."""
    nextflow = GridExecutorEmulation(slurm, "team")
    needs = "-c 1", "-t 00:05:00", "--mem 50M"
    parts = [nextflow.submit(f"part-{n}", f"echo {n} > out.txt", *needs) for n in (1, 2)]
    until(lambda: all(nextflow.exit_code(job) == 0 for job in parts))
    files = " ".join(str(nextflow.tasks[job] / "out.txt") for job in parts)
    total = nextflow.submit("total", f"cat {files} > out.txt; echo printed", "-c 2")
    until(lambda: nextflow.exit_code(total) == 0)
    assert (nextflow.tasks[total] / "out.txt").read_text() == "1\n2\n"
    assert (nextflow.tasks[total] / ".command.log").read_text() == "printed\n"
    fails = nextflow.submit("fails", "exit 7")
    until(lambda: nextflow.exit_code(fails) == 7)
    killed = [nextflow.submit(f"long-{n}", "sleep 100", "-c 2") for n in (1, 2)]
    until(lambda: nextflow.states()[killed[0]] == "running")
    assert nextflow.states()[killed[1]] == "pending"
    nextflow.kill(*killed)
    ended = {
        **dict.fromkeys([*parts, total], "done"),
        **dict.fromkeys([fails, *killed], "error"),
    }
    until(lambda: nextflow.states().items() >= ended.items())
