"""Small work submitted beside large work on 2 slots: response, as a ratio to alone.

A search of scikit-learn and a computation of Dask's delayed calls, each beside a large one of
its kind that is under way. On a session the two are an executor each, under FLEX. Plain joblib
(loky) and plain Dask (threads, processes and a LocalCluster) run the same on one pool of 2
workers, as in a program in which two threads use the same library.

Plain joblib and Dask on a pool submit a few tasks in advance, so that the small work has turns.
A LocalCluster, and joblib with `pre_dispatch="all"`, know all tasks of the large work first.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import joblib
from distributed import Client, LocalCluster
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV

import dask
import slotwise
import slotwise.integrations.joblib
from check import Result, serve

SLOTS = 2
HEAD_START = 0.5
"""Seconds by which the large work begins before the small one."""

Work = Callable[[], object]
Config = Callable[[], AbstractContextManager[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3, help="measurements of each ratio")
    parser.add_argument("--large", type=int, default=20, help="the large work in small ones")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"small beside large: {SLOTS} slots, the large work is {options.large} small ones")
    with slotwise.Session(SLOTS, "flex") as session:
        ours = partial(joblib.parallel_config, "slotwise", session=session, n_jobs=SLOTS)
        measure("scikit-learn search", "slotwise, flex", search, ours, options)
        dask_ahead = partial(session.executor, ahead=100)
        measure("Dask computation", "slotwise, flex", computation, dask_ahead, options)
        measure(
            "Dask computation", "slotwise, no ahead", computation, session.executor, options
        )
    loky = partial(joblib.parallel_config, "loky", n_jobs=SLOTS)
    measure("scikit-learn search", "plain joblib (loky)", search, loky, options)
    all_first = partial(search, pre_dispatch="all")
    measure("scikit-learn search", "plain joblib, all first", all_first, loky, options)
    for name, pool in (
        ("plain Dask (threads)", ThreadPoolExecutor(SLOTS)),
        ("plain Dask (processes)", ProcessPoolExecutor(SLOTS)),
    ):
        measure("Dask computation", name, computation, partial(nullcontext, pool), options)
    with (
        LocalCluster(SLOTS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        cluster_of_two = partial(nullcontext, client)
        measure(
            "Dask computation", "plain Dask (cluster)", computation, cluster_of_two, options
        )


def measure(
    kind: str,
    name: str,
    make: Callable[[Config, int], Work],
    config: Config,
    options: argparse.Namespace,
) -> None:
    """Print a row of the table."""
    measured = [beside_alone(make, config, options.large) for _ in range(options.times)]
    alone = statistics.median(alone for alone, _ in measured)
    times = statistics.median(beside / alone for alone, beside in measured)
    print(f"{kind:20} {name:24} alone {alone:5.2f} s   beside x {times:5.1f}")


def check() -> Iterator[Result]:
    """Under `flex` the small work beside the large takes at most twice its time alone."""
    warnings.simplefilter("ignore")
    with slotwise.Session(SLOTS, "flex") as session:
        joblib_config = partial(
            joblib.parallel_config, "slotwise", session=session, n_jobs=SLOTS
        )
        dask_config = partial(session.executor, ahead=100)
        for name, make, config in (
            ("scikit-learn search", search, joblib_config),
            ("Dask computation", computation, dask_config),
        ):
            alone, beside = beside_alone(make, config, 10)
            yield Result(name, beside / alone, 2.0, "x the time alone", cause=NO_SHARE)


NO_SHARE = (
    "1.4 and 1.6 on 2 processors (EXPERIMENTS.md); other work on the machine delays it as well"
)


def beside_alone(
    make: Callable[[Config, int], Work], config: Config, large: int
) -> tuple[float, float]:
    """The seconds of the small work alone, and beside the large one."""
    make(config, 1)()  # Workers are up, and have imported what they need.
    alone = seconds(make(config, 1))
    other = threading.Thread(target=make(config, large))
    other.start()
    time.sleep(HEAD_START)
    beside = seconds(make(config, 1))
    other.join()
    return alone, beside


def seconds(work: Work) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def search(config: Config, size: int, pre_dispatch: str = "2*n_jobs") -> Work:
    """A search of 4 settings with 3 folds, `size` times as many settings."""
    rows, labels = make_classification(400, random_state=0)
    depths = {"max_depth": [3] * 4 * size}
    forest = RandomForestClassifier(20, random_state=0, n_jobs=1)

    def work() -> None:
        with config():
            found = GridSearchCV(forest, depths, cv=3, refit=False, pre_dispatch=pre_dispatch)
            found.fit(rows, labels)

    return work


def computation(config: Config, size: int) -> Work:
    """A tree of sums over 12 calls of 50 ms, `size` times as many calls."""
    leaves = [dask.delayed(rest)(number) for number in range(12 * size)]
    total = dask.delayed(sum)([dask.delayed(sum)(leaves[n::4]) for n in range(4)])

    def work() -> None:
        with config() as executor:
            dask.compute(total, scheduler=executor)

    return work


def rest(number: int) -> int:
    time.sleep(0.05)
    return number


if __name__ == "__main__":
    serve(main, check)
