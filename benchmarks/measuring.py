"""How benchmarks measure: in turn, as ratios of one run, and goals in time by a yardstick.

Machines differ and are shared, so that seconds say little. Each contender is measured beside
its peers, in turn, and the ratio of each round counts; of several rounds the median. Goals in
milliseconds are multiples of `yardstick`, a fixed loop in Python, measured in the same run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

YARDSTICK_MS = 30.0
"""What the yardstick takes on the machine for which goals in milliseconds are stated."""


LOOP = "x the time of the yardstick"
"""The unit of what is measured in it."""


def seconds_of(
    act: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """The seconds of one call."""
    begun = clock()
    act()
    return clock() - begun


def best_of(
    act: Callable[[], object],
    least: int = 3,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The seconds of the shortest of `least` calls, and of more while they fit into a time."""
    best, begun, calls = float("inf"), time.perf_counter(), 0
    while calls < least or time.perf_counter() - begun < seconds:
        best = min(best, seconds_of(act, clock))
        calls += 1
    return best


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int = 3) -> dict[str, list[float]]:
    """What each way returns in each round; one way after another in a round."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return found


def ratio(found: Mapping[str, list[float]], one: str, other: str) -> float:
    """The median of the ratios of one way to another, round by round."""
    return median(a / b for a, b in zip(found[one], found[other], strict=True))


def yardstick() -> float:
    """Processor seconds of a loop of 500,000 look-ups, additions and stores."""
    sums: dict[int, int] = {}
    begun = time.process_time()
    for number in range(500_000):
        key = number & 1023
        sums[key] = sums.get(key, 0) + number
    return time.process_time() - begun


def in_yardsticks(act: Callable[[], object], rounds: int = 5) -> float:
    """The processor time of a call by that of the yardstick before it; the median."""
    return median(
        seconds_of(act, time.process_time) / beside
        for beside in (yardstick() for _ in range(rounds))
    )


def yardsticks(milliseconds: float) -> float:
    """A goal in milliseconds as a multiple of the yardstick."""
    return milliseconds / YARDSTICK_MS


def descendants() -> set[int]:
    """The ids of the processes that this one has started, and of those that they have."""
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        found |= new
        new = {child for pid in new for child in _children(pid)} - found
    return found - {os.getpid()}


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (thread / "children").read_text().split())


def processor_seconds(pids: Iterable[int]) -> float:
    """The processor time of this process and of others that run."""
    threads = (thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir())
    others = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    return time.process_time() + others / 1e9
