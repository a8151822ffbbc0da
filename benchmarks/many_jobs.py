"""Whole commands for many jobs, at n and at 2n: seconds, peak memory, and their ratios.

Files are generated: jobs of one phase, of random work, tasks and weights, on 100 slots; the
same in three nested pools; a chain of phases in one job; jobs of 20 tasks that arrive 1 ms
apart, so that all are alive at once; and a long file that is only read. The times are processor
seconds of a separate process without those of its start. A ratio of 2 is linear growth, 4
quadratic. Memory is the peak beyond that of the start. Goals: 10 s for plans of 50,000 jobs and
of a chain of 3,002 phases, 60 s for reading 700,000 jobs, 30 s and 500 MB for simulations of
10,000 jobs that are alive at once, and linear growth.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from check import Result, serve

POOLS = [
    {"name": "top"},
    {"name": "a", "weight": 2},
    {"name": "b", "parent": "top"},
    {"name": "c", "parent": "top", "weight": 3},
]
READ = (
    "import sys; from slotwise.workload.file import read_workload; read_workload(sys.argv[1])"
)


MAX_LINEAR = 2.5
"""Growth from n to 2n that is linear, with what one measurement may be off."""

SLOTWISE = str(Path(sys.executable).with_name("slotwise"))
Workload = dict[str, Any]


class Used(NamedTuple):
    """What a process has used: processor seconds, and MiB at most."""

    seconds: float
    memory: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=25_000)
    parser.add_argument("--phases", type=int, default=1_501)
    parser.add_argument("--alive", type=int, default=1_000)
    parser.add_argument("--read", type=int, default=350_000)
    options = parser.parse_args()
    print(f"{'':28} {'n':>9} {'seconds':>9} {'at 2n':>9} {'ratio':>7} {'MiB':>7} {'at 2n':>7}")
    for title, count, once, twice in compare(
        options.jobs, options.phases, options.alive, options.read
    ):
        print(
            f"{title:28} {count:9,} {once.seconds:9.2f} {twice.seconds:9.2f}"
            f" {twice.seconds / once.seconds:7.2f} {once.memory:7.0f} {twice.memory:7.0f}",
            flush=True,
        )


def check() -> Iterator[Result]:
    """Linear growth of processor time, and of memory in simulations."""
    for title, count, once, twice in compare(5_000, 1_001, 1_000, 25_000):
        growth, name = twice.seconds / once.seconds, f"{title}, {count:,}"
        cause = AHEAD if "flex, 1 ms apart" in title else ""
        yield Result(name, growth, MAX_LINEAR, "x the time at 2n", noise=0.3, cause=cause)
        if title.startswith("simulate"):
            growth = twice.memory / once.memory
            name = f"{title}, {count:,}, memory"
            yield Result(name, growth, MAX_LINEAR, "x the memory at 2n", noise=0.3)


AHEAD = (
    "each change among n waiting phases reads the first n/100 of them (docs/decisions/0038):"
    " twice the jobs take 2.21 times the instructions, counted as in tests/test_growth.py"
)


def compare(
    plans: int, phases: int, alive: int, read: int
) -> Iterator[tuple[str, int, Used, Used]]:
    """For each command: its name, n, and what it used for n and for 2n."""
    commands: list[tuple[str, int, Callable[[int], Workload], list[str]]] = [
        *(
            (f"plan, {name}", plans, jobs, [SLOTWISE, "plan", "FILE", "--allocator", name])
            for name in ("fifo", "fair", "flex")
        ),
        (
            "plan, fair, pools",
            plans,
            jobs_in_pools,
            [SLOTWISE, "plan", "FILE", "--allocator", "fair"],
        ),
        *(
            (
                f"plan of a chain, {name}",
                phases,
                chain,
                [SLOTWISE, "plan", "FILE", "--allocator", name],
            )
            for name in ("fair", "flowflex")
        ),
        *(
            (
                f"simulate, {name}, 1 ms apart",
                alive,
                arriving,
                [SLOTWISE, "simulate", "FILE", "--scheduler", name],
            )
            for name in ("fair", "flex")
        ),
        ("reading", read, jobs, [sys.executable, "-c", READ, "FILE"]),
    ]
    for title, count, make, command in commands:
        base, once, twice = (used_by(make(n), command) for n in (2, count, 2 * count))
        yield title, count, beyond(once, base), beyond(twice, base)


def beyond(used: Used, base: Used) -> Used:
    """What a command used beyond its start."""
    return Used(max(1e-3, used.seconds - base.seconds), max(1e-3, used.memory - base.memory))


def jobs(count: int) -> Workload:
    """Jobs of one phase each."""
    rng = random.Random(1)
    made = [
        {
            "id": f"job{number}",
            "weight": rng.choice([1, 2, 5]),
            "phases": [
                {
                    "name": "map",
                    "tasks": rng.randint(1, 20),
                    "work": round(rng.uniform(1, 600), 3),
                }
            ],
        }
        for number in range(count)
    ]
    return {"slotwise": 1, "cluster": {"slots": 100}, "jobs": made}


def jobs_in_pools(count: int) -> Workload:
    """The same in three pools, two of which lie in another."""
    rng = random.Random(2)
    made = jobs(count)
    for job in made["jobs"]:
        job["pool"] = rng.choice(["a", "b", "c"])
    return made | {"pools": POOLS}


def chain(count: int) -> Workload:
    """One job, each phase of which waits for the one before."""
    phases = [
        {"name": f"p{n}", "work": 6, "tasks": 3, "after": [f"p{n - 1}"] if n else []}
        for n in range(count)
    ]
    job = {"id": "chain", "phases": phases}
    return {"slotwise": 1, "cluster": {"slots": 100}, "jobs": [job]}


def arriving(count: int) -> Workload:
    """Jobs of 20 tasks that arrive 1 ms apart."""
    made = [
        {
            "id": f"job{number}",
            "arrival": number / 1000,
            "phases": [{"name": "map", "tasks": 20, "work": 200}],
        }
        for number in range(count)
    ]
    return {"slotwise": 1, "cluster": {"slots": 100}, "jobs": made}


def used_by(workload: Workload, command: list[str]) -> Used:
    """What a command uses for a workload."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.json")
        path.write_text(json.dumps(workload))
        command = [str(path) if word == "FILE" else word for word in command]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{' '.join(command)} exits with {process.returncode}"
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    serve(main, check)
