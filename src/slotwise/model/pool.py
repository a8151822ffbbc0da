"""Pools: jobs of one user or group and what they are guaranteed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slotwise.model.cluster import ANY_KIND
from slotwise.model.errors import InputError

PoolPolicy = Literal["fair", "fifo"]


@dataclass(frozen=True)
class Pool:
    """Jobs of one user or group: weight, least and most share by kind of slot, inner policy."""

    name: str = "default"
    weight: float = 1.0
    slots_min: Mapping[str, int] = field(default_factory=dict)
    slots_max: Mapping[str, int] = field(default_factory=dict)
    policy: PoolPolicy = "fair"

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise InputError(f"pool {self.name!r}: weight is {self.weight}; it must be > 0")
        for name in ("slots_min", "slots_max"):
            shares = getattr(self, name)
            if isinstance(shares, int):  # One number is for all kinds, as in a workload file.
                object.__setattr__(self, name, {ANY_KIND: shares})
        for kind, least in self.slots_min.items():
            most = self.slots_max.get(kind)
            if most is not None and least > most:
                raise InputError(
                    f"pool {self.name!r}: slots_min {least} of kind {kind!r} is above its"
                    f" slots_max {most}; lower one or raise the other"
                )

    def share_key(self, kind: str) -> str:
        """The key of the shares that phases of this kind count against.

        Shares given for "task" cover all kinds that have none of their own.
        """
        return kind if kind in self.slots_min or kind in self.slots_max else ANY_KIND
