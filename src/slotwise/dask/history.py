"""What the gate keeps for its view: the recent shares of pools, and the objective so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from slotwise.model.cluster import ANY_KIND
from slotwise.model.decision import Decision
from slotwise.model.event import Event, HostResized, JobArrived, TaskFinished
from slotwise.model.job import Job
from slotwise.objective.objective import Objective
from slotwise.objective.penalty import Size
from slotwise.runtime.pool_state import PoolState
from slotwise.runtime.state import State

SAMPLE_SECONDS = 0.5
"""The least time between two samples."""

MAX_SAMPLES = 600
"""Five minutes of samples are kept."""

MAX_POOLS = 24
"""The number of pools of which samples are kept."""


@dataclass(frozen=True, slots=True)
class PoolShare:
    """The slots of a pool at an instant.

    guaranteed  its min share
    entitled    what it should hold now: its allocation, but no more than it can use
    used        what it holds
    """

    guaranteed: float
    entitled: float
    used: int


@dataclass(frozen=True, slots=True)
class PoolSample:
    """The slots of the cluster and of its pools at an instant, in seconds of the gate."""

    at: float
    slots: int
    pools: dict[str, PoolShare]


@dataclass(slots=True)
class _Spent:
    """What a computation has taken so far: all of its tasks, and the longest, in seconds."""

    job: Job
    work: float = 0.0
    longest: float = 0.0


@dataclass(slots=True)
class GateHistory:
    """The recent shares of pools, and the cost of the computations that are completed.

    completed    their number, without those of which no task has run
    value        their objective; 0 without any
    lower_bound  of any schedule of the same work on as many slots as there ever were: no
                 computation ends before the one with the whole cluster for itself would

    A record for the loop. Memory: samples, and a few numbers of each computation that is alive.
    """

    objective: Objective
    samples: deque[PoolSample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    completed: int = 0
    value: float = 0.0
    lower_bound: float = 0.0
    _slots_most: int = 1
    _alive: dict[str, _Spent] = field(default_factory=dict)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Note the events of a turn."""
        for event in events:
            if isinstance(event, TaskFinished):
                spent = self._alive.get(event.phase.job)
                if spent is not None:
                    spent.work += event.seconds
                    spent.longest = max(spent.longest, event.seconds)
            elif isinstance(event, JobArrived):
                self._alive[event.job.id] = _Spent(event.job)
            elif isinstance(event, HostResized):
                self._slots_most = max(self._slots_most, *event.slots.values())

    def look(self, state: State, now: float) -> None:
        """Note the state at the end of a turn."""
        for name in state.failed:
            self._alive.pop(name, None)
        for name, completion in state.completed.items():
            spent = self._alive.pop(name, None)
            if spent is not None and spent.work > 0:
                self._complete(spent, completion)
        if not self.samples or now >= self.samples[-1].at + SAMPLE_SECONDS:
            slots = state.capacity(ANY_KIND)
            self.samples.append(PoolSample(now, slots, pool_shares(state)))

    def _complete(self, spent: _Spent, completion: float) -> None:
        alone = max(spent.longest, spent.work / self._slots_most)
        cost = self.objective.cost(spent.job, Size(spent.work, alone))
        least = cost.at(spent.job.arrival + alone)
        # The first one counts alone: a maximum may be below 0, as of lateness.
        before = ([self.value], [self.lower_bound]) if self.completed else ([], [])
        self.value = self.objective.total([*before[0], cost.at(completion)])
        self.lower_bound = self.objective.total([*before[1], least])
        self.completed += 1


def pool_shares(state: State) -> dict[str, PoolShare]:
    """The shares of the first `MAX_POOLS` pools now, those of the configuration first."""
    now = {pool.name: pool for pool in state.shares(ANY_KIND)}
    names = dict.fromkeys([*state.pools, *now])
    return {name: _share(state, name, now.get(name)) for name in islice(names, MAX_POOLS)}


def _share(state: State, name: str, pool: PoolState | None) -> PoolShare:
    if pool is None:  # It has had no computation.
        return PoolShare(state.pools[name].slots_min.get(ANY_KIND, 0.0), 0.0, 0)
    return PoolShare(pool.min_share, pool.share, pool.held)
