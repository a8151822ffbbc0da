"""The distance of FLEX from the optimum, metric by metric, with and without min shares.

Random problems of up to five jobs after FLEX 4.1, each solved by FLEX and by an oracle that
solves a linear program for every order of completion. `mean` and `worst` are ratios of value to
optimum. Where the optimum is 0 there is no ratio, and "0, not met" counts the values above 0.
`proven` counts values that their bound proves optimal; `bound` is the mean distance of the
bound below the optimum, relative to the optimum.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from check import COUNTED, Result, serve
from oracles.instances import MINIMAX, MINISUM
from oracles.quality import HEADER, line, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=150, help="problems of each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--metric", help="only metrics with this in their names")
    options = parser.parse_args()
    print(HEADER)
    began = time.perf_counter()
    for metric in (*MINISUM, *MINIMAX):
        if options.metric and options.metric not in f"{metric.aggregate} {metric.name}":
            continue
        for with_least in (False, True):
            print(line(measure(metric, with_least, options.count, options.seed)), flush=True)
    print(f"in {time.perf_counter() - began:.0f} s", file=sys.stderr)


def check() -> Iterator[Result]:
    """The worst and the mean distance from the optimum, in percent."""
    for aggregate, metrics, goal in (("sum", MINISUM, 0.2), ("max", MINIMAX, 0.001)):
        rows = [measure(metric, least, 12) for metric in metrics for least in (False, True)]
        above = 100 * (max(row.mean_ratio for row in rows) - 1)
        name = f"{aggregate} of a metric, mean of small problems"
        yield Result(name, round(above, 6), goal, "% above the optimum", noise=COUNTED)


if __name__ == "__main__":
    serve(main, check)
