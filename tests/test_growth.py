"""What commands and sessions do grows with the number of jobs, not with its square.

Each test counts the bytecode instructions of slotwise, or the bytes that are held, for n and
for 2n jobs, never seconds. Few jobs are alive at once, unless the name of the case says so.
"""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import slotwise
from slotwise import Job, Phase, Tasks
from slotwise.core.history import append_history, read_history
from slotwise.core.job import Observation
from slotwise.workload.file import read_workload

PACKAGE = str(Path(slotwise.__file__).parent)
GROWTH = 2.4
"""The most that twice the jobs may take: linear work takes twice as much, and a part of work
that is quadratic may not be larger than about a fifth."""


class Counter:
    """Counts the bytecode instructions of slotwise, in all threads that begin meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        """Count an instruction, or begin to count those of a function."""
        if event == "call":
            if not frame.f_code.co_filename.startswith(PACKAGE):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            self.count += 1
        return self


@contextmanager
def counting() -> Iterator[Counter]:
    """Context whose counter counts."""
    counter, before = Counter(), sys.gettrace()
    threading.settrace(counter)
    sys.settrace(counter)
    try:
        yield counter
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]


def instructions(action: Callable[[], object]) -> int:
    """The instructions that this takes."""
    with counting() as counter:
        action()
    return counter.count


def bytes_held(action: Callable[[], object]) -> int:
    """The most bytes that this holds at once."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def jobs(count: int, gap: float, seconds: float = 1.0, phases: int = 1) -> list[Job]:
    """Jobs of phases of one task each that arrive one after the other."""
    of_job = tuple(Phase(f"work-{n}", Tasks(1, seconds)) for n in range(phases))
    return [Job(f"job-{number}", of_job, number * gap) for number in range(count)]


def various(count: int) -> list[Job]:
    """Jobs of different sizes that are all there at the beginning."""
    return [
        Job(f"job-{n}", (Phase("work", Tasks(1 + n % 5, 1.0 + n % 7)),), weight=1.0 + n % 3)
        for n in range(count)
    ]


def written(path: Path, count: int) -> Path:
    """A workload file."""
    lines = ["slotwise: 1", "jobs:"]
    for n in range(count):
        lines.append(f"  - {{id: job-{n}, phases: [{{name: work, tasks: 2, work: {n + 1}}}]}}")
    path.write_text("\n".join(lines))
    return path


def log_of(path: Path, count: int) -> Path:
    """A log of jobs of which few are alive at once."""
    slotwise.simulate(jobs(count, 1.0), "fair", slots=2, log=path)
    return path


def result_of(path: Path) -> slotwise.Result:
    """The result of a run by its log."""
    return slotwise.Result.of_log(slotwise.read_log(path))


def double(x: int) -> int:
    """What the calls of sessions do."""
    return 2 * x


def call_in_turn(count: int) -> None:
    """Call it in a session, one call after the other."""
    with slotwise.Session(1) as session:
        for number in range(count):
            session.submit(double, number).result()


def call_at_once(count: int) -> None:
    """Call it in a session, all calls at once."""
    with slotwise.Session(1) as session:
        wait([session.submit(double, number) for number in range(count)])


def run_jobs(count: int) -> None:
    """Run jobs in a session, one after the other."""
    with slotwise.Session(1) as session:
        for job in jobs(count, 0.0, 0.0):
            session.run(job).result()


def remember(path: Path, count: int) -> None:
    """Add the tasks of programs to a history, and read it."""
    append_history(
        path, [Observation(f"p{n}", "map", 1, "host", 1.0, 1.0) for n in range(count)]
    )
    read_history(path)


Prepared = Callable[[Path, int], Callable[[], object]]


def plainly(use: Callable[[int], object]) -> Prepared:
    """A use of a number of jobs."""
    return lambda folder, count: lambda: use(count)


def of_log(use: Callable[[Path], object]) -> Prepared:
    """A use of the log of a simulation."""

    def prepare(folder: Path, count: int) -> Callable[[], object]:
        path = log_of(folder / f"{count}.log", count)
        return lambda: use(path)

    return prepare


def of_workload(folder: Path, count: int) -> Callable[[], object]:
    """Reading a workload file."""
    path = written(folder / f"{count}.yaml", count)
    return lambda: read_workload(path)


def simulated(scheduler: str, gap: float = 1.0, phases: int = 1) -> Prepared:
    """A simulation; with a small gap, nearly all jobs are alive at once."""
    return plainly(lambda n: slotwise.simulate(jobs(n, gap, phases=phases), scheduler, slots=2))


ALL = ("fifo", "fair", "flex", "flex-on-fair", "las", "uwfq", "flowflex", "dmrs")

CASES: dict[str, tuple[int, Prepared]] = {
    "plan-flex": (800, plainly(lambda n: slotwise.plan(various(n), slots=4))),
    "plan-fair": (100, plainly(lambda n: slotwise.plan(various(n), "fair", slots=4))),
    "plan-tasks": (50, plainly(lambda n: slotwise.plan_tasks(various(n), "dmrs", slots=4))),
    "workload": (50, of_workload),
    **{f"simulate-{name}": (50, simulated(name)) for name in ALL},
    "simulate-fifo-alive": (100, simulated("fifo", 0.001)),
    "simulate-fair-alive": (100, simulated("fair", 0.001)),
    "simulate-flex-alive": (100, simulated("flex", 0.001)),
    "simulate-fair-alive-parallel": (70, simulated("fair", 0.001, 3)),
    "simulate-flex-alive-parallel": (70, simulated("flex", 0.001, 3)),
    "run": (50, plainly(lambda n: slotwise.run(jobs(n, 0.0, 0.0), "fair", slots=1))),
    "compare": (30, plainly(lambda n: slotwise.compare(jobs(n, 1.0), slots=2))),
    "read": (100, of_log(slotwise.read_log)),
    "metrics": (100, of_log(result_of)),
    "report": (50, of_log(lambda path: result_of(path).report(path.with_suffix(".html")))),
    "replay": (100, of_log(slotwise.replay)),
    "waits": (100, of_log(slotwise.explain)),
    "explain": (100, of_log(lambda path: slotwise.explain(path, "job-1", 1.5))),
    "history": (100, lambda folder, n: lambda: remember(folder / f"{n}.db", n)),
    "session-calls-in-turn": (30, plainly(call_in_turn)),
    "session-calls-at-once": (50, plainly(call_at_once)),
    "session-jobs": (20, plainly(run_jobs)),
}
"""By case: n, and what is prepared for a number of jobs and then counted."""


@pytest.fixture(autouse=True)
def _one_change_for_ten_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are slight where 10 phases are ready, not 100, so that small tests suffice."""
    monkeypatch.setattr("slotwise.policy.adjusting.SLIGHT", 10)
    monkeypatch.setattr("slotwise.core.changes.SLIGHT", 10)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_twice_the_jobs_take_twice_the_instructions(case: str, tmp_path: Path) -> None:
    """Not four times, as a loop over all jobs for each job would."""
    count, prepare = CASES[case]
    prepare(tmp_path, 2)()  # What is computed once is computed here.
    once, twice = (instructions(prepare(tmp_path, n)) for n in (count, 2 * count))
    assert once > 100
    assert twice <= GROWTH * once, f"{once} instructions, then {twice}: {twice / once:.2f}"


HOLDING: dict[str, tuple[int, Prepared]] = {
    "plan-flex": (200, plainly(lambda n: slotwise.plan(various(n), slots=4))),
    "simulate-fair": (200, simulated("fair")),
    "simulate-fair-alive": (200, simulated("fair", 0.001)),
    "simulate-flex-alive": (200, simulated("flex", 0.001)),
    "metrics": (200, of_log(result_of)),
    "report": (100, of_log(lambda path: result_of(path).report(path.with_suffix(".html")))),
    "waits": (200, of_log(slotwise.explain)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", HOLDING)
def test_twice_the_jobs_hold_twice_the_memory(case: str, tmp_path: Path) -> None:
    """At most: what is held of each job does not depend on the others."""
    count, prepare = HOLDING[case]
    prepare(tmp_path, 2)()
    once, twice = (bytes_held(prepare(tmp_path, n)) for n in (count, 2 * count))
    assert twice <= GROWTH * once, f"{once} bytes, then {twice}: {twice / once:.2f}"
