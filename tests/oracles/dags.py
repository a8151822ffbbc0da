"""Random jobs that are DAGs of malleable phases, degenerate ones among them; all present at 0.

`flows` is for hypothesis, `random_flows` draws the same shapes with numpy, many at once, and
`paper_flows` draws after FlowFlex 5.1. Whoever is drawn has a weight, a deadline and steps, so
that any penalty can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective

LINEAR = ("response", "stretch", "slowdown", "lateness")
"""Penalties that are straight lines."""

PENALTIES = (*LINEAR, "tardy", "tardiness", "sla")
"""All but the makespan, which is only ever a maximum."""

OBJECTIVES = (
    *(Objective(penalty, aggregate) for aggregate in ("sum", "max") for penalty in PENALTIES),
    Objective("makespan", "max"),
)
"""Every metric there is."""

Edges = frozenset[tuple[int, int]]
"""Pairs (before, behind) of the phases of a job, which are in topological order."""

FINE = 2.0**-10
"""Deadlines and steps are multiples of this: they differ from each other or are equal."""


@dataclass(frozen=True, slots=True)
class Flows:
    """Jobs and the slots that they share."""

    jobs: tuple[Job, ...]
    slots: int
    has_kinds: bool = False

    @property
    def capacity(self) -> int | dict[str, int]:
        """Of one kind for all phases; or that many for maps, and half as many for reduces."""
        return (
            {"map": self.slots, "reduce": -(-self.slots // 2)} if self.has_kinds else self.slots
        )

    @property
    def cluster(self) -> Cluster:
        """All slots on one host."""
        if isinstance(self.capacity, int):
            return Cluster.of_slots(self.capacity)
        return Cluster((Host("h", self.capacity),))

    @property
    def phases(self) -> int:
        """Of all jobs."""
        return sum(len(job.phases) for job in self.jobs)


def antichain(count: int) -> Edges:
    """No phase waits for another."""
    return frozenset()


def chain(count: int) -> Edges:
    """Each waits for the one before it."""
    return frozenset((i, i + 1) for i in range(count - 1))


def fork(count: int) -> Edges:
    """All others wait for the first."""
    return frozenset((0, i) for i in range(1, count))


def join(count: int) -> Edges:
    """The last waits for all others."""
    return frozenset((i, count - 1) for i in range(count - 1))


def fork_join(count: int) -> Edges:
    """A first, a last, and all others side by side between them; a diamond if they are four."""
    return fork(count) | join(count)


def two_layers(count: int) -> Edges:
    """Each of the second half waits for each of the first."""
    half = (count + 1) // 2
    return frozenset((i, k) for i in range(half) for k in range(half, count))


def zigzag(count: int) -> Edges:
    """Two layers in which each of the second waits for two of the first: no series-parallel."""
    half = (count + 1) // 2
    return frozenset(
        (i, k) for k in range(half, count) for i in (k - half, k - half + 1) if i < half
    )


def with_redundant(count: int) -> Edges:
    """A chain in which each also waits for all that come before."""
    return frozenset(combinations(range(count), 2))


SHAPES: tuple[Callable[[int], Edges], ...] = (
    antichain,
    chain,
    fork,
    join,
    fork_join,
    two_layers,
    zigzag,
    with_redundant,
)
"""What is drawn in addition to DAGs."""


def sinks_joined(count: int, edges: Edges) -> Edges:
    """The same, but what nothing waits for comes before the last one (FlowFlex 5.1)."""
    waited = {before for before, _ in edges}
    return edges | {(i, count - 1) for i in range(count - 1) if i not in waited}


@dataclass(frozen=True, slots=True)
class Due:
    """When a job is due, and what it costs to be late."""

    weight: float
    deadline: float
    steps: tuple[tuple[float, float], ...]
    penalty: str | None = None


def job_of(
    name: str, work: Sequence[float], max_share: Sequence[int], edges: Edges, due: Due
) -> Job:
    """A job of such phases: `most` tasks each, or twice as many and a max share.

    Every third phase is a reduce, where a cluster tells them from maps.
    """
    phases = []
    for i, (seconds, slots) in enumerate(zip(work, max_share, strict=True)):
        after = frozenset(f"p{before}" for before, behind in edges if behind == i)
        count = slots if i % 2 == 0 else 2 * slots
        phases.append(
            Phase(
                f"p{i}",
                Tasks(count, seconds / count),
                kind="reduce" if i % 3 == 2 else "map",
                after=after,
                slots_max=slots,
            )
        )
    return Job(
        name,
        tuple(phases),
        weight=due.weight,
        deadline=due.deadline,
        steps=due.steps,
        penalty=due.penalty,
    )


@st.composite
def edges_of(draw: st.DrawFn, count: int) -> Edges:
    """A shape, or each pair with probability 1/2, all sinks before the last or not."""
    shape = draw(st.sampled_from(["random", "joined", *SHAPES]))
    if not isinstance(shape, str):
        return shape(count)
    pairs = list(combinations(range(count), 2))
    chosen = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    edges = frozenset(pair for pair, is_in in zip(pairs, chosen, strict=True) if is_in)
    return sinks_joined(count, edges) if shape == "joined" else edges


@st.composite
def dues(draw: st.DrawFn, scale: float, penalties: Sequence[str | None]) -> Due:
    """Some are due at once, many at the same instant; `scale` is how long all may take."""
    instant = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1.5)
    at = draw(instant)
    charges = sorted(
        draw(st.sets(st.sampled_from([0.5, 1.0, 2.0, 5.0, 9.0]), min_size=1, max_size=3))
    )
    instants = sorted({_fine(draw(instant) * scale) for _ in charges})
    return Due(
        weight=draw(st.sampled_from([1.0, 1.0, 0.25, 10.0]) | st.floats(0.05, 10)),
        deadline=_fine(at * scale),
        steps=tuple(zip(instants, charges, strict=False)),
        penalty=draw(st.sampled_from(penalties)),
    )


@st.composite
def flows(
    draw: st.DrawFn,
    jobs_most: int = 4,
    phases_most: int = 7,
    total_most: int = 20,
    mixed: bool = False,
    widest: bool = True,
    with_zero: bool = False,
    with_kinds: bool = False,
) -> Flows:
    """Limited numbers of jobs, of phases in each, and of phases in all.

    mixed       each job may have its own penalty
    widest      work may differ by a factor of a million
    with_zero   some phases have no work, but not all of a job
    with_kinds  maps and reduces may have their own slots
    """
    slots = draw(st.sampled_from([1, 2, 3, 7, 10, 25]))
    count = draw(st.integers(1, jobs_most))
    sizes = draw(st.lists(st.integers(1, phases_most), min_size=count, max_size=count))
    while sum(sizes) > max(total_most, count):
        sizes[sizes.index(max(sizes))] -= 1
    kinds = [st.sampled_from([1.0, 8.0, 40.0]), st.floats(0.1, 50)]
    if widest and draw(st.booleans()):
        kinds.append(st.sampled_from([1e-3, 1e3]))
    work = draw(st.sampled_from([st.just(6.0), st.one_of(kinds)]))
    max_share = draw(
        st.sampled_from(
            [st.just(1), st.just(slots + 3), st.integers(1, slots + 2), st.integers(1, slots)]
        )
    )
    own: list[str | None] = [None, None, *PENALTIES] if mixed else [None]
    works = [[draw(work) for _ in range(size)] for size in sizes]
    mosts = [[draw(max_share) for _ in range(size)] for size in sizes]
    for seconds in works if with_zero else ():
        if draw(st.booleans()):
            seconds[1::2] = [0.0] * (len(seconds) // 2)
    scale = _scale(works, mosts, slots)
    return Flows(
        tuple(
            job_of(f"j{j}", works[j], mosts[j], draw(edges_of(size)), draw(dues(scale, own)))
            for j, size in enumerate(sizes)
        ),
        slots,
        with_kinds and draw(st.booleans()),
    )


def random_flows(
    rng: np.random.Generator,
    jobs: int,
    phases: int,
    slots: int = 10,
    penalties: Sequence[str | None] = (None,),
) -> Flows:
    """Jobs of 1 to `phases_most` phases each, as degenerate as those of hypothesis."""
    sizes = rng.integers(1, phases + 1, jobs)
    regime = rng.integers(0, 4)
    works, mosts = [], []
    for size in sizes:
        works.append(
            [
                [6.0] * size,
                list(rng.uniform(0.1, 50, size)),
                list(10.0 ** rng.uniform(-3, 3, size)),
                list(rng.choice([1.0, 8.0, 40.0], size)),
            ][regime]
        )
        tops = [1, slots, slots + 3, int(rng.integers(1, slots + 1))]
        mosts.append([int(tops[k]) for k in rng.integers(0, 4, size)])
        if rng.random() < 0.2:
            mosts[-1] = [1] * size
    scale = _scale(works, mosts, slots)
    return Flows(
        tuple(
            job_of(
                f"j{j}", works[j], mosts[j], _edges(rng, int(size)), _due(rng, scale, penalties)
            )
            for j, size in enumerate(sizes)
        ),
        slots,
    )


def paper_flows(rng: np.random.Generator, slots: int = 25) -> Flows:
    """After FlowFlex 5.1: 5 to 20 flows of 2 to 20 phases, big, tall and wide at random."""
    works, mosts, nets = [], [], []
    for _ in range(rng.integers(5, 21)):
        size = int(rng.integers(2, 21))
        is_big, is_tall = rng.random(2) < 0.5
        works.append(list(rng.uniform(1, 20, size) * (10 if is_big else 1)))
        mosts.append(
            [
                slots if is_tall and rng.random() < 0.5 else int(rng.integers(1, slots + 1))
                for _ in range(size)
            ]
        )
        pairs = frozenset(pair for pair in combinations(range(size), 2) if rng.random() < 0.5)
        nets.append(sinks_joined(size, pairs))
    scale = _scale(works, mosts, slots)
    return Flows(
        tuple(
            job_of(f"j{j}", works[j], mosts[j], net, _due(rng, scale, [None]))
            for j, net in enumerate(nets)
        ),
        slots,
    )


def _edges(rng: np.random.Generator, count: int) -> Edges:
    kind = rng.integers(0, len(SHAPES) + 4)
    if kind < len(SHAPES):
        return SHAPES[kind](count)
    edges = frozenset(pair for pair in combinations(range(count), 2) if rng.random() < 0.5)
    return sinks_joined(count, edges) if kind % 2 else edges


def _due(rng: np.random.Generator, scale: float, penalties: Sequence[str | None]) -> Due:
    instants = sorted({_fine(at * scale) for at in rng.uniform(0, 1.5, rng.integers(1, 6))})
    return Due(
        weight=float(rng.choice([1.0, rng.uniform(1, 10)])),
        deadline=_fine(float(rng.choice([0.5, rng.uniform(0, 1.5)])) * scale),
        steps=tuple(
            zip(instants, np.cumsum(rng.uniform(0.5, 5, len(instants))).tolist(), strict=True)
        ),
        penalty=penalties[int(rng.integers(0, len(penalties)))],
    )


def _scale(
    works: Sequence[Sequence[float]], mosts: Sequence[Sequence[int]], slots: int
) -> float:
    """About how long all of it takes."""
    area = sum(map(sum, works)) / slots
    longest = max(
        w / min(m, slots)
        for work, max_share in zip(works, mosts, strict=True)
        for w, m in zip(work, max_share, strict=True)
    )
    return max(area, longest, FINE)


def _fine(instant: float) -> float:
    return round(instant / FINE) * FINE
