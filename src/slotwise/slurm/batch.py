"""The command `sbatch`: from a script and its options to a submission for the server.

The script travels as variables of the environment, which the server stores once for all tasks
of an array. A task begins with `LAUNCH`, which /bin/sh evaluates: it sets the variables of
Slurm that are known then, opens the output, and becomes the interpreter of the script.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotwise.core.errors import InputError
from slotwise.slurm.options import (
    ArrayTasks,
    OptionTable,
    Words,
    amounts_of_gres,
    array_tasks,
    bytes_of_memory,
    dependencies,
    directives,
    expanded,
    gpus_of,
    parse,
    quoted,
    seconds_of_time,
    whole,
)

SCRIPT_BYTES_MAX = 1 << 20
"""The longest script: the environment of a process must hold it."""

PIECE_CHARACTERS = 30_000
"""The characters of a script in one variable; in UTF-8 they are below the limit of Linux."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""The variables that are 1 in tasks of slotwise, and here the number of CPUs."""

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "PYTHONPATH")
"""The variables that a job has even if `--export` does not name them.

A token is never sent: within jobs, Slurm's commands use that of `slotwise login`.
"""

KEPT_PREFIXES = ("SLOTWISE_SERVER", "XDG_", "LC_")

BEGIN = (
    'eval "${SLOTWISE_BATCH:?is not set: batch jobs need a server that runs them on its host}"'
)
"""What a task of a batch job runs. Hosts of a Dask cluster have another environment."""

LAUNCH = """\
export SLURM_JOB_ID="${SLOTWISE_NUMBER:-$SLOTWISE_JOB}"
export SLURM_JOBID="$SLURM_JOB_ID" SLURM_JOB_NODELIST="$(uname -n)"
export SLURM_NODELIST="$SLURM_JOB_NODELIST" SLURMD_NODENAME="$SLURM_JOB_NODELIST"
[ "$SLOTWISE_ATTEMPT" = 1 ] || export SLURM_RESTART_COUNT="$((SLOTWISE_ATTEMPT - 1))"
[ -z "$SLURM_ARRAY_TASK_ID" ] || export SLURM_ARRAY_JOB_ID="${SLOTWISE_JOB%%_*}"
[ -z "$SLOTWISE_DEVICES" ] || export SLURM_JOB_GPUS="$SLOTWISE_DEVICES"
@OUTPUT@
script="$(mktemp)" || exit 1
printf %s @PIECES@ >"$script"
exec 9<"$script"
rm -f "$script"
unset script SLOTWISE_BATCH @NAMES@
exec @INTERPRETER@ /dev/fd/9 "$@"
"""

LATE = {
    **{"j": "$SLURM_JOB_ID", "J": "$SLURM_JOB_ID", "N": "$SLURM_JOB_NODELIST"},
    "A": "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}",
    "a": "${SLURM_ARRAY_TASK_ID:-4294967294}",
}
"""What letters in the path of an output stand for when a task begins."""

SBATCH = OptionTable.of(
    "A:account= a:array= b:begin= D:chdir= M:clusters= comment= C:constraint=! contiguous"
    " core-spec= cpu-freq= cpus-per-gpu= c:cpus-per-task= deadline=! d:dependency="
    " m:distribution= e:error= x:exclude=! exclusive! export= F:nodefile= get-user-env"
    " gpu-bind= gpu-freq= G:gpus= gpus-per-node= gpus-per-socket= gpus-per-task= gres="
    " gres-flags= hint= H:hold i:input= J:job-name= kill-on-invalid-dep= L:licenses=!"
    " mail-type=! mail-user=! mem= mem-bind= mem-per-cpu= mem-per-gpu= mincpus= network= nice"
    " w:nodelist=! k:no-kill no-requeue N:nodes= n:ntasks= ntasks-per-core= ntasks-per-gpu="
    " ntasks-per-node= ntasks-per-socket= open-mode= o:output= O:overcommit s:oversubscribe"
    " parsable p:partition= prefer= priority= profile= propagate q:qos= Q:quiet requeue"
    " reservation=! signal=! sockets-per-node= spread-job switches= test-only"
    " thread-spec= threads-per-core= t:time= time-min= tmp= use-min-nodes v:verbose W:wait"
    " wait-all-nodes= wckey= wrap=",
    begin="use `at` or a timer of systemd",
    nodefile="a job runs on one host; leave it out",
    test_only="`squeue` shows what is queued",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A script with the options of the command line and of its own lines `#SBATCH`.

    name  what the job is called without `--job-name`
    """

    words: Words
    script: str
    name: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Words, script: str, name: str, environ: Mapping[str, str]) -> Batch:
        """Options by rank: the command line, variables such as SBATCH_PARTITION, the script.

        InputError for what does not begin as a script, and for wrong options in it.
        """
        first = script.split("\n", 1)[0]
        if not first.startswith("#!"):
            raise InputError(
                f"{name}: this does not look like a batch script; its first line must begin"
                " with #! and the path of an interpreter, as in #!/bin/bash"
            )
        if len(script.encode(errors="surrogateescape")) > SCRIPT_BYTES_MAX:
            raise InputError(
                f"{name}: longer than {SCRIPT_BYTES_MAX} bytes; call another script"
            )
        if "\0" in script:
            raise InputError(f"{name}: it has null characters; name a script, not a program")
        own = parse([word for line in directives(script) for word in line], SBATCH)
        if own.rest:
            raise InputError(
                f"{name}: #SBATCH lines have a word without an option: {own.rest[0]}"
            )
        in_variables = {
            name: [environ[variable]]
            for name in sorted(SBATCH.values)
            if (variable := f"SBATCH_{_VARIABLES.get(name, name).replace('-', '_').upper()}")
            in environ
        }
        given = words.below({**own.options, **in_variables})
        return cls(given, script, given.last("job-name", name), tuple(words.rest[1:]))

    @property
    def interpreter(self) -> str:
        """The words of the first line, as Linux reads them, for a shell."""
        return shlex.join(self.script.split("\n", 1)[0][2:].strip().split(None, 1))


_VARIABLES = {"time": "timelimit", "array": "array_inx", "chdir": "", "wrap": "", "output": ""}
"""Names in variables that differ from those of options; empty ones have no variable."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job needs: all of its tasks in the sense of Slurm run on one host."""

    ntasks: int
    cpus: int
    amounts: Mapping[str, int]

    @property
    def slots(self) -> int:
        """The slots of one host."""
        return self.ntasks * self.cpus

    @classmethod
    def of(cls, words: Words) -> Shape:
        """The needs that options state. InputError."""
        if whole("--nodes", words.last("nodes", "1").split(",")[0]) > 1:
            raise InputError("--nodes: a job runs on one host; leave --nodes out")
        per_node = whole("--ntasks-per-node", words.last("ntasks-per-node", "1"))
        ntasks = whole("--ntasks", words.last("ntasks", str(per_node)))
        amounts = amounts_of_gres("--gres", words.last("gres"))
        for name, factor in (("gpus", 1), ("gpus-per-node", 1), ("gpus-per-task", ntasks)):
            if words.has(name):
                amounts["gpu"] = gpus_of(f"--{name}", words.last(name)) * factor
        gpus = amounts.get("gpu", 0)
        stated = words.last("cpus-per-task")
        cpus = whole("--cpus-per-task", stated) if stated else 1
        if words.has("cpus-per-gpu") and not stated and gpus:
            total = whole("--cpus-per-gpu", words.last("cpus-per-gpu")) * gpus
            cpus = -(-total // ntasks)
        factors = {"mem": 1, "mem-per-cpu": ntasks * cpus, "mem-per-gpu": gpus}
        for name, factor in factors.items():
            if words.has(name) and factor:
                size = bytes_of_memory(f"--{name}", words.last(name))
                if size:
                    amounts["memory"] = size * factor
        return cls(ntasks, cpus, amounts)


def request_of(
    batch: Batch,
    folder: str,
    environ: Mapping[str, str],
    *,
    after: list[str],
    pool: str | None,
    host: str,
) -> dict[str, Any]:
    """The submission of a batch job, or of all tasks of an array. InputError.

    after  the ids of the jobs of `--dependency`
    pool   the pool in which it runs
    host   the host where it is submitted
    """
    words, shape = batch.words, Shape.of(batch.words)
    array = array_tasks(words.last("array")) if words.has("array") else None
    _, must_succeed = dependencies(words.last("dependency"))
    command = ["/bin/sh", "-c", BEGIN, batch.name, *batch.arguments]
    entry: dict[str, Any] = {
        "name": batch.name,
        "command": [word.replace("{task}", "{{task}}") for word in command],
        "slots": shape.slots,
        "attempts": 1,
        "restart": not words.has("no-requeue"),
    }
    if shape.amounts:
        entry["resources"] = dict(shape.amounts)
    if pool:
        entry["pool"] = pool
    if (limit := seconds_of_time(words.last("time", "0"))) is not None:
        entry["time_limit"] = limit
    if after:
        entry |= {"after": after, "after_failed": "cancel" if must_succeed else "run"}
    chdir = os.path.join(folder, words.last("chdir")) if words.has("chdir") else folder
    variables = {
        **_exported(words.last("export", "ALL"), environ),
        **_described(batch, shape, folder, host, pool or "default", array),
        **_script(batch, is_array=array is not None, user=environ.get("USER", "")),
    }
    if shape.slots > 1:
        variables = {**dict.fromkeys(THREADS, str(shape.cpus)), **variables}
    return {
        "jobs": [{**entry, "cwd": chdir}] if array is None else _of_array(entry, array, chdir),
        "folder": folder,
        "environ": variables,
        "hold": words.has("hold"),
    }


def _of_array(entry: Mapping[str, Any], array: ArrayTasks, folder: str) -> list[dict[str, Any]]:
    """A job for each task. At most `limit` run at once: each waits for the one before it."""
    lanes = array.limit if 0 < array.limit < len(array.numbers) else 0
    if lanes and entry.get("after_failed") == "cancel":
        raise InputError(
            "--array with %LIMIT does not go with --dependency=afterok; leave out one of both"
        )
    jobs = []
    for place, number in enumerate(array.numbers):
        job = {**entry, "id": f"task-{number}", "array_index": number, "cwd": folder}
        job["env"] = {"SLURM_ARRAY_TASK_ID": str(number)}
        if lanes and place >= lanes:
            before = f"task-{array.numbers[place - lanes]}"
            job |= {"after": [*entry.get("after", ()), before], "after_failed": "run"}
        jobs.append(job)
    return jobs


def _exported(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the submitting shell that a job gets, by `--export`."""
    outer = {name: one for name, one in environ.items() if not name.startswith("SLURM_")}
    stated = [one for one in text.split(",") if one]
    if "ALL" in stated:
        found = {
            name: one
            for name, one in outer.items()
            if not name.startswith("SLOTWISE_") or name.startswith(KEPT_PREFIXES)
        }
    else:
        found = {n: v for n, v in outer.items() if n in KEPT or n.startswith(KEPT_PREFIXES)}
    for one in stated:
        name, has_value, value = one.partition("=")
        if has_value:
            found[name] = value
        elif name in outer and name not in ("ALL", "NONE", "NIL"):
            found[name] = outer[name]
    return found


def _described(
    batch: Batch, shape: Shape, folder: str, host: str, pool: str, array: ArrayTasks | None
) -> dict[str, str]:
    """The variables of Slurm that are known before a job begins."""
    words = batch.words
    found: dict[str, Any] = {
        "SLURM_JOB_NAME": batch.name,
        "SLURM_JOB_PARTITION": pool,
        "SLURM_JOB_ACCOUNT": words.last("account", pool),
        "SLURM_CLUSTER_NAME": "slotwise",
        "SLURM_SUBMIT_DIR": folder,
        "SLURM_SUBMIT_HOST": host,
        **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), 1),
        **dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS"), 0),
        **dict.fromkeys(("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"), shape.slots),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"), shape.ntasks),
    }
    if words.has("cpus-per-task"):
        found["SLURM_CPUS_PER_TASK"] = shape.cpus
    if gpus := shape.amounts.get("gpu"):
        found |= {"SLURM_GPUS": gpus, "SLURM_GPUS_ON_NODE": gpus}
    if memory := shape.amounts.get("memory"):
        found["SLURM_MEM_PER_NODE"] = memory >> 20
    if array is not None:
        found |= {
            "SLURM_ARRAY_TASK_COUNT": len(array.numbers),
            "SLURM_ARRAY_TASK_MIN": array.numbers[0],
            "SLURM_ARRAY_TASK_MAX": array.numbers[-1],
            "SLURM_ARRAY_TASK_STEP": array.step,
        }
    return {name: str(value) for name, value in found.items()}


def _script(batch: Batch, *, is_array: bool, user: str) -> dict[str, str]:
    """The variables with the script, and with what a task begins with."""
    words, script = batch.words, batch.script
    known = {"x": batch.name, "u": user, "t": "0", "n": "0", "s": "batch"}

    def path(pattern: str) -> str:
        return expanded(pattern, lambda *one: _in_shell(known, *one), quoted)

    out = words.last("output", "slurm-%A_%a.out" if is_array else "slurm-%j.out")
    mode = ">>" if words.last("open-mode").startswith("a") else ">"
    opened = f"exec {mode}{path(out)}"
    if words.has("error") and words.last("error") != out:
        opened += f"\nexec 2{mode}{path(words.last('error'))}"
    else:
        opened += "\nexec 2>&1"
    if words.has("input"):
        opened += f"\nexec <{path(words.last('input'))}"
    pieces = [
        script[start : start + PIECE_CHARACTERS]
        for start in range(0, len(script), PIECE_CHARACTERS)
    ]
    names = [f"SLOTWISE_SCRIPT_{number}" for number in range(len(pieces))]
    launch = LAUNCH.replace("@OUTPUT@", opened).replace("@NAMES@", " ".join(names))
    launch = launch.replace("@PIECES@", " ".join(f'"${name}"' for name in names))
    launch = launch.replace("@INTERPRETER@", batch.interpreter)
    return {"SLOTWISE_BATCH": launch, **dict(zip(names, pieces, strict=True))}


def _in_shell(known: Mapping[str, str], letter: str, digits: int) -> str | None:
    """What a letter stands for in the path of an output, as a shell writes it."""
    if letter not in LATE:
        return quoted(known[letter]) if letter in known else None
    return f'"$(printf %0{digits}d "{LATE[letter]}")"' if digits else f'"{LATE[letter]}"'
