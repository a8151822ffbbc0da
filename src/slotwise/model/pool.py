"""Pools: the jobs of one user or group, with guarantees and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Literal, get_args

from slotwise.model.cluster import ANY_KIND, MAX_SLOTS
from slotwise.model.errors import InputError
from slotwise.model.typed import (
    MIN_NUMBER,
    check_name,
    check_positive,
    check_range,
    check_time,
    check_type,
    is_number,
    shown,
)

PoolPolicy = Literal["fair", "fifo"]
JobWeights = Literal["stated", "size"]


@dataclass(frozen=True, slots=True)
class Preemption:
    """When and how a pool below its share takes slots back from other pools, as it is stated.

    least_after  seconds below its min share after which it takes back the missing slots; `inf`:
                 never
    fair_after   seconds below `fraction` of its share after which it takes back what it lacks
                 of its whole share; `inf`: never
    fraction     part of the share from the allocator (under FAIR, of its fair share): 1/2 in
                 Hadoop, 2/3 in Hammr
    grace        seconds from when a task is asked to stop until it is killed

    Each of them that is None is inherited from the pool above, at the top from the workload.
    What nobody states has the value of `TimeOuts`.
    """

    least_after: float | None = None
    fair_after: float | None = None
    fraction: float | None = None
    grace: float | None = None

    def __post_init__(self) -> None:
        for name in ("least_after", "fair_after"):
            seconds = getattr(self, name)
            if seconds is not None and seconds != inf:
                check_time(f"preemption: {name}", seconds)
        if self.fraction is not None:
            what, remedy = "preemption: fraction", "it must be above 0 and at most 1"
            check_range(what, self.fraction, MIN_NUMBER, 1, remedy)
        if self.grace is not None:
            check_time("preemption: grace", self.grace)

    def stated(self) -> dict[str, float]:
        """What is not inherited, by name."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def within(self, outer: Preemption | None) -> Preemption:
        """This, with what it does not state as in `outer`."""
        return self if outer is None else Preemption(**(outer.stated() | self.stated()))


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """The `Preemption` of a pool with all that it inherits."""

    least_after: float = inf
    fair_after: float = inf
    fraction: float = 0.5
    grace: float = 0.0


@dataclass(frozen=True)
class Pool:
    """Jobs of one user or group: weight, min and max share by kind of slot, inner policy.

    jobs_max     most jobs that run at once, including those of pools below it; others wait
    job_weights  the weights by which jobs share: "stated" is their weight; "size" is their
                 weight times the logarithm of their remaining work, so that larger jobs get
                 more, but not in proportion (Hadoop Fair Scheduler, sizebasedweight)
    parent       the pool that contains this one, None for one at the top
    preemption   what it does not state, or None, is inherited from the parent; at the top None
                 means that nothing is taken back
    """

    name: str = "default"
    weight: float = 1.0
    slots_min: Mapping[str, int] = field(default_factory=dict)
    slots_max: Mapping[str, int] = field(default_factory=dict)
    policy: PoolPolicy = "fair"
    parent: str | None = None
    jobs_max: int | None = None
    job_weights: JobWeights = "stated"
    preemption: Preemption | None = None

    def __post_init__(self) -> None:
        check_name("the name of a pool", self.name)
        if self.parent is not None:
            check_name(f"pool {self.name!r}: parent", self.parent)
        check_positive(f"pool {self.name!r}: weight", self.weight)
        for name, known in ("policy", PoolPolicy), ("job_weights", JobWeights):
            if getattr(self, name) not in get_args(known):
                raise InputError(
                    f"pool {self.name!r}: {name} is {shown(getattr(self, name))}; give one of"
                    f" {', '.join(get_args(known))}"
                )
        remedy = "give a slotwise.Preemption, or leave it out"
        what = f"pool {self.name!r}: preemption"
        check_type(what, self.preemption, Preemption | None, remedy)
        for name, least in ("slots_min", 0), ("slots_max", 1):
            shares = getattr(self, name)
            if is_number(shares):  # One number covers all kinds, as in a workload file.
                object.__setattr__(self, name, {ANY_KIND: shares})
            elif not isinstance(shares, Mapping):
                raise InputError(
                    f"pool {self.name!r}: {name} is {shown(shares)}; give a whole number, or"
                    " one for each kind of slot"
                )
            for kind, share in getattr(self, name).items():
                check_name(f"pool {self.name!r}: a kind of slot in {name}", kind)
                remedy = f"give a whole number from {least} to {MAX_SLOTS}"
                what = f"pool {self.name!r}: {name} of kind {kind!r}"
                check_range(what, share, least, MAX_SLOTS, remedy)
        for kind, min_share in self.slots_min.items():
            max_share = self.slots_max.get(kind)
            if max_share is not None and min_share > max_share:
                raise InputError(
                    f"pool {self.name!r}: slots_min {min_share} of kind {kind!r} is above its"
                    f" slots_max {max_share}; lower one or raise the other"
                )
        if self.jobs_max is not None:
            what = f"pool {self.name!r}: jobs_max"
            check_range(what, self.jobs_max, 1, inf, "give a whole number >= 1", whole=True)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of phases for which it has separate shares."""
        return frozenset(self.slots_min) | frozenset(self.slots_max)
