"""The time of FAIR for many jobs in nested pools, compared with other ways to the same shares.

Fair.share for 10,000 jobs in 100 pools, flat and nested three deep; as a ratio to it in the
same run: the Hadoop Fair Scheduler's way, in arrays (the level of every pool is doubled until
it is too high, then bisected 25 times). Bisection is approximate; its largest error of a share
is printed, relative to the mean share. Goal: well under 10 ms. Then the whole decision, from
the state of a run to an allocation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from check import Result, serve
from measuring import LOOP, best_of, in_yardsticks, yardsticks
from slotwise.core.cluster import Cluster
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.claims import allocate
from slotwise.policy.fair import Fair

INF = float("inf")
HALVINGS = 25
CAUSE = (
    "FAIR has one form, pool by pool; in arrays, which took half the time here, it was less"
    " than three times as fast for 1,000 jobs (docs/decisions/0009-numba.md)"
)
Array = NDArray[np.float64]


def main() -> None:
    print(f"{'':30} {'FAIR':>9} {'bisection':>11} {'its error':>10}")
    for name, jobs, pools, depth in (
        ("10,000 jobs, 100 pools, flat", 10_000, 100, 1),
        ("10,000 jobs, 100 pools, nested", 10_000, 100, 3),
        ("10,000 jobs, 1 pool", 10_000, 1, 1),
        ("1,000 jobs, 20 pools, nested", 1_000, 20, 3),
    ):
        claims = generate(jobs, pools, depth)
        exact = np.array(Fair().share(claims))
        fast = least(lambda claims=claims: Fair().share(claims))
        halved = least(lambda claims=claims: by_halving(claims))
        error = np.abs(by_halving(claims) - exact).max() / exact.mean()
        print(f"{name:30} {fast * 1e3:6.2f} ms {halved / fast:9.2f} x {error:10.0e}")
    print("\nfrom the state of a run to an allocation, 10,000 jobs in 100 pools:")
    for name, depth in (("flat", 1), ("nested", 3)):
        state = state_of(10_000, 100, depth)
        whole = least(lambda state=state: allocate(Fair(), state))
        print(f"{name:>8}: {whole * 1e3:.2f} ms")


def check() -> Iterator[Result]:
    """FAIR for 10,000 jobs in 100 pools: well under 10 ms."""
    for name, depth in (("flat", 1), ("nested", 3)):
        claims = generate(10_000, 100, depth)
        value = in_yardsticks(lambda claims=claims: Fair().share(claims))
        name = f"10,000 jobs, 100 pools, {name}"
        yield Result(name, value, yardsticks(5), LOOP, cause=CAUSE)


def least(act: Callable[[], object]) -> float:
    """The least processor time of the runs that fit into half a second, at least ten."""
    return best_of(act, 10, 0.5, time.process_time)


def pools_of(pools: int, depth: int) -> list[tuple[float, int, float, int]]:
    """Weight, min share, max share and parent of pools: leaves after all others."""
    rng = np.random.default_rng(pools)
    made: list[tuple[float, int, float, int]] = []
    below = [-1]
    for level in range(1, depth + 1):
        # Five pools at the top, four in each of these, and the leaves in these in turn.
        count = pools if level == depth else len(below) * (5 if level == 1 else 4)
        level_of = range(len(made), len(made) + count)
        for number in range(count):
            min_share = int(rng.choice([0, 0, 20]))
            max_share = INF if number % 3 < 2 else 200.0 * 10 ** (depth - level)
            made.append((rng.uniform(0.5, 4), min_share, max_share, below[number % len(below)]))
        below = list(level_of)
    return made


def generate(jobs: int, pools: int, depth: int) -> Claims:
    """Jobs of 1 to 100 tasks in the pools that hold jobs, on as many slots as jobs."""
    rng = np.random.default_rng(1)
    made = pools_of(pools, depth)
    first = len(made) - pools
    return Claims(
        jobs,
        weight=rng.choice([0.5, 1.0, 2.0], jobs).tolist(),
        arrival=np.arange(jobs, dtype=float).tolist(),
        work=[],
        min_share=rng.choice([0.0, 0.0, 0.1], jobs).tolist(),
        max_share=rng.integers(1, 100, jobs).astype(float).tolist(),
        group=(first + rng.integers(0, pools, jobs)).tolist(),
        groups=[Group(w, low, high, parent=above) for w, low, high, above in made],
        owner=[],
        cluster=Cluster.of_slots(jobs),
    )


def state_of(jobs: int, pools: int, depth: int) -> State:
    """The state of a run when this number of jobs has just arrived."""
    made = pools_of(pools, depth)
    tree = [
        Pool(
            f"p{number}",
            weight,
            {"task": min_share},
            {"task": int(max_share)} if max_share < INF else {},
            parent=f"p{above}" if above >= 0 else None,
        )
        for number, (weight, min_share, max_share, above) in enumerate(made)
    ]
    state = State(Cluster.of_slots(jobs), tree)
    state.at(0.0)
    for number in range(jobs):
        phase = Phase("map", Tasks(1 + number % 100, 1.0))
        pool = tree[-1 - number % pools].name
        state.apply(JobArrived(0.0, Job(f"j{number}", (phase,), pool=pool)))
    return state


def by_halving(claims: Claims) -> Array:
    """The shares by the Hadoop Fair Scheduler's bisection, for all pools of a depth at once."""
    pools = claims.groups
    group, parent = np.array(claims.group), np.array([pool.parent for pool in pools])
    weight, floors, tops = (
        np.array(values, dtype=float)
        for values in (claims.weight, claims.min_share, claims.max_share)
    )
    depth = np.zeros(len(pools), dtype=int)
    for number, pool in enumerate(pools):
        depth[number] = depth[pool.parent] + 1 if pool.parent >= 0 else 0
    low, high = np.bincount(group, floors, len(pools)), np.bincount(group, tops, len(pools))
    for level in range(depth.max(), -1, -1):
        for number in np.flatnonzero(depth == level):
            pool = pools[number]
            high[number] = min(pool.slots_max, high[number])
            low[number] = min(high[number], max(pool.slots_min, low[number]))
            if pool.parent >= 0:
                low[pool.parent] += low[number]
                high[pool.parent] += high[number]
    slots = np.append(np.zeros(len(pools)), claims.capacity)
    weights = np.array([pool.weight for pool in pools])
    for level in range(depth.max() + 1):
        at = np.flatnonzero(depth == level)
        slots[at] = _halved(slots, parent[at] % len(slots), weights[at], low[at], high[at])
    return _halved(slots, group, weight, floors, tops)


def _halved(slots: Array, group: NDArray[np.int_], w: Array, low: Array, high: Array) -> Array:
    owed = np.bincount(group, low, len(slots))
    low = low * np.minimum(1.0, slots / np.maximum(owed, 1e-300))[group]
    goal = np.minimum(np.bincount(group, high, len(slots)), slots)

    def shares(level: Array) -> Array:
        return np.minimum(high, np.maximum(level[group] * w, low))

    right = np.ones(len(slots))
    while (short := np.bincount(group, shares(right), len(slots)) < goal * (1 - 1e-12)).any():
        right[short] *= 2
    left = np.zeros(len(slots))
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        is_less = np.bincount(group, shares(middle), len(slots)) < goal
        left, right = np.where(is_less, middle, left), np.where(is_less, right, middle)
    return shares(right)


if __name__ == "__main__":
    serve(main, check)
