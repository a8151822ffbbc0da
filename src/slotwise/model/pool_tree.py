"""Pools within pools: a forest whose leaves hold the jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from typing import NamedTuple

from slotwise.model.cluster import ANY_KIND
from slotwise.model.errors import InputError
from slotwise.model.pool import Pool, Preemption, TimeOuts


class ShareKey(NamedTuple):
    """The name of a share: the pool, and the kinds of phases that count against it.

    `kind` is a kind of phase, or "task" for all kinds without a share of their own.
    """

    pool: str
    kind: str


class PoolTree(Mapping[str, Pool]):
    """The pools by name, and how they are nested. Immutable.

    InputError for a duplicate name, an unknown parent, a circle of parents, a policy other than
    "fair" for a pool of pools, and shares that do not match the kinds of a parent.
    """

    def __init__(self, pools: Iterable[Pool] = ()) -> None:
        self._pools: dict[str, Pool] = {}
        for pool in pools:
            if pool.name in self._pools:
                raise InputError(f"two pools are named {pool.name!r}; rename one")
            self._pools[pool.name] = pool
        self._paths: dict[str, tuple[Pool, ...]] = {}
        self._kinds_above: dict[str, frozenset[str]] = {}
        self._shares: dict[tuple[str, str], tuple[ShareKey, ...]] = {}
        for name in self._pools:
            self._find_path(name)
        self.inner = frozenset(p.parent for p in self._pools.values() if p.parent is not None)
        for name in self._pools:
            self._check(name)

    def __getitem__(self, name: str) -> Pool:
        return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)

    def path(self, name: str) -> tuple[Pool, ...]:
        """The pools from the top down to this one."""
        return self._paths[name]

    def shares(self, name: str, kind: str) -> tuple[ShareKey, ...]:
        """The shares that a phase of this kind in this pool counts against, from the top down.

        If a pool separates kinds, so do all pools below it: the shares are a forest, too.
        """
        if found := self._shares.get((name, kind)):
            return found
        keys, apart = [], False
        for pool in self._paths[name]:
            apart = apart or kind in pool.kinds
            keys.append(ShareKey(pool.name, kind if apart else ANY_KIND))
        self._shares[name, kind] = found = tuple(keys)
        return found

    def preemption(self, name: str) -> TimeOuts | None:
        """How this pool takes slots back: each number is its own, or of the nearest one above.

        None if none of these pools states anything.
        """
        stated = [p.preemption for p in self._paths[name] if p.preemption is not None]
        if not stated:
            return None
        return TimeOuts(**reduce(lambda outer, inner: inner.within(outer), stated).stated())

    def with_pools(self, names: Iterable[str]) -> PoolTree:
        """This tree, plus a default pool for each missing name. InputError for inner pools."""
        wanted = dict.fromkeys(names)
        for name in wanted:
            self.check_holds_jobs(name)
        return PoolTree([*self._pools.values(), *(Pool(n) for n in wanted if n not in self)])

    def with_preemption(self, preemption: Preemption) -> PoolTree:
        """This tree, in which the pools at the top inherit what they do not state from this."""
        return PoolTree(
            replace(pool, preemption=(pool.preemption or Preemption()).within(preemption))
            if pool.parent is None
            else pool
            for pool in self._pools.values()
        )

    def check_slots(
        self, name: str, kind: str, slots: int, what: str = "each task occupies"
    ) -> None:
        """InputError if a task of this kind and number of slots exceeds a max share.

        `what` says of what the slots are, if not of a task.
        """
        for key in self.shares(name, kind):
            most = self[key.pool].slots_max.get(key.kind)
            if most is not None and most < slots:
                raise InputError(
                    f"{what} {slots} slots, but pool {key.pool!r} may hold at most"
                    f" {most} (slots_max); give the pool more, or the task fewer"
                )

    def check_holds_jobs(self, name: str) -> None:
        """InputError if the pool has pools below it, and so cannot hold jobs."""
        if name in self.inner:
            below = sorted(p.name for p in self._pools.values() if p.parent == name)
            raise InputError(
                f"pool {name!r} has pools below it and holds no jobs itself;"
                f" name one of: {', '.join(below)}"
            )

    @cached_property
    def depth(self) -> int:
        """The number of pools on the longest path from the top; 0 without pools."""
        return max((len(path) for path in self._paths.values()), default=0)

    def _find_path(self, name: str) -> None:
        """Store the paths to a pool and to the pools that contain it, unless already stored."""
        way: dict[str, Pool] = {}
        parent: str | None = name
        while parent is not None and parent not in self._paths:
            if parent in way:
                raise InputError(
                    f"pool {parent!r} lies within itself; remove one `parent` of"
                    f" {', '.join(way)}"
                )
            if parent not in self._pools:
                known = ", ".join(sorted(self._pools))
                raise InputError(
                    f"pool {next(reversed(way))!r}: unknown parent {parent!r}; known: {known}"
                )
            way[parent] = self._pools[parent]
            parent = way[parent].parent
        for pool in reversed(way.values()):
            above: tuple[Pool, ...] = ()
            kinds: frozenset[str] = frozenset()
            if pool.parent is not None:
                above = self._paths[pool.parent]
                kinds = self._kinds_above[pool.parent] | above[-1].kinds
            self._paths[pool.name], self._kinds_above[pool.name] = (*above, pool), kinds

    def _check(self, name: str) -> None:
        pool = self._pools[name]
        if name in self.inner and pool.policy != "fair":
            raise InputError(
                f"pool {name!r}: policy is {pool.policy!r}, but pools within a pool share by"
                " weight; remove it, or give it to the pools below"
            )
        missing = sorted(self._kinds_above[name] - pool.kinds - {ANY_KIND})
        if ANY_KIND in pool.kinds and missing:
            raise InputError(
                f"pool {name!r} has shares for all kinds together, but a pool above it has"
                f" separate shares for {', '.join(missing)}; give its shares by kind, too"
            )
