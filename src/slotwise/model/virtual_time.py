"""Virtual time: how far a fluid reference system has come that shares all slots by user.

It is data that a scheduler remembers from one `Reallocate` to the next. The rules are in
`slotwise.allocation.uwfq`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class VirtualJob(NamedTuple):
    """A job that is not complete in the reference, though it may be over in reality.

    begun     its user's clock when it came
    size      its estimated work in all, slot-seconds, without `before`
    attained  the service that it had really attained at the last decision, slot-seconds
    before    its work in all as it was estimated when it was complete in the reference, slot-
              seconds, if it proved to be larger and came again; else 0
    """

    job: str
    begun: float
    size: float
    weight: float
    attained: float
    before: float = 0.0


class VirtualUser(NamedTuple):
    """A pool with jobs that are not complete in the reference.

    begun  virtual time at which the first of these jobs begins if they run one after another
    clock  service of each of its jobs since the pool became busy, slot-seconds per weight
    """

    name: str
    begun: float
    clock: float
    jobs: tuple[VirtualJob, ...]


class VirtualEnd(NamedTuple):
    """The virtual finish of a job that is complete in the reference, but not in reality.

    size  its estimated work in all, slot-seconds
    """

    finish: float
    size: float


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """The reference system at one instant.

    at      the instant, in seconds on the clock of arrivals
    slots   the slots that it shares from then on
    now     the virtual time then: slot-seconds that a busy user of weight 1 has got so far
    users   the busy users
    late    the jobs that are over in the reference only
    finish  the virtual finish of each real job, from the above
    """

    at: float
    slots: int
    now: float = 0.0
    users: tuple[VirtualUser, ...] = ()
    late: Mapping[str, VirtualEnd] = field(default_factory=dict)
    finish: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)
