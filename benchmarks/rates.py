"""Estimates by a history: a rate for each byte, and a line with a fixed cost for each task.

    python benchmarks/rates.py [--rounds 3]

Four programs run live on inputs of several sizes, each size once a round. The seconds of each
phase are then estimated from the other rounds and compared with the measured ones. The result
is the error factor, in either direction, over all phases of at least 0.2 s.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory

import slotwise
from experiments.dmrs.profiles import write_input
from slotwise.core.history import read_history
from slotwise.core.job import Observation
from slotwise.core.rates import estimate_rates

SIZES = (1_000, 30_000, 1_000_000, 4_000_000, 12_000_000, 24_000_000)
SPLIT_BYTES = 3_000_000
PROGRAMS = ("wordcount", "grep", "sort", "terasort")
LEAST_SECONDS = 0.2
APART = 4.0
"""A line is fitted only if the largest size is at least this many times the smallest."""

Phase = tuple[str, str]
Tasks = Sequence[Observation]
Run = dict[Phase, Tasks]
"""The finished tasks of each phase."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with TemporaryDirectory(prefix="slotwise-") as name:
        folder = Path(name)
        runs = [{size: run(folder, size, number) for size in SIZES} for number in range(rounds)]
    print(f"{'history':>40} {'estimates':>10} {'by the rate':>16} {'with a fixed cost':>20}")
    for label, chosen in CASES.items():
        off: dict[str, list[float]] = defaultdict(list)
        for number, of_round in enumerate(runs):
            others = [other for k, other in enumerate(runs) if k != number]
            for size, phases in of_round.items():
                for known in chosen(others, size):
                    compare(phases, known, off)
        shown = " ".join(f"{spread(off[method]):>18}" for method in ("rate", "line"))
        print(f"{label:>40} {len(off['rate']):10} {shown}")
    print("\nmedian of the factors, and their 90th percentile")


def run(folder: Path, size: int, number: int) -> Run:
    """All programs on inputs of one size, each alone, one after the other."""
    place = folder / f"{size}-{number}"
    place.mkdir()
    text = write_input("wordcount", place, size)
    records = write_input("sort", place, max(size, 1_000))
    history = place / "history.db"
    for program in PROGRAMS:
        job = slotwise.mapreduce(
            program,
            text if program in ("wordcount", "grep") else records,
            place / f"out-{program}",
            split_bytes=SPLIT_BYTES,
            parameters={"pattern": "abc"} if program == "grep" else {},
        )
        result = slotwise.run([job], "fifo", slots=2, history=history)
        assert not result.failed, result.failed
    phases: dict[Phase, list[Observation]] = defaultdict(list)
    for seen in read_history(history):
        phases[seen.program, seen.phase].append(seen)
    return dict(phases)


def others_of(keep: Callable[[int, int], bool]) -> Callable[..., Iterable[list[Run]]]:
    """All runs of other rounds whose size has this relation to that of the estimated run."""

    def chosen(others: Sequence[dict[int, Run]], size: int) -> Iterable[list[Run]]:
        known = [run for one in others for other, run in one.items() if keep(other, size)]
        if known:
            yield known

    return chosen


def one_other(others: Sequence[dict[int, Run]], size: int) -> Iterable[list[Run]]:
    """Each single run of another size."""
    return ([run] for one in others for other, run in one.items() if other != size)


CASES = {
    "all runs but those of the same size": others_of(lambda other, size: other != size),
    "smaller ones only": others_of(lambda other, size: other < size),
    "larger ones only": others_of(lambda other, size: other > size),
    "one other run": one_other,
    "for comparison: the same, run before": others_of(lambda other, size: other == size),
}


def compare(phases: Run, known: Sequence[Run], off: dict[str, list[float]]) -> None:
    """Record the error factors of the estimates of a run."""
    for phase, tasks in phases.items():
        true = sum(task.seconds for task in tasks)
        seen = [task for run in known for task in run.get(phase, ())]
        if true < LEAST_SECONDS or not seen:
            continue
        rate = estimate_rates(seen).by_phase[phase].seconds_per_byte
        by_rate = rate * sum(task.bytes for task in tasks)
        fixed, each = line(seen) or (0.0, rate)
        by_line = sum(fixed + each * task.bytes for task in tasks)
        for method, estimate in (("rate", by_rate), ("line", by_line)):
            off[method].append(exp(abs(log(max(estimate, 1e-9) / true))))


def line(tasks: Tasks) -> tuple[float, float] | None:
    """Fixed cost and slope by medians of pairs (Theil and Sen); None if sizes are similar."""
    sizes = [task.bytes for task in tasks]
    if max(sizes) < APART * min(sizes):
        return None
    slopes = [
        (one.seconds - other.seconds) / (one.bytes - other.bytes)
        for one, other in combinations(tasks, 2)
        if one.bytes != other.bytes
    ]
    slope = max(0.0, statistics.median(slopes))
    return max(0.0, statistics.median(t.seconds - slope * t.bytes for t in tasks)), slope


def spread(factors: Sequence[float]) -> str:
    """Their median and 90th percentile."""
    ordered = sorted(factors)
    return f"{statistics.median(ordered):.2f}, {ordered[int(0.9 * (len(ordered) - 1))]:.3g}"


if __name__ == "__main__":
    main()
