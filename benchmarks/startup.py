"""How long commands take from start to end, next to the start of Python itself.

Seconds by the clock, the median of several runs in turn. Goals: `slotwise --version` under
0.3 s, `slotwise run` of one task of 1 ms under 1 s.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from check import Result, serve
from measuring import LOOP, in_turn, ratio, yardstick, yardsticks

JOB = "slotwise: 1\njobs: [{id: a, phases: [{name: m, work: 0.001, tasks: 1}]}]\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    slotwise = [sys.executable, "-m", "slotwise"]
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
            "slotwise --version": [*slotwise, "--version"],
            "slotwise --help": [*slotwise, "--help"],
            "slotwise run, one task of 1 ms": [*slotwise, "run", str(job), "--slots", "1"],
            "slotwise simulate, the same": [*slotwise, "simulate", str(job)],
        }
        took: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                took[name].append(seconds_of(command))
    base = statistics.median(took["python -c pass"])
    print(f"{'':32} {'seconds':>8} {'times python':>13}")
    for name, values in took.items():
        median = statistics.median(values)
        print(f"{name:32} {median:8.3f} {median / base:13.1f}")


def check() -> Iterator[Result]:
    """`--version` in 0.3 s and a run of a short task in 1 s, in yardsticks."""
    slotwise = [sys.executable, "-m", "slotwise"]
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB)
        for name, command, goal in (
            ("slotwise --version", [*slotwise, "--version"], 300),
            ("slotwise run, a short task", [*slotwise, "run", str(job), "--slots", "1"], 1_000),
        ):
            seconds_of(command)
            found = in_turn(
                {"ours": lambda c=command: processor_seconds_of(c), "yardstick": yardstick}, 5
            )
            yield Result(name, ratio(found, "ours", "yardstick"), yardsticks(goal), LOOP)


def processor_seconds_of(command: list[str]) -> float:
    """Processor seconds of a process and of those that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of(command: list[str]) -> float:
    """Seconds from the start of a process to its end."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    serve(main, check)
