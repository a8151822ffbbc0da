"""Machine instructions and seconds of small fixed workloads, beside those of another commit.

    scripts/bench instructions [--only PART] [--against COMMIT] [--write]

Each workload runs in a process of its own and uses the public API, the command line, or the
fake Dask scheduler of the tests of its tree, so that the same file measures other commits.
Instructions in user space are counted by callgrind, in all threads of the process that
schedules, and only while the workload runs: not during imports, and not in worker processes.
`--against` measures both trees in turn. The exit code is 1 if a ratio exceeds its limit.
`--write` saves the counts of this tree in `benchmarks/instructions.json`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
ROUNDS, COUNTS = 9, 3
MAX_INSTRUCTIONS, MAX_SECONDS = 1.05, 1.15
"""The largest ratios to the other commit."""

START, STOP = (ord("C") << 24) + (ord("T") << 16) + 4, (ord("C") << 24) + (ord("T") << 16) + 5
"""The requests of callgrind.h that begin and end instrumentation."""

REQUEST = bytes.fromhex("4889f8 4889f2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
"""The special instruction sequence of valgrind.h for x86-64; without valgrind a no-op."""


def simulate(scheduler: str, jobs: int, tasks: int, slots: int) -> Callable[[], object]:
    """A simulation of jobs that are all present at the beginning."""
    import slotwise
    from slotwise import Job, Phase, Tasks

    made = [
        Job(f"j{n}", (Phase("map", Tasks(tasks, 1.0 + n % 7)),), weight=1.0 + n % 3)
        for n in range(jobs)
    ]
    slotwise.simulate(made[:2], scheduler, slots=slots)  # Imports and compiles.
    return lambda: slotwise.simulate(made, scheduler, slots=slots)


def noop(scheduler: str, tasks: int) -> Callable[[], object]:
    """Tasks that do nothing, by `run` with one worker."""
    import slotwise

    def run(count: int) -> object:
        job = slotwise.Job("noop", (slotwise.Phase("map", slotwise.Tasks(count, 0.0001)),))
        calls = slotwise.Calls(job, {"map": abs})
        return slotwise.run([calls], scheduler, slots=1, epoch_seconds=3600.0)

    run(2)
    return lambda: run(tasks)


def calls(tasks: int, *, at_once: bool, on_agents: bool = False) -> Callable[[], object]:
    """Calls in a session, on this machine or on an agent beside a worker of Dask."""
    import slotwise

    if on_agents:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        )
        session = slotwise.Session(dask=Client(cluster), epoch_seconds=3600.0)
    else:
        session = slotwise.Session(1, "flex", epoch_seconds=3600.0)
    session.submit(abs, 0).result()

    def act() -> None:
        if at_once:
            for future in [session.submit(abs, n) for n in range(tasks)]:
                future.result()
        else:
            for n in range(tasks):
                session.submit(abs, n).result()

    return act


def gate(scheduler: str, tasks: int) -> Callable[[], object]:
    """Tasks of two clients that the gate holds and lets run, in the fake scheduler."""
    from fake_dask import FakeDask

    dask = FakeDask({"scheduler": scheduler})

    def act() -> None:
        for client in ("Client-a", "Client-b"):
            dask.submit(client, [f"{client[-1]}-{n}" for n in range(tasks)])
        dask.turns()
        while dask.tasks:
            dask.finish()

    return act


def records(lines: int) -> Callable[[], object]:
    """A word count with one worker process; the counted instructions are the manager's."""
    import slotwise

    folder = Path(tempfile.mkdtemp(prefix="slotwise-bench-"))
    text = folder / "text"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * lines)
    job = slotwise.mapreduce("wordcount", text, folder / "out")
    return lambda: slotwise.run([job], "fair", slots=1)


WORKLOADS: dict[str, Callable[[], Callable[[], object]]] = {
    "noop, fair": lambda: noop("fair", 1_000),
    "noop, flex": lambda: noop("flex", 1_000),
    "sessions, one at a time": lambda: calls(500, at_once=False),
    "sessions, at once": lambda: calls(300, at_once=True),
    "agents, one at a time": lambda: calls(300, at_once=False, on_agents=True),
    "gate, fair": lambda: gate("fair", 300),
    "gate, flex": lambda: gate("flex", 300),
    "decisions, fair": lambda: simulate("fair", 10_000, 1, 10_000),
    "decisions, flex": lambda: simulate("flex", 10_000, 1, 10_000),
    "simulator, fair": lambda: simulate("fair", 50, 40, 100),
    "simulator, flex": lambda: simulate("flex", 50, 40, 100),
    "records": lambda: records(100_000),
}
COMMANDS = {"start-up, --version": ["--version"], "start-up, --help": ["--help"]}
"""Whole processes, with interpreter and imports."""


def run_here(name: str) -> None:
    """Run a workload in this process; print the seconds after its preparation."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(REQUEST)
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    call = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong)(address)
    start, stop = ((ctypes.c_ulong * 6)(number) for number in (START, STOP))
    act = WORKLOADS[name]()
    begun = time.perf_counter()
    call(ctypes.addressof(start), 0)
    act()
    call(ctypes.addressof(stop), 0)
    print(f"SECONDS {time.perf_counter() - begun}", flush=True)
    os._exit(0)  # Ends sessions and clusters without waiting.


def measure(tree: Path, name: str, *, counted: bool) -> float:
    """Instructions or seconds of a workload in a process of its own."""
    inner = [str(Path(__file__).resolve()), "--run", name]
    command = [
        sys.executable,
        *(["-m", "slotwise", *COMMANDS[name]] if name in COMMANDS else inner),
    ]
    if counted:
        at_start = "yes" if name in COMMANDS else "no"
        options = (f"--instr-atstart={at_start}", "--callgrind-out-file=/dev/null")
        command = ["valgrind", "--tool=callgrind", *options, *command]
    paths = os.pathsep.join(str(tree / folder) for folder in ("src", "tests"))
    fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}
    begun = time.perf_counter()
    done = subprocess.run(
        command, env=os.environ | fixed, capture_output=True, text=True, check=True, timeout=600
    )
    seconds = time.perf_counter() - begun
    if counted:
        return found(r"Collected : (\d+)", done.stderr)
    return seconds if name in COMMANDS else found(r"SECONDS (\S+)", done.stdout)


def found(pattern: str, text: str) -> float:
    """The number in a text."""
    match = re.search(pattern, text)
    assert match is not None, text
    return float(match[1])


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary checkout of a commit."""
    with tempfile.TemporaryDirectory(prefix="slotwise-bench-") as folder:
        tree, git = Path(folder, "tree"), ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def exceeded(
    instructions: Mapping[str, Sequence[float]], seconds: Mapping[str, Sequence[float]]
) -> tuple[float, float, bool]:
    """The ratios of the medians, `new` to `old`, and whether one exceeds its limit."""
    by_count, by_time = (
        median(values["new"]) / median(values["old"]) for values in (instructions, seconds)
    )
    return by_count, by_time, by_count > MAX_INSTRUCTIONS or by_time > MAX_SECONDS


def compare(names: Sequence[str], commit: str) -> int:
    """Print the ratios to another commit; the exit code."""
    from measuring import in_turn  # Beside this script.

    is_exceeded = False
    with checkout(commit) as old:
        for name in names:
            values = []
            for counted, rounds in ((True, COUNTS), (False, ROUNDS)):
                ways = {
                    way: lambda t=tree, n=name, c=counted: measure(t, n, counted=c)
                    for way, tree in (("old", old), ("new", ROOT))
                }
                for way in ways.values():
                    way()  # Compiles.
                values.append(in_turn(ways, rounds))
            by_count, by_time, is_over = exceeded(*values)
            is_exceeded |= is_over
            mark = "  EXCEEDED" if is_over else ""
            print(
                f"{name:26} instructions {by_count:.3f} (<= {MAX_INSTRUCTIONS})"
                f"  seconds {by_time:.3f} (<= {MAX_SECONDS}){mark}",
                flush=True,
            )
    return int(is_exceeded)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--only", default="", help="the beginning of names")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_here(options.run)
    names = [name for name in (*WORKLOADS, *COMMANDS) if name.startswith(options.only)]
    if options.against:
        sys.exit(compare(names, options.against))
    path = ROOT / "benchmarks" / "instructions.json"
    counts = json.loads(path.read_text())["instructions"] if path.exists() else {}
    for name in names:
        values = [measure(ROOT, name, counted=True) for _ in range(options.repeats)]
        spread = max(values) / min(values) - 1
        counts[name] = {"median": round(median(values)), "spread": round(spread, 4)}
        print(f"{name:26} {median(values):16,.0f}  spread {100 * spread:.2f} %", flush=True)
        if options.write:
            made = {"python": platform.python_version(), "instructions": counts}
            path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
