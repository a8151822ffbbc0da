"""Why jobs wait, as data: the codes of reasons, and what is known of one job that waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from math import inf
from typing import Any

from slotwise.insight.report.ranges import UNKNOWN, span

Instants = tuple[float, float, float]
"""The low end, the median and the high end of a range, in seconds; infinity if it is open."""


class Reason(StrEnum):
    """Why a job holds no more slots. docs/why-it-waits.md has the remedy of each."""

    HELD = "held"
    NOT_ARRIVED = "not_arrived"
    CALLS_BEFORE = "calls_before"
    JOBS_BEFORE = "jobs_before"
    JOBS_MAX = "jobs_max"
    PHASES_BEFORE = "phases_before"
    TASKS_BEFORE = "tasks_before"
    RETRY_DELAY = "retry_delay"
    NO_HOST = "no_host"
    HOST_ABSENT = "host_absent"
    TASK_TOO_LARGE = "task_too_large"
    GANG_TOO_LARGE = "gang_too_large"
    GANG_STOPS = "gang_stops"
    GANG_EXCEEDS_POOL = "gang_exceeds_pool"
    GANG_SLOTS = "gang_slots"
    PHASE_SLOTS_MAX = "phase_slots_max"
    POOL_SLOTS_MAX = "pool_slots_max"
    POOL_RESOURCES_MAX = "pool_resources_max"
    POOL_CLOSED = "pool_closed"
    RESOURCE = "resource"
    HOST_KEPT = "host_kept"
    SLOTS_ON_ONE_HOST = "slots_on_one_host"
    SLOT_OF_HOST = "slot_of_host"
    LOCALITY = "locality"
    HOSTS_AVOIDED = "hosts_avoided"
    NEXT_ALLOCATION = "next_allocation"
    SERVED_LATER = "served_later"
    BACKFILLING = "backfilling"
    PROMISED = "promised"
    SLOTS_HELD = "slots_held"
    SLOTS_RESERVED = "slots_reserved"
    PART_OF_A_SLOT = "part_of_a_slot"
    SHARE_HELD = "share_held"
    ABOVE_SHARE = "above_share"
    STOPPING = "stopping"
    QUEUED = "queued"
    IN_NO_QUEUE = "in_no_queue"
    ALL_RUN = "all_run"
    MORE_MAY_COME = "more_may_come"
    DONE = "done"


ORDERS: Mapping[str, str] = {
    "shares": "the least part of their shares held first",
    "priority and arrival": "by priority, then by arrival",
    "cost": "the least work for its weight first",
    "deadline": "by what completing later costs",
    "attained service": "the least attained service first",
    "virtual time": "the earliest virtual finish first",
    "backfilling": "by priority, then by arrival, but for backfilling",
    "allocation": "in the order of the allocation",
    "queues": "as they were planned",
    "admission": "in the order of admission",
}
"""The rules by which schedulers order the jobs that wait, in words."""


@dataclass(frozen=True, slots=True)
class PhaseReason:
    """The first reason that applies for the slots that a phase holds.

    sentence  about the phase, "it ..."
    remedy    what would start a task of it now, as a noun; empty if nothing would
    lacks     the host or resource that is missing, if it is one
    """

    code: Reason
    sentence: str
    remedy: str = ""
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class AboveShare:
    """A pool that holds more slots than its share."""

    pool: str
    held: int
    share: float


@dataclass(frozen=True, slots=True)
class WhyWaiting:
    """Why a job waits, or holds no more slots, at an instant.

    reason    the code of the reason, one of `Reason`; `sentence` has it in words
    remedy    what would start a task of it now: "a free slot"; empty if nothing would
    lacks     the host or resource that is missing, if it is one; else empty
    position  its number among the `waiting` jobs of the `pool`, or of all if that is empty;
              None if it does not wait for slots, or holds some
    order     the rule by which these are ordered, a key of `ORDERS`, or empty
    ahead     the jobs that are served right before it, the last one next to it; also those that
              run and have more tasks
    above     the pools that hold more than their shares
    start     when it is forecast to start: low end, median and high end, in seconds as `at` of
              the explanation; None without a forecast, or if it has begun
    """

    job: str
    reason: str
    sentence: str
    remedy: str = ""
    lacks: str = ""
    pool: str = ""
    position: int | None = None
    waiting: int = 0
    order: str = ""
    ahead: tuple[str, ...] = ()
    above: tuple[AboveShare, ...] = ()
    start: Instants | None = None

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> WhyWaiting:
        """The opposite of `asdict`; further keys are ignored."""
        known = {one.name: plain[one.name] for one in fields(cls) if one.name in plain}
        known["above"] = tuple(AboveShare(**one) for one in plain.get("above", ()))
        known["ahead"] = tuple(plain.get("ahead", ()))
        if start := plain.get("start"):
            known["start"] = tuple(inf if at is None else at for at in start)
        return cls(**known)

    def in_words(self, now: float) -> str:
        """All of it as one sentence, at the instant `now`."""
        parts = [self.sentence]
        if self.position is not None:
            where = f" in pool {self.pool}" if self.pool else ""
            place = f"it is number {self.position} of {self.waiting} that wait{where}"
            if self.ahead:
                place += (
                    f", after {', '.join(self.ahead)} ({ORDERS.get(self.order, self.order)})"
                )
            parts.insert(0, place)
        if self.above:
            held = (f"{one.pool} ({one.held} of {one.share:.4g} slots)" for one in self.above)
            which = "their shares are pools" if len(self.above) > 1 else "its share is pool"
            parts.append(f"above {which} {', '.join(held)}")
        if self.remedy:
            parts.append(f"what would start it: {self.remedy}")
        if self.start is not None:
            low, _, high = (max(0.0, at - now) for at in self.start)
            if (when := span(low, high)) != UNKNOWN:
                when = f"in {when}".replace("in under", "within")
                parts.append(f"its start is forecast {when}")
        return "; ".join(parts)
