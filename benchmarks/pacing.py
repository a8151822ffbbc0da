"""Emulated hosts at chosen speeds: stated and measured speed, and the cost to the manager.

One task after the other computes for about a second, in a worker that runs only a part of the
time. Speed by work: the time of the same loop on a slot of speed 1 before and after, over its
time here, the median of several rounds; on a shared machine, whose processor speed varies, a
single round may be wrong by a third. Share: the part of the duration of the task in which it
ran or waited for a processor, so was not stopped; this is the part under our control. Short:
the speed by work of 200 tasks of 5 ms, shorter than a run and a stop. Busy: the share while the
manager computes in Python all the time, so that the pacing thread competes for the interpreter.
Cost: processor time of the manager while it waits, a second.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator

from check import Result, serve
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Workers

SPEEDS = (0.9, 0.75, 0.5, 0.25, 0.1)
ROUNDS = 7
Shares = tuple[float, float]


def compute(loops: int) -> Shares:
    """A loop of fixed size: its seconds, and those in which it ran or waited to run."""

    def runnable() -> float:
        with open("/proc/self/schedstat") as schedule:
            return sum(map(int, schedule.read().split()[:2])) / 1e9

    begun, before = time.perf_counter(), runnable()
    total = 0
    for number in range(loops):
        total += number * number
    return time.perf_counter() - begun, runnable() - before


def run(workers: Workers, slot: int, loops: int) -> Shares:
    """The same in a worker."""
    workers.start(slot, "loop", compute, (loops,))
    (reply,) = workers.wait(None)
    outcome = reply.opened()
    assert outcome.status == "done", outcome.value
    assert isinstance(outcome.value, tuple)
    return outcome.value


def speed_by_work(workers: Workers, slot: int, loops: int) -> float:
    """The speed of a slot relative to one of speed 1, measured just before and just after."""
    before = run(workers, 0, loops)[0]
    here = run(workers, slot, loops)[0]
    return (before + run(workers, 0, loops)[0]) / 2 / here


def per_second(work: Callable[[], object]) -> tuple[object, float]:
    """The result of a call, and the processor time of this process during it, a second."""
    begun, used = time.perf_counter(), time.process_time()
    value = work()
    return value, (time.process_time() - used) / (time.perf_counter() - begun)


def busy(work: Callable[[], Shares]) -> Shares:
    """The same while another thread of this process computes."""
    is_over = threading.Event()

    def burn() -> None:
        while not is_over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        return work()
    finally:
        is_over.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a task")
    options = parser.parse_args()
    with Processes(1 + len(SPEEDS), speeds=(1.0, *SPEEDS)) as workers:
        trial = 1_000_000
        run(workers, 0, trial)
        a_second = trial / run(workers, 0, trial)[0]
        print("stated  by work   share   short    busy   cost to the manager")
        for slot, speed in enumerate(SPEEDS, 1):
            loops = int(a_second * options.seconds * speed)
            run(workers, slot, 1000)
            by_work = statistics.median(
                speed_by_work(workers, slot, loops // 2) for _ in range(ROUNDS)
            )
            (wall, used), cost = per_second(lambda s=slot, n=loops: run(workers, s, n))
            five = int(a_second * 0.005)
            fast = sum(run(workers, 0, five)[0] for _ in range(200))
            short = fast / sum(run(workers, slot, five)[0] for _ in range(200))
            troubled = busy(lambda s=slot, n=loops: run(workers, s, n))
            print(
                f"{speed:6.2f} {by_work:8.3f} {used / wall:7.3f} {short:7.3f}"
                f" {troubled[1] / troubled[0]:7.3f}   {cost:.2%} of a core"
            )


def check() -> Iterator[Result]:
    """How far the part of the time in which a task runs is from the stated speed, at most."""
    off = []
    with Processes(1 + len(SPEEDS), speeds=(1.0, *SPEEDS)) as workers:
        trial = 1_000_000
        run(workers, 0, trial)
        a_second = trial / run(workers, 0, trial)[0]
        for slot, speed in enumerate(SPEEDS, 1):
            run(workers, slot, 1000)
            wall, used = run(workers, slot, int(2 * a_second * speed))
            off.append(100 * abs(used / wall / speed - 1))
    yield Result("a stated speed, the worst of five", max(off), 15.0, "% off", noise=3.0)


if __name__ == "__main__":
    serve(main, check)
