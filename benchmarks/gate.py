"""Computations of several clients on one Dask cluster: plain, with priorities, with the gate.

`small`      the response of a small graph that comes one second after a large one, for several
             kinds of graphs. `fifo_timeout="0s"`, as if more than Dask's minute were between
             them. Goal: at least 4 times faster than plain Dask.
`alone`      the price for a large graph that is alone: at most 5 % for tasks of 100 ms and 15 %
             for tasks of 10 ms.
`memory`     how many results wait in memory while a graph reads input faster than it processes
             it, alone and beside a second one.
`clients`    ten clients with a graph each, half of them small.
`decisions`  the CPU time of the gate for each task while 100,000 are held, without Dask's own
             transitions: under 0.2 ms. And the time that Dask needs for a joining worker then.

Each part runs all ways in turn on new clusters of two workers with one thread each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask.array
import dask.dataframe
import pandas
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

import dask
import slotwise.dask
from check import Result, serve

PARTS = ["small", "alone", "memory", "clients", "decisions"]
WAYS = ("plain", "priority", "gate, fair", "gate, flex")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=100_000, help="of `decisions`")
    options = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "small": partial(small, options.runs),
        "alone": partial(alone, options.runs),
        "memory": memory,
        "clients": partial(clients, options.runs),
        "decisions": partial(decisions, options.tasks),
    }
    for part in options.parts:
        print(f"== {part}", flush=True)
        parts[part]()


def check() -> Iterator[Result]:
    """A small graph at least 4 times faster beside a large one; alone at most 5 % more time."""
    ways = ("plain", "gate, fair", "gate, flex")
    graph = SMALL["delayed tree"]
    times = {way: min(beside(way, graph)[0] for _ in range(2)) for way in ways}
    for way in ways[1:]:
        value = times["plain"] / times[way]
        unit = "x faster than on plain Dask"
        yield Result(f"{way}: a small graph beside a large one", value, 4.0, unit, "higher")
    for name, seconds, leaves, goal in (("100 ms", 0.1, 30, 1.05), ("10 ms", 0.01, 200, 1.15)):
        plain, gated = alone_seconds(seconds, leaves, 3)
        unit = "x the time of plain Dask"
        yield Result(
            f"alone, tasks of {name}", gated / plain, goal, unit, cause=ALONE, noise=0.2
        )


ALONE = (
    "4 % less to 2 % more on a quiet machine for tasks of 100 ms, to 15 % for 10 ms: the gate"
    " takes 0.065 ms of the scheduler for a task, on a busy machine 0.24 ms"
    " (docs/internals/gate.md)"
)


@contextmanager
def cluster(way: str) -> Iterator[LocalCluster]:
    """A cluster with the gate, if the way has one."""
    with (
        dask.config.set({"distributed.logging.distributed": "error"}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as made,
    ):
        if way.startswith("gate"):
            with Client(made, set_as_default=False) as client:
                slotwise.dask.install(client, scheduler=way.split()[-1])
        yield made


@contextmanager
def client(made: LocalCluster, name: str) -> Iterator[Client]:
    """A client of a cluster."""
    with Client(made, name=name, set_as_default=False) as one:
        yield one


# Graphs: each is a function of a client and of the arguments of `compute`.


@dask.delayed(pure=False)
def leaf(number: int, seconds: float) -> int:
    """A task of this length."""
    time.sleep(seconds)
    return number


@dask.delayed(pure=False)
def add(*numbers: int) -> int:
    """A sum."""
    return sum(numbers)


def tree(leaves: int, seconds: float, one: Client, **options: Any) -> Any:
    """A tree of sums."""
    level = [leaf(number, seconds) for number in range(leaves)]
    while len(level) > 1:
        level = [add(*level[i : i + 2]) for i in range(0, len(level), 2)]
    return one.compute(level[0], **options)


def slowly(block: Any, seconds: float) -> Any:
    """The block, after this time."""
    time.sleep(seconds)
    return block


def array(size: int, seconds: float, one: Client, **options: Any) -> Any:
    """x + x.T over size * size blocks, each found in this time."""
    x = dask.array.ones((size * 50, size * 50), chunks=(50, 50))
    x = x.map_blocks(slowly, seconds, dtype=x.dtype, name=f"slowly-{time.time()}")
    return one.compute((x + x.T).sum(), **options)


def groupby(one: Client, **options: Any) -> Any:
    """Means by key of a dataframe."""
    return one.compute(frame().groupby("key").value.mean(), **options)


def shuffle(one: Client, **options: Any) -> Any:
    """A p2p shuffle of a dataframe."""
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        return one.compute(frame().shuffle("key").value.sum(), **options)


def frame() -> Any:
    """A dataframe of eight partitions; each time another one."""
    rows = pandas.DataFrame({"key": [n % 13 for n in range(4_000)], "value": time.time()})
    return dask.dataframe.from_pandas(rows, npartitions=8)


def futures(one: Client, **options: Any) -> Any:
    """The sum of twelve calls, as futures."""
    parts = one.map(slowly, range(12), seconds=0.03, pure=False, **options)
    return one.submit(sum, parts, **options)


SMALL: dict[str, Callable[..., Any]] = {
    "delayed tree": partial(tree, 12, 0.03),
    "futures": futures,
    "array": partial(array, 3, 0.03),
    "groupby": groupby,
    "p2p shuffle": shuffle,
}


def small(runs: int) -> None:
    """The response of small graphs behind a large one."""
    print(f"{'small graph':14}" + "".join(f"{way:>24}" for way in WAYS))
    print(f"{'':14}" + f"{'small, large (s)':>24}" * len(WAYS))
    for name, graph in SMALL.items():
        shown, plain = [], 0.0
        for way in WAYS:
            times = [beside(way, graph) for _ in range(runs)]
            response = statistics.median(one for one, _ in times)
            large = statistics.median(other for _, other in times)
            plain = plain or response
            shown.append(f"{response:.2f} (1/{plain / response:.1f}), {large:.2f}")
        print(f"{name:14}" + "".join(f"{text:>24}" for text in shown), flush=True)


def beside(way: str, graph: Callable[..., Any]) -> tuple[float, float]:
    """The responses of a small graph and of the large one before it."""
    first: dict[str, Any] = {"fifo_timeout": "0s"}
    with cluster(way) as made, client(made, "large") as one, client(made, "small") as other:
        graph(other).result()  # What is imported once.
        begun = time.perf_counter()
        large = tree(150, 0.05, one, **first)
        time.sleep(1)
        came = time.perf_counter()
        graph(other, **first, **({"priority": 10} if way == "priority" else {})).result()
        ended = time.perf_counter()
        large.result()
        return ended - came, time.perf_counter() - begun


def alone(runs: int) -> None:
    """The price of the gate for a graph that is alone."""
    for seconds, leaves in ((0.1, 60), (0.01, 400)):
        plain, gated = alone_seconds(seconds, leaves, runs)
        print(
            f"{leaves} tasks of {seconds * 1000:.0f} ms and their sums: plain {plain:.2f} s,"
            f" gate {gated:.2f} s, {100 * (gated / plain - 1):+.1f} %",
            flush=True,
        )


def alone_seconds(seconds: float, leaves: int, runs: int) -> tuple[float, float]:
    """The times of a graph without and with the gate, medians."""
    times: dict[str, list[float]] = {way: [] for way in ("plain", "gate, fair")}
    for _ in range(runs):
        for way, found in times.items():
            with cluster(way) as made, client(made, "alone") as one:
                tree(8, 0.0, one).result()
                begun = time.perf_counter()
                tree(leaves, seconds, one).result()
                found.append(time.perf_counter() - begun)
    plain, gated = (statistics.median(found) for found in times.values())
    return plain, gated


def memory() -> None:
    """The most results of `slowly` that are in memory, of 300 that `leaf` has to process."""
    for graphs in (1, 2):
        for way in ("plain", "gate, fifo", "gate, fair", "gate, flex"):
            with cluster(way) as made:
                plugin = MostHeld("slowly")
                made.scheduler.add_plugin(plugin, name="most-held")
                opened = [
                    Client(made, name=f"c{n}", set_as_default=False) for n in range(graphs)
                ]
                sent = [pipelines(one, fifo_timeout="0s") for one in opened]
                for future in sent:
                    future.result()
                print(f"{graphs} graphs, {way:12} {plugin.most:4} results at once", flush=True)
                for one in opened:
                    one.close()


def pipelines(one: Client, **options: Any) -> Any:
    """The sum of 300 numbers, each read in 5 ms and processed in 25 ms."""
    read = dask.delayed(slowly, pure=False)
    return one.compute(add(*[leaf(read(n, 0.005), 0.025) for n in range(300)]), **options)


class MostHeld(SchedulerPlugin):
    """The largest number of results of a prefix that were in memory at once."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.most = prefix, 0
        self._held: set[Any] = set()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task has changed its state."""
        if str(key).startswith(self.prefix):
            self._held.discard(key)
            if finish == "memory":
                self._held.add(key)
                self.most = max(self.most, len(self._held))


def clients(runs: int) -> None:
    """Ten clients at once: mean responses of five small and five large graphs."""
    for way in WAYS:
        means: dict[str, list[float]] = {"small": [], "large": []}
        for _ in range(runs):
            with cluster(way) as made:
                for kind, found in ten_clients(made, way).items():
                    means[kind].append(statistics.mean(found))
        print(
            f"{way:12} small {statistics.median(means['small']):6.2f} s,"
            f" large {statistics.median(means['large']):6.2f} s",
            flush=True,
        )


def ten_clients(made: LocalCluster, way: str) -> dict[str, list[float]]:
    """The responses by kind of graph; a client comes every 0.1 s."""
    found: dict[str, list[float]] = {"small": [], "large": []}
    ends: dict[Any, float] = {}
    kinds: dict[Any, tuple[str, float]] = {}
    opened = [Client(made, name=f"c{n}", set_as_default=False) for n in range(10)]
    for number, one in enumerate(opened):
        kind, leaves = ("small", 4) if number % 2 else ("large", 40)
        options = {"priority": 10} if way == "priority" and kind == "small" else {}
        future = tree(leaves, 0.03, one, fifo_timeout="0s", **options)
        kinds[future] = kind, time.perf_counter()
        future.add_done_callback(lambda done: ends.setdefault(done, time.perf_counter()))
        time.sleep(0.1)
    for future, (kind, begun) in kinds.items():
        future.result()
        while future not in ends:
            time.sleep(0.001)
        found[kind].append(ends[future] - begun)
    for one in opened:
        one.close()
    return found


def decisions(tasks: int) -> None:
    """The CPU time of the gate for each task while many are held, and of a joining worker."""
    for scheduler in ("fair", "flex"):
        with cluster(f"gate, {scheduler}") as made, client(made, "one") as one:
            spent = Parts(made.scheduler)
            futures = one.map(int, range(tasks), pure=False)
            while spent.gate._computations.launches < 10:
                time.sleep(0.1)
            arrival, _ = spent.take()
            begun = spent.gate._computations.launches
            time.sleep(10)
            own, of_dask = spent.take()
            count = spent.gate._computations.launches - begun
            held = len(spent.gate._holding)
            made.scale(3)
            while len(made.scheduler.workers) < 3:
                time.sleep(0.1)
            time.sleep(2)
            each, dask_each = 1000 * own / count, 1000 * of_dask / count
            print(
                f"{scheduler}: {each:.3f} ms for each of {count} tasks while {held} were held,"
                f" and {dask_each:.3f} ms of Dask to begin it;"
                f" {1000 * arrival / tasks:.3f} ms for the arrival of each;"
                f" {1000 * spent.joining.seconds:.0f} ms of Dask for a joining worker",
                flush=True,
            )
            del futures  # A client that has cancelled many of them closes slowly.


class Parts:
    """What the hooks and turns of the gate have taken, and the transitions in its turns."""

    def __init__(self, scheduler: Any) -> None:
        self.gate = scheduler.plugins["slotwise"]
        self.hooks = [Spent(self.gate, name) for name in ("transition", "update_graph")]
        self.turns = Spent(self.gate, "_turn")
        self.transitions = Spent(scheduler, "transitions", within=self.turns)
        self.joining = Spent(scheduler, "bulk_schedule_unrunnable_after_adding_worker")
        self.hooks_within = Spent(self.gate, "transition", within=self.transitions)

    def take(self) -> tuple[float, float]:
        """The seconds since the last call: of the gate, of Dask's transitions in its turns."""
        hooks = sum(one.take() for one in self.hooks)
        of_dask = self.transitions.take()
        own = self.turns.take() - of_dask + hooks
        return own, of_dask - self.hooks_within.take()


class Spent:
    """A method, with the CPU seconds of its thread that it takes, if another one is running."""

    def __init__(self, owner: Any, name: str, within: Spent | None = None) -> None:
        self.function, self.seconds = getattr(owner, name), 0.0
        self.is_running, self.within = False, within
        setattr(owner, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.within is not None and not self.within.is_running:
            return self.function(*args, **kwargs)
        self.is_running, begun = True, time.thread_time()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.seconds += time.thread_time() - begun
            self.is_running = False

    def take(self) -> float:
        """The seconds since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


if __name__ == "__main__":
    serve(main, check)
