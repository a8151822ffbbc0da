"""Real commands that hold 0.2 to 2 GiB each, within 6 GiB: by their requests, or by safe slots.

40 commands allocate memory, hold it for two seconds and end. With requests, as many run as fit
into 6 GiB; the safe number of slots without requests is 3, since three of the largest just fit.
Prints the seconds of each run, their ratio, and the greatest sum of the memory of all processes
below the run, in which pages that several share count once, sampled 20 times a second. Needs
7 GiB of free memory.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slotwise.jobs.dataflow.process_group import descendants

COMMANDS, SECONDS, GIB = 40, 2, 2**30
PYTHON = 40 * 2**20
"""About what the interpreter itself takes, bytes."""


def main() -> None:
    rng = random.Random(7)
    sizes = [int(rng.uniform(0.2, 2.0) * GIB) for _ in range(COMMANDS)]
    with tempfile.TemporaryDirectory() as folder:
        by_request = measured(folder, sizes, "--slots", "16", "--resources", "memory=6GiB")
        by_slots = measured(folder, sizes, "--slots", "3", requests=False)
    print(f"seconds with requests over safe slots: {by_request / by_slots:.2f}")


def measured(folder: str, sizes: list[int], *options: str, requests: bool = True) -> float:
    """The seconds of a run of commands of these sizes, which prints its peak."""
    jobs = []
    for number, size in enumerate(sizes):
        code = f"import time; held = b'x' * {size - PYTHON}; time.sleep({SECONDS})"
        stated = {"resources": {"memory": size}} if requests else {}
        jobs.append({"id": f"c{number}", "command": [sys.executable, "-c", code], **stated})
    path = Path(folder, "jobs.yaml")
    path.write_text(json.dumps({"slotwise": 1, "jobs": jobs}))
    words = [sys.executable, "-m", "slotwise", "run", str(path), *options, "--json"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    begun, peak = time.perf_counter(), 0
    environment = {**os.environ, "XDG_STATE_HOME": folder}
    with subprocess.Popen(words, env=environment, **quiet) as run:  # type: ignore[call-overload]
        while run.poll() is None:
            peak = max(peak, sum(map(resident, descendants(run.pid))))
            time.sleep(0.05)
    seconds = time.perf_counter() - begun
    name = "requests" if requests else "slots only"
    print(f"{name:10} {seconds:6.1f} s, peak {peak / GIB:.2f} GiB, exit code {run.returncode}")
    return seconds


def resident(pid: int) -> int:
    """The proportional set size of a process in bytes; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(
        (int(n) << 10 for name, n, *_ in map(str.split, text.splitlines()) if name == "Pss:"), 0
    )


if __name__ == "__main__":
    main()
