"""Seconds of whole commands for many jobs, at n and at 2n, and the ratio of both.

Files are generated: jobs of one phase, of random work, tasks and weights, on 100 slots; the
same in three nested pools; a chain of phases in one job; and a long file that is only read.
The times are processor seconds of a separate process, so they include its start. A ratio of 2
is linear growth. Goals: 10 s for plans of 50,000 jobs and of a chain of 3,002 phases, 60 s for
reading 700,000 jobs.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

POOLS = [
    {"name": "top"},
    {"name": "a", "weight": 2},
    {"name": "b", "parent": "top"},
    {"name": "c", "parent": "top", "weight": 3},
]
READ = (
    "import sys; from slotwise.workload.file import read_workload; read_workload(sys.argv[1])"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=25_000)
    parser.add_argument("--phases", type=int, default=1_501)
    parser.add_argument("--read", type=int, default=350_000)
    options = parser.parse_args()
    print(f"{'':24} {'n':>9} {'seconds':>9} {'at 2n':>9} {'ratio':>7}")
    for name in ("fifo", "fair", "flex"):
        compare(f"plan, {name}", options.jobs, jobs, name)
    compare("plan, fair, pools", options.jobs, jobs_in_pools, "fair")
    for name in ("fair", "flowflex"):
        compare(f"plan of a chain, {name}", options.phases, chain, name)
    compare("reading", options.read, jobs, None)


def compare(title: str, count: int, make: Any, allocator: str | None) -> None:
    """Print the seconds for this number, for twice the number, and their ratio."""
    once, twice = (seconds_of(make(n), allocator) for n in (count, 2 * count))
    print(f"{title:24} {count:9,} {once:9.2f} {twice:9.2f} {twice / once:7.2f}", flush=True)


def jobs(count: int) -> dict[str, Any]:
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


def jobs_in_pools(count: int) -> dict[str, Any]:
    """The same in three pools, two of which lie in another."""
    rng = random.Random(2)
    made = jobs(count)
    for job in made["jobs"]:
        job["pool"] = rng.choice(["a", "b", "c"])
    return made | {"pools": POOLS}


def chain(count: int) -> dict[str, Any]:
    """One job, each phase of which waits for the one before."""
    phases = [
        {"name": f"p{n}", "work": 6, "tasks": 3, "after": [f"p{n - 1}"] if n else []}
        for n in range(count)
    ]
    job = {"id": "chain", "phases": phases}
    return {"slotwise": 1, "cluster": {"slots": 100}, "jobs": [job]}


def seconds_of(workload: dict[str, Any], allocator: str | None) -> float:
    """Processor time of the command that plans a workload, or of reading it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.json")
        path.write_text(json.dumps(workload))
        command = [sys.executable, "-c", READ, str(path)]
        if allocator:
            slotwise = str(Path(sys.executable).with_name("slotwise"))
            command = [slotwise, "plan", str(path), "--allocator", allocator]
        before = _seconds_of_children()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return _seconds_of_children() - before


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
